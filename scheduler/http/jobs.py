"""Jobs that came over HTTP. To the core each of them is a client of its own, so that no job tells of another.

What the core tells such a client becomes the lines that readers get; `kept_jobs` says how long they are kept. This
module has no sockets and no clock of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from scheduler.book.kinds import Kind
from scheduler.core import SchedulerCore
from scheduler.http.job import BareLine, HttpJob
from scheduler.http.kept_jobs import KeptJobs
from scheduler.http.result_lines import encode_line
from scheduler.http.submissions import Submission
from scheduler.options import SchedulerOptions
from sparrow_py.errors import LinkError, SparrowError
from sparrow_py.http.http_api import ApiError
from sparrow_py.job import BlobRef, TaskStatus
from sparrow_py.limits.seats import Seats
from sparrow_py.wire import messages as m

SUBMISSIONS_MAX = 16
"""Submissions at a time: each body may have `http_body_bytes_max`."""
CHECK_S = 1.0
"""How often to look whether jobs have been taken over: the core does not tell."""
BUSY_RETRY_S = 1.0
"""When to try again if this scheduler has too much to do or to hold."""


class Events(Protocol):
    """Takes the messages of clients: the core, or the audit log in front of the core."""

    def receive_from_client(self, client: str, user: str, message: Any, now_s: float) -> None:
        """A message from a client."""

    def cancel_job(self, job_id: str, now_s: float, *, running: bool = False) -> bool:
        """Cancel a job; False if there is no such job."""


class HttpJobs:
    """See the module's docstring. The daemon passes on what the core tells clients (`told`), and calls `tick` at
    `next_deadline_s`."""

    def __init__(
        self,
        core: SchedulerCore,
        events: Events,
        options: SchedulerOptions,
        clock: Callable[[], float],
        numbers: Iterator[int],
    ) -> None:
        """`events` takes what these clients say. `numbers`: shared with other clients, so that no two have one name."""
        self.submissions = Seats("SUBMISSIONS_MAX", SUBMISSIONS_MAX, "jobs are submitted at a time")
        self.kept = KeptJobs(options.http_results_bytes_max, options.http_retention_s)
        self._core = core
        self._events = events
        self._scheme = "http" if options.tls is None else "https"
        self._priority = options.priority
        self._clock = clock
        self._numbers = numbers
        self._running: dict[str, HttpJob] = {}
        """By the name of the client."""
        self._blobs_lost: list[tuple[HttpJob, str]] = []
        self._check_at_s = 0.0
        self._fenced = core.counters.jobs_fenced

    # ---- submission --------------------------------------------------------------------------

    def find_same(self, user: str, job_id: str) -> HttpJob | None:
        """The job that was posted under this id before; `ApiError` 409 if the id is somebody else's."""
        job = self.kept.get(job_id)
        if job is None and job_id not in self._core.jobs:
            return None
        if job is None or job.user != user:
            raise ApiError(409, f"job_id: {job_id!r} is the id of another client's job", field="job_id")
        return job

    def begin(self, user: str, submission: Submission) -> HttpJob:
        """Submit a job, whose tasks follow by `add`. `ApiError` says why the scheduler does not take it."""
        now_s = self._clock()
        job = HttpJob(f"http#{next(self._numbers)}", user, submission, now_s, self._priority(user))
        if why_not := self.kept.why_never(job):
            raise ApiError(413, why_not, field="tasks")
        if why_not := self.kept.why_no_room(job):
            raise ApiError(503, why_not, retry_after_s=BUSY_RETRY_S)
        if not self._running:
            self._check_at_s = now_s + CHECK_S
        self._running[job.client] = job
        self.kept.add(job)
        self._events.receive_from_client(job.client, user, submission.job.submission, now_s)
        if job.refusal is not None:
            del self._running[job.client]
            self.kept.remove(job)
            raise self._refused(job, job.refusal)
        self.kept.make_room(user)
        return job

    def add(self, job: HttpJob, message: Any) -> None:
        """Submit some of the job's tasks. If the scheduler does not take them, `ApiError`, and the job is cancelled."""
        try:
            self._events.receive_from_client(job.client, job.user, message, self._clock())
        except (LinkError, SparrowError) as error:
            self._events.cancel_job(job.id, self._clock(), running=True)
            raise ApiError(400, str(error)) from None

    def _refused(self, job: HttpJob, refusal: m.JobRefused) -> ApiError:
        if refusal.retry_after_s is not None:
            status = 503 if self._core.draining or not self._core.leads else 429
        elif not refusal.field and any(
            self._core.nodes.why_withdrawn(Kind.of(stage, job.avoid_by)) for stage in job.stages
        ):
            status = 503  # Nodes are at fault: the executors of the job's app do not start there.
        else:
            status = 400
        return ApiError(status, refusal.reason, field=refusal.field, retry_after_s=refusal.retry_after_s)

    # ---- what the core tells -----------------------------------------------------------------

    def told(self, client: str, message: m.Message) -> None:
        """The core tells a client this; the client may be one of these. The core is in the middle of an event."""
        job = self._running.get(client)
        if job is None:
            return
        if isinstance(message, m.Outcome):
            self._outcome(job, message)
        elif isinstance(message, m.JobEnded):
            self._end(job)
        elif isinstance(message, m.JobRefused):
            job.refusal = message
        elif isinstance(message, m.Retried):
            job.retried[message.task] = message.starts
        elif isinstance(message, m.BlobLost):
            self._blobs_lost.append((job, message.hash))
        elif isinstance(message, m.HandedOver):
            self._lose(job, "its scheduler leads its plane no more, and nobody takes jobs over HTTP to another")

    def _outcome(self, job: HttpJob, outcome: m.Outcome) -> None:
        if job.settled[outcome.task]:
            return
        job.settled[outcome.task] = 1
        job.counts[outcome.status] += 1
        self.kept.add_line(job, self._line_for_which_there_is_room(job, outcome))

    def _line_for_which_there_is_room(self, job: HttpJob, outcome: m.Outcome) -> bytes | BareLine:
        """The whole line, or one without the result, or the little that there is always room for."""
        whole = encode_line(job, outcome, scheme=self._scheme)
        if not (why_not := self.kept.why_no_room_for_line(job, whole)):
            return whole
        shortened = encode_line(job, outcome, scheme=self._scheme, dropped=why_not)
        if not self.kept.why_no_room_for_line(job, shortened):
            return shortened
        return job.bare_line(outcome)

    def _end(self, job: HttpJob) -> None:
        del self._running[job.client]
        self.kept.end(job, self._clock())

    def close(self) -> None:
        """The scheduler ends: readers get no more lines."""
        self._running = {}
        self.kept.close("the scheduler is shutting down")

    # ---- time --------------------------------------------------------------------------------

    def next_deadline_s(self) -> float | None:
        """When `tick` is due next."""
        if self._blobs_lost:
            return 0.0
        check_at_s = self._check_at_s if self._running else None
        return min((due_s for due_s in (check_at_s, self.kept.next_expiry_s()) if due_s is not None), default=None)

    def tick(self, now_s: float) -> None:
        """Time has come to `now_s`: do what was due."""
        self.kept.expire(now_s)
        lost, self._blobs_lost = self._blobs_lost, []
        for job, hash_ in lost:  # Whoever posted the job has gone: nobody can upload the data again.
            self._events.receive_from_client(job.client, job.user, m.BlobAt(job.id, BlobRef(hash_, 0, ())), now_s)
        if self._running and self._check_at_s <= now_s:
            self._check_at_s = now_s + CHECK_S
            self._end_taken_over()

    def _end_taken_over(self) -> None:
        """End jobs that the core gave up because another client or scheduler has claimed them."""
        if self._fenced == self._core.counters.jobs_fenced:
            return
        self._fenced = self._core.counters.jobs_fenced
        for job in list(self._running.values()):
            here = self._core.jobs.get(job.id)
            if here is None or here.client != job.client:
                self._lose(job, "the job was taken over by another client or scheduler")

    def _lose(self, job: HttpJob, reason: str) -> None:
        """End a job of which nobody here will hear more."""
        for task in range(job.task_count):
            starts = job.retried.get(task, 0) + 1  # It may have been started once more.
            self._outcome(job, m.Outcome(job.id, task, TaskStatus.LOST, b"", reason, starts, "", None, None, None))
        self._end(job)
