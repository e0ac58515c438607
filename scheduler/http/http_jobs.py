"""Jobs that were submitted over HTTP: a client of the core on behalf of whoever posts and asks.

Each job is a client of its own, so that one says nothing of another. What comes of it is kept as the
lines that readers get, until the job has been over for `http_retention_s`, or until newer results need
the room (`http_results_bytes_max`). Readers hold a position and no lines: slow ones cost nothing.
A user has a share of all that is kept (`sparrow_py.limits.shares`): beyond it its own oldest go, and only where
several users fill the whole, those of the user that has most. No sockets and no clock of its own.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec
import orjson
from msgspec import UNSET, Raw, UnsetType

from scheduler.book.footprint import JOB_BYTES, stage_bytes
from scheduler.book.nodes import Kind
from sparrow_py.daemon.http_api import ApiError
from sparrow_py.errors import LinkError, SparrowError
from sparrow_py.job import BlobRef, JobSpec, TaskSpec, TaskStatus
from sparrow_py.limits.seats import Seats
from sparrow_py.limits.shares import Shares
from sparrow_py.wire import messages as m

if TYPE_CHECKING:
    import asyncio

    from scheduler.audit.audited_core import AuditedCore
    from scheduler.core import SchedulerCore
    from scheduler.options import SchedulerOptions
    from sparrow_py.client.client_core import ClientJob

JOBS_MAX = 10_000
"""Jobs kept, those that have ended included; beyond a user's share its oldest ended go, and where it has none its jobs
are refused."""
READERS_MAX = 1000
"""Results streamed at a time."""
SUBMISSIONS_MAX = 16
"""Submissions in hand at a time: each body may be `http_body_bytes_max`."""
BATCH_BYTES = 256 << 10
"""Written to a reader at a time, a line more at most."""
LINE_OVERHEAD_BYTES = 64
"""What a line takes besides its bytes, about."""
TASK_ID_OVERHEAD_BYTES = 150
"""What a task's id takes besides its characters, about."""
CHECK_S = 1.0
"""How often it is checked that jobs have not been taken over: the core says nothing of that."""
BUSY_RETRY_S = 1.0
"""When to try again if this scheduler has too much to do or to hold."""


class Blob(msgspec.Struct):
    """A large result, which is fetched from a node monitor."""

    hash: str
    size: int
    urls: list[str]


class ResultLine(msgspec.Struct, kw_only=True):
    """What became of a task. Its result is one of `result`, if it is JSON, `result_base64`, `blob` and `dropped`."""

    task: int
    """Its number in the job, from 0, through all stages."""
    stage: str
    id: str | UnsetType = UNSET
    status: TaskStatus
    result: Raw | UnsetType = UNSET
    result_base64: bytes | UnsetType = UNSET
    blob: Blob | UnsetType = UNSET
    dropped: str | UnsetType = UNSET
    """Why the result and the output are not here."""
    error: str
    attempts: int
    node: str
    started_at_s: float | None
    service_s: float | None
    stdout: str
    stderr: str


class StageSummary(msgspec.Struct):
    """A stage and how far it is."""

    name: str
    app: str
    after: list[str]
    tasks: int
    unplaced: int
    settled: int


