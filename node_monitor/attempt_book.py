"""The attempts that are at this node, and the one way in which they leave it."""

from __future__ import annotations

from collections.abc import Callable

from node_monitor.attempts import ENDED, WAITS, Attempt, State
from node_monitor.blobs.lack_of_room import LackOfRoom
from node_monitor.counters import Counters
from node_monitor.executors.executor_state import ExecutorState
from node_monitor.inputs import Inputs
from node_monitor.jobs import Jobs
from node_monitor.queueing.reservation_queue import ReservationQueue
from node_monitor.remembered_outcomes import RememberedOutcomes
from node_monitor.slots import Slots
from sparrow_py.job import CANCELLED, TaskStatus
from sparrow_py.wire import messages as m
from sparrow_py.wire.messages import Report


class AttemptBook:
    """Attempts by (scheduler, job, id). Each has a place at an executor, a charge, and its job's count."""

    __slots__ = (
        "_counters", "_executors", "_inputs", "_jobs", "_outcomes", "_queue", "_slots", "_to_scheduler", "by_key",
        "lease_ended", "left", "moved", "paused_ended",
    )  # fmt: skip

    def __init__(
        self,
        executors: dict[str, ExecutorState],
        queue: ReservationQueue,
        slots: Slots,
        inputs: Inputs,
        jobs: Jobs,
        outcomes: RememberedOutcomes,
        counters: Counters,
        to_scheduler: Callable[[str, m.Message], None],
    ) -> None:
        self.by_key: dict[tuple[str, str, int], Attempt] = {}
        self._executors = executors
        self._queue = queue
        self._slots = slots
        self._inputs = inputs
        self._jobs = jobs
        self._outcomes = outcomes
        self._counters = counters
        self._to_scheduler = to_scheduler
        self.lease_ended: Callable[[Attempt, float], None]
        """Is told of each attempt with a lease that has left, before anything else gets its slot."""
        self.paused_ended: Callable[[Attempt, ExecutorState], None]
        """Is told of each attempt that is about to leave without a slot."""
        self.left: Callable[[Attempt], None] | None = None
        """Is told of each attempt that has left, if somebody wants to know."""
        self.moved: Callable[[Attempt], None] | None = None
        """The same of each that a scheduler has claimed, which has been told so."""

    def in_state(self, state: State, scheduler: str | None = None) -> list[Attempt]:
        """All that are in this state, of a scheduler or of all."""
        found = self.by_key.values()
        return [one for one in found if one.state is state and scheduler in (None, one.job.scheduler)]

    def leave(
        self,
        attempt: Attempt,
        executor: ExecutorState,
        now_s: float,
        last: m.Report | m.HandBack | m.Preempted | None,
        service_s: float | None = None,
    ) -> None:
        """The attempt is here no more: every end of an attempt is this.

        | way out                                   | last            | service_s              |
        | ----------------------------------------- | --------------- | ---------------------- |
        | its executor ended it                     | Report          | how long it ran        |
        | its executor died while it ran or waited  | Report          | how long it ran        |
        | its executor died before it began         | Report          | None                   |
        | cancelled before it began                 | Report          | None                   |
        | was stopped to make room                  | Preempted       | how long it ran        |
        | cannot start here, or was asked back      | HandBack        | None                   |
        | its job was claimed, or its scheduler left| None            | None                   |

        last: what its scheduler is told. service_s: what its user is charged for; with None the charge is refunded.
        """
        state = attempt.state
        if ENDED not in state.may_become:
            raise attempt.forbidden(ENDED)
        attempt.state = ENDED
        if executor.waiting is attempt:
            self.paused_ended(attempt, executor)
        executor.end(attempt.run, now_s)
        charge, job = attempt.charge, attempt.job
        if attempt.lease is not None:
            held_s = (service_s or 0.0) - attempt.lease.settled_s
            self._queue.end_lease(charge, held_s if held_s > 0 else 0.0)
            self.lease_ended(attempt, now_s)
        elif attempt.pauses is not None:
            held_s = (service_s or 0.0) - attempt.pauses.settled_s
            self._queue.end_lease(charge, held_s if held_s > 0 else 0.0)
        elif service_s is None:
            self._queue.refund(charge)
        else:
            self._queue.settle(charge, service_s)
        scheduler = job.scheduler
        if last is not None:
            if type(last) is Report and last.status is not CANCELLED:
                self._outcomes.remember(job.owner, last)
            self._to_scheduler(scheduler, last)
        del self.by_key[scheduler, job.id, attempt.number]
        if charge.ticket.holds_more:
            self._slots.return_resources(charge)
        if state is WAITS:
            self._inputs.wait_no_more(attempt)
        if self._inputs.holding:
            self._inputs.release(attempt)
        job.attempts -= 1
        if job.forgotten and not job.attempts:
            self._jobs.forget(job)
        if executor.places > 1 or not executor.running:
            self._slots.free += executor.app.free_places(executor, now_s)
        if self.left is not None:
            self.left(attempt)

    def report(
        self,
        attempt: Attempt,
        executor: ExecutorState,
        now_s: float,
        status: TaskStatus,
        error: str,
        service_s: float | None = None,
    ) -> None:
        """An attempt that has no result leaves with a report."""
        report = m.Report(attempt.job.id, attempt.task, attempt.number, status, b"", error, None, None)
        self.leave(attempt, executor, now_s, report, service_s)

    def hand_back(
        self,
        attempt: Attempt,
        executor: ExecutorState,
        reason: str,
        now_s: float,
        missing: tuple[str, ...] = (),
        *,
        lasting: bool = False,
    ) -> None:
        """An attempt that was not started leaves, for its scheduler to place it elsewhere; `lasting`: so would others
        of its stage."""
        self._counters.handed_back += 1
        no_room = reason.kind if isinstance(reason, LackOfRoom) else ""
        back = m.HandBack(attempt.job.id, attempt.number, str(reason), missing, lasting, no_room)
        self.leave(attempt, executor, now_s, back)

    def hand_back_waiting(self, attempt: Attempt, reason: str, now_s: float, missing: tuple[str, ...] = ()) -> None:
        """The same, for one that waits for its inputs."""
        self.hand_back(attempt, self._executors[attempt.executor_id], reason, now_s, missing)

    def withdraw(self, attempt: Attempt, now_s: float) -> None:
        """An attempt that waits for its inputs leaves without a word: nobody will ask for it."""
        self.leave(attempt, self._executors[attempt.executor_id], now_s, None)
