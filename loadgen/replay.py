"""Open-loop replay: jobs are submitted when they are due, whether or not earlier ones have ended.

One `Replay` runs in each generator process, on its event loop. It records when each job was due, when it was really
submitted, and the outcome of every task. Every job has an end: finished, failed, cancelled, lost or refused.
"""

from __future__ import annotations

import asyncio
import math
import statistics
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from frontends.synthetic.tasks import encode_duration
from loadgen.job_records import JobRecord
from loadgen.jobs import WorkloadJob
from loadgen.query_jobs import QueryJobs
from sparrow_py.errors import InvalidRequest, SparrowError
from sparrow_py.job import JobSpec, StageSpec, TaskSpec, TaskStatus
from sparrow_py.session.job_sink import JobSink
from sparrow_py.wire import messages as m

CANCELLED_OUTCOMES_TIMEOUT_S = 5.0
"""How long schedulers have to send the outcomes of jobs that were cancelled because the time was up."""
RECENT_JOBS = 1000
"""Jobs of which the live view shows the median response time."""


class Submitter(Protocol):
    """Submits jobs of one user, as `sparrow_py.session.session.Session` does."""

    def submit(self, spec: JobSpec, sink: JobSink) -> None:
        """Submit a job; its sink is told the outcomes."""

    def cancel_job(self, job_id: str, *, running: bool = False) -> None:
        """Cancel the job."""


@dataclass(frozen=True)
class Plan:
    """How jobs are submitted.

    run: the beginning of all job ids. app: of the tasks, "sleep" or "spin". probe_ratio: d. nodes: ids of the node
    monitors, which `WorkloadJob.preferred` names by number. wait_max_s: how long jobs may take after the last
    submission. queries: what is submitted instead of tasks of the workload's durations, where jobs are queries.
    policy: that all jobs state.
    """

    run: str
    app: str
    probe_ratio: float
    nodes: tuple[str, ...]
    wait_max_s: float
    queries: QueryJobs | None = None
    policy: str = ""


@dataclass
class Progress:
    """How far a replay is. tasks_under_way: tasks of submitted jobs that have no outcome yet. late_max_s: the largest
    lateness so far. p50_s: median response time of the jobs that ended last."""

    jobs: int
    submitted: int = 0
    ended: int = 0
    refused: int = 0
    tasks_under_way: int = 0
    late_max_s: float = 0.0
    p50_s: float = math.nan


class _Sink(JobSink):
    """Passes the client's news of a job to its record and to the replay."""

    __slots__ = ("_record", "_replay")

    def __init__(self, record: JobRecord, replay: Replay) -> None:
        self._record = record
        self._replay = replay

    def refused(self, error: SparrowError) -> None:
        self._record.refuse(error)
        self._replay.over(self._record)

    def settle(self, outcome: m.Outcome, lost: SparrowError | None = None) -> None:
        self._record.outcome(outcome)
        self._replay.task_ended(self._record, outcome)

    def finish(self) -> None:
        self._record.end()
        self._replay.over(self._record)