class HttpJob:
    """A job, and the lines of its results so far."""

    __slots__ = (
        "bytes", "client", "counts", "ended_at_s", "gone", "id", "ids", "lines", "name", "refusal", "retried",
        "settled", "stages", "starts", "submitted_at_s", "task_count", "user", "watchers",
    )  # fmt: skip

    def __init__(self, client: str, user: str, spec: JobSpec, job: ClientJob, now_s: float) -> None:
        self.client = client
        self.id = job.id
        self.user = user
        self.name = spec.name
        self.submitted_at_s = now_s
        self.ended_at_s: float | None = None
        self.gone = ""
        """Why its results are not kept any more."""
        self.refusal: m.JobRefused | None = None
        self.retried: dict[int, int] = {}
        """Starts in vain of tasks that were to start again."""
        self.counts = dict.fromkeys(TaskStatus, 0)
        self.lines: list[bytes] = []
        self.watchers: set[Callable[[], None]] = set()
        """Called when a line is added and when the job ends or goes."""
        self.stages: list[m.Stage] = [msgspec.structs.replace(s, common=b"") for s in job.submission.stages]
        if not spec.stages:
            self.stages[0] = msgspec.structs.replace(self.stages[0], name="")
        self.starts: list[int] = []
        """The number of each stage's first task."""
        self.ids: dict[int, str] = {}
        first = 0
        for stage in spec.as_stages():
            self.starts.append(first)
            named = enumerate(stage.tasks, first)
            self.ids.update((n, task.id) for n, task in named if isinstance(task, TaskSpec) and task.id)
            first += len(stage.tasks)
        self.task_count = first
        self.settled = bytearray(first)
        self.bytes = self._bytes_without_lines()

    def _bytes_without_lines(self) -> int:
        ids = sum(len(id_) + TASK_ID_OVERHEAD_BYTES for id_ in self.ids.values())
        return JOB_BYTES + self.task_count + ids + sum(map(stage_bytes, self.stages))

    def stage_of(self, task: int) -> m.Stage:
        """The stage of a task, by the job's count."""
        # Of stages that begin with the same number only the last has tasks.
        return self.stages[bisect.bisect_right(self.starts, task) - 1]

    def lines_from(self, position: int) -> tuple[bytes, int]:
        """About `BATCH_BYTES` of lines from a reader's position, and its next position."""
        size, end = 0, position
        while end < len(self.lines) and size < BATCH_BYTES:
            size += len(self.lines[end])
            end += 1
        return b"".join(self.lines[position:end]), end

    def stage_summaries(self) -> list[StageSummary]:
        """Its stages after its end."""
        return [
            StageSummary(stage.name, stage.app, list(stage.after), stage.task_count, 0, stage.task_count)
            for stage in self.stages
        ]

    def tell(self) -> None:
        """Something has changed: wake who waits for it."""
        for watcher in list(self.watchers):
            watcher()


