"""Direct placement: the techniques that the paper compares Sparrow with, as the scheduler's option `placement`.

A task is sent to a node at once, and waits for its turn there; which node, is decided beforehand (no late binding):

- "random": any node that may run it (§4.2);
- "per-task": the one with the shorter queue of d random nodes, for each task anew: the power of two choices (§3.1);
- "batch": the m tasks of a stage go to the m shortest queues of ceil(d·m) random nodes (§3.1, without §3.2).

A task with preferred nodes (§3.3) chooses among those alone. With "per-task" ceil(d) of them are asked for it, as for
any task: that is what the technique is. With "batch" as many are asked for all tasks as without constraints, ceil(d·m):
floor(d) for each, and one more for some, at random.

A node that is asked says how many tasks it runs and holds. That is out of date by the time the task arrives, and a
queue's length says little about how long it lasts: hence late binding, and "sparrow" as the default.

These are for comparison. A task that waits at a node which dies has been started as far as its scheduler knows, so that
costs an attempt; with "sparrow" it does not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from scheduler.book.jobs import UNPLACED, StageState
from scheduler.book.nodes import Node
from scheduler.book.validation import ignore_idle
from scheduler.book.waiting_stages import WaitingStages, group_of
from scheduler.plane import WhyWaiting
from scheduler.spreading import reservations_wanted, spread
from sparrow_py.counted import counted
from sparrow_py.errors import LinkError
from sparrow_py.wire import messages as m

if TYPE_CHECKING:
    from scheduler.book.jobs import Attempt
    from scheduler.plane import BookForPlane, Handler


class _StagePlan:
    """What is kept of a stage."""

    __slots__ = ("group", "sought")

    def __init__(self, stage: StageState) -> None:
        self.group = group_of(stage)
        self.sought: set[int] = set()
        """Unplaced tasks for which nodes have been asked."""


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


class DirectPlane:
    """See `scheduler.plane.Plane`. The technique is the scheduler's option `placement`."""

    name = m.SPARROW
    has_leader = False
    counts_slots = False
    hears_reports = False

    def __init__(self, book: BookForPlane) -> None:
        self._book = book
        self._technique = book.options.placement
        self._waiting = WaitingStages()
        self._probes: dict[int, _Probe] = {}
        self._next_probe = 1
        self.messages: dict[type, Handler] = {m.QueueLength: self._answered, m.Idle: ignore_idle}

    # ---- what the book tells -----------------------------------------------------------------

    def stage_came(self, stage: StageState) -> None:
        stage.plan = _StagePlan(stage)

    def tasks_unplaced(self, stage: StageState, now_s: float) -> None:
        """See to it that all unplaced tasks of the stage come to a node."""
        if not stage.unplaced or not stage.open:
            return
        self._waiting.add(stage, stage.plan.group)
        book, sought = self._book, stage.plan.sought
        tasks = [task for task in stage.unplaced_tasks() if task not in sought]
        nodes = book.nodes_now(stage)
        if stage.job.using is not None:
            book.announce_nodes(stage.job, nodes)
            nodes = [node_id for node_id in nodes if book.may_start_at(stage.job, book.nodes[node_id])]
        preferred = stage.preferences.preferred if stage.preferences is not None else {}
        chosen: dict[str, list[int]] = {}
        if tasks and stage.reserved_at_s is None:
            stage.reserved_at_s = now_s
        allowed = frozenset(nodes)
        own = {task: [node for node in preferred[task] if node in allowed] for task in tasks if task in preferred}
        free = [task for task in tasks if task not in preferred]
        asked, asked_for_free = self._shares(stage.spec.probe_ratio, own, len(free) if nodes else 0)
        for task, its_nodes in own.items():
            self._seek(stage, [task], its_nodes, asked[task], chosen)
        self._seek(stage, free, nodes, asked_for_free, chosen)
        self._place(stage, chosen, now_s)
        if _lacks(stage):
            self._wait(stage, now_s)
        else:
            self._book.wait_no_more(stage, now_s)

    def _wait(self, stage: StageState, now_s: float) -> None:
        preferences = stage.preferences
        if preferences is None:
            self._book.wait(stage, now_s)
        else:
            self._book.wait_for_preferred(stage, preferences.constrained, preferences.free > 0, now_s)

    def tasks_withdrawn(self, stage: StageState) -> None:
        """Nodes that are asked for it say how long their queues are, which serves the others."""

    def none_unplaced(self, stage: StageState, now_s: float) -> None:
        self._waiting.remove(stage, stage.plan.group)
        stage.search.no_node_since_s = None

    def stage_left(self, stage: StageState, now_s: float) -> None:
        self._waiting.remove(stage, stage.plan.group)

    def memories_known(self, stage: StageState, memories: Collection[str], now_s: float) -> None:
        self.tasks_unplaced(stage, now_s)

    def adopted(self, attempt: Attempt) -> None:
        """Nothing is kept of what runs."""

    def attempt_reported(self, attempt: Attempt, report: m.Report) -> None:
        """Which queue is short now, nodes say when they are asked."""

    def handed_back(self, attempt: Attempt, node: Node, now_s: float) -> None:
        self._book.leave_alone(attempt.stage, node.id, now_s)

    def preempted(self, attempt: Attempt, node: Node, service_s: float, now_s: float) -> None:
        """Only tasks that a plane has placed are preempted."""

    # ---- what nodes do -----------------------------------------------------------------------

    def node_up(self, node: Node, now_s: float) -> None:
        for stage in self._waiting.all():
            stage.search.barred_by.pop(node.id, None)
            if stage.unplaced and stage.search.retry_at_s is None:
                self.tasks_unplaced(stage, now_s)

    def node_state(self, node: Node, now_s: float) -> None:
        if node.state == m.READY:
            self.node_up(node, now_s)

    def node_load(self, node: Node, now_s: float) -> None:
        """Nodes are asked for their queues when that matters."""

    def node_lost(self, node: Node) -> tuple[StageState, ...]:
        return ()

    def node_down(self, node: Node, now_s: float) -> None:
        """The node will not answer, and what it answered means nothing."""
        for number, probe in list(self._probes.items()):
            probe.lengths.pop(node.id, None)
            if node.id in probe.unanswered:
                self._heard_of(number, node.id, now_s)

    def lead_changed(self, leads: bool, now_s: float) -> None:
        """There is no leader."""

    rounds = None
    lending = None

    def oldest_wait_s(self, now_s: float) -> float:
        """There are no rounds."""
        return 0.0

    def explain(self, stages: Sequence[StageState], now_s: float) -> list[Callable[[], WhyWaiting]]:
        """Whether nodes are asked."""
        return [self._explain(len(stage.plan.sought)) for stage in stages]

    @staticmethod
    def _explain(sought: int) -> Callable[[], WhyWaiting]:
        return lambda: WhyWaiting(
            [f"nodes are asked how long their queues are, for {counted(sought, 'task')}"] if sought else []
        )

    def live_reservations(self, node_id: str) -> int:
        return 0

    # ---- together and apart ------------------------------------------------------------------

    def pump(self, now_s: float) -> None:
        """Each event is answered at once."""

    def solved(self, number: int, answer: Any, now_s: float) -> None:
        """Nothing is given away to be solved."""

    # ---- invariants --------------------------------------------------------------------------

    def problem(self, stage: StageState) -> str | None:
        if _lacks(stage) and stage.open and not self._book.is_waiting(stage):
            return f"{stage.unplaced} unplaced tasks, {len(stage.plan.sought)} sought, and it does not wait for nodes"
        return None

    def problem_of_all(self) -> str | None:
        return None

    def left_over(self) -> str:
        return f"waiting stages {self._waiting.all()}" if self._waiting else ""

    # ---- questions ---------------------------------------------------------------------------

    def _shares(self, ratio: float, own: dict[int, list[str]], free: int) -> tuple[dict[int, int], int]:
        """How many nodes to ask for each of the tasks that have nodes of their own, and for so many others together."""
        least, most = math.floor(round(ratio, 9)), reservations_wanted(ratio, 1)
        if least == most or not own or self._technique != "batch":
            return dict.fromkeys(own, most), reservations_wanted(ratio, free)
        placeable = free + sum(bool(nodes) for nodes in own.values())
        left = reservations_wanted(ratio, placeable) - least * placeable
        roomy = [task for task, nodes in own.items() if len(nodes) > least]
        places = len(roomy) + free
        shares, free_share = dict.fromkeys(own, least), least * free
        for drawn in self._book.rng.sample(range(places), min(left, places)):
            if drawn < len(roomy):
                shares[roomy[drawn]] += 1
            else:
                free_share += 1
        return shares, free_share

    def _seek(
        self, stage: StageState, tasks: list[int], nodes: list[str], asked: int, chosen: dict[str, list[int]]
    ) -> None:
        """Ask so many of these nodes, on each of which the tasks may run; or add to `chosen` where they go."""
        rng, ratio = self._book.rng, stage.spec.probe_ratio
        if not nodes or not tasks:
            return
        if self._technique == "random":
            for task in tasks:
                chosen.setdefault(rng.choice(nodes), []).append(task)
        elif self._technique == "per-task":
            for task in tasks:
                self._ask(stage, [task], rng.sample(nodes, min(reservations_wanted(ratio, 1), len(nodes))))
        else:
            self._ask(stage, tasks, dict(spread(nodes, asked, rng)))

    def _ask(self, stage: StageState, tasks: list[int], nodes: list[str] | dict[str, int]) -> None:
        counts = nodes if isinstance(nodes, dict) else dict.fromkeys(nodes, 1)
        stage.plan.sought.update(tasks)
        self._probes[self._next_probe] = _Probe(stage, tasks, counts)
        question = m.AskLength(self._next_probe)
        self._next_probe += 1
        self._book.counters.probes += len(counts)
        for node_id in counts:
            self._book.to_node(node_id, question)

    # ---- answers -----------------------------------------------------------------------------

    def _answered(self, node: Node, message: m.QueueLength, now_s: float) -> None:
        """A node says how long its queue is."""
        if message.length < 0:
            raise LinkError(f"node {node.id} says that its queue has length {message.length}")
        probe = self._probes.get(message.probe)
        if probe is None or node.id not in probe.unanswered:
            return
        probe.lengths[node.id] = message.length
        self._heard_of(message.probe, node.id, now_s)

    def _heard_of(self, number: int, node_id: str, now_s: float) -> None:
        probe = self._probes[number]
        probe.unanswered.discard(node_id)
        if not probe.unanswered:
            del self._probes[number]
            self._decide(probe, now_s)

    def _decide(self, probe: _Probe, now_s: float) -> None:
        """All nodes that could answer have: the tasks go to the shortest queues."""
        stage = probe.stage
        if not self._book.is_here(stage.job):
            return
        stage.plan.sought.difference_update(probe.tasks)
        if not stage.open:
            return
        tasks = [task for task in probe.tasks if stage.states[task] == UNPLACED]
        # A node that was asked for several tasks may get as many, each after those before it.
        places = sorted(
            (probe.lengths[node_id] + extra, self._book.rng.random(), node_id)
            for node_id in sorted(probe.lengths)
            for extra in range(probe.counts[node_id])
        )
        chosen: dict[str, list[int]] = {}
        for task, (_, _, node_id) in zip(tasks, places, strict=False):  # Some of those asked may be gone.
            chosen.setdefault(node_id, []).append(task)
        self._place(stage, chosen, now_s)
        self.tasks_unplaced(stage, now_s)

    # ---- placing -----------------------------------------------------------------------------

    def _place(self, stage: StageState, chosen: dict[str, list[int]], now_s: float) -> None:
        """Send these tasks to these nodes, as far as they still may run there."""
        placed, book = 0, self._book
        allowed = book.test_node(stage)
        for node_id, tasks in chosen.items():
            node = book.nodes.get(node_id)
            if node is not None and allowed(node_id) and book.may_start_at(stage.job, node):
                book.push(stage, tasks, node)
                placed += len(tasks)
        if placed:
            book.count_placed(stage, placed)
            if not stage.unplaced:
                self.none_unplaced(stage, now_s)


def _lacks(stage: StageState) -> bool:
    """Whether nobody is asked for some unplaced task of the stage."""
    return not stage.plan.sought.issuperset(stage.unplaced_tasks())
