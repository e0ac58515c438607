"""Placed tasks: they come, and start at slots of the lane before the fair queue is served, or are handed back.

A plane has chosen this node for each of them (`LaunchPlaced`), so they wait for nothing but a slot of the lane, what
they demand, and an executor. What the first that does not fit demands is set aside for it, with a slot, so that no
stream of smaller tasks, sampled or placed, keeps it waiting; the others, and sampled tasks, may use the rest.

Their service is not charged to their users in the fair queue, but in one of their own: the fair queue shares the slots
that placed tasks leave. The plane shares all slots of the cluster by the users' weights when it places. If a task of an
hour counted here too, its user's short tasks would come last for an hour; and the bounds of the fair queue
(`queueing.fair`) grow with the longest task of a user, and hold for tasks that are taken in its order alone.
"""

from __future__ import annotations

from node_monitor.asking import Asking
from node_monitor.counters import Counters
from node_monitor.executors.executor_state import AppState
from node_monitor.history import History
from node_monitor.jobs import Jobs
from node_monitor.lanes import Lane, PlacedTask
from node_monitor.leading import Leading
from node_monitor.queueing.reservation_queue import ReservationQueue
from node_monitor.queueing.tickets import SLOTS_PER_CHARGE
from node_monitor.reservations import DEMAND_MAX, Reservations, in_range
from node_monitor.schedulers import Schedulers
from node_monitor.serving import Serving
from node_monitor.slots import Slots
from node_monitor.supervision import Supervision
from sparrow_py.errors import LinkError
from sparrow_py.timing.timers import Timers
from sparrow_py.wire import messages as m

NOT_LEADING = "another scheduler leads its plane"