class HttpJobs:
    """All jobs that came over HTTP, by id. The daemon passes on what the core tells their clients (`told`), and
    calls `tick` at `next_deadline_s`."""

    def __init__(
        self,
        core: SchedulerCore,
        options: SchedulerOptions,
        clock: Callable[[], float],
        numbers: Iterator[int],
        events: SchedulerCore | AuditedCore | None = None,
        readers_max: int = READERS_MAX,
    ) -> None:
        self.readers = Seats("READERS_MAX", min(READERS_MAX, readers_max), "readers of results are connected")
        self.submissions = Seats("SUBMISSIONS_MAX", SUBMISSIONS_MAX, "jobs are submitted at a time")
        self.bytes = Shares("http_results_bytes_max", options.http_results_bytes_max, "bytes of results are kept")
        self._unread: dict[str, dict[asyncio.Transport, None]] = {}
        """By holder the readers who are sent something and do not read it, the longest first."""
        self._kept = Shares("JOBS_MAX", JOBS_MAX, "jobs that came over HTTP are kept")
        self._core = core
        self._events = events or core
        """What messages are fed to: what writes them down first, if anything does."""
        self._options = options
        self._scheme = "http" if options.tls is None else "https"
        self._clock = clock
        self._numbers = numbers
        """Shared with other clients, so that no two have one name."""
        self._jobs: dict[str, HttpJob] = {}
        self._by_client: dict[str, HttpJob] = {}
        """Jobs that run."""
        self._ended: dict[str, HttpJob] = {}
        """Jobs that have ended, in that order."""
        self._ended_of: dict[str, dict[str, HttpJob]] = {}
        """The same by user."""
        self._blobs_lost: list[tuple[HttpJob, str]] = []
        self._check_at_s = 0.0
        self._fenced = core.counters.jobs_fenced

    def get(self, job_id: str) -> HttpJob | None:
        """The job, whether it runs or has ended and is kept."""
        return self._jobs.get(job_id)

    def ended(self) -> list[HttpJob]:
        """Those that have ended and are kept, oldest first."""
        return list(self._ended.values())

    # ---- submission --------------------------------------------------------------------------

    def find_same(self, user: str, job_id: str) -> HttpJob | None:
        """The job that was posted under this id before; `ApiError` 409 if the id is somebody else's."""
        job = self._jobs.get(job_id)
        if job is None and job_id not in self._core.jobs:
            return None
        if job is None or job.user != user:
            raise ApiError(409, f"job_id: {job_id!r} is the id of another client's job", field="job_id")
        return job

    def begin(self, user: str, spec: JobSpec, job: ClientJob) -> HttpJob:
        """Submit a job, whose tasks follow by `add`. `ApiError` says why the scheduler does not take it."""
        now_s = self._clock()
        http_job = HttpJob(f"http#{next(self._numbers)}", user, spec, job, now_s)
        self._make_room_for(http_job)
        if not self._by_client:
            self._check_at_s = now_s + CHECK_S
        self._jobs[http_job.id] = self._by_client[http_job.client] = http_job
        self._kept.take(user)
        self.bytes.take(user, http_job.bytes)
        self._events.receive_from_client(http_job.client, user, job.submission, now_s)
        if http_job.refusal is not None:
            del self._by_client[http_job.client]
            self._forget(http_job)
            raise self._refused(http_job, http_job.refusal)
        return http_job

    def add(self, job: HttpJob, message: Any) -> None:
        """Some of the job's tasks. `ApiError` if the scheduler does not take them; then the job is cancelled."""
        try:
            self._events.receive_from_client(job.client, job.user, message, self._clock())
        except (LinkError, SparrowError) as error:
            self._events.cancel_job(job.id, self._clock(), running=True)
            raise ApiError(400, str(error)) from None

    def _make_room_for(self, job: HttpJob) -> None:
        for shares, amount in ((self._kept, 1), (self.bytes, job.bytes)):
            if why_not := self._why_no_room(shares, job.user, amount):
                raise ApiError(503, why_not, retry_after_s=BUSY_RETRY_S)

    def _refused(self, job: HttpJob, refusal: m.JobRefused) -> ApiError:
        if refusal.retry_after_s is None:
            nodes = self._core.nodes
            ours = not refusal.field and any(nodes.why_withdrawn(Kind.of(stage)) for stage in job.stages)
            return ApiError(503 if ours else 400, refusal.reason, field=refusal.field)
        status = 503 if self._core.draining else 429
        return ApiError(status, refusal.reason, field=refusal.field, retry_after_s=refusal.retry_after_s)

    # ---- what the core tells -----------------------------------------------------------------

    def told(self, client: str, message: m.Message) -> None:
        """A message of the core to a client, which may be one of these. The core is in the middle of an event."""
        job = self._by_client.get(client)
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

    def _outcome(self, job: HttpJob, outcome: m.Outcome) -> None:
        if job.settled[outcome.task]:
            return
        job.settled[outcome.task] = 1
        job.counts[outcome.status] += 1
        line = encode_line(job, outcome, scheme=self._scheme)
        if why_not := self._why_no_room(self.bytes, job.user, len(line) + LINE_OVERHEAD_BYTES):
            line = encode_line(job, outcome, scheme=self._scheme, dropped=why_not)
        size = len(line) + LINE_OVERHEAD_BYTES
        job.lines.append(line)
        job.bytes += size
        self.bytes.take(job.user, size)
        job.tell()

    def _end(self, job: HttpJob) -> None:
        job.ended_at_s = self._clock()
        del self._by_client[job.client]
        self._ended[job.id] = self._ended_of.setdefault(job.user, {})[job.id] = job
        job.tell()

    # ---- limits ------------------------------------------------------------------------------

    def _why_no_room(self, shares: Shares, user: str, amount: int) -> str:
        """Why the user cannot have so much more of what is kept; "" if it can, as soon as this returns: its oldest
        ended jobs go for it, and where all is taken those of the user that has most, which is then beyond a share."""
        while why_not := shares.why_not(user, amount):
            loser = user
            if shares.total + amount > shares.limit and shares.of(user) + amount <= shares.share:
                loser = shares.greatest()
            if not self._ended_of.get(loser):
                return why_not
            self._drop(next(iter(self._ended_of[loser].values())), why_not)
        return ""

    def _drop(self, job: HttpJob, reason: str) -> None:
        """An ended job is not kept any more."""
        del self._ended[job.id]
        ended = self._ended_of[job.user]
        del ended[job.id]
        if not ended:
            del self._ended_of[job.user]
        self._forget(job)
        self._clear(job, reason)

    def _forget(self, job: HttpJob) -> None:
        del self._jobs[job.id]
        self._kept.give_back(job.user)
        self.bytes.give_back(job.user, job.bytes)

    @contextmanager
    def unread(self, holder: str, transport: asyncio.Transport) -> Iterator[None]:
        """What is sent to a reader of the holder's is not read until the block ends."""
        unread = self._unread.setdefault(holder, {})
        unread[transport] = None
        try:
            yield
        finally:
            del unread[transport]
            if not unread:
                self._unread.pop(holder, None)

    def cut_unread(self, holder: str) -> None:
        """One more wants to read: if the holder has no seat, who has not read for longest gives up one."""
        unread = self._unread.get(holder)
        if unread and self.readers.why_not(holder):
            next(iter(unread)).abort()

    def wake_readers(self) -> None:
        """Have all readers look whether they may go on."""
        for job in self._jobs.values():
            job.tell()

    def _clear(self, job: HttpJob, reason: str) -> None:
        job.lines, job.gone = [], reason
        job.tell()

    def close(self) -> None:
        """The scheduler ends: readers get no more."""
        jobs, self._jobs, self._by_client, self._ended, self._ended_of = self._jobs, {}, {}, {}, {}
        for job in jobs.values():
            self._clear(job, "the scheduler is shutting down")

    # ---- time --------------------------------------------------------------------------------

    def next_deadline_s(self) -> float | None:
        """When `tick` is due next."""
        if self._blobs_lost:
            return 0.0
        due = [self._check_at_s] if self._by_client else []
        if self._ended:
            due.append(self._expires_at_s(next(iter(self._ended.values()))))
        return min(due, default=None)

    def tick(self, now_s: float) -> None:
        """Time has come to `now_s`: do what was due."""
        while self._ended and self._expires_at_s(next(iter(self._ended.values()))) <= now_s:
            self._drop(
                next(iter(self._ended.values())), f"http_retention_s = {self._options.http_retention_s:g} s are over"
            )
        lost, self._blobs_lost = self._blobs_lost, []
        for job, hash_ in lost:  # Whoever posted the job has gone: there is nobody to upload it again.
            self._events.receive_from_client(job.client, job.user, m.BlobAt(job.id, BlobRef(hash_, 0, ())), now_s)
        if self._by_client and self._check_at_s <= now_s:
            self._check_at_s = now_s + CHECK_S
            self._end_taken_over()

    def _expires_at_s(self, job: HttpJob) -> float:
        assert job.ended_at_s is not None
        return job.ended_at_s + self._options.http_retention_s

    def _end_taken_over(self) -> None:
        """End jobs that the core gave up because another client or scheduler has claimed them."""
        if self._fenced == self._core.counters.jobs_fenced:
            return
        self._fenced = self._core.counters.jobs_fenced
        for job in list(self._by_client.values()):
            here = self._core.jobs.get(job.id)
            if here is not None and here.client == job.client:
                continue
            reason = "the job was taken over by another client or scheduler"
            for task in range(job.task_count):
                starts = job.retried.get(task, 0) + 1  # The last of them may have been.
                self._outcome(job, m.Outcome(job.id, task, TaskStatus.LOST, b"", reason, starts, "", None, None, None))
            self._end(job)


