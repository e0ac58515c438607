"""Tasks that wait for a place again: those that were started in vain are told to the client first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from scheduler.book.jobs import Attempt, JobState, StageState
from sparrow_py.errors import LinkError
from sparrow_py.job import CANCELLED
from sparrow_py.wire import messages as m

if TYPE_CHECKING:
    from scheduler.book.advance_notice import AdvanceNotice
    from scheduler.book.ledger import Ledger
    from scheduler.book.outcomes import Outcomes
    from scheduler.book.waiting import Waiting


@dataclass(eq=False, slots=True)
class Restarts:
    """Has tasks of all jobs of a scheduler placed again."""

    _ledger: Ledger
    _outcomes: Outcomes
    _waiting: Waiting
    _notice: AdvanceNotice

    # The caller of these four sees to it that nodes are found (`Placing.tasks_unplaced`).

    def retry(self, attempt: Attempt, reason: str, now_s: float) -> None:
        """The attempt was in vain: the task is to start once more, unless it is not wanted any more."""
        stage, task = attempt.stage, attempt.task
        self._ledger.counters.retries += 1
        stage.starts[task] = stage.starts.get(task, 0) + 1
        self._ledger.note(now_s, stage.job.id, "task %d is to start again: %s", stage.first + task, reason)
        if attempt.cancelled or stage.job.cancelled:
            self.give_back(attempt, now_s)
        else:
            self.start_again(stage, task, now_s)

    def start_again(self, stage: StageState, task: int, now_s: float) -> None:
        """The task, whose starts have been counted, is to start once more."""
        if self._notice.of_starts(stage, [task]):
            stage.await_client(task)
        else:
            self.unplaced_again(stage, [task], now_s)

    def give_back(self, attempt: Attempt, now_s: float) -> None:
        """The attempt's task is unplaced again, unless it is not wanted any more."""
        stage, task = attempt.stage, attempt.task
        if attempt.cancelled or stage.job.cancelled:
            del stage.attempts[task]
            reason = stage.job.cancel_reason or "it was cancelled"
            self._outcomes.settle_unrun(stage, task, CANCELLED, reason, now_s)
            return
        self.unplaced_again(stage, [task], now_s)

    def unplaced_again(self, stage: StageState, tasks: list[int], now_s: float) -> None:
        """Tasks that were placed, settled, blocked or untold wait for a place."""
        for task in tasks:
            stage.untold.discard(task)
            stage.give_back(task)
            self._ledger.admission.returned(stage.job.user)
        if stage.open:  # Else their time-outs begin when it opens.
            self._waiting.begin(stage, tasks, now_s)

    # ---- the client knows --------------------------------------------------------------------

    def starts_known(self, job: JobState, message: m.CountKnown, now_s: float) -> None:
        """The client knows these starts: the tasks may start again."""
        known: dict[StageState, list[int]] = {}
        for number, starts in message.starts.items():
            if not 0 <= number < job.task_count:
                raise LinkError(f"job {job.id}: there is no task {number}; it has {job.task_count}")
            stage = job.stage_of(number)
            task = number - stage.first
            if task in stage.untold and stage.starts[task] == starts:
                known.setdefault(stage, []).append(task)
        self._go_on(known, now_s)

    def client_gone(self, job: JobState, now_s: float) -> None:
        """The job goes on without its client: there is nobody to wait for."""
        job.acknowledges = False
        self._go_on({stage: sorted(stage.untold) for stage in job.stages if stage.untold}, now_s)

    def _go_on(self, told: dict[StageState, list[int]], now_s: float) -> None:
        for stage, tasks in told.items():
            self.unplaced_again(stage, tasks, now_s)
            self._ledger.placing.tasks_unplaced(stage, now_s)
