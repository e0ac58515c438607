"""A task of a `Client` as a future, which any thread may wait for."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future, InvalidStateError
from concurrent.futures._base import CANCELLED, PENDING, RUNNING  # As all who write futures of their own need them.
from functools import partial
from typing import Any, Protocol

from sparrow_py.errors import ResultLost, SparrowError
from sparrow_py.futures.as_argument import JobOfFuture, StandsForValue
from sparrow_py.futures.breakable_condition import BreakableCondition
from sparrow_py.futures.late_condition import LateConditionFuture
from sparrow_py.futures.late_event import LateEvent
from sparrow_py.futures.outcomes import outcome_value, task_cancelled, task_report
from sparrow_py.job import FINISHED, TaskReport, TaskStatus
from sparrow_py.wire.messages import Outcome

callbacks_log = logging.getLogger("concurrent.futures")
"""Where futures' callbacks say what went wrong."""


class FutureJob(JobOfFuture, Protocol):
    """The job of a future, as far as the future needs it: `client.Job`."""

    submitted_at_s: float

    def cancel_futures(self, futures: Sequence[TaskFuture], *, running: bool = False) -> int:
        """Cancel these tasks as far as they have not started, with `running` all; how many were cancelled."""

    def cancel_soon(self, tasks: list[int], *, running: bool) -> None:
        """Cancel these tasks, without waiting until they are; with `running` even if they run."""

    def find_out_whether_running(self, task: int) -> None:
        """Ask whether this task has left the queue, unless that is known."""

    def check_may_wait(self) -> None:
        """`RuntimeError` where to wait would be to wait for oneself."""

    def runs_here(self) -> bool:
        """Whether the caller is on the loop of the job's client."""


class TaskFuture(LateConditionFuture, StandsForValue):
    """A task's `concurrent.futures.Future`. `task` is its position in `job`, `outcome` what the scheduler said."""

    job: FutureJob

    def __init__(self, job: FutureJob, task: int) -> None:
        super().__init__()
        self.job = job
        self.task = task
        self.outcome: Outcome | None = None
        self.reference: Outcome | None = None
        self._cancel_answer: LateEvent | None = None

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
        """Whether the task is known to run; asks nobody."""
        return super().running()

    def is_pending(self) -> bool:
        """Whether it is not done, and not known to run."""
        return self._state == PENDING

    def result(self, timeout: float | None = None) -> Any:
        """The task's value; raises its exception, or `TaskCancelled` with the reason if it was cancelled."""
        self._wait(timeout)
        try:
            return self._result if self._has_value() else Future.result(self, 0)
        except CancelledError as error:
            raise self._told_cancelled(error) from None
        finally:
            del self  # As the library's: else an exception would refer to itself, by way of its traceback.

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """The task's exception, or None; raises `TaskCancelled` with the reason if it was cancelled."""
        self._wait(timeout)
        if self._has_value():
            return None
        try:
            return Future.exception(self, 0)
        except CancelledError as error:
            raise self._told_cancelled(error) from None
        finally:
            del self

    def _wait(self, timeout_s: float | None) -> None:
        """Wait for the end; `RuntimeError` if it would wait for itself: in a done-callback."""
        if self._state in (PENDING, RUNNING):
            self._check_may_wait()
            self._wait_ended(timeout_s)

    def _check_may_wait(self) -> None:
        if self._state in (PENDING, RUNNING):
            self.job.check_may_wait()

    def _told_cancelled(self, error: CancelledError) -> CancelledError:
        """The error, or what is told in its place, if it is not the task's own."""
        return task_cancelled(self.outcome) if self.cancelled() and self.outcome is not None else error

    def add_done_callback(self, fn: Callable[[Future[Any]], object]) -> None:
        """Call `fn` when the task is done, as every future does. On the client's own loop anything that `fn` raises is
        logged."""
        super().add_done_callback(partial(call_back, fn, runs_on_loop=self.job.runs_here))

    def forked(self, error: SparrowError) -> None:
        """In a child of the process: nothing will come of it here, and the parent's callbacks are not for the child."""
        self._condition, self._cancel_answer = BreakableCondition(), None
        self._done_callbacks: list[Callable[[Future[Any]], object]] = []
        if not self.done():
            for waiter in self._waiters:
                vars(waiter).update(event=LateEvent(), lock=threading.Lock())
            self.set_exception(error)

    # ---- its end, on the client's loop --------------------------------------------------------

    def placed(self) -> None:
        """The task has left the queue: the future is running, unless it is done."""
        with self._condition:
            if self._state == PENDING:
                self.set_running_or_notify_cancel()

    def settle(self, outcome: Outcome, lost: ResultLost | None = None) -> None:
        """The task's outcome has come; `lost` if its result could not be fetched."""
        self.outcome = outcome
        value, error = (None, lost) if lost is not None else outcome_value(outcome, self.job.app_of(self.task))
        cancelled = outcome.status is not FINISHED and outcome.status is TaskStatus.CANCELLED
        self._end(value, error, cancelled=cancelled)

    def refuse(self, error: Exception) -> None:
        """The task's job was not accepted."""
        self._end(None, error)

    def _end(self, value: Any, error: BaseException | None, *, cancelled: bool = False) -> None:
        if not cancelled and self.end_unheeded(value, error):
            self.answered()
            return
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


def call_back(fn: Callable[[Future[Any]], object], future: Future[Any], *, runs_on_loop: Callable[[], bool]) -> None:
    """Call a done-callback. `Future` logs each `Exception`; on the client's loop what is none would end the loop."""
    try:
        fn(future)
    except Exception:
        raise
    except BaseException:
        if not runs_on_loop():
            raise
        callbacks_log.exception("exception calling callback for %r", future)
