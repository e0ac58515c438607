"""Strict priorities between tickets, and fair sharing within each (§3.5)."""

from __future__ import annotations

from node_monitor.queueing.fair import FairQueue, Level
from node_monitor.queueing.tickets import CHARGE_S_MAX, QueuedTicket


class PriorityQueue(FairQueue):
    """Strict priority: always the highest priority that has a ticket that may run (§3.5); weighted fair sharing between
    the users within one priority, as in `FairQueue`. So at the end of a lease a task makes way for all that is of a
    higher priority, within its own as there, and for nothing lower."""

    def __init__(self, slots: int, charge_s_max: float = CHARGE_S_MAX) -> None:
        super().__init__(slots, charge_s_max)
        self._ranked = []
        self._by_priority: dict[int, Level] = {}

    def outranks(self, ticket: QueuedTicket, other: QueuedTicket) -> bool:
        return ticket.priority > other.priority

    def check_invariants(self) -> None:
        super().check_invariants()
        ranked = sorted(self._by_priority.values(), key=lambda level: -level.priority)
        assert self._ranked == ranked, "levels out of order"

    def _level_of(self, ticket: QueuedTicket) -> Level:
        return self._by_priority[ticket.priority]

    def _enqueue(self, ticket: QueuedTicket) -> None:
        level = self._by_priority.get(ticket.priority)
        if level is None:
            level = Level(ticket.priority, self.charge_s_max)
            # Those without a user are let go only now: they cost next to nothing, and may be of use again.
            self._ranked = sorted([*(one for one in self._ranked if one.active), level], key=lambda one: -one.priority)
            self._by_priority = {one.priority: one for one in self._ranked}
        level.enqueue(ticket)
