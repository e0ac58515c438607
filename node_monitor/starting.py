"""Tasks become attempts: they are let in, given to executors, and started once their inputs are here."""

from __future__ import annotations

from collections.abc import Callable

from node_monitor.attempt_book import AttemptBook
from node_monitor.attempts import GIVEN_AHEAD, PLACED, RUNS, Attempt, RememberingAttempt
from node_monitor.counters import Counters
from node_monitor.executors.common_bytes import SentCommonBytes
from node_monitor.executors.executor_state import ExecutorState
from node_monitor.fences import Fences
from node_monitor.history import History
from node_monitor.inputs import Inputs
from node_monitor.jobs import Jobs
from node_monitor.leases import Leases
from node_monitor.queueing.tickets import Charge
from node_monitor.remembered_starts import RememberedStarts
from node_monitor.stopping import Stopping
from sparrow_py.executors import executor_protocol as x
from sparrow_py.job import INPUTS_MAX, RAN_TOO_LONG, BlobRef
from sparrow_py.wire import messages as m


class Starting:
    """From a task that has its charge and its place to a run of an executor."""

    __slots__ = (
        "_attempts", "_book", "_commons", "_counters", "_executors", "_fences", "_inputs", "_jobs", "_leases", "_make",
        "_next_run", "_starts", "_stopping", "_to_executor", "_to_scheduler",
    )  # fmt: skip

    def __init__(
        self,
        executors: dict[str, ExecutorState],
        jobs: Jobs,
        book: AttemptBook,
        inputs: Inputs,
        stopping: Stopping,
        leases: Leases,
        fences: Fences,
        starts: RememberedStarts,
        commons: SentCommonBytes,
        counters: Counters,
        history: History,
        to_executor: Callable[[str, x.ExecutorMessage], None],
        to_scheduler: Callable[[str, m.Message], None],
    ) -> None:
        self._executors = executors
        self._jobs = jobs
        self._book = book
        self._attempts = book.by_key
        self._inputs = inputs
        self._stopping = stopping
        self._leases = leases
        self._fences = fences
        self._starts = starts
        self._commons = commons
        self._counters = counters
        self._make = RememberingAttempt if history.kept else Attempt
        self._to_executor = to_executor
        self._to_scheduler = to_scheduler
        self._next_run = 1

    # ---- let in ------------------------------------------------------------------------------

    def enter(self, scheduler: str, task: m.Launch, charge: Charge) -> Attempt | None:
        """The task, which is charged to its user, is an attempt here. None, and it is handed back, if it may not."""
        if (self._fences.epochs or task.inputs) and self._may_not_start(scheduler, task, charge.ticket.user):
            return None
        job = self._jobs.by_key.get((scheduler, task.job)) or self._jobs.job(scheduler, task.job)
        job.forgotten = False
        job.owner = (charge.ticket.user, job.instance)
        job.attempts += 1
        common = job.commons.get(task.stage)
        attempt = self._make(job, task.task, task.attempt, task.payload, common, task.inputs, charge)
        self._attempts[scheduler, task.job, task.attempt] = attempt
        return attempt

    def _may_not_start(self, scheduler: str, task: m.Launch, user: str) -> bool:
        """Whether the task cannot start here; then it has been handed back."""
        if self._fences.epochs and self._fenced(scheduler, task, user):
            return True
        if self._has_inputs(scheduler, task):
            return False
        self._hand_back(scheduler, task, "its inputs were not sent before it")
        return True

    def _fenced(self, scheduler: str, task: m.Launch, user: str) -> bool:
        """Whether another scheduler has claimed the task's job; then this one is told."""
        job = self._jobs.by_key.get((scheduler, task.job))
        owner = user, job.instance if job is not None else 0
        epoch = self._fences.epoch(owner, task.job)
        if task.attempt >> m.EPOCH_SHIFT >= epoch:
            return False
        self._to_scheduler(scheduler, m.Fenced(task.job, epoch, *owner))
        self._hand_back(scheduler, task, "another scheduler has the job")
        return True

    def _has_inputs(self, scheduler: str, task: m.Launch) -> bool:
        """Whether the results that the task asks for have come."""
        if not task.inputs:
            return True
        job = self._jobs.by_key.get((scheduler, task.job))
        # Summed before they are walked: a scheduler out of its mind may ask for 2^63 of them.
        if job is None or sum(max(1, count) for _, count in task.inputs) > INPUTS_MAX:
            return False
        return all(number in job.inputs for first, count in task.inputs for number in range(first, first + count))

    def _hand_back(self, scheduler: str, task: m.Launch, reason: str) -> None:
        self._counters.handed_back += 1
        self._to_scheduler(scheduler, m.HandBack(task.job, task.attempt, reason))

    # ---- given to an executor ----------------------------------------------------------------

    def give(self, executor: ExecutorState, attempt: Attempt, now_s: float) -> None:
        """The attempt's place is at this executor: start it there, once its inputs are here."""
        attempt.executor_id = executor.id
        run = attempt.run = self._next_run
        self._next_run = run + 1
        executor.running[run] = attempt
        attempt.given_at_s = now_s
        common = attempt.common
        if attempt.inputs or type(attempt.payload) is BlobRef or (common is not None and common.large):
            no_room = self._inputs.wait(attempt)
            if no_room:
                self._book.hand_back(attempt, executor, no_room, now_s, self._inputs.needed(attempt))
                return
        if attempt.state is PLACED:
            self._start(executor, attempt, now_s)

    def fetched(self, user: str, hash_: str, reason: str, now_s: float) -> None:
        """Large data that the user's jobs need has come, or cannot be had: `reason` says why, and is empty if it has
        come."""
        inputs = self._inputs
        for attempt in inputs.answered(user, hash_, came=not reason):
            if reason:
                self._book.hand_back_waiting(attempt, reason, now_s, (hash_,))
                continue
            no_room = inputs.keep(attempt, hash_)
            if no_room:
                self._book.hand_back_waiting(attempt, no_room, now_s, (hash_,))
            elif not attempt.missing:
                self._start(self._executors[attempt.executor_id], attempt, now_s)

    def _start(self, executor: ExecutorState, attempt: Attempt, now_s: float) -> None:
        """Everything that the attempt needs is here: its executor gets it."""
        if RUNS not in attempt.state.may_become:
            raise attempt.forbidden(RUNS)
        job, common = attempt.job, attempt.common
        number, timeout_s = 0, None
        if common is not None:
            timeout_s = common.task_timeout_s
            if common.lease_s is not None and executor.version < x.YIELD_SINCE:
                reason = f"lease_s needs version {x.YIELD_SINCE} of the executor protocol; {executor.id} speaks version"
                self._book.hand_back(attempt, executor, f"{reason} {executor.version}", now_s, lasting=True)
                return
            if common.data:
                number = common.number
                if number not in executor.commons:
                    self._commons.send(executor, number, self._inputs.local(common.data, executor))
                elif common.large:  # It may have gone and come back, and then the executor has to be let in again.
                    self._inputs.local(common.data, executor)
        self._counters.started += 1
        if job.once:
            self._starts.add(job.owner, job.id, attempt.task, now_s)
        inputs = self._local_inputs(attempt, executor) if attempt.inputs else []
        payload = attempt.payload
        local = payload if type(payload) is bytes else self._inputs.local(payload, executor)
        measure = attempt.charge.ticket.placed
        self._to_executor(executor.id, x.Run(attempt.run, number, local, inputs, job.owner[0], attempt.task, measure))
        attempt.payload = b""
        attempt.given_at_s = now_s
        if attempt.ahead is None:
            attempt.state = RUNS
            attempt.began_at_s = now_s
        else:
            attempt.state = GIVEN_AHEAD
        if common is not None and common.lease_s is not None:
            self._leases.begin(attempt, common.lease_s, now_s)
        if timeout_s is not None:
            reason = f"{RAN_TOO_LONG} = {timeout_s:g} s"
            self._stopping.stop_at(now_s + timeout_s, executor.id, attempt.run, reason)

    def _local_inputs(self, attempt: Attempt, executor: ExecutorState) -> list[x.Data]:
        """The results that the attempt asked for, as the executor is given them."""
        return [self._inputs.local(data, executor) for data in attempt.job.inputs_of(attempt.inputs)]
