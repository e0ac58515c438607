"""The client library for asyncio: `AsyncClient` is `Client` with awaitables, in the caller's own loop."""

from __future__ import annotations

import asyncio
import copy
import itertools
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from sparrow_py import calls
from sparrow_py import messages as m
from sparrow_py.auth import TLS
from sparrow_py.call_jobs import CallOptions, CallStage, function_name
from sparrow_py.client import (
    MAP_JOB_TASKS,
    MAP_WINDOW_DEFAULT,
    cluster_of,
    outcome_value,
    stage_of,
    task_report,
)
from sparrow_py.errors import InvalidRequest, ResultLost, SparrowError
from sparrow_py.job import BlobRef, JobReport, JobSpec, TaskReport, check_whole, new_job_id
from sparrow_py.session import CONNECT_TIMEOUT_S, HEARTBEAT_S, SUBMIT_TIMEOUT_S, Session
from sparrow_py.speculation import Speculation, check_speculation

if TYPE_CHECKING:
    from sparrow_py.cluster import LocalCluster, SchedulerHere


class AsyncJob:
    """A job in flight. `futures` has an `asyncio.Future` per task; iterate to get them as they complete."""

    def __init__(self, client: AsyncClient, spec: JobSpec) -> None:
        loop = asyncio.get_running_loop()
        self.spec = spec
        self.job_id = spec.job_id
        self.submitted_at_s = client._session.now_s()
        self.futures: list[asyncio.Future[Any]] = [
            loop.create_future() for stage in spec.as_stages() for _ in stage.tasks
        ]
        for task, future in enumerate(self.futures):
            future.add_done_callback(partial(self._cancelled_by_caller, task))
        self._client = client
        self._reports: list[TaskReport | None] = [None] * len(self.futures)
        self._accepted: asyncio.Future[None] = loop.create_future()
        self._ended: asyncio.Future[None] = loop.create_future()
        self._completed: asyncio.Queue[asyncio.Future[Any]] = asyncio.Queue()
        self._iterated = 0

    def __aiter__(self) -> AsyncJob:
        """The futures, as they complete; each once, however often iteration starts anew."""
        return self

    async def __anext__(self) -> asyncio.Future[Any]:
        if self._iterated == len(self.futures):
            raise StopAsyncIteration
        future = await self._completed.get()
        self._iterated += 1
        return future

    async def accepted(self) -> None:
        """Return when a scheduler has accepted the job; raises `Refused` or `InvalidRequest` if none does."""
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
        """What became of every task; raises if the job was not accepted."""
        await self.accepted()
        await asyncio.shield(self._ended)  # The futures may end before, if their caller cancels them.
        return JobReport(self.job_id, [report for report in self._reports if report is not None])

    def cancel(self, tasks: Sequence[int] | None = None, *, running: bool = False) -> None:
        """Cancel the job, or some of its tasks, as far as they have not started; with `running` stop them."""
        if tasks is None:
            self._client._session.cancel_job(self.job_id, running=running)
        else:
            self._client._session.cancel_tasks(self.job_id, list(tasks), running=running)

    def _settle(self, task: int, value: Any, error: BaseException | None) -> None:
        future = self.futures[task]
        if not future.done():  # Else its caller cancelled it.
            if error is None:
                future.set_result(value)
            else:
                future.set_exception(error)
                future.exception()  # The job keeps it; asyncio need not warn that nobody asked.
        self._completed.put_nowait(future)

    def _cancelled_by_caller(self, task: int, future: asyncio.Future[Any]) -> None:
        if future.cancelled():
            self.cancel([task])

    # ---- the session's sink ------------------------------------------------------------------

    def on_refused(self, error: SparrowError) -> None:
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


class _Sink:
    """Tells an `AsyncJob` what the session is told of it."""

    def __init__(self, job: AsyncJob) -> None:
        self._job = job

    def accepted(self) -> None:
        if not self._job._accepted.done():
            self._job._accepted.set_result(None)

    def refused(self, error: SparrowError) -> None:
        self._job.on_refused(error)
        self._job._client._jobs.pop(self._job.job_id, None)

    def placed(self, task: int) -> None:
        """asyncio's futures know no running state."""

    def outcome(self, outcome: m.Outcome) -> None:
        job = self._job
        job._reports[outcome.task] = task_report(outcome, job.submitted_at_s)
        value, error = outcome_value(outcome, stage_of(job.spec, outcome.task).app)
        job._settle(outcome.task, value, error)

    def result_lost(self, outcome: m.Outcome, error: ResultLost) -> None:
        job = self._job
        job._reports[outcome.task] = task_report(outcome, job.submitted_at_s)
        job._settle(outcome.task, None, error)

    def not_cancelled(self, task: int) -> None:
        """Its outcome will come."""

    def ended(self) -> None:
        self.accepted()
        self._job.on_ended()
        self._job._client._jobs.pop(self._job.job_id, None)


