"""Tasks are settled: their outcomes go to clients, and results that later stages need are kept.

What follows from an outcome is decided above: stages open or are doomed, an input is back, a job that takes too many
bytes is cancelled. `book` says who does that.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from scheduler.book.footprint import outcome_bytes, unrun_bytes
from scheduler.book.jobs import SETTLED, UNPLACED, Failure, JobState, StageState
from sparrow_py.job import CANCELLED, FINISHED, BlobRef, TaskStatus
from sparrow_py.timing.histogram import PENDING_MAX
from sparrow_py.wire import messages as m

if TYPE_CHECKING:
    from scheduler.book.deliveries import Deliveries
    from scheduler.book.ledger import Ledger

SETTLED_AT_ONCE_MAX = 5000
"""Of the tasks that end without having run so many are settled in one event, be they of one stage or of many."""
SETTLING_PAUSE_S = 0.001
"""Others have their turn for so long, before the next of them are."""


class Outcomes:
    """Settles the tasks of all jobs of a scheduler."""

    stage_over: Callable[[StageState, float], None]
    """Called when all tasks of a stage are settled."""
    doom: Callable[[StageState, str, float], None]
    """Called when a task of a stage with successors did not finish, with the reason for those."""
    produced_again: Callable[[StageState, int, m.Outcome, float], None]
    """Called with the second end of a task which had run again for its result."""
    cancel: Callable[[JobState, str, float], None]
    """Called when a job takes too many bytes."""
    watched_ended: Callable[[JobState, m.Outcome, float], None]
    """Called with the outcome of a task, of this job, whose result other jobs await."""

    def __init__(self, ledger: Ledger, deliveries: Deliveries) -> None:
        self._ledger = ledger
        self._jobs = ledger.jobs
        self._admission = ledger.admission
        self._settled = ledger.counters.settled
        self._task_times = ledger.counters.task_times
        self._times_pending = ledger.counters.task_times.pending
        self._tell = deliveries.outcome
        self._deliveries = deliveries
        self._leaving: OrderedDict[StageState, None] = OrderedDict()
        """Stages of which tasks leave, in the order in which they have their turns, but for those whose clients are to
        read first."""
        self._settles_leaving = False
        """Whether tasks that leave are settled just now, or at a time that is set."""

    # ---- with an executor's report -----------------------------------------------------------

    def settle_reported(
        self, stage: StageState, task: int, node_id: str, message: m.Report, starts: int, now_s: float
    ) -> None:
        """The report is the task's outcome."""
        job_id, reserved_at_s = stage.job.id, stage.reserved_at_s
        started_at_s, service_s = message.started_at_s, message.service_s
        outcome = m.Outcome(
            job_id, stage.first + task, message.status, message.result, message.error,
            starts if message.status is not CANCELLED or started_at_s is not None else starts - 1,
            node_id, reserved_at_s, started_at_s, service_s, message.stdout, message.stderr,
        )  # fmt: skip
        if started_at_s is not None and reserved_at_s is not None and service_s is not None:
            pending = self._times_pending
            pending.append((stage.spec.app, started_at_s - reserved_at_s, service_s, job_id, now_s))
            if len(pending) == PENDING_MAX:
                self._task_times.count()
        if stage.retries is not None:
            outcome.earlier_errors = stage.retries.errors.pop(task, ())
        if not self._settle(stage, task, outcome, now_s) and self._ledger.is_here(stage.job):
            self.cancel(stage.job, self._admission.over_bytes(stage.job.user), now_s)

    # ---- without one -------------------------------------------------------------------------

    def settle_unrun(
        self, stage: StageState, task: int, status: TaskStatus, reason: str, now_s: float, attempts: int | None = None
    ) -> None:
        """Settle a task with no report of an executor."""
        starts = stage.starts_before(task) if attempts is None else attempts
        number = stage.first + task
        outcome = m.Outcome(stage.job.id, number, status, b"", reason, starts, "", stage.reserved_at_s, None, None)
        if stage.retries is not None:
            outcome.earlier_errors = stage.retries.errors.pop(task, ())
        self._settle(stage, task, outcome, now_s)

    def settle_unplaced(
        self, stage: StageState, tasks: list[int], status: TaskStatus, reason: str, now_s: float
    ) -> None:
        """Settle some of the stage's unplaced tasks."""
        for task in tasks:
            stage.withdraw(task, SETTLED)
        self._admission.withdrawn(stage.job.user, len(tasks))
        if stage.unplaced:
            self._ledger.placing.tasks_withdrawn(stage)
        else:
            self._ledger.placing.none_unplaced(stage, now_s)
        self._settle_or_leave(stage, tasks, status, reason, now_s)

    def settle_blocked(
        self, stage: StageState, tasks: list[int], status: TaskStatus, reason: str, now_s: float
    ) -> None:
        """Settle tasks that wait for inputs which got lost."""
        for task in tasks:
            self.unblock(stage, task)
        self._settle_or_leave(stage, tasks, status, reason, now_s)

    @staticmethod
    def unblock(stage: StageState, task: int) -> None:
        """The task waits for no inputs any more: the caller settles it."""
        for hash_ in stage.blocked.pop(task):
            waiting = stage.job.awaited.get(hash_)
            if waiting is not None:
                waiting.discard((stage.index, task))
                if not waiting:
                    del stage.job.awaited[hash_]

    def settle_held(self, stage: StageState, tasks: list[int], status: TaskStatus, reason: str, now_s: float) -> None:
        """Settle tasks that were to start again, and not yet."""
        for task in tasks:
            stage.hold_no_more(task)
        self._admission.withdrawn(stage.job.user, len(tasks))
        self._settle_or_leave(stage, tasks, status, reason, now_s)

    def settle_as_input(self, stage: StageState, task: int, failure: Failure, now_s: float) -> None:
        """Settle a held task as the task of another job ended whose result it asks for."""
        stage.hold_no_more(task)
        self._admission.withdrawn(stage.job.user, 1)
        starts, number = stage.starts_before(task), stage.first + task
        outcome = m.Outcome(
            stage.job.id, number, failure.status, failure.result, failure.error, starts, "", stage.reserved_at_s, None,
            None,
        )  # fmt: skip
        if not self._settle(stage, task, outcome, now_s) and self._ledger.is_here(stage.job):
            self.cancel(stage.job, self._admission.over_bytes(stage.job.user), now_s)

    def settle_rest(self, stage: StageState, reason: str, now_s: float) -> None:
        """Cancel the stage's tasks that are not placed, those that have not arrived included."""
        stage.add_tasks([b""] * (stage.spec.task_count - len(stage.states)), {})
        self.settle_blocked(stage, list(stage.blocked), CANCELLED, reason, now_s)
        self.settle_held(stage, sorted(stage.held), CANCELLED, reason, now_s)
        if stage.unplaced <= SETTLED_AT_ONCE_MAX:
            self.settle_unplaced(stage, stage.unplaced_tasks(), CANCELLED, reason, now_s)
            return
        self._admission.withdrawn(stage.job.user, stage.unplaced)
        stage.all_leave(CANCELLED, reason)
        self._ledger.placing.none_unplaced(stage, now_s)
        self.go_on_leaving([stage], now_s)

    # ---- as their clients can be told --------------------------------------------------------

    def _settle_or_leave(
        self, stage: StageState, tasks: list[int], status: TaskStatus, reason: str, now_s: float
    ) -> None:
        """Settle tasks that are out of their states: now, if they are few and their client can be told all of them
        soon; else they leave bit by bit, so that their outcomes take no memory until then."""
        if len(tasks) <= min(SETTLED_AT_ONCE_MAX, self._deliveries.room(stage.job, unrun_bytes(reason))):
            for task in tasks:
                self.settle_unrun(stage, task, status, reason, now_s)
        else:
            stage.begin_to_leave(tasks, status, reason)
            self.go_on_leaving([stage], now_s)

    def go_on_leaving(self, stages: Iterable[StageState], now_s: float) -> None:
        """Tasks of these stages leave, and have their turns from now on."""
        self._leaving.update(dict.fromkeys(stages))
        if self._leaving and not self._settles_leaving:
            self._settle_leaving(now_s)

    def _settle_leaving(self, now_s: float) -> None:
        """Settle some of the tasks that leave; others have their turn before the rest, tasks of other stages too."""
        self._settles_leaving = True
        left = SETTLED_AT_ONCE_MAX
        while self._leaving and left:
            left -= self._settle_some(self._leaving.popitem(last=False)[0], left, now_s)
        self._settles_leaving = bool(self._leaving)
        if self._leaving:
            self._ledger.timers.at(now_s + SETTLING_PAUSE_S, self._settle_leaving)

    def _settle_some(self, stage: StageState, count_max: int, now_s: float) -> int:
        """Settle some of the stage's tasks that leave, as many as its client may be told; returns how many."""
        leave = stage.next_leave() if self._ledger.is_here(stage.job) else None
        tasks: list[int] = []
        if leave is not None:
            room = self._deliveries.room(stage.job, unrun_bytes(leave.reason))
            if not room:
                self._deliveries.wait_for_room(stage)
                return 0
            tasks = stage.take_leaving(leave, min(count_max, room))
            for task in tasks:
                self.settle_unrun(stage, task, leave.status, leave.reason, now_s)
        if stage.next_leave() is not None and self._ledger.is_here(stage.job):
            self._leaving[stage] = None
        else:
            self._deliveries.next_may_look(stage.job.client, now_s)
        return len(tasks)

    # ---- as is known already -----------------------------------------------------------------

    def settle_known(self, stage: StageState, task: int, result: m.Data, now_s: float) -> None:
        """Settle a task that has finished with this result, as its client knows."""
        starts, number = stage.starts_before(task), stage.first + task
        outcome = m.Outcome(stage.job.id, number, FINISHED, result, "", starts, "", None, None, None)
        self._settle(stage, task, outcome, now_s, tell=False)

    # ---- what becomes of them ----------------------------------------------------------------

    def settle_before(self, stage: StageState, first: int, count: int, now_s: float) -> None:
        """Of the tasks that have just arrived those are settled which were settled here before the client came back."""
        job = stage.job
        for task in range(first, first + count):
            if not self._ledger.is_here(job):
                return  # It ended with the one before, and what it held is counted no more.
            outcome = job.settled_before.pop(stage.first + task, None)
            if outcome is None:
                continue
            self._ledger.holds(job, -outcome_bytes(outcome))  # It counts as undelivered from here on.
            if stage.states[task] == UNPLACED:  # Else the client has it, or the stage is doomed.
                stage.withdraw(task, SETTLED)
                self._admission.withdrawn(job.user, 1)
                if not stage.unplaced:
                    self._ledger.placing.none_unplaced(stage, now_s)
                self._settle(stage, task, outcome, now_s)

    def forget_before(self, stage: StageState, first: int, count: int) -> None:
        """As `settle_before`, for tasks that have had other outcomes before they arrived."""
        before = stage.job.settled_before
        for number in range(stage.first + first, stage.first + first + count) if before else ():
            if (outcome := before.pop(number, None)) is not None:
                self._ledger.holds(stage.job, -outcome_bytes(outcome))

    def _settle(self, stage: StageState, task: int, outcome: m.Outcome, now_s: float, *, tell: bool = True) -> bool:
        """The task's outcome is this; False if the job's client is told so little of what there is for it that more is
        held than its user may have."""
        job, fits = stage.job, True
        stage.states[task] = SETTLED
        stage.count_settled(1)
        if task in stage.rerun:
            stage.rerun.discard(task)
            self.produced_again(stage, task, outcome, now_s)
        else:
            job.counts[outcome.status] += 1
            self._settled[outcome.status] += 1
            fits = not tell or self._tell(job, outcome)
            if not stage.successors:
                self.drop_payload(stage, task)
            else:
                self.keep_result(stage, task, outcome.status, outcome.result, now_s)
            if stage.successors and outcome.status is not FINISHED:
                # Each task that is doomed is told so.
                reason = f"task {outcome.task} before it was {outcome.status.value}: {m.cut_reason(outcome.error)}"
                self.doom(stage, reason, now_s)
        # A job whose results are too many bytes may have been cancelled, and have ended, meanwhile.
        if stage.settled == stage.spec.task_count and self._jobs.get(job.id) is job:
            self.stage_over(stage, now_s)
        if job.watched:  # Not of a task that ran again: it was watched until its first end.
            self.watched_ended(job, outcome, now_s)
        return fits

    def keep_result(self, stage: StageState, task: int, status: TaskStatus, result: m.Data, now_s: float) -> None:
        """Keep of a settled task what others may need, and no more."""
        job = stage.job
        needed = status is FINISHED and stage.open_successors > 0
        if needed:
            job.results[stage.first + task] = result
        if needed and isinstance(result, BlobRef):
            job.has_large = stage.large = True  # Its task may have to produce that again.
        else:
            self.drop_payload(stage, task)
        if needed and isinstance(result, bytes) and not self._ledger.holds(job, len(result)):
            self.cancel(job, self._admission.over_bytes(job.user), now_s)

    def drop_payload(self, stage: StageState, task: int) -> None:
        """The task will not start again."""
        payload = stage.payloads[task]
        stage.payloads[task] = None
        if payload and type(payload) is bytes:
            self._ledger.holds(stage.job, -len(payload))
