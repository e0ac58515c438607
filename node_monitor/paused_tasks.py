"""Tasks that wait for tasks of their own (nested tasks) give their slots back meanwhile, and get one again.

An executor with one place, beside others of its app, says `Waits` before its task waits, and `WantsSlot` before the
task goes on. In between the task's process stays as it is, and its slot runs others: so a slot never runs two tasks
that do not wait, and tasks that wait for each other's children cannot fill a node. Those that want a slot again have
it before all else of their user, the deepest first. Users take turns by the queue's policy (`comes_first`): nobody
waits for another user's tasks, so one who waits and goes on, over and over, has no more than its share. What else was
given to the executor is asked back before the task waits.

What a task takes before it waits, and between its waits, is settled with its user when it gives its slot back. It
counts as no more than an open charge while it waits, and when it goes on its estimate is pending again: it is charged
out of turn then, which `queueing.fair` reckons with.

A task keeps what it demands besides its slot, as its process still has it. One of a stage with `lease_s` may not wait
so: it is charged a lease at a time, and asked to yield. Nor may one that was placed here by a plane that reckons with
slots by itself, and has no turns at this queue.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from node_monitor.attempt_book import AttemptBook
from node_monitor.attempts import GIVEN_AHEAD, PAUSED, RESUMING, RUNS, STOPPED, Attempt, Pauses
from node_monitor.counters import Counters
from node_monitor.executors.executor_state import ExecutorState
from node_monitor.history import History
from node_monitor.queueing.reservation_queue import ReservationQueue
from node_monitor.queueing.tickets import SLOTS_PER_CHARGE, Charge, QueuedTicket
from node_monitor.slots import Slots
from node_monitor.stopping import Stopping
from node_monitor.supervision import Supervision
from sparrow_py.errors import LinkError
from sparrow_py.executors import executor_protocol as x
from sparrow_py.limits.shares import Shares

HAS_LEASE = "its stage has lease_s, and a task with a lease keeps its slot"
IS_PLACED = "its scheduler reckons with slots by itself, and its tasks keep theirs"


class PausedTasks:
    """See the module's docstring. waiting_max: tasks that may wait without a slot; users share it."""

    __slots__ = (
        "_book", "_counters", "_executors", "_history", "_queue", "_resuming", "_seats", "_slots", "_stopping",
        "_supervision", "_to_executor",
    )  # fmt: skip

    def __init__(
        self,
        executors: Mapping[str, ExecutorState],
        slots: Slots,
        queue: ReservationQueue,
        book: AttemptBook,
        supervision: Supervision,
        stopping: Stopping,
        counters: Counters,
        history: History,
        waiting_max: int,
        to_executor: Callable[[str, x.ExecutorMessage], None],
    ) -> None:
        self._executors = executors
        self._slots = slots
        self._queue = queue
        self._book = book
        self._supervision = supervision
        self._stopping = stopping
        self._counters = counters
        self._history = history
        self._seats = Shares(
            "waiting_tasks_max", waiting_max, "tasks of a node wait for tasks of their own", lends=True
        )
        """Taken by tasks that have no slot, those that want one again included."""
        self._to_executor = to_executor
        self._resuming: list[Attempt] = []
        """Those that want a slot again, in the order in which they have said so."""
        book.paused_ended = self._ended

    @property
    def count(self) -> int:
        """Tasks that have no slot, those that want one again included."""
        return self._seats.total

    # ---- a slot is given back ----------------------------------------------------------------

    def waits(self, executor_id: str, message: x.Waits, now_s: float) -> None:
        """The executor's task is about to wait: its slot is free, unless it has to be refused. `LinkError` if the
        executor does not run it."""
        executor = self._executors[executor_id]
        attempt = executor.running.get(message.run)
        if attempt is None or executor.waiting is not None:
            raise LinkError(f"executor {executor_id} says that run {message.run} waits, which does not run there")
        if attempt.state is STOPPED:
            return  # Its executor is being ended.
        if why_not := self._why_not(executor, attempt):
            self._counters.waits_refused += 1
            self._to_executor(executor_id, x.MayWait(message.run, why_not))
            return
        self._ask_back_others(executor, attempt)
        self._pause(executor, attempt, now_s)
        self._to_executor(executor_id, x.MayWait(message.run))

    def _why_not(self, executor: ExecutorState, attempt: Attempt) -> str:
        """Why it may not wait without its slot; empty if it may."""
        if executor.places != 1 or executor.app.plan.one_process:
            return f"executor {executor.id} is for all slots; one beside others of its app may wait"
        if attempt.lease is not None:
            return HAS_LEASE
        if attempt.charge.ticket.placed:
            return IS_PLACED
        if attempt.state is not RUNS:
            return f"it {attempt.state.value}"
        return self._seats.why_not(attempt.job.owner[0])

    def _ask_back_others(self, executor: ExecutorState, attempt: Attempt) -> None:
        """What is behind the task at its executor would wait as long as the task does."""
        for other in executor.running.values():
            if other is not attempt and other.state is GIVEN_AHEAD:
                self._stopping.ask_back(executor, other)

    def _pause(self, executor: ExecutorState, attempt: Attempt, now_s: float) -> None:
        assert attempt.began_at_s is not None, f"{attempt.key} runs"
        attempt.becomes(PAUSED)
        pauses = attempt.pauses
        if pauses is None:
            pauses = attempt.pauses = Pauses(attempt.began_at_s)
        held_s = max(0.0, now_s - pauses.had_slot_since_s)
        pauses.settled_s += held_s
        pauses.without_slot_since_s = now_s
        self._queue.pause(attempt.charge, held_s)
        executor.waiting = attempt
        executor.busy_places = 0
        self._slots.free += SLOTS_PER_CHARGE
        self._seats.take(attempt.job.owner[0])
        self._counters.waits += 1
        self._supervision.slot_given_back(executor.app)
        if self._history.kept:
            self._history.note(now_s, "run %d of executor %s waits without its slot", attempt.run, executor.id)

    # ---- and wanted again --------------------------------------------------------------------

    def wants_slot(self, executor_id: str, message: x.WantsSlot, now_s: float) -> None:
        """The executor's task has waited, and goes on as soon as it has a slot: `HasSlot` says so. `LinkError` if it
        does not wait."""
        attempt = self._executors[executor_id].waiting
        if attempt is None or attempt.run != message.run or attempt.state not in (PAUSED, STOPPED):
            raise LinkError(f"executor {executor_id} wants a slot for run {message.run}, which does not wait there")
        if attempt.state is STOPPED:
            return  # Its executor is being ended.
        attempt.becomes(RESUMING)
        user = attempt.job.owner[0]
        if not any(one.job.owner[0] == user for one in self._resuming):
            self._queue.wants_again(attempt.charge)
        self._resuming.append(attempt)
        self._slots.awaited += 1
        if self._slots.free > 0 and not self._queue.size:
            self.fill(now_s)

    def fill(self, now_s: float) -> None:
        """Free slots, which nobody else may have, are for those that want one again."""
        while self._slots.awaited and self._slots.free > 0:
            self._go_on(self._first(), now_s)

    def fill_in_turn(self, may_run: Callable[[QueuedTicket], bool], now_s: float) -> bool:
        """Let one of them have a free slot, if it is its user's turn and nobody's who has a ticket that may run;
        whether one has it."""
        first = self._first()
        if not self._queue.comes_first(first.charge, may_run):
            return False
        self._go_on(first, now_s)
        return True

    def comes_before(self, charge: Charge) -> bool:
        """Whether one of them comes before another lease of this task."""
        return any(
            one.charge.ticket.user == charge.ticket.user or self._queue.precedes(one.charge, charge)
            for one in self._resuming
        )

    def _first(self) -> Attempt:
        """Of the user whose turn it is the deepest, as it has what others wait for; of equal ones the first."""
        first, *others = self._resuming
        for one in others:
            if one.charge.ticket.user == first.charge.ticket.user:
                first = one if _depth(one) > _depth(first) else first
            elif self._queue.precedes(one.charge, first.charge):
                first = one
        return first

    def _go_on(self, attempt: Attempt, now_s: float) -> None:
        self._wants_no_more(attempt)
        if attempt.state is not RESUMING:  # Its executor is being ended.
            return
        executor, slots = self._executors[attempt.executor_id], self._slots
        attempt.waited_until(now_s)
        attempt.becomes(RUNS)
        executor.waiting = None
        executor.busy_places = 1
        self._seats.give_back(attempt.job.owner[0])
        slots.free -= SLOTS_PER_CHARGE
        self._queue.go_on(attempt.charge)
        self._to_executor(executor.id, x.HasSlot(attempt.run))
        if self._history.kept:
            self._history.note(now_s, "run %d of executor %s goes on", attempt.run, executor.id)

    def _wants_no_more(self, attempt: Attempt) -> None:
        self._resuming.remove(attempt)
        self._slots.awaited -= 1

    def _ended(self, attempt: Attempt, executor: ExecutorState) -> None:
        """The attempt ends without a slot, with its executor."""
        executor.waiting = None
        self._seats.give_back(attempt.job.owner[0])
        if attempt in self._resuming:
            self._wants_no_more(attempt)

    # ---- invariants --------------------------------------------------------------------------

    def problem(self) -> str | None:
        """What does not hold, if anything."""
        waiting = [one for executor in self._executors.values() if (one := executor.waiting) is not None]
        if len(waiting) != self.count or self.count > self._seats.limit:
            return f"{len(waiting)} tasks wait without a slot, counted as {self.count} of {self._seats.limit}"
        if len(self._resuming) != self._slots.awaited:
            return f"{len(self._resuming)} tasks want a slot again, counted as {self._slots.awaited}"
        if any(one not in waiting or one.state not in (RESUMING, STOPPED) for one in self._resuming):
            return "a task wants a slot again that does not wait"
        if sum(one.state is RESUMING for one in waiting) != sum(one.state is RESUMING for one in self._resuming):
            return "a task that wants a slot again is in no line"
        return None


def _depth(attempt: Attempt) -> int:
    return attempt.charge.ticket.depth