def encode_line(job: HttpJob, outcome: m.Outcome, *, scheme: str = "http", dropped: str = "") -> bytes:
    """The outcome as a line of JSON; without result and output if they are `dropped`, which says why. `scheme`: how
    node monitors are asked for large results."""
    line = ResultLine(
        task=outcome.task,
        stage=job.stage_of(outcome.task).name,
        id=job.ids.get(outcome.task, UNSET),
        status=outcome.status,
        error=outcome.error,
        attempts=outcome.attempts,
        node=outcome.node,
        started_at_s=outcome.started_at_s,
        service_s=outcome.service_s,
        stdout="" if dropped else outcome.stdout,
        stderr="" if dropped else outcome.stderr,
    )
    result = outcome.result
    if dropped:
        line.dropped = dropped
    elif isinstance(result, BlobRef):
        urls = [f"{scheme}://{address}/v1/blobs/{result.hash}" for address in result.at]
        line.blob = Blob(result.hash, result.size, urls)
    elif (value := json_value(result)) is not None:
        line.result = Raw(value)
    else:
        line.result_base64 = result
    return msgspec.json.encode(line) + b"\n"


def json_value(data: bytes) -> bytes | None:
    """The JSON value that the bytes are, on one line, or None. No bytes at all are null."""
    if not data:
        return b"null"
    try:
        orjson.loads(data)  # Stricter than msgspec: it looks into text, and at numbers.
        return msgspec.json.format(data, indent=-1)
    except (ValueError, msgspec.MsgspecError, RecursionError):
        return None
