"""Nodes that said that they have free slots and nothing queued, for stages to probe before random ones, or to push
tasks to.

What is remembered is a hint and may be out of date: it only says where to try first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scheduler.book.jobs import StageState
    from scheduler.book.nodes import Node
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
        taken = self._find(stage, count)
        for node_id in taken:
            del self.free[node_id]
        if taken:
            self.promised(stage, sum(taken.values()), now_s)
        return taken

    def take_free(self, stage: StageState, count: int, suits: Callable[[Node], bool]) -> dict[str, int]:
        """Idle nodes that the stage may use and that suit, and up to `count` of their free slots, for tasks that are
        pushed.

        What else a node has is still known to be free: it hears of no reservation, and so does not say it again."""
        free, nodes = self.free, self._nodes
        found = self._find(stage, count)
        taken = {node_id: slots for node_id, slots in found.items() if suits(nodes[node_id])}
        for node_id, slots in taken.items():
            if free[node_id] > slots:
                free[node_id] -= slots
            else:
                del free[node_id]
        return taken

    def _find(self, stage: StageState, count: int) -> dict[str, int]:
        """Idle nodes that the stage may use, with up to `count` free slots."""
        found: dict[str, int] = {}
        free = self.free
        if not free:
            return found
        allowed = self._test_node(stage)
        eligible = self._nodes.eligible(stage.kind)
        # The fewer of the two: a stage may fit few nodes, and a thousand others may be idle.
        for node_id in reversed(free) if len(free) <= len(eligible) else eligible:
            if len(found) == count:
                break
            if node_id in free and allowed(node_id):
                found[node_id] = 1
        left = count - len(found)
        for node_id in found if left else ():
            more = min(left, free[node_id] - 1)
            found[node_id] += more
            left -= more
        return found

    def promised(self, stage: StageState, count: int, now_s: float) -> None:
        """The stage gets so many reservations on idle nodes."""
        plan = stage.plan
        plan.promised += count
        plan.unasked += count
        plan.promised_at_s = now_s
        self._counters.reservations_idle += count
