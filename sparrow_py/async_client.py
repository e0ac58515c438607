"""The client library for asyncio: `AsyncClient` is `Client` with awaitables, in the caller's own loop."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any

from sparrow_py import calls, stored_values
from sparrow_py.auth import TLS
from sparrow_py.call_jobs import (
    MAP_WINDOW_DEFAULT,
    CallOptions,
    CallStage,
    MapJobs,
    Uploaded,
    calls_job,
    checked_options,
    encoded_function,
    with_module,
)
from sparrow_py.cluster_access import check_fetched
from sparrow_py.cluster_nodes import NodeStatus
from sparrow_py.connection import Connection, connection_to
from sparrow_py.counted import counted
from sparrow_py.errors import InvalidRequest, JobDetached, ResultLost, SparrowError
from sparrow_py.futures.as_argument import StandsForValue
from sparrow_py.futures.outcomes import outcome_value, task_report
from sparrow_py.job import BlobRef, JobReport, JobSpec, TaskReport, check_name, new_job_id, stage_of
from sparrow_py.processes import process_bound
from sparrow_py.processes.process_bound import StaysHere
from sparrow_py.session.idle_loop import LongStart, give_slot_while_idle
from sparrow_py.session.job_sink import JobSink
from sparrow_py.session.letting_go import RETENTION_S, Told, check_retention, detached, let_go_again
from sparrow_py.session.session import CONNECT_TIMEOUT_S, HEARTBEAT_S, SUBMIT_TIMEOUT_S, Session
from sparrow_py.speculation import Speculation, check_job
from sparrow_py.stored_values import StoredValue
from sparrow_py.task_context import KEEPS_SLOT_S, RunningTask, running_task, warn_of_nesting
from sparrow_py.wire import messages as m
from sparrow_py.wire.addresses import sources_of_environment

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

    from sparrow_py.actor import AsyncActorHandle
    from sparrow_py.actors.owner import Actors
    from sparrow_py.cluster import LocalCluster, SchedulerHere
    from sparrow_py.remote_cluster import RemoteCluster


class AsyncTaskFuture(asyncio.Future[Any], StandsForValue):
    """A task's `asyncio.Future`. `task` is its position in `job`, `outcome` what the scheduler said."""

    def __init__(self, job: AsyncJob, task: int) -> None:
        super().__init__()
        self.job = job
        self.task = task
        self.outcome: m.Outcome | None = None
        self.reference: m.Outcome | None = None