class AsyncClient:
    """As `client.Client`, for asyncio. Use it in an `async with` block, or `start` and `close` it."""

    def __init__(
        self,
        schedulers: str | Sequence[str] | LocalCluster | SchedulerHere | None = None,
        *,
        user: str | None = None,
        token: str | None = None,
        tls: TLS | None = None,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        submit_timeout_s: float = SUBMIT_TIMEOUT_S,
        heartbeat_s: float = HEARTBEAT_S,
        options: CallOptions | None = None,
    ) -> None:
        self._schedulers = schedulers
        self._shown = token, tls
        self._session_options: dict[str, Any] = {
            "user": user,
            "connect_timeout_s": connect_timeout_s,
            "submit_timeout_s": submit_timeout_s,
            "heartbeat_s": heartbeat_s,
        }
        self.options = options or CallOptions()
        self._jobs: dict[str, AsyncJob] = {}
        self._closed = False
        self._own_cluster: LocalCluster | None = None
        self._session: Session

    async def __aenter__(self) -> AsyncClient:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Connect; starts an embedded cluster if no schedulers were given."""
        self._own_cluster, addresses, access = await asyncio.to_thread(cluster_of, self._schedulers, *self._shown)
        try:
            self._session = Session(addresses, access=access, **self._session_options)
            await self._session.start()
        except BaseException:
            await self._stop_cluster()
            raise

    def renew_token(self, token: str) -> None:
        """Show this token from now on, on links that stand, too: then the one before may be withdrawn."""
        self._session.renew_token(token)

    async def close(self) -> None:
        """End the client: what has not started is cancelled, futures not done end with an error."""
        self._session.core.abandon()
        await self._session.stop()
        self._closed = True
        for job in list(self._jobs.values()):
            job.on_refused(SparrowError("the client was closed before the task's outcome came"))
        self._jobs.clear()
        await self._stop_cluster()

    async def _stop_cluster(self) -> None:
        if self._own_cluster is not None:
            await asyncio.to_thread(self._own_cluster.stop)

    def submit_job(self, spec: JobSpec, *, speculate: Speculation | None = None) -> AsyncJob:
        """Submit a job; `InvalidRequest` if it cannot be. `await job.accepted()` to know that it was taken.

        With `speculate`, which is for jobs of one stage, tasks that take too long are submitted again (§3.4).
        """
        spec.validate()
        if speculate is not None:
            check_speculation(speculate, spec)
        spec = replace(spec, job_id=spec.job_id or new_job_id())
        if self._closed:
            raise RuntimeError("the client is closed")
        if spec.job_id in self._jobs:
            raise InvalidRequest("job_id", spec.job_id, "an id that no running job of this client has")
        job = AsyncJob(self, spec)
        self._jobs[spec.job_id] = job
        try:
            self._session.submit(spec, _Sink(job), speculate)
        except BaseException:
            self._jobs.pop(spec.job_id, None)
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
        """One job with a task `function(*args)` per tuple of arguments."""
        options = options or self.options
        common = calls.encode_function(function, capture_output=options.capture_output)
        payloads = [calls.encode_arguments(args, {}) for args in arguments]
        spec = options.job(name or function_name(function), common, payloads)
        return self.submit_job(spec, speculate=options.speculate)

    def submit_stages(
        self, stages: Iterable[CallStage], *, name: str = "", options: CallOptions | None = None
    ) -> AsyncJob:
        """One job of several stages of calls, a DAG: schedulers start each as soon as those before it have finished."""
        options = options or self.options
        return self.submit_job(options.stages_job(name, list(stages)), speculate=options.speculate)

    async def upload(self, data: bytes) -> BlobRef:
        """Give data to the cluster that several jobs' tasks need: a reference to it. See `Client.upload`."""
        return await self._session.upload(data)

    async def fetch(self, ref: BlobRef) -> bytes:
        """The bytes of a large result; `ResultLost` if no node has them any more."""
        return bytes(await self._session.download(ref))

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> asyncio.Future[Any]:
        """Run `function(*args, **kwargs)` on the cluster; await the result."""
        common = calls.encode_function(function, capture_output=self.options.capture_output)
        payload = calls.encode_arguments(args, kwargs)
        spec = self.options.job(function_name(function), common, [payload])
        return self.submit_job(spec, speculate=self.options.speculate).futures[0]

    async def map(
        self,
        function: Callable[..., Any],
        *iterables: Iterable[Any],
        chunksize: int = 1,
        window: int = MAP_WINDOW_DEFAULT,
        options: CallOptions | None = None,
    ) -> AsyncIterator[Any]:
        """The results of `function` over the iterables, in order, with about `window` calls in flight."""
        check_whole("chunksize", chunksize, 1, 1 << 20)
        check_whole("window", window, 1, 1 << 24)
        options = options or self.options
        common = calls.encode_function(function, capture_output=options.capture_output, chunked=True)
        chunks = calls.encode_chunks(iterables, chunksize)
        in_flight_max = max(1, window // chunksize)
        pending: deque[tuple[asyncio.Future[Any], AsyncJob]] = deque()
        try:
            while True:
                while len(pending) * 2 <= in_flight_max:
                    size = min(MAP_JOB_TASKS, in_flight_max - len(pending))
                    payloads = list(itertools.islice(chunks, size))
                    if not payloads:
                        break
                    spec = options.job(function_name(function), common, payloads)
                    job = self.submit_job(spec, speculate=options.speculate)
                    pending.extend((future, job) for future in job.futures)
                if not pending:
                    return
                for value in await pending[0][0]:
                    yield value
                pending.popleft()
        finally:
            for job in {job.job_id: job for _, job in pending}.values():
                job.cancel()

    def with_options(self, **changes: Any) -> AsyncClient:
        """This client with other `CallOptions`; it shares the links, and ends with the client it is made of."""
        view = copy.copy(self)
        view.options = replace(self.options, **changes)
        return view

    def cancel(
        self, what: AsyncJob | asyncio.Future[Any] | Iterable[asyncio.Future[Any]], *, running: bool = False
    ) -> None:
        """Cancel a job, a future or several, as far as they have not started; with `running` a whole job is stopped."""
        if isinstance(what, AsyncJob):
            what.cancel(running=running)
            return
        for future in [what] if isinstance(what, asyncio.Future) else what:
            future.cancel()

    async def gather(self, futures: Iterable[asyncio.Future[Any]]) -> list[Any]:
        """All results in the order given; raises the first failure."""
        return list(await asyncio.gather(*futures))
