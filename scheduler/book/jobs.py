"""What a scheduler holds of a job: its stages, the tasks not placed yet, the attempts that run.

A stage counts its tasks from 0; the job, and every message, counts through all its stages.
`StageState.first` is the difference.
"""

from __future__ import annotations

import bisect
import heapq
import itertools
import math
from collections.abc import Iterable
from enum import Enum
from typing import Any, NamedTuple

from scheduler.book.carried import Carried
from scheduler.book.delays import Delays
from scheduler.book.footprint import job_bytes, known_bytes, outcome_bytes
from scheduler.book.kinds import Kind
from scheduler.book.preferences import Preferences
from scheduler.book.retries import Retries
from scheduler.book.undelivered import Undelivered
from sparrow_py.job import BlobRef, TaskStatus
from sparrow_py.wire.messages import (
    EPOCH_SHIFT,
    SPARROW,
    Claimed,
    Data,
    Fenced,
    KnownOutcome,
    Outcome,
    Report,
    Stage,
    StartedHere,
    SubmitJob,
    TaskDetail,
)

UNPLACED, PLACED, SETTLED, BLOCKED, HELD, LEAVING = 0, 1, 2, 3, 4, 5
"""BLOCKED: an input of the task got lost and is to come back. HELD: the task is to start again, as soon as its client
knows how often it has been started, and the delay after its last failure, or after nodes had no room for its inputs, is
over, and the results of other jobs' tasks that it asks for are here. LEAVING and above: the task will not start, and is
settled in a while (`Outcomes`); how and why says the stage's `Leave` of this number."""
LEAVES_MAX = 200
"""Reasons for which tasks of a stage leave; tasks beyond have the last of them. A task's state has to fit a byte."""

_WITHOUT_START = frozenset({UNPLACED, BLOCKED, HELD, *range(LEAVING, LEAVING + LEAVES_MAX)})

NOT_ASKED, ASKED, RUNS, STOPPING = 0, 1, 2, 3
"""What an attempt's node was asked last. ASKED: to cancel it unless it runs. RUNS: as before, and the node has answered
that it runs. STOPPING: to stop it, whether or not it runs."""


class Phase(Enum):
    """How far a job has come: its tasks may run only once it is OPEN."""

    ARRIVING = "arriving"
    """It is accepted only once all its tasks are here: one may prefer nodes that do not exist, and then the job is
    refused."""
    CLAIMING = "claiming"
    """It was at another scheduler: nodes are asked what they have of it, as soon as all its tasks are here."""
    OPEN = "open"
    """It was accepted, and nobody else may still run its tasks."""


_NONE_SETTLED = dict.fromkeys(TaskStatus, 0)
_EXPECTS_NOTHING: dict[int, set[int]] = {}
_NOTHING_EXPECTED: dict[int, Expected] = {}
_NOT_WATCHED: dict[int, dict[tuple[str, int], JobState]] = {}
"""Of most stages and jobs; never changed."""
ARRIVING, CLAIMING, OPEN = Phase.ARRIVING, Phase.CLAIMING, Phase.OPEN
"""For quick comparison."""


class Leave:
    """Why some tasks of a stage leave. They are to be settled alike, so that a byte of each will do till then."""

    __slots__ = ("count", "reason", "state", "status")

    def __init__(self, state: int, status: TaskStatus, reason: str) -> None:
        self.state = state
        """The state of these tasks."""
        self.status = status
        self.reason = reason
        self.count = 0
        """How many of them have not been settled."""