class PlacedTasks:
    """See the module's docstring. `charges`: in which placed tasks are charged."""

    __slots__ = (
        "_asking", "_charges", "_counters", "_history", "_jobs", "_lane", "_leading", "_reservations", "_schedulers",
        "_serving", "_slots", "_supervision", "_timeout_s", "_timers",
    )  # fmt: skip

    def __init__(
        self,
        lane: Lane,
        slots: Slots,
        jobs: Jobs,
        charges: ReservationQueue,
        leading: Leading,
        asking: Asking,
        serving: Serving,
        reservations: Reservations,
        supervision: Supervision,
        schedulers: Schedulers,
        timers: Timers,
        counters: Counters,
        history: History,
        timeout_s: float,
    ) -> None:
        self._lane = lane
        self._slots = slots
        self._jobs = jobs
        self._charges = charges
        self._leading = leading
        self._asking = asking
        self._serving = serving
        self._reservations = reservations
        self._supervision = supervision
        self._schedulers = schedulers
        self._timers = timers
        self._counters = counters
        self._history = history
        self._timeout_s = timeout_s
        leading.leader_changed = self._leader_changed

    # ---- they come ---------------------------------------------------------------------------

    def launch(self, scheduler: str, message: m.LaunchPlaced, now_s: float) -> None:
        """A task that a plane has placed here waits for its slot, or is handed back; `LinkError` if it makes no
        sense."""
        demand = message.demand
        if not in_range(message) or (demand and not all(0 <= amount <= DEMAND_MAX for amount in demand.values())):
            raise LinkError(
                f"bad placed task: {message.app!r} for {message.user!r}, {message.weight}, "
                f"{message.expected_duration_s}, {demand}"
            )
        if self._asking.came_before(scheduler, message.attempt):
            return
        app, reason, lasting = self._app_for(scheduler, message, now_s)
        if app is None:
            self._lane.say_handed_back(scheduler, message.job, message.attempt, reason, lasting=lasting)
            return
        task = PlacedTask(scheduler, message, app, now_s)
        self._lane.add(task)
        job = self._jobs.by_key.get((scheduler, message.job))
        self._leading.placed((message.user, job.instance if job is not None else 0), message.job)
        key = task.key
        self._timers.at(now_s + self._timeout_s, lambda at_s: self._late(task, at_s), lambda: key in self._lane.waiting)
        if self._history.kept:
            self._history.note(now_s, "attempt %d of %s/%s waits in the lane", message.attempt, scheduler, message.job)
        if not app.wanted:
            self._supervision.want(app)

    def _app_for(self, scheduler: str, message: m.LaunchPlaced, now_s: float) -> tuple[AppState | None, str, bool]:
        """The app whose executors may run the task; or None, why it may not wait here, and whether that will last."""
        if not self._leading.accepts(scheduler, message.lead):
            return None, NOT_LEADING, False
        if self._schedulers.state != m.READY:
            return None, f"the node is {self._schedulers.state}", False
        if (never := self._slots.never_fits(message.demand)) is not None:
            return None, never, False
        if no_room := self._lane.why_no_room():
            return None, no_room, False
        return self._reservations.app_for(message, now_s)

    # ---- they start --------------------------------------------------------------------------

    def fill(self, now_s: float) -> None:
        """Slots are free, and tasks wait in the lane: those that fit start, and the fair queue has what is left but for
        what is set aside."""
        slots, lane = self._slots, self._lane
        aside = None
        try:
            for task in list(lane.waiting.values()):
                if not slots.free:
                    break
                full = lane.full
                if not full and slots.fits(task.ticket.demand):
                    self._start_if_served(task, now_s)
                elif aside is None:
                    aside = slots.set_aside(task.ticket.demand, slot=not full)
                if full:
                    break
            self._serving.fill(now_s)
        finally:
            if aside is not None:
                slots.give_back(aside)

    def _start_if_served(self, task: PlacedTask, now_s: float) -> None:
        """Start a task for which there are a slot and resources, if an executor is free for it."""
        ticket = task.ticket
        if not task.app.serves(ticket.user):
            task.app.passed_over(ticket.user)
            return
        self._lane.take(task.key)
        self._charges.add(ticket)
        charge = self._charges.take_of(ticket)
        self._slots.free -= SLOTS_PER_CHARGE
        self._slots.take_resources(charge)
        self._schedulers.idle_taken()
        if self._serving.start(charge, task.launch, now_s):
            self._counters.placed += 1
        else:
            self._counters.placed_handed_back += 1

    # ---- they wait no more -------------------------------------------------------------------

    def _late(self, task: PlacedTask, now_s: float) -> None:
        """The task has waited for as long as one may, if it still waits."""
        if self._slots.free and task.key in self._lane.waiting:
            self.fill(now_s)  # Something may have become free at the same moment.
        if self._lane.waiting.get(task.key) is task:
            reason = f"it waited lane_timeout_s = {self._timeout_s:g} s for {self._wants(task)}"
            self._lane.take(task.key)
            self._lane.hand_back([task], reason)

    def _wants(self, task: PlacedTask) -> str:
        """What the task waits for. What is set aside for one before it is free by the time at which it is late."""
        lane, slots = self._lane, self._slots
        if lane.full:
            return f"one of the {lane.slots} slots that placed tasks may hold"
        if not slots.free:
            return "a slot"
        if (lacking := slots.lacking(task.ticket.demand)) is not None:
            return lacking
        return f"an executor of app {task.app.plan.app!r}"

    def drain(self) -> None:
        """The node drains: nothing that waits will start."""
        self._lane.hand_back(self._lane.take_all(lambda _: True), "the node is draining")

    def scheduler_down(self, scheduler: str) -> None:
        """The scheduler is gone, and with it what waits of it."""
        self._lane.take_all(lambda task: task.scheduler == scheduler)

    def forget_job(self, scheduler: str, job: str) -> None:
        """Nobody waits for the job's tasks any more."""
        self._lane.take_all(lambda task: (task.scheduler, task.launch.job) == (scheduler, job))

    def _leader_changed(self, now_s: float) -> None:
        """What waits of a scheduler that leads no more is handed back: the next one may place it anywhere."""
        accepts = self._leading.accepts
        self._lane.hand_back(self._lane.take_all(lambda task: not accepts(task.scheduler, task.lead)), NOT_LEADING)