class AsyncJob(StaysHere):
    """A job in flight. `futures` has an `asyncio.Future` per task; iterate to get them as they complete."""

    def __init__(
        self, session: Session, jobs: dict[str, AsyncJob], spec: JobSpec, speculate: Speculation | None = None
    ) -> None:
        """`jobs` are those of the client that have not ended, by their ids."""
        loop = asyncio.get_running_loop()
        self.spec = spec
        self.speculate = speculate
        self.job_id = spec.job_id
        self.submitted_at_s = session.now_s()
        self.retention_s = RETENTION_S
        """How long after its end it is kept if the client lets go of it."""
        self.futures = [AsyncTaskFuture(self, task) for task in range(sum(len(one.tasks) for one in spec.as_stages()))]
        for task, future in enumerate(self.futures):
            future.add_done_callback(partial(self._cancelled_by_caller, task))
        self._session = session
        self._jobs = jobs
        self._error: SparrowError | None = None
        """Why nothing more will be told of it, if it has not ended."""
        self._reports: list[TaskReport | None] = [None] * len(self.futures)
        self._accepted: asyncio.Future[None] = loop.create_future()
        self._ended: asyncio.Future[None] = loop.create_future()
        self._completed: list[asyncio.Future[Any]] = []
        """The futures whose task has ended, in the order of their ends."""
        self._watchers: list[asyncio.Future[None]] = []
        """One for each iterator that waits for the next future to complete."""

    def __repr__(self) -> str:
        done = sum(future.done() for future in self.futures)
        return f"<AsyncJob {self.job_id} {self.spec.name!r}, {done} of {counted(len(self.futures), 'task')} done>"

    @property
    def session(self) -> object:
        """The session of its client."""
        return self._session

    def app_of(self, task: int) -> str:
        """The app of this task's stage."""
        return stage_of(self.spec, task).app

    async def __aiter__(self) -> AsyncIterator[asyncio.Future[Any]]:
        """All futures, as they complete; of several iterators each gets them all."""
        for number in range(len(self.futures)):
            while number >= len(self._completed):
                watcher = asyncio.get_running_loop().create_future()
                self._watchers.append(watcher)
                await watcher
            yield self._completed[number]

    async def accepted(self) -> None:
        """Return when a scheduler has accepted the job, or it has ended before; raises `Refused` or `InvalidRequest` if
        none does."""
        await asyncio.shield(self._accepted)

    async def wait(self) -> None:
        """Return when all outcomes have come."""
        if self.futures:
            await asyncio.wait(self.futures)

    async def results(self) -> list[Any]:
        """All results in submission order; raises the first failure."""
        await self.wait()
        return [future.result() for future in self.futures]

    async def report(self) -> JobReport:
        """What became of every task; raises if the job was not accepted, or its client has ended before."""
        await self.accepted()
        await asyncio.shield(self._ended)  # The futures may end before, if their caller cancels them.
        if self._error is not None:
            raise self._error
        return JobReport(self.job_id, [report for report in self._reports if report is not None])

    @property
    def detached(self) -> bool:
        """Whether the client has let go of it (`AsyncClient.detach`)."""
        return isinstance(self._error, JobDetached)

    def outcomes(self) -> list[m.Outcome]:
        """All outcomes so far, of large results with the reference."""
        known = [future.reference or future.outcome for future in self.futures]
        return [outcome for outcome in known if outcome is not None]

    def cancel(self, tasks: Sequence[int] | None = None, *, running: bool = False) -> None:
        """Cancel the job, or some of its tasks, as far as they have not started; with `running` stop them."""
        if tasks is None:
            self._session.cancel_job(self.job_id, running=running)
        else:
            self._session.cancel_tasks(self.job_id, list(tasks), running=running)

    def _settle(self, task: int, value: Any, error: BaseException | None) -> None:
        future = self.futures[task]
        if not future.done():  # Else its caller cancelled it, or has set it.
            if error is None:
                future.set_result(value)
            else:
                future.set_exception(error)
                future.exception()  # The job keeps it; asyncio need not warn that nobody asked.
        self._completed.append(future)
        watchers, self._watchers = self._watchers, []
        for watcher in watchers:
            if not watcher.done():  # Else who waited was cancelled.
                watcher.set_result(None)

    def _cancelled_by_caller(self, task: int, future: asyncio.Future[Any]) -> None:
        if future.cancelled():
            self.cancel([task])

    # ---- the session's sink ------------------------------------------------------------------

    def on_accepted(self) -> None:
        if not self._accepted.done():
            self._accepted.set_result(None)

    def on_outcome(self, outcome: m.Outcome, lost: ResultLost | None) -> None:
        self._reports[outcome.task] = task_report(outcome, self.submitted_at_s)
        self.futures[outcome.task].outcome = outcome
        value, error = outcome_value(outcome, self.app_of(outcome.task)) if lost is None else (None, lost)
        self._settle(outcome.task, value, error)

    def on_refused(self, error: SparrowError) -> None:
        self._error = error
        if not self._accepted.done():
            self._accepted.set_exception(error)
            self._accepted.exception()
        for task, report in enumerate(self._reports):
            if report is None:  # Else its outcome has come.
                self._settle(task, None, error)
        self.on_ended()

    def on_ended(self) -> None:
        if not self._ended.done():
            self._ended.set_result(None)
        if self._jobs.get(self.job_id) is self:  # Else the client has attached to the job anew.
            del self._jobs[self.job_id]


class _Sink(JobSink):
    """Tells an `AsyncJob` what the session tells of it. (asyncio's futures know no running state.)"""

    __slots__ = ("_job",)

    def __init__(self, job: AsyncJob) -> None:
        self._job = job

    def accepted(self) -> None:
        self._job.on_accepted()

    def refuse(self, error: SparrowError) -> None:
        self._job.on_refused(error)

    def fetching(self, outcome: m.Outcome) -> None:
        self._job.futures[outcome.task].reference = outcome

    def settle(self, outcome: m.Outcome, lost: ResultLost | None = None) -> None:
        self._job.on_outcome(outcome, lost)

    def finish(self) -> None:
        self._job.on_accepted()
        self._job.on_ended()


class _State(Enum):
    NEW = "the client has not been started: await its start(), or use it in an `async with` block"
    STARTING = "the client has not been started yet: await its start()"
    OPEN = "the client has been started"
    CLOSED = "the client is closed"
    INHERITED = f"the client cannot be used here: {process_bound.INHERITED}"


