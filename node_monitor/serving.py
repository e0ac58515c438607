"""Free slots serve the queue: ready tasks start, and for other reservations slots ask.

A slot that is free is offered to the fair queue, with whose users take turns whose tasks have waited for others and
want their slots again (`paused_tasks`). While placed tasks wait, their lane has it before (`placed_tasks`).
What is set aside for a task of the queue (`set_aside`) is not free for others, but for those of a higher priority.
"""

from __future__ import annotations

from collections.abc import Mapping

from node_monitor.asking import Ask, Asking
from node_monitor.attempts import ENDED
from node_monitor.executors.executor_state import AppState, Balance
from node_monitor.paused_tasks import PausedTasks
from node_monitor.pipelining import Pipelining
from node_monitor.queueing.backlog import Backlog
from node_monitor.queueing.tickets import SLOTS_PER_CHARGE, Charge, Key, QueuedTicket
from node_monitor.schedulers import Schedulers
from node_monitor.set_aside import PASSED_OVER_S, SetAside
from node_monitor.slots import Aside, Slots
from node_monitor.starting import Starting
from node_monitor.supervision import Supervision
from sparrow_py.wire import messages as m


class Serving:
    """How the node's slots are used."""

    __slots__ = (
        "_apart", "_apps", "_aside", "_asking", "_balance", "_has_accounts", "_lacking", "_pauses", "_pipelining",
        "_queue", "_ready", "_schedulers", "_slots", "_starting", "_supervision",
    )  # fmt: skip

    def __init__(
        self,
        apps: Mapping[str, AppState],
        balance: Balance,
        slots: Slots,
        backlog: Backlog,
        aside: SetAside,
        pauses: PausedTasks,
        asking: Asking,
        starting: Starting,
        pipelining: Pipelining,
        supervision: Supervision,
        schedulers: Schedulers,
    ) -> None:
        self._apps = apps
        self._balance = balance
        self._slots = slots
        self._queue = backlog.queue
        self._ready = backlog.ready
        self._aside = aside
        self._pauses = pauses
        self._apart: tuple[QueuedTicket, Aside] | None = None
        """While slots are filled: the ticket for which resources are set aside, and those."""
        self._lacking: QueuedTicket | None = None
        """While slots are filled: the first ticket in order that lacked nothing but resources."""
        self._asking = asking
        self._starting = starting
        self._pipelining = pipelining
        self._supervision = supervision
        self._schedulers = schedulers
        self._has_accounts = any(app.offered.has_accounts for app in apps.values())

    def fill(self, now_s: float) -> None:
        """Use the slots that are free."""
        ticket = self._aside.due(now_s) if self._aside.noted is not None else None
        if ticket is None:
            self._fill(now_s)
        else:
            self._set_aside(ticket)
            try:
                self._fill(now_s)
            finally:
                self._give_back()
        if self._lacking is not None:
            self._aside.wait_for(self._lacking, now_s + PASSED_OVER_S)
            self._lacking = None

    def _set_aside(self, ticket: QueuedTicket) -> None:
        """Others may use what this ticket's first task does not need; unless all executors that could run it are busy
        and no other will be started for it."""
        app = self._apps[ticket.app]
        if app.plan.one_user or app.serves(ticket.user):
            self._apart = ticket, self._slots.set_aside(ticket.demand, slot=False)
        else:
            self._aside.waits_no_more(ticket)

    def _give_back(self) -> QueuedTicket | None:
        """What was set aside is free; returns the ticket for which it was."""
        if self._apart is None:
            return None
        ticket, aside = self._apart
        self._apart = None
        self._slots.give_back(aside)
        return ticket

    def _take_resources(self, charge: Charge) -> None:
        """A task that states a demand has it."""
        apart = self._give_back()
        self._slots.take_resources(charge)
        self._aside.waits_no_more(charge.ticket)
        if apart is not None and apart is not charge.ticket:
            self._set_aside(apart)

    def _fill(self, now_s: float) -> None:
        queue, slots = self._queue, self._slots
        if queue.size and slots.free > 0 and (self._has_accounts or self._some_app_serves()):
            self._serve(now_s)
        if slots.awaited:
            self._pauses.fill(now_s)
        if self._balance.uneven:
            self._supervision.even_out(now_s)
        if not queue.size and slots.free > self._schedulers.idle_told:
            self._schedulers.say_idle(slots.free)

    def _serve(self, now_s: float) -> None:
        """Offer slots, of which some are free, to the reservations that are queued."""
        asks: dict[Key, Ask] = {}
        queue, slots = self._queue, self._slots
        some_ready, serves = bool(self._ready), True
        while serves and queue.size:
            if slots.awaited and self._pauses.fill_in_turn(self._may_run, now_s):
                serves = slots.free > 0
                continue
            charge = queue.take(self._may_run)
            if charge is None:
                break
            slots.free -= SLOTS_PER_CHARGE
            ticket = charge.ticket
            if ticket.demand:
                self._take_resources(charge)
            app = self._apps[ticket.app]
            task = self._ready.take(ticket.key) if some_ready else None
            if task is not None:
                self._start_ready(charge, task, now_s)
            else:
                executor = app.take_place(ticket.user)
                ask = asks.get(ticket.key)
                if ask is None:
                    ask = asks[ticket.key] = self._asking.new(ticket, now_s)
                ask.slots.append((charge, executor))
            serves = slots.free > 0 and (bool(app.free) or self._has_accounts or self._some_app_serves())
        for ask in asks.values():
            self._asking.send(ask, len(ask.slots))

    def _some_app_serves(self) -> bool:
        """Whether an executor has a free place: else the queue need not be looked through, unless users of some account
        lack executors (`_may_run` finds them), as each account has fewer than slots."""
        for app in self._apps.values():  # noqa: SIM110 - asked with every event, where a generator costs four times that
            if app.free or app.kept:
                return True
        return False

    def _may_run(self, ticket: QueuedTicket) -> bool:
        """Whether a reservation of the ticket may have a slot now. One whose task is under way may not, yet."""
        app = self._apps[ticket.app]
        if ticket.count <= ticket.asked:
            return False
        if not app.free and ticket.user not in app.kept:
            app.passed_over(ticket.user)
            return False
        return not ticket.demand or self._fits(ticket)

    def _fits(self, ticket: QueuedTicket) -> bool:
        """Whether so much is free, or set aside for the ticket or one of a lower priority."""
        if self._slots.fits(ticket.demand):
            return True
        if self._apart is not None:
            apart, aside = self._apart
            if (ticket is apart or self._queue.outranks(ticket, apart)) and self._slots.fits_beside(
                ticket.demand, aside.resources
            ):
                return True
        if self._lacking is None and self._slots.never_fits(ticket.demand) is None:
            self._lacking = ticket
        return False

    def start_now(self, ticket: QueuedTicket, task: m.Launch, now_s: float) -> bool:
        """Start a task that came unasked, if a slot is free and nothing is queued: it is charged as if its reservation
        had come and been taken. Returns whether a slot was free; the task may have been handed back all the same."""
        queue, slots = self._queue, self._slots
        if (
            slots.free < SLOTS_PER_CHARGE
            or slots.awaited
            or queue.size
            or not self._apps[ticket.app].serves(ticket.user)
        ):
            return False
        queue.add(ticket)
        charge = queue.take(_any)
        assert charge is not None, f"{ticket} is queued alone, and was not taken"
        slots.free -= SLOTS_PER_CHARGE
        self._schedulers.idle_taken()
        self.start(charge, task, now_s)
        return True

    def _start_ready(self, charge: Charge, task: m.Launch, now_s: float) -> None:
        """It is the turn of a task that is here."""
        ticket = charge.ticket
        if task.ask and ticket.ahead is not None:
            ticket.ahead.less()
        self.start(charge, task, now_s)

    def start(self, charge: Charge, task: m.Launch, now_s: float) -> bool:
        """A task has its charge and its slot: it gets a place, which must be free. False if it may not start here: it
        has been handed back."""
        ticket = charge.ticket
        attempt = self._starting.enter(ticket.key[0], task, charge)
        if attempt is None:
            self._slots.return_resources(charge)
            self._queue.refund(charge)
            self._slots.free += SLOTS_PER_CHARGE
            return False
        executor = self._apps[ticket.app].take_place(ticket.user)
        executor.busy_places += 1
        if executor.fresh:
            self._supervision.assign(executor, ticket.user)
        self._starting.give(executor, attempt, now_s)
        if ticket.prefetch and executor.places == 1 and attempt.state is not ENDED:
            self._pipelining.started(executor, attempt, ticket, now_s)
        return True


def _any(ticket: QueuedTicket) -> bool:
    return True
