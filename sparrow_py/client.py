"""The client library: `Client` for threads, on top of a `Session` that runs in a loop of its own.

`submit` calls made in quick succession for the same function travel as one job, so a loop of
submits costs little more than a `map`, and its tasks are sampled as one batch (Sparrow §3.1).
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import operator
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, InvalidStateError, as_completed, wait
from concurrent.futures._base import CANCELLED, PENDING, RUNNING  # As all who write futures of their own need them.
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from sparrow_py import calls
from sparrow_py.access.credentials import Access, client_token
from sparrow_py.access.principals import check_secret
from sparrow_py.auth import TLS
from sparrow_py.call_jobs import CallOptions, CallStage, argument_payloads, checked_options
from sparrow_py.calls import function_name
from sparrow_py.cluster import SchedulerHere
from sparrow_py.cluster_nodes import NodeStatus
from sparrow_py.errors import InvalidRequest, ResultLost, SparrowError, TaskCancelled
from sparrow_py.futures.running import WhetherRunning
from sparrow_py.job import (
    FINISHED,
    BlobRef,
    JobReport,
    JobSpec,
    StageSpec,
    TaskReport,
    TaskStatus,
    check_whole,
    new_job_id,
)
from sparrow_py.processes import process_bound
from sparrow_py.processes.process_bound import StaysHere
from sparrow_py.session.session import CONNECT_TIMEOUT_S, HEARTBEAT_S, SUBMIT_TIMEOUT_S, Session
from sparrow_py.speculation import Speculation, check_speculation
from sparrow_py.task_context import warn_of_nesting
from sparrow_py.wire import messages as m
from sparrow_py.wire.addresses import sources_of_environment

if TYPE_CHECKING:
    from sparrow_py.cluster import LocalCluster

T = TypeVar("T")
CLOSED = "the client is closed"
MAP_WINDOW_DEFAULT = 20_000
"""Tasks of a `map` in flight at a time."""
MAP_JOB_TASKS = 5_000
"""Tasks that a `map` submits as one job."""
CANCEL_ANSWER_TIMEOUT_S = 30.0
callbacks_log = logging.getLogger("concurrent.futures")
"""Where futures' callbacks say what went wrong."""


def task_report(outcome: m.Outcome, submitted_at_s: float) -> TaskReport:
    """An outcome as the user sees it."""
    started, service = outcome.started_at_s, outcome.service_s
    return TaskReport(
        task=outcome.task,
        status=outcome.status,
        attempts=outcome.attempts,
        node=outcome.node,
        error=outcome.error,
        submitted_at_s=submitted_at_s,
        reserved_at_s=outcome.reserved_at_s,
        started_at_s=started,
        finished_at_s=None if started is None or service is None else started + service,
        service_s=service,
        stdout=outcome.stdout,
        stderr=outcome.stderr,
    )


def outcome_value(outcome: m.Outcome, app: str) -> tuple[Any, BaseException | None]:
    """(value, None) of a task that finished, (None, what to raise) of any other.

    The value of a large result that was not fetched, as of a stage that others come after, is its reference.
    """
    if outcome.status is not FINISHED:
        if outcome.status is TaskStatus.CANCELLED:
            return None, task_cancelled(outcome)
        return None, calls.failure(outcome, app)
    if isinstance(outcome.result, BlobRef):
        return outcome.result, None
    if app != calls.APP:
        return bytes(outcome.result), None
    try:
        return calls.decode_value(outcome), None
    except BaseException as error:  # Unpickling runs the user's code, which may raise anything.
        return None, calls.not_unpickled(outcome, error)


def task_cancelled(outcome: m.Outcome) -> TaskCancelled:
    """Of a task that ended so."""
    return TaskCancelled(f"task {outcome.task} was cancelled: {outcome.error}")


