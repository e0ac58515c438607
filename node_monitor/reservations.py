"""Reservations (probes, §3.1) come: they are queued, or refused, or cancelled."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from node_monitor.asking import Asking
from node_monitor.counters import Counters
from node_monitor.executors.executor_state import AppState, OfferedApp
from node_monitor.history import History
from node_monitor.lanes import Lane
from node_monitor.queueing.backlog import Backlog
from node_monitor.queueing.tickets import MAX_DURATION_S, MAX_WEIGHT, MIN_WEIGHT, PUSHED, QueuedTicket
from node_monitor.schedulers import Schedulers
from node_monitor.serving import Serving
from node_monitor.slots import Slots
from node_monitor.supervision import Supervision, not_starting
from sparrow_py.errors import LinkError
from sparrow_py.wire import messages as m

DEMAND_MAX = 1e18
NOT_IDLE = "it has no free slot, or something is queued"


class Reservations:
    """What schedulers may have queued here."""

    __slots__ = (
        "_asking", "_backlog", "_counters", "_history", "_lane", "_offered", "_queue", "_schedulers", "_serving",
        "_slots", "_supervision", "_to_scheduler", "_user_max",
    )  # fmt: skip

    def __init__(
        self,
        offered: Mapping[str, OfferedApp],
        slots: Slots,
        backlog: Backlog,
        lane: Lane,
        asking: Asking,
        serving: Serving,
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
        self._lane = lane
        self._queue = backlog.queue
        self._asking = asking
        self._serving = serving
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
        count = message.count
        if (
            count < 1
            or message.prefetch < 0
            or not in_range(message)
            or (message.demand and not all(0 <= amount <= DEMAND_MAX for amount in message.demand.values()))
        ):
            raise LinkError(f"bad reservation: {message}")
        refuse = self._backlog.refuse
        app, reason, lasting = self.app_for(message, now_s)
        if app is None:
            refuse(scheduler, message.ticket, count, reason, lasting)
            return
        room = self._user_max - self._queue.user_count(message.user)
        refused = 0 if count <= room else count - max(0, room)
        if count > refused:
            self._add(scheduler, app, message, count - refused)
            if self._history.kept:
                self._history.note(now_s, "ticket %s/%d: %d reserved", scheduler, message.ticket, count - refused)
        if refused:
            refuse(scheduler, message.ticket, refused, f"user {message.user} has too many")

    def launch_now(self, scheduler: str, task: m.LaunchNow, now_s: float) -> None:
        """A task that nobody has asked for: a free slot has it, unless anything is queued; else it is handed back."""
        if not in_range(task):
            raise LinkError(f"bad launch: {task.app!r} for {task.user!r}, {task.weight}, {task.expected_duration_s}")
        if self._asking.came_before(scheduler, task.attempt):
            return
        launch = m.Launch(0, task.job, task.stage, task.task, task.attempt, task.payload)
        if self._schedulers.state != m.READY:
            self._backlog.say_handed_back(scheduler, launch, f"the node is {self._schedulers.state}")
            return
        app, reason, _ = self.app_for(task, now_s)
        if app is None:
            self._backlog.say_handed_back(scheduler, launch, reason)
            return
        ticket = QueuedTicket(
            (scheduler, PUSHED), task.job, task.user, task.weight, task.priority, app.name, 0,
            task.expected_duration_s, None, 1, depth=task.depth,
        )  # fmt: skip
        if not self._lane.waiting and self._serving.start_now(ticket, launch, now_s):
            self._counters.pushes += 1
        else:
            self._counters.pushes_handed_back += 1
            self._backlog.say_handed_back(scheduler, launch, NOT_IDLE)

    def app_for(
        self, message: m.Reserve | m.LaunchNow | m.LaunchPlaced, now_s: float
    ) -> tuple[AppState | None, str, bool]:
        """The app that the message asks for; or None, why not, and whether that will last."""
        offered = self._offered.get(message.app)
        if offered is None:
            return None, f"no app {message.app!r} here", False
        app = offered.for_everybody or offered.of(message.user)
        if app is None:
            return None, f"user {message.user!r} has no account at this node (run_as)", True
        if app.offer.withdrawn:
            return None, *not_starting(app)
        if app.suspicion and app.suspicion.refuses(message.user, now_s):
            return None, f"executors of {message.app!r} die here", False
        return app, "", False

    def _add(self, scheduler: str, app: AppState, message: m.Reserve, count: int) -> None:
        """Queue so many of the reservations."""
        self._schedulers.idle_told = 0
        self._counters.reservations += count
        key = (scheduler, message.ticket)
        self._queue.add(
            QueuedTicket(
                key, message.job, message.user, message.weight, message.priority, app.name,
                0 if message.demand else message.prefetch, message.expected_duration_s, message.demand, count,
                depth=message.depth,
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
        length = self._slots.count - self._slots.free + self._queue.size + len(self._lane.waiting)
        self._to_scheduler(scheduler, m.QueueLength(message.probe, length))


def in_range(message: m.Reserve | m.LaunchNow | m.LaunchPlaced) -> bool:
    """Whether the queue can reckon with the numbers in it."""
    expected_s = message.expected_duration_s
    return MIN_WEIGHT <= message.weight <= MAX_WEIGHT and (expected_s is None or 0 <= expected_s <= MAX_DURATION_S)