class _Shared:
    """What a client and its views share: they are started together, and end together."""

    def __init__(self) -> None:
        self.state = _State.NEW
        self.uploaded: Uploaded = ()
        """Modules that all calls ship."""
        self.jobs: dict[str, AsyncJob] = {}
        """The jobs that have not ended, by their ids."""
        self.session: Session | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        """The one on which it was started."""
        self.starting: Session | None = None
        """The session that is being started."""
        self.connection: Connection | None = None
        self.actors: Actors | None = None
        """Once it has made one."""
        self.restore_loop: Callable[[], None] | None = None
        """Has the loop keep the task's slot again, if it gives it back."""
        self._stopping: asyncio.Task[None] | None = None
        """The end of the session: it goes on though who closes the client is cancelled."""
        process_bound.tell_of_forks(self)

    def forked(self) -> None:
        """In a child of the process: this client is the parent's, and over here, without a word to anybody. One that
        has not been started may be started in either."""
        if self.state is _State.STARTING or self.state is _State.OPEN:
            self.state = _State.INHERITED
        if self.actors is not None:
            self.actors.forked(self.state.value)
        if self.session is not None:
            self.session.forked()
        for job in list(self.jobs.values()):
            with contextlib.suppress(RuntimeError):  # Its loop was closed before.
                job.on_refused(SparrowError(self.state.value))

    def open_session(self) -> Session:
        """The session; `RuntimeError` if the client is not open, or is another loop's."""
        session = self.any_loops_session()
        if asyncio.get_running_loop() is not self.loop:
            raise RuntimeError("the client belongs to the event loop on which it was started: start one on this loop")
        return session

    def any_loops_session(self) -> Session:
        """The same for what any thread may ask of it."""
        if self.session is None or self.state is not _State.OPEN:
            raise RuntimeError(self.state.value)
        return self.session

    async def end(self) -> None:
        """Stop all that there is, or wait until it has stopped. What has not started is cancelled, futures not done end
        with an error."""
        if self.actors is not None:
            self.actors.close()
        session, self.session = self.session, None
        connection, self.connection = self.connection, None
        restore, self.restore_loop = self.restore_loop, None
        if restore is not None:
            restore()
        try:
            if session is not None:
                session.core.abandon()
                self._stopping = asyncio.create_task(session.stop())
            if self._stopping is not None:
                await asyncio.shield(self._stopping)
            if self.actors is not None:
                await self.actors.wait_closed()
        finally:
            for job in list(self.jobs.values()):
                job.on_refused(SparrowError("the client was closed before the task's outcome came"))
            if connection is not None and connection.own:
                await asyncio.shield(asyncio.to_thread(connection.close))  # It goes on though its caller is cancelled.


