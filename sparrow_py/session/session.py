"""The client's driver: links, timers and large data around `core.ClientCore`, on an event loop.

Inputs too large for a message are uploaded to a node monitor before their job is submitted, and
again if that one is lost; large results are fetched before their outcome is settled (`large_inputs`, `job_sink`).
"""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import math
import random
import socket
import sys
import weakref
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import aiohttp
import msgspec

from sparrow_py.access.credentials import Access
from sparrow_py.access.principals import check_secret
from sparrow_py.cluster_nodes import Awaited, Listing, NodeStatus, ask_all, merged
from sparrow_py.errors import (
    ClusterError,
    InvalidOption,
    InvalidRequest,
    LinkError,
    NoScheduler,
    Refused,
    ResultLost,
    SparrowError,
)
from sparrow_py.job import BlobRef, Ended, JobSpec, TaskResult, check_name, check_number
from sparrow_py.processes.process_bound import let_go
from sparrow_py.session.awaited_futures import (
    AwaitedFutures,
    awaited_by,
    check_own,
    content_of,
    has_futures,
    not_known,
)
from sparrow_py.session.client_job import ClientJob
from sparrow_py.session.core import ClientCore
from sparrow_py.session.job_sink import JobSink
from sparrow_py.session.large_inputs import Preparing, has_large, with_references
from sparrow_py.session.letting_go import Told
from sparrow_py.session.receipts import Receipts
from sparrow_py.session.sink import Sink
from sparrow_py.session.speculated_job import SpeculatedJob
from sparrow_py.session.storing import Storing
from sparrow_py.session.tasks_in_flight import TasksInFlight
from sparrow_py.session.uploading import Uploading
from sparrow_py.speculation import Speculation
from sparrow_py.stored_values import CallSpec
from sparrow_py.timing.clock import Clock, DeadlineTimer
from sparrow_py.timing.heartbeats import HEARTBEAT_MIN_S
from sparrow_py.timing.standstill import PATIENCE, Standstill
from sparrow_py.wire import blobs
from sparrow_py.wire import messages as m
from sparrow_py.wire.addresses import check_source
from sparrow_py.wire.connector import Connector
from sparrow_py.wire.dialling import REDIAL_MAX_S, Dialling
from sparrow_py.wire.local_address import host_towards
from sparrow_py.wire.local_link import LocalLink
from sparrow_py.wire.outgoing import Outgoing

if TYPE_CHECKING:
    from opentelemetry.trace import SpanContext

    from sparrow_py.session.job_spans import JobSpans

CONNECT_TIMEOUT_S = 10.0
SUBMIT_TIMEOUT_S = 60.0
HEARTBEAT_S = 10.0
SOURCES_SHOWN = 3
"""Addresses of schedulers that reprs name."""
BACKLOG_BYTES_MAX = sys.maxsize
"""What waits for a scheduler that does not read are the client's own jobs, which it keeps in any case: after a
reconnect they go out again together, however many bytes they are."""
NO_UPLOADS: Mapping[str, bytes] = {}
DOWNLOADS_MAX = 8
"""Large results fetched at a time; the others wait, at their nodes."""


def check_sources(schedulers: str | Sequence[str]) -> list[str]:
    """The schedulers as a list of sources; `InvalidRequest` if one is none."""
    given = [schedulers] if isinstance(schedulers, str) else list(schedulers)
    sources = [part.strip() for source in given for part in source.split(",") if part.strip()]
    if not sources:
        raise InvalidOption("schedulers", schedulers, "at least one scheduler address")
    return [check_source(source, "schedulers") for source in sources]


class SchedulerInProcess(Protocol):
    """A scheduler that runs on the session's own loop: `cluster.SchedulerHere`."""

    async def start(self) -> m.Welcome:
        """Begin to work; what a scheduler that is dialled would have answered."""

    def attach(self, user: str, deliver: Callable[[list[Any]], None]) -> LocalLink:
        """The link that the session sends on; what is for the session goes to `deliver`."""

    async def stop(self) -> None:
        """End at once."""


class LinkToScheduler(Protocol):
    """A link that a session sends on: `links.Link`, or what stands for one."""

    @property
    def peer(self) -> str:
        """Where it leads."""

    def send(self, message: m.Message) -> None:
        """Send a message; `LinkError` if it is larger than a frame may be."""

    async def drained(self) -> None:
        """Wait until little is left to send."""


