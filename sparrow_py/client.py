"""The client library: `Client` for threads, on top of a `Session` that runs in a loop of its own.

`submit` calls made in quick succession for the same function travel as one job, so a loop of
submits costs little more than a `map`, and its tasks are sampled as one batch (Sparrow §3.1).
"""

from __future__ import annotations

import contextlib
import math
import operator
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, as_completed, wait
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from sparrow_py import calls
from sparrow_py.access.credentials import OPEN
from sparrow_py.access.principals import check_secret
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
    inputs_of,
    with_module,
)
from sparrow_py.cluster_access import ClusterAccess
from sparrow_py.cluster_nodes import NODE_COLUMNS, NodeStatus, node_row
from sparrow_py.connection import Connection, connection_to
from sparrow_py.counted import counted
from sparrow_py.errors import InvalidRequest, JobDetached, ResultLost, SparrowError, WaitRefused
from sparrow_py.futures.interrupts import stopping_on_interrupt
from sparrow_py.futures.late_condition import all_ended
from sparrow_py.futures.late_event import LateEvent
from sparrow_py.futures.map_results import MapResults
from sparrow_py.futures.progress_bar import progress_bar, show_progress
from sparrow_py.futures.running import WhetherRunning
from sparrow_py.futures.task_future import TaskFuture
from sparrow_py.job import GIVEN_MAX, JobReport, JobSpec, TaskSpec, check_name, check_number, new_job_id, stage_of
from sparrow_py.processes import process_bound
from sparrow_py.processes.process_bound import StaysHere
from sparrow_py.session.job_sink import JobSink
from sparrow_py.session.large_inputs import is_large
from sparrow_py.session.letting_go import RETENTION_S, Told, check_retention, detached, let_go_again
from sparrow_py.session.loop_thread import LoopThread
from sparrow_py.session.session import CONNECT_TIMEOUT_S, HEARTBEAT_S, SUBMIT_TIMEOUT_S, Session
from sparrow_py.speculation import Speculation, check_job
from sparrow_py.stored_values import CallSpec
from sparrow_py.task_context import (
    KEEPS_SLOT_S,
    RunningTask,
    running_task,
    task_that_waits,
    warn_of_nesting,
    without_slot,
)
from sparrow_py.wire import messages as m
from sparrow_py.wire.addresses import sources_of_environment

if TYPE_CHECKING:
    from opentelemetry.trace import SpanContext, TracerProvider

    from sparrow_py.actor import ActorCall, ActorHandle
    from sparrow_py.actors.owner import Actors
    from sparrow_py.cluster import LocalCluster, SchedulerHere
    from sparrow_py.remote_cluster import RemoteCluster
    from sparrow_py.session.job_spans import JobSpans

T = TypeVar("T")
CANCEL_ANSWER_TIMEOUT_S = 30.0
REPR_TIMEOUT_S = 1.0
"""What a notebook shows of a client waits so long for the list of nodes."""