class AsyncClient(StaysHere):
    """A `Client` for asyncio, with the same parameters. Use it in an `async with` block, or `start` and `close` it."""

    def __init__(
        self,
        schedulers: str | Sequence[str] | LocalCluster | RemoteCluster | SchedulerHere | None = None,
        *,
        user: str | None = None,
        token: str | None = None,
        tls: TLS | None = None,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        submit_timeout_s: float = SUBMIT_TIMEOUT_S,
        heartbeat_s: float = HEARTBEAT_S,
        options: CallOptions | None = None,
        forward_output: bool = True,
        tracing: bool | TracerProvider = False,
    ) -> None:
        warn_of_nesting(starts_cluster=schedulers is None and not sources_of_environment())
        self._schedulers = schedulers
        self._forward_output = forward_output
        self._shown = token, tls
        self._session_options: dict[str, Any] = {
            "user": user,
            "connect_timeout_s": connect_timeout_s,
            "submit_timeout_s": submit_timeout_s,
            "heartbeat_s": heartbeat_s,
        }
        if tracing is not False:
            from sparrow_py.session.job_spans import job_spans  # Which other programs do without.

            self._session_options["tracing"] = job_spans(tracing)
        self.options = checked_options(options)
        self._shared = _Shared()
        self._task: RunningTask | None = None
        """The task whose own client it is, if it is one's."""

    @classmethod
    def current(cls) -> AsyncClient:
        """In a task of the Python app: a client of its own, as `Client.current` gives one, which is to be started.

        The task gives its slot back while the event loop has nothing to do and tasks of this client have not ended.
        That takes a loop of asyncio's own, in the task's own thread: `start` raises `RuntimeError` for others.
        `WaitRefused` ends the client's jobs where the task may not wait.
        """
        task = running_task()
        client = cls.__new__(cls)
        client.options, client._shared, client._task = checked_options(None), _Shared(), task
        return client

    def __repr__(self) -> str:
        shared = self._shared
        if shared.session is None:
            return f"<AsyncClient, {shared.state.name.lower()}>"
        return f"<AsyncClient of {shared.session}, jobs: {len(shared.jobs)}>"

    async def __aenter__(self) -> AsyncClient:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Connect; starts an embedded cluster if no schedulers were given, neither to the client nor in
        SPARROW_SCHEDULER.

        `NoScheduler` if none answers: then it may be tried again. `RuntimeError` if it was started before. If this is
        cancelled while an embedded cluster starts, that has ended again when the caller hears of it.
        """
        shared = self._shared
        if shared.state is not _State.NEW:
            raise RuntimeError(shared.state.value)
        shared.state = _State.STARTING
        try:
            session = shared.starting = await self._make_session()
            if self._task is None:
                await session.start()
            else:
                await self._start_in_task(session)
            shared.session, shared.loop = session, asyncio.get_running_loop()
            if shared.state is not _State.STARTING:
                raise RuntimeError("the client was closed while it was being started")
            shared.state = _State.OPEN
        except BaseException:
            if shared.state is _State.STARTING:
                shared.state = _State.NEW
            await shared.end()
            raise
        finally:
            shared.starting = None

    async def _start_in_task(self, session: Session) -> None:
        """As `session.start`. While no scheduler answers the task's slot is others': it may be for them that one would
        answer."""
        loop, start = asyncio.get_running_loop(), LongStart()
        self._shared.restore_loop = give_slot_while_idle(loop, session, start)
        timer = loop.call_later(KEEPS_SLOT_S, setattr, start, "goes_on", True)
        try:
            await session.start()
        finally:
            timer.cancel()
            start.goes_on = False

    def renew_token(self, token: str) -> None:
        """Show this token from now on, on links that stand, too: then the one before may be withdrawn."""
        self._shared.open_session().renew_token(token)

    async def _make_session(self) -> Session:
        if self._task is not None:
            from sparrow_py.session.relayed import RelayedSession  # Which other programs do without.

            return RelayedSession(self._task)
        starting = _connection_aside(self._schedulers, *self._shown, self._forward_output)
        self._shared.connection = connection = await starting
        return Session(
            connection.sources,
            here=connection.here,
            cluster=connection.watched,
            access=connection.access,
            **self._session_options,
        )

    async def close(self) -> None:
        """End the client and its views: what has not started is cancelled, futures not done end with an error."""
        if self._shared.state is _State.INHERITED:
            return  # It is the parent's to end.
        starting = self._shared.state is _State.STARTING
        self._shared.state = _State.CLOSED
        if not starting:
            await self._shared.end()
        elif self._shared.starting is not None:  # `start` ends what it has begun.
            self._shared.starting.wait_no_more()

    def submit_job(self, spec: JobSpec, *, speculate: Speculation | None = None) -> AsyncJob:
        """Submit a job of any app; `InvalidRequest` if `spec` is invalid. `await job.accepted()` to know whether it was
        taken.

        With `speculate` tasks that take too long are submitted again (§3.4).
        """
        check_job(spec, speculate)
        spec = replace(spec, job_id=spec.job_id or new_job_id())
        session, jobs = self._shared.open_session(), self._shared.jobs
        if spec.job_id in jobs:
            raise InvalidRequest("job_id", spec.job_id, "an id that no running job of this client has")
        job = jobs[spec.job_id] = AsyncJob(session, jobs, spec, speculate)
        try:
            session.submit(spec, _Sink(job), speculate)
        except BaseException:
            jobs.pop(spec.job_id, None)
            raise
        return job

    def submit_calls(
        self,
        function: Callable[..., Any],
        arguments: Iterable[tuple[Any, ...]],
        *,
        name: str = "",
        options: CallOptions | None = None,
    ) -> AsyncJob:
        """One job with a task `function(*args)` for each tuple (or list) of arguments; `InvalidRequest` for what is
        neither. See `Client.submit_calls`."""
        options = checked_options(options, self.options)
        spec = calls_job(options, function, arguments, name, self._shared.uploaded)
        return self.submit_job(spec, speculate=options.speculate)

    def submit_stages(
        self, stages: Iterable[CallStage], *, name: str = "", options: CallOptions | None = None
    ) -> AsyncJob:
        """One job of several stages of calls, a DAG: schedulers start each as soon as those before it have finished.
        See `Client.submit_stages`."""
        options = checked_options(options, self.options)
        return self.submit_job(options.stages_job(name, stages, self._shared.uploaded), speculate=options.speculate)

    async def upload(self, data: bytes) -> BlobRef:
        """Give data to the cluster that several jobs' tasks need: a reference to it. See `Client.upload`."""
        return await self._shared.open_session().upload(data)

    def upload_file(self, path: str | os.PathLike[str], *, replaces_installed: bool = False) -> None:
        """Ship this module or package with all calls from now on. See `Client.upload_file`."""
        shared = self._shared
        shared.uploaded = with_module(shared.uploaded, path, replaces_installed=replaces_installed)

    async def fetch(self, ref: BlobRef) -> bytes:
        """The bytes that `ref` stands for; `ResultLost` if no node has them any more. See `Client.fetch`."""
        check_fetched(ref)
        return bytes(await self._shared.open_session().download(ref))

    async def put(self, value: Any, *, broadcast: bool = False) -> StoredValue:
        """Give a value to the cluster once, for any number of calls: what is returned stands for it in their arguments.
        See `Client.put`."""
        return await self._shared.open_session().stored.store(stored_values.encode(value), broadcast=broadcast)

    def get(self, value: StoredValue) -> Any:
        """The value that `put` was given. See `Client.get`."""
        return stored_values.decode(self._shared.any_loops_session().stored.content_of(value))

    async def nodes(self) -> list[NodeStatus]:
        """The nodes of the cluster, by id. See `Client.nodes`."""
        return await self._shared.open_session().nodes()

    async def wait_for_nodes(self, count: int, timeout_s: float | None = None) -> None:
        """Return when each connected scheduler has at least `count` nodes that are ready. See
        `Client.wait_for_nodes`."""
        await self._shared.open_session().wait_for_nodes(count, timeout_s)

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> asyncio.Future[Any]:
        """Run `function(*args, **kwargs)` on the cluster; await the result."""
        common = encoded_function(self.options, function, uploaded=self._shared.uploaded)
        payload = calls.encode_arguments(args, kwargs)
        spec = self.options.job(calls.function_name(function), common, [payload])
        return self.submit_job(spec, speculate=self.options.speculate).futures[0]

    async def map(
        self,
        function: Callable[..., Any],
        *iterables: Iterable[Any],
        chunksize: int = 1,
        window: int = MAP_WINDOW_DEFAULT,
        options: CallOptions | None = None,
    ) -> AsyncIterator[Any]:
        """The results of `function` over the iterables, in order, with about `window` calls in flight, of which
        `chunksize` make one task. See `Client.map`."""
        options = checked_options(options, self.options)
        jobs = MapJobs(function, iterables, options, chunksize, window, self._shared.uploaded)
        pending: deque[tuple[asyncio.Future[Any], AsyncJob]] = deque()
        try:
            while True:
                while len(pending) * 2 <= jobs.in_flight_max and (spec := jobs.next(len(pending))) is not None:
                    job = self.submit_job(spec, speculate=options.speculate)
                    pending.extend((future, job) for future in job.futures)
                if not pending:
                    return
                values = await pending[0][0]
                pending.popleft()
                values.reverse()
                while values:  # The future has the same list: nothing here refers to what was yielded.
                    yield values.pop()
        finally:
            for job in {job.job_id: job for _, job in pending}.values():
                job.cancel()

    def actor(
        self,
        cls: type,
        /,
        *args: Any,
        max_restarts: int = 0,
        call_retries: int = 0,
        waiting_calls_max: int = 1_000,
        advertise: str | None = None,
        **kwargs: Any,
    ) -> AsyncActorHandle:
        """An object in a leased task of its own, whose methods give asyncio's futures. See `Client.actor`."""
        from sparrow_py.actor import AsyncActorHandle  # Which programs do without.
        from sparrow_py.actors.methods import methods_of
        from sparrow_py.actors.owner import Actors, definition_of

        shared, session = self._shared, self._shared.open_session()
        if shared.connection is None:
            raise InvalidRequest("cls", cls, "actors of a client outside of tasks; tasks can be given their handles")
        definition = definition_of(
            self.options, shared.uploaded, cls, args, kwargs,
            max_restarts=max_restarts, call_retries=call_retries, waiting_calls_max=waiting_calls_max,
        )  # fmt: skip
        if shared.actors is None:
            shared.actors = Actors(session, shared.connection.access.tls, session.local_host)
        return AsyncActorHandle(shared.actors.make(definition, advertise), methods_of(cls))

    async def detach(self, job: AsyncJob, *, retention_s: float | None = None) -> str:
        """Let go of the job, which goes on without this client; returns its id. See `Client.detach`."""
        session = self._shared.open_session()
        if not isinstance(job, AsyncJob) or job.session is not session:
            raise InvalidRequest("job", job, "a job of this client")
        if job.detached:
            raise InvalidRequest("job", job.job_id, "a job that has not been detached before")
        if self._shared.connection is not None:
            self._shared.connection.check_outlives(job.job_id)
        kept_s = check_retention(retention_s, job.retention_s)
        await job.accepted()

        def let_go() -> None:
            job.on_refused(detached(job.job_id))

        begun_s = job.submitted_at_s
        await _told(lambda told: session.detach(job.spec, begun_s, kept_s, job.outcomes, told), let_go)
        return job.job_id

    async def attach(self, job_id: str) -> AsyncJob:
        """The job of this user that a client has let go of. See `Client.attach`."""
        check_name("job_id", job_id, empty=False)
        session, known = self._shared.open_session(), self._shared.jobs
        jobs: list[AsyncJob] = []

        def sink_of(spec: JobSpec, age_s: float, retention_s: float | None) -> JobSink:
            job = known[job_id] = AsyncJob(session, known, spec)
            job.submitted_at_s -= age_s
            job.retention_s = job.retention_s if retention_s is None else retention_s
            jobs.append(job)
            job.on_accepted()
            return _Sink(job)

        def given_up() -> None:
            let_go_again(jobs[0], session.detach)

        await _told(lambda told: session.attach(job_id, sink_of, told), lambda: None, given_up)
        return jobs[0]

    def with_options(self, **changes: Any) -> AsyncClient:
        """This client with these changes of its `CallOptions`, a view of it: they share the links, and to close one
        closes both."""
        view = object.__new__(type(self))
        vars(view).update(vars(self), options=replace(self.options, **changes))
        return view

    def cancel(
        self, what: AsyncJob | asyncio.Future[Any] | Iterable[asyncio.Future[Any]], *, running: bool = False
    ) -> None:
        """Cancel a job, a future or several, as far as they have not started; with `running` a whole job is stopped.
        See `Client.cancel`."""
        if isinstance(what, AsyncJob):
            what.cancel(running=running)
            return
        for future in [what] if isinstance(what, asyncio.Future) else what:
            future.cancel()

    async def gather(self, futures: Iterable[asyncio.Future[Any]]) -> list[Any]:
        """All results of these futures, in the order given; raises the first failure."""
        return list(await asyncio.gather(*futures))


