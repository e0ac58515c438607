"""What is done with a node that says that it has free slots and nothing queued.

Batch sampling finds idle nodes by chance: at 95 % load most of d·m probes meet busy ones, while other nodes have
nothing to do. So a node that runs out of work says so to one scheduler. If tasks wait there, the oldest stage that the
node may run gets a reservation on it at once, or its tasks are pushed to it: what Hawk's idle nodes steal from other
nodes' queues (Delgado et al., ATC 2015), without asking those. Else the scheduler remembers the node, and the next
stage uses it before random ones (join-idle-queue, Lu et al. 2011).
"""

from __future__ import annotations

from itertools import chain, islice
from typing import TYPE_CHECKING

from scheduler.book.validation import check_idle

if TYPE_CHECKING:
    from scheduler.book.jobs import StageState
    from scheduler.book.nodes import Node
    from scheduler.plane import BookForPlane
    from scheduler.sampling.idle import IdleNodes
    from scheduler.sampling.probing import Probing
    from scheduler.sampling.pushing import Pushing
    from scheduler.sampling.turns import Turns
    from sparrow_py.wire import messages as m

RESERVATIONS_PER_TASK_MAX = 8
"""A stage with so many reservations on idle nodes for each unplaced task, of which none has led to an ask, gets no more
of them. Those that wait at busy nodes do not count: however many they are, a node that idles starts a task sooner."""
LOOKED_AT_MAX = 100
"""Waiting stages of a user and kind that are looked at for an idle node."""


class IdleOffers:
    """Takes idle nodes' messages."""

    def __init__(self, book: BookForPlane, turns: Turns, idle: IdleNodes, probing: Probing, pushing: Pushing) -> None:
        self._book = book
        self._turns = turns
        self._idle = idle
        self._probing = probing
        self._pushing = pushing
        self._reorders = book.options.order != "reserved"
        idle.look_again = self.look_again

    def told(self, node: Node, message: m.Idle, now_s: float) -> None:
        """The node has free slots and nothing queued."""
        check_idle(node.id, message.free)
        free = min(message.free, node.info.slots)  # Whatever it says: it gets no more than it can run.
        self._offer(node, free, now_s)

    def look_again(self, stage: StageState, now_s: float) -> None:
        """The nodes that were promised to the stage have not asked: offer those that have idled since to whatever
        waits, as if they said so now, until the stage has enough."""
        for node_id in self._idle.usable(stage):
            if not self._wants_more(stage):
                break
            self._offer(self._book.nodes[node_id], self._idle.free[node_id], now_s)
            if node_id in self._idle.free:
                break  # Stages that come first have enough, and this one is far behind them.

    def _offer(self, node: Node, free: int, now_s: float) -> None:
        """Give the node's free slots to what waits, or remember them."""
        self._idle.forget(node.id)
        while free:
            stage = self._waiting_stage(node, now_s)
            if stage is None:
                self._idle.free[node.id] = free
                return
            pushed = self._push(stage, node, free, now_s)
            if not pushed:
                count = min(free, stage.unplaced - stage.plan.promised)
                self._idle.promised(stage, count, now_s)
                self._probing.probe(stage, [(node.id, count)], now_s)
                return  # What is free besides it will say again, as a reservation comes.
            free -= pushed

    def _push(self, stage: StageState, node: Node, free: int, now_s: float) -> int:
        """Push tasks to the node's free slots, of the stage or of that which is served before it; returns how many."""
        if not (self._pushing.may_push_to(node) and self._pushing.may_push(stage)):
            return 0
        if self._reorders:
            first = self._turns.first(stage.plan.group)
            if first is not None and self._pushing.may_push(first) and self._book.test_node(first)(node.id):
                stage = first
        return self._pushing.send(stage, {node.id: min(free, stage.unplaced)}, now_s)

    def _waiting_stage(self, node: Node, now_s: float) -> StageState | None:
        """The stage that gets the node: the oldest of the highest priority of one user and kind after the other, each
        in turn. If there is none, those to which other nodes are promised look for nodes again once that has lapsed."""
        turns, eligible_set = self._turns, self._book.nodes.eligible_set
        families = turns.families
        promised: list[StageState] = []
        for family in families:
            if node.id not in eligible_set(family[1]):
                continue
            for stage in islice(chain.from_iterable(turns.of(family)), LOOKED_AT_MAX):
                self._idle.forget_late_promises(stage, now_s)
                if not self._wants_more(stage):
                    if stage.plan.promised:
                        promised.append(stage)
                elif self._book.test_node(stage)(node.id):
                    families[family] = families.pop(family)  # Next time another comes first.
                    return stage
        for stage in promised:
            self._idle.await_lapse(stage)
        return None

    @staticmethod
    def _wants_more(stage: StageState) -> bool:
        """Whether the stage has tasks for further idle nodes."""
        plan, unplaced = stage.plan, stage.unplaced
        return stage.open and plan.promised < unplaced and plan.unasked < RESERVATIONS_PER_TASK_MAX * unplaced
