"""The seam between the book of jobs and the planes, which find nodes for tasks.

A plane is told what happens (`Plane`). It has of the book what `BookForPlane` lists, and the stages themselves: of a
stage it may set `plan`, `reserved_at_s` and `search`, and take unplaced tasks. A scheduler runs one plane, which
`planes` chooses; the tests have a small one besides (`tests/support/most_free_slots.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from scheduler.book.placing import Placing

if TYPE_CHECKING:
    import random

    from scheduler.book.counters import Counters
    from scheduler.book.holdings import Holdings
    from scheduler.book.jobs import Attempt, JobState, StageState
    from scheduler.book.nodes import Node, Nodes
    from scheduler.options import SchedulerOptions
    from sparrow_py.job import TaskStatus
    from sparrow_py.wire import messages as m

Handler = Callable[["Node", Any, float], None]
"""Takes a message of a node."""
Problem = Callable[[], Any]
"""What is to be computed; it must not touch what the loop may change meanwhile."""


@runtime_checkable
class Stoppable(Protocol):
    """A problem whose answer may become useless."""

    def stop(self) -> None:
        """End soon, from whatever thread; with an exception, unless there is the answer already."""


@dataclass(slots=True)
class RoundFigures:
    """What came of problems that a plane has had solved."""

    rounds: int = 0
    failed: int = 0
    stale: int = 0
    """Placements that did not stand when the answer came."""
    wins: dict[str, int] = field(default_factory=dict)
    """By solver: rounds in which it found the answer."""
    nodes: int = 0
    """Of the latest network."""
    arcs: int = 0

    def solved(self, solver: str, nodes: int, arcs: int) -> None:
        """There is an answer."""
        self.rounds += 1
        self.nodes, self.arcs = nodes, arcs
        if solver:
            self.wins[solver] = self.wins.get(solver, 0) + 1


@dataclass(slots=True)
class LendingFigures:
    """What a plane has shared out on which jobs yield."""

    must: int = 0
    """Tasks that were started as they had to."""
    lent: int = 0
    """Tasks that were started with what jobs had yielded, or as nobody else needed it."""
    late: int = 0
    """How often the time at which a job is to end has moved back."""
    unfit: int = 0
    """How often tasks that had to start fitted on no node."""
    jobs: int = 0
    """That are here."""
    yielding: int = 0
    """Those of them that yielded when it was shared out last."""


class PlaceCost(NamedTuple):
    """What it would cost to place a task there."""

    to: str
    cost: int
    limit: str
    """Why it cannot be placed there for that; empty if nothing is in the way."""


@dataclass(slots=True)
class WhyWaiting:
    """Why tasks of a stage wait."""

    reasons: list[str]
    task: int | None = None
    """One of them, of which the rest is told."""
    waiting_cost: int | None = None
    places: list[PlaceCost] = field(default_factory=list)
    """The cheapest first."""
    queued_at: list[str] = field(default_factory=list)
    """Nodes in whose queues reservations of the stage are, those with most first, and not all."""


class Plane(Placing, Protocol):
    """Finds nodes for the tasks of stages: what `Placing` says, and what nodes do.

    All tasks of a stage that is open and has no place must come to one, or wait for nodes (`BookForPlane.wait`).
    """

    has_leader: bool
    """Whether one of its schedulers at a time places tasks: the one that leads (`scheduler.leading`)."""
    counts_slots: bool
    """Whether it reckons by itself which slots of a node are free, so that one that a task gives back while it waits
    would stay empty: tasks have no clients then."""
    messages: dict[type, Handler]
    """Messages of nodes that are the plane's own, and who takes them. Schedulers with other planes ignore them."""

    def node_up(self, node: Node, now_s: float) -> None:
        """A node has come, or offers other things than before."""

    def node_state(self, node: Node, now_s: float) -> None:
        """A node is ready again, is cordoned, or drains (`Node.state`). One that drains has dropped what it held for
        us that has not started."""

    def node_load(self, node: Node, now_s: float) -> None:
        """The node has said what it has left, and what is measured there (`Node.load`)."""

    def node_lost(self, node: Node) -> Iterable[StageState]:
        """A node is gone, and what it held for us with it. Its attempts are about to be settled or to start again.

        Returns stages that now lack something: `tasks_unplaced` is called for them after that."""

    def node_down(self, node: Node, now_s: float) -> None:
        """What was at the node that is gone has been settled, or is unplaced again."""

    def pump(self, now_s: float) -> None:
        """Some events, which came together, have been handled: what is better decided for all of them at once, now."""

    def solved(self, number: int, answer: Any, now_s: float) -> None:
        """The answer to a problem that the plane had given away (`BookForPlane.solve`); None if it could not be had."""

    def lead_changed(self, leads: bool, now_s: float) -> None:
        """Whether this scheduler leads the plane has changed; on planes that have a leader, only while it leads may
        tasks be placed. One that leads no more has its jobs taken away after this."""

    @property
    def rounds(self) -> RoundFigures | None:
        """What came of its problems; None of a plane that gives none away."""

    @property
    def lending(self) -> LendingFigures | None:
        """What it has shared out; None of a plane on which jobs do not yield."""

    def oldest_wait_s(self, now_s: float) -> float:
        """How long the task has waited for a place that has waited for longest; asked only if there are `rounds`."""

    def explain(self, stages: Sequence[StageState], now_s: float) -> list[Callable[[], WhyWaiting]]:
        """Why unplaced tasks of each of these stages, which are open, have no place. What is returned is to be called
        where problems are solved, if the plane has any solved: it may look at what they change."""

    def live_reservations(self, node_id: str) -> int:
        """Reservations queued at the node, as far as this scheduler knows."""

    def problem(self, stage: StageState) -> str | None:
        """What is wrong with how the stage's tasks are placed, or None."""

    def problem_of_all(self) -> str | None:
        """What is wrong with the plane's own books, or None."""

    def left_over(self) -> str:
        """What is kept of stages, for a scheduler that has no jobs: it should be nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BookForPlane:
    """What a plane has of the book."""

    options: SchedulerOptions
    rng: random.Random
    counters: Counters
    nodes: Nodes
    holdings: Holdings
    """Which nodes have large data."""
    to_node: Callable[[str, m.Message], None]
    """(node id, message): send it."""
    note: Callable[..., None]
    """(time, job id, text, values): remember an event of the job, if anything is remembered (`keeps_history`)."""
    keeps_history: bool
    at_stage: Callable[[float, StageState, Callable[[StageState, float], None]], None]
    """(time, stage, action): call the action with the stage and the time then, if its job is still here."""
    at: Callable[[float, Callable[[float], None]], None]
    """(time, action): call the action with the time then, and `Plane.pump` after it."""
    is_here: Callable[[JobState], bool]
    """Whether the job has not ended, and was not given up."""

    nodes_now: Callable[[StageState], list[str]]
    """Nodes that may be given tasks of the stage now. The list may be shared: don't change it."""
    test_node: Callable[[StageState], Callable[[str], bool]]
    """As `nodes_now`, to ask for one node after the other."""
    avoided_at: Callable[[StageState, str], bool]
    """Whether a job that the stage's avoids runs at the node, or in the same rack, say (§8)."""
    leave_alone: Callable[[StageState, str, float], None]
    """(stage, node id, time): the node does not want tasks of the stage for a while."""

    announce_nodes: Callable[[JobState, Iterable[str]], None]
    """Tell the job's client that its tasks may be started at these nodes, if it must know. (See `may_start_at`.)"""
    may_start_at: Callable[[JobState, Node], bool]
    """Whether tasks of the job may be started at the node now; else `memories_known` is called once they may."""

    launch: Callable[[StageState, int, Node, int], None]
    """(stage, task, node, ask): send the task, which has been taken from the unplaced ones, as the answer to an ask."""
    launch_now: Callable[[StageState, int, Node], None]
    """(stage, task, node): send the task, which has been taken from the unplaced ones, for a slot of which the node has
    said that it is free."""
    push: Callable[[StageState, list[int], Node], None]
    """(stage, unplaced tasks, node): send tasks for which the node has not asked."""
    place: Callable[[StageState, int, Node], None]
    """(stage, unplaced task, node): send the task to the node's lane of placed tasks; only to one that `places`. It may
    be handed back, if nothing else because it has waited there for too long."""
    preempt: Callable[[Attempt], None]
    """Have an attempt of a preemptible job (`JobState.preemptible`) make room: `Plane.preempted` is called, or
    `handed_back`, or it has ended."""
    count_placed: Callable[[StageState, int], None]
    """(stage, tasks): so many have been launched, pushed or placed."""
    settle_unplaced: Callable[[StageState, list[int], TaskStatus, str, float], None]
    """(stage, unplaced tasks, status, reason, time): they will not run."""

    wait: Callable[[StageState, float], None]
    """There is no node for tasks of the stage: `tasks_unplaced` is called after a while, or they are lost."""
    wait_for_preferred: Callable[[StageState, Collection[int], bool, float], None]
    """(stage, tasks, others, time): as `wait`, for these tasks with preferred nodes, and `others` without. If there are
    neither, they wait no more."""
    wait_no_more: Callable[[StageState, float], None]
    """There are nodes for tasks of the stage: they do not wait for want of one."""
    is_waiting: Callable[[StageState], bool]
    """Whether tasks of the stage wait so."""

    leads: Callable[[], bool]
    """Whether tasks may be placed by this scheduler now: always, on a plane without a leader."""

    warn: Callable[[str], None]
    """Tell the operator, by a line of the log."""

    solve: Callable[[Problem], int]
    """Have something computed off the loop; returns its number, with which `Plane.solved` is called."""
