"""How many slots each user is due: max-min shares by weight, of whole slots."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Due:
    """A user who has tasks."""

    weight: float
    wanted: int
    """Slots that the user could use, those held included."""
    held: int = 0
    """Slots that cannot be taken away."""


def max_min(slots: int, users: Mapping[str, Due]) -> dict[str, int]:
    """Slots by user: the next slot goes to whoever has least for the weight, until none is left or wanted.

    Who holds more than that keeps it; the others share what is left.
    """
    shares = {name: min(due.held, due.wanted) for name, due in users.items()}
    left = slots - sum(shares.values())
    level = _level(left, users, shares)
    for name, due in users.items():
        reached = min(due.wanted, int(level * due.weight))
        left -= max(0, reached - shares[name])
        shares[name] = max(shares[name], reached)
    queue = [((shares[name] + 1) / due.weight, name) for name, due in users.items() if shares[name] < due.wanted]
    heapq.heapify(queue)
    while left > 0 and queue:
        _, name = heapq.heappop(queue)
        shares[name] += 1
        left -= 1
        if shares[name] < users[name].wanted:
            heapq.heappush(queue, ((shares[name] + 1) / users[name].weight, name))
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