class Attempt:
    """One start of a task whose outcome is not known."""

    __slots__ = ("cancelling", "id", "node_id", "preempting", "pushed", "stage", "task")

    def __init__(self, attempt_id: int, stage: StageState, task: int, node_id: str) -> None:
        self.id = attempt_id
        self.stage = stage
        self.task = task
        self.node_id = node_id
        self.pushed = False
        """Whether it was sent for a slot of which its node had said that it is free (`LaunchNow`)."""
        self.preempting = False
        """Whether its node was asked to stop it for others, after which its task waits for a place again."""
        self.cancelling = NOT_ASKED
        """It only grows: a node is asked at most once without and once with `running`."""

    @property
    def cancelled(self) -> bool:
        """Its task is not to start again: its node was asked to cancel it, and has not said that it runs."""
        return self.cancelling in (ASKED, STOPPING)

    @property
    def order(self) -> tuple[str, int]:
        """Sorts attempts the same in every run."""
        return self.stage.job.id, self.id


class RoomWait:
    """Since when nodes had no room for a task's inputs, and how often they said so."""

    __slots__ = ("count", "since_s")

    def __init__(self, since_s: float) -> None:
        self.since_s = since_s
        self.count = 0


class Search:
    """How a stage's search for nodes stands: which ones are ruled out, and when it is tried again."""

    __slots__ = ("backoff_s", "barred_by", "no_node_since_s", "refused_by", "retry_at_s")

    def __init__(self) -> None:
        self.refused_by: set[str] = set()
        """Nodes that refused tasks of the stage, and are left alone for a while."""
        self.barred_by: dict[str, str] = {}
        """Nodes that take none of its tasks as long as they are here, and why."""
        self.no_node_since_s: float | None = None
        """Since when no connected node may run some of its unplaced tasks. The plane says None when it has found one or
        nothing is unplaced any more."""
        self.backoff_s = 0.0
        """The last wait before another try; 0 once a task was placed."""
        self.retry_at_s: float | None = None
        """When a pending try is due."""


