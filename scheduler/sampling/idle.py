"""Nodes that said that they have free slots and nothing queued, for stages to probe before random ones.

What is remembered is a hint and may be out of date: it only says where to probe.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scheduler.book.jobs import StageState
    from scheduler.plane import BookForPlane


class IdleNodes:
    """The idle nodes that a scheduler was told of."""

    def __init__(self, book: BookForPlane) -> None:
        self.free: dict[str, int] = {}
        """Node id to its free slots, in the order in which they said so."""
        self._nodes = book.nodes
        self._counters = book.counters
        self._test_node = book.test_node

    def forget(self, node_id: str) -> None:
        """The node is gone, or is about to have work."""
        self.free.pop(node_id, None)

    def take(self, stage: StageState, count: int, now_s: float) -> dict[str, int]:
        """Idle nodes that the stage may use, for up to `count` reservations: those who said so last come first, each
        with one slot, then with the others that it has."""
        taken: dict[str, int] = {}
        free = self.free
        if not free:
            return taken
        allowed = self._test_node(stage)
        eligible = self._nodes.eligible(stage.kind)
        # The fewer of the two: a stage may fit few nodes, and a thousand others may be idle.
        for node_id in reversed(free) if len(free) <= len(eligible) else eligible:
            if len(taken) == count:
                break
            if node_id in free and allowed(node_id):
                taken[node_id] = 1
        left = count - len(taken)
        for node_id in taken:
            more = min(left, free.pop(node_id) - 1)
            taken[node_id] += more
            left -= more
        self.promised(stage, count - left, now_s)
        return taken

    def promised(self, stage: StageState, count: int, now_s: float) -> None:
        """The stage gets so many reservations on idle nodes."""
        plan = stage.plan
        plan.promised += count
        plan.promised_at_s = now_s
        self._counters.reservations_idle += count
