"""Jobs and tasks are cancelled: what is not placed is settled now, and nodes are asked for the rest."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scheduler.book.jobs import ARRIVING, CLAIMING, OPEN, PLACED, UNPLACED
from sparrow_py.errors import LinkError
from sparrow_py.job import CANCELLED
from sparrow_py.wire import messages as m

if TYPE_CHECKING:
    from scheduler.book.attempts import Attempts
    from scheduler.book.jobs import JobState
    from scheduler.book.ledger import Ledger
    from scheduler.book.outcomes import Outcomes
    from scheduler.book.register import Register

REASON = "it was cancelled"


@dataclass(eq=False, slots=True)
class Cancellation:
    """Cancels jobs and tasks of a scheduler."""

    _ledger: Ledger
    _attempts: Attempts
    _register: Register
    _outcomes: Outcomes

    # ---- clients ask for that ----------------------------------------------------------------

    def job_cancelled(self, job: JobState, message: m.CancelJob, now_s: float) -> None:
        """A client cancels its job."""
        self.cancel(job, REASON, now_s, running=message.running)

    def tasks_cancelled(self, job: JobState, message: m.CancelTasks, now_s: float) -> None:
        """A client cancels some of its job's tasks."""
        if len(message.tasks) > m.TASKS_PER_MESSAGE_MAX:
            raise LinkError(f"job {job.id}: {len(message.tasks)} tasks in a message; at most {m.TASKS_PER_MESSAGE_MAX}")
        tasks = dict.fromkeys(message.tasks)
        for number in tasks:
            # Tasks that were on their way when the job was cancelled or doomed count as received.
            here = 0 <= number < job.task_count and len((stage := job.stage_of(number)).states) > number - stage.first
            if not here:
                raise LinkError(f"job {job.id}: there is no task {number}; it has {job.received}")
        self.cancel_tasks(job, tasks, now_s, running=message.running)

    # ---- and so it is done -------------------------------------------------------------------

    def cancel(self, job: JobState, reason: str, now_s: float, *, running: bool = False) -> None:
        """Cancel the job's tasks that are not placed now, and ask nodes for the others: for those that they hold
        ahead of a slot, or with `running` for all."""
        job.cancelled_for_loss = False
        if job.cancelled and (job.cancel_running or not running):
            return
        if job.phase is ARRIVING:  # Its client may send no more of it.
            job.phase = OPEN
            self._register.accept(job, now_s)
        job.cancelled = True
        job.cancel_running = job.cancel_running or running
        job.cancel_reason = job.cancel_reason or reason
        for attempt in job.attempts.values():
            self._attempts.cancel(attempt, running=running)
        # While it is claimed, some of it may run or have ended: wait for what the nodes say.
        for stage in job.stages if job.phase is not CLAIMING else ():
            if self._ledger.is_here(job):
                self._outcomes.settle_rest(stage, reason, now_s)

    def cancel_tasks(self, job: JobState, tasks: Iterable[int], now_s: float, *, running: bool) -> None:
        """As `cancel`, for some of the job's tasks."""
        outcomes = self._outcomes
        for number in tasks:
            if job.phase is not OPEN:  # It may run or have ended: wait for what the nodes say.
                job.cancel_later[number] = job.cancel_later.get(number, False) or running
                continue
            stage = job.stage_of(number)
            task = number - stage.first
            if task in stage.rerun:
                continue  # Its outcome is known; it runs again for others.
            if stage.states[task] == UNPLACED:
                outcomes.settle_unplaced(stage, [task], CANCELLED, REASON, now_s)
            elif task in stage.blocked:
                outcomes.settle_blocked(stage, [task], CANCELLED, REASON, now_s)
            elif task in stage.held:
                outcomes.settle_held(stage, [task], CANCELLED, REASON, now_s)
            elif stage.states[task] == PLACED:
                self._attempts.cancel(job.attempts[stage.attempts[task]], running=running)