class StageState:
    """One stage: the unit of scheduling.

    A task is unplaced, placed (an attempt of it runs or waits at a node), settled, blocked, held or leaving.
    Unplaced tasks are `returned` ones and all from `fresh` on; both go out lowest number first, so
    tasks go out in submission order. A stage with task-level constraints has its unplaced tasks
    in `preferences` besides, by the nodes that they want.
    """

    __slots__ = (
        "attempts", "blocked", "closed", "common", "delays", "details", "doomed", "dooms", "expects", "first", "fresh",
        "held", "index", "input_losses", "job", "kind", "large", "leaves", "open_successors", "payloads", "place_by_s",
        "plan", "predecessors", "preferences", "priority", "rerun", "reserved_at_s", "retries", "returned",
        "room_waits", "search", "settled", "spec", "starts", "states", "successors", "unplaced", "untold", "waits_for",
    )  # fmt: skip

    def __init__(self, job: JobState, index: int, first: int, spec: Stage) -> None:
        self.job = job
        self.index = index
        self.first = first
        """The number in the job of its first task."""
        self.spec = spec
        self.priority = job.priority if spec.priority is None else spec.priority
        """Its own, or else its job's."""
        self.common = spec.common
        self.kind = Kind.of(spec, job.avoid_by)
        self.waits_for: set[int] = set()
        """Indices of the stages that must finish first."""
        self.predecessors: list[StageState] = []
        self.successors: list[StageState] = []
        self.open_successors = 0
        """How many of them are not closed: who may still ask for its results."""
        self.large = False
        """Whether one of its results lies at a node, and so may get lost."""
        self.closed = False
        """Whether it is over, and none of its tasks will have to run again for its result."""
        self.doomed = ""
        """Why its tasks will never run; empty if they may."""
        self.dooms = False
        """Whether a task of it, or of a stage before it, did not finish, so that all its successors are doomed."""
        self.payloads: list[Data | None] = []
        self.details: dict[int, TaskDetail] = {}
        self.states = bytearray()
        self.fresh = 0
        self.returned: list[int] = []
        self.preferences = Preferences() if spec.local else None
        """Which of its unplaced tasks wants which nodes. A plane may put one of its own here when the stage comes."""
        self.unplaced = 0
        self.leaves: list[Leave] = []
        """By the state of the tasks, LEAVING first."""
        self.settled = 0
        self.starts: dict[int, int] = {}
        """Earlier starts of tasks that were started before and are to be started again, or were; without those whose
        failures were retried (`retries`)."""
        self.attempts: dict[int, int] = {}
        """Placed task to its attempt."""
        self.rerun: set[int] = set()
        """Tasks whose outcome the client has, and which run again for their result."""
        self.blocked: dict[int, set[str]] = {}
        """Blocked task to the hashes of the inputs it waits for."""
        self.held: dict[int, float] = {}
        """Held task to when its delay is over; a time that has passed if there is none."""
        self.delays: Delays | None = None
        """The ends of these delays in order; None if there was none."""
        self.untold: dict[int, None] = {}  # An empty set takes three times the memory, at every stage.
        """Those of the held tasks whose client does not know yet how often they were started."""
        self.expects: dict[int, set[int]] = _EXPECTS_NOTHING
        """Held task to the numbers of the results that it asks for of other jobs' tasks, and that are not here."""
        self.retries = None if spec.retry is None else Retries(spec.retry)
        """Failures that are retried; None if none is."""
        self.input_losses: dict[int, int] = {}
        """How often a task could not start because inputs were gone, or larger than its node may ever keep."""
        self.room_waits: dict[int, RoomWait] | None = None
        """Tasks for whose inputs nodes had no room, until they have started; None if there was none."""
        self.place_by_s: dict[int, float] = {}
        """Unplaced task to the end of its queue timeout, for jobs that have one."""
        self.reserved_at_s: float | None = None
        """Since when nodes are sought for its tasks."""
        self.search = Search()
        self.plan: Any = None
        """What the scheduler's plane keeps of the stage: its own object, which nobody else looks at."""

    # ---- which tasks there are ---------------------------------------------------------------

    def add_tasks(self, payloads: list[Data], details: dict[int, TaskDetail]) -> None:
        """Further tasks have arrived; `details` by task of the stage."""
        first = len(self.states)
        self.payloads += payloads
        self.states += bytes(len(payloads))
        self.unplaced += len(payloads)
        if details:
            self.details.update(details)
        if self.preferences is not None:
            for task in range(first, first + len(payloads)):
                if task in details and details[task].preferred:
                    self.preferences.constrain(task, details[task].preferred)
                self.preferences.add(task)

    @property
    def open(self) -> bool:
        """Whether its tasks may run now: its predecessors have finished, and nobody else may still run them."""
        return not self.waits_for and self.job.phase is OPEN

    @property
    def complete(self) -> bool:
        """Whether all tasks that the submission announced have arrived."""
        return len(self.states) == self.spec.task_count

    @property
    def over(self) -> bool:
        """Whether all its tasks are settled."""
        return self.settled == self.spec.task_count

    def unplaced_tasks(self) -> list[int]:
        """All unplaced tasks, in order."""
        return [task for task, state in enumerate(self.states) if state == UNPLACED]

    # ---- how tasks change --------------------------------------------------------------------

    def count_settled(self, change: int) -> None:
        """So many more of its tasks are settled (or fewer)."""
        self.settled += change
        self.job.settled += change

    def take_next(self) -> int:
        """The first unplaced task, of which there must be one, and which is unplaced no more: the caller places it.

        For stages without task-level constraints.
        """
        self.unplaced -= 1
        while self.returned:
            task = heapq.heappop(self.returned)
            if self.states[task] == UNPLACED:
                return task
        while self.states[self.fresh] != UNPLACED:
            self.fresh += 1
        self.fresh += 1
        return self.fresh - 1

    def first_tasks(self, count_max: int) -> list[int]:
        """Unplaced tasks, in order: the first of those that have not been placed yet; before them those that have been,
        unless these are more than `count_max`.

        For stages without task-level constraints.
        """
        states = self.states
        found: list[int] = []
        if len(self.returned) <= count_max:
            found = sorted({task for task in self.returned if states[task] == UNPLACED})
        before = frozenset(found)
        task = states.find(UNPLACED, self.fresh)
        while task >= 0 and len(found) < count_max:
            if task not in before:
                found.append(task)
            task = states.find(UNPLACED, task + 1)
        return found[:count_max]

    def take(self, task: int) -> None:
        """This task is unplaced no more: the caller places it. For stages without task-level constraints."""
        self.unplaced -= 1
        if task in self.returned:
            self.returned.remove(task)
            heapq.heapify(self.returned)
        if not self.fresh:  # It tells that some have been placed.
            self.fresh = 1
            if task and self.states[0] == UNPLACED and 0 not in self.returned:
                heapq.heappush(self.returned, 0)

    def first_unplaced(self) -> int:
        """The first unplaced task, of which there must be one: the caller places it.

        For stages without task-level constraints.
        """
        states, returned = self.states, self.returned
        while returned and states[returned[0]] != UNPLACED:
            heapq.heappop(returned)
        while self.fresh < len(states) and states[self.fresh] != UNPLACED:
            self.fresh += 1
        return min(self.fresh, returned[0]) if returned else self.fresh

    def withdraw(self, task: int, state: int) -> None:
        """An unplaced task is settled or blocked without having been placed."""
        self.unplaced -= 1
        self.states[task] = state
        if self.preferences is not None:
            self.preferences.remove(task)

    @property
    def leaving(self) -> int:
        """Tasks that leave."""
        return sum([leave.count for leave in self.leaves])

    def all_leave(self, status: TaskStatus, reason: str) -> None:
        """All unplaced tasks are to be settled so, in a while."""
        if self.preferences is not None:
            for task in self.unplaced_tasks():
                self.preferences.remove(task)
        leave = self._leave(status, reason)
        self.states = self.states.translate(bytes.maketrans(bytes([UNPLACED]), bytes([leave.state])))
        leave.count += self.unplaced
        self.unplaced = 0

    def begin_to_leave(self, tasks: list[int], status: TaskStatus, reason: str) -> None:
        """These tasks, which the caller has taken out of their states, are to be settled so, in a while."""
        leave = self._leave(status, reason)
        for task in tasks:
            self.states[task] = leave.state
        leave.count += len(tasks)

    def _leave(self, status: TaskStatus, reason: str) -> Leave:
        for leave in self.leaves:
            if leave.status is status and leave.reason == reason:
                return leave
        if len(self.leaves) < LEAVES_MAX:
            self.leaves.append(Leave(LEAVING + len(self.leaves), status, reason))
        return self.leaves[-1]

    def next_leave(self) -> Leave | None:
        """Why the tasks leave that are settled next; None if none leaves."""
        return next((leave for leave in self.leaves if leave.count), None)

    def take_leaving(self, leave: Leave, count_max: int) -> list[int]:
        """The first of the tasks that leave for this reason, which are settled from now on."""
        states, tasks, task = self.states, [], -1
        for _ in range(min(count_max, leave.count)):
            task = states.find(leave.state, task + 1)
            states[task] = SETTLED
            tasks.append(task)
        leave.count -= len(tasks)
        return tasks

    def leave_no_more(self, task: int) -> None:
        """A task that leaves has an outcome after all: the caller settles it."""
        self.leaves[self.states[task] - LEAVING].count -= 1

    def failures(self, task: int) -> int:
        """How often the task has failed and was to run again."""
        return 0 if self.retries is None else self.retries.failures.get(task, 0)

    def starts_before(self, task: int) -> int:
        """All earlier starts of a task: those that were lost, and those that failed."""
        starts = self.starts.get(task, 0)
        return starts if self.retries is None else starts + self.retries.failures.get(task, 0)

    def hold(self, task: int, until_s: float, *, untold: bool) -> None:
        """A task that was placed, settled or unplaced is to start again, not before this time, and if `untold` not
        before its client knows its starts."""
        self.states[task] = HELD
        self.attempts.pop(task, None)
        self.held[task] = until_s
        if untold:
            self.untold[task] = None

    def hold_no_more(self, task: int) -> None:
        """A held task is in another state from now on."""
        del self.held[task]
        self.untold.pop(task, None)
        self.expects.pop(task, None)

    def expect(self, task: int, numbers: set[int]) -> None:
        """The task, which is held, waits for these results."""
        if not self.expects:
            self.expects = {}
        self.expects[task] = numbers
        for number in numbers:
            self.job.expected[number].waiting.append((self, task))

    def lacking(self, task: int) -> set[int]:
        """The numbers of the results that the task asks for of other jobs' tasks, and that are not here."""
        detail, missing = self.details.get(task), self.job.expected
        if detail is None or not missing:
            return set()
        return {first for first, _ in detail.inputs if first in missing}  # No longer range has one (`check_tasks`).

    def give_back(self, task: int) -> None:
        """A task that was placed, settled, blocked or held is unplaced again."""
        self.states[task] = UNPLACED
        self.attempts.pop(task, None)
        self.unplaced += 1
        if self.preferences is not None:
            self.preferences.add(task)
        else:
            heapq.heappush(self.returned, task)


