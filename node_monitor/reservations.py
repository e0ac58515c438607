"""Reservations (probes, §3.1) come: they are queued, or refused, or cancelled."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from node_monitor.counters import Counters
from node_monitor.executors.executor_state import AppState, OfferedApp
from node_monitor.history import History
from node_monitor.queueing.backlog import Backlog
from node_monitor.queueing.tickets import MAX_DURATION_S, MAX_WEIGHT, MIN_WEIGHT, QueuedTicket
from node_monitor.schedulers import Schedulers
from node_monitor.slots import Slots
from node_monitor.supervision import Supervision, not_starting
from sparrow_py.errors import LinkError
from sparrow_py.wire import messages as m

DEMAND_MAX = 1e18


class Reservations:
    """What schedulers may have queued here."""

    __slots__ = (
        "_backlog", "_counters", "_history", "_offered", "_queue", "_schedulers", "_slots", "_supervision",
        "_to_scheduler", "_user_max",
    )  # fmt: skip

    def __init__(
        self,
        offered: Mapping[str, OfferedApp],
        slots: Slots,
        backlog: Backlog,
        supervision: Supervision,
        schedulers: Schedulers,
        counters: Counters,
        history: History,
        user_max: int,
        to_scheduler: Callable[[str, m.Message], None],
    ) -> None:
        self._offered = offered
        self._slots = slots
        self._backlog = backlog
        self._queue = backlog.queue
        self._supervision = supervision
        self._schedulers = schedulers
        self._counters = counters
        self._history = history
        self._user_max = user_max
        self._to_scheduler = to_scheduler

    def reserve(self, scheduler: str, message: m.Reserve, now_s: float) -> None:
        """Queue as many of these reservations as may be, and refuse the rest; `LinkError` if they make no sense."""
        if self._schedulers.draining:
            return  # The scheduler drops them when NodeState, which is on its way, arrives.
        expected_s, count = message.expected_duration_s, message.count
        if (
            count < 1
            or message.prefetch < 0
            or not MIN_WEIGHT <= message.weight <= MAX_WEIGHT
            or not (expected_s is None or 0 <= expected_s <= MAX_DURATION_S)
            or (message.demand and not all(0 <= amount <= DEMAND_MAX for amount in message.demand.values()))
        ):
            raise LinkError(f"bad reservation: {message}")
        refuse = self._backlog.refuse
        offered = self._offered.get(message.app)
        if offered is None:
            refuse(scheduler, message.ticket, count, f"no app {message.app!r} here")
            return
        app = offered.for_everybody or offered.of(message.user)
        if app is None:
            reason = f"user {message.user!r} has no account at this node (run_as)"
            refuse(scheduler, message.ticket, count, reason, lasting=True)
            return
        if app.offer.withdrawn:
            refuse(scheduler, message.ticket, count, *not_starting(app))
            return
        if app.suspicion and app.suspicion.refuses(message.user, now_s):
            refuse(scheduler, message.ticket, count, f"executors of {message.app!r} die here")
            return
        room = self._user_max - self._queue.user_count(message.user)
        refused = 0 if count <= room else count - max(0, room)
        if count > refused:
            self._add(scheduler, app, message, count - refused)
            if self._history.kept:
                self._history.note(now_s, "ticket %s/%d: %d reserved", scheduler, message.ticket, count - refused)
        if refused:
            refuse(scheduler, message.ticket, refused, f"user {message.user} has too many")

    def _add(self, scheduler: str, app: AppState, message: m.Reserve, count: int) -> None:
        """Queue so many of the reservations."""
        self._schedulers.idle_told = 0
        self._counters.reservations += count
        key = (scheduler, message.ticket)
        self._queue.add(
            QueuedTicket(
                key, message.job, message.user, message.weight, message.priority, app.name,
                0 if message.demand else message.prefetch, message.expected_duration_s, message.demand, count,
            )
        )  # fmt: skip
        if message.prefetch:
            ticket = self._queue.ticket(key)
            if ticket is not None and ticket.prefetch:
                self._backlog.ahead.queued(ticket)
        if not app.wanted:
            self._supervision.want(app)

    def cancel(self, scheduler: str, message: m.CancelReservations, now_s: float) -> None:
        """Cancel what is queued of a ticket. Tasks that are here are bound to the node, and so are those asked for."""
        ticket = self._queue.ticket((scheduler, message.ticket))
        if ticket is not None:
            self._counters.cancelled_reservations += self._backlog.cancel_unasked(ticket)
        if self._history.kept:
            self._history.note(now_s, "ticket %s/%d cancelled", scheduler, message.ticket)

    def say_length(self, scheduler: str, message: m.AskLength, now_s: float) -> None:
        """How long the queue is, with what has a slot: the probe of techniques that compare queues (§3.1)."""
        length = self._slots.count - self._slots.free + self._queue.size
        self._to_scheduler(scheduler, m.QueueLength(message.probe, length))
