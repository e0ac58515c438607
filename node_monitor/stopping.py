"""Attempts that are to end before their time: cancelled, asked back, or stopped as their time is up."""

from __future__ import annotations

from collections.abc import Callable

from node_monitor.attempt_book import AttemptBook
from node_monitor.attempts import ASKED_BACK, GIVEN_AHEAD, RUNS, STOPPED, WAITS, Attempt, State
from node_monitor.executors.executor_state import ExecutorState
from node_monitor.history import History
from node_monitor.lanes import MAKES_ROOM, Lane
from node_monitor.queueing.backlog import Backlog
from node_monitor.supervision import Supervision
from sparrow_py.executors import executor_protocol as x
from sparrow_py.job import CANCELLED, FAILED, TaskStatus
from sparrow_py.timing.timers import Timers
from sparrow_py.wire import messages as m

KILL_GRACE_S = 5.0
"""An executor of several places that has not ended a run so long after it was told to is ended itself."""
CANCELLED_RUNNING = "it was cancelled while it ran"


class Stopping:
    """How an attempt is cancelled, asked back or stopped, by its state."""

    __slots__ = (
        "_backlog",
        "_book",
        "_executors",
        "_history",
        "_lane",
        "_supervision",
        "_timers",
        "_to_executor",
        "_to_scheduler",
    )

    def __init__(
        self,
        executors: dict[str, ExecutorState],
        book: AttemptBook,
        backlog: Backlog,
        lane: Lane,
        supervision: Supervision,
        timers: Timers,
        history: History,
        to_executor: Callable[[str, x.ExecutorMessage], None],
        to_scheduler: Callable[[str, m.Message], None],
    ) -> None:
        self._executors = executors
        self._book = book
        self._backlog = backlog
        self._lane = lane
        self._supervision = supervision
        self._timers = timers
        self._history = history
        self._to_executor = to_executor
        self._to_scheduler = to_scheduler

    # ---- cancelled by the scheduler ----------------------------------------------------------

    def cancel(self, scheduler: str, message: m.CancelAttempt, now_s: float) -> None:
        """Cancel an attempt, if it has not begun; if `message.running`, stop one that runs. If `message.preempt`, have
        it make room for others."""
        attempt = self._book.by_key.get((scheduler, message.job, message.attempt))
        if attempt is None:
            self._backlog.cancel(scheduler, message.job, message.attempt, preempt=message.preempt)
            self._lane.cancel(scheduler, message)
            return
        executor = self._executors[attempt.executor_id]
        if message.preempt:
            self._preempt(attempt, executor, now_s)
        elif attempt.state is WAITS:
            self._book.report(attempt, executor, now_s, CANCELLED, "it was cancelled")
        elif attempt.ahead is not None and attempt.state is not STOPPED:
            self._cancel_behind(attempt, executor, message.running)
        elif message.running:
            self.stop(attempt, CANCELLED, CANCELLED_RUNNING, now_s)
        else:
            self._say_runs(attempt)

    def _cancel_behind(self, attempt: Attempt, executor: ExecutorState, running: bool) -> None:
        """Cancel an attempt that is behind another run of its executor. One that makes room does so: whether its task
        starts again is its scheduler's to decide."""
        if attempt.state is State.PREEMPTED:
            return
        if running:
            self.ask_back(executor, attempt, State.CANCELLED_EVEN_IF_IT_RUNS)
        elif attempt.state is GIVEN_AHEAD or attempt.state is ASKED_BACK:
            self.ask_back(executor, attempt, State.CANCELLED)

    def _preempt(self, attempt: Attempt, executor: ExecutorState, now_s: float) -> None:
        """Have an attempt make room, unless it is to end anyway."""
        if attempt.state is WAITS:
            self._book.hand_back(attempt, executor, MAKES_ROOM, now_s)
        elif attempt.ahead is None:
            self._stop(attempt, None, MAKES_ROOM, now_s)
        elif attempt.state is GIVEN_AHEAD or attempt.state is ASKED_BACK:
            self.ask_back(executor, attempt, State.PREEMPTED)

    def _say_runs(self, attempt: Attempt) -> None:
        self._to_scheduler(attempt.job.scheduler, m.AttemptRuns(attempt.job.id, attempt.number))

    # ---- asked back --------------------------------------------------------------------------

    def ask_back(self, executor: ExecutorState, attempt: Attempt, state: State = ASKED_BACK) -> None:
        """Have the executor return the attempt, unless it was asked to: why is the state that the attempt gets."""
        asked = attempt.state is not GIVEN_AHEAD
        if attempt.state is not state:
            attempt.becomes(state)
        if not asked:
            executor.revoked.append(attempt.run)
            self._to_executor(executor.id, x.Revoke([attempt.run]))

    def returned(self, executor: ExecutorState, attempt: Attempt, now_s: float) -> None:
        """The executor returned the attempt, which it had not begun."""
        stopped_as = attempt.stopped_as if attempt.state is STOPPED else None
        stopped_as_cancelled = stopped_as is not None and stopped_as[0] is CANCELLED
        if attempt.state is State.PREEMPTED:
            self._book.hand_back(attempt, executor, MAKES_ROOM, now_s)
        elif attempt.state in (State.CANCELLED, State.CANCELLED_EVEN_IF_IT_RUNS) or stopped_as_cancelled:
            self._book.report(attempt, executor, now_s, CANCELLED, "it was cancelled")
        else:
            self._book.hand_back(
                attempt, executor, "it waited behind a task that lasts longer than was thought", now_s
            )  # fmt: skip

    def not_returned(self, attempt: Attempt, now_s: float) -> None:
        """The executor did not return the attempt that it was asked for, as it had begun it."""
        state = attempt.state
        if state is State.CANCELLED_EVEN_IF_IT_RUNS:
            self.stop(attempt, CANCELLED, CANCELLED_RUNNING, now_s)
        elif state is State.PREEMPTED:
            self._stop(attempt, None, MAKES_ROOM, now_s)
        elif state is State.CANCELLED or state is ASKED_BACK:
            attempt.becomes(RUNS if attempt.ahead is None else GIVEN_AHEAD)
            if state is State.CANCELLED:
                self._say_runs(attempt)

    # ---- stopped -----------------------------------------------------------------------------

    def stop_at(self, at_s: float, executor_id: str, run: int, reason: str) -> None:
        """Stop the run then, if it still runs. It is named, not held: it may end long before."""

        def here() -> Attempt | None:
            executor = self._executors.get(executor_id)
            return executor.running.get(run) if executor is not None else None

        def stop(now_s: float) -> None:
            attempt = here()
            if attempt is not None:
                self.stop(attempt, FAILED, reason, now_s)

        self._timers.at(at_s, stop, lambda: here() is not None)

    def stop(self, attempt: Attempt, status: TaskStatus, reason: str, now_s: float) -> None:
        """End a task that runs; what it is reported as is settled, unless it ends by itself meanwhile."""
        self._stop(attempt, (status, reason), reason, now_s)

    def _stop(self, attempt: Attempt, stopped_as: tuple[TaskStatus, str] | None, reason: str, now_s: float) -> None:
        if attempt.state is STOPPED:
            return
        executor = self._executors[attempt.executor_id]
        attempt.becomes(STOPPED)
        attempt.stopped_as = stopped_as
        self._history.note(now_s, "run %d of executor %s is stopped: %s", attempt.run, executor.id, reason)
        if executor.places == 1 and not executor.app.plan.one_process:
            self._supervision.end(executor, now_s)
            return
        self._to_executor(executor.id, x.Kill([attempt.run]))
        self._timers.at(now_s + KILL_GRACE_S, lambda now_s: self._end_executor_of(attempt, now_s))

    def _end_executor_of(self, attempt: Attempt, now_s: float) -> None:
        """The attempt should have ended: if it is here yet, its executor is ended."""
        if self._book.by_key.get(attempt.key) is attempt:
            self._supervision.end(self._executors[attempt.executor_id], now_s)
