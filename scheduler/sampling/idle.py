"""Nodes that said that they have free slots and nothing queued, for stages to probe before random ones, or to push
tasks to.

What is remembered is a hint and may be out of date: it only says where to try first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scheduler.book.jobs import StageState
    from scheduler.book.nodes import Node
    from scheduler.plane import BookForPlane

ASK_S = 0.01
"""An idle node that was given a reservation is expected to ask so soon: meanwhile no other node gets one for the same
task. A few round trips; if the hint was out of date, the node asks later or never."""


class IdleNodes:
    """The idle nodes that a scheduler was told of."""

    def __init__(self, book: BookForPlane) -> None:
        self.look_again: Callable[[StageState, float], None] = _look_at_nothing
        """(stage, time): the nodes that were promised to the stage have had their time. `IdleOffers` sets it."""
        self.free: dict[str, int] = {}
        """Node id to its free slots, in the order in which they said so."""
        self._nodes = book.nodes
        self._counters = book.counters
        self._test_node = book.test_node
        self._at_stage = book.at_stage

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

    def take_these(self, stage: StageState, wanted: Mapping[str, int], now_s: float) -> dict[str, int]:
        """Those of these nodes, which the stage may use, that are idle, for as many reservations as are wanted there
        and it has slots."""
        taken = {node_id: min(count, self.free[node_id]) for node_id, count in wanted.items() if node_id in self.free}
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

    def usable(self, stage: StageState) -> list[str]:
        """Idle nodes that the stage may use; those that said so last come first."""
        free = self.free
        if not free:
            return []
        allowed = self._test_node(stage)
        return [node_id for node_id in reversed(free) if allowed(node_id)]

    def promised(self, stage: StageState, count: int, now_s: float) -> None:
        """The stage gets so many reservations on idle nodes."""
        plan = stage.plan
        plan.promised += count
        plan.unasked += count
        plan.promised_at_s = now_s
        self._counters.reservations_idle += count
        if self.free:
            self.await_lapse(stage)

    def await_lapse(self, stage: StageState) -> None:
        """Look at the idle nodes again when the stage's promises have lapsed: nothing else may happen by then."""
        plan = stage.plan
        if not plan.lapse_awaited:
            plan.lapse_awaited = True
            self._at_stage(math.nextafter(plan.promised_at_s + ASK_S, math.inf), stage, self._lapse)

    def _lapse(self, stage: StageState, now_s: float) -> None:
        plan = stage.plan
        plan.lapse_awaited = False
        self.forget_late_promises(stage, now_s)
        if not self.free or not stage.unplaced:
            return
        if plan.promised:
            self.await_lapse(stage)  # Further nodes were promised since.
        else:
            self.look_again(stage, now_s)

    @staticmethod
    def forget_late_promises(stage: StageState, now_s: float) -> None:
        """Nodes that were promised, and had their time, count no more."""
        plan = stage.plan
        if plan.promised and plan.promised_at_s + ASK_S < now_s:
            plan.promised = 0


def _look_at_nothing(_stage: StageState, _now_s: float) -> None:
    """For idle nodes that nobody offers to stages."""