class Job(StaysHere):
    """A job in flight: its tasks' futures, as a sequence, as they complete, or as a whole."""

    def __init__(
        self,
        thread: LoopThread,
        session: Session,
        jobs: dict[str, Job],
        spec: JobSpec,
        *,
        task_count: int,
        speculate: Speculation | None = None,
        trace_parent: SpanContext | None = None,
    ) -> None:
        """`jobs`: those of the client that have not ended, by their ids."""
        self._thread = thread
        self._session = session
        self._jobs = jobs
        self.spec = spec
        self.speculate = speculate
        self.job_id = spec.job_id
        self.trace_parent = trace_parent
        """The span that was current for whoever has made the job; None if it is not traced."""
        self.submitted_at_s = 0.0
        self.retention_s = RETENTION_S
        """How long after its end it is kept if the client lets go of it."""
        self.futures: list[TaskFuture] = [TaskFuture(self, task) for task in range(task_count)]
        """The futures of all stages, in the order of the stages."""
        self._decided = LateEvent()
        self._error: Exception | None = None
        self._whether_running: WhetherRunning | None = None

    @property
    def session(self) -> object:
        """The session of its client."""
        return self._session

    def is_in_current_trace(self) -> bool:
        """Whether the span that is current here is the one in which the job was made."""
        tracing = self._session.tracing
        return tracing is None or tracing.parent() == self.trace_parent

    def __iter__(self) -> Iterator[TaskFuture]:
        """The futures, as they complete. Ctrl-C while it waits for the next stops the job."""
        with stopping_on_interrupt(self.futures):
            yield from as_completed(self.futures)  # type: ignore[misc]

    def __len__(self) -> int:
        return len(self.futures)

    def __repr__(self) -> str:
        done = sum(future.done() for future in self.futures)
        return f"<Job {self.job_id} {self.spec.name!r}, {done} of {counted(len(self.futures), 'task')} done>"

    def _repr_html_(self) -> str:
        """For notebooks: how far its stages are, and tasks that failed or took longest."""
        from sparrow_py.futures import task_rows  # Which programs do without.
        from sparrow_py.futures.stage_progress import COLUMNS, stage_progress
        from sparrow_py.html_tables import html_block, html_table

        rows = [stage.row() for stage in stage_progress(self.spec, self.futures)]
        tasks = html_table(task_rows.COLUMNS, task_rows.task_rows(self.futures))
        return html_block(f"Job {self.spec.name or self.spec.app}", [("id", self.job_id)], COLUMNS, rows, tasks)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        """For notebooks with ipywidgets: the same, until its tasks have ended."""
        from sparrow_py.futures.live_tables import live_mimebundle  # Which programs do without.

        return live_mimebundle(self._repr_html_, lambda: all_ended(self.futures, 0))

    def stage(self, name: str) -> list[TaskFuture]:
        """The futures of one stage; `KeyError` if there is none of this name."""
        names = [stage.name for stage in self.spec.as_stages()]
        first = 0
        for stage in self.spec.as_stages():
            if stage.name == name:
                return self.futures[first : first + len(stage.tasks)]
            first += len(stage.tasks)
        raise KeyError(f"no stage {name!r}; the job has: {', '.join(names)}")

    def app_of(self, task: int) -> str:
        """The app of this task's stage."""
        spec = self.spec
        return stage_of(spec, task).app if spec.stages else spec.app

    def check_may_wait(self) -> None:
        """`RuntimeError` on the client's own loop, which would wait for itself."""
        self._thread.check_not_here()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for all outcomes; False if `timeout_s` ran out (None: for ever)."""
        self.check_may_wait()
        return all_ended(self.futures, timeout_s)

    def accepted(self, timeout_s: float | None = None) -> None:
        """Wait until a scheduler has accepted the job; raises `Refused` or `InvalidRequest` if none does, and
        `SparrowError` if the client is closed before, `TimeoutError` if that takes longer than `timeout_s` (None: for
        ever).

        Returns for a job that has ended before, too: one that was cancelled before any scheduler took it.
        """
        if not self._decided.is_set():
            self.check_may_wait()
        if not self._decided.wait(timeout_s):
            raise TimeoutError(f"no scheduler accepted job {self.job_id} within {timeout_s} s")
        if self._error is not None:
            raise self._error

    def results(self, timeout_s: float | None = None) -> list[Any]:
        """All results in submission order; raises the first failure, and `TimeoutError` if not all are there after
        `timeout_s` (None: for ever). Ctrl-C while it waits stops the job."""
        with stopping_on_interrupt(self.futures):
            if not self.wait(timeout_s):
                raise TimeoutError(f"job {self.job_id} did not end within {timeout_s} s")
            return [future.result() for future in self.futures]

    def report(self, timeout_s: float | None = None) -> JobReport:
        """What became of every task, once all are done; raises what `accepted` raises if the job was not accepted, and
        `TimeoutError` if it has not ended after `timeout_s` (None: for ever)."""
        if not self.wait(timeout_s):
            raise TimeoutError(f"job {self.job_id} did not end within {timeout_s} s")
        if self._error is not None:
            raise self._error
        return JobReport(self.job_id, [future.report for future in self.futures if future.report is not None])

    def find_out_whether_running(self, task: int) -> None:
        """Ask whether this task has left the queue, unless that is known."""
        if self._whether_running is None:
            self._whether_running = WhetherRunning(self)
        self._whether_running.find_out(task)

    def ask_placed(self, tasks: list[int], answered: Callable[[], None]) -> bool:
        """Ask the scheduler which of these tasks have left the queue. `answered` is called when they know, or when
        there is nobody to ask; False if the client is closed, and nobody calls it."""
        asked = frozenset(tasks)

        def told(placed: Sequence[int]) -> None:
            for task in asked.intersection(placed):
                self.futures[task].placed()
            answered()

        def ask() -> None:
            if not self._session.ask_placed(self.job_id, tasks, told):
                answered()

        try:
            self._thread.call_soon(ask)
        except RuntimeError:
            return False
        return True

    def runs_here(self) -> bool:
        """Whether the caller is on the loop of the job's client."""
        return self._thread.runs_here()

    def cancel(self, *, running: bool = False) -> None:
        """Cancel what has not started. What runs goes on, and its outcome comes; with `running` it is stopped."""
        self._thread.call_soon(lambda: self._session.cancel_job(self.job_id, running=running))

    def cancel_futures(self, futures: Sequence[TaskFuture], *, running: bool = False) -> int:
        """Cancel those of these futures that have not started, and with `running` those that have; returns how many
        were cancelled."""
        asked = [future for future in futures if not future.done() and (running or not future.is_known_to_run())]
        for future in asked:
            future._cancel_answer = future._cancel_answer or LateEvent()
        tasks = [future.task for future in asked]
        self._thread.call_soon(lambda: self._session.cancel_tasks(self.job_id, tasks, running=running))
        if not self._thread.runs_here():
            until_s = time.monotonic() + CANCEL_ANSWER_TIMEOUT_S
            for future in asked:
                if not future.done() and future._cancel_answer is not None:
                    future._cancel_answer.wait(max(0.0, until_s - time.monotonic()))
        return sum(future.cancelled() for future in asked)

    def forked(self, error: SparrowError) -> None:
        """In a child of the process: what becomes of the job the parent is told."""
        self._decided = LateEvent()
        self._error = error
        self._decided.set()
        for future in self.futures:
            future.forked(error)

    def cancel_soon(self, tasks: list[int], *, running: bool) -> None:
        """Cancel these tasks, without waiting until they are; with `running` even if they run. Nothing if the client is
        closed."""
        with contextlib.suppress(RuntimeError):
            self._thread.call_soon(lambda: self._session.cancel_tasks(self.job_id, tasks, running=running))

    @property
    def detached(self) -> bool:
        """Whether the client has let go of it (`Client.detach`)."""
        return isinstance(self._error, JobDetached)

    def outcomes(self) -> list[m.Outcome]:
        """All outcomes so far, of large results with the reference."""
        known = [future.reference or future.outcome for future in self.futures]
        return [outcome for outcome in known if outcome is not None]

    # ---- the session's sink, on the client's loop ---------------------------------------------

    def on_accepted(self) -> None:
        self._decided.set()

    def on_refused(self, error: Exception) -> None:
        """Nobody says any more what becomes of the job: it is refused, let go of, or its client is closed."""
        self._error = error
        self._decided.set()
        for future in self.futures:
            if future.done():
                future.answered()
            else:
                future.refuse(error)
        self.on_ended()

    def on_ended(self) -> None:
        self._decided.set()
        if self._jobs.get(self.job_id) is self:
            del self._jobs[self.job_id]