async def _told(
    ask: Callable[[Told], None], done: Callable[[], None], given_up: Callable[[], None] = lambda: None
) -> None:
    """Ask, and wait until it is said how it went; `done` is called if it went well, waited for or not, and `given_up`
    in a later event if it went well and who waited was cancelled."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[None] = loop.create_future()

    def told(error: SparrowError | None) -> None:
        if error is None:
            done()
        if answer.done():  # Who waited was cancelled.
            if error is None:
                loop.call_soon(given_up)
        elif error is None:
            answer.set_result(None)
        else:
            answer.set_exception(error)

    ask(told)
    try:
        await answer
    except asyncio.CancelledError:
        if not answer.cancelled() and answer.exception() is None:  # It came in the turn of the loop that cancelled.
            given_up()  # At once: the client may be closed next.
        raise


async def _connection_aside(
    schedulers: str | Sequence[str] | LocalCluster | RemoteCluster | SchedulerHere | None,
    token: str | None,
    tls: TLS | None,
    forward_output: bool,
) -> Connection:
    """Call `connection_to` in a thread. Who cancels this waits until a cluster that is being started has started and
    stopped."""
    thread = ThreadPoolExecutor(1, "sparrow-cluster")
    starting = thread.submit(connection_to, schedulers, token, tls, forward_output=forward_output)
    try:
        return await asyncio.wrap_future(starting)
    except asyncio.CancelledError:
        # The thread gets to it after the start; if this is cancelled again, too.
        await asyncio.shield(asyncio.wrap_future(thread.submit(_close_started, starting)))
        raise
    finally:
        thread.shutdown(wait=False)


def _close_started(starting: Future[Connection]) -> None:
    """Stop the cluster that was started, if one was."""
    if not starting.cancelled() and starting.exception() is None:
        starting.result().close()
