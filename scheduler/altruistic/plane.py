"""The altruistic plane: a scheduler that has all placed tasks of a cluster, and shares it out as Carbyne does (paper
002): each job yields what it does not need now, others get that, and shares are kept.

It leads, as a flow plane does. What happens is gathered; once all that came together has been handled, the allocator is
told and asked what starts now, and where (`pump`). The allocator counts along with what it has started; everything else
(tasks that are lost, cancelled, adopted or run again) it is told from the book's own counts, stage by stage, so that
nothing can drift. If the cluster has other resources than before, or too many nodes are gone, an allocator is made anew
from the book.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from scheduler.altruistic.allocator import Allocator, Start
from scheduler.altruistic.estimates import Change
from scheduler.altruistic.explaining import why_waiting
from scheduler.altruistic.live_job import SLOTS, LiveJob, LiveStage, left_of, row_of
from scheduler.altruistic.stage_history import StageHistory
from scheduler.altruistic.usable_nodes import UsableNodes
from scheduler.altruistic.warm_up import warm_up
from scheduler.book.validation import ignore_idle
from scheduler.book.waiting import BACKOFF_MAX_S
from scheduler.lane_room import LaneRoom, takes_tasks
from scheduler.plane import LendingFigures
from scheduler.waiting_for_nodes import look_for_nodes, nodes_changed
from sparrow_py.job import FINISHED
from sparrow_py.wire import messages as m

if TYPE_CHECKING:
    from scheduler.altruistic.settings import Settings
    from scheduler.altruistic.shares import Queue
    from scheduler.book.jobs import Attempt, StageState
    from scheduler.book.nodes import Node
    from scheduler.plane import BookForPlane, Handler, WhyWaiting

RESOURCES_MAX = 32
"""That are weighed, slots among them. Beyond these, nodes may offer others, which only they themselves look at."""
GONE_MAX = 64
"""Nodes that are gone are forgotten, by a new allocator, once they are more than these and half of all."""
TRIES_MAX = 8
"""How often the allocator is asked at a time, if what it started could not be."""
PLAN_UNITS_PER_S = 1e7
"""Of `Dag.plan_units`: a quarter of a core, at most, plans. Else one user's large jobs would hold up all others."""
WAKE_LATER_S = 0.001
"""Times at which jobs must start tasks are put together if they are nearer."""


class Placed(NamedTuple):
    """What the allocator knows of an attempt."""

    job: str
    group: int
    machine: str
    end_s: float
    """When it is expected to end."""
    began_s: float