class Links(Protocol):
    """What keeps a session's links: `Dialling`, or what stands for it."""

    last_error: str

    @property
    def links(self) -> Mapping[str, LinkToScheduler]:
        """By the names that schedulers give themselves."""

    def start(self) -> None:
        """Begin to dial."""

    def renew(self) -> None:
        """The token is another."""

    def cut_off_s(self) -> float:
        """For how long no link has stood; 0 while one does, or if none ever did."""

    def is_denied(self) -> bool:
        """Whether no link stands as this client is refused. Of any thread."""

    def why_cut_off(self) -> str:
        """Why no link stands. Of any thread."""

    async def stop(self, reason: str) -> None:
        """Close all links and dial no more."""


class EmbeddedCluster(Protocol):
    """The cluster of the schedulers, if this process has started them: `cluster.LocalCluster`, or one of
    `remote_cluster`."""

    @property
    def in_flight(self) -> TasksInFlight:
        """Whom to tell of jobs."""

    def tell_if_broken(self, listener: Callable[[ClusterError], None]) -> Callable[[], None]:
        """Call `listener`, from any thread, once none of its schedulers, or of its node monitors, will come back;
        returns what takes that back. `ClusterError` if it is so already."""


class Session:
    """A client's links to its schedulers, and its jobs. All methods run on the loop that started it."""

    def __init__(
        self,
        schedulers: str | Sequence[str],
        *,
        here: SchedulerInProcess | None = None,
        cluster: EmbeddedCluster | None = None,
        user: str | None = None,
        access: Access | None = None,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        submit_timeout_s: float = SUBMIT_TIMEOUT_S,
        heartbeat_s: float = HEARTBEAT_S,
        tracing: JobSpans | None = None,
    ) -> None:
        check_number("connect_timeout_s", connect_timeout_s, 0, math.inf)
        check_number("submit_timeout_s", submit_timeout_s, 0, math.inf)
        check_number("heartbeat_s", heartbeat_s, HEARTBEAT_MIN_S, math.inf)
        self._here = here
        self._cluster = cluster
        self.sources = [] if here is not None else self._sources_of(schedulers)
        self._in_flight = TasksInFlight() if cluster is None else cluster.in_flight
        self.user = getpass.getuser() if user is None else user
        check_name("user", self.user, empty=False)
        self._user_stated = user is not None
        self._access = Access.of_client() if access is None else access
        self.tracing = tracing
        """Makes spans of its jobs; None if nobody wants any."""
        self._connect_timeout_s = connect_timeout_s
        self._heartbeat_s = heartbeat_s
        self._submit_timeout_s = submit_timeout_s
        self.core = ClientCore(random.Random(), self, submit_timeout_s=submit_timeout_s)
        self._clock = Clock()
        self.outgoing = Outgoing()
        """What is sent during an event leaves when the event ends."""
        self._standstill = Standstill(PATIENCE * heartbeat_s, self._stood_still)
        self._patient_until_s = 0.0
        """No timer fires before."""
        self._timer = self.timer(self.core.next_deadline_s, self._tick)
        self._tasks: set[asyncio.Task[None]] = set()
        self._preparing: dict[str, Preparing] = {}
        """Jobs whose large inputs are being uploaded."""
        self._speculated: dict[str, SpeculatedJob] = {}
        """Jobs whose slow tasks are submitted again, until all their outcomes have been told."""
        self._downloads = asyncio.Semaphore(DOWNLOADS_MAX)
        self._connected: asyncio.Event | None = None
        """Set once a link stands, or none will."""
        self._is_denied = False
        """Whether each scheduler has refused the token or the certificate."""
        self._is_stopped = False
        self._session: aiohttp.ClientSession | None = None
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        """The sockets of its links and its requests."""
        self._uploading: Uploading | None = None
        self.stored = Storing(self._upload, self._upload_to, self._addresses_of_nodes)
        self._dialling: Links | None = None
        self._leave_cluster: Callable[[], None] = lambda: None
        self._links: Mapping[str, LinkToScheduler] = {}
        self._receipts = Receipts(self.to_scheduler)

    def _sources_of(self, schedulers: str | Sequence[str]) -> list[str]:
        """What is dialled, of what was given."""
        return check_sources(schedulers)

    def __str__(self) -> str:
        """Where its schedulers are, and whose it is."""
        named = self.sources[:SOURCES_SHOWN]
        more = "" if len(self.sources) == len(named) else f" and {len(self.sources) - len(named)} more"
        return f"{', '.join(named) or 'a scheduler here'}{more}, user {self.user!r}"

    async def start(self) -> None:
        """Connect; `NoScheduler` if no scheduler answers within `connect_timeout_s`, or once each has denied this
        client; `ClusterError` if the embedded cluster that was given is broken."""
        if self._cluster is not None:
            loop = asyncio.get_running_loop()
            self._leave_cluster = self._cluster.tell_if_broken(lambda error: _call_soon(loop, self.fail, error))
        self._connected, self._is_denied = asyncio.Event(), False
        self._standstill.start()
        self._open_http()
        if self._here is not None:
            here, self._here = self._here, None  # If this fails, `stop` must not stop it: another client may have it.
            try:
                await self._start_here(here)
            except BaseException:
                await self.stop()
                raise
            return
        hello = m.Hello(
            m.PROTOCOL_VERSION_OLDEST,
            "client",
            "",
            self.user,
            "",
            newest=m.PROTOCOL_VERSION,
            user_stated=self._user_stated,
        )
        self._dialling = self._make_dialling(hello)
        self._links = self._dialling.links
        self.core.dialling()
        self._dialling.start()
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                await self._connected.wait()
            if self._is_denied and not self._links:
                raise NoScheduler(f"no scheduler takes this client: {self.why_cut_off()}")
        except TimeoutError:
            last_error = self._dialling.last_error
            await self.stop()
            raise NoScheduler(f"no scheduler answered within {self._connect_timeout_s:g} s: {last_error}") from None
        except BaseException:
            await self.stop()
            raise

    def wait_no_more(self) -> None:
        """Have `start` return, whether a link stands or not."""
        if self._connected is not None:
            self._connected.set()

    def _open_http(self) -> None:
        """Make what requests are made with."""
        self._session = aiohttp.ClientSession(connector=Connector(self._sockets.add))
        self._uploading = Uploading(self._session, self._addresses, lambda: self._access)

    def _make_dialling(self, hello: m.Hello) -> Links:
        """What keeps the links to schedulers."""
        assert self._session is not None
        return Dialling(
            self.sources,
            hello,
            m.FrameDecoder(m.ToClient),
            self,
            self._session,
            heartbeat_s=self._heartbeat_s,
            backlog_bytes_max=BACKLOG_BYTES_MAX,
            access=lambda: self._access,
            outgoing=self.outgoing,
            unreachable=self._scheduler_unreachable,
            all_dialled=self._all_dialled,
            denied=self._denied,
        )

    def forked(self) -> None:
        """In a child of the process: let go of the parent's connections and jobs."""
        self.core.abandon()
        let_go([made.fileno() for made in self._sockets])

    def _addresses(self) -> list[str]:
        """The addresses of the schedulers that can be reached now."""
        return [link.peer for link in self._links.values()]

    def local_host(self) -> str:
        """The address of this machine by which it reaches a scheduler."""
        return host_towards(next(iter(self._addresses()), "") if self._dialling is not None else "")

    async def _start_here(self, here: SchedulerInProcess) -> None:
        """Start the scheduler in this loop, and link to it without a socket."""
        welcome = await here.start()
        self._here, name = here, welcome.name
        self._links = {name: here.attach(self.user, lambda batch: self.scheduler_said(name, batch))}
        self._welcomed_by(welcome)

    async def stop(self) -> None:
        """Close all links. Schedulers cancel what has not started."""
        self._is_stopped = True
        self._leave_cluster()
        self._in_flight.ended(self)
        self._timer.cancel()
        self._standstill.stop()
        self._receipts.stop()
        if self.tracing is not None:
            self.tracing.close()
        for speculated in self._speculated.values():
            speculated.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._preparing.clear()
        if self._dialling is not None:
            await self._dialling.stop("the client is done")
        if self._here is not None:
            await self._here.stop()
        if self._session is not None:
            await self._session.close()

    def renew_token(self, token: str) -> None:
        """Show this token from now on, on links that stand, too."""
        self._access = replace(self._access, token=check_secret("token", token).shown)
        if self._dialling is not None:
            self._dialling.renew()

    # ---- the user ----------------------------------------------------------------------------

    def submit(
        self,
        spec: JobSpec,
        sink: JobSink,
        speculate: Speculation | None = None,
        trace_parent: SpanContext | None = None,
    ) -> None:
        """Submit a valid job, whose `job_id` must be set; its sink is told what becomes of it.

        `InvalidRequest` if another job has that id, or a message cannot hold what it has. Large inputs are uploaded
        first; what goes wrong with that, or after it, is told to the sink. With `speculate`, which must suit the job
        (`check_speculation`), slow tasks are submitted again. trace_parent: the span that a traced job belongs to, if
        that is not the one that is current here.
        """
        if self.tracing is None:
            self._submit_or_prepare(spec, sink, speculate)
            return
        parent = self.tracing.parent() if trace_parent is None else trace_parent
        twice = speculate is not None
        traced, traced_sink = self.tracing.begin(spec, sink, parent, self._clock(), twice=twice)
        try:
            self._submit_or_prepare(traced, traced_sink, speculate)
        except BaseException as error:
            self.tracing.end(spec.job_id, str(error))
            raise

    def _submit_or_prepare(self, spec: JobSpec, sink: JobSink, speculate: Speculation | None) -> None:
        others = bool(self.core.jobs or self._preparing)
        self._in_flight.submitted(self, several=others or _task_count(spec) > 1)
        sink.begin(spec, self.fetch_result)
        if not has_large(spec) and not (self._preparing and self._prepared_before(spec)):
            self._submit(spec, sink, speculate)
            return
        preparing = self._preparing[spec.job_id] = Preparing(spec, sink, speculate)
        preparing.work = self._start(self._upload_and_submit(preparing))

    def _submit(
        self, spec: JobSpec, sink: JobSink, speculate: Speculation | None, uploads: Mapping[str, bytes] = NO_UPLOADS
    ) -> None:
        stored = self.stored.uploads(spec)
        uploads = {**uploads, **stored} if stored else uploads
        futures = AwaitedFutures(spec, self) if has_futures(spec) else None
        ended = not_known(spec, lambda result: self._may_come(spec, result))
        if futures is not None:
            ended.update(futures.ended())
        if speculate is None:
            job = self.core.submit(spec, sink, self._clock(), ended=ended)
        else:
            speculated = SpeculatedJob(spec, speculate, sink, self)
            job = self.core.submit(replace(spec, report_placed=True), speculated, self._clock(), ended=ended)
            if not speculated.over:  # Else it was refused at once.
                self._speculated[spec.job_id] = speculated
        job.uploads = uploads
        if futures is not None:
            job.futures = futures.all()
            futures.tell(self._future_ended, asyncio.get_running_loop(), self._hears_of)
        self._timer.update()

    def check_own(self, call: CallSpec) -> None:
        """`InvalidRequest` for a call with a future or a stored value of another client in its arguments. For any
        thread."""
        for future in call.futures:
            check_own(future, self)
        for value in call.values:
            self.stored.check_own(value, "arguments")

    def _may_come(self, spec: JobSpec, result: TaskResult) -> bool:
        """Whether the client will hear how this task ends, which the job of this spec asks for."""
        if result.job_id == spec.job_id:
            return 0 <= result.task < _task_count(spec)
        return self.core.may_end(result)

    def _prepared_before(self, spec: JobSpec) -> list[asyncio.Task[None]]:
        """The work on jobs whose results this one awaits, and which are to be submitted first (`turns.Turns`)."""
        jobs = {result.job_id for result in awaited_by(spec)} - {spec.job_id}
        preparing = [one for job_id in jobs if (one := self._preparing.get(job_id)) is not None]
        return [one.work for one in preparing if one.work is not None]

    def _hears_of(self, job_id: str) -> bool:
        """Whether the core hears of each end of the job's tasks. It does not of what copies of slow tasks give."""
        return job_id in self.core.jobs and job_id not in self._speculated

    def _future_ended(self, result: TaskResult, ended: Ended) -> None:
        self.core.ended_elsewhere(result.job_id, result.task, ended)

    def cancel_job(self, job_id: str, *, running: bool = False) -> None:
        """Cancel what of the job has not started; with `running`, what runs is stopped too."""
        preparing = self._preparing.pop(job_id, None)
        if preparing is not None:
            preparing.withdraw()
            return
        speculated = self._speculated.get(job_id)
        if speculated is not None:
            speculated.cancel_job()
        self.core.cancel_job(job_id, self._clock(), running=running)

    def cancel_tasks(self, job_id: str, tasks: list[int], *, running: bool = False) -> None:
        """Cancel tasks that have not started; with `running`, those that have, too."""
        preparing = self._preparing.get(job_id)
        if preparing is not None:
            preparing.cancelling.update(dict.fromkeys(tasks, running))
            if len(preparing.cancelling) == preparing.task_count:
                self.cancel_job(job_id)
            return
        speculated = self._speculated.get(job_id)
        if speculated is not None:
            speculated.cancel_tasks(tasks)
        self.core.cancel_tasks(job_id, tasks, self._clock(), running=running)

    def detach(
        self,
        spec: JobSpec,
        submitted_s: float,
        retention_s: float,
        given_back: Callable[[], Iterable[m.Outcome]],
        told: Told,
    ) -> None:
        """Let go of a job that a scheduler has accepted, or that has ended; see `ClientCore.detach`."""
        allowed = ""
        if spec.job_id in self._speculated:
            allowed = "a job whose slow tasks are not submitted again (speculate)"
        elif spec.job_id in self._preparing:
            allowed = "a job that a scheduler has accepted"
        if allowed:
            told(InvalidRequest("job", spec.job_id, allowed))
            return
        if self.tracing is not None:
            told = self.tracing.told_of_detaching(spec.job_id, told)
        self.core.detach(spec, retention_s, given_back, told, self._clock(), submitted_s)
        self._timer.update()

    def attach(self, job_id: str, sink_of: Callable[[JobSpec, float, float | None], JobSink], told: Told) -> None:
        """Attach to a job that was let go of; see `ClientCore.attach`."""

        def begun(spec: JobSpec, age_s: float, retention_s: float | None) -> JobSink:
            sink = sink_of(spec, age_s, retention_s)
            sink.begin(spec, self.fetch_result)
            return sink

        self._in_flight.submitted(self, several=True)
        self.core.attach(job_id, begun, told, self._clock())
        self._timer.update()

    def ask_placed(self, job_id: str, tasks: list[int], told: Callable[[Sequence[int]], None]) -> bool:
        """Ask which of these tasks have left the queue; see `ClientCore.ask_placed`."""
        return self.core.ask_placed(job_id, tasks, told)

    def fail(self, error: SparrowError) -> None:
        """Nothing can run any more, for this reason: the sinks of all jobs are told so, of those to come, too."""
        preparing, self._preparing = self._preparing, {}
        for one in preparing.values():
            one.refuse(error)
        self.core.fail(error)
        self._timer.update()

    def now_s(self) -> float:
        """The session's clock."""
        return self._clock()

    def cut_off_s(self) -> float:
        """For how long no scheduler could be reached; 0 while one can be. Of any thread."""
        return 0.0 if self._dialling is None else self._dialling.cut_off_s()

    def is_denied(self) -> bool:
        """Whether each scheduler refuses the token or the certificate. Of any thread."""
        return self._dialling is not None and self._dialling.is_denied()

    def why_cut_off(self) -> str:
        """The schedulers that were dialled, with why no link leads there. Of any thread."""
        return "" if self._dialling is None else self._dialling.why_cut_off()

    # ---- nodes -------------------------------------------------------------------------------

    async def nodes(self) -> list[NodeStatus]:
        """The nodes of all schedulers that are connected and answer; `SparrowError` if none does."""
        assert self._session is not None
        return merged(await ask_all(self._session, self._addresses(), self._access))

    async def wait_for_nodes(self, count: int, timeout_s: float | None = None) -> None:
        """Return when each connected scheduler has so many nodes that are ready; `TimeoutError` after `timeout_s`."""
        assert self._session is not None
        awaited = Awaited(count, timeout_s)
        while True:
            listings: list[Listing] = []
            with contextlib.suppress(NoScheduler):  # Another may be connected by the next time.
                listings = await ask_all(self._session, self._addresses(), self._access, awaited.ask_timeout_s)
            if awaited.are_there(listings):
                return
            await asyncio.sleep(awaited.pause_s())
            self._check_not_stopped()

    def _check_not_stopped(self) -> None:
        """`RuntimeError` if the client is closed, for whoever waits for something to come."""
        if self._is_stopped:
            raise RuntimeError("the client was closed meanwhile")

    # ---- copies of slow tasks ----------------------------------------------------------------

    def timer(self, next_deadline_s: Callable[[], float | None], tick: Callable[[], None]) -> DeadlineTimer:
        """A timer that calls `tick` when the deadline is due; not at once after the process has stood still."""

        def due_s() -> float | None:
            deadline_s = next_deadline_s()
            return None if deadline_s is None else max(deadline_s, self._patient_until_s)

        def tick_unless_stood_still() -> None:
            self._standstill.check()
            if self._clock() >= self._patient_until_s:
                tick()

        return DeadlineTimer(self._clock, due_s, self.outgoing.event(tick_unless_stood_still))

    def _stood_still(self, _: float) -> None:
        """Outcomes may have come meanwhile, and links may be gone: to look at that comes before giving up on anything,
        or starting it again. By then each scheduler has been dialled."""
        self._patient_until_s = self._clock() + REDIAL_MAX_S

    def submit_copy(self, original: str, spec: JobSpec, sink: Sink, given: Mapping[int, m.Data]) -> None:
        """Submit a copy of tasks of this job, with results that it is given. Large inputs are not uploaded again unless
        their node is lost."""
        job = self.core.jobs.get(original)
        if job is None:
            self.core.submit(spec, sink, self._clock(), given)
        else:
            ended = {result: job.ended[number] for result, number in job.awaited.items() if number in job.ended}
            copy = self.core.submit(spec, sink, self._clock(), given, ended)
            copy.uploads, copy.futures = job.uploads, job.futures
        self._timer.update()

    def speculated(self, job_id: str) -> None:
        """All outcomes of the job have been told."""
        self._speculated.pop(job_id, None)

    # ---- the core's outbox -------------------------------------------------------------------

    def to_scheduler(self, scheduler: str, message: m.Message) -> None:
        """Effect of the core."""
        link = self._links.get(scheduler)
        if link is not None:
            link.send(message)

    def stream(self, scheduler: str, job: ClientJob) -> None:
        """Effect of the core."""
        self._start(self._stream(scheduler, job))

    def upload_again(self, job: ClientJob, hash_: str) -> None:
        """Effect of the core."""
        self._start(self._upload_again(job, hash_))

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _stream(self, scheduler: str, job: ClientJob) -> None:
        link = self._links.get(scheduler)
        chunks = job.chunks  # Others, if the job is refused or moved meanwhile and submitted again.
        for chunk in chunks:
            if link is None or job.chunks is not chunks or job.scheduler != scheduler:
                return
            if job.cancelled and not job.submission.epoch:
                job.streaming = False
                return
            try:
                link.send(chunk)
            except LinkError as error:
                self.core.stream_failed(job, error)
                return
            await link.drained()
        if job.chunks is chunks and job.scheduler == scheduler:
            self.core.streamed(job)

    # ---- large data --------------------------------------------------------------------------

    async def _upload_and_submit(self, preparing: Preparing) -> None:
        """Replace what is large in the job by references to where it was uploaded, then submit it."""
        job_id, sink = preparing.spec.job_id, preparing.sink
        try:
            spec, uploads = await with_references(preparing.spec, self._upload)
            while before := self._prepared_before(spec):
                await asyncio.wait(before)
            self._preparing.pop(job_id, None)
            self._submit(spec, sink, preparing.speculate, uploads)
            for running in (False, True):
                numbers = [number for number, too in preparing.cancelling.items() if too is running]
                self.cancel_tasks(job_id, numbers, running=running)
        except SparrowError as error:
            self._preparing.pop(job_id, None)
            sink.refused(error)
        except Exception as error:
            self._preparing.pop(job_id, None)
            sink.refused(SparrowError(f"the job cannot be sent: {error}"))

    async def upload(self, data: bytes) -> BlobRef:
        """Give large data to some node monitor; `NoScheduler`, `Refused` or `LinkError` if none takes it.

        What may pass, as nodes and schedulers that are away and nodes that are full, is waited out for
        `submit_timeout_s`.
        """
        return await self._upload(data, await blobs.sha256_hex_aside(data))

    async def _upload(self, data: bytes, hash_: str, is_wanted: Callable[[], bool] = lambda: True) -> BlobRef:
        assert self._session is not None and self._uploading is not None
        http, deadline_s = self._session, self._clock() + self._submit_timeout_s

        def is_late() -> bool:
            self._standstill.check()
            return http.closed or not is_wanted() or self._clock() >= max(deadline_s, self._patient_until_s)

        return await self._uploading.upload(data, hash_, is_late)

    async def _upload_to(self, address: str, data: bytes, hash_: str) -> BlobRef:
        assert self._session is not None
        return await blobs.upload(self._session, address, self._access, data, hash_)

    async def _addresses_of_nodes(self) -> list[str]:
        return [node.address for node in await self.nodes() if node.is_ready and node.address]

    async def _upload_again(self, job: ClientJob, hash_: str) -> None:
        """As `upload`, for a job that needs these data again, and no longer than it does; its scheduler hears why if
        that fails."""
        ref, reason = BlobRef(hash_, 0, ()), ""
        try:
            data = job.uploads.get(hash_) or await content_of(job.futures, hash_)
            if data is not None:
                ref = await self._upload(data, hash_, lambda: self.core.jobs.get(job.id) is job)
                self.stored.uploaded_again(ref)
        except Refused as error:
            reason = error.reason
        except Exception as error:
            reason = str(error) if isinstance(error, SparrowError) else repr(error)
        self.core.uploaded(job.id, ref, reason)

    async def download(self, ref: BlobRef) -> bytearray:
        """Fetch large data; `ResultLost` if none of its nodes has it any more."""
        assert self._session is not None
        async with self._downloads:
            return await blobs.download(self._session, ref, self._access)

    def fetch_result(self, sink: JobSink, outcome: m.Outcome, ref: BlobRef) -> None:
        """Fetch a large result, then tell the sink."""
        self._start(self._fetch_result(sink, outcome, ref))

    async def _fetch_result(self, sink: JobSink, outcome: m.Outcome, ref: BlobRef) -> None:
        try:
            data = await self.download(ref)
        except ResultLost as error:
            sink.fetched(outcome, error)
        except Exception as error:  # No memory for it, say.
            sink.fetched(outcome, ResultLost(f"a result of {ref.size} bytes cannot be had here: {error!r}"))
        else:
            sink.fetched(msgspec.structs.replace(outcome, result=data), None)

    # ---- links' events -----------------------------------------------------------------------

    def scheduler_up(self, scheduler: str, welcome: m.Welcome) -> None:
        """Event of the dialling."""
        assert self._connected is not None
        self._connected.set()
        self.user = welcome.user or self.user
        self._receipts.begin(scheduler)
        self._welcomed_by(welcome)
        self._timer.update()

    def _welcomed_by(self, welcome: m.Welcome) -> None:
        self.core.scheduler_up(
            welcome.name, welcome.frame_bytes_max, self._clock(), welcome.version, welcome.plane, welcome.leads
        )

    def _denied(self) -> None:
        """Event of the dialling. Links that have stood are dialled on all the same: `renew_token` may follow."""
        assert self._connected is not None
        self._is_denied = True
        self._connected.set()

    def _all_dialled(self) -> None:
        """Event of the dialling."""
        self.core.all_dialled(self._clock())
        self._timer.update()

    def scheduler_said(self, scheduler: str, batch: list[Any]) -> None:
        """Event of the dialling."""
        now_s, receive, attachments = self._clock(), self.core.receive, self.core.attachments
        at_once = bool(self.core.attached) and self._is_of_attached(batch)
        for message in batch:
            receive(scheduler, message, now_s)
        self._receipts.handled(scheduler, batch, at_once=at_once or self.core.attachments > attachments)
        self._timer.update()

    def _is_of_attached(self, batch: list[Any]) -> bool:
        """Whether there are outcomes among these messages of a job that this client has attached to. The scheduler
        tells the next client those of which it has no receipt."""
        attached = self.core.attached
        return any([type(message) is m.Outcome and message.job in attached for message in batch])

    def scheduler_down(self, scheduler: str, reason: str) -> None:
        """Event of the dialling."""
        self._receipts.end(scheduler)
        self.core.scheduler_down(scheduler, reason, self._clock(), redialled=True)
        self._timer.update()

    def _scheduler_unreachable(self, scheduler: str) -> None:
        """Event of the dialling."""
        self.core.scheduler_unreachable(scheduler, self._clock())
        self._timer.update()

    def _tick(self) -> None:
        self.core.tick(self._clock())


def _call_soon(loop: asyncio.AbstractEventLoop, call: Callable[[SparrowError], None], error: SparrowError) -> None:
    """Have the loop call this, from any thread; if the loop has been closed nobody is left to hear of the error."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(call, error)


def _task_count(spec: JobSpec) -> int:
    return sum(len(stage.tasks) for stage in spec.as_stages())
