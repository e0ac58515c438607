"""The client's pure core: which scheduler gets a job, when to submit again, what is an outcome.

No sockets, clocks or randomness of its own. It makes sure that each task's outcome reaches the
job's `Sink` exactly once, whatever comes over the wire (guarantee 2).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from sparrow_py import messages as m
from sparrow_py.errors import InvalidRequest, InvariantViolated, NoScheduler, Refused, SparrowError
from sparrow_py.job import JobSpec, TaskSpec, TaskStatus, new_job_id

if TYPE_CHECKING:
    import random

CHUNK_TASKS = m.TASKS_PER_MESSAGE_MAX
ENTRY_OVERHEAD_BYTES = 5
"""What msgpack adds to a payload in a message, at most."""


class Sink(Protocol):
    """Who is told what becomes of a job."""

    def accepted(self) -> None:
        """The job will run."""

    def refused(self, error: SparrowError) -> None:
        """Nothing of the job will run, and nothing more will be told."""

    def placed(self, task: int) -> None:
        """The task has left the queue."""

    def outcome(self, outcome: m.Outcome) -> None:
        """A task's outcome; called exactly once per task of an accepted job."""

    def not_cancelled(self, task: int) -> None:
        """The task runs and was not cancelled."""

    def ended(self) -> None:
        """All outcomes have been told."""


class Outbox(Protocol):
    """Where effects go."""

    def to_scheduler(self, scheduler: str, message: m.Message) -> None:
        """Send to a scheduler."""

    def stream(self, scheduler: str, job: ClientJob) -> None:
        """Send `job.chunks` to the scheduler as fast as it takes them, then call `streamed`."""


class ClientJob:
    """A job of this client."""

    __slots__ = (
        "accepted", "cancelled", "chunks", "deadline_s", "id", "payloads", "scheduler", "settled", "sink",
        "streaming", "submission", "to_cancel", "unsettled",
    )  # fmt: skip

    def __init__(self, spec: JobSpec, sink: Sink, deadline_s: float) -> None:
        self.id = str(spec.job_id) or new_job_id()
        self.payloads = [task.payload if isinstance(task, TaskSpec) else task for task in spec.tasks]
        stage = m.Stage(
            str(spec.app), len(self.payloads), spec.common, str(spec.runtime), float(spec.probe_ratio), spec.prefetch,
            _float(spec.expected_duration_s),
        )  # fmt: skip
        self.submission = m.SubmitJob(
            self.id, 0, str(spec.name), [stage], spec.max_attempts, spec.retry_failed, _float(spec.queue_timeout_s),
            spec.report_placed,
        )  # fmt: skip
        self.sink = sink
        self.deadline_s = deadline_s
        """When to give up if no scheduler takes the job."""
        self.scheduler: str | None = None
        self.accepted = False
        self.cancelled = False
        self.streaming = False
        self.chunks: Iterator[m.AddTasks] = iter(())
        self.to_cancel: set[int] = set()
        """Tasks to cancel once the job is accepted and all its tasks have been sent."""
        self.settled = bytearray(len(self.payloads))
        self.unsettled = len(self.payloads)


def chunks(job_id: str, payloads: list[bytes], bytes_max: int) -> Iterator[m.AddTasks]:
    """The tasks in messages that each fit a frame."""
    first = 0
    while first < len(payloads):
        size = 0
        end = first
        while end < len(payloads) and end - first < CHUNK_TASKS:
            size += len(payloads[end]) + ENTRY_OVERHEAD_BYTES
            if size > bytes_max and end > first:
                break
            end += 1
        yield m.AddTasks(job_id, first, payloads[first:end])
        first = end


