"""Tasks whose outcome comes from elsewhere than the attempt that is counted for them: from one of another scheduler, or
from a copy in another job. What they wait for is called off, and what runs of them is stopped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from scheduler.book.jobs import BLOCKED, LEAVING, PLACED, SETTLED, UNPLACED, UNTOLD
from scheduler.book.validation import check_blob
from sparrow_py.errors import LinkError
from sparrow_py.job import FINISHED, BlobRef
from sparrow_py.wire import messages as m

if TYPE_CHECKING:
    from scheduler.book.attempts import Attempts
    from scheduler.book.jobs import JobState, StageState
    from scheduler.book.ledger import Ledger
    from scheduler.book.outcomes import Outcomes


@dataclass(eq=False, slots=True)
class Overtaking:
    """See the module's docstring."""

    _ledger: Ledger
    _attempts: Attempts
    _outcomes: Outcomes

    def finished_elsewhere(self, job: JobState, message: m.FinishedElsewhere, now_s: float) -> None:
        """A client has a task's result from a copy of it, and knows the outcome."""
        number = message.task
        if not 0 <= number < job.received:
            raise LinkError(f"job {job.id}: there is no task {number}; it has {job.received}")
        if isinstance(message.result, BlobRef):
            check_blob(message.result)
        stage = job.stage_of(number)
        task = number - stage.first
        if task in stage.rerun:
            return  # Its outcome is known; it runs again for others.
        report = m.Report(job.id, number, 0, FINISHED, message.result, "", None, None)
        if self.take_out(stage, task, report, now_s):
            self._ledger.counters.finished_elsewhere += 1
            self._ledger.note(now_s, job.id, "task %d has finished in another job", number)
            self._outcomes.settle_known(stage, task, message.result, now_s)

    def take_out(self, stage: StageState, task: int, report: m.Report, now_s: float) -> bool:
        """Take the task out of what it waits or runs in: the caller settles it. The report is what is told of its
        attempt. False if it is settled already."""
        state, ledger = stage.states[task], self._ledger
        if state == SETTLED:
            return False
        if state == PLACED:  # It was started again, or runs twice: the first outcome counts.
            attempt = stage.job.attempts[stage.attempts[task]]
            self._attempts.end(attempt)
            if ledger.placing.hears_reports:
                ledger.placing.attempt_reported(attempt, report)
            del stage.attempts[task]
            ledger.to_node(attempt.node_id, m.CancelAttempt(stage.job.id, attempt.id, running=True))
        elif state == UNPLACED:
            stage.withdraw(task, SETTLED)
            ledger.admission.withdrawn(stage.job.user, 1)
            if not stage.unplaced:
                ledger.placing.none_unplaced(stage, now_s)
        elif state == UNTOLD:
            stage.untold.discard(task)
        elif state == BLOCKED:
            self._outcomes.unblock(stage, task)
        elif state == LEAVING:
            stage.leaving -= 1
        return True
