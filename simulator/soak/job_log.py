"""What becomes of a job in a simulated cluster: all that its client was told, and each start of its tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from simulator.engine import Engine
from simulator.soak.broken import Broken
from simulator.soak.links import Link
from sparrow_py.errors import SparrowError
from sparrow_py.job import Ended, JobSpec, StageSpec, TaskResult, TaskSpec, TaskStatus
from sparrow_py.wire import messages as m


class Client(Protocol):
    """Who submitted a job."""

    name: str
    user: str
    alive: bool


class _Nobody:
    """Whose a job is that its client has let go of, while nobody is attached."""

    name, user, alive = "nobody", "", False


NOBODY = _Nobody()


class Node(Protocol):
    """Where a task was started."""

    name: str
    links: dict[str, Link]


class JobLog:
    """The `Sink` of a job: all that its client was told, with the times."""

    depth = 0
    """How many tasks it is within."""

    def __init__(self, engine: Engine, spec: JobSpec, client: Client) -> None:
        self.engine = engine
        self.spec = spec
        self.client = client
        self.user = client.user
        self.is_let_go = False
        """Whether a client has begun to let go of it."""
        self.told_before: set[int] = set()
        """Tasks whose outcomes clients were told that had attached to it before this one."""
        self.sink: object = self
        """Who tells what the job's client was told."""
        self.submitted_at_s = engine.now_s
        self.accepted_count = 0
        self.error: SparrowError | None = None
        self.outcomes: list[m.Outcome] = []
        self.told_at_s: dict[int, float] = {}
        """When each of them was told, by task."""
        self.placed_tasks: list[int] = []
        self.not_cancelled_tasks: list[int] = []
        self.asked_to_cancel: dict[int, float] = {}
        """Task to when it was first to be cancelled by its number."""
        self.cancelled_at_s: float | None = None
        self.ended_count = 0
        self.ended_at_s = 0.0
        self.starts: list[Start] = []
        self.moved_at_s: list[float] = []
        """When the client took the job to another scheduler."""
        self.running_too = False
        """Whether cancellation was to stop what runs."""
        self.submitted_to: list[str] = []
        """The schedulers that were sent the job, refusals included."""
        self.submitted_last_s: dict[int, float] = {}
        """When it was last sent with each epoch."""
        self.submitted_last_to: dict[int, str] = {}
        """To whom it was last sent with each epoch."""
        self.avoids: list[JobLog] = []
        """Jobs that were at the scheduler when this one came, and that it avoids."""
        self.avoided_by: list[JobLog] = []
        self.awaits: dict[TaskResult, JobLog] = {}
        """The logs of the jobs whose tasks' results its own ask for."""
        self.payloads: list[Any] = []
        self.stage_of: list[int] = []
        self.stages: Sequence[StageSpec] = spec.as_stages()
        self.names = [stage.name for stage in self.stages]
        for index, stage in enumerate(self.stages):
            self.payloads += [task.payload if isinstance(task, TaskSpec) else task for task in stage.tasks]
            self.stage_of += [index] * len(stage.tasks)
        self.details = {
            number: task
            for number, task in enumerate(task for stage in self.stages for task in stage.tasks)
            if isinstance(task, TaskSpec)
        }

    @property
    def id(self) -> str:
        """The job's id."""
        return str(self.spec.job_id)

    def sent_to(self, scheduler: str, epoch: int) -> None:
        """Its client submits it, or a part of it, to this scheduler."""
        now_s = self.engine.now_s
        self.submitted_to.append(scheduler)
        self.submitted_last_s[epoch] = now_s
        self.submitted_last_to[epoch] = scheduler
        if epoch:
            self.moved_at_s.append(now_s)

    # ---- what the client's core tells --------------------------------------------------------

    def accepted(self) -> None:
        """The job will run."""
        self.accepted_count += 1

    def refused(self, error: SparrowError) -> None:
        """Nothing of it will run."""
        if self.error is not None:
            raise Broken("it was refused twice", self.id)
        self.error = error

    def placed(self, task: int) -> None:
        """The task has left the queue."""
        self.placed_tasks.append(task)

    def outcome(self, outcome: m.Outcome) -> None:
        """How a task ended."""
        if self.ended_count:
            raise Broken("an outcome after the end", self.id)
        self.outcomes.append(outcome)
        self.told_at_s[outcome.task] = self.engine.now_s

    def not_cancelled(self, task: int) -> None:
        """The task runs and was not cancelled."""
        self.not_cancelled_tasks.append(task)

    def ended(self) -> None:
        """All outcomes have been told."""
        self.ended_count += 1
        self.ended_at_s = self.engine.now_s

    # ---- clients let go of it, and others attach ---------------------------------------------

    def let_go(self) -> None:
        """Its client has let go of it, with all that it was told."""
        self.client, self.sink = NOBODY, None

    def attached(self, client: Client) -> AttachedSink:
        """Another client has attached to it, and will be told what none before it was."""
        if client.user != self.user:
            raise Broken(f"{client.user} has attached to a job of {self.user}", self.id)
        if isinstance(self.sink, AttachedSink):  # What a client had that let go of it is told again.
            self.told_before.update(outcome.task for outcome in self.outcomes)
        self.outcomes, self.told_at_s, self.ended_count = [], {}, 0
        self.client = client
        self.sink = AttachedSink(self)
        return self.sink

    # ---- what tests and oracles ask ----------------------------------------------------------

    @property
    def left_alone(self) -> bool:
        """Whether its starts could not be counted: it went on without its client, which was only cut off."""
        alone = self.spec.on_client_lost == "finish" or self.is_let_go
        return alone and self.spec.max_attempts > 1 and bool(self.moved_at_s)

    @property
    def response_s(self) -> float:
        """From submission until its last outcome."""
        return self.ended_at_s - self.submitted_at_s

    def statuses(self) -> list[TaskStatus]:
        """Of each task, in order; all must have ended."""
        by_task = {outcome.task: outcome.status for outcome in self.outcomes}
        return [by_task[task] for task in range(len(self.payloads))]

    def stage(self, task: int) -> StageSpec:
        """The stage that the task is of."""
        return self.stages[self.stage_of[task]]

    def starts_max(self, task: int) -> int:
        """How often the task may be started: the failures that are retried do not count as lost starts do."""
        retry = self.stage(task).retry
        return self.spec.max_attempts + (0 if retry is None else retry.attempts - 1)

    def inputs(self, wanted: Sequence[Any]) -> list[bytes]:
        """The results that a task with these `inputs` is to be given."""
        results: list[bytes] = []
        for name in wanted:
            if isinstance(name, TaskResult):
                results.append(self.awaits[name].payloads[name.task])
            else:
                of_stage = zip(self.payloads, self.stage_of, strict=True)
                results += [payload for payload, of in of_stage if self.names[of] == name]
        return results

    def how_ended(self, task: int) -> Ended | None:
        """How its client was told that the task ended; None if it was not."""
        if self.error is not None:
            return TaskStatus.LOST, b"", str(self.error)
        told = next((outcome for outcome in self.outcomes if outcome.task == task), None)
        return None if told is None else (told.status, told.result, told.error)

    def has_finished(self, task: int) -> bool:
        """Whether a run of the task has ended well."""
        return any(one.task == task and one.ended_at_s is not None and not one.failed for one in self.starts)

    def finished(self, stage: str) -> bool:
        """Whether every task of the stage has a run that ended well."""
        index = self.names.index(stage)
        ended = {start.task for start in self.starts if start.ended_at_s is not None and not start.failed}
        return all(task in ended for task, of in enumerate(self.stage_of) if of == index)