class TaskFuture(StaysHere, Future[Any]):
    """A task's `concurrent.futures.Future`. `task` is its position in `job`, `outcome` what the scheduler said."""

    def __init__(self, job: Job, task: int) -> None:
        super().__init__()
        self.job = job
        self.task = task
        self.outcome: m.Outcome | None = None
        self._cancel_answer: threading.Event | None = None

    @property
    def report(self) -> TaskReport | None:
        """What became of the task, once it is done."""
        return None if self.outcome is None else task_report(self.outcome, self.job.submitted_at_s)

    def cancel(self) -> bool:
        """Cancel the task if it has not started; asks the scheduler, and waits for its answer.

        Called from a done-callback it cannot wait: then it returns False, and the task may still
        end cancelled.
        """
        if self.done() or self.is_known_to_run():
            return self.cancelled()
        return self.job.cancel_futures([self]) == 1

    def running(self) -> bool:
        """Whether the task has left the queue, and is not done: it runs, or is about to (with `prefetch` it may wait at
        its node).

        Once true it stays so until the task is done, though it may wait again if its node is lost. As long as it is
        not known to run its scheduler is asked, at most every 0.1 s for each 200 tasks of a job: such a call takes a
        round trip, others nothing. A scheduler that does not answer within 1 s is not waited for, and neither does a
        done-callback wait: then the answer is what was known before.
        """
        if self._state == PENDING:
            self.job.find_out_whether_running(self.task)
        return super().running()

    def is_known_to_run(self) -> bool:
        """As `running`, without asking anybody."""
        return super().running()

    def is_pending(self) -> bool:
        """Whether it is not done, and not known to run."""
        return self._state == PENDING

    def result(self, timeout: float | None = None) -> Any:
        """The task's value; raises its exception, or `TaskCancelled` with the reason if it was cancelled."""
        self._check_may_wait()
        try:
            return Future.result(self, timeout)
        except CancelledError as error:
            raise self._told_cancelled(error) from None
        finally:
            del self  # As the library's: else an exception would refer to itself, by way of its traceback.

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """The task's exception, or None; raises `TaskCancelled` with the reason if it was cancelled."""
        self._check_may_wait()
        try:
            return Future.exception(self, timeout)
        except CancelledError as error:
            raise self._told_cancelled(error) from None
        finally:
            del self

    def _check_may_wait(self) -> None:
        """`RuntimeError` if it would wait for itself: in a done-callback."""
        if self._state in (PENDING, RUNNING):
            self.job.check_may_wait()

    def _told_cancelled(self, error: CancelledError) -> CancelledError:
        """The error, or what is told in its place, if it is not the task's own."""
        return task_cancelled(self.outcome) if self.cancelled() and self.outcome is not None else error

    def add_done_callback(self, fn: Callable[[Future[Any]], object]) -> None:
        """As every future's; where `fn` is called on the client's own loop, anything that it raises is logged."""
        super().add_done_callback(partial(_call_back, fn))

    def forked(self, error: SparrowError) -> None:
        """In a child of the process: nothing will come of it here, and the parent's callbacks are not for the child."""
        self._condition, self._cancel_answer = threading.Condition(), None
        self._done_callbacks: list[Callable[[Future[Any]], object]] = []
        if not self.done():
            for waiter in self._waiters:
                vars(waiter).update(event=threading.Event(), lock=threading.Lock())
            self.set_exception(error)

    # ---- its end, on the client's loop --------------------------------------------------------

    def placed(self) -> None:
        """The task has left the queue: the future is running, unless it is done."""
        with self._condition:
            if self._state == PENDING:
                self.set_running_or_notify_cancel()

    def settle(self, outcome: m.Outcome, lost: ResultLost | None = None) -> None:
        """The task's outcome has come; `lost` if its result could not be fetched."""
        self.outcome = outcome
        value, error = (None, lost) if lost is not None else outcome_value(outcome, self.job.app_of(self.task))
        cancelled = outcome.status is not FINISHED and outcome.status is TaskStatus.CANCELLED
        self._end(value, error, cancelled=cancelled)

    def refuse(self, error: SparrowError) -> None:
        """The task's job was not accepted."""
        self._end(None, error)

    def _end(self, value: Any, error: BaseException | None, *, cancelled: bool = False) -> None:
        try:
            if error is None:
                self.set_result(value)
            elif cancelled:
                self._end_cancelled()
            else:
                self.set_exception(error)
        except InvalidStateError:
            pass  # Its user has set it, and it stays so.
        if self._state == CANCELLED:  # By its user, perhaps.
            self._wake_waiters()
        self.answered()

    def _end_cancelled(self) -> None:
        with self._condition:
            if self._state == RUNNING:  # In which no Future lets itself be cancelled; but the task was stopped.
                self._state = PENDING
        super().cancel()

    def _wake_waiters(self) -> None:
        """Have `wait` and `as_completed` see that the future is cancelled."""
        with self._condition:
            if self._state == CANCELLED:
                self.set_running_or_notify_cancel()

    def answered(self) -> None:
        """Who asked to cancel the task has an answer."""
        if self._cancel_answer is not None:
            self._cancel_answer.set()


