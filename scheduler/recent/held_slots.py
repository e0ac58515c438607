"""Who has how many of the nodes' slots, and since when tasks are at their nodes: found by looking once in a while.

A look walks through the attempts that are at nodes now, which are bounded by the cluster's slots, however many tasks
come and go between two looks. So tasks that are shorter than the time between looks cost nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scheduler.book.nodes import Node

ATTEMPTS_MAX = 100_000
"""Attempts that are looked at; of others it is not known whose they are."""
LOOK_S_MIN = 1.0
LOOK_S_PER_ATTEMPT = 50e-6
"""From one look to the next: to look at one takes some tenth of a microsecond."""


class HeldSlots:
    """What the latest look has shown."""

    def __init__(self) -> None:
        self.by_user: dict[str, int] = {}
        """Attempts at nodes, by user; those that wait at their nodes for a slot count as well."""
        self.attempts = 0
        self.slots = 0
        self._since_s: dict[str, dict[int, float]] = {}

    def look(self, nodes: Iterable[Node], now_s: float) -> None:
        """Look at these nodes."""
        by_user: dict[str, int] = {}
        since_s: dict[str, dict[int, float]] = {}
        left, slots = ATTEMPTS_MAX, 0
        for node in nodes:
            slots += node.info.slots
            if not node.attempts or not left:
                continue
            before = self._since_s.get(node.id) or {}
            since_s[node.id] = here = {}
            for attempt in islice(node.attempts, left):
                here[attempt.id] = before.get(attempt.id, now_s)
                user = attempt.stage.job.user
                by_user[user] = by_user.get(user, 0) + 1
            left -= len(here)
        self.by_user, self._since_s, self.slots = by_user, since_s, slots
        self.attempts = ATTEMPTS_MAX - left

    def since_s(self, node_id: str, attempt_id: int) -> float | None:
        """The time of the first look that found this attempt at the node; None if none has."""
        here = self._since_s.get(node_id)
        return None if here is None else here.get(attempt_id)

    @property
    def interval_s(self) -> float:
        """How long to wait until the next look."""
        return max(LOOK_S_MIN, self.attempts * LOOK_S_PER_ATTEMPT)


def fair_slots(slots: float, wanted: dict[str, int], weights: dict[str, float]) -> dict[str, float]:
    """How many of the slots each user is due: by weight, and no more than it wants (weighted max-min)."""
    due: dict[str, float] = {}
    open_users = sorted(wanted, key=lambda user: wanted[user] / weights[user])
    weight = sum(weights[user] for user in open_users)
    for user in open_users:
        due[user] = min(float(wanted[user]), slots * weights[user] / weight)
        slots -= due[user]
        weight -= weights[user]
    return due
