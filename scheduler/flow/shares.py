"""How many slots each user is due: max-min shares by weight.

A round gives out whole slots. Those that are left of fractions go to the users that have had least for their weights so
far, which `Balance` keeps: so shares that are no whole slots hold over time.

Pure: no clock, no chance, no I/O.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping
from dataclasses import dataclass

REMEMBERED_MAX = 1024
"""Users without waiting tasks who are remembered to have had more than others; beyond it those who had least are
forgotten."""
AHEAD_S_MAX = 3600.0
"""Slot-seconds that a user may be ahead of the others, or behind them; what is beyond that is forgiven."""
ROUNDING = 1e-9
"""Of slots: levels are sums of many fractions, and a share that lacks so little is whole."""


@dataclass(frozen=True, slots=True)
class Due:
    """A user who has tasks."""

    weight: float
    wanted: int
    """Slots that the user could use, those held included."""
    held: int = 0
    """Slots that cannot be taken away."""
    runs: int = 0
    """Slots that the user's tasks hold now, with those that can be taken away."""
    ahead_s: float = 0.0
    """How much more the user has had for the weight than others (`Balance`)."""


def max_min(slots: int, users: Mapping[str, Due]) -> dict[str, int]:
    """Slots by user: all are filled to the same level for their weights, until no slot is left or wanted.

    Who holds more than that keeps it; the others share what is left. The slots of fractions go to those who have less
    than they are due if nobody holds more: first where their tasks run already, then to those who have had least.
    """
    shares = {name: min(due.held, due.wanted) for name, due in users.items()}
    left = slots - sum(shares.values())
    level = _level(left, users, shares)
    ideal = _level(slots, users, dict.fromkeys(users, 0))

    def turn(name: str) -> tuple[bool, bool, float, float, str]:
        """The least goes first."""
        due, share = users[name], shares[name]
        has_more = share > ideal * due.weight - ROUNDING
        return has_more, due.runs <= share, due.ahead_s, (share + 1) / due.weight, name

    for name, due in users.items():
        exact = level * due.weight
        reached = min(due.wanted, int(exact + ROUNDING + exact * 1e-12))
        left -= max(0, reached - shares[name])
        shares[name] = max(shares[name], reached)
    queue = [turn(name) for name, due in users.items() if shares[name] < due.wanted]
    heapq.heapify(queue)
    while left > 0 and queue:
        *_, name = heapq.heappop(queue)
        shares[name] += 1
        left -= 1
        if shares[name] < users[name].wanted:
            heapq.heappush(queue, turn(name))
    return shares


def _level(left: int, users: Mapping[str, Due], held: Mapping[str, int]) -> float:
    """Up to how many slots per weight all users can be filled with so many slots, but for rounding."""
    ends = [(held[name] / due.weight, due.weight) for name, due in users.items() if due.wanted > held[name]]
    ends += [(due.wanted / due.weight, -due.weight) for name, due in users.items() if due.wanted > held[name]]
    level, weight, room = 0.0, 0.0, float(max(left, 0))
    for end, change in sorted(ends):
        needed = (end - level) * weight
        if needed > room:
            break
        room -= needed
        level = end
        weight += change
    return level + room / weight if weight > 1e-12 else level


@dataclass(frozen=True, slots=True)
class Holding:
    """What a user who waits holds until the next round."""

    slots: int
    is_short: bool
    """Fewer than the user was let have, as nothing fits there: nothing is saved up by that."""


class Balance:
    """How many slot-seconds each user who waits has had for the weight, beyond the mean of all who wait.

    Whoever begins to wait starts at the mean, or where the user was if that was more: nothing is saved up. Who does not
    wait any more is forgotten as soon as the mean is there. A round is one `begin`, and one `end` if it succeeds.
    """

    def __init__(self) -> None:
        self.ahead_s: dict[str, float] = {}
        """By user: those who wait, and those who do not and had more than the mean."""
        self._weights: dict[str, float] = {}
        self._holdings: dict[str, Holding] = {}
        """Of users who have waited since the last round."""
        self._now_s = 0.0

    def begin(self, now_s: float, weights: Mapping[str, float]) -> None:
        """Take note of the time since the last round. `weights`: of the users that have tasks now."""
        passed_s, self._now_s = now_s - self._now_s, now_s
        if passed_s > 0:
            self._charge(passed_s)
            waited, self._holdings = self._holdings, {}
            for name in weights:
                if name not in waited:
                    self.ahead_s[name] = max(0.0, self.ahead_s.get(name, 0.0))
            self._forget(weights)
        for name, weight in weights.items():
            most = AHEAD_S_MAX / weight
            self.ahead_s[name] = max(-most, min(most, self.ahead_s.get(name, 0.0)))
        self._weights = dict(weights)

    def end(self, holdings: Mapping[str, Holding]) -> None:
        """The round is over, and these users wait on."""
        self._holdings = dict(holdings)

    def _charge(self, passed_s: float) -> None:
        ahead_s, holdings, weights = self.ahead_s, self._holdings, self._weights
        used = {name: holding.slots * passed_s / weights[name] for name, holding in holdings.items()}
        sharing = [name for name, holding in holdings.items() if not holding.is_short]
        whole = sum(weights[name] for name in sharing)
        usual = sum(used[name] * weights[name] for name in sharing) / whole if sharing else 0.0
        for name, holding in holdings.items():
            ahead_s[name] += max(used[name], usual) if holding.is_short else used[name]
        mean = sum(ahead_s[name] * weights[name] for name in sharing) / whole if sharing else 0.0
        if mean > 0:  # Else somebody has left who had more, and those who come start no earlier than before.
            for name in ahead_s:
                ahead_s[name] -= mean

    def _forget(self, weights: Collection[str]) -> None:
        idle = [name for name in self.ahead_s if name not in weights]
        idle.sort(key=lambda name: (-self.ahead_s[name], name))
        for number, name in enumerate(idle):
            if not weights or number >= REMEMBERED_MAX or self.ahead_s[name] <= 0:
                del self.ahead_s[name]