def _call_back(fn: Callable[[Future[Any]], object], future: Future[Any]) -> None:
    """Call a done-callback. `Future` logs each `Exception`; on the client's loop what is none would end the loop."""
    try:
        fn(future)
    except Exception:
        raise
    except BaseException:
        assert isinstance(future, TaskFuture)
        if not future.job.runs_here():
            raise
        callbacks_log.exception("exception calling callback for %r", future)


class Job(StaysHere):
    """A job in flight: its tasks' futures, as a sequence, as they complete, or as a whole."""

    def __init__(self, client: Client, spec: JobSpec, tasks: int, speculate: Speculation | None = None) -> None:
        self._client = client
        self.spec = spec
        self.speculate = speculate
        self.job_id = spec.job_id
        self.submitted_at_s = 0.0
        self.futures: list[TaskFuture] = [TaskFuture(self, task) for task in range(tasks)]
        """Of all stages, in their order."""
        self._decided = threading.Event()
        self._error: SparrowError | None = None
        self._whether_running: WhetherRunning | None = None

    def __iter__(self) -> Iterator[TaskFuture]:
        """The futures, as they complete. Ctrl-C while it waits for the next stops the job."""
        with stopping_on_interrupt(self.futures):
            yield from as_completed(self.futures)  # type: ignore[misc]

    def __len__(self) -> int:
        return len(self.futures)

    def __repr__(self) -> str:
        done = sum(future.done() for future in self.futures)
        return f"<Job {self.job_id} {self.spec.name!r}, {done} of {len(self.futures)} tasks done>"

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
        return stage_of(self.spec, task).app

    def check_may_wait(self) -> None:
        """`RuntimeError` on the client's own loop, which would wait for itself."""
        self._client.check_not_on_loop()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for all outcomes; False if the time ran out."""
        self.check_may_wait()
        return not wait(self.futures, timeout_s).not_done

    def accepted(self, timeout_s: float | None = None) -> None:
        """Wait until a scheduler has accepted the job; raises `Refused` or `InvalidRequest` if none does.

        Returns for a job that has ended before, too: one that was cancelled before any scheduler took it.
        """
        if not self._decided.is_set():
            self.check_may_wait()
        if not self._decided.wait(timeout_s):
            raise TimeoutError(f"no scheduler accepted job {self.job_id} within {timeout_s} s")
        if self._error is not None:
            raise self._error

    def results(self, timeout_s: float | None = None) -> list[Any]:
        """All results in submission order; raises the first failure. Ctrl-C while it waits stops the job."""
        with stopping_on_interrupt(self.futures):
            if not self.wait(timeout_s):
                raise TimeoutError(f"job {self.job_id} did not end within {timeout_s} s")
            return [future.result() for future in self.futures]

    def report(self, timeout_s: float | None = None) -> JobReport:
        """What became of every task, once all are done; raises if the job was not accepted."""
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
            if not self._client._session.ask_placed(self.job_id, tasks, told):
                answered()

        try:
            self._client._call_soon(ask)
        except RuntimeError:
            return False
        return True

    def runs_here(self) -> bool:
        """Whether the caller is on the loop of the job's client."""
        return self._client.runs_here()

    def cancel(self, *, running: bool = False) -> None:
        """Cancel what has not started. What runs goes on, and its outcome comes; with `running` it is stopped."""
        self._client._call_soon(lambda: self._client._session.cancel_job(self.job_id, running=running))

    def cancel_futures(self, futures: Sequence[TaskFuture], *, running: bool = False) -> int:
        """Cancel those of these tasks that have not started, and with `running` those that have; returns how many
        were cancelled."""
        asked = [future for future in futures if not future.done() and (running or not future.is_known_to_run())]
        for future in asked:
            future._cancel_answer = future._cancel_answer or threading.Event()
        tasks = [future.task for future in asked]
        self._client._call_soon(lambda: self._client._session.cancel_tasks(self.job_id, tasks, running=running))
        if not self._client.runs_here():
            until_s = time.monotonic() + CANCEL_ANSWER_TIMEOUT_S
            for future in asked:
                if not future.done() and future._cancel_answer is not None:
                    future._cancel_answer.wait(max(0.0, until_s - time.monotonic()))
        return sum(future.cancelled() for future in asked)

    def forked(self, error: SparrowError) -> None:
        """In a child of the process: what becomes of the job the parent is told."""
        self._decided = threading.Event()
        self._error = error
        self._decided.set()
        for future in self.futures:
            future.forked(error)

    def stop_soon(self, tasks: list[int]) -> None:
        """Cancel these tasks, even if they run, without waiting until they are; nothing if the client is closed."""
        with contextlib.suppress(RuntimeError):
            self._client._call_soon(lambda: self._client._session.cancel_tasks(self.job_id, tasks, running=True))

    # ---- the session's sink, on the client's loop ---------------------------------------------

    def on_accepted(self) -> None:
        self._decided.set()

    def on_refused(self, error: SparrowError) -> None:
        self._error = error
        self._decided.set()
        for future in self.futures:
            future.refuse(error)
        self.on_ended()

    def on_ended(self) -> None:
        self._decided.set()
        if self._client._jobs.get(self.job_id) is self:
            del self._client._jobs[self.job_id]