class ClientCore:
    """See the module's docstring. Times are seconds of any clock that never goes back."""

    def __init__(self, rng: random.Random, outbox: Outbox, *, submit_timeout_s: float) -> None:
        self.jobs: dict[str, ClientJob] = {}
        self.schedulers: dict[str, int] = {}
        """Connected schedulers and the largest payload in bytes that each takes."""
        self.duplicates = 0
        """Outcomes that came again and were ignored."""
        self._rng = rng
        self._outbox = outbox
        self._submit_timeout_s = submit_timeout_s
        self._waiting: dict[str, ClientJob] = {}
        """Jobs for which no scheduler is connected."""
        self._timers: list[tuple[float, str]] = []
        self._last_error = ""

    # ---- events: the user --------------------------------------------------------------------

    def submit(self, spec: JobSpec, sink: Sink, now_s: float) -> ClientJob:
        """Submit a job; `InvalidRequest` if it cannot be, or if a job of this id runs."""
        spec.validate()
        if spec.job_id in self.jobs:
            raise InvalidRequest("job_id", spec.job_id, "an id that no running job of this client has")
        job = ClientJob(spec, sink, now_s + self._submit_timeout_s)
        self.jobs[job.id] = job
        try:
            self._assign(job, now_s)
        except BaseException:
            self.jobs.pop(job.id, None)
            raise
        return job

    def cancel_job(self, job_id: str, now_s: float) -> None:
        """Cancel what of the job has not started."""
        job = self.jobs.get(job_id)
        if job is None or job.cancelled:
            return
        job.cancelled = True
        if job.scheduler is None:
            self._withdraw(job)
        else:
            self._outbox.to_scheduler(job.scheduler, m.CancelJob(job_id))

    def cancel_tasks(self, job_id: str, tasks: list[int], now_s: float) -> None:
        """Cancel tasks; for each the sink is told an outcome or `not_cancelled`."""
        job = self.jobs.get(job_id)
        if job is None:
            return
        job.to_cancel.update(tasks)
        if job.scheduler is None and len(job.to_cancel) == job.unsettled:
            self._withdraw(job)
        else:
            self._send_cancels(job)

    def _send_cancels(self, job: ClientJob) -> None:
        """Send what is to be cancelled, unless the scheduler may yet refuse the job, or has not all its tasks."""
        if not job.to_cancel or not job.accepted or job.streaming:
            return
        assert job.scheduler is not None
        tasks = sorted(job.to_cancel)
        job.to_cancel.clear()
        for first in range(0, len(tasks), CHUNK_TASKS):
            self._outbox.to_scheduler(job.scheduler, m.CancelTasks(job.id, tasks[first : first + CHUNK_TASKS]))

    def _withdraw(self, job: ClientJob) -> None:
        """Cancel a job that no scheduler has."""
        self._settle_rest(job, TaskStatus.CANCELLED, "it was cancelled before a scheduler took it")

    # ---- events: schedulers ------------------------------------------------------------------

    def scheduler_up(self, scheduler: str, frame_bytes_max: int, now_s: float) -> None:
        """A link stands."""
        self.schedulers[scheduler] = frame_bytes_max - m.MESSAGE_OVERHEAD_BYTES
        waiting, self._waiting = self._waiting, {}
        for job in waiting.values():
            self._assign_again(job, now_s)

    def scheduler_down(self, scheduler: str, reason: str, now_s: float) -> None:
        """A link is gone: the outcomes of its jobs' tasks will not come."""
        self.schedulers.pop(scheduler, None)
        self._last_error = f"scheduler {scheduler} was lost: {reason}"
        for job in [job for job in self.jobs.values() if job.scheduler == scheduler]:
            job.scheduler = None
            # It may have been accepted without our knowing, and started: not again if that is not wanted.
            if job.accepted or job.cancelled or job.submission.max_attempts == 1:
                self._settle_rest(job, TaskStatus.LOST, self._last_error)
            else:
                # Each task may have started once there; more than that takes longer than to say "accepted".
                attempts = job.submission.max_attempts - 1
                job.submission = msgspec.structs.replace(job.submission, max_attempts=attempts)
                self._assign_again(job, now_s)

    def receive(self, scheduler: str, message: Any, now_s: float) -> None:
        """A message from a connected scheduler."""
        job = self.jobs.get(message.job)
        if job is None or job.scheduler != scheduler:
            self.duplicates += type(message) is m.Outcome
            return
        kind = type(message)
        if kind is m.Outcome:
            self._settle(job, message)
        elif kind is m.Placed:
            job.sink.placed(message.task)
        elif kind is m.JobAccepted:
            if not job.accepted:
                job.accepted = True
                job.sink.accepted()
                self._send_cancels(job)
        elif kind is m.JobRefused:
            self._try_again(job, message, now_s)
        elif kind is m.NotCancelled:
            job.sink.not_cancelled(message.task)
        elif kind is m.JobEnded:
            self._settle_rest(job, TaskStatus.LOST, "its scheduler ended the job without a word on this task")

    def abandon(self) -> None:
        """The client is done: nobody is told of its jobs any more."""
        self.jobs.clear()
        self._waiting.clear()
        self._timers.clear()

    def streamed(self, job: ClientJob) -> None:
        """All tasks of the job have been sent."""
        job.streaming = False
        if job.id in self.jobs:
            self._send_cancels(job)

    # ---- events: time ------------------------------------------------------------------------

    def next_deadline_s(self) -> float | None:
        """When `tick` is due next."""
        return self._timers[0][0] if self._timers else None

    def tick(self, now_s: float) -> None:
        """Time has come to `now_s`: submit again what was refused, give up what waited too long."""
        while self._timers and self._timers[0][0] <= now_s:
            job = self.jobs.get(heapq.heappop(self._timers)[1])
            if job is not None and job.scheduler is None:
                if job.id in self._waiting and job.deadline_s > now_s:
                    continue
                self._waiting.pop(job.id, None)
                self._assign_again(job, now_s)

    # ---- decisions ---------------------------------------------------------------------------

    def _assign(self, job: ClientJob, now_s: float) -> None:
        """Send the job to a scheduler chosen at random, or wait for one."""
        if not self.schedulers:
            if now_s >= job.deadline_s:
                reason = self._last_error or "none is connected"
                self._refused(job, NoScheduler(f"no scheduler took job {job.id} in time: {reason}"))
                return
            self._waiting[job.id] = job
            heapq.heappush(self._timers, (job.deadline_s, job.id))
            return
        scheduler = self._rng.choice(list(self.schedulers))
        bytes_max = self.schedulers[scheduler]
        self._check_sizes(job, bytes_max)
        job.scheduler = scheduler
        self._outbox.to_scheduler(scheduler, job.submission)
        job.chunks = chunks(job.id, job.payloads, bytes_max)
        first = next(job.chunks, None)
        job.streaming = first is not None and len(first.payloads) < len(job.payloads)
        if first is not None:
            self._outbox.to_scheduler(scheduler, first)
        if job.streaming:
            self._outbox.stream(scheduler, job)

    def _assign_again(self, job: ClientJob, now_s: float) -> None:
        """As `_assign`, for a job that `submit` has taken already: what is wrong with it is told to the sink."""
        try:
            self._assign(job, now_s)
        except InvalidRequest as error:
            self._refused(job, error)

    @staticmethod
    def _check_sizes(job: ClientJob, bytes_max: int) -> None:
        stage = job.submission.stages[0]
        if len(stage.common) > bytes_max:
            raise InvalidRequest("common", f"{len(stage.common)} bytes", f"at most {bytes_max} bytes")
        largest = max(map(len, job.payloads), default=0)
        if largest > bytes_max:
            task = next(task for task, payload in enumerate(job.payloads) if len(payload) == largest)
            raise InvalidRequest(f"tasks[{task}]", f"{largest} bytes", f"a payload of at most {bytes_max} bytes")

    def _try_again(self, job: ClientJob, message: m.JobRefused, now_s: float) -> None:
        if job.cancelled or len(set(job.to_cancel)) >= job.unsettled:
            self._withdraw(job)
            return
        retry_s = message.retry_after_s
        if retry_s is None or now_s + retry_s > job.deadline_s:
            if message.field:
                self._refused(job, InvalidRequest.told(message.field, message.reason))
            else:
                self._refused(job, Refused(message.reason, retry_s))
            return
        job.scheduler = None
        heapq.heappush(self._timers, (now_s + retry_s, job.id))

    def _refused(self, job: ClientJob, error: SparrowError) -> None:
        del self.jobs[job.id]
        job.sink.refused(error)

    def _settle(self, job: ClientJob, outcome: m.Outcome) -> None:
        task = outcome.task
        if task >= len(job.settled) or task < 0 or job.settled[task]:
            self.duplicates += 1
            return
        job.settled[task] = 1
        job.unsettled -= 1
        job.sink.outcome(outcome)

    def _settle_rest(self, job: ClientJob, status: TaskStatus, reason: str) -> None:
        """The job ends; tasks without an outcome get this one."""
        if job.unsettled:
            for task in range(len(job.payloads)):
                if not job.settled[task]:
                    self._settle(job, _unrun(job.id, task, status, reason))
        if self.jobs.pop(job.id, None) is not None:
            self._waiting.pop(job.id, None)
            job.sink.ended()

    def check_invariants(self) -> None:
        """Raise `InvariantViolated` if something that must hold does not."""
        for job in self.jobs.values():
            unsettled = job.settled.count(0)
            if job.unsettled != unsettled:
                raise InvariantViolated(f"job {job.id}: {unsettled} unsettled tasks, counted {job.unsettled}", [])
            if job.scheduler is None and job.id not in self._waiting and all(job.id != key for _, key in self._timers):
                raise InvariantViolated(f"job {job.id} is with no scheduler and waits for nothing", [])


def _float(value: float | None) -> float | None:
    """A plain float of any kind of number: NumPy's, say, which messages cannot hold."""
    return None if value is None else float(value)


def _unrun(job_id: str, task: int, status: TaskStatus, reason: str) -> m.Outcome:
    return m.Outcome(job_id, task, status, b"", reason, 0, "", None, None, None)
