"""Leases: a task that may last long is charged a lease at a time, and ends when others come before its user.

A plain task has its slot until it ends, and is charged an estimate until then: while one of an hour runs nobody knows
what it will have cost, and afterwards it counts as what its user's tasks take. A task of a stage with `lease_s` is
charged so much slot time when it starts. At the end of each lease that is settled, apart from the user's other tasks,
and the next one is charged, if it is the user's turn. If it is not, as somebody comes first by the queue's policy who
waits for nothing but what this task holds, the task is asked to yield: its executor is sent `Yield`, and has
`yield_within_s` to end the task, which then ends as tasks do. One that has not ended by then is killed, and lost.

One task may wait for what several hold. So a lease is over for good, too, if such a task would fit once all tasks that
have leases and come after its user had ended. What they free is then set aside for it (`set_aside`) until it starts:
else it would be gone by the time at which the last of them has yielded.

On a node that drains no lease is renewed: it is to be empty, and such a task may have no end of its own; if the node
itself is to end, leases are over at a time that leaves tasks some to end in (`end_by`). Nor is one
while a task that has waited for tasks or actors wants its slot again (`paused_tasks`), whoever's it is: what has the
slot may be the very actor that it has waited for, which does not end by itself.

One task of the node is asked at a time. Others whose leases are over meanwhile go on, and are looked at again when it
has ended and its slot is taken: so no more tasks yield than there are turns for others.

Placed tasks (`placed_tasks`) have no leases here: their plane shares the slots, and takes back what it placed. But what
waits in their lane comes before the fair queue, and so before a lease, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from node_monitor.attempt_book import AttemptBook
from node_monitor.attempts import ENDED, RUNS, STOPPED, YIELDS, Attempt, Lease
from node_monitor.counters import Counters
from node_monitor.executors.executor_state import AppState, Balance, ExecutorState
from node_monitor.history import History
from node_monitor.lanes import Lane
from node_monitor.paused_tasks import PausedTasks
from node_monitor.queueing.reservation_queue import ReservationQueue
from node_monitor.queueing.tickets import QueuedTicket
from node_monitor.schedulers import Schedulers
from node_monitor.set_aside import SetAside
from node_monitor.slots import Slots
from node_monitor.stopping import Stopping
from node_monitor.supervision import Supervision
from sparrow_py.executors import executor_protocol as x
from sparrow_py.job import LOST
from sparrow_py.timing.timers import Timers


class Leases:
    """The attempts here that have leases.

    length_s_max: of a lease. within_s: how long a task that is asked to yield may take to end.
    """

    __slots__ = (
        "_apps", "_aside", "_balance", "_book", "_counters", "_due", "_executors", "_history", "_lane", "_leased",
        "_length_s_max", "_looks", "_pauses", "_queue", "_schedulers", "_slots", "_stopping", "_supervision", "_timers",
        "_to_executor", "_within_s", "_yielding",
    )  # fmt: skip

    def __init__(
        self,
        apps: Mapping[str, AppState],
        executors: Mapping[str, ExecutorState],
        balance: Balance,
        slots: Slots,
        queue: ReservationQueue,
        aside: SetAside,
        lane: Lane,
        pauses: PausedTasks,
        book: AttemptBook,
        supervision: Supervision,
        stopping: Stopping,
        schedulers: Schedulers,
        timers: Timers,
        counters: Counters,
        history: History,
        length_s_max: float,
        within_s: float,
        to_executor: Callable[[str, x.ExecutorMessage], None],
    ) -> None:
        self._apps = apps
        self._executors = executors
        self._balance = balance
        self._slots = slots
        self._queue = queue
        self._aside = aside
        self._lane = lane
        self._pauses = pauses
        self._book = book
        self._supervision = supervision
        self._stopping = stopping
        self._schedulers = schedulers
        self._timers = timers
        self._counters = counters
        self._history = history
        self._length_s_max = length_s_max
        self._within_s = within_s
        self._to_executor = to_executor
        self._leased: dict[Attempt, None] = {}
        """All that are here."""
        self._yielding: Attempt | None = None
        """The one that was asked to yield and is here yet."""
        self._due: dict[Attempt, None] = {}
        """Those whose leases are over, and that wait for it to end; the lease that was over first is first."""
        self._looks = False
        """Whether it has ended, and a timer looks at these as soon as free slots have been served."""
        book.lease_ended = self._ended

    # ---- a lease begins, and is over ---------------------------------------------------------

    def begin(self, attempt: Attempt, lease_s: float, now_s: float) -> None:
        """The attempt, whose run has begun, is charged a lease at a time from now on."""
        if attempt.state is not RUNS or attempt.charge.ticket.placed:
            return
        lease = attempt.lease = Lease(min(lease_s, self._length_s_max), now_s)
        self._leased[attempt] = None
        self._queue.lease(attempt.charge, lease.length_s)
        self._wake_at_end(attempt, lease)

    def _wake_at_end(self, attempt: Attempt, lease: Lease) -> None:
        self._timers.at(
            lease.since_s + lease.length_s, lambda now_s: self._over(attempt, now_s), lambda: attempt.state is RUNS
        )

    def end_by(self, at_s: float) -> None:
        """The node, which drains, is to end: leases that would last longer are over at this time."""
        for attempt, lease in [(one, one.lease) for one in self._leased]:
            if lease is not None and lease.since_s + lease.length_s > at_s:
                self._timers.at(at_s, partial(self._over, attempt), partial(_runs, attempt))

    def _over(self, attempt: Attempt, now_s: float) -> None:
        """A lease is over, unless the attempt has ended or is to end."""
        if attempt.state is RUNS:
            self._go_on(attempt, now_s)
            self._even_out(now_s)

    def _go_on(self, attempt: Attempt, now_s: float) -> None:
        """Settle what the attempt has had, and charge it another lease if it is its user's turn."""
        lease = attempt.lease
        assert lease is not None, f"{attempt.key} has a lease"
        held_s = max(0.0, now_s - lease.since_s)
        lease.since_s = now_s
        lease.settled_s += held_s
        self._queue.settle_lease(attempt.charge, held_s)
        if self._renews(attempt, now_s):
            self._due.pop(attempt, None)
            self._wake_at_end(attempt, lease)
        elif self._yielding is not None:
            self._due[attempt] = None
        else:
            self._due.pop(attempt, None)
            self._ask(attempt, now_s)

    # ---- who waits for it --------------------------------------------------------------------

    def _renews(self, attempt: Attempt, now_s: float) -> bool:
        """Charge the attempt another lease, unless somebody comes before its user; what is to be freed for a task that
        waits for several is set aside."""
        if not self._may_renew(attempt):
            return False
        waiting: list[QueuedTicket] = []
        if self._queue.renew(attempt.charge, self._who_waits(attempt, waiting)):
            return True
        ticket = waiting[-1]  # Those before it in order are of users who do not come first.
        if not self._slots.fits_beside(ticket.demand, attempt.charge.ticket.demand):
            self._aside.wait_for(ticket, now_s)
        return False

    def _who_waits(self, attempt: Attempt, waiting: list[QueuedTicket]) -> Callable[[QueuedTicket], bool]:
        """Whether a reservation of a ticket waits for what the attempt holds, alone or with other leases, and for
        nothing else; such a ticket is added to `waiting`."""
        executor = self._executors[attempt.executor_id]
        shared = executor.app if executor.user is None and not executor.leaving else None
        comes_before, aside = self._queue.comes_before, self._aside

        def waits(ticket: QueuedTicket) -> bool:
            app = self._apps[ticket.app]
            if ticket.count <= ticket.asked:
                return False
            several = aside.may_wait(ticket)
            if not self._blocks(attempt, ticket.demand, lambda other: several and comes_before(ticket, other.charge)):
                return False
            if app is shared or app.serves(ticket.user):
                waiting.append(ticket)
                return True
            app.passed_over(ticket.user)
            return False

        return waits

    def _blocks(self, attempt: Attempt, demand: dict[str, float] | None, ends: Callable[[Attempt], bool]) -> bool:
        """Whether a task with this demand cannot have a slot now, and could if the attempt had ended; or, if no other
        is enough by itself, if all had that have leases and are to end for it."""
        slots, own = self._slots, attempt.charge.ticket.demand
        if slots.fits(demand):
            return not slots.free
        if slots.fits_beside(demand, own):
            return True
        if not any(
            amount and not slots.fits({name: demand[name]})
            for name, amount in (own or {}).items()
            if demand and name in demand
        ):
            return False
        freed = dict(own or {})
        for other in self._leased:
            if other is attempt or not ends(other):
                continue
            more = other.charge.ticket.demand
            if slots.fits_beside(demand, more):
                return False
            for name, amount in (more or {}).items():
                freed[name] = freed.get(name, 0.0) + amount
        return slots.fits_beside(demand, freed)

    def _may_renew(self, attempt: Attempt) -> bool:
        """Whether the queue is to say: not if the node drains, a task that has waited wants its slot again and comes
        first, or a placed task waits for what the attempt holds."""
        lane = self._lane
        if self._schedulers.draining or (self._slots.awaited and self._pauses.comes_before(attempt.charge)):
            return False
        return lane.full or not any(
            self._blocks(attempt, task.ticket.demand, lambda _: True) for task in lane.waiting.values()
        )

    def _even_out(self, now_s: float) -> None:
        """Users who had their turn and have no executor get one: as no slot is free, nothing else sees to that."""
        if self._balance.uneven:
            self._supervision.even_out(now_s)

    # ---- one yields --------------------------------------------------------------------------

    def _ask(self, attempt: Attempt, now_s: float) -> None:
        """Ask the attempt's executor to have it end."""
        attempt.becomes(YIELDS)
        self._yielding = attempt
        self._counters.yields += 1
        if self._history.kept:
            self._history.note(now_s, "run %d of executor %s is to yield", attempt.run, attempt.executor_id)
        self._to_executor(attempt.executor_id, x.Yield(attempt.run, self._within_s))
        self._timers.at(
            now_s + self._within_s, lambda at_s: self._too_late(attempt, at_s), lambda: attempt.state is YIELDS
        )

    def _too_late(self, attempt: Attempt, now_s: float) -> None:
        """The attempt has had its time to end, and is lost if it has not used it."""
        if attempt.state is YIELDS:
            self._counters.yields_late += 1
            reason = f"it was asked to yield its slot, and did not end within yield_within_s = {self._within_s:g} s"
            self._stopping.stop(attempt, LOST, reason, now_s)

    def _ended(self, attempt: Attempt, now_s: float) -> None:
        """An attempt with a lease has left."""
        self._leased.pop(attempt, None)
        self._due.pop(attempt, None)
        if attempt is self._yielding:
            self._yielding = None
            if self._due and not self._looks:
                self._looks = True
                self._timers.at(now_s, self._look)

    def _look(self, now_s: float) -> None:
        """The slot of the one that yielded is taken: look at those whose leases were over meanwhile."""
        self._looks = False
        for attempt in list(self._due):
            if self._yielding is not None:
                break
            if attempt.state is RUNS:
                self._go_on(attempt, now_s)
            else:  # It is being stopped.
                del self._due[attempt]
        self._even_out(now_s)

    # ---- invariants --------------------------------------------------------------------------

    def problem(self) -> str | None:
        """What does not hold, if anything."""
        attempts = self._book.by_key.values()
        asked = [one for one in attempts if one.state is YIELDS]
        yielding = self._yielding
        if any(one is not yielding for one in asked):
            return f"{len(asked)} attempts were asked to yield; one at a time is"
        if yielding is not None and (yielding.state not in (YIELDS, STOPPED) or yielding.lease is None):
            return f"{yielding.key} was asked to yield, and is {yielding.state.value}"
        if any(one.lease is None or one.state is ENDED for one in self._leased):
            return "attempts without leases, or that have ended, are counted as having some"
        for one in self._due:
            if one.lease is None or one.state in (ENDED, YIELDS):
                return f"the lease of {one.key} is over, and it is {one.state.value}"
        if self._due and yielding is None and not self._looks:
            return f"{len(self._due)} leases are over, and nobody looks at them"
        return None


def _runs(attempt: Attempt) -> bool:
    return attempt.state is RUNS
