"""Direct placement: the techniques that the paper compares Sparrow with, as the scheduler's option `placement`.

A task is sent to a node at once, and waits for its turn there; which node, is decided beforehand (no late binding):

- "random": any node that may run it (§4.2);
- "per-task": the one with the shorter queue of d random nodes, for each task anew: the power of two choices (§3.1);
- "batch": the m tasks of a stage go to the m shortest queues of ceil(d·m) random nodes (§3.1, without §3.2).

A node that is asked says how many tasks it runs and holds. That is out of date by the time the task arrives, and a
queue's length says little about how long it lasts: hence late binding, and "sparrow" as the default.

These are for comparison. A task that waits at a node which dies has been started as far as its scheduler knows, so that
costs an attempt; with "sparrow" it does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.book.jobs import PLACED, UNPLACED, StageState
from scheduler.book.nodes import Node
from scheduler.sampling.sampling import reservations_wanted, spread
from sparrow_py.errors import LinkError
from sparrow_py.wire import messages as m

if TYPE_CHECKING:
    from scheduler.core import SchedulerCore

PLACEMENTS = ("sparrow", "batch", "per-task", "random")


class _Probe:
    """Nodes that were asked for the lengths of their queues, for some tasks of a stage."""

    __slots__ = ("counts", "lengths", "stage", "tasks", "unanswered")

    def __init__(self, stage: StageState, tasks: list[int], counts: dict[str, int]) -> None:
        self.stage = stage
        self.tasks = tasks
        self.counts = counts
        """Node to how many tasks it may get."""
        self.unanswered = set(counts)
        self.lengths: dict[str, int] = {}


class DirectPlacement:
    """The scheduler's placement if it is not "sparrow"."""

    def __init__(self, core: SchedulerCore, technique: str) -> None:
        self._core = core
        self._technique = technique
        self._probes: dict[int, _Probe] = {}
        self._sought: dict[StageState, set[int]] = {}
        """Unplaced tasks for which nodes have been asked."""
        self._next_probe = 1

    def ensure(self, stage: StageState, now_s: float) -> None:
        """See to it that all unplaced tasks of the stage, which is open, come to a node."""
        sought = self._sought.get(stage, ())
        tasks = [task for task in stage.unplaced_tasks() if task not in sought]
        nodes = self._core.probing.candidates(stage)
        if stage.job.using is not None:
            self._core.telling.use(stage.job, nodes)
            nodes = [node_id for node_id in nodes if self._may_use(stage, node_id)]
        preferred = stage.locality.preferred if stage.locality is not None else {}
        chosen: dict[str, list[int]] = {}
        if tasks and stage.reserved_at_s is None:
            stage.reserved_at_s = now_s
        allowed = frozenset(nodes)
        for task in [task for task in tasks if task in preferred]:
            self._seek(stage, [task], [node for node in preferred[task] if node in allowed], chosen)
        self._seek(stage, [task for task in tasks if task not in preferred], nodes, chosen)
        self._place(stage, chosen, now_s)
        stage.no_node_since_s = None
        if self.lacks(stage):
            self._core.probing.wait(stage, now_s)

    def _may_use(self, stage: StageState, node_id: str) -> bool:
        return self._core.telling.may_use(stage.job, self._core.nodes[node_id])

    def lacks(self, stage: StageState) -> bool:
        """Whether nobody is asked for some unplaced task of the stage."""
        return not self._sought.get(stage, set()).issuperset(stage.unplaced_tasks())

    def _seek(self, stage: StageState, tasks: list[int], nodes: list[str], chosen: dict[str, list[int]]) -> None:
        """Ask some of these nodes, on each of which the tasks may run; or add to `chosen` where they go."""
        rng, ratio = self._core.rng, stage.spec.probe_ratio
        if not nodes or not tasks:
            return
        if self._technique == "random":
            for task in tasks:
                chosen.setdefault(rng.choice(nodes), []).append(task)
        elif self._technique == "per-task":
            for task in tasks:
                self._ask(stage, [task], rng.sample(nodes, min(reservations_wanted(ratio, 1), len(nodes))))
        else:
            self._ask(stage, tasks, dict(spread(nodes, reservations_wanted(ratio, len(tasks)), rng)))

    def _ask(self, stage: StageState, tasks: list[int], nodes: list[str] | dict[str, int]) -> None:
        counts = nodes if isinstance(nodes, dict) else dict.fromkeys(nodes, 1)
        self._sought.setdefault(stage, set()).update(tasks)
        self._probes[self._next_probe] = _Probe(stage, tasks, counts)
        question = m.AskLength(self._next_probe)
        self._next_probe += 1
        self._core.counters.probes += len(counts)
        for node_id in counts:
            self._core.to_node(node_id, question)

    # ---- answers -----------------------------------------------------------------------------

    def answered(self, node: Node, message: m.QueueLength, now_s: float) -> None:
        """A node says how long its queue is."""
        if message.length < 0:
            raise LinkError(f"node {node.id} says that its queue has length {message.length}")
        probe = self._probes.get(message.probe)
        if probe is None or node.id not in probe.unanswered:
            return
        probe.lengths[node.id] = message.length
        self._heard_of(message.probe, node.id, now_s)

    def node_down(self, node_id: str, now_s: float) -> None:
        """A node is gone: it will not answer, and what it answered means nothing."""
        for number, probe in list(self._probes.items()):
            probe.lengths.pop(node_id, None)
            if node_id in probe.unanswered:
                self._heard_of(number, node_id, now_s)

    def _heard_of(self, number: int, node_id: str, now_s: float) -> None:
        probe = self._probes[number]
        probe.unanswered.discard(node_id)
        if not probe.unanswered:
            del self._probes[number]
            self._decide(probe, now_s)

    def _decide(self, probe: _Probe, now_s: float) -> None:
        """All nodes that could answer have: the tasks go to the shortest queues."""
        stage = probe.stage
        sought = self._sought[stage]
        sought.difference_update(probe.tasks)
        if not sought:
            del self._sought[stage]
        if self._core.jobs.get(stage.job.id) is not stage.job or not stage.open:
            return
        tasks = [task for task in probe.tasks if stage.states[task] == UNPLACED]
        # A node that was asked for several tasks may get as many, each after those before it.
        places = sorted(
            (probe.lengths[node_id] + extra, self._core.rng.random(), node_id)
            for node_id in sorted(probe.lengths)
            for extra in range(probe.counts[node_id])
        )
        chosen: dict[str, list[int]] = {}
        for task, (_, _, node_id) in zip(tasks, places, strict=False):  # Some of those asked may be gone.
            chosen.setdefault(node_id, []).append(task)
        self._place(stage, chosen, now_s)
        self._core.probing.ensure(stage, now_s)

    # ---- placing -----------------------------------------------------------------------------

    def _place(self, stage: StageState, chosen: dict[str, list[int]], now_s: float) -> None:
        """Send these tasks to these nodes, as far as they still may run there."""
        placed = 0
        allowed = self._core.probing.may_probe(stage)
        for node_id, tasks in chosen.items():
            if allowed(node_id) and self._may_use(stage, node_id):
                self._push(stage, self._core.nodes[node_id], tasks)
                placed += len(tasks)
        if placed:
            self._core.placed(stage, placed, now_s)
            if not stage.unplaced:
                self._core.probing.none_unplaced(stage, now_s)

    def _push(self, stage: StageState, node: Node, tasks: list[int]) -> None:
        core = self._core
        ticket = core.probing.new_ticket_id()
        core.counters.reservations += len(tasks)
        for task in tasks:
            stage.withdraw(task, PLACED)
            core.launch(stage, task, node, 0, ticket)
        # Last, as with a reservation whose task has not come yet a node would ask for one.
        core.to_node(node.id, core.probing.reserve_message(stage, ticket, len(tasks), prefetch=0))
