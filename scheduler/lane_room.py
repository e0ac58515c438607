"""What planes that place tasks for the whole cluster may use of each node, by their own count.

What others hold there (tasks of other schedulers) nodes say now and then (`NodeLoad`): what is held beyond what we know
of. What our own tasks take is counted from the book's attempts, so that no count can drift.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sparrow_py.wire.messages import READY

if TYPE_CHECKING:
    from scheduler.book.jobs import Attempt
    from scheduler.book.nodes import Node

ROUNDING = 1e-9
"""What is free is a sum of many fractions: so much of a resource may seem to be missing and is not."""


@dataclass(slots=True)
class Strangers:
    """What tasks of which we do not know hold at a node, as it has said last."""

    slots: int = 0
    demand: Mapping[str, float] = field(default_factory=dict)


NOBODY = Strangers()


def takes_tasks(node: Node) -> bool:
    """Whether tasks may be placed there now."""
    return node.state == READY and node.places and node.info.slots > 0


class LaneRoom:
    """See the module's docstring."""

    def __init__(self) -> None:
        self._strangers: dict[str, Strangers] = {}
        self._lane_slots: dict[str, int] = {}
        """As nodes have said last."""

    def lane_slots(self, node: Node) -> int:
        """Slots that placed tasks may hold there."""
        return node.info.slots if node.load is None else node.load.lane_slots

    def strangers(self, node: Node) -> Strangers:
        """What tasks of which we do not know hold there."""
        return self._strangers.get(node.id, NOBODY)

    def without_strangers(self, node: Node) -> dict[str, float]:
        """What of its resources is ours."""
        held = self.strangers(node).demand
        return {name: amount - held.get(name, 0.0) for name, amount in node.info.resources.items()}

    def slots_free(self, node: Node) -> int:
        """Slots for further tasks."""
        return max(0, self.lane_slots(node) - self.strangers(node).slots - len(node.attempts))

    def free(self, node: Node) -> dict[str, float]:
        """What is left of its resources."""
        left = self.without_strangers(node)
        for attempt in node.attempts:
            for name, amount in attempt.stage.kind.demand:
                left[name] = left.get(name, 0.0) - amount
        return left

    def load_told(self, node: Node) -> bool:
        """The node has said what is free there. What it has reported to be over before, the book knows to be over; what
        we have sent since it does not count yet. So what is held beyond our own tasks is others', and at least that.

        Returns whether there is other room than before, or may be."""
        load = node.load
        assert load is not None
        ours: dict[str, float] = {}
        for attempt in node.attempts:
            for name, amount in attempt.stage.kind.demand:
                ours[name] = ours.get(name, 0.0) + amount
        held = {
            name: over
            for name, amount in node.info.resources.items()
            if name in load.free and (over := amount - load.free[name] - ours.get(name, 0.0)) > ROUNDING * amount
        }
        slots = max(0, load.lane_slots - load.lane_free - len(node.attempts))
        before, self._strangers[node.id] = self._strangers.get(node.id), Strangers(slots, held)
        lane_before, self._lane_slots[node.id] = self._lane_slots.get(node.id), load.lane_slots
        return before != self._strangers[node.id] or lane_before != load.lane_slots

    def adopted(self, attempt: Attempt) -> None:
        """A task of another scheduler is ours from now on. What the node has said before counts it as a stranger's."""
        before = self._strangers.get(attempt.node_id)
        if before is not None:
            demand = dict(attempt.stage.kind.demand)
            held = {name: left for name, much in before.demand.items() if (left := much - demand.get(name, 0.0)) > 0}
            self._strangers[attempt.node_id] = Strangers(max(0, before.slots - 1), held)

    def gone(self, node_id: str) -> None:
        """The node is not here any more."""
        self._strangers.pop(node_id, None)
        self._lane_slots.pop(node_id, None)