class AttachedSink:
    """What a client is told that has attached to a job, as long as no other has since, or it has let go of it again."""

    def __init__(self, log: JobLog) -> None:
        self._log = log

    @property
    def _is_meant(self) -> bool:
        return self._log.sink is self

    def accepted(self) -> None:
        """It was accepted before."""

    def refused(self, error: SparrowError) -> None:
        """It was accepted before."""
        raise Broken(f"an attached job was refused: {error}", self._log.id)

    def placed(self, task: int) -> None:
        """The task has left the queue."""

    def outcome(self, outcome: m.Outcome) -> None:
        """How a task ended."""
        if self._is_meant:
            self._log.outcome(outcome)

    def not_cancelled(self, task: int) -> None:
        """The task runs and was not cancelled."""
        if self._is_meant:
            self._log.not_cancelled(task)

    def ended(self) -> None:
        """All outcomes have been told."""
        if self._is_meant:
            self._log.ended()


class Start:
    """One run of a task that was given to an executor."""

    def __init__(self, log: JobLog, task: int, name: tuple[str, int], node: Node, scheduler: str) -> None:
        self.log = log
        self.task = task
        self.name = name
        """(job, attempt): the job is another than the log's where it was submitted again as a copy."""
        self.attempt = name[1]
        """The attempt's id: the job's epoch, then a number."""
        self.node = node
        self.scheduler = scheduler
        self.link = node.links.get(scheduler)
        self.given_at_s = log.engine.now_s
        self.started_at_s: float | None = None
        self.started_own_s = 0.0
        """By the clock of its node."""
        self.ended_at_s: float | None = None
        self.ended_own_s = 0.0
        self.waited_s = 0.0
        """For how long it had no slot, as it waited."""
        self.returned = False
        self.preempted = False
        """Whether it was stopped to make room for others."""
        self.failed = False
        self.may_pass = False
        """Whether it failed in a way that its stage's policy retries."""
        self.executor_died = False
        self.killed = False

    @property
    def epoch(self) -> int:
        """Under which it was started."""
        return self.attempt >> m.EPOCH_SHIFT

    @property
    def demand(self) -> dict[str, float]:
        """What it takes of its node."""
        return dict(self.log.stage(self.task).demand or {})

    @property
    def runs(self) -> bool:
        """Whether it has begun, and neither it nor its executor has ended."""
        return self.started_at_s is not None and not self.over

    @property
    def over(self) -> bool:
        """Whether it will not go on."""
        return self.ended_at_s is not None or self.killed or self.executor_died or self.returned

    @property
    def counts(self) -> bool:
        """Whether it is a start as guarantee 3 means it."""
        return not (self.returned or self.preempted)

    @property
    def produced(self) -> bool:
        """Whether its result was too large for a message, and so may have died with its node."""
        return bool(self.log.payloads[self.task].endswith(b"large"))

    @property
    def lost(self) -> bool:
        """Whether its executor, its node or its scheduler was lost, or the link between the latter two."""
        return self.executor_died or self.link is None or not self.link.alive

    def may_be_repeated(self, again: Start) -> bool:
        """Whether guarantee 3 allows `again` after this one."""
        moved = again.epoch > self.epoch  # Another scheduler started it, which cannot know what it was not told.
        failed = self.failed or self.killed  # The latter for its task_timeout_s.
        return self.lost or moved or self.produced or self.may_pass or (failed and self.log.spec.retry_failed)
