"""Small planes beside those of the scheduler, made of what `scheduler/plane.py` says alone.

`MostFreeSlots` sends each task to the node with the most free slots, oldest stage first, once all events of a frame
have been handled. `InLanes` does the same, by the nodes' lanes for placed tasks. `SolvedPlacement` does as the first,
and has computed off the loop which task goes where.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from scheduler.book.jobs import UNPLACED, Attempt, StageState
from scheduler.book.nodes import Node
from scheduler.book.waiting_stages import WaitingStages, group_of
from scheduler.plane import BookForPlane, Handler, WhyWaiting
from sparrow_py.wire import messages as m

Places = list[tuple[int, str]]
"""(task, node id)"""


class MostFreeSlots:
    """See `scheduler.plane.Plane`. A stage waits here for slots; one for which there is no node waits in the book."""

    name = m.SPARROW
    has_leader = False
    counts_slots = True
    hears_reports = False

    def __init__(self, book: BookForPlane) -> None:
        self.book = book
        self.waiting = WaitingStages()
        self.messages: dict[type, Handler] = {}

    # ---- what the book tells -----------------------------------------------------------------

    def stage_came(self, stage: StageState) -> None:
        stage.plan = group_of(stage)

    def tasks_unplaced(self, stage: StageState, now_s: float) -> None:
        if stage.unplaced and stage.open:
            self.waiting.add(stage, stage.plan)
            stage.reserved_at_s = stage.reserved_at_s or now_s

    def tasks_withdrawn(self, stage: StageState) -> None:
        """The others wait on."""

    def none_unplaced(self, stage: StageState, now_s: float) -> None:
        self.waiting.remove(stage, stage.plan)
        stage.search.no_node_since_s = None

    def stage_left(self, stage: StageState, now_s: float) -> None:
        self.waiting.remove(stage, stage.plan)

    def memories_known(self, stage: StageState, memories: Collection[str], now_s: float) -> None:
        """The stage waits for that."""

    def adopted(self, attempt: Attempt) -> None:
        """Its slot is taken: seen at the next pump."""

    def attempt_reported(self, attempt: Attempt, report: m.Report) -> None:
        """A slot is free: seen at the next pump."""

    def handed_back(self, attempt: Attempt, node: Node, now_s: float) -> None:
        self.book.leave_alone(attempt.stage, node.id, now_s)

    def preempted(self, attempt: Attempt, node: Node, service_s: float, now_s: float) -> None:
        """Its slot is free: seen at the next pump."""

    # ---- what nodes do -----------------------------------------------------------------------

    def node_up(self, node: Node, now_s: float) -> None:
        """Its slots are free: seen at the next pump."""

    def node_state(self, node: Node, now_s: float) -> None:
        """As `node_up`."""

    def node_load(self, node: Node, now_s: float) -> None:
        """It is known how many tasks run there."""

    def node_lost(self, node: Node) -> Iterable[StageState]:
        return ()

    def node_down(self, node: Node, now_s: float) -> None:
        """What ran there is unplaced: seen at the next pump."""

    def lead_changed(self, leads: bool, now_s: float) -> None:
        """It is asked at the next pump."""

    rounds = None
    lending = None

    def oldest_wait_s(self, now_s: float) -> float:
        return 0.0

    def explain(self, stages: Sequence[StageState], now_s: float) -> list[Callable[[], WhyWaiting]]:
        return [lambda: WhyWaiting([]) for _ in stages]

    def live_reservations(self, node_id: str) -> int:
        return 0

    # ---- which node gets what ----------------------------------------------------------------

    def pump(self, now_s: float) -> None:
        for stage in self.waiting.all() if self.book.leads() else []:
            self.place(stage, choose(self.wanted(stage, now_s), self.free_slots()), now_s)

    def free_slots(self) -> dict[str, int]:
        """Node id to slots in which nothing of ours runs."""
        return {node.id: node.info.slots - len(node.attempts) for node in self.book.nodes.all()}

    def wanted(self, stage: StageState, now_s: float) -> dict[int, list[str]]:
        """Each unplaced task for which there are nodes now, and these. The others wait in the book."""
        book, preferences, tasks = self.book, stage.preferences, stage.unplaced_tasks()
        nodes = book.nodes_now(stage)
        book.announce_nodes(stage.job, nodes)
        nodes = [node_id for node_id in nodes if book.may_start_at(stage.job, book.nodes[node_id])]
        if preferences is None:
            stage.search.no_node_since_s = None
            if not nodes:
                book.wait(stage, now_s)
            return dict.fromkeys(tasks, nodes) if nodes else {}
        preferred = preferences.preferred
        wanted = {task: [node for node in preferred.get(task, nodes) if node in nodes] for task in tasks}
        lacking = [task for task in tasks if task in preferred and not wanted[task]]
        book.wait_for_preferred(stage, lacking, preferences.free > 0 and not nodes, now_s)
        return {task: nodes for task, nodes in wanted.items() if nodes}

    def place(self, stage: StageState, places: Places, now_s: float) -> None:
        """Send these tasks to these nodes, as far as they still may run there."""
        book, placed = self.book, 0
        may_run_at = book.test_node(stage)
        for task, node_id in places:
            node = book.nodes.get(node_id)
            if stage.states[task] != UNPLACED or node is None or not may_run_at(node_id):
                continue  # Much may have happened since it was computed.
            if book.may_start_at(stage.job, node):
                self.send(stage, task, node)
                placed += 1
        if placed:
            book.count_placed(stage, placed)
            if not stage.unplaced:
                self.none_unplaced(stage, now_s)

    def send(self, stage: StageState, task: int, node: Node) -> None:
        """Send an unplaced task to a node that may run it."""
        self.book.push(stage, [task], node)

    def solved(self, number: int, answer: Any, now_s: float) -> None:
        raise NotImplementedError("nothing is given away to be solved")

    # ---- invariants --------------------------------------------------------------------------

    def problem(self, stage: StageState) -> str | None:
        if stage.unplaced and stage.open and stage not in self.waiting.all() and not self.book.is_waiting(stage):
            return f"{stage.unplaced} tasks are unplaced, and do not wait"
        return None

    def problem_of_all(self) -> str | None:
        return None

    def left_over(self) -> str:
        return f"waiting stages {self.waiting.all()}" if self.waiting else ""


class InLanes(MostFreeSlots):
    """As `MostFreeSlots`, by the lanes of the nodes for placed tasks. What it is told of loads and of preempted
    attempts, it remembers."""

    name = m.FLOW

    def __init__(self, book: BookForPlane) -> None:
        super().__init__(book)
        self.loads: list[str] = []
        self.preemptions: list[tuple[int, str, float]] = []

    def send(self, stage: StageState, task: int, node: Node) -> None:
        self.book.place(stage, task, node)

    def free_slots(self) -> dict[str, int]:
        """As far as the nodes know tasks that are placed."""
        free = super().free_slots()
        return {node.id: free[node.id] for node in self.book.nodes.all() if node.places}

    def node_load(self, node: Node, now_s: float) -> None:
        self.loads.append(node.id)

    def preempted(self, attempt: Attempt, node: Node, service_s: float, now_s: float) -> None:
        self.preemptions.append((attempt.task, node.id, service_s))


class Preempting(InLanes):
    """As `InLanes`. Now and then it preempts an attempt, as if all jobs were preemptible that may start again."""

    def stage_came(self, stage: StageState) -> None:
        super().stage_came(stage)
        stage.job.preemptible = stage.job.max_attempts > 1

    def pump(self, now_s: float) -> None:
        super().pump(now_s)
        attempts = [attempt for node in self.book.nodes.all() for attempt in sorted(node.attempts, key=_order)]
        if attempts and self.book.rng.random() < 0.2:
            attempt = self.book.rng.choice(attempts)
            if attempt.stage.job.preemptible:
                self.book.preempt(attempt)


class LedMostFreeSlots(InLanes):
    """The same, at one scheduler at a time."""

    name = m.FLOW
    has_leader = True
    counts_slots = True


class SolvedPlacement(MostFreeSlots):
    """As `MostFreeSlots`; at most one problem is out at a time, of all stages that wait."""

    def __init__(self, book: BookForPlane) -> None:
        super().__init__(book)
        self.problem_out: tuple[int, list[StageState]] | None = None
        self.solutions = 0

    def pump(self, now_s: float) -> None:
        free = self.free_slots()
        wanted = [(stage, self.wanted(stage, now_s)) for stage in self.waiting.all()]
        wanted = [(stage, tasks) for stage, tasks in wanted if choose(tasks, dict(free))]
        if self.problem_out is None and wanted:
            tasks_of = [tasks for _, tasks in wanted]
            number = self.book.solve(lambda: [choose(tasks, free) for tasks in tasks_of])
            self.problem_out = number, [stage for stage, _ in wanted]

    def solved(self, number: int, answer: list[Places] | None, now_s: float) -> None:
        assert self.problem_out is not None and self.problem_out[0] == number
        stages, self.problem_out = self.problem_out[1], None
        self.solutions += 1
        for stage, places in zip(stages, answer or [[] for _ in stages], strict=True):
            if self.book.is_here(stage.job) and stage.open:
                self.place(stage, places, now_s)


def choose(wanted: dict[int, list[str]], free: dict[str, int]) -> Places:
    """A node with a free slot for each task that finds one; `free` has what is left then."""
    places = []
    for task, nodes in wanted.items():
        best = max(nodes, key=lambda node: free.get(node, 0))
        if free.get(best, 0) > 0:
            free[best] -= 1
            places.append((task, best))
    return places


def _order(attempt: Attempt) -> tuple[str, int]:
    return attempt.order
