"""Nodes that said that they have free slots and nothing queued, and what is done with them.

Batch sampling finds idle nodes by chance: at 95 % load most of d·m probes meet busy ones, while other nodes have
nothing to do. So a node that runs out of work says so to one scheduler. If tasks wait there, the oldest stage that the
node may run gets a reservation on it at once: what Hawk's idle nodes steal from other nodes' queues (Delgado et al.,
ATC 2015), without asking those. Else the scheduler remembers the node, and the next stage probes it before random ones
(join-idle-queue, Lu et al. 2011). What is remembered is a hint and may be out of date: it only says where to probe.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from scheduler.book.jobs import StageState
from scheduler.book.nodes import Node
from sparrow_py.errors import LinkError
from sparrow_py.wire import messages as m

if TYPE_CHECKING:
    from scheduler.core import SchedulerCore

RESERVATIONS_PER_TASK_MAX = 8
"""A stage with so many reservations for each unplaced task gets no more of them on idle nodes."""
LOOKED_AT_MAX = 100
"""Waiting stages of a user and kind that are looked at for an idle node."""
ASK_S = 0.01
"""An idle node that was given a reservation is expected to ask so soon: meanwhile no other node gets one for the same
task. A few round trips; if the hint was out of date, the node asks later or never."""


class IdleNodes:
    """The idle nodes that a scheduler was told of."""

    def __init__(self, core: SchedulerCore) -> None:
        self.free: dict[str, int] = {}
        """Node id to its free slots, in the order in which they said so."""
        self._core = core

    def told(self, node: Node, message: m.Idle, now_s: float) -> None:
        """The node has free slots and nothing queued."""
        if message.free < 1:
            raise LinkError(f"node {node.id} says that it is idle with {message.free} free slots")
        free = min(message.free, node.info.slots)  # Whatever it says: it gets no more than it can run.
        self.free.pop(node.id, None)
        if self._core.direct is not None:
            return
        stage = self._waiting_stage(node, now_s)
        if stage is None:
            self.free[node.id] = free
            return
        count = min(free, stage.unplaced - stage.promised)
        self._promised(stage, count, now_s)
        self._core.probing.reserve(stage, {node.id: count}, now_s)

    def forget(self, node_id: str) -> None:
        """It is gone, or is about to have work."""
        self.free.pop(node_id, None)

    def _promised(self, stage: StageState, count: int, now_s: float) -> None:
        stage.promised += count
        stage.promised_at_s = now_s
        self._core.counters.reservations_idle += count

    def take(self, stage: StageState, count: int, now_s: float) -> dict[str, int]:
        """Idle nodes that the stage may use, for up to `count` reservations: those who said so last come first, each
        with one slot, then with the others that it has."""
        taken: dict[str, int] = {}
        if not self.free:
            return taken
        allowed = self._core.probing.may_probe(stage)
        eligible = self._core.nodes.eligible(stage.kind)
        # The fewer of the two: a stage may fit few nodes, and a thousand others may be idle.
        for node_id in reversed(self.free) if len(self.free) <= len(eligible) else eligible:
            if len(taken) == count:
                break
            if node_id in self.free and allowed(node_id):
                taken[node_id] = 1
        left = count - len(taken)
        for node_id in taken:
            more = min(left, self.free.pop(node_id) - 1)
            taken[node_id] += more
            left -= more
        self._promised(stage, count - left, now_s)
        return taken

    def _waiting_stage(self, node: Node, now_s: float) -> StageState | None:
        """The stage that gets the node: the oldest of one user and kind after the other, each in turn."""
        heirs, nodes = self._core.probing.heirs, self._core.nodes
        for key in heirs:
            if node.id not in nodes.eligible_set(key[1]):
                continue
            for stage in islice(heirs[key], LOOKED_AT_MAX):
                if stage.promised and stage.promised_at_s + ASK_S < now_s:
                    stage.promised = 0
                enough = stage.promised >= stage.unplaced or stage.live >= RESERVATIONS_PER_TASK_MAX * stage.unplaced
                if stage.open and not enough and self._core.probing.may_probe(stage)(node.id):
                    heirs[key] = heirs.pop(key)  # Next time another comes first.
                    return stage
        return None