class _Sink:
    """Tells a `Job` what the session is told of it."""

    __slots__ = ("_futures", "_job")

    def __init__(self, job: Job) -> None:
        self._job = job
        self._futures = job.futures

    def accepted(self) -> None:
        self._job.on_accepted()

    def refused(self, error: SparrowError) -> None:
        self._job.on_refused(error)

    def placed(self, task: int) -> None:
        self._futures[task].placed()

    def outcome(self, outcome: m.Outcome) -> None:
        self._futures[outcome.task].settle(outcome)

    def result_lost(self, outcome: m.Outcome, error: ResultLost) -> None:
        self._futures[outcome.task].settle(outcome, error)

    def not_cancelled(self, task: int) -> None:
        self._futures[task].placed()
        self._futures[task].answered()

    def ended(self) -> None:
        self._job.on_ended()


class Client(StaysHere):
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
    connect_timeout_s: how long to wait for a first scheduler before `NoScheduler` is raised.
    submit_timeout_s: how long a job is offered again to schedulers that refuse it for now, or when its own was lost.
    heartbeat_s: a scheduler that says nothing for about so long is taken for lost, and its jobs to another.
    options: how calls are run unless `with_options` says otherwise.
    forward_output: of the embedded cluster that the client starts: whether what tasks print, and the daemons'
        warnings, reach this program's `sys.stdout` and `sys.stderr` (see `LocalCluster`).
    """

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
        forward_output: bool = True,
    ) -> None:
        warn_of_nesting(starts_cluster=schedulers is None and not sources_of_environment())
        options = checked_options(options)
        self._own_cluster, schedulers, access = cluster_of(schedulers, token, tls, forward_output=forward_output)
        self.options = options
        self._jobs: dict[str, Job] = {}
        self._lock = threading.Lock()
        self._refusal = ""
        """Why no more calls are taken; empty as long as they are."""
        self._closed = False
        self._end_said = CLOSED
        """What whoever uses a closed client is told."""
        self._batches: list[_Batch] = []
        self._waking = False
        try:
            self._session = Session(
                schedulers,
                user=user,
                access=access,
                connect_timeout_s=connect_timeout_s,
                submit_timeout_s=submit_timeout_s,
                heartbeat_s=heartbeat_s,
            )
            self._loop = new_event_loop()
            self._thread = threading.Thread(target=self._serve, name="sparrow-client", daemon=True)
            self._thread.start()
            process_bound.tell_of_forks(self)
            try:
                self._run(self._session.start)
            except BaseException:
                self._stop_loop()
                raise
        except BaseException:
            if self._own_cluster is not None:
                self._own_cluster.stop()
            raise

    def __repr__(self) -> str:
        return f"<Client of {self.described()}>"

    def described(self) -> str:
        """Its schedulers, its user and how many jobs it has, for reprs."""
        return f"{self._session}, " + ("closed" if self._closed else f"jobs: {len(self._jobs)}")

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the client: what has not started is cancelled, futures not done end with an error."""
        self.check_not_on_loop()
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._refusal = self._refusal or self._end_said
            ending = asyncio.run_coroutine_threadsafe(self._end(), self._loop)
        ending.result()
        self._stop_loop()
        if self._own_cluster is not None:
            self._own_cluster.stop()

    def renew_token(self, token: str) -> None:
        """Show this token from now on, on links that stand, too: then the one before may be withdrawn."""
        shown = check_secret("token", token).shown
        self._call_soon(lambda: self._session.renew_token(shown))

    def take_no_more(self, reason: str) -> None:
        """Refuse further calls and jobs with a `RuntimeError` that says this; those that were taken go on."""
        with self._lock:
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
            common = calls.encode_function(function, capture_output=options.capture_output)
            payload = calls.encode_arguments(args, kwargs)
        except Exception as error:
            self._check_open()
            return self._failed_future(error)
        with self._lock:
            self._check_open()
            batch = self._batches[-1] if self._batches else None
            if batch is None or not batch.takes(common, options):
                batch = _Batch(self, function, options, common)
                self._batches.append(batch)
            future = batch.add(payload)
            if not self._waking:
                self._waking = True
                self._loop.call_soon_threadsafe(self._submit_batches)
        return future

    def _failed_future(self, error: Exception) -> TaskFuture:
        job = Job(self, JobSpec([], job_id=new_job_id()), 1)
        job.futures[0].set_exception(error)
        return job.futures[0]

    def _submit_batches(self) -> None:
        with self._lock:
            batches, self._batches, self._waking = self._batches, [], False
        for batch in batches:
            batch.job.spec.tasks = batch.payloads
            self._start(batch.job)

    def _start(self, job: Job) -> None:
        """Submit a job (on the loop)."""
        job.submitted_at_s = self._session.now_s()
        if self._closed:
            job.on_refused(SparrowError("the client was closed before the job was submitted"))
            return
        if job.job_id in self._jobs:
            job.on_refused(InvalidRequest("job_id", job.job_id, "an id that no running job of this client has"))
            return
        self._jobs[job.job_id] = job
        try:
            self._session.submit(job.spec, _Sink(job), job.speculate)
        except SparrowError as error:
            job.on_refused(error)
        except BaseException as error:  # Something in it that messages cannot hold, or the user's code that it has.
            job.on_refused(SparrowError(f"the job cannot be sent: {error}"))
        else:
            if not job.futures:
                job.on_accepted()

    def submit_job(self, spec: JobSpec, *, progress: bool = False, speculate: Speculation | None = None) -> Job:
        """Submit a job and return at once; `InvalidRequest` if it cannot be.

        With `speculate`, which is for jobs of one stage, tasks that take too long are submitted again (§3.4).
        """
        spec.validate()
        if speculate is not None:
            check_speculation(speculate, spec)
        spec = replace(spec, job_id=spec.job_id or new_job_id())
        job = Job(self, spec, sum(len(stage.tasks) for stage in spec.as_stages()), speculate)
        with self._lock:
            self._check_open()
            self._loop.call_soon_threadsafe(self._start, job)
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
        """One job with a task `function(*args)` per tuple (or list) of arguments. Pickling errors are raised here, and
        `InvalidRequest` for what is no tuple."""
        options = options or self.options
        common = calls.encode_function(function, name=name, capture_output=options.capture_output)
        payloads = argument_payloads(arguments)
        spec = options.job(name or function_name(function), common, payloads)
        return self.submit_job(spec, progress=progress, speculate=options.speculate)

    def submit_stages(self, stages: Iterable[CallStage], *, name: str = "", options: CallOptions | None = None) -> Job:
        """One job of several stages of calls, a DAG: schedulers start each as soon as those before it have finished.

        Pickling errors are raised here, `InvalidRequest` if stages refer to ones that do not exist or to themselves.
        """
        options = options or self.options
        return self.submit_job(options.stages_job(name, list(stages)), speculate=options.speculate)

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
        """The results of `function` over the iterables, in order.

        At most about `window` calls are in flight, so the iterables may be endless. `chunksize`
        calls make one task. Work starts now, not with the first `next`. Ctrl-C while it waits for a result stops
        what is in flight; what is in flight when the results are given up, or time runs out, is cancelled as far as
        it has not started.
        """
        check_whole("chunksize", chunksize, 1, 1 << 20)
        check_whole("window", window, 1, 1 << 24)
        self._check_open()
        options = options or self.options
        common = calls.encode_function(function, capture_output=options.capture_output, chunked=True)
        name = function_name(function)
        chunks = calls.encode_chunks(iterables, chunksize)
        in_flight_max = max(1, window // chunksize)
        pending: deque[TaskFuture] = deque()

        def refill() -> None:
            while len(pending) < in_flight_max:
                size = min(MAP_JOB_TASKS, in_flight_max - len(pending))
                payloads = list(itertools.islice(chunks, size))
                if not payloads:
                    return
                job = self.submit_job(options.job(name, common, payloads), speculate=options.speculate)
                pending.extend(job.futures)

        deadline_s = None if timeout_s is None else timeout_s + self._session.now_s()
        tasks = -(-min(map(operator.length_hint, iterables), default=0) // chunksize)
        with stopping_on_interrupt(pending):
            refill()
        start_bar = (lambda: progress_bar(name, tasks or None)) if progress else None
        return self._map_results(pending, refill, in_flight_max, deadline_s, start_bar)

    def _map_results(
        self,
        pending: deque[TaskFuture],
        refill: Callable[[], None],
        in_flight_max: int,
        deadline_s: float | None,
        start_bar: Callable[[], Callable[[int | None], None]] | None,
    ) -> Iterator[Any]:
        bar = start_bar() if start_bar is not None else None
        try:
            while pending:
                left_s = None if deadline_s is None else max(0.0, deadline_s - self._session.now_s())
                values = pending[0].result(left_s)
                pending.popleft().outcome = None  # It has the result's bytes, and its job may last.
                values.reverse()
                while values:  # The future has the same list: nothing here refers to what was yielded.
                    yield values.pop()
                if len(pending) * 2 <= in_flight_max:
                    refill()
                if bar is not None:
                    bar(1)
        except KeyboardInterrupt as error:
            if stop_if_interrupted(pending, error):
                pending.clear()  # Who presses Ctrl-C does not wait until they have stopped.
            raise
        finally:
            if bar is not None:
                bar(None)
            self.cancel(pending)

    def with_options(self, **changes: Any) -> CallsWithOptions:
        """This client with other `CallOptions`: `client.with_options(prefetch=16).submit(f, x)`."""
        return CallsWithOptions(self, replace(self.options, **changes))

    # ---- waiting and cancelling --------------------------------------------------------------

    def gather(self, futures: Iterable[Future[T]]) -> list[T]:
        """All results in the order given; raises the first failure. Ctrl-C while it waits stops those tasks."""
        futures = list(futures)
        with stopping_on_interrupt(futures):
            return [future.result() for future in futures]

    def upload(self, data: bytes) -> BlobRef:
        """Give data to the cluster that several jobs' tasks need, as payload or common bytes: a reference to it.

        It is kept as long as jobs use it, and for the nodes' retention time after that.
        """
        return self._run(lambda: self._session.upload(data))

    def fetch(self, ref: BlobRef) -> bytes:
        """The bytes of a large result; `ResultLost` if no node has them any more."""
        return bytes(self._run(lambda: self._session.download(ref)))

    def nodes(self) -> list[NodeStatus]:
        """The nodes of the cluster, by id, as the schedulers that are connected list them now (10,000 each at most).

        `SparrowError` if none of them answers.
        """
        return self._run(self._session.nodes)

    def wait_for_nodes(self, count: int, timeout_s: float | None = None) -> None:
        """Return when each connected scheduler has at least `count` nodes that are ready; `TimeoutError` if that takes
        longer than `timeout_s` (None: for ever)."""
        self._run(lambda: self._session.wait_for_nodes(count, timeout_s))

    def cancel(self, what: Job | Future[Any] | Iterable[Future[Any]], *, running: bool = False) -> None:
        """Cancel a job, a future or several futures, as far as they have not started; with `running` stop them."""
        if isinstance(what, Job):
            what.cancel(running=running)
            return
        futures = [what] if isinstance(what, Future) else list(what)
        by_job: dict[str, list[TaskFuture]] = {}
        for future in futures:
            if not isinstance(future, TaskFuture):
                raise InvalidRequest("futures", future, "futures of this client")
            if not future.done():
                by_job.setdefault(future.job.job_id, []).append(future)
        for asked in by_job.values():
            asked[0].job.cancel_futures(asked, running=running)

    def unfinished(self) -> list[TaskFuture]:
        """The futures that are not done; none of a closed client."""
        self.check_not_on_loop()
        with self._lock:
            if self._closed:
                return []
            futures = [future for batch in self._batches for future in batch.job.futures]
            # The jobs are the loop's; a job that moves from the one to the other meanwhile is seen at least once.
            jobs = asyncio.run_coroutine_threadsafe(self._current_jobs(), self._loop)
        for job in jobs.result():
            futures += job.futures
        return [future for future in futures if not future.done()]

    async def _current_jobs(self) -> list[Job]:
        return list(self._jobs.values())

    def cancel_unfinished(self) -> None:
        """Cancel all that has not started, without waiting until it is."""
        with self._lock:
            if not self._closed:
                self._loop.call_soon_threadsafe(self._cancel_unfinished)

    def _cancel_unfinished(self) -> None:
        self._submit_batches()
        for job in list(self._jobs.values()):
            self._session.cancel_tasks(job.job_id, [future.task for future in job.futures if not future.done()])

    def cut_off_s(self) -> float:
        """For how long no scheduler could be reached; 0 while one can be."""
        return self._session.cut_off_s()

    # ---- the loop ----------------------------------------------------------------------------

    def _check_open(self) -> None:
        """With the lock held it stays so: what is put on the loop under it comes before the client's end."""
        if self._refusal:
            raise RuntimeError(self._refusal)

    def check_not_on_loop(self) -> None:
        """`RuntimeError` on the client's own loop, which would wait for itself."""
        if self.runs_here():
            raise RuntimeError("this would wait for itself: done-callbacks run on the client's own loop")

    def runs_here(self) -> bool:
        """Whether the caller is on the client's own loop, as done-callbacks are."""
        return threading.current_thread() is self._thread

    def _call_soon(self, action: Callable[[], object]) -> None:
        """Do it on the loop; `RuntimeError` if the client is closed."""
        with self._lock:
            if self._closed:
                raise RuntimeError(self._end_said)
            self._loop.call_soon_threadsafe(action)

    def _run(self, start: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Do it on the loop, and wait for it; `RuntimeError` if the client is closed, or is meanwhile."""
        self.check_not_on_loop()
        with self._lock:
            if self._closed:
                raise RuntimeError(self._end_said)
            running = asyncio.run_coroutine_threadsafe(start(), self._loop)
        try:
            return running.result()
        except CancelledError:
            raise RuntimeError("the client was closed meanwhile") from None

    async def _end(self) -> None:
        with self._lock:
            jobs = [batch.job for batch in self._batches] + list(self._jobs.values())
        self._session.core.abandon()
        for future in [future for job in jobs for future in job.futures if not future.done()]:
            future.refuse(SparrowError("the client was closed before the task's outcome came"))
        await self._session.stop()

    def _serve(self) -> None:
        """The loop's thread."""
        self._loop.run_forever()
        # Who waits for something else of the loop must not wait for ever.
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        if tasks:
            self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))

    def _stop_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def forked(self) -> None:
        """In a child of the process: this client is the parent's, and closed here, without a word to anybody."""
        self._lock = threading.Lock()
        if self._closed:
            return
        self._closed = True
        self._refusal = self._end_said = f"the client cannot be used here: {process_bound.INHERITED}"
        self._thread = threading.Thread()  # None runs here.
        error = SparrowError(self._end_said)
        for job in [*(batch.job for batch in self._batches), *self._jobs.values()]:
            job.forked(error)
        process_bound.let_go([process_bound.descriptor_of(self._loop)])
        self._session.forked()


class CallsWithOptions(StaysHere):
    """A client seen with other options; it shares the client's links and ends with it."""

    def __init__(self, client: Client, options: CallOptions) -> None:
        self._client = client
        self.options = options

    def submit(self, function: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """As `Client.submit`."""
        return self._client._submit(self.options, function, args, kwargs)

    def submit_calls(self, function: Callable[..., Any], arguments: Iterable[tuple[Any, ...]], **how: Any) -> Job:
        """As `Client.submit_calls`."""
        return self._client.submit_calls(function, arguments, options=self.options, **how)

    def submit_stages(self, stages: Iterable[CallStage], **how: Any) -> Job:
        """As `Client.submit_stages`."""
        return self._client.submit_stages(stages, options=self.options, **how)

    def map(self, function: Callable[..., T], *iterables: Iterable[Any], **how: Any) -> Iterator[T]:
        """As `Client.map`."""
        return self._client.map(function, *iterables, options=self.options, **how)


class _Batch:
    """Calls of one function that have been submitted and not yet been sent: one job."""

    def __init__(self, client: Client, function: Callable[..., Any], options: CallOptions, common: bytes) -> None:
        self.common = common
        self.options = options
        self.payloads: list[bytes] = []
        spec = options.job(function_name(function), common, [])
        spec.job_id = new_job_id()
        self.job = Job(client, spec, 0, options.speculate)

    def takes(self, common: bytes, options: CallOptions) -> bool:
        """Whether a call of the function with these common bytes may join."""
        return self.common == common and self.options is options and len(self.payloads) < m.TASKS_PER_MESSAGE_MAX

    def add(self, payload: bytes) -> TaskFuture:
        future = TaskFuture(self.job, len(self.payloads))
        self.payloads.append(payload)
        self.job.futures.append(future)
        return future


@contextlib.contextmanager
def stopping_on_interrupt(futures: Iterable[Future[Any]]) -> Iterator[None]:
    """Who is interrupted here (Ctrl-C) wants none of these any more: their tasks are cancelled, even if they run."""
    try:
        yield
    except KeyboardInterrupt as error:
        stop_if_interrupted(futures, error)
        raise


def stop_if_interrupted(futures: Iterable[Future[Any]], error: KeyboardInterrupt) -> bool:
    """Stop the tasks of these, without waiting until they are, unless the error is of a task. Whether it is not."""
    ours = [future for future in futures if isinstance(future, TaskFuture)]
    if any(future._exception is error for future in ours):
        return False
    by_job: dict[Job, list[int]] = {}
    for future in ours:
        if not future.done():
            by_job.setdefault(future.job, []).append(future.task)
    for job, tasks in by_job.items():
        job.stop_soon(tasks)
    return True


def stage_of(spec: JobSpec, task: int) -> StageSpec:
    """The stage of a job's task."""
    first = 0
    stages = spec.as_stages()
    for stage in stages:
        first += len(stage.tasks)
        if task < first:
            return stage
    return stages[-1]


def new_event_loop() -> asyncio.AbstractEventLoop:
    """A loop of the fastest kind that this platform has."""
    try:
        from sparrow_py.session.uv_loop import Loop
    except ImportError:  # No uvloop on this platform.
        return asyncio.new_event_loop()
    return Loop()


def cluster_of(
    schedulers: str | Sequence[str] | LocalCluster | SchedulerHere | None,
    token: str | None,
    tls: TLS | None,
    *,
    forward_output: bool = True,
) -> tuple[LocalCluster | None, str | Sequence[str] | LocalCluster | SchedulerHere, Access]:
    """(the cluster to stop at the end or None, the schedulers, how they are reached)."""
    if schedulers is not None and not forward_output:
        allowed = "True where schedulers are given: a LocalCluster has an option of its own, others forward nothing"
        raise InvalidRequest("forward_output", forward_output, allowed)
    if schedulers is None:
        schedulers = sources_of_environment() or None
    if isinstance(schedulers, str | list | tuple | SchedulerHere):
        return None, schedulers, Access.of_client(token, tls)
    given = Access.of("" if token is None else client_token(token), tls)  # Checked before anything is started.
    own = None
    if schedulers is not None and not hasattr(schedulers, "access"):
        raise InvalidRequest("schedulers", schedulers, "addresses, a LocalCluster or a SchedulerHere")
    if schedulers is None:
        from sparrow_py.cluster import LocalCluster

        schedulers = own = LocalCluster(forward_output=forward_output)
    cluster: LocalCluster = schedulers  # type: ignore[assignment]
    default = cluster.access
    access = Access(given.token or default.token, tls or default.tls, given.context or default.context)
    return own, cluster, access


def show_progress(futures: Sequence[Future[Any]], name: str) -> None:
    """A progress bar on standard error until all futures are done."""
    bar = progress_bar(name, len(futures))
    try:
        for _ in as_completed(futures):
            bar(1)
    finally:
        bar(None)


def progress_bar(name: str, total: int | None = None) -> Callable[[int | None], None]:
    """A bar that `bar(n)` advances and `bar(None)` ends."""
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress, SpinnerColumn, TimeElapsedColumn

    progress = Progress(SpinnerColumn(), *Progress.get_default_columns(), MofNCompleteColumn(), TimeElapsedColumn(),
                        console=Console(stderr=True))  # fmt: skip
    task = progress.add_task(name, total=total)
    progress.start()

    def advance(count: int | None) -> None:
        if count is None:
            progress.stop()
        else:
            progress.advance(task, count)

    return advance
