"""getTask: slots ask schedulers for tasks (late binding, §3.2), some tasks are asked for ahead, and answers come."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping

from node_monitor.counters import Counters
from node_monitor.executors.executor_state import AppState, ExecutorState
from node_monitor.history import History
from node_monitor.queueing.backlog import Backlog
from node_monitor.queueing.tickets import SLOTS_PER_CHARGE, Charge, QueuedTicket
from node_monitor.schedulers import Schedulers
from node_monitor.slots import Slots
from node_monitor.starting import Starting
from node_monitor.supervision import Supervision
from sparrow_py.errors import LinkError
from sparrow_py.timing.histogram import PENDING_MAX
from sparrow_py.wire import messages as m

ATTEMPT_NUMBERS = (1 << m.EPOCH_SHIFT) - 1
"""What of an attempt id is its number, which its scheduler counted."""


class Ask:
    """A getTask that has not been answered wholly.

    slots: those that wait for its answer, each with its charge and the executor that has a place for it. ahead: for so
    many tasks ahead of slots. It is one or the other.
    """

    __slots__ = ("ahead", "app", "deadline_s", "id", "slots", "ticket")

    def __init__(self, ask_id: int, app: AppState, ticket: QueuedTicket, deadline_s: float) -> None:
        self.id = ask_id
        self.app = app
        self.ticket = ticket
        self.deadline_s = deadline_s
        self.slots: list[tuple[Charge, ExecutorState]] = []
        self.ahead = 0

    @property
    def scheduler(self) -> str:
        """Whom it asks."""
        return self.ticket.key[0]

    @property
    def left(self) -> int:
        """How many answers are to come."""
        return self.ahead or len(self.slots)


class Asking:
    """The asks that are open, by id, and in the order of their time-outs."""

    __slots__ = (
        "_apps", "_backlog", "_counters", "_history", "_launched", "_next_ask", "_order", "_queue", "_round_trips",
        "_schedulers", "_slots", "_starting", "_supervision", "_timeout_s", "_to_scheduler", "open",
    )  # fmt: skip

    def __init__(
        self,
        apps: Mapping[str, AppState],
        slots: Slots,
        backlog: Backlog,
        starting: Starting,
        supervision: Supervision,
        schedulers: Schedulers,
        counters: Counters,
        history: History,
        timeout_s: float,
        to_scheduler: Callable[[str, m.Message], None],
    ) -> None:
        self._apps = apps
        self._slots = slots
        self._backlog = backlog
        self._queue = backlog.queue
        self._starting = starting
        self._supervision = supervision
        self._schedulers = schedulers
        self._counters = counters
        self._round_trips = counters.get_task_s
        self._history = history
        self._timeout_s = timeout_s
        self._to_scheduler = to_scheduler
        self.open: dict[int, Ask] = {}
        self._order: deque[Ask] = deque()
        self._next_ask = 1
        self._launched: dict[str, int] = {}
        """Scheduler to the number of the attempt that it launched here last: they count up."""

    # ---- ask ---------------------------------------------------------------------------------

    def new(self, ticket: QueuedTicket, now_s: float) -> Ask:
        """An ask for tasks of the ticket, to be sent once it is known how many."""
        ask = Ask(self._next_ask, self._apps[ticket.app], ticket, now_s + self._timeout_s)
        self._next_ask += 1
        return ask

    def send(self, ask: Ask, count: int) -> None:
        """Ask for so many tasks."""
        self.open[ask.id] = ask
        self._order.append(ask)
        self._counters.asks += 1
        scheduler, ticket = ask.ticket.key
        demand = ask.ticket.demand
        free = self._slots.free_for(len(ask.slots), demand) if demand else None
        self._to_scheduler(scheduler, m.GetTasks(ask.id, ticket, count, free))

    def ask_ahead(self, now_s: float) -> None:
        """Ask for tasks that are to be here when it is their turn."""
        backlog, apps = self._backlog, self._apps
        for ticket, count in backlog.ahead.take_due(lambda app: bool(apps[app].executors), backlog.unasked):
            ask = self.new(ticket, now_s)
            ask.ahead = count
            self.send(ask, count)

    # ---- answers -----------------------------------------------------------------------------

    def launch(self, scheduler: str, task: m.Launch, now_s: float) -> None:
        """A task has come: for a slot that asked (late binding), or ahead of one, or pushed."""
        if self.came_before(scheduler, task.attempt):
            return
        if not task.ask:  # Its reservation follows.
            if self._schedulers.draining:
                self._backlog.say_handed_back(scheduler, task, "the node is draining")
            else:
                self._backlog.ready.add((scheduler, task.ticket), task)
            return
        ask = self.open.get(task.ask)
        if ask is None or ask.ticket.key[0] != scheduler:
            ended = "the node is draining" if self._schedulers.draining else "the ask had timed out"
            self._backlog.say_handed_back(scheduler, task, ended)
        elif ask.ahead:
            self._came_ahead(ask, task, now_s)
        else:
            self._came_for_slot(ask, task, now_s)

    def came_before(self, scheduler: str, attempt: int) -> bool:
        """Whether this launch came twice: whatever became of it has been, or will be, reported."""
        number = attempt & ATTEMPT_NUMBERS
        if number <= self._launched.get(scheduler, -1):
            return True
        self._launched[scheduler] = number
        return False

    def _came_ahead(self, ask: Ask, task: m.Launch, now_s: float) -> None:
        """A task that was asked for ahead of a slot waits for its turn."""
        ask.ahead -= 1
        ask.ticket.asked -= 1
        if not ask.ahead:
            del self.open[ask.id]
            self._answered(ask, now_s)
        self._backlog.ready.add(ask.ticket.key, task)
        if not ask.app.executors:
            self._backlog.hand_back_app(ask.app.name, f"the node's {ask.app.plan.app} executors are gone")

    def _came_for_slot(self, ask: Ask, task: m.Launch, now_s: float) -> None:
        """A slot asked for a task, which has come."""
        charge, executor = ask.slots.pop(0)  # Places are taken warmest first.
        app, ticket = ask.app, charge.ticket
        if not ask.slots:
            del self.open[ask.id]
            self._answered(ask, now_s)
        if executor.leaving and app.serves(ticket.user):
            executor = app.take_place(ticket.user)
        if executor.leaving:
            reason = f"the {app.plan.app} executor that was to run it is gone"
            self._backlog.say_handed_back(ask.scheduler, task, reason)
        elif (attempt := self._starting.enter(ticket.key[0], task, charge)) is not None:
            executor.busy_places += 1
            if executor.fresh:
                self._supervision.assign(executor, ticket.user)
            self._starting.give(executor, attempt, now_s)
            return
        self._free(app, charge, executor)

    def no_task(self, scheduler: str, message: m.NoTask, now_s: float) -> None:
        """The scheduler has fewer tasks than were asked for (a no-op, §3.2)."""
        ask = self.open.get(message.ask)
        if ask is None or ask.scheduler != scheduler:
            return  # It timed out.
        if not 1 <= message.count <= ask.left:
            raise LinkError(f"{message.count} no-ops for an ask of {ask.left}")
        self._counters.noops += message.count
        self._schedulers.ended_for = ""
        self._no_answer(ask, message.count)
        if not ask.left:
            self._answered(ask, now_s)

    def _answered(self, ask: Ask, now_s: float) -> None:
        """The last answer has come."""
        asked_at_s = ask.deadline_s - self._timeout_s
        pending = self._round_trips.pending
        pending.append((ask.app.plan.app, now_s - asked_at_s, ask.ticket.job, now_s))
        if len(pending) == PENDING_MAX:
            self._round_trips.count()

    def _no_answer(self, ask: Ask, count: int) -> None:
        """For so many of the ask's reservations there is no task: their slots are free again."""
        if ask.ahead:
            ticket = ask.ticket
            ask.ahead -= count
            ticket.asked -= count
            self._queue.cancel(ticket.key, count)
            assert ticket.ahead is not None
            ticket.ahead.less(count)
        else:
            for _ in range(count):
                self._free(ask.app, *ask.slots.pop())
        if not ask.left:
            del self.open[ask.id]

    def _free(self, app: AppState, charge: Charge, executor: ExecutorState) -> None:
        """A slot that asked got no task: the slot, its executor's place and its resources are free again."""
        app.release(executor)
        self._slots.return_resources(charge)
        self._queue.refund(charge)
        self._slots.free += SLOTS_PER_CHARGE

    # ---- time-outs, and ends -------------------------------------------------------------------

    def next_deadline_s(self) -> float | None:
        """When the next ask is over."""
        order = self._order
        while order and order[0].id not in self.open:
            order.popleft()
        return order[0].deadline_s if order else None

    def tick(self, now_s: float) -> None:
        """Time has come to `now_s`: asks that are not answered are over."""
        order = self._order
        while order and (order[0].id not in self.open or order[0].deadline_s <= now_s):
            ask = order.popleft()
            if ask.id in self.open:
                self._counters.ask_timeouts += 1
                self._history.note(now_s, "ask %d to %s timed out", ask.id, ask.scheduler)
                self._no_answer(ask, ask.left)

    def scheduler_down(self, scheduler: str) -> None:
        """The scheduler is gone: it will not answer, and counts its launches anew."""
        self._launched.pop(scheduler, None)
        for ask in [ask for ask in self.open.values() if ask.scheduler == scheduler]:
            self._no_answer(ask, ask.left)

    def drain(self) -> None:
        """What has not been answered will not be waited for."""
        for ask in list(self.open.values()):
            self._no_answer(ask, ask.left)
