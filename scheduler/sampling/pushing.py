"""Pushing: a stage's tasks go straight to slots that nodes have said are free, without reservations and asks.

Late binding pays where a task would wait: which queue is short, nobody knows beforehand. A slot that is free has no
queue, and a node starts what is pushed only if it still is free and nothing waits there (`LaunchNow`); else it hands
the task back, which is no start, and the task is placed as any other. So nothing waits bound to a node, and nobody is
overtaken. What is saved is a round trip, and most of the messages.

What nodes have said may be out of date, and a hand-back costs a round trip. To push pays all the same, at all loads and
with many schedulers (docs/simulator.md, "Pushing to idle slots"): what a node has said is used once, and nodes of a
busy cluster say little. So the rule is the simplest: as many tasks as there are slots of which nodes have said so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scheduler.book.jobs import StageState
    from scheduler.book.nodes import Node
    from scheduler.plane import BookForPlane
    from scheduler.sampling.adaptive import AdaptiveRatio
    from scheduler.sampling.idle import IdleNodes
    from scheduler.sampling.probing import Probing
    from scheduler.sampling.surplus import Surplus
    from scheduler.sampling.turns import Turns

PUSHED_BYTES_MAX = 65_536
"""A stage whose common bytes, or a task whose payload, has more is probed for: it would travel in vain if it is handed
back."""


class Pushing:
    """Pushes tasks of stages, if the option `push_to_idle` is on."""

    def __init__(
        self,
        book: BookForPlane,
        turns: Turns,
        idle: IdleNodes,
        probing: Probing,
        surplus: Surplus,
        adaptive: AdaptiveRatio | None,
    ) -> None:
        self._nodes = book.nodes
        self._launch_now = book.launch_now
        self._count_placed = book.count_placed
        self._note = book.note
        self._turns = turns
        self._idle = idle
        self._tickets_at = probing.tickets_at
        self._surplus = surplus
        self._adaptive = adaptive
        self._on = book.options.push_to_idle

    def stage_came(self, stage: StageState) -> None:
        """A job with this stage has come; its tasks follow."""
        stage.plan.pushes = self._on and _may_be_pushed(stage)

    def may_push(self, stage: StageState) -> bool:
        """Whether tasks of the stage may be pushed: nothing about them calls for late binding."""
        return stage.plan.pushes and stage.open and not (stage.details or stage.job.avoids)

    def may_push_to(self, node: Node) -> bool:
        """Whether the node has no reservation of ours: that is queued there, or is about to be, so that the node would
        hand back what is pushed. It asks for its slot instead."""
        return not self._tickets_at.get(node.id)

    def push(self, stage: StageState, now_s: float) -> None:
        """Push as many of the stage's tasks as there are slots known to be free."""
        if self._idle.free and stage.unplaced and self.may_push(stage):
            slots = self._idle.take_free(stage, stage.unplaced, self.may_push_to)
            if slots:
                self.send(stage, slots, now_s)

    def send(self, stage: StageState, slots: dict[str, int], now_s: float) -> int:
        """Push the stage's next tasks to these nodes, so many to each, and no more than it has; returns how many."""
        self._turns.add(stage, stage.plan.group)
        if stage.reserved_at_s is None:
            stage.reserved_at_s = now_s
        pushed = 0
        for node_id, count in slots.items():
            node = self._nodes[node_id]
            for _ in range(count):
                task = stage.take_next()
                if not _is_small(stage.payloads[task]):
                    stage.give_back(task)
                    stage.plan.pushes = False
                    break
                self._launch_now(stage, task, node)
                pushed += 1
            if not stage.plan.pushes:
                break
        if not pushed:
            return 0
        self._count_placed(stage, pushed)
        if self._turns.by_work:
            self._turns.served(stage, pushed)
        if self._adaptive is not None:
            self._adaptive.started_at_once(pushed)
        self._note(now_s, stage.job.id, "pushed to %s", slots)
        if not stage.unplaced:
            self._surplus.none_unplaced(stage, now_s)
        return pushed


def _may_be_pushed(stage: StageState) -> bool:
    """Whether nothing about the stage calls for late binding.

    A task that may start once at most would be lost if its node died before it has read the push. What is prefetched is
    bound ahead anyway, a demand has to fit what is free by then, and preferred nodes are seldom those that are idle.
    """
    spec = stage.spec
    return (
        stage.job.max_attempts > 1
        and not spec.prefetch
        and not spec.local
        and not stage.kind.demand
        and _is_small(stage.common)
    )


def _is_small(data: object) -> bool:
    """Whether it travels with messages, and cheaply; large data (`BlobRef`) would have to be fetched first."""
    return isinstance(data, bytes) and len(data) <= PUSHED_BYTES_MAX