class AltruisticPlane:
    """See `scheduler.plane.Plane`, and the module's docstring."""

    name = m.ALTRUISTIC
    has_leader = True
    counts_slots = True
    hears_reports = True
    rounds = None

    def __init__(
        self, book: BookForPlane, settings: Settings, history: StageHistory, queues: Mapping[str, Queue] | None = None
    ) -> None:
        self._book = book
        self._settings = settings
        self._history = history
        self._queues = dict(queues or {})
        self._room = LaneRoom()
        self._columns: dict[str, int] = {SLOTS: 0}
        """Resources that are weighed."""
        self._allocator = self._new_allocator()
        self._usable = UsableNodes(book)
        self._waiting: dict[StageState, None] = {}
        """Stages with tasks that wait for a place."""
        self._touched: dict[StageState, None] = {}
        """Stages whose tasks are to be counted."""
        self._changed: dict[str, None] = {}
        """Nodes of which the allocator is to be told."""
        self._strays: dict[StageState, None] = {}
        """Stages with attempts that were adopted, of which the allocator is to be told."""
        self._placed: dict[Attempt, Placed] = {}
        """All that runs of jobs that the allocator has."""
        self._lives: dict[str, LiveJob] = {}
        """Jobs that the allocator has, by id."""
        self._build_anew = False
        self._news = False
        """Whether something happened by which a task may find a place."""
        self._timer_at_s = np.inf
        """When jobs must start tasks, and it is looked again."""
        self._warming: int | None = None
        self._is_warm = False
        self._figures, self._before = LendingFigures(), LendingFigures()
        """All that was shared out; and by allocators before this one."""
        self.messages: dict[type, Handler] = {m.Idle: ignore_idle}

    @property
    def lending(self) -> LendingFigures:
        """As of now."""
        here, allocator = self._figures, self._allocator
        here.late, here.unfit = self._before.late + allocator.late, self._before.unfit + allocator.unfit
        here.jobs, here.yielding = len(allocator.jobs), allocator.yielding
        return here

    def _new_allocator(self) -> Allocator:
        options = self._book.options
        return Allocator(
            len(self._columns), self._settings, options.weights, self._book.rng.random, self._queues, PLAN_UNITS_PER_S
        )

    # ---- what the book tells -----------------------------------------------------------------

    def stage_came(self, stage: StageState) -> None:
        first = stage.job.stages[0]
        live: LiveJob = LiveJob(stage.job, self._history) if stage is first else first.plan.live
        stage.plan = live.plans[stage.index]

    def tasks_unplaced(self, stage: StageState, now_s: float) -> None:
        """They are placed once all that came together has been handled (`pump`)."""
        self._touch(stage)
        if not stage.unplaced or not stage.open:
            return
        if stage.reserved_at_s is None:
            stage.reserved_at_s = now_s
        self._waiting[stage] = None
        look_for_nodes(self._book, stage, now_s)

    def tasks_withdrawn(self, stage: StageState) -> None:
        self._touch(stage)

    def none_unplaced(self, stage: StageState, now_s: float) -> None:
        self._waits_no_more(stage)
        self._touch(stage)

    def _waits_no_more(self, stage: StageState) -> None:
        stage.search.no_node_since_s = None
        self._waiting.pop(stage, None)
        self._usable.look_again(stage)

    def stage_left(self, stage: StageState, now_s: float) -> None:
        _tell_history(self._history, stage, stage.plan)
        self._waits_no_more(stage)
        for attempt_id in stage.attempts.values():  # They may still run, and be of no concern to us.
            self._ended(stage.job.attempts[attempt_id])
        self._touched.pop(stage, None)
        self._strays.pop(stage, None)
        self._news = True
        live: LiveJob = stage.plan.live
        if stage is live.stages[-1] and self._lives.get(live.job.id) is live:
            self._job_gone(live.job.id)

    def memories_known(self, stage: StageState, memories: Collection[str], now_s: float) -> None:
        self._touch(stage)

    def adopted(self, attempt: Attempt) -> None:
        self._room.adopted(attempt)
        self._changed[attempt.node_id] = None
        self._strays[attempt.stage] = None
        self._touch(attempt.stage)

    def attempt_reported(self, attempt: Attempt, report: m.Report) -> None:
        began_s = self._ended(attempt)
        if report.status is not FINISHED:
            return
        plan: LiveStage = attempt.stage.plan
        change = plan.finished(report, began_s + (report.service_s or 0.0))
        if change is not Change.NONE:
            self._think_anew(plan.live, rose=change is Change.ROSE)

    def handed_back(self, attempt: Attempt, node: Node, now_s: float) -> None:
        """Another node gets the task, as long as this one would hardly take it."""
        stage = attempt.stage
        self._book.leave_alone(stage, node.id, now_s)
        # After the node has been forgiven, as timers of equal times go in the order in which they were set.
        self._book.at_stage(now_s + BACKOFF_MAX_S, stage, self._forgiven)
        self._ended(attempt)

    def preempted(self, attempt: Attempt, node: Node, service_s: float, now_s: float) -> None:
        """An attempt that was adopted: nothing of ours is preempted."""
        self._ended(attempt)

    def _forgiven(self, stage: StageState, now_s: float) -> None:
        self._touch(stage)

    def _touch(self, stage: StageState) -> None:
        """Something happened to its tasks."""
        self._touched[stage] = None
        self._usable.look_again(stage)
        self._news = True

    def _ended(self, attempt: Attempt) -> float:
        """The attempt is at its node no more; when it began there."""
        placed = self._placed.pop(attempt, None)
        self._touch(attempt.stage)
        if placed is None:
            self._changed[attempt.node_id] = None
            return 0.0
        attempt.stage.plan.ended(placed.began_s)
        self._allocator.stopped(placed.job, placed.group, placed.machine, placed.end_s)
        return placed.began_s

    def _think_anew(self, live: LiveJob, *, rose: bool) -> None:
        """It is known better how long tasks of the job take."""
        if self._lives.get(live.job.id) is live:
            self._allocator.lasts(live.job.id, live.dag(self._columns), can_yield=live.can_yield, rose=rose)

    # ---- what nodes do -----------------------------------------------------------------------

    def node_up(self, node: Node, now_s: float) -> None:
        for stage in self._waiting:
            stage.search.barred_by.pop(node.id, None)  # Its operator may have changed that.
        for name in node.info.resources:
            if name not in self._columns and len(self._columns) < RESOURCES_MAX:
                self._columns[name] = len(self._columns)
                self._build_anew = True
        self._nodes_changed(node.id, now_s)

    def node_state(self, node: Node, now_s: float) -> None:
        self.node_up(node, now_s)

    def node_load(self, node: Node, now_s: float) -> None:
        if self._room.load_told(node):
            self._changed[node.id] = None
            self._news = True

    def node_lost(self, node: Node) -> tuple[StageState, ...]:
        self._room.gone(node.id)
        for attempt in node.attempts:
            self._ended(attempt)
        return ()

    def node_down(self, node: Node, now_s: float) -> None:
        self._nodes_changed(node.id, now_s)

    def _nodes_changed(self, node_id: str, now_s: float) -> None:
        """Stages may have nodes that had none, or none any more."""
        self._changed[node_id] = None
        self._usable.nodes_changed()
        self._news = True
        nodes_changed(self._book, self._waiting, now_s)

    def lead_changed(self, leads: bool, now_s: float) -> None:
        """What waits is placed, or waits for the next that leads."""
        self._news = True

    def oldest_wait_s(self, now_s: float) -> float:
        """There are no rounds."""
        return 0.0

    def explain(self, stages: Sequence[StageState], now_s: float) -> list[Callable[[], WhyWaiting]]:
        """What its job may use, when it is to end, what it yields."""
        return [why_waiting(self._book, self._room, self._allocator, self._columns, stage, now_s) for stage in stages]

    def live_reservations(self, node_id: str) -> int:
        return 0

    # ---- what the allocator is told ----------------------------------------------------------

    def _tell_machines(self, now_s: float) -> None:
        gone = len(self._allocator.machines) - len(self._book.nodes)
        if self._build_anew or gone > max(GONE_MAX, len(self._allocator.machines) // 2):
            self._make_anew(now_s)
        known = self._allocator.machines.number
        names = [name for name in self._changed if name in known or name in self._book.nodes]
        self._changed.clear()
        if names:
            self._allocator.machines_came(names, np.array([self._capacity(name) for name in names]))

    def _capacity(self, node_id: str) -> list[float]:
        """What the allocator may fill at the node: without strangers, and without jobs that it does not know."""
        node = self._book.nodes.get(node_id)
        if node is None or not takes_tasks(node):
            return [0.0] * len(self._columns)
        amounts = self._room.without_strangers(node)
        amounts[SLOTS] = float(self._room.lane_slots(node) - self._room.strangers(node).slots)
        for attempt in node.attempts:
            if attempt not in self._placed:
                amounts[SLOTS] -= 1
                for name, amount in attempt.stage.kind.demand:
                    amounts[name] = amounts.get(name, 0.0) - amount
        return [max(0.0, amount) for amount in row_of(amounts, self._columns)]

    def _make_anew(self, now_s: float) -> None:
        """An allocator that knows the nodes that are here, and the jobs as far as they are."""
        before = self._allocator
        self._build_anew = False
        self._before.late += before.late
        self._before.unfit += before.unfit
        self._allocator = self._new_allocator()
        self._usable.nodes_changed()
        self._changed.clear()
        names = [node.id for node in self._book.nodes.all()]
        if names:
            self._allocator.machines_came(names, np.array([self._capacity(name) for name in names]))
        for name in before.jobs:
            self._enter(self._lives[name], now_s)

    def _tell_jobs(self, now_s: float) -> None:
        touched, self._touched = self._touched, {}
        for name in [name for name, live in self._lives.items() if not self._book.is_here(live.job)]:
            self._job_gone(name)
        for stage in touched:
            job, known = stage.job, self._lives.get(stage.job.id)
            is_known = known is not None and known.job is job
            if not self._book.is_here(job):
                continue
            live: LiveJob = stage.plan.live
            if is_known:
                self._count(stage, now_s)
            elif live.may_run:
                self._enter(live, now_s)
        for name in dict.fromkeys(stage.job.id for stage in touched):
            here = self._allocator.jobs.get(name)
            if here is not None and here.job.is_over:
                self._job_gone(name)

    def _count(self, stage: StageState, now_s: float) -> None:
        """Tell of one stage of a job that the allocator has."""
        if self._strays and stage in self._strays:
            del self._strays[stage]
            attempts = [stage.job.attempts[number] for number in stage.attempts.values()]
            for attempt in [one for one in attempts if one not in self._placed]:
                self._run_on(attempt, now_s)
        self._allocator.counted(stage.job.id, stage.index, left_of(stage), is_open=stage.open)
        if stage.over:
            _tell_history(self._history, stage, stage.plan)

    def _enter(self, live: LiveJob, now_s: float) -> None:
        """The allocator has the job from now on, as far as it is."""
        job, allocator = live.job, self._allocator
        self._lives[job.id] = live
        live.settle_demands(allocator.machines, self._columns)
        allocator.job_came(job.id, live.dag(self._columns), job.user, can_yield=live.can_yield, is_new=False)
        for stage in live.stages:
            for number in stage.attempts.values():
                attempt = job.attempts[number]
                placed = self._placed.get(attempt)
                if placed is None:
                    self._run_on(attempt, now_s)
                else:  # The allocator is a new one.
                    allocator.runs(job.id, placed.group, placed.machine, placed.end_s)
            self._count(stage, now_s)

    def _job_gone(self, name: str) -> None:
        """The allocator has it no more. Nothing of it runs."""
        live = self._lives.pop(name)
        for stage, plan in zip(live.stages, live.plans, strict=True):
            if stage.over:
                _tell_history(self._history, stage, plan)
        self._allocator.job_gone(name)

    def _run_on(self, attempt: Attempt, now_s: float) -> None:
        """An attempt of its job runs that the allocator has not started; nobody knows since when."""
        stage, node_id = attempt.stage, attempt.node_id
        end_s = now_s + float(self._allocator.jobs[stage.job.id].job.dag.duration_s[stage.index])
        self._note(attempt, end_s, now_s)
        self._changed[node_id] = None
        self._allocator.runs(stage.job.id, stage.index, node_id, end_s)

    def _note(self, attempt: Attempt, end_s: float, now_s: float) -> None:
        stage = attempt.stage
        self._placed[attempt] = Placed(stage.job.id, stage.index, attempt.node_id, end_s, now_s)
        stage.plan.began(now_s)

    # ---- which node gets what ----------------------------------------------------------------

    def pump(self, now_s: float) -> None:
        if not self._news or not self._book.leads():
            return
        if not self._is_warm:
            if self._warming is None:
                self._warming = self._book.solve(warm_up)
            return
        self._news = False
        for _ in range(TRIES_MAX):
            self._tell_machines(now_s)
            self._tell_jobs(now_s)
            self._tell_machines(now_s)  # Without what of jobs that have just come runs already.
            self._allocator.limit(self._usable.limits(self._allocator, self._waiting))
            self._allocator.prefer(self._usable.preferred(self._allocator, self._waiting))
            if self._start_all(self._allocator.pump(now_s), now_s):
                self._news = False
                break
        self._wake_at(max(self._allocator.next_s, now_s + WAKE_LATER_S))

    def solved(self, number: int, answer: Any, now_s: float) -> None:
        """What the allocator needs is compiled, or will be where it is needed."""
        if number == self._warming:
            self._is_warm = self._news = True

    def _start_all(self, starts: Sequence[Start], now_s: float) -> bool:
        """Send what the allocator has started; whether all of it could be."""
        missing = 0
        for start in starts:
            stage = self._lives[start.job].stages[start.group]
            sent = self._start(stage, start, now_s)
            if sent < start.tasks:
                missing += start.tasks - sent
                self._allocator.stopped(start.job, start.group, start.machine, start.end_s, start.tasks - sent)
                self._touch(stage)
            if start.is_lent:
                self._figures.lent += sent
            else:
                self._figures.must += sent
            if sent:
                self._book.count_placed(stage, sent)
                if not stage.unplaced:
                    self._waits_no_more(stage)
        return not missing

    def _start(self, stage: StageState, start: Start, now_s: float) -> int:
        """Send tasks of the stage to the node, as many as may be there of those that were started; how many."""
        book, job, node = self._book, stage.job, self._book.nodes[start.machine]
        may_run_at = book.test_node(stage)
        for sent in range(start.tasks):
            task = _next_task(stage, node) if may_run_at(node.id) and book.may_start_at(job, node) else None
            if task is None:
                return sent
            book.place(stage, task, node)
            self._note(job.attempts[stage.attempts[task]], start.end_s, now_s)
        return start.tasks

    def _wake_at(self, at_s: float) -> None:
        """Look again then, as jobs must start tasks."""
        if at_s < self._timer_at_s - WAKE_LATER_S:
            self._timer_at_s = at_s
            self._book.at(at_s, self._woken)

    def _woken(self, now_s: float) -> None:
        if now_s >= self._timer_at_s:
            self._timer_at_s = np.inf
        self._news = True

    # ---- invariants --------------------------------------------------------------------------

    def problem(self, stage: StageState) -> str | None:
        wanted = stage.unplaced > 0 and stage.open
        if (stage in self._waiting) != wanted:
            return f"{stage.unplaced} unplaced tasks, and it waits for a place: {not wanted}"
        if wanted and not self._book.nodes.eligible(stage.kind) and not self._book.is_waiting(stage):
            return f"no node may run its {stage.unplaced} unplaced tasks, and it does not wait for one"
        here = self._allocator.jobs.get(stage.job.id)
        if here is None or stage in self._touched or not stage.open:  # Nobody tells of tasks that may not run yet.
            return None
        counted = int(here.job.left[stage.index])
        if counted != left_of(stage):
            return f"the allocator has {counted} tasks that have not started, and the book {left_of(stage)}"
        return None

    def problem_of_all(self) -> str | None:
        book = self._book
        for attempt, placed in self._placed.items():
            node = book.nodes.get(placed.machine)
            if node is None or attempt not in node.attempts:
                return f"attempt {attempt.id} is thought to run at node {placed.machine}, which does not have it"
        if self._news or not book.leads():
            return None
        for stage in self._waiting:
            if book.is_here(stage.job) and stage.job.id not in self._allocator.jobs and stage.plan.live.may_run:
                return f"the allocator does not know job {stage.job.id}, whose tasks wait"
        return self._free_problem()

    def _free_problem(self) -> str | None:
        """Whether what the allocator takes to be free is what it would count anew."""
        machines = self._allocator.machines
        used = np.zeros_like(machines.free)
        for placed in self._placed.values():
            used[machines.number[placed.machine]] += self._allocator.jobs[placed.job].job.dag.demand[placed.group]
        wrong = ~np.isclose(machines.capacity - used, machines.free, rtol=1e-6, atol=1e-6).all(axis=1)
        names = [machines.names[number] for number in np.flatnonzero(wrong)]
        return f"what is free at nodes {names[:5]} is not what was counted" if names else None

    def left_over(self) -> str:
        kept = [
            name
            for name, books in (("stages", self._waiting), ("attempts", self._placed), ("jobs", self._lives))
            if books
        ]
        return f"waiting {' and '.join(kept)} are kept" if kept else ""


def _tell_history(history: StageHistory, stage: StageState, plan: LiveStage) -> None:
    """The stage is over, or its job is."""
    if not plan.has_ended:
        plan.has_ended = True
        history.ended(plan.key, plan.estimate.run, stage.spec.task_count)


def _next_task(stage: StageState, node: Node) -> int | None:
    """An unplaced task of the stage that may run at the node."""
    preferences = stage.preferences
    if preferences is None:
        return stage.first_unplaced() if stage.unplaced else None
    wanting = preferences.wanting.get(node.id)
    if wanting:
        return next(iter(wanting))
    return preferences.next_free() if preferences.free else None