class Expected:
    """A result of another job's task that is not here."""

    __slots__ = ("failure", "job_id", "task", "waiting")

    def __init__(self, job_id: str, task: int) -> None:
        self.job_id = job_id
        self.task = task
        self.waiting: list[tuple[StageState, int]] = []
        """The tasks that have been held for it; of some that may be over."""
        self.failure: Failure | None = None
        """How the task ended, if it did not finish."""


class Failure(NamedTuple):
    """How a task ended that did not finish; as its client is told."""

    status: TaskStatus
    result: Data
    error: str


class JobState:
    """One job: a DAG of stages, most often of one."""

    __slots__ = (
        "__weakref__", "acknowledges", "announced", "attempts", "avoid_by", "avoids", "awaited", "awaited_pairs",
        "born_s", "cancel_later", "cancel_reason", "cancel_running", "cancelled", "cancelled_for_loss", "carried",
        "client", "counts", "depth", "epoch", "expected", "failed_before", "fixed_bytes", "given_count", "has_large",
        "held_bytes", "id", "in_vain", "instance", "known", "listing", "max_attempts", "name", "on_client_lost",
        "phase", "policy", "preemptible", "priority", "queue_timeout_s", "received", "report_placed", "results",
        "retried_before", "retry_failed", "running_at", "sent_to", "settled", "settled_before", "settling", "stages",
        "started_before", "submitted_at_s", "task_count", "unanswered", "undelivered", "unstarted", "used", "user",
        "using", "vouched", "wait_for_nodes_s", "watched",
    )  # fmt: skip

    def __init__(
        self, message: SubmitJob, client: str, user: str, now_s: float, user_priority: int = 0, depth: int = 0
    ) -> None:
        self.id = message.job
        self.epoch = message.epoch
        self.instance = message.instance
        self.name = message.name
        self.client = client
        """Who is told; empty once it has vanished."""
        self.user = user
        self.depth = depth
        """How deep it is nested: 0 if no task has submitted it, else one more than the job of the task that has."""
        self.priority = user_priority if message.priority is None else message.priority
        self.policy = message.policy or SPARROW
        """The plane that it is for: this scheduler's."""
        self.max_attempts = message.max_attempts
        self.retry_failed = message.retry_failed
        self.preemptible = message.preemptible and message.max_attempts > 1
        """Whether its tasks may be stopped for others, and start again; never one that may start once at most."""
        self.queue_timeout_s = _finite(message.queue_timeout_s)
        self.wait_for_nodes_s = message.wait_for_nodes_s
        self.on_client_lost = message.on_client_lost
        self.report_placed = message.report_placed
        self.acknowledges = message.acknowledges
        """Whether its client answers what it is told of starts, and is waited for (`advance_notice`)."""
        self.submitted_at_s = now_s
        self.born_s = now_s - message.age_s
        """When its user submitted it, perhaps at another scheduler."""
        self.cancelled = False
        self.cancel_reason = ""
        """Why it was cancelled."""
        self.cancelled_for_loss = False
        """Whether it was cancelled as its client was gone: it goes on if that comes back with it."""
        self.cancel_running = False
        """Whether what runs is to be cancelled with it."""
        self.cancel_later: dict[int, bool] = {}
        """Tasks to cancel as soon as it is claimed, and whether even if they run."""
        self.received = 0
        """Tasks that have arrived, by the job's count."""
        self.settled = 0
        """Settled tasks of all stages."""
        self.counts = _NONE_SETTLED.copy()
        self.attempts: dict[int, Attempt] = {}
        """Attempts whose outcome is not known, those of earlier epochs that were adopted included."""
        self.results: dict[int, Data] = {}
        """Results that stages which are not over may ask for, by the job's count of tasks; then what the job was
        given."""
        self.has_large = False
        """Whether there may be references to large data among them."""
        self.awaited: dict[str, set[tuple[int, int]]] = {}
        """Hash of an input that is to come back to the (stage, task)s that wait for it."""
        self.sent_to: set[str] = set()
        """Nodes that hold something of the job."""
        self.avoid_by = message.avoid_by
        """The attribute by which it avoids those that it named itself; empty: by the node."""
        self.avoids: dict[str, set[str]] = {}
        """Jobs to keep away from, as far as they are here, and the attributes of whose values no two nodes may run both
        at the same time; an empty one is the node itself. The relation goes both ways (§8)."""
        self.running_at: dict[str, int] | None = None
        """Node to attempts there, kept for jobs that avoid others or are avoided."""
        self.phase = OPEN
        self.unanswered: set[str] = set()
        """Nodes that have not answered the claim yet."""
        self.listing = False
        """Whether the claim must wait for nodes to name their jobs (`inventories`)."""
        self.settling = False
        """Whether the claim must wait for something besides nodes' answers."""
        self.known: dict[int, KnownOutcome] = {}
        """What the client knows of tasks that have not arrived yet (epoch above 0)."""
        self.unstarted: list[tuple[int, int]] = []
        """(first, count) of tasks, in order, of which the scheduler before has said that no start was open."""
        self.carried: Carried | None = None
        """What is known of it here, as it was here just before, until it is claimed."""
        self.in_vain: dict[int, int] = {}
        """Ends of attempts under earlier epochs that were not the task's outcome, as far as nodes remember."""
        self.retried_before: dict[int, set[int]] = {}
        """Attempts under earlier epochs whose failures are retried (`StageState.retries`), by task."""
        self.failed_before: dict[int, tuple[str, Report]] = {}
        """The latest failures among them all, and the nodes that reported them."""
        self.announced: dict[int, tuple[str, ...]] = {}
        """Memories of nodes of which the client was told and has not said that it knows, by the message's number."""
        self.using: dict[str, int] | None = {} if message.accounts else None
        """Memories of nodes where its tasks may be started, as the client was told in the message of this number; 0 if
        it has answered. None: the client is not told of them."""
        self.used: set[str] | None = None
        """Memories of nodes where other schedulers may have started its tasks; None: who knows."""
        self.vouched: set[str] = set()
        """Memories of nodes that have said of all its tasks whether they have started them."""
        self.started_before: set[int] = set()
        """The tasks that they have started."""
        self.undelivered: Undelivered | None = None
        """Outcomes that its client may not have; None if there has been none yet."""
        self.settled_before: dict[int, Outcome] = {}
        """Outcomes of tasks that have not arrived yet: of those that were settled here before the client came back, and
        that it may not have."""
        self.held_bytes = 0
        """What the job counts for in its user's `held_bytes_max`; `Ledger.holds` alone changes it."""
        self.fixed_bytes = job_bytes(message)
        """The part of them that is held until it ends; see `footprint`."""
        first, self.stages = 0, []
        for index, spec in enumerate(message.stages):
            self.stages.append(StageState(self, index, first, spec))
            first += spec.task_count
        self.task_count = first
        self.given_count = 0
        """Data that it was given, or awaits, for its tasks to ask for."""
        self.expected: dict[int, Expected] = _NOTHING_EXPECTED
        """By its number each result of another job's task that its tasks ask for, and that is not here."""
        self.awaited_pairs = 0
        """Pairs of a task and such a result that it was to wait for when it came."""
        self.watched: dict[int, dict[tuple[str, int], JobState]] = _NOT_WATCHED
        """Its tasks, which have no outcome, whose results other jobs await: by id and number there the jobs."""
        if len(self.stages) > 1:
            self._link_stages()

    stages: list[StageState]

    def _link_stages(self) -> None:
        by_name = {stage.spec.name: stage for stage in self.stages}
        for stage in self.stages:
            for name in dict.fromkeys(stage.spec.after):
                stage.waits_for.add(by_name[name].index)
                stage.predecessors.append(by_name[name])
                by_name[name].successors.append(stage)
                by_name[name].open_successors += 1

    def dissolve(self) -> None:
        """It has ended: its parts let go of each other, and so go at once, without the garbage collector, whose pauses
        would be every job's."""
        for stage in self.stages:
            stage.predecessors.clear()
            stage.successors.clear()
            stage.plan = None
        self.stages.clear()
        self.expected = _NOTHING_EXPECTED
        self.watched = _NOT_WATCHED

    def is_meant_by(self, message: Claimed | StartedHere | Fenced) -> bool:
        """Whether a node says that of this job, and of no other that has or had its id. A node of a version before does
        not say whose job it means: it may be any."""
        return message.user is None or (message.user, message.instance) == (self.user, self.instance)

    def attempt_id(self, counter: int) -> int:
        """The attempt id for the scheduler's next attempt number."""
        return self.epoch << EPOCH_SHIFT | counter

    def give(self, data: Iterable[BlobRef]) -> None:
        """Its tasks may ask for these, too."""
        self.has_large = True
        for ref in data:
            self.results[self.task_count + self.given_count] = ref
            self.given_count += 1

    def expect(self, job_id: str, task: int) -> int:
        """Its tasks may ask for the result of this task of another job, once it is here; returns the result's
        number."""
        if not self.expected:
            self.expected = {}
        number = self.task_count + self.given_count
        self.expected[number] = Expected(job_id, task)
        self.given_count += 1
        return number

    def watch(self, task: int, other: JobState, number: int) -> None:
        """Another job awaits the task's result under this number."""
        if not self.watched:
            self.watched = {}
        self.watched.setdefault(task, {})[other.id, number] = other

    def watch_no_more(self, task: int, job_id: str, number: int) -> None:
        """It does no longer, if it did."""
        watchers = self.watched.get(task)
        if watchers is not None and watchers.pop((job_id, number), None) is not None and not watchers:
            del self.watched[task]

    def is_given(self, first: int, count: int) -> bool:
        """Whether these numbers, which may be any, are of data that the job was given, or awaits."""
        return count > 0 and self.task_count <= first <= self.task_count + self.given_count - count

    def stage_of(self, task: int) -> StageState:
        """The stage that has this task of the job; `task` must be one."""
        if not 0 <= task < self.task_count:
            raise IndexError(task)
        if len(self.stages) == 1:
            return self.stages[0]
        # The last stage that begins at or before the task: of those that begin there, all but the last are empty.
        return self.stages[bisect.bisect_right(self.stages, task, key=lambda stage: stage.first) - 1]

    def was_unstarted(self, task: int) -> bool:
        """Whether the scheduler before has said that no start of the task was open, or was this one, and knows it."""
        here = self.carried is not None and self._is_in(self.carried.unstarted, task)
        return here or self._is_in(self.unstarted, task)

    def told_unstarted(self, task: int) -> bool:
        """Whether the client has said that no start of the task was open when the job came."""
        return self._is_in(self.unstarted, task)

    def _is_in(self, ranges: list[tuple[int, int]], task: int) -> bool:
        index = bisect.bisect_right(ranges, (task, self.task_count)) - 1
        return index >= 0 and task < sum(ranges[index])

    def without_start(self) -> list[tuple[int, int]]:
        """(first, count) of tasks, in order, of which no start is open and no outcome known."""
        if self.phase is CLAIMING:  # Nothing was started here, and elsewhere who knows: as it was told.
            return self.unstarted
        ranges: list[tuple[int, int]] = []
        for stage in self.stages:
            arrived = (task for task, state in enumerate(stage.states) if state in _WITHOUT_START)
            for task in itertools.chain(arrived, range(len(stage.states), stage.spec.task_count)):
                first, count = ranges[-1] if ranges else (0, 0)
                if ranges and first + count == stage.first + task:
                    ranges[-1] = first, count + 1
                else:
                    ranges.append((stage.first + task, 1))
        return ranges

    def carry_over(self, before: JobState) -> None:
        """Take over from the job that this one supersedes, if it is the same one, that it was cancelled, and what is
        known of starts if no other scheduler had it meanwhile."""
        sizes, sizes_before = ([stage.spec.task_count for stage in job.stages] for job in (self, before))
        if self.instance != before.instance or sizes != sizes_before:
            return
        if before.cancelled and not before.cancelled_for_loss:  # Of its tasks some have left, and the rest follow.
            self.cancelled, self.cancel_running = True, before.cancel_running
            self.cancel_reason = before.cancel_reason
        if self.epoch != before.epoch + 1:
            return
        if before.phase is not CLAIMING:
            starts = {stage.first + task: count for stage in before.stages for task, count in stage.starts.items()}
            failures = {
                stage.first + task: count
                for stage in before.stages
                if stage.retries is not None
                for task, count in stage.retries.failures.items()
            }
            self.carried = Carried(before.without_start(), starts, failures)
        elif before.carried is not None:  # Nothing was started meanwhile.
            self.carried = Carried(before.carried.unstarted, before.carried.starts, before.carried.failures)
        if self.carried is None:
            return
        for number, count in self.carried.starts.items():
            stage = self.stage_of(number)
            stage.starts[number - stage.first] = min(count, self.max_attempts)
        for number, count in self.carried.failures.items():
            stage = self.stage_of(number)
            if stage.retries is not None:
                stage.retries.failures[number - stage.first] = min(count, stage.retries.policy.attempts - 1)

    @property
    def is_detached(self) -> bool:
        """Whether its client has let go of it; another may be attached."""
        return self.undelivered is not None and self.undelivered.detached is not None

    @property
    def accounted_for(self) -> bool:
        """Whether all nodes where other schedulers may have started tasks of it have said which."""
        return self.used is not None and self.used <= self.vouched

    @property
    def unplaced(self) -> int:
        """Tasks that are admitted and not placed, those that are held and those that have not arrived included."""
        return sum(
            stage.unplaced + len(stage.held) + stage.spec.task_count - len(stage.states) for stage in self.stages
        )

    @property
    def over(self) -> bool:
        """Whether every task is settled."""
        return self.settled == self.task_count

    def common_bytes(self) -> int:
        """Of those of its stages that are held here."""
        return sum([len(stage.common) for stage in self.stages if isinstance(stage.common, bytes)])

    def counted_bytes(self) -> int:
        """Bytes that the job makes this scheduler hold, by a count from scratch: what `held_bytes` must be."""
        payloads = sum([len(p) for stage in self.stages for p in stage.payloads if isinstance(p, bytes)])
        payloads += sum(map(known_bytes, self.known.values()))
        payloads += sum(map(outcome_bytes, self.settled_before.values()))
        return (
            self.fixed_bytes
            + self.common_bytes()
            + payloads
            + sum(len(result) for result in self.results.values() if isinstance(result, bytes))
        )


def _finite(seconds: float | None) -> float | None:
    return None if seconds == math.inf else seconds
