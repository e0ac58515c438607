"""Attempts end: nodes report them, hand them back, or are lost with them. What was started in vain starts again, as
often as its job says (guarantee 3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from scheduler.book.jobs import NOT_ASKED
from scheduler.book.setbacks import Cause
from scheduler.book.validation import check_seconds
from sparrow_py.job import FAILED, LOST
from sparrow_py.wire import messages as m

if TYPE_CHECKING:
    from scheduler.book.attempts import Attempts
    from scheduler.book.claims import Claims
    from scheduler.book.jobs import Attempt, StageState
    from scheduler.book.ledger import Ledger
    from scheduler.book.lost_inputs import LostInputs
    from scheduler.book.nodes import Node
    from scheduler.book.outcomes import Outcomes
    from scheduler.book.restarts import Restarts
    from scheduler.book.room_waits import RoomWaits


@dataclass(eq=False, slots=True)
class Endings:
    """The ends of all attempts of a scheduler."""

    _ledger: Ledger
    _attempts: Attempts
    _outcomes: Outcomes
    _restarts: Restarts
    _lost_inputs: LostInputs
    _room_waits: RoomWaits
    _claims: Claims

    def reported(self, node: Node, message: m.Report, now_s: float) -> None:
        """A node says how an attempt ended."""
        attempt = self._attempts.take(node, message.job, message.attempt)
        if attempt is None:
            self._reported_of_another(node, message, now_s)
            return
        stage, placing = attempt.stage, self._ledger.placing
        if stage.room_waits:
            self._room_waits.started(attempt)
        unplaced = stage.unplaced
        if placing.hears_reports:
            placing.attempt_reported(attempt, message)
        if message.status is LOST:
            self.lost(attempt, message.error, now_s)
        else:
            self._ended(attempt, node, message, now_s)
        if stage.unplaced > unplaced:  # It is to start again.
            placing.tasks_unplaced(stage, now_s)

    def _reported_of_another(self, node: Node, message: m.Report, now_s: float) -> None:
        """The attempt is not one of ours, or has ended; perhaps another scheduler started it."""
        job = self._ledger.jobs.get(message.job)
        if job is None or not job.epoch or not self._claims.report(job, node, message, now_s):
            self._ledger.counters.stale_reports += 1

    def _ended(self, attempt: Attempt, node: Node, message: m.Report, now_s: float) -> None:
        """An executor finished with the attempt, or failed: the outcome, or another start."""
        stage, task = attempt.stage, attempt.task
        starts = stage.starts_before(task) + 1
        if message.status is FAILED and self._runs_again(attempt, message, starts, now_s):
            return
        del stage.attempts[task]
        self._outcomes.settle_reported(stage, task, node.id, message, starts, now_s)

    def _runs_again(self, attempt: Attempt, message: m.Report, starts: int, now_s: float) -> bool:
        """The attempt failed, the task's start of this number: whether the task is to start again."""
        stage, job = attempt.stage, attempt.stage.job
        if attempt.cancelling != NOT_ASKED or job.cancelled:  # Nobody wants another start, even if this one ran on.
            return False
        if message.retry and stage.retries is not None and stage.retries.may_retry(attempt.task):
            self._restarts.retry_later(attempt, message.error, now_s)
            return True
        if job.retry_failed and starts < job.max_attempts:
            self._restarts.retry(attempt, message.error, now_s)
            return True
        return False

    def lost(self, attempt: Attempt, reason: str, now_s: float) -> None:
        """Node or executor died before the outcome was known: again, if attempts remain. The caller sees to it that
        nodes are found."""
        self._ledger.counters.attempts_lost += 1
        stage, task = attempt.stage, attempt.task
        starts = stage.starts.get(task, 0) + 1
        if starts < stage.job.max_attempts:
            self._restarts.retry(attempt, reason, now_s)
            return
        del stage.attempts[task]
        starts += stage.failures(task)
        noun = "time" if starts == 1 else "times"
        self._outcomes.settle_unrun(stage, task, LOST, f"started {starts} {noun}: {reason}", now_s, starts)

    def handed_back(self, node: Node, message: m.HandBack, now_s: float) -> None:
        """The task was not started there: it is unplaced again, and this was no start."""
        ledger = self._ledger
        attempt = self._attempts.take(node, message.job, message.attempt)
        if attempt is None:
            ledger.counters.stale_reports += 1
            return
        stage = attempt.stage
        ledger.counters.handed_back += 1
        ledger.counters.pushes_handed_back += attempt.pushed
        reason = m.cut_reason(message.reason)
        ledger.placing.handed_back(attempt, node, now_s)
        ledger.note(now_s, message.job, "task %d handed back: %s", stage.first + attempt.task, reason)
        if message.lasting:
            stage.search.barred_by[node.id] = reason
        wanted = not (attempt.cancelled or stage.job.cancelled)
        if message.no_room and wanted:
            self._room_waits.wait(attempt, message.no_room, reason, now_s)
        elif message.missing and wanted:
            self._lost_inputs.missing(attempt, message.missing, reason, now_s)
        else:
            self._restarts.give_back(attempt, now_s)
        if ledger.is_here(stage.job):
            ledger.placing.tasks_unplaced(stage, now_s)

    def preempted(self, node: Node, message: m.Preempted, now_s: float) -> None:
        """A node has stopped an attempt to make room: its task is unplaced again, and the start does not count. If it
        was another scheduler that asked for it, then of a job that has come from there."""
        check_seconds(node.id, "service_s", message.service_s)
        ledger = self._ledger
        job = ledger.jobs.get(message.job)
        attempt = job.attempts.get(message.attempt) if job is not None else None
        if attempt is None or attempt.node_id != node.id or not (attempt.preempting or _is_adopted(attempt)):
            ledger.counters.stale_reports += 1
            return
        self._attempts.end(attempt)
        self._room_waits.started(attempt)
        stage = attempt.stage
        ledger.counters.preempted += 1
        ledger.placing.preempted(attempt, node, message.service_s, now_s)
        ledger.note(now_s, message.job, "task %d preempted on node %s", stage.first + attempt.task, node.id)
        why = f"it was preempted on node {node.id}"
        ledger.setbacks.note(stage, attempt.task, Cause.IN_VAIN, now_s, now_s, why)
        self._restarts.give_back(attempt, now_s)
        if ledger.is_here(stage.job):
            ledger.placing.tasks_unplaced(stage, now_s)

    def node_lost(self, node: Node, now_s: float) -> list[StageState]:
        """The node is gone, with all attempts that were there; returns their stages, whose tasks may be unplaced."""
        stages: dict[StageState, None] = {}
        for attempt in sorted(node.attempts, key=lambda attempt: attempt.order):
            self._attempts.end(attempt)
            self._room_waits.started(attempt)
            stages[attempt.stage] = None
            self.lost(attempt, f"node {node.id} was lost", now_s)
        return list(stages)


def _is_adopted(attempt: Attempt) -> bool:
    """Whether another scheduler started it, which may have asked for it to be preempted."""
    job = attempt.stage.job
    return job.preemptible and attempt.id >> m.EPOCH_SHIFT < job.epoch