class _Sink(JobSink):
    """Tells a `Job` and its futures what the session tells of it."""

    __slots__ = ("_futures", "_job")

    def __init__(self, job: Job) -> None:
        self._job = job
        self._futures = job.futures

    def accepted(self) -> None:
        self._job.on_accepted()

    def refuse(self, error: SparrowError) -> None:
        self._job.on_refused(error)

    def placed(self, task: int) -> None:
        self._futures[task].placed()

    def fetching(self, outcome: m.Outcome) -> None:
        self._futures[outcome.task].reference = outcome

    def settle(self, outcome: m.Outcome, lost: ResultLost | None = None) -> None:
        self._futures[outcome.task].settle(outcome, lost)

    def not_cancelled(self, task: int) -> None:
        self._futures[task].placed()
        self._futures[task].answered()

    def finish(self) -> None:
        self._job.on_ended()


def _without_slot_if_long(task: RunningTask, started: Future[None]) -> None:
    """Wait for what is done soon, unless no scheduler answers; then the task's slot is others' meanwhile."""
    wait([started], KEEPS_SLOT_S)
    if not started.done():
        with contextlib.suppress(WaitRefused):
            task.without_slot(lambda: wait([started]))
    started.result()


class Client(ClusterAccess):
    """Submits jobs to schedulers. Thread-safe; close it, or use it in a `with` block.

    Parameters
    ----------
    schedulers: addresses ("host:port", "file:PATH", "dns:NAME:PORT"), a `LocalCluster`, a `SchedulerHere`
        (a scheduler in this process), or None: those that SPARROW_SCHEDULER names, or, where it is not set, an
        embedded cluster of this machine's cores, which ends with the client.
    user: whose work this is, for fair queueing; default: the token's or certificate's user, else the system's user
        name.
    token: the cluster's or the user's secret; default: from SPARROW_TOKEN.
    tls: the files for mutual TLS; default: from SPARROW_TLS_CERT, SPARROW_TLS_KEY and SPARROW_TLS_CA, if they are set.
    connect_timeout_s: how long to wait for a first scheduler before `NoScheduler` is raised; if each refuses the token
        or certificate, it is raised at once.
    submit_timeout_s: how long a job is offered again to schedulers that refuse it for now, or when its own was lost.
    heartbeat_s: a scheduler that says nothing for about so long is taken for lost, and its jobs to another.
    options: how calls are run unless `with_options` says otherwise.
    forward_output: of the embedded cluster that the client starts: whether what tasks print, and the daemons'
        warnings, reach this program's `sys.stdout` and `sys.stderr` (see `LocalCluster`).
    tracing: whether spans of jobs and tasks are made with OpenTelemetry's global tracer provider, or with this one.
    """

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
        spans = None if tracing is False else _spans_of(tracing)
        self.options = checked_options(options)
        connection = self._connection = connection_to(schedulers, token, tls, forward_output=forward_output)
        self._open(
            lambda: Session(
                connection.sources,
                here=connection.here,
                cluster=connection.watched,
                access=connection.access,
                user=user,
                connect_timeout_s=connect_timeout_s,
                submit_timeout_s=submit_timeout_s,
                heartbeat_s=heartbeat_s,
                tracing=spans,
            )
        )

    @classmethod
    def current(cls) -> Client:
        """In a task of the Python app: the task's own client of the cluster that it runs on, for its user; it needs
        neither an address nor a secret.

        The task gives its slot back while it waits for a scheduler, and for futures (`result`, `wait`, `as_completed`,
        `gather`, `map`, …), and gets one again before it goes on, ahead of new tasks. Jobs that it submits run before
        those of its own job. They end with the task: what has not ended then is cancelled. Each call within a task
        gives the same client.

        `NotInTask` elsewhere; `NoScheduler` if the scheduler lets tasks have no clients, or, as with its jobs, if none
        answers within 60 s: that of the task may be away for a while.
        `WaitRefused` is raised where a task waits, if `waiting_tasks_max` others of its node do.
        """
        task = running_task()

        def make() -> Client:
            from sparrow_py.session.relayed import RelayedSession  # Which other programs do without.

            client = cls.__new__(cls)
            client._connection = Connection((), OPEN)
            client._open(lambda: RelayedSession(task), partial(_without_slot_if_long, task))
            client.options = checked_options(None)
            return client

        found = task.client(make)
        assert isinstance(found, Client)
        return found

    def _open(
        self,
        make_session: Callable[[], Session],
        wait_for: Callable[[Future[None]], None] = lambda start: start.result(),
    ) -> None:
        """wait_for: waits for the session's start."""
        self._uploaded: Uploaded = ()
        self._jobs: dict[str, Job] = {}
        """The jobs that have not ended, by their ids; for the loop's thread alone."""
        self._refusal = ""
        """Why no more calls are taken though the client is open; empty while they are. Guarded by the thread's lock."""
        self._batches: list[_Batch] = []
        self._waking = False
        self._actors: Actors | None = None
        """Once it has made one; on the loop."""
        try:
            self._session = make_session()
            self._thread = LoopThread()
            process_bound.tell_of_forks(self)
            try:
                self._thread.run(self._session.start, wait_for)
            except BaseException:
                self._thread.stop()
                raise
        except BaseException:
            self._connection.close()
            raise

    def __repr__(self) -> str:
        return f"<Client of {self.described()}>"

    def _repr_html_(self) -> str:
        """For notebooks: its schedulers and, if they say so at once, the nodes."""
        from sparrow_py.html_tables import html_block  # Which programs do without.

        facts = [("schedulers", str(self._session)), ("state", "closed" if self.closed else f"jobs: {len(self._jobs)}")]
        return html_block("Client", facts, NODE_COLUMNS, [node_row(node) for node in self._nodes_at_once()])

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        """For notebooks with ipywidgets: the same, until it is closed."""
        from sparrow_py.futures.live_tables import live_mimebundle  # Which programs do without.

        return live_mimebundle(self._repr_html_, lambda: self.closed)

    def _nodes_at_once(self) -> list[NodeStatus]:
        """The nodes; none if no scheduler names any within `REPR_TIMEOUT_S`."""
        with self._thread.lock:
            if self.closed or self._thread.runs_here():
                return []
            asked = self._thread.begin(self._session.nodes())
        try:
            return asked.result(REPR_TIMEOUT_S)
        except (SparrowError, TimeoutError, CancelledError):
            asked.cancel()
            return []

    def described(self) -> str:
        """Its schedulers, its user and how many jobs it has, for reprs."""
        return f"{self._session}, " + ("closed" if self.closed else f"jobs: {len(self._jobs)}")

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def closed(self) -> bool:
        """Whether the client was closed, or is a forked child's copy: it takes no more calls."""
        return self._thread.closed

    def close(self) -> None:
        """End the client: what has not started is cancelled, futures not done end with an error. If this is interrupted
        (Ctrl-C), call it again."""
        self._thread.close(self._end)
        self._connection.close()

    def renew_token(self, token: str) -> None:
        """Show this token from now on, on links that stand, too: then the one before may be withdrawn."""
        shown = check_secret("token", token).shown
        self._thread.call_soon(lambda: self._session.renew_token(shown))

    def take_no_more(self, reason: str) -> None:
        """Refuse further calls and jobs with a `RuntimeError` that says the reason; those that were taken go on."""
        with self._thread.lock:
            self._refusal = self._refusal or reason

    # ---- submitting --------------------------------------------------------------------------

    def submit(self, function: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Run `function(*args, **kwargs)` on the cluster. What cannot be pickled is an error of the future."""
        return self._submit(self.options, function, args, kwargs)

    def _submit(
        self, options: CallOptions, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> TaskFuture:
        try:
            # Each time anew, and without the lock: what a function is may change between calls, and to
            # pickle runs the user's code.
            common = encoded_function(options, function, uploaded=self._uploaded)
            payload = calls.encode_arguments(args, kwargs)
            if isinstance(payload, CallSpec):  # Else the calls that travel with this one would fail with it.
                self._session.check_own(payload)
        except Exception as error:
            self._check_open()
            return self._failed_future(error)
        with self._thread.lock:
            self._check_open()
            if self._batches and self._batches[-1].takes(common, options, payload):
                future = self._batches[-1].add(payload)
            else:
                spec = options.job(calls.function_name(function), common, [])
                spec.job_id = new_job_id()
                batch = _Batch(self._new_job(spec, 0, options.speculate), common, options, are_large=is_large(payload))
                future = batch.add(payload)
                self._batches.append(batch)
            if not self._waking:
                self._thread.loop.call_soon_threadsafe(self._submit_batches)
                # Noted once it is so: where a signal's handler raises in between, the next call wakes the loop.
                self._waking = True
        return future

    def _failed_future(self, error: Exception) -> TaskFuture:
        job = self._new_job(JobSpec([], job_id=new_job_id()), 1)
        job.on_refused(error)
        return job.futures[0]

    def _new_job(self, spec: JobSpec, task_count: int, speculate: Speculation | None = None) -> Job:
        tracing = self._session.tracing
        return Job(
            self._thread, self._session, self._jobs, spec, task_count=task_count, speculate=speculate,
            trace_parent=None if tracing is None else tracing.parent(),
        )  # fmt: skip

    def _submit_batches(self) -> None:
        with self._thread.lock:
            batches, self._batches, self._waking = self._batches, [], False
        self._session.outgoing.begin()
        try:
            for batch in batches:
                self._submit_batch(batch)
        finally:
            self._session.outgoing.end()

    def _submit_batch(self, batch: _Batch) -> None:
        job = batch.finished()
        try:
            batch.options.check_calls(job.spec)
        except InvalidRequest as error:
            job.on_refused(error)
        else:
            self._start(job)

    def _start(self, job: Job) -> None:
        """Submit a valid job (on the loop)."""
        job.submitted_at_s = self._session.now_s()
        if self._thread.closed:
            job.on_refused(SparrowError("the client was closed before the job was submitted"))
            return
        if job.job_id in self._jobs:
            job.on_refused(InvalidRequest("job_id", job.job_id, "an id that no running job of this client has"))
            return
        self._jobs[job.job_id] = job
        try:
            self._session.submit(job.spec, _Sink(job), job.speculate, job.trace_parent)
        except SparrowError as error:
            job.on_refused(error)
        except BaseException as error:  # Something in it that messages cannot hold, or the user's code that it has.
            job.on_refused(SparrowError(f"the job cannot be sent: {error}"))
        else:
            if not job.futures:
                job.on_accepted()

    def submit_job(self, spec: JobSpec, *, progress: bool = False, speculate: Speculation | None = None) -> Job:
        """Submit a job of any app and return at once; `InvalidRequest` if the spec is invalid.

        spec: the job.
        progress: draw a bar on standard error, and return when all is done.
        speculate: submit tasks again that take too long (§3.4).
        """
        check_job(spec, speculate)
        spec = replace(spec, job_id=spec.job_id or new_job_id())
        job = self._new_job(spec, sum(len(stage.tasks) for stage in spec.as_stages()), speculate)
        with self._thread.lock:
            self._check_open()
            self._thread.loop.call_soon_threadsafe(self._start, job)
        if progress:
            with stopping_on_interrupt(job.futures):
                show_progress(job.futures, spec.name or spec.app)
        return job

    def submit_calls(
        self,
        function: Callable[..., Any],
        arguments: Iterable[tuple[Any, ...]],
        *,
        name: str = "",
        options: CallOptions | None = None,
        progress: bool = False,
    ) -> Job:
        """One job with a task `function(*args)` for each tuple (or list) of arguments. Pickling errors are raised here,
        and `InvalidRequest` for what is no tuple.

        name: of the job, for people; default: the function's.
        options: in place of the client's.
        progress: draw a bar on standard error, and return when all is done.
        """
        options = checked_options(options, self.options)
        spec = calls_job(options, function, arguments, name, self._uploaded)
        return self.submit_job(spec, progress=progress, speculate=options.speculate)

    def submit_stages(self, stages: Iterable[CallStage], *, name: str = "", options: CallOptions | None = None) -> Job:
        """One job of several stages of calls, a DAG: schedulers start each as soon as those before it have finished.

        Pickling errors are raised here, `InvalidRequest` if stages refer to ones that do not exist or to themselves.

        name: of the job, for people.
        options: in place of the client's.
        """
        options = checked_options(options, self.options)
        return self.submit_job(options.stages_job(name, stages, self._uploaded), speculate=options.speculate)

    def map(
        self,
        function: Callable[..., T],
        *iterables: Iterable[Any],
        timeout_s: float | None = None,
        chunksize: int = 1,
        window: int = MAP_WINDOW_DEFAULT,
        options: CallOptions | None = None,
        progress: bool = False,
    ) -> Iterator[T]:
        """The results of `function` over the iterables, in order. The first failure is raised in its place.

        Work starts now, not with the first `next`. Ctrl-C while it waits for a result stops what is in flight; what is
        in flight when the results are given up, or time runs out, is cancelled as far as it has not started.

        timeout_s: `TimeoutError` where a result is not there so many seconds after this call; None: never.
        chunksize: so many calls make one task.
        window: about so many calls are in flight at most, so the iterables may be endless.
        options: in place of the client's.
        progress: draw a bar on standard error while results are taken.
        """
        self._check_open()
        if timeout_s is not None:
            check_number("timeout_s", timeout_s, -math.inf, math.inf)
        options = checked_options(options, self.options)
        jobs = MapJobs(function, iterables, options, chunksize, window, self._uploaded)
        pending: deque[TaskFuture] = deque()

        def refill() -> None:
            while len(pending) < jobs.in_flight_max:
                spec = jobs.next(len(pending))
                if spec is None:
                    return
                pending.extend(self.submit_job(spec, speculate=options.speculate).futures)

        deadline_s = None if timeout_s is None else timeout_s + self._session.now_s()
        tasks = -(-min(map(operator.length_hint, iterables), default=0) // chunksize)
        with stopping_on_interrupt(pending):
            refill()
        start_bar = (lambda: progress_bar(jobs.name, tasks or None)) if progress else None
        return MapResults(self, pending, refill, jobs.in_flight_max, deadline_s, self._session.now_s).values(start_bar)

    # ---- actors ------------------------------------------------------------------------------

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
    ) -> ActorHandle:
        """An object `cls(*args, **kwargs)` in a leased task of its own, whose methods are called through the handle
        that is returned at once: `handle.method(...)` gives a future.

        max_restarts: how often it is constructed anew after it was lost with its process or node; then it is lost for
        good, and calls raise `ActorLost`. call_retries: how often a call is run again that it had when it was lost;
        without it no call runs twice. waiting_calls_max: calls that may wait for it; one more is `Refused`. advertise:
        at which address of this machine nodes reach this process; default: that by which it reaches its scheduler.

        The options of calls hold for its task. It ends with the client, or by `handle.stop()`. `InvalidRequest` for
        what cannot be an actor, and in tasks.
        """
        how = {"max_restarts": max_restarts, "call_retries": call_retries, "waiting_calls_max": waiting_calls_max}
        return self._actor(self.options, cls, args, kwargs, how, advertise)

    def _actor(
        self,
        options: CallOptions,
        cls: type,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        how: dict[str, int],
        advertise: str | None,
    ) -> ActorHandle:
        from sparrow_py.actor import ActorHandle  # Which programs do without.
        from sparrow_py.actors.methods import methods_of
        from sparrow_py.actors.owner import definition_of

        methods = methods_of(cls)
        self._connection.check_dialled(cls)
        definition = definition_of(options, self._uploaded, cls, args, kwargs, **how)

        async def make() -> ActorHandle:
            actor = self._own_actors().make(definition, advertise)
            return ActorHandle(self._thread, actor, methods)

        self._check_open()
        return self._thread.run(make)

    def _own_actors(self) -> Actors:
        from sparrow_py.actors.owner import Actors

        if self._actors is None:
            self._actors = Actors(self._session, self._connection.access.tls, self._session.local_host)
        return self._actors

    # ---- jobs that go on without the client --------------------------------------------------

    def detach(self, job: Job, *, retention_s: float | None = None) -> str:
        """Let go of the job, which goes on when this client and its program have ended; returns its id, with which any
        client of the user may `attach` to it.

        What becomes of its tasks, and what has become of them, its scheduler keeps in memory while it runs, and for
        `retention_s` after it has ended: unless given an hour, or as long as before if the job was attached to. Futures
        that are not done end with `JobDetached`. `InvalidRequest` for a job that cannot go on alone, `Refused` if its
        scheduler keeps no more: then the job stays with this client.
        """
        if not isinstance(job, Job) or job.session is not self._session:
            raise InvalidRequest("job", job, "a job of this client")
        if job.detached:
            raise InvalidRequest("job", job.job_id, "a job that has not been detached before")
        self._connection.check_outlives(job.job_id)
        kept_s = check_retention(retention_s, job.retention_s)
        job.accepted()

        def begin(told: Told) -> None:
            self._session.detach(job.spec, job.submitted_at_s, kept_s, job.outcomes, told)

        self._ask(begin, lambda: job.on_refused(detached(job.job_id)))
        return job.job_id

    def attach(self, job_id: str) -> Job:
        """The job of this user, with the id `job_id`, that a client has let go of (`detach`): with a future for each
        task. Functions and arguments of its calls do not come with it.

        How a task ended is told until a client has said that it has it, which it does at once: again only if the one
        before died, or its link broke, in the milliseconds between. `InvalidRequest` if no scheduler that can be
        reached keeps such a job, or has anything left to tell of it; `Refused` while another client is attached to it.
        """
        check_name("job_id", job_id, empty=False)
        jobs: list[Job] = []

        def sink_of(spec: JobSpec, age_s: float, retention_s: float | None) -> JobSink:
            job = self._new_job(spec, sum(len(stage.tasks) for stage in spec.as_stages()))
            job.submitted_at_s = self._session.now_s() - age_s
            job.retention_s = job.retention_s if retention_s is None else retention_s
            self._jobs[job_id] = job
            jobs.append(job)
            job.on_accepted()
            return _Sink(job)

        def given_up() -> None:
            let_go_again(jobs[0], self._session.detach)

        self._ask(lambda told: self._session.attach(job_id, sink_of, told), lambda: None, given_up)
        return jobs[0]

    def _ask(
        self, ask: Callable[[Told], None], done: Callable[[], None], given_up: Callable[[], None] = lambda: None
    ) -> None:
        """Do this on the loop, and wait until it says how it went; `done` is called there if it went well, and then
        `given_up` in a later event if who waited was interrupted."""
        self._thread.check_not_here()
        answer: Future[None] = Future()

        def told(error: SparrowError | None) -> None:
            if error is None:
                done()
            if not answer.set_running_or_notify_cancel():
                if error is None:
                    self._thread.loop.call_soon(given_up)
            elif error is None:
                answer.set_result(None)
            else:
                answer.set_exception(error)

        try:
            with self._thread.lock:
                self._check_open()
                self._thread.loop.call_soon_threadsafe(ask, told)
            answer.result()
        except BaseException:
            if not answer.cancel() and answer.exception() is None:  # It has come meanwhile.
                with contextlib.suppress(RuntimeError):  # The loop may have ended.
                    self._thread.loop.call_soon_threadsafe(given_up)
            raise

    def upload_file(self, path: str | os.PathLike[str], *, replaces_installed: bool = False) -> None:
        """Ship the `.py` file at this path, or the directory with an `__init__.py`, with all calls from now on, for
        their tasks to import. It travels as it is now; after a change call this again. Where the options of a call have
        a module of that name (`CallOptions.modules`), that one is shipped.

        `InvalidRequest` for what cannot travel, and for the name of an installed module unless `replaces_installed`.
        """
        self._uploaded = with_module(self._uploaded, path, replaces_installed=replaces_installed)

    def with_options(self, **changes: Any) -> CallsWithOptions:
        """This client with these changes of its `CallOptions`: `client.with_options(prefetch=16).submit(f, x)`."""
        return CallsWithOptions(self, replace(self.options, **changes))

    # ---- waiting and cancelling --------------------------------------------------------------

    def watch(self, *jobs: Job, interval_s: float = 0.5) -> None:
        """Show a table of how far these jobs are until they have ended: in a notebook in the cell, in a terminal on
        standard error, and elsewhere, as in a log, there once at the end.

        It changes every `interval_s`. Ctrl-C ends the table; the jobs go on. `InvalidRequest` for what is no job.
        """
        from sparrow_py.futures.progress_table import watch  # Which programs do without.

        for job in jobs:
            if not isinstance(job, Job):
                raise InvalidRequest("jobs", job, "jobs of a client")
            job.check_may_wait()
        watch(jobs, interval_s)

    def gather(self, futures: Iterable[Future[T]]) -> list[T]:
        """All results of these futures, in the order given; raises the first failure. Ctrl-C while it waits stops those
        tasks. `InvalidRequest` for what are no futures."""
        futures = _futures(futures)
        with stopping_on_interrupt(futures):
            if task_that_waits() is None or all(future.done() for future in futures):
                return [future.result() for future in futures]
            return without_slot(lambda: [future.result() for future in futures])  # Once, not for each of them.

    def cancel(self, what: Job | Future[Any] | Iterable[Future[Any]], *, running: bool = False) -> None:
        """Cancel what is given, a job, a future or several, as far as it has not started; with `running` stop it. A
        call of an actor that has begun goes on in either case."""
        if isinstance(what, Job):
            what.cancel(running=running)
            return
        futures = [what] if isinstance(what, Future) else _futures(what)
        by_job: dict[str, list[TaskFuture]] = {}
        calls_of_actors: list[ActorCall] = []
        for future in futures:
            if not isinstance(future, TaskFuture):
                calls_of_actors.append(_call_of_actor(future))
            elif not future.done():
                by_job.setdefault(future.job.job_id, []).append(future)
        for call in calls_of_actors:
            call.cancel()
        for asked in by_job.values():
            asked[0].job.cancel_futures(asked, running=running)

    def unfinished(self) -> list[Future[Any]]:
        """The futures that are not done, those of calls of actors at the end; none of a closed client."""
        self._thread.check_not_here()
        with self._thread.lock:
            if self._thread.closed:
                return []
            futures: list[Future[Any]] = [future for batch in self._batches for future in batch.futures()]
            # The rest is the loop's; a job that moves from the one to the other meanwhile is seen at least once.
            current = self._thread.begin(self._current_futures())
        futures += current.result()
        return [future for future in futures if not future.done()]

    async def _current_futures(self) -> list[Future[Any]]:
        return [future for job in self._jobs.values() for future in job.futures] + self._actor_calls()

    def _actor_calls(self) -> list[Future[Any]]:
        """The futures of this client's calls of actors, on the loop."""
        awaited = () if self._actors is None else self._actors.awaited()
        return [waits for waits in awaited if isinstance(waits, Future)]

    def cancel_unfinished(self) -> None:
        """Cancel all that has not started, without waiting until it is."""
        with self._thread.lock:
            if not self._thread.closed:
                self._thread.loop.call_soon_threadsafe(self._cancel_unfinished)

    def _cancel_unfinished(self) -> None:
        self._submit_batches()
        for job in list(self._jobs.values()):
            self._session.cancel_tasks(job.job_id, [future.task for future in job.futures if not future.done()])
        for call in self._actor_calls():
            call.cancel()

    # ---- the loop ----------------------------------------------------------------------------

    def _check_open(self) -> None:
        """`RuntimeError` if no more is taken. With the thread's lock held it stays so: what is put on the loop under it
        comes before the client's end."""
        if self._refusal or self._thread.closed:
            raise RuntimeError(self._refusal or self._thread.why_closed)

    def runs_here(self) -> bool:
        """Whether the caller is on the client's own loop, as done-callbacks are."""
        return self._thread.runs_here()

    async def _end(self) -> None:
        if self._actors is not None:
            self._actors.close()
        with self._thread.lock:
            jobs = [batch.finished() for batch in self._batches] + list(self._jobs.values())
        self._session.core.abandon()
        for job in jobs:
            job.on_refused(SparrowError("the client was closed before the task's outcome came"))
        await self._session.stop()
        if self._actors is not None:
            await self._actors.wait_closed()

    def forked(self) -> None:
        """In a child of the process: this client is the parent's, and closed here, without a word to anybody."""
        why = f"the client cannot be used here: {process_bound.INHERITED}"
        if not self._thread.forked(why):
            return
        self._refusal = why
        for job in [*(batch.finished() for batch in self._batches), *self._jobs.values()]:
            job.forked(SparrowError(why))
        if self._actors is not None:
            self._actors.forked(why)
        self._session.forked()


def _futures(given: object) -> list[Future[Any]]:
    """Those that are given; `InvalidRequest` for anything else."""
    if not isinstance(given, Iterable):
        raise InvalidRequest("futures", given, "futures of this client")
    futures = list(given)
    for future in futures:
        if not isinstance(future, Future):
            raise InvalidRequest("futures", future, "futures of this client")
    return futures


def _call_of_actor(future: object) -> ActorCall:
    """The future; `InvalidRequest` if it is none of a call of an actor, and none of a task either."""
    from sparrow_py.actor import ActorCall  # Which programs do without.

    if not isinstance(future, ActorCall):
        raise InvalidRequest("futures", future, "futures of this client")
    return future


def _spans_of(tracing: bool | TracerProvider) -> JobSpans | None:
    from sparrow_py.session.job_spans import job_spans  # Which other programs do without.

    return job_spans(tracing)


class CallsWithOptions(StaysHere):
    """A client seen with other options; it shares the client's links and ends with it."""

    def __init__(self, client: Client, options: CallOptions) -> None:
        self._client = client
        self.options = options

    def with_options(self, **changes: Any) -> CallsWithOptions:
        """The same client with these options changed, too."""
        return CallsWithOptions(self._client, replace(self.options, **changes))

    def submit(self, function: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Run `function(*args, **kwargs)` on the cluster. See `Client.submit`."""
        return self._client._submit(self.options, function, args, kwargs)

    def submit_calls(self, function: Callable[..., Any], arguments: Iterable[tuple[Any, ...]], **how: Any) -> Job:
        """One job with a task per tuple of arguments. See `Client.submit_calls`."""
        return self._client.submit_calls(function, arguments, options=self.options, **how)

    def submit_stages(self, stages: Iterable[CallStage], **how: Any) -> Job:
        """One job of several stages of calls. See `Client.submit_stages`."""
        return self._client.submit_stages(stages, options=self.options, **how)

    def map(self, function: Callable[..., T], *iterables: Iterable[Any], **how: Any) -> Iterator[T]:
        """The results of `function` over the iterables, in order. See `Client.map`."""
        return self._client.map(function, *iterables, options=self.options, **how)

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
    ) -> ActorHandle:
        """An object in a leased task of its own. See `Client.actor`."""
        how = {"max_restarts": max_restarts, "call_retries": call_retries, "waiting_calls_max": waiting_calls_max}
        return self._client._actor(self.options, cls, args, kwargs, how, advertise)


class _Batch:
    """Calls of one function that have been submitted and not yet been sent: one job."""

    def __init__(self, job: Job, common: bytes, options: CallOptions, *, are_large: bool) -> None:
        """are_large: nodes are given what is in the arguments first. If that fails, only such calls do."""
        self.common = common
        self.options = options
        self._job = job
        self._inputs = 0
        self._are_large = are_large
        self._calls: list[tuple[bytes | TaskSpec, TaskFuture]] = []
        """Pairs in one list, as a signal's handler that raises may come between two."""

    def takes(self, common: bytes, options: CallOptions, payload: bytes | TaskSpec) -> bool:
        """Whether this call of the function with these common bytes may join."""
        return (
            self.common == common
            and self.options is options
            and len(self._calls) < m.TASKS_PER_MESSAGE_MAX
            and self._are_large == is_large(payload)
            and (type(payload) is bytes or self._inputs + inputs_of(payload) <= GIVEN_MAX)
            and (self._job.trace_parent is None or self._job.is_in_current_trace())
        )

    def add(self, payload: bytes | TaskSpec) -> TaskFuture:
        """One more call, as the job's next task."""
        future = TaskFuture(self._job, 0)
        call = (payload, future)
        # Now, as a finalizer that the collector calls while objects are made may submit a call, too.
        future.task = len(self._calls)
        self._calls.append(call)
        if type(payload) is not bytes:
            self._inputs += inputs_of(payload)
        return future

    def futures(self) -> list[TaskFuture]:
        """Of its calls."""
        return [future for _, future in self._calls]

    def finished(self) -> Job:
        """The job with all of them. No more may join."""
        self._job.spec.tasks = [payload for payload, _ in self._calls]
        self._job.futures[:] = self.futures()
        return self._job
