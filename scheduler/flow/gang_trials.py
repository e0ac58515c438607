"""Which gangs a round tries, in turns of users; and gangs that cannot fit, which are not looked at again until machines
have room that they had not."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from scheduler.flow.fitting import copies
from scheduler.flow.policies.policy import Group, Machine

TRIALS_MAX = 16
"""Gangs that are tried in a round."""

Asked = tuple[int, Group, tuple[tuple[str, float], ...], Collection[str] | None]
"""Tasks of a gang, its limits, the demand of each, machines that it may go to."""
Rank = tuple[str, int, float]
"""A gang's user; then what comes first of the user's: the higher priority, as a negative number, then the oldest."""


class GangTurns:
    """Users whose gangs were tried longest ago come first, each with one gang, then each with the next one."""

    def __init__(self) -> None:
        self._tried: dict[str, int] = {}
        """By gang that waits: in which round it was tried last."""
        self._turns: dict[str, int] = {}
        """By user with gangs that wait: in which round one was tried last."""

    def take(self, gangs: Mapping[str, Rank], now: int) -> list[str]:
        """The gangs to be tried in this round, in order. Of a user with more gangs than have a turn those come first
        that were tried longest ago."""
        few = len(gangs) <= TRIALS_MAX
        self._tried = {name: self._tried.get(name, 0) for name in gangs}
        of_user: dict[str, list[str]] = {}
        for name in sorted(gangs, key=lambda one: (0 if few else self._tried[one], *gangs[one][1:], one)):
            of_user.setdefault(gangs[name][0], []).append(name)
        self._turns = {user: self._turns.get(user, 0) for user in of_user}
        queue = deque(sorted(of_user, key=lambda user: (self._turns[user], *gangs[of_user[user][0]][1:], user)))
        chosen: list[str] = []
        places = dict.fromkeys(of_user, 0)
        while queue and len(chosen) < TRIALS_MAX:
            user = queue.popleft()
            name = of_user[user][places[user]]
            chosen.append(name)
            self._tried[name] = self._turns[user] = now
            places[user] += 1
            if places[user] < len(of_user[user]):
                queue.append(user)
        return chosen


@dataclass(slots=True)
class Size:
    """What a machine would have if nothing ran there."""

    rack: str
    slots: int
    free: dict[str, float] | None
    """The most that was free while nothing ran there; None as long as that was never seen."""


class RoomOfMachines:
    """How much machines would have if nothing ran there, as far as they have been seen so, and which gangs that is too
    little for."""

    def __init__(self, *, keeps_running: bool) -> None:
        self._keeps_running = keeps_running
        """Whether slots and resources of machines include those that tasks of the network take."""
        self._sizes: dict[str, Size] = {}
        self._version = 0
        """Rises whenever a machine has more than it ever had."""
        self._refused: dict[str, tuple[int, Asked, str]] = {}
        """By gang: of which version, what was asked, and why not."""

    def machine_told(self, machine: Machine) -> None:
        """It is new, or has changed."""
        slots = machine.slots + (0 if self._keeps_running else machine.running)
        idle = self._keeps_running or not machine.running
        known = self._sizes.get(machine.name)
        if known is None or known.rack != machine.rack:
            self._sizes[machine.name] = Size(machine.rack, slots, dict(machine.free) if idle else None)
            self._version += 1
            return
        if slots > known.slots:
            self._version += 1
        known.slots = slots
        if not idle:
            return
        if known.free is None:  # Less than what was taken for granted.
            known.free = dict(machine.free)
            return
        for name, amount in machine.free.items():
            if amount > known.free.get(name, 0.0):
                known.free[name] = amount
                self._version += 1

    def machine_gone(self, name: str) -> None:
        """It has nothing any more."""
        self._sizes.pop(name, None)

    def places(
        self, machines: Iterable[str], demand: Mapping[str, float], allowed: Collection[str] | None
    ) -> list[tuple[str, int]]:
        """Rack of each machine that may have such tasks, and how many would fit there."""
        found = []
        for name in machines:
            if allowed is not None and name not in allowed:
                continue
            size = self._sizes[name]
            fitting = None if size.free is None else copies(size.free, demand)
            found.append((size.rack, size.slots if fitting is None else min(size.slots, fitting)))
        return found

    def why_never(self, gang: str, asked: Asked, find: Callable[[], str]) -> str:
        """Why the gang does not fit: as was found last, but if there is more room since or it asks for others."""
        known = self._refused.get(gang)
        if known is not None and known[:2] == (self._version, asked):
            return known[2]
        reason = find()
        if reason:
            self._refused[gang] = self._version, asked, reason
        else:
            self._refused.pop(gang, None)
        return reason

    def forget(self, gangs: Collection[str]) -> None:
        """Only these gangs are there still."""
        self._refused = {name: known for name, known in self._refused.items() if name in gangs}


def why_never(needed: int, name: str, group: Group, places: Iterable[tuple[str, int]]) -> str:
    """Why so many tasks of a group have no places at once, by machines' racks and their room; "" if they have."""
    racks, most = Counter[str](), 0
    for rack, room in places:
        here = min(room, group.max_per_machine) if group.max_per_machine else room
        most = max(most, here)
        racks[rack] += here
    if group.together_with == name:
        return "" if most >= needed else f"{needed:,} tasks go to one machine; the largest has room for {most:,}"
    room = sum(min(count, group.max_per_rack) if group.max_per_rack else count for count in racks.values())
    return "" if room >= needed else f"the gang needs {needed:,} places at once; its machines have {room:,}"
