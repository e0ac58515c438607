"""The node monitor's pure core: every decision of a node monitor, and nothing else.

Events come in through the public methods, each with the time; effects go out through the `Outbox`. After a batch of
events the driver calls `pump`, which gives free slots to waiting tasks and asks for more. No sockets, processes, clocks
or logging of its own.

This file hands events to the parts, and makes the parts. Those import downwards only:

    placed_tasks   loads                         placed tasks come, and have the lane; what schedulers hear of both
    reservations   serving                       reservations come; free slots serve the queue
    claims         asking    results             another scheduler claims a job; getTasks; what executors say of runs
                   pipelining                    several short tasks at a time to an executor
                   starting                      a task becomes an attempt, and an executor's run
                   leases                        tasks that last long are charged a lease at a time, and yield
                   paused_tasks                  tasks that wait for others give their slots back
                   unclaimed                     tasks of tasks that nobody claims after their scheduler
                   stopping                      an attempt is cancelled, asked back, stopped
                   supervision                   executors come, are short, go
                   attempt_book                  the attempts here, and the one way out
    inputs   schedulers   executors/   queueing/backlog   lanes   set_aside
    leading                                      which scheduler's placed tasks are taken
    attempts   jobs   slots   fences   remembered_outcomes   remembered_starts   queueing/tickets
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from node_monitor.asking import Asking
from node_monitor.attempt_book import AttemptBook
from node_monitor.attempts import WAITS, Attempt
from node_monitor.claims import Claims
from node_monitor.counters import Counters
from node_monitor.executors.common_bytes import SentCommonBytes
from node_monitor.executors.executor_state import AppPlan, Balance, ExecutorState, OfferedApp
from node_monitor.fences import Fences
from node_monitor.history import History
from node_monitor.host.accounts import ALL_AS_OURSELVES, UserAccounts
from node_monitor.inputs import Blobs, Inputs
from node_monitor.invariants import Invariants
from node_monitor.jobs import Jobs
from node_monitor.lanes import Lane
from node_monitor.leading import Leading
from node_monitor.leases import Leases
from node_monitor.loads import Loads
from node_monitor.options import NodeMonitorOptions
from node_monitor.paused_tasks import PausedTasks
from node_monitor.pipelining import Pipelining
from node_monitor.placed_tasks import PlacedTasks
from node_monitor.queueing.backlog import Backlog
from node_monitor.queueing.policies import make_queue
from node_monitor.remembered_outcomes import RememberedOutcomes
from node_monitor.remembered_starts import RememberedStarts
from node_monitor.reservations import Reservations
from node_monitor.results import Results
from node_monitor.schedulers import Schedulers
from node_monitor.serving import Serving
from node_monitor.set_aside import SetAside
from node_monitor.slots import Slots
from node_monitor.starting import Starting
from node_monitor.stopping import Stopping
from node_monitor.supervision import Supervision, Supervisor
from node_monitor.unclaimed import Unclaimed
from sparrow_py.errors import InvariantViolated
from sparrow_py.executors import executor_protocol as x
from sparrow_py.job import BlobRef
from sparrow_py.timing.timers import Timers
from sparrow_py.wire import messages as m

IDLE_WORKERS_PER_SLOT = 2
"""Executors that are kept for their users while they have nothing to do, for each slot: by default."""


class Outbox(Supervisor, Protocol):
    """Where effects go. Messages to schedulers and executors that are gone may be dropped."""

    def to_scheduler(self, scheduler: str, message: m.Message) -> None:
        """Send to a scheduler."""

    def to_executor(self, executor: str, message: x.ExecutorMessage) -> None:
        """Send to an executor."""

    def fetch(self, ref: BlobRef, user: str) -> None:
        """Get large data that a job of the user needs from another node; `fetched` follows."""

    def give_up(self, hash_: str, size: int, user: str) -> None:
        """Nobody of the user's waits any more for these data, which were to be fetched; `fetched` may follow at once,
        with a reason."""


class NodeMonitorCore:
    """See the module's docstring. Times are seconds, of any clock that never goes back.

    Events that are one part's alone are that part's methods, under the names that drivers use: see `__init__`.
    """

    __slots__ = (
        "_ahead", "_handlers", "_invariants", "_lane", "_loads", "_pauses", "_placed", "_serving", "_slots",
        "apps", "ask_ahead", "asks", "attempts", "backlog", "counters", "done", "done_together",
        "end_leases_by", "executor_down", "executor_failed", "executor_leaving", "executor_says", "executor_up",
        "executors", "fetched", "free", "history", "inputs", "jobs", "lane", "leading", "leaving", "measured", "node",
        "offered", "options", "queue", "returned", "schedulers", "slots", "start", "story", "supervision", "timers",
        "told", "unclaimed", "waits", "wants_slot",
    )  # fmt: skip

    def __init__(
        self,
        options: NodeMonitorOptions,
        slots: int,
        plans: list[AppPlan],
        outbox: Outbox,
        blobs: Blobs,
        resources: Mapping[str, float] | None = None,
        node: m.NodeInfo | None = None,
        users: UserAccounts = ALL_AS_OURSELVES,
    ) -> None:
        """plans: of an app for all users one, of another one for each account. users: who has which."""
        to_scheduler, to_executor = outbox.to_scheduler, outbox.to_executor
        counters, history, timers = Counters(), History(options.history_len_max), Timers()
        balance = Balance(options.idle_workers_max or IDLE_WORKERS_PER_SLOT * slots)
        offered: dict[str, OfferedApp] = {}
        apps = {plan.name: offered.setdefault(plan.app, OfferedApp(users, balance)).add(plan) for plan in plans}
        executors: dict[str, ExecutorState] = {}
        fences = Fences()
        outcomes, starts = RememberedOutcomes(1 / options.count), RememberedStarts(1 / options.count)
        places = Slots(slots, resources or {})
        info = node or m.NodeInfo(slots, dict(places.free_resources), options.attributes, {})
        schedulers = Schedulers(info, offered, options.report_idle, history, to_scheduler)
        backlog = Backlog(make_queue(options.queue, slots, options.charge_s_max), slots, counters, to_scheduler)
        aside = SetAside(backlog.queue)
        lane = Lane(places, options.short_share, schedulers.sampling, counters, to_scheduler)
        commons = SentCommonBytes(executors, to_executor)
        jobs = Jobs(blobs.unpin, commons.forget)
        inputs = Inputs(blobs, outbox.fetch, outbox.give_up)
        book = AttemptBook(executors, backlog.queue, places, inputs, jobs, outcomes, counters, to_scheduler)
        supervision = Supervision(
            apps, offered, executors, balance, places, backlog, lane, book, schedulers, timers, counters, history,
            outbox,
        )  # fmt: skip
        stopping = Stopping(executors, book, backlog, lane, supervision, timers, history, to_executor, to_scheduler)
        self._pauses = pauses = PausedTasks(
            executors, places, backlog.queue, book, supervision, stopping, counters, history,
            options.waiting_tasks_max, to_executor,
        )  # fmt: skip
        leases = Leases(
            apps, executors, balance, places, backlog.queue, aside, lane, pauses, book, supervision, stopping,
            schedulers, timers, counters, history, options.lease_s_max, options.yield_within_s, to_executor,
        )  # fmt: skip
        starting = Starting(
            executors, jobs, book, inputs, stopping, leases, fences, starts, commons, counters, history, to_executor,
            to_scheduler,
        )  # fmt: skip
        pipelining = Pipelining(apps, executors, places, backlog, starting, stopping, timers)
        results = Results(executors, book, backlog, schedulers, stopping, pipelining, blobs, counters)
        asks = Asking(
            apps, places, backlog, starting, supervision, schedulers, counters, history, options.get_task_timeout_s,
            to_scheduler,
        )  # fmt: skip
        serving = Serving(
            apps, balance, places, backlog, aside, pauses, asks, starting, pipelining, supervision, schedulers
        )
        reservations = Reservations(
            offered, places, backlog, lane, asks, serving, supervision, schedulers, counters, history,
            options.reservations_per_user_max, to_scheduler,
        )  # fmt: skip
        self.unclaimed = unclaimed = Unclaimed(executors, book, stopping, timers)
        claims = Claims(jobs, book, backlog, lane, fences, outcomes, starts, unclaimed, history, to_scheduler)
        self.leading = leading = Leading(book, history, to_scheduler, 1 / options.count)
        leading.has_no_jobs = jobs.scheduler_down
        placed = PlacedTasks(
            lane, places, jobs, make_queue(options.queue, slots, options.charge_s_max), leading, asks, serving,
            reservations, supervision, schedulers, timers, counters, history, options.lane_timeout_s,
        )  # fmt: skip
        self._loads = loads = Loads(places, lane, backlog.queue, leading, schedulers, timers, to_scheduler)
        self.options = options
        self.slots = slots
        self.free = places.free_resources
        """Of the node's resources, what no task with a demand takes."""
        self.leaving = False
        """Whether the process ends as soon as it has drained."""
        self.counters = counters
        self.offered = offered
        """Apps by the names that jobs ask for."""
        self.apps = apps
        """The executors of each plan, by its name; a ticket's app is such a one."""
        self.node = schedulers.node
        """What schedulers are told of the node when they are greeted."""
        self.schedulers = schedulers.bytes_max
        """Connected schedulers, and the largest result in bytes that each takes."""
        self.queue = backlog.queue
        self.told = schedulers
        self.backlog, self.asks, self.attempts, self.jobs, self.inputs = backlog, asks, book, jobs, inputs
        self.executors, self.supervision = executors, supervision
        self._slots, self._ahead = places, backlog.ahead
        self.timers = timers
        """What is due, but for unanswered asks."""
        self._serving, self._placed = serving, placed
        self.lane = lane
        self._lane = lane.waiting
        self._invariants = Invariants(
            apps, offered, executors, places, backlog, jobs, book, inputs, asks, lane, leases, pauses
        )
        self.end_leases_by = leases.end_by
        self.ask_ahead = asks.ask_ahead
        # Events that one part handles.
        self.start = supervision.start
        self.executor_up = supervision.executor_up
        self.executor_failed = supervision.executor_failed
        self.executor_says = supervision.executor_says
        self.executor_leaving = supervision.executor_leaving
        self.executor_down = supervision.executor_down
        self.done = results.done
        self.done_together = results.done_together
        self.returned = results.returned
        self.waits = pauses.waits
        self.wants_slot = pauses.wants_slot
        self.fetched = starting.fetched
        self.measured = loads.measured
        self.story = history.story
        self.history = history
        self._handlers: dict[type, Callable[[str, Any, float], None]] = {
            m.Reserve: reservations.reserve,
            m.CancelReservations: reservations.cancel,
            m.AskLength: reservations.say_length,
            m.Launch: asks.launch,
            m.LaunchNow: reservations.launch_now,
            m.LaunchPlaced: placed.launch,
            m.NoTask: asks.no_task,
            m.Common: jobs.common,
            m.Input: jobs.input,
            m.ForgetJob: self._forget_job,
            m.CancelAttempt: stopping.cancel,
            m.Claim: claims.claim,
            m.DrainingKnown: schedulers.draining_known,
            m.KeepData: lambda _, message, __: inputs.renew(message.user, message.hashes),
            m.Lead: self._lead,
        }

    # ---- what drivers ask --------------------------------------------------------------------

    @property
    def state(self) -> str:
        """READY, CORDONED or DRAINING of `messages`."""
        return self.told.state

    @property
    def info(self) -> m.NodeInfo:
        """The node with what it offers now, and with what its executors say of it."""
        return self.told.info

    @property
    def free_slots(self) -> int:
        """Slots that neither run a task nor ask for one."""
        return self._slots.free

    @property
    def asking(self) -> int:
        """Slots that wait for the answer to a getTask."""
        return self.slots - self._slots.free - sum(executor.busy_places for executor in self.executors.values())

    @property
    def draining(self) -> bool:
        """Whether it takes nothing new."""
        return self.told.draining

    @property
    def useless_for(self) -> list[str]:
        """The apps whose executors it was to start, if none of them can run here; empty as long as one can."""
        return self.supervision.useless_for

    @property
    def idle(self) -> bool:
        """Whether nothing runs and nothing is ready."""
        return not self.attempts.by_key and not self.backlog.ready and not self._lane

    @property
    def drained(self) -> bool:
        """Whether it may end: it is draining, all schedulers know that, and nothing is here any more."""
        return self.draining and self.told.all_know and self.idle

    @property
    def occupied(self) -> int:
        """Slots that placed tasks hold."""
        return self._slots.placed

    @property
    def waiting(self) -> int:
        """Tasks that wait for tasks of their own, without a slot."""
        return self._pauses.count

    @property
    def is_watched(self) -> bool:
        """Whether some scheduler wants to know what is measured (`measured`)."""
        return self._loads.watched

    def attempt_of(self, executor_id: str, run: int) -> Attempt | None:
        """The run's attempt; None if the executor does not have it."""
        executor = self.executors.get(executor_id)
        return None if executor is None else executor.running.get(run)

    def user_of(self, executor_id: str, run: int) -> str | None:
        """Whose task the run is; None if the executor does not have it."""
        attempt = self.attempt_of(executor_id, run)
        return None if attempt is None else attempt.job.owner[0]

    # ---- events: schedulers ------------------------------------------------------------------

    def scheduler_up(
        self,
        scheduler: str,
        frame_bytes_max: int = m.FRAME_BYTES_MAX,
        *,
        address: str = "",
        plane: str = m.SPARROW,
    ) -> None:
        """A link to a scheduler stands; it takes frames of at most `frame_bytes_max`, runs this plane, and was dialled
        at this address. No other process has its name."""
        self.told.up(scheduler, frame_bytes_max, plane)
        self.leading.up(scheduler, address)
        self._loads.scheduler_up(scheduler)

    def scheduler_down(self, scheduler: str, now_s: float) -> None:
        """A scheduler is gone, and with it what it had queued here; what runs goes on, for whoever claims it: if a task
        has submitted its job, only for a while."""
        self.told.down(scheduler)
        self.leading.down(scheduler)
        self.asks.scheduler_down(scheduler)
        self.backlog.scheduler_down(scheduler)
        self._placed.scheduler_down(scheduler)
        self._loads.scheduler_down()
        for attempt in self.attempts.in_state(WAITS, scheduler):
            self.attempts.withdraw(attempt, now_s)
        self.unclaimed.scheduler_down(scheduler, now_s)
        self.jobs.scheduler_down(scheduler)
        self.history.note(now_s, "scheduler %s down", scheduler)

    def receive(self, scheduler: str, message: m.Message, now_s: float) -> None:
        """A message from a connected scheduler; `LinkError` if it may not be sent."""
        self._handlers[type(message)](scheduler, message, now_s)

    def receive_frame(self, scheduler: str, frame: Sequence[m.Message], now_s: float) -> None:
        """As `receive`, for all that came together, and then `pump`."""
        handlers = self._handlers
        for message in frame:
            handlers[type(message)](scheduler, message, now_s)
        if self._slots.free > 0 or self._ahead.due or self._slots.moved:
            self.pump(now_s)

    def _forget_job(self, scheduler: str, message: m.ForgetJob, now_s: float) -> None:
        """Nobody waits for the job's tasks any more."""
        job = self.jobs.by_key.get((scheduler, message.job))
        if self.leading.placed_jobs:
            self.leading.ended(message.job, job.owner if job is not None and job.owner[0] else None, now_s)
        if job is not None:
            self.jobs.forget(job)
        self.backlog.drop_job(scheduler, message.job)
        if self._lane:
            self._placed.forget_job(scheduler, message.job)

    def _lead(self, scheduler: str, message: m.Lead, now_s: float) -> None:
        """A scheduler leads its plane, or would if no other did."""
        self.leading.lead(scheduler, message, now_s)
        self._loads.wanted_by(scheduler, now_s)

    # ---- events: time and operator -----------------------------------------------------------

    def pump(self, now_s: float) -> None:
        """After events: start what is ready, and ask for tasks for the slots that are free."""
        if self._slots.free > 0:
            if self._lane:
                self._placed.fill(now_s)
            else:
                self._serving.fill(now_s)
        if self._ahead.due:
            self.ask_ahead(now_s)
        if self._slots.moved:
            self._loads.look(now_s)

    def next_deadline_s(self) -> float | None:
        """When `tick` is due next."""
        ask_s, timer_s = self.asks.next_deadline_s(), self.timers.next_deadline_s()
        if ask_s is None or timer_s is None:
            return ask_s if timer_s is None else timer_s
        return min(ask_s, timer_s)

    def tick(self, now_s: float) -> None:
        """Time has come to `now_s`: release the slots of unanswered asks, and do what else was due."""
        self.asks.tick(now_s)
        self.timers.run_due(now_s)

    def drain(self, now_s: float) -> None:
        """Take nothing new: hand back what has not started, and what still comes; what runs goes on."""
        self.told.enter(m.DRAINING, now_s)
        self.asks.drain()
        self.backlog.drain("the node is draining")
        self._placed.drain()
        for attempt in self.attempts.in_state(WAITS):
            self.attempts.hand_back_waiting(attempt, "the node is draining", now_s)

    def cordon(self, now_s: float) -> None:
        """Want no further reservations; those queued are served. A draining node goes on draining."""
        if not self.draining:
            self.told.enter(m.CORDONED, now_s)

    def uncordon(self, now_s: float) -> None:
        """Take part again, unless the process is about to end."""
        if self.leaving:
            return
        self.told.enter(m.READY, now_s)
        self.supervision.want_again()

    # ---- invariants --------------------------------------------------------------------------

    def check_invariants(self) -> None:
        """Raise `InvariantViolated`, with the story, if something that must hold does not (guarantee 5)."""
        problem = self._invariants.problem()
        if problem:
            raise InvariantViolated(problem, self.story())
        self.queue.check_invariants()