class Replay:
    """Submits `jobs`, which are in order of arrival, each through the submitter of its user.

    clock: seconds since the epoch. sleep: as `asyncio.sleep`.
    """

    def __init__(
        self,
        jobs: Sequence[WorkloadJob],
        submitters: Mapping[str, Submitter],
        plan: Plan,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
    ) -> None:
        self.records: list[JobRecord] = []
        self._jobs = jobs
        self._submitters = submitters
        self._plan = plan
        self._clock = clock
        self._sleep = sleep
        self._under_way: dict[str, tuple[JobRecord, str]] = {}
        """Jobs that were submitted and have not ended: their records and users."""
        self._tasks_under_way = 0
        self._refused = 0
        self._late_max_s = 0.0
        self._recent: deque[float] = deque(maxlen=RECENT_JOBS)
        self._idle = asyncio.Event()

    async def run(self, start_s: float) -> None:
        """Replay from this time on; at the end `records` has a record for each job."""
        for job in self._jobs:
            due_s = start_s + job.arrival_s
            spec = self.spec(job)
            early_s = due_s - self._clock()
            while early_s > 0:
                await self._sleep(early_s)
                early_s = due_s - self._clock()
            self._submit(job, spec, due_s)
            await self._sleep(0)  # The job is sent; and when jobs are late, messages that have come are read.
        if not await self._all_ended(self._plan.wait_max_s):
            for job_id, (_, user) in list(self._under_way.items()):
                self._submitters[user].cancel_job(job_id, running=True)
            await self._all_ended(CANCELLED_OUTCOMES_TIMEOUT_S)
        for record, _ in self._under_way.values():
            record.end()

    def _submit(self, job: WorkloadJob, spec: JobSpec, due_s: float) -> None:
        record = JobRecord(job, spec.job_id, due_s)
        self.records.append(record)
        self._under_way[spec.job_id] = record, job.user
        self._tasks_under_way += len(job.durations_s)
        record.submitted_s = self._clock()
        self._late_max_s = max(self._late_max_s, record.submitted_s - due_s)
        try:
            self._submitters[job.user].submit(spec, _Sink(record, self))
        except InvalidRequest as error:
            record.refuse(error)
            self.over(record)

    async def _all_ended(self, timeout_s: float) -> bool:
        """Wait until no job is under way, up to a time; returns whether all have ended."""
        self._idle.clear()
        if self._under_way:
            try:
                async with asyncio.timeout(timeout_s):
                    await self._idle.wait()
            except TimeoutError:
                return False
        return True

    def spec(self, job: WorkloadJob) -> JobSpec:
        """The job as a scheduler gets it: a query, or tasks that sleep or spin for the workload's durations."""
        plan = self._plan
        if plan.queries is not None:
            return plan.queries.spec(job.label, f"{plan.run}-{job.number}", plan.probe_ratio)
        tasks: list[Any] = [encode_duration(duration_s) for duration_s in job.durations_s]
        for task, preferred in enumerate(job.preferred):
            if preferred:
                tasks[task] = TaskSpec(tasks[task], preferred=[plan.nodes[number] for number in preferred])
        job_id = f"{plan.run}-{job.number}"
        if not job.stages:
            return JobSpec(
                tasks, app=plan.app, job_id=job_id, where=job.where, expected_duration_s=job.mean_s,
                probe_ratio=plan.probe_ratio, name=job.label, priority=job.priority, policy=plan.policy,
            )  # fmt: skip
        stages = [
            StageSpec(
                tasks[own.start : own.stop], name=stage.name, after=stage.after, app=plan.app, where=job.where,
                expected_duration_s=job.mean_s if stage.expected_s is None else stage.expected_s,
                probe_ratio=plan.probe_ratio,
            )
            for stage, own in job.ranges()
        ]  # fmt: skip
        return JobSpec(stages=stages, job_id=job_id, name=job.label, priority=job.priority, policy=plan.policy)

    def over(self, record: JobRecord) -> None:
        """A job has ended or was refused."""
        if self._under_way.pop(record.job_id, None) is None:
            return
        if record.status == "refused":
            self._refused += 1
            self._tasks_under_way -= len(record.task_status)
        else:
            self._recent.append(record.ended_s - record.due_s)
        if not self._under_way:
            self._idle.set()

    def task_ended(self, record: JobRecord, outcome: m.Outcome) -> None:
        """A task's outcome has come."""
        self._tasks_under_way -= 1
        queries = self._plan.queries
        if queries is not None and outcome.status is TaskStatus.FINISHED:
            label = record.label
            if not queries.is_right(label, outcome.task, outcome.result):
                record.answer_is_wrong(outcome.task)

    def progress(self) -> Progress:
        """How far the replay is."""
        recent = [response_s for response_s in self._recent if not math.isnan(response_s)]
        return Progress(
            len(self._jobs),
            len(self.records),
            len(self.records) - len(self._under_way) - self._refused,
            self._refused,
            self._tasks_under_way,
            self._late_max_s,
            statistics.median(recent) if recent else math.nan,
        )
