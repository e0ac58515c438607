"""Tasks that have an outcome although no attempt of this scheduler brought it: an attempt of another scheduler did, or
a copy in another job. Such a task waits no more, and its attempt here is stopped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from scheduler.book.jobs import BLOCKED, HELD, LEAVING, PLACED, SETTLED, UNPLACED
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
    """Takes tasks out of the states in which they wait or run."""

    _ledger: Ledger
    _attempts: Attempts
    _outcomes: Outcomes

    def finished_elsewhere(self, job: JobState, message: m.FinishedElsewhere, now_s: float) -> None:
        """The job's client has the task's result from a copy, and needs no outcome from here."""
        number = message.task
        if not 0 <= number < job.received:
            raise LinkError(f"job {job.id}: there is no task {number}; it has {job.received}")
        if isinstance(message.result, BlobRef):
            check_blob(message.result)
        stage = job.stage_of(number)
        task = number - stage.first
        if task in stage.rerun:
            return  # The client knows its outcome: the task runs again since other tasks need its result.
        report = m.Report(job.id, number, 0, FINISHED, message.result, "", None, None)
        if self.take_out(stage, task, report, now_s):
            self._ledger.counters.finished_elsewhere += 1
            self._ledger.note(now_s, job.id, "task %d has finished in another job", number)
            self._outcomes.settle_known(stage, task, message.result, now_s)

    def take_out(self, stage: StageState, task: int, report: m.Report, now_s: float) -> bool:
        """Take the task out of its state, for the caller to settle it; False if it is settled already. If it has an
        attempt, the plane hears this report of it."""
        state, ledger = stage.states[task], self._ledger
        if state == SETTLED:
            return False
        if state == PLACED:  # The first outcome counts, so the attempt has become useless.
            attempt = stage.job.attempts[stage.attempts[task]]
            self._attempts.end(attempt)
            if ledger.placing.hears_reports:
                ledger.placing.attempt_reported(attempt, report)
            del stage.attempts[task]
            ledger.to_node(attempt.node_id, m.CancelAttempt(stage.job.id, attempt.id, running=True))
        elif state == UNPLACED:
            stage.withdraw(task, SETTLED)
            ledger.admission.withdrawn(stage.job.user, 1)
            if stage.unplaced:
                ledger.placing.tasks_withdrawn(stage)
            else:
                ledger.placing.none_unplaced(stage, now_s)
        elif state == HELD:
            stage.hold_no_more(task)
            ledger.admission.withdrawn(stage.job.user, 1)
        elif state == BLOCKED:
            self._outcomes.unblock(stage, task)
        elif state >= LEAVING:
            stage.leave_no_more(task)
        return True
