"""The node monitor's pure core: every decision of a node monitor, and nothing else.

Events come in through the public methods, each with the time; effects go out through the
`Outbox`. After a batch of events the driver calls `pump`, which gives free slots to waiting
tasks and asks for more. No sockets, processes, clocks or logging of its own.

A slot is free, or asks (it waits for the answer to a getTask), or is held by a busy place of an
executor; it never runs two tasks.

A reservation is queued. It may be asked for ahead of a slot (`AskingAhead`); its task is then
ready (`ReadyTasks`), as one that was pushed is, and waits beside the queue, where the reservation
stays. When the queue's policy takes the reservation, it is charged, and its task is given to an
executor (`Held`), or if none is ready a slot asks for one. With a ready task of a few milliseconds
or less, others of its stage may be given to a one-place executor (`TURN_S`), which runs them in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from node_monitor.attributes import check_attributes, with_attributes
from node_monitor.executors.accounts import ALL_AS_OURSELVES, UserAccounts
from node_monitor.executors.executor_state import AppPlan, AppState, ExecutorState, OfferedApp
from node_monitor.executors.offers import STOOD_S
from node_monitor.memory import Memory
from node_monitor.options import NodeMonitorOptions
from node_monitor.queueing.ahead import AskingAhead
from node_monitor.queueing.policies import make_queue
from node_monitor.queueing.ready_tasks import ReadyTasks
from node_monitor.queueing.tickets import (
    MAX_DURATION_S,
    MAX_WEIGHT,
    MIN_WEIGHT,
    TURN_S,
    Charge,
    Key,
    QueuedTicket,
)
from node_monitor.tasks_here import Ask, CommonHere, Held, JobHere
from sparrow_py.errors import InvariantViolated, LinkError
from sparrow_py.executors import executor_protocol as x
from sparrow_py.job import CANCELLED, FAILED, FINISHED, INPUTS_MAX, LOST, BlobRef, TaskStatus
from sparrow_py.timers import Timers
from sparrow_py.wire import messages as m

AHEAD_S = 0.05
"""A run that was given to an executor behind others and has not begun after so long is asked back, if another user
waits: those before it last longer than was thought. (Seconds.)"""
DURATION_WEIGHT = 0.2
"""Weight of the newest duration in a job's moving average."""
RESTART_DELAY_S = 0.1
"""First wait before an executor that did no task is restarted; doubles up to the maximum."""
RESTART_DELAY_MAX_S = 30.0
IDLE_WORKERS_PER_SLOT = 2
"""Executors that are kept for their users while they have nothing to do, for each slot: by default."""
SERVICE_MAX_S = MAX_DURATION_S
"""Longest service time believed of an executor."""
DEMAND_MAX = 1e18
ERROR_CHARS_MAX = 4000
"""Characters of an executor's error that are passed on."""
ATTEMPT_NUMBERS = (1 << m.EPOCH_SHIFT) - 1
"""What of an attempt id is its number, which its scheduler counted."""
KILL_GRACE_S = 5.0
"""An executor of several places that has not ended a run so long after it was told to is ended itself."""
ROUNDING = 1e-9
"""What is free is a sum of many fractions: so much of a resource may seem to be missing and is not."""
CANCELLED_RUNNING = "it was cancelled while it ran"
SMALL_RESULT_BYTES = 8192
"""Results up to this size fit any frame: no need to measure them exactly."""


class Outbox(Protocol):
    """Where effects go. Messages to schedulers and executors that are gone may be dropped."""

    def to_scheduler(self, scheduler: str, message: m.Message) -> None:
        """Send to a scheduler."""

    def to_executor(self, executor: str, message: x.ExecutorMessage) -> None:
        """Send to an executor."""

    def start_executor(self, app: str, places: int) -> None:
        """Start a process for the app of this plan's name; `executor_up` or `executor_failed` follows."""

    def kill_executor(self, executor: str) -> None:
        """End an executor at once; `executor_down` follows."""

    def fetch(self, ref: BlobRef, user: str) -> None:
        """Get large data that a job of the user needs from another node; `fetched` follows."""

    def offer_changed(self, app: str, reason: str) -> None:
        """The app is withdrawn for this reason, or offered again if that is empty: somebody may want to know."""


class Blobs(Protocol):
    """Large data at this node; an owner keeps what it has pinned."""

    def file(self, hash_: str) -> x.File | None:
        """The file with these bytes, or None."""

    def file_for(self, hash_: str, account: str) -> x.File | None:
        """The same, which executors of this account may read from now on."""

    def adopt(self, file: x.File, owner: int) -> BlobRef:
        """Keep an executor's result, which is here under its own hash, as long as the owner is there."""

    def pin(self, hash_: str, owner: int) -> None:
        """Keep it as long as the owner is there."""

    def unpin(self, owner: int) -> None:
        """The owner is gone."""


class Counters:
    """What the metrics show; all counts since the start."""

    __slots__ = (
        "ask_timeouts", "asks", "cancelled_reservations", "ended", "executor_deaths", "handed_back", "noops",
        "refused_reservations", "reservations", "start_failures", "started", "suspicions", "withdrawals",
    )  # fmt: skip

    def __init__(self) -> None:
        self.ask_timeouts = 0
        self.asks = 0
        self.cancelled_reservations = 0
        self.ended = 0
        self.executor_deaths = 0
        self.handed_back = 0
        self.noops = 0
        self.refused_reservations = 0
        self.reservations = 0
        self.start_failures = 0
        self.started = 0
        self.suspicions = 0
        self.withdrawals = 0


class NodeMonitorCore:
    """See the module's docstring. Times are seconds, of any clock that never goes back."""

    __slots__ = (  # More attributes than CPython keeps at hand without: past thirty each costs a look-up in a dict.
        "_ahead", "_answering", "_ask_order", "_asks", "_blobs", "_ended_for", "_executors", "_fetch", "_fetching",
        "_has_accounts", "_held", "_history", "_idle_told", "_idle_turn", "_jobs", "_keep_history", "_kept_max",
        "_kill_executor", "_launched", "_looks_ahead", "_memory", "_next_ask", "_next_number", "_next_run",
        "_offer_changed", "_ready", "_report_idle", "_resources", "_start_executor", "_timers", "_to_executor",
        "_to_scheduler", "_tried", "_unaware", "_uneven", "_user_max", "apps", "counters", "free", "free_slots", "info",
        "leaving", "node", "offered", "options", "queue", "schedulers", "slots", "state",
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
        self.options = options
        self.slots = slots
        self.free_slots = slots
        self.free = dict(resources or {})
        """Of the node's resources, what no task with a demand takes."""
        self.state = m.READY
        self.leaving = False
        """Whether the process ends as soon as it has drained."""
        self.counters = Counters()
        self.queue = make_queue(options.queue, slots, options.charge_s_max)
        self.offered: dict[str, OfferedApp] = {}
        """Apps by the names that jobs ask for."""
        self.apps = {plan.name: self._offered(plan.app, users).add(plan) for plan in plans}
        """The executors of each plan, by its name; a ticket's app is such a one."""
        self._has_accounts = any(app.has_accounts for app in self.offered.values())
        self.schedulers: dict[str, int] = {}
        """Connected schedulers, and the largest result in bytes that each takes."""
        self._answering: set[str] = set()
        """Those of them that answer `NodeState`: older ones do not."""
        self._unaware: dict[str, int] = {}
        """Those of them that may still launch tasks here: how often they have yet to answer that the node drains."""
        self._launched: dict[str, int] = {}
        """Scheduler to the number of the attempt that it launched here last: they count up."""
        self.node = self._offering(node or m.NodeInfo(slots, dict(self.free), options.attributes, {}))
        """What schedulers are told of the node when they are greeted."""
        self.info = self.node
        """The same with what it offers now, and with what its executors say of it."""
        self._to_scheduler = outbox.to_scheduler
        self._to_executor = outbox.to_executor
        self._start_executor = outbox.start_executor
        self._kill_executor = outbox.kill_executor
        self._fetch = outbox.fetch
        self._offer_changed = outbox.offer_changed
        self._blobs = blobs
        self._kept_max = options.idle_workers_max or IDLE_WORKERS_PER_SLOT * slots
        self._uneven = False
        """Whether some app may be `short` of executors, or keep more for their users than it may."""
        self._memory = Memory(1 / options.count)
        self._resources = dict(self.free)
        self._user_max = options.reservations_per_user_max
        self._report_idle = options.report_idle
        self._idle_told = 0
        """Free slots that a scheduler was told of since the last reservation came."""
        self._idle_turn = 0
        self._ended_for = ""
        """Scheduler of the task that ended last; empty once another has said that it has none."""
        self._fetching: dict[str, list[Held]] = {}
        """Hash of large data under way to the attempts that wait for it."""
        self._tried: dict[str, set[tuple[str, ...]]] = {}
        """Hash of large data under way to the nodes where it was sought."""
        self._executors: dict[str, ExecutorState] = {}
        self._jobs: dict[tuple[str, str], JobHere] = {}
        self._held: dict[tuple[str, str, int], Held] = {}
        self._ready = ReadyTasks()
        self._ahead = AskingAhead(slots)
        self._looks_ahead = False
        """Whether a timer runs that looks for runs given ahead that do not begin."""
        self._asks: dict[int, Ask] = {}
        self._ask_order: deque[Ask] = deque()
        self._next_ask = 1
        self._next_run = 1
        self._next_number = 1
        self._timers = Timers()
        self._history: deque[tuple[float, str]] = deque(maxlen=options.history_len_max)
        self._keep_history = options.history_len_max > 0

    def _offered(self, app: str, users: UserAccounts) -> OfferedApp:
        return self.offered.setdefault(app, OfferedApp(users))

    @property
    def draining(self) -> bool:
        """Whether it takes nothing new."""
        return self.state == m.DRAINING

    @property
    def useless_for(self) -> list[str]:
        """The apps whose executors it was to start, if none of them can run here; empty as long as one can."""
        wanted = [app for app in self.apps.values() if app.wanted and app.plan.supervised]
        return [app.plan.app for app in wanted] if all(app.offer.withdrawn for app in wanted) else []

    # ---- events: schedulers ------------------------------------------------------------------

    def scheduler_up(
        self, scheduler: str, frame_bytes_max: int = m.FRAME_BYTES_MAX, version: int = m.PROTOCOL_VERSION
    ) -> None:
        """A link to a scheduler stands; it takes frames of at most `frame_bytes_max`, and speaks this version."""
        self.schedulers[scheduler] = frame_bytes_max - m.MESSAGE_OVERHEAD_BYTES
        if version >= m.SINCE[m.DrainingKnown]:
            self._answering.add(scheduler)
        if self.state != m.READY:
            self._say_state(scheduler)
        if self.info != self.node:
            self._to_scheduler(scheduler, m.NodeChanged(self.info))

    def scheduler_down(self, scheduler: str, now_s: float) -> None:
        """A scheduler is gone, and with it what it had queued here; what runs goes on, for whoever claims it."""
        self.schedulers.pop(scheduler, None)
        self._answering.discard(scheduler)
        self._unaware.pop(scheduler, None)
        self._idle_told = 0
        self._launched.pop(scheduler, None)
        for ask in [ask for ask in self._asks.values() if ask.scheduler == scheduler]:
            self._end_ask(ask)
        for key, task in self._ready.remove(lambda key, _: key[0] == scheduler):
            self._withdraw_ready(key, task)
        for ticket in self.queue.tickets():
            if ticket.key[0] == scheduler:
                self._ahead.cancelled(ticket)
        self.queue.cancel_scheduler(scheduler)
        for held in [held for held in self._held.values() if held.missing and held.job.scheduler == scheduler]:
            self._withdraw(held, now_s)
        for job in [job for job in self._jobs.values() if job.scheduler == scheduler]:
            self._forget(job)
        self._note(now_s, "scheduler %s down", scheduler)

    def receive(self, scheduler: str, message: m.Message, now_s: float) -> None:
        """A message from a connected scheduler; `LinkError` if it may not be sent."""
        _FROM_SCHEDULER[type(message)](self, scheduler, message, now_s)

    def receive_frame(self, scheduler: str, frame: Sequence[m.Message], now_s: float) -> None:
        """As `receive`, for all that came together, and then `pump`."""
        handlers = _FROM_SCHEDULER
        for message in frame:
            handlers[type(message)](self, scheduler, message, now_s)
        if self.free_slots > 0 or self._ahead.due:
            self.pump(now_s)

    # ---- events: executors -------------------------------------------------------------------

    def start(self, warm: list[str]) -> None:
        """Start the executors that are to be warm before the first task."""
        for name in warm:
            for app in self.offered[name].by_account.values():
                self._want_executors(app)

    def executor_up(self, executor_id: str, app_name: str, places: int, now_s: float) -> None:
        """An executor said hello."""
        app = self.apps[app_name]
        executor = ExecutorState(executor_id, app, places, now_s)
        self._executors[executor_id] = executor
        app.came(executor)
        self._ahead.executors_came(app_name)
        self._note(now_s, "executor %s up, app %s, %d places", executor_id, app_name, places)
        if app.offered.has_accounts:  # Who wanted it may have gone.
            self._uneven = True
        was_withdrawn = app.offer.withdrawn
        others = app.offered.told
        if app.offer.came(app.starting):
            self._tell_of_node(now_s)
        if was_withdrawn:
            self._offer_changed(app_name, "")
            if others:  # The node is as it was to schedulers, which take a refusal to be for good until it changes.
                self._tell_all(m.NodeChanged(self.info))
            self._restart_soon(app)  # One was tried at a time.

    def user_of(self, executor_id: str, run: int) -> str | None:
        """Whose task the run is; None if the executor does not have it."""
        executor = self._executors.get(executor_id)
        held = None if executor is None else executor.running.get(run)
        return None if held is None else held.job.owner[0]

    def executor_says(self, executor_id: str, message: x.Attributes, now_s: float) -> None:
        """An executor says what its node has by it; `LinkError` if it may not say so."""
        executor = self._executors[executor_id]
        if not executor.app.plan.gives_attributes:
            app = executor.app.plan.app
            raise LinkError(
                f"executors of app {app!r} may give this node no attributes; attribute_apps names those that may"
            )
        check_attributes(executor_id, message.attributes)
        before, executor.attributes = executor.attributes, message.attributes
        try:
            self._tell_of_node(now_s)
        except LinkError:  # Too many together: it is cut off, and others are not for it.
            executor.attributes = before
            raise

    def _offering(self, node: m.NodeInfo) -> m.NodeInfo:
        """The node with what it offers now, and why not the rest."""
        apps = {name: app.runtime for name, app in self.offered.items() if app.told}
        withdrawn = {name: app.withdrawn for name, app in self.offered.items() if app.withdrawn}
        return msgspec.structs.replace(node, apps=apps, withdrawn=withdrawn)

    def _tell_of_node(self, now_s: float) -> None:
        """Have schedulers know what the node is by its executors now."""
        attributes = (executor.attributes for executor in self._executors.values())
        info = with_attributes(self._offering(self.node), attributes)
        if info == self.info:
            return
        self.info = info
        self._tell_all(m.NodeChanged(info))
        self._note(now_s, "apps are now %s, attributes %s", ", ".join(info.apps), info.attributes)

    def _tell_all(self, message: m.Message) -> None:
        for scheduler in self.schedulers:
            self._to_scheduler(scheduler, message)

    def executor_failed(self, app_name: str, reason: str, now_s: float) -> None:
        """A process that was started for the app ended before its hello."""
        self._note(now_s, "an executor of app %s did not start: %s", app_name, reason)
        app = self.apps[app_name]
        app.starting -= 1
        if app.kept and not app.fresh and self.queue.size:  # What it lacked may be what another user keeps.
            self._end_executor(app.unused_longest(), now_s)
        self.counters.start_failures += 1
        reason = m.cut_reason(reason)
        if app.offer.start_failed(reason, app.starting, alone=not app.executors):
            self._withdraw_app(app, now_s)
        self._restart_later(app, now_s)

    def executor_leaving(self, executor_id: str, now_s: float) -> None:
        """An executor is about to be gone: it gets no task. What it still says counts; then `executor_down` follows."""
        self._retire(self._executors[executor_id], now_s)

    def _retire(self, executor: ExecutorState, now_s: float) -> None:
        """Give it nothing more; what it was given and waits for its inputs has not started."""
        if executor.leaving:
            return
        executor.app.retire(executor)
        self._note(now_s, "executor %s is leaving", executor.id)
        for held in [held for held in executor.running.values() if held.missing]:
            self._hand_back_waiting(held, f"executor {executor.id} is leaving", now_s)

    def _end_executor(self, executor: ExecutorState, now_s: float) -> None:
        """Have it ended. From now on it is given nothing, however long its end takes."""
        self._retire(executor, now_s)
        executor.ended_here = True
        self._kill_executor(executor.id)

    def executor_down(self, executor_id: str, reason: str, now_s: float, failure: str = "") -> None:
        """An executor died: its slots come back, its tasks are reported lost (guarantee 4).

        With a `failure`, the task that it ran has failed for that reason, if there is no doubt which it was.
        """
        executor = self._executors.pop(executor_id)
        app = executor.app
        if executor.running or not executor.ended_here:
            self.counters.executor_deaths += 1
        self.free_slots += executor.busy_places
        app.went(executor)
        runs = list(executor.running.values())
        culprit = next((held for held in runs if not (held.missing or executor.ended_here or failure)), None)
        for held in runs:
            self._died_with_executor(held, reason, failure if len(runs) == 1 else "", now_s)
        if culprit is not None:
            self._suspect(app, culprit.job, now_s)
        self._note(now_s, "executor %s down: %s", executor_id, reason)
        if executor.attributes:
            self._tell_of_node(now_s)
        if not app.executors:
            self._hand_back_ready_of(app, f"the node's {app.plan.app} executors are gone")
        if not app.plan.supervised:
            return
        if executor.did_tasks or executor.running or executor.ended_here:
            self._restart_soon(app)  # What ended it may well have been a task.
            return
        if now_s - executor.came_at_s >= STOOD_S:
            app.offer.worked()
        if app.offer.died_unused(m.cut_reason(reason), executor.failures_before, alone=not app.executors):
            self._withdraw_app(app, now_s)
        self._restart_later(app, now_s)

    def _died_with_executor(self, held: Held, reason: str, failure: str, now_s: float) -> None:
        if held.missing:
            self.queue.refund(held.charge)
            self._hand_back(held, reason)
            return
        held.is_not_ahead()
        if held.began_at_s is None:
            self.queue.refund(held.charge)
        else:
            self.queue.settle(held.charge, now_s - held.began_at_s)
        if failure and held.stop is None:
            held.stop = (FAILED, failure)
        if held.stop is not None:
            self._report(held, *held.stop, started_at_s=held.given_at_s, service_s=now_s - held.given_at_s)
        else:
            self._report(held, LOST, reason)

    def done_together(self, executor_id: str, messages: Sequence[x.Done], now_s: float) -> None:
        """An executor ended runs of which one frame told: what they took together is divided as it says."""
        executor = self._executors[executor_id]
        if executor.places > 1:
            for message in messages:
                self.done(executor_id, message, now_s)
            return
        whole_s = executor.worked_s(now_s)
        if len(messages) == 1:
            self.done(executor_id, messages[0], now_s, whole_s)
            return
        for message, service_s in zip(messages, _shares(whole_s, messages), strict=True):
            self.done(executor_id, message, now_s, service_s)

    def done(self, executor_id: str, message: x.Done, now_s: float, service_s: float | None = None) -> None:
        """An executor ended a run; `LinkError` if it did not have it.

        service_s: how long it had its place by the node monitor's clock, if that is not since it began: that is what
        counts here, whatever the executor says.
        """
        executor = self._executors[executor_id]
        held = executor.running.get(message.run)
        if held is None:
            raise LinkError(f"executor {executor_id} reported run {message.run}, which it does not have")
        if message.status is not FINISHED and message.status is not FAILED:
            raise LinkError(f"executor {executor_id} reported {message.status.value}, neither finished nor failed")
        if not 0 <= message.service_s <= SERVICE_MAX_S:
            raise LinkError(f"executor {executor_id} reported a service time of {message.service_s} s")
        if service_s is None:
            service_s = 0.0 if held.began_at_s is None else now_s - held.began_at_s
        given_s = now_s - held.given_at_s
        if message.service_s > given_s:  # noqa: PLR1730 - at every task, where min() costs three times that
            message.service_s = given_s
        executor.end(message.run, now_s)
        executor.did_tasks = True
        app = executor.app
        if app.offer.failures:
            app.offer.worked()
        if app.suspicion.jobs:
            app.suspicion.cleared()
        job = held.job
        if job.duration_s is None:
            job.duration_s = service_s
        else:
            job.duration_s += DURATION_WEIGHT * (service_s - job.duration_s)
        self.queue.settle(held.charge, service_s)
        self.counters.ended += 1
        self._ended_for = job.scheduler
        report = self._report_of(held, message)
        if report.status is not CANCELLED:
            self._memory.remember(job.owner, report)
        self._to_scheduler(job.scheduler, report)
        self._drop(held)
        self._place_freed(executor, now_s)

    def _report_of(self, held: Held, message: x.Done) -> m.Report:
        job, said, stdout, stderr = held.job, message.result, message.stdout, message.stderr
        status, error = message.status, message.error[:ERROR_CHARS_MAX]
        if isinstance(said, x.File):
            result: m.Data = self._blobs.adopt(said, job.number)
            inline = 0
        else:
            result, inline = said, len(said)
        if held.stop is not None and status is FAILED:
            status, error = held.stop
        report = m.Report(
            job.id, held.task, held.attempt, status, result, error,
            message.started_at_s, message.service_s, stdout, stderr,
        )  # fmt: skip
        if inline + 4 * (len(stdout) + len(stderr) + len(error)) > SMALL_RESULT_BYTES:
            bytes_max = self.schedulers.get(job.scheduler, m.FRAME_BYTES_MAX - m.MESSAGE_OVERHEAD_BYTES)
            size = inline + sum(len(text.encode()) for text in (stdout, stderr, error))
            if size > bytes_max:
                return _unfit(held, f"the task's result is {size} bytes; at most {bytes_max} can be returned", message)
        return report

    def returned(self, executor_id: str, message: x.Returned, now_s: float) -> None:
        """An executor gave runs back that it had not started: they were revoked, as they were cancelled."""
        executor = self._executors[executor_id]
        if not executor.revoked:
            raise LinkError(f"executor {executor_id} returned runs that nobody revoked")
        run = executor.revoked.popleft()
        held = executor.running.get(run)
        if held is None:
            return  # It ended meanwhile.
        if run not in message.runs:
            if held.kill_if_runs:
                self._stop(held, CANCELLED, CANCELLED_RUNNING, now_s)
            elif held.cancelled:
                self._to_scheduler(held.job.scheduler, m.AttemptRuns(held.job.id, held.attempt))
            return
        executor.end(run, now_s)
        self.queue.refund(held.charge)
        if held.cancelled:
            self._report(held, CANCELLED, "it was cancelled")
        else:
            self._hand_back(held, "it waited behind a task that lasts longer than was thought")
        self._place_freed(executor, now_s)

    def _place_freed(self, executor: ExecutorState, now_s: float) -> None:
        if executor.places == 1 and executor.running:
            if self._ready and not executor.leaving:
                self._top_up(executor, now_s)
            return
        app = executor.app
        self.free_slots += app.free_places(executor, now_s)
        if app.offered.idle > self._kept_max:
            self._uneven = True

    # ---- events: time and operator -----------------------------------------------------------

    def next_deadline_s(self) -> float | None:
        """When `tick` is due next."""
        while self._ask_order and self._ask_order[0].id not in self._asks:
            self._ask_order.popleft()
        ask_s = self._ask_order[0].deadline_s if self._ask_order else None
        timer_s = self._timers.next_deadline_s()
        if ask_s is None or timer_s is None:
            return ask_s if timer_s is None else timer_s
        return min(ask_s, timer_s)

    def tick(self, now_s: float) -> None:
        """Time has come to `now_s`: release the slots of unanswered asks, restart executors."""
        while self._ask_order and (self._ask_order[0].id not in self._asks or self._ask_order[0].deadline_s <= now_s):
            ask = self._ask_order.popleft()
            if ask.id in self._asks:
                self.counters.ask_timeouts += 1
                self._note(now_s, "ask %d to %s timed out", ask.id, ask.scheduler)
                self._end_ask(ask)
        self._timers.run_due(now_s)

    def drain(self, now_s: float) -> None:
        """Take nothing new: hand back what has not started, and what still comes; what runs goes on."""
        self._enter(m.DRAINING, now_s)
        for ask in list(self._asks.values()):
            self._end_ask(ask)
        self._hand_back_ready(self._ready.remove(lambda _key, _task: True), "the node is draining")
        for ticket in list(self.queue.tickets()):
            self._cancel_unasked(ticket)
        for held in [held for held in self._held.values() if held.missing]:
            self._hand_back_waiting(held, "the node is draining", now_s)

    def cordon(self, now_s: float) -> None:
        """Want no further reservations; those queued are served. A draining node goes on draining."""
        if not self.draining:
            self._enter(m.CORDONED, now_s)

    def uncordon(self, now_s: float) -> None:
        """Take part again, unless the process is about to end."""
        if self.leaving:
            return
        self._enter(m.READY, now_s)
        for app in self.apps.values():
            if app.wanted:  # Executors that ended while it was draining were not restarted.
                self._want_executors(app)

    def _enter(self, state: str, now_s: float) -> None:
        self.state = state
        self._note(now_s, "the node is %s", state)
        for scheduler in sorted(self.schedulers):
            self._say_state(scheduler)

    def _say_state(self, scheduler: str) -> None:
        self._to_scheduler(scheduler, m.NodeState(self.state, f"the node is {self.state}"))
        if self.draining and scheduler in self._answering:
            self._unaware[scheduler] = self._unaware.get(scheduler, 0) + 1

    def _draining_known(self, scheduler: str, message: m.DrainingKnown, now_s: float) -> None:
        left = self._unaware.pop(scheduler, 0) - 1
        if left > 0:
            self._unaware[scheduler] = left

    @property
    def asking(self) -> int:
        """Slots that wait for the answer to a getTask."""
        return self.slots - self.free_slots - sum(executor.busy_places for executor in self._executors.values())

    @property
    def idle(self) -> bool:
        """Whether nothing runs and nothing is ready."""
        return not self._held and not self._ready

    @property
    def drained(self) -> bool:
        """Whether it may end: it is draining, all schedulers know that, and nothing is here any more."""
        return self.draining and not self._unaware and self.idle

    def story(self) -> list[str]:
        """What is remembered, for people who look for a bug; needs `history_len_max` > 0."""
        return [f"{at_s:.6f} {text}" for at_s, text in self._history]

    # ---- reservations ------------------------------------------------------------------------

    def _reserve(self, scheduler: str, message: m.Reserve, now_s: float) -> None:
        if self.state == m.DRAINING:
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
        offered = self.offered.get(message.app)
        if offered is None:
            self._refuse(scheduler, message.ticket, count, f"no app {message.app!r} here")
            return
        app = offered.for_everybody or offered.of(message.user)
        if app is None:
            reason = f"user {message.user!r} has no account at this node (run_as)"
            self._refuse(scheduler, message.ticket, count, reason, lasting=True)
            return
        if app.offer.withdrawn:
            self._refuse(scheduler, message.ticket, count, *_not_starting(app))
            return
        if app.suspicion and app.suspicion.refuses(message.user, now_s):
            self._refuse(scheduler, message.ticket, count, f"executors of {message.app!r} die here")
            return
        refused = max(0, count - max(0, self._user_max - self.queue.user_count(message.user)))
        if count > refused:
            self._queue(scheduler, app, message, count - refused)
            if self._keep_history:
                self._note(now_s, "ticket %s/%d: %d reserved", scheduler, message.ticket, count - refused)
        if refused:
            self._refuse(scheduler, message.ticket, refused, f"user {message.user} has too many")

    def _queue(self, scheduler: str, app: AppState, message: m.Reserve, count: int) -> None:
        """Queue so many of the reservations."""
        self._idle_told = 0
        self.counters.reservations += count
        key = (scheduler, message.ticket)
        self.queue.add(
            QueuedTicket(
                key, message.job, message.user, message.weight, message.priority, app.name,
                0 if message.demand else message.prefetch, message.expected_duration_s, message.demand, count,
            )
        )  # fmt: skip
        if message.prefetch:
            ticket = self.queue.ticket(key)
            if ticket is not None and ticket.prefetch:
                self._ahead.queued(ticket)
        if not app.wanted:
            self._want_executors(app)

    def _refuse(self, scheduler: str, ticket: int, count: int, reason: str, lasting: bool = False) -> None:
        self.counters.refused_reservations += count
        self._to_scheduler(scheduler, m.ReservationsRefused(ticket, count, reason, lasting))
        if self._ready:  # Of what was pushed, those without a reservation go with it.
            key = (scheduler, ticket)
            queued = self.queue.ticket(key)
            unreserved = self._ready.count(key) - (0 if queued is None else queued.count)
            if unreserved > 0:
                for _, task in self._ready.take_last(key, unreserved):
                    if lasting:  # Whoever pushed it decided for this node alone, and would go on doing so.
                        self._say_unstarted(scheduler, task, FAILED, reason)
                    else:
                        self._say_handed_back(scheduler, task, reason)

    def _turn_away(self, ticket: QueuedTicket, reason: str, lasting: bool = False) -> None:
        """What is queued of the ticket is not wanted here any more; what was asked for is still to come."""
        (scheduler, number), refused = ticket.key, self._cancel_unasked(ticket)
        if refused:
            self._refuse(scheduler, number, refused, reason, lasting)
        self._hand_back_ready(self._ready.remove(lambda key, _: key == ticket.key), reason)

    def _unasked(self, ticket: QueuedTicket) -> int:
        """For how many of the ticket's reservations no task is here or under way."""
        return ticket.count - ticket.asked - self._ready.count(ticket.key)

    def _cancel_unasked(self, ticket: QueuedTicket) -> int:
        """Remove those reservations; returns how many there were."""
        self._ahead.cancelled(ticket)
        unasked = self._unasked(ticket)
        return self.queue.cancel(ticket.key, unasked) if unasked > 0 else 0

    def _cancel_reservations(self, scheduler: str, message: m.CancelReservations, now_s: float) -> None:
        ticket = self.queue.ticket((scheduler, message.ticket))
        if ticket is not None:  # Tasks that are here are bound to the node, and so are those that were asked for.
            self.counters.cancelled_reservations += self._cancel_unasked(ticket)
        if self._keep_history:
            self._note(now_s, "ticket %s/%d cancelled", scheduler, message.ticket)

    # ---- asking ------------------------------------------------------------------------------

    def pump(self, now_s: float) -> None:
        """After events: start what is ready, and ask for tasks for the slots that are free."""
        if self.free_slots > 0:
            self._fill(now_s)
        if self._ahead.due:
            self._ask_ahead(now_s)

    def _fill(self, now_s: float) -> None:
        """Use the slots that are free."""
        asks: dict[Key, Ask] = {}
        queue = self.queue
        some_ready = bool(self._ready)
        serves = queue.size > 0 and self.free_slots > 0 and (self._has_accounts or self._some_app_serves())
        while serves and queue.size:
            charge = queue.take(self._may_run)
            if charge is None:
                break
            self.free_slots -= 1
            ticket = charge.ticket
            if ticket.demand:
                self._take_resources(charge)
            app = self.apps[ticket.app]
            task = self._ready.take(ticket.key) if some_ready else None
            if task is not None:
                self._start_ready(charge, task, now_s)
            else:
                executor = app.take_place(ticket.user)
                ask = asks.get(ticket.key)
                if ask is None:
                    ask = asks[ticket.key] = self._new_ask(ticket, now_s)
                ask.slots.append((charge, executor))
            serves = self.free_slots > 0 and (bool(app.free) or self._has_accounts or self._some_app_serves())
        for ask in asks.values():
            self._send_ask(ask, len(ask.slots))
        if self._uneven:
            self._even_out(now_s)
        if self.free_slots > self._idle_told and not queue.size and self._report_idle:
            self._say_idle()

    def _say_idle(self) -> None:
        """There are more free slots than was said before, and nothing is queued: one of the schedulers is told.

        It is the one whose task has just ended, if one has: as good as a random one, and it is written to anyway.
        """
        if self.state != m.READY or not self.schedulers:
            return
        self._idle_told = self.free_slots
        scheduler = self._ended_for
        if scheduler not in self.schedulers:
            self._idle_turn += 1
            scheduler = list(self.schedulers)[self._idle_turn % len(self.schedulers)]
        self._to_scheduler(scheduler, m.Idle(self.free_slots))

    def _some_app_serves(self) -> bool:
        """Whether an executor has a free place: else the queue need not be looked through, unless users of some account
        lack executors (`_may_run` finds them), as each account has fewer than slots."""
        for app in self.apps.values():  # noqa: SIM110 - asked with every event, where a generator costs four times that
            if app.free or app.kept:
                return True
        return False

    def _may_run(self, ticket: QueuedTicket) -> bool:
        """Whether a reservation of the ticket may have a slot now. One whose task is under way may not, yet."""
        app = self.apps[ticket.app]
        if ticket.count <= ticket.asked:
            return False
        if not app.free and ticket.user not in app.kept:
            if app.plan.one_user:
                app.short.add(ticket.user)
                self._uneven = True
            return False
        return not ticket.demand or self._fits(ticket.demand)

    def _fits(self, demand: dict[str, float]) -> bool:
        return all(
            self.free.get(name, 0.0) >= amount - ROUNDING * self._resources.get(name, 0.0)
            for name, amount in demand.items()
        )

    def _take_resources(self, charge: Charge) -> None:
        for name, amount in (charge.ticket.demand or {}).items():
            if amount:
                self.free[name] = self.free.get(name, 0.0) - amount

    def _return_resources(self, charge: Charge) -> None:
        for name, amount in (charge.ticket.demand or {}).items():
            if amount:
                self.free[name] += amount

    def _ask_ahead(self, now_s: float) -> None:
        """Ask for tasks that are to be here when it is their turn."""
        for ticket, count in self._ahead.take_due(lambda app: bool(self.apps[app].executors), self._unasked):
            ask = self._new_ask(ticket, now_s)
            ask.ahead = count
            self._send_ask(ask, count)

    def _new_ask(self, ticket: QueuedTicket, now_s: float) -> Ask:
        ask = Ask(self._next_ask, self.apps[ticket.app], ticket, now_s + self.options.get_task_timeout_s)
        self._next_ask += 1
        return ask

    def _send_ask(self, ask: Ask, count: int) -> None:
        self._asks[ask.id] = ask
        self._ask_order.append(ask)
        self.counters.asks += 1
        scheduler, ticket = ask.ticket.key
        demand = ask.ticket.demand
        free = self._free_for(len(ask.slots), demand) if demand else None
        self._to_scheduler(scheduler, m.GetTasks(ask.id, ticket, count, free))

    def _free_for(self, count: int, demand: dict[str, float]) -> dict[str, float]:
        """What so many tasks may take for which slots ask: what is free and what is set aside for them."""
        return {name: self.free.get(name, 0.0) + count * amount for name, amount in demand.items()}

    def _end_ask(self, ask: Ask) -> None:
        """What has not been answered will not be waited for."""
        self._no_answer(ask, ask.left)

    def _no_answer(self, ask: Ask, count: int) -> None:
        """For so many of the ask's reservations there is no task: their slots are free again."""
        if ask.ahead:
            ticket = ask.ticket
            ask.ahead -= count
            ticket.asked -= count
            self.queue.cancel(ticket.key, count)
            assert ticket.ahead is not None
            ticket.ahead.less(count)
        else:
            for _ in range(count):
                charge, executor = ask.slots.pop()
                ask.app.release(executor)
                self._give_up(charge)
            self.free_slots += count
        if not ask.left:
            del self._asks[ask.id]

    def _give_up(self, charge: Charge) -> None:
        """The reservation leads to no task."""
        self._return_resources(charge)
        self.queue.refund(charge)

    def _no_task(self, scheduler: str, message: m.NoTask, now_s: float) -> None:
        ask = self._asks.get(message.ask)
        if ask is None or ask.scheduler != scheduler:
            return  # It timed out.
        if not 1 <= message.count <= ask.left:
            raise LinkError(f"{message.count} no-ops for an ask of {ask.left}")
        self.counters.noops += message.count
        self._ended_for = ""
        self._no_answer(ask, message.count)

    # ---- tasks -------------------------------------------------------------------------------

    def _common(self, scheduler: str, message: m.Common, now_s: float) -> None:
        job = self._job(scheduler, message.job)
        job.forgotten = False
        job.instance, job.once = message.instance, message.once
        known = job.commons.get(message.stage)
        if known is None or known.data != message.data:  # Another scheduler may send the same again.
            number = self._number()
            job.numbers.append(number)
            known = job.commons[message.stage] = CommonHere(number, message.data, message.task_timeout_s)
        known.task_timeout_s = message.task_timeout_s

    def _input(self, scheduler: str, message: m.Input, now_s: float) -> None:
        job = self._job(scheduler, message.job)
        job.forgotten = False
        job.inputs[message.task] = message.data

    def _job(self, scheduler: str, job_id: str) -> JobHere:
        key = (scheduler, job_id)
        job = self._jobs.get(key)
        if job is None:
            job = self._jobs[key] = JobHere(scheduler, job_id, self._number())
        return job

    def _number(self) -> int:
        self._next_number += 1
        return self._next_number

    def _launch(self, scheduler: str, message: m.Launch, now_s: float) -> None:
        """A task has come, for a slot that asked (late binding) or ahead of one."""
        number = message.attempt & ATTEMPT_NUMBERS
        if number <= self._launched.get(scheduler, -1):
            return  # It came twice: whatever became of it has been, or will be, reported.
        self._launched[scheduler] = number
        if not message.ask:  # Its reservation follows.
            if self.draining:
                self._say_handed_back(scheduler, message, "the node is draining")
            else:
                self._ready.add((scheduler, message.ticket), message)
            return
        ask = self._asks.get(message.ask)
        if ask is None or ask.ticket.key[0] != scheduler:
            self._say_handed_back(scheduler, message, "the ask had timed out")
        elif ask.ahead:
            self._came_ahead(ask, message)
        else:
            self._came_for_slot(ask, message, now_s)

    def _came_ahead(self, ask: Ask, task: m.Launch) -> None:
        """A task that was asked for ahead of a slot waits for its turn."""
        ask.ahead -= 1
        ask.ticket.asked -= 1
        if not ask.ahead:
            del self._asks[ask.id]
        self._ready.add(ask.ticket.key, task)
        if not ask.app.executors:
            self._hand_back_ready_of(ask.app, f"the node's {ask.app.plan.app} executors are gone")

    def _came_for_slot(self, ask: Ask, task: m.Launch, now_s: float) -> None:
        """A slot asked for a task, which has come."""
        charge, executor = ask.slots.pop(0)  # That with the warmest executor.
        app, ticket = ask.app, charge.ticket
        if not ask.slots:
            del self._asks[ask.id]
        if executor.leaving and app.serves(ticket.user):
            executor = app.take_place(ticket.user)
        if executor.leaving:
            self._say_handed_back(ask.scheduler, task, f"the {app.plan.app} executor that was to run it is gone")
        elif (held := self._hold(ticket.key[0], task, charge)) is not None:
            executor.busy_places += 1
            if executor.fresh:
                self._assign(executor, ticket.user)
            self._give(executor, held, now_s)
            return
        app.release(executor)
        self._give_up(charge)
        self.free_slots += 1

    def _hold(self, scheduler: str, message: m.Launch, charge: Charge) -> Held | None:
        """The attempt, which has a place, is charged to its user. None, and it is handed back, if it may not start."""
        if (self._memory.fences or message.inputs) and self._may_not_start(scheduler, message, charge.ticket.user):
            return None
        job = self._jobs.get((scheduler, message.job)) or self._job(scheduler, message.job)
        job.forgotten = False
        job.owner = (charge.ticket.user, job.instance)
        job.held += 1
        common = job.commons.get(message.stage)
        held = Held(job, message.task, message.attempt, message.payload, common, message.inputs, charge)
        self._held[scheduler, message.job, message.attempt] = held
        return held

    def _start_ready(self, charge: Charge, task: m.Launch, now_s: float) -> None:
        """It is the turn of a task that is here."""
        ticket = charge.ticket
        if task.ask and ticket.ahead is not None:
            ticket.ahead.less()
        held = self._hold(ticket.key[0], task, charge)
        if held is None:
            self._give_up(charge)
            self.free_slots += 1
            return
        executor = self.apps[ticket.app].take_place(ticket.user)
        executor.busy_places += 1
        if executor.fresh:
            self._assign(executor, ticket.user)
        self._give(executor, held, now_s)
        if ticket.prefetch and executor.places == 1 and not held.missing:
            share = self._share(executor.app, self._ready.count(ticket.key) + 1)
            self._give_more(executor, held, ticket, min(share, self._depth(held)), now_s)

    def _share(self, app: AppState, ready: int) -> int:
        """How many of so many ready tasks one executor may have: there are others to run some at the same time."""
        return -(-ready // min(self.slots, len(app.executors)))

    def _assign(self, executor: ExecutorState, user: str) -> None:
        """A fresh executor is this user's for good, and another takes its place: the next user need not wait."""
        executor.app.assign(executor, user)
        self._restart_soon(executor.app)

    def _hand_back_ready_of(self, app: AppState, reason: str) -> None:
        """Hand back all of an app's tasks that wait here."""

        def of_app(key: Key, _: m.Launch) -> bool:
            ticket = self.queue.ticket(key)
            return ticket is not None and ticket.app == app.name

        if self._ready:
            self._hand_back_ready(self._ready.remove(of_app), reason)

    def _hand_back_ready(self, tasks: Iterable[tuple[Key, m.Launch]], reason: str) -> None:
        """Hand back tasks that waited here, and are taken out."""
        for key, task in tasks:
            self._say_handed_back(key[0], task, reason)
            self._withdraw_ready(key, task)

    def _withdraw_ready(self, key: Key, task: m.Launch) -> None:
        """A task that waited here, and is taken out, does not start: its reservation goes with it."""
        ticket = self.queue.ticket(key)
        if ticket is None:
            return  # It was pushed, and its reservation has not come.
        self.queue.cancel(key, 1)
        if task.ask and ticket.ahead is not None:
            ticket.ahead.less()

    def _say_unstarted(self, scheduler: str, task: m.Launch, status: TaskStatus, error: str) -> None:
        """A task that waited here ended without having started."""
        self._to_scheduler(scheduler, m.Report(task.job, task.task, task.attempt, status, b"", error, None, None))

    def _say_handed_back(self, scheduler: str, task: m.Launch, reason: str) -> None:
        self.counters.handed_back += 1
        self._to_scheduler(scheduler, m.HandBack(task.job, task.attempt, reason))

    def _ask_length(self, scheduler: str, message: m.AskLength, now_s: float) -> None:
        length = self.slots - self.free_slots + self.queue.size
        self._to_scheduler(scheduler, m.QueueLength(message.probe, length))

    def _may_not_start(self, scheduler: str, message: m.Launch, user: str) -> bool:
        """Whether the task cannot start here; then it has been handed back."""
        if self._memory.fences and self._fenced(scheduler, message, user):
            return True
        if self._has_inputs(scheduler, message):
            return False
        self.counters.handed_back += 1
        self._to_scheduler(scheduler, m.HandBack(message.job, message.attempt, "its inputs were not sent before it"))
        return True

    def _has_inputs(self, scheduler: str, message: m.Launch) -> bool:
        """Whether the results that the task asks for have come."""
        if not message.inputs:
            return True
        job = self._jobs.get((scheduler, message.job))
        # Summed before they are walked: a scheduler out of its mind may ask for 2^63 of them.
        if job is None or sum(max(1, count) for _, count in message.inputs) > INPUTS_MAX:
            return False
        return all(task in job.inputs for first, count in message.inputs for task in range(first, first + count))

    def _fenced(self, scheduler: str, message: m.Launch, user: str) -> bool:
        """Whether another scheduler has claimed the task's job; then this one is told."""
        job = self._jobs.get((scheduler, message.job))
        epoch = self._memory.epoch((user, job.instance if job is not None else 0), message.job)
        if _epoch(message.attempt) >= epoch:
            return False
        self.counters.handed_back += 1
        self._to_scheduler(scheduler, m.Fenced(message.job, epoch))
        self._to_scheduler(scheduler, m.HandBack(message.job, message.attempt, "another scheduler has the job"))
        return True

    def _depth(self, held: Held) -> int:
        """How many tasks like this one an executor may be given at a time.

        Of those that may start only once it is given one: what is given ahead dies with what is killed before it, and
        for some milliseconds nobody but the executor knows which of them runs.
        """
        job, prefetch = held.job, held.charge.ticket.prefetch
        duration_s = job.duration_s
        if not prefetch or duration_s is None or job.once or held.inputs or held.task_timeout_s is not None:
            return 1
        return max(1, min(prefetch, int(TURN_S / max(duration_s, 1e-9))))

    def _top_up(self, executor: ExecutorState, now_s: float) -> None:
        """The executor has work. Give it more in time, so that it need not wait for us, if it is that user's turn."""
        held = next(iter(executor.running.values()))
        depth = self._depth(held)
        if len(executor.running) * 2 > depth or held.missing:
            return
        user = held.charge.ticket.user
        charge = self.queue.take(
            self._could_run, lambda ticket: ticket.user == user and self._may_follow(ticket.key, held)
        )
        if charge is None:
            return
        ticket = charge.ticket
        share = self._share(executor.app, self._ready.count(ticket.key))
        self._give_ahead(executor, charge, now_s)
        self._give_more(executor, held, ticket, min(depth, len(executor.running) + share - 1), now_s)

    def _could_run(self, ticket: QueuedTicket) -> bool:
        """Whether a reservation of the ticket could have a slot if one were free."""
        if ticket.count <= ticket.asked or not self.apps[ticket.app].executors:
            return False
        return not ticket.demand or self._fits(ticket.demand)

    def _may_follow(self, key: Key, held: Held) -> bool:
        """Whether the ticket's first task may be given ahead of time to the executor that has this one: it is of the
        same stage, and so lasts about as long, and needs nothing that is not here."""
        task, job = self._ready.first(key), held.job
        return (
            task is not None
            and (task.job, key[0]) == (job.id, job.scheduler)
            and job.commons.get(task.stage) is held.common
            and not task.inputs
            and type(task.payload) is bytes
        )

    def _give_more(self, executor: ExecutorState, held: Held, ticket: QueuedTicket, most: int, now_s: float) -> None:
        """Give the executor more of the ticket's tasks behind this one, until it has so many."""
        while len(executor.running) < most and ticket.count and self._may_follow(ticket.key, held):
            self._give_ahead(executor, self.queue.take_of(ticket), now_s)

    def _give_ahead(self, executor: ExecutorState, charge: Charge, now_s: float) -> None:
        """Give the executor the ticket's first task, to run when it has ended those before it."""
        ticket = charge.ticket
        task = self._ready.take(ticket.key)
        assert task is not None
        held = self._hold(ticket.key[0], task, charge)
        if held is None:
            self._give_up(charge)
            return
        held.ahead = ticket.ahead
        self._give(executor, held, now_s)
        if not self._looks_ahead:
            self._looks_ahead = True
            self._at(now_s + AHEAD_S, self._look_ahead)

    def _look_ahead(self, now_s: float) -> None:
        """Ask back what was given ahead of time and has not begun by now, if another user waits."""
        self._looks_ahead = False
        for executor in self._executors.values():
            for held in executor.running.values() if len(executor.running) > executor.places else ():
                self._looks_ahead = True
                late = held.ahead is not None and held.given_at_s + AHEAD_S <= now_s
                if late and self.queue.others_wait(held.charge.ticket.user):
                    self._revoke(executor, held)
        if self._looks_ahead:
            self._at(now_s + AHEAD_S, self._look_ahead)

    def _revoke(self, executor: ExecutorState, held: Held) -> None:
        if held.run not in executor.revoked:
            executor.revoked.append(held.run)
            self._to_executor(executor.id, x.Revoke([held.run]))

    def _give(self, executor: ExecutorState, held: Held, now_s: float) -> None:
        """The attempt has its place: run it there, once its inputs are here."""
        held.executor = executor
        held.run = self._next_run
        self._next_run += 1
        executor.running[held.run] = held
        held.given_at_s = now_s
        common = held.common
        if held.inputs or type(held.payload) is BlobRef or (common is not None and common.large):
            for ref in self._large(held):
                if self._blobs.file(ref.hash) is None:
                    held.missing = held.missing | {ref.hash}
                    waiting = self._fetching.setdefault(ref.hash, [])
                    waiting.append(held)
                    if len(waiting) == 1:
                        self._tried[ref.hash] = {ref.at}
                        self._fetch(ref, held.job.owner[0])
                else:
                    self._blobs.pin(ref.hash, held.job.number)
        if not held.missing:
            self._run(executor, held, now_s)

    def _large(self, held: Held) -> list[BlobRef]:
        """What the attempt needs that does not travel with messages, each once."""
        common = held.common.data if held.common is not None else b""
        refs = [data for data in (common, held.payload, *self._inputs(held)) if isinstance(data, BlobRef)]
        return list({ref.hash: ref for ref in refs}.values())

    def _inputs(self, held: Held) -> list[m.Data]:
        inputs = held.job.inputs
        return [inputs[task] for first, count in held.inputs for task in range(first, first + count)]

    def fetched(self, hash_: str, reason: str, now_s: float) -> None:
        """Large data has come, or cannot be had: `reason` says why, and is empty if it has come."""
        if reason and (other := self._elsewhere(hash_)) is not None:
            self._tried[hash_].add(other.at)
            self._fetch(other, self._fetching[hash_][0].job.owner[0])
            return
        self._tried.pop(hash_, None)
        for held in self._fetching.pop(hash_, ()):
            executor = held.executor
            assert executor is not None
            if reason:
                held.missing = held.missing - {hash_}
                self._hand_back_waiting(held, reason, now_s, (hash_,))
                continue
            self._blobs.pin(hash_, held.job.number)
            held.missing = held.missing - {hash_}
            if not held.missing:
                self._run(executor, held, now_s)

    def _elsewhere(self, hash_: str) -> BlobRef | None:
        """Where else the data is, by what has been said since it was sought for; None if that was all."""
        refs = (ref for held in self._fetching.get(hash_, ()) for ref in self._large(held))
        return next((ref for ref in refs if ref.hash == hash_ and ref.at not in self._tried[hash_]), None)

    def _run(self, executor: ExecutorState, held: Held, now_s: float) -> None:
        """Everything that the attempt needs is here: it starts."""
        common = held.common
        number = common.number if common is not None and common.data else 0
        if common is not None and number and number not in executor.commons:
            executor.commons.add(number)
            self._to_executor(executor.id, x.Common(number, self._local(common.data, executor)))
        self.counters.started += 1
        if held.job.once:
            self._memory.started(held.job.owner, held.job.id, held.task, now_s)
        inputs = [self._local(data, executor) for data in self._inputs(held)] if held.inputs else []
        payload = held.payload
        local = payload if type(payload) is bytes else self._local(payload, executor)
        self._to_executor(executor.id, x.Run(held.run, number, local, inputs, held.job.owner[0], held.task))
        held.payload = b""
        held.given_at_s = now_s
        if held.ahead is None:
            held.began_at_s = now_s
        timeout_s = common.task_timeout_s if common is not None else None
        if timeout_s is not None:
            reason = f"it ran for longer than task_timeout_s = {timeout_s:g} s"
            self._at_run(now_s + timeout_s, executor.id, held.run, reason)

    def _local(self, data: m.Data, executor: ExecutorState) -> x.Data:
        """The data as the executor is given them."""
        if isinstance(data, bytes):
            return data
        file = self._blobs.file_for(data.hash, executor.app.plan.account)
        assert file is not None, f"{data.hash} is not here"
        return file

    # ---- tasks end before their time ---------------------------------------------------------

    def _at_run(self, at_s: float, executor_id: str, run: int, reason: str) -> None:
        """Stop the run then, if it still runs. It is named, not held: it may end long before."""

        def here() -> Held | None:
            executor = self._executors.get(executor_id)
            return executor.running.get(run) if executor is not None else None

        def stop(now_s: float) -> None:
            held = here()
            if held is not None:
                self._stop(held, FAILED, reason, now_s)

        self._timers.at(at_s, stop, lambda: here() is not None)

    def _stop(self, held: Held, status: TaskStatus, reason: str, now_s: float) -> None:
        """End a task that runs; what it is reported as is settled, unless it ends by itself meanwhile."""
        executor = held.executor
        assert executor is not None
        if held.stop is not None:
            return
        held.stop = (status, reason)
        self._note(now_s, "run %d of executor %s is stopped: %s", held.run, executor.id, reason)
        if executor.places == 1 and not executor.app.plan.one_process:
            self._end_executor(executor, now_s)
            return
        self._to_executor(executor.id, x.Kill([held.run]))
        self._at(now_s + KILL_GRACE_S, lambda now_s: self._kill_if_here(held, now_s))

    def _kill_if_here(self, held: Held, now_s: float) -> None:
        if self._held.get(held.key) is held and held.executor is not None:
            self._end_executor(held.executor, now_s)

    def _cancel_attempt(self, scheduler: str, message: m.CancelAttempt, now_s: float) -> None:
        held = self._held.get((scheduler, message.job, message.attempt))
        if held is None:
            if self._ready:
                self._cancel_ready(scheduler, message)
            return  # Else it ended or was handed back: the report is on its way.
        executor = held.executor
        assert executor is not None
        if held.missing:
            executor.end(held.run, now_s)
            self.queue.refund(held.charge)
            self._report(held, CANCELLED, "it was cancelled")
            self._place_freed(executor, now_s)
        elif executor.places == 1 and next(iter(executor.running)) != held.run:
            held.cancelled = True
            held.kill_if_runs = held.kill_if_runs or message.running
            self._revoke(executor, held)
        elif message.running:
            self._stop(held, CANCELLED, CANCELLED_RUNNING, now_s)
        else:
            self._to_scheduler(scheduler, m.AttemptRuns(message.job, message.attempt))

    def _cancel_ready(self, scheduler: str, message: m.CancelAttempt) -> None:
        found = self._ready.take_attempt(scheduler, message.job, message.attempt)
        if found is not None:
            key, task = found
            self._say_unstarted(scheduler, task, CANCELLED, "it was cancelled")
            self._withdraw_ready(key, task)

    def _hand_back(self, held: Held, reason: str, missing: tuple[str, ...] = ()) -> None:
        """The attempt was not started, and is here no more."""
        self.counters.handed_back += 1
        self._to_scheduler(held.job.scheduler, m.HandBack(held.job.id, held.attempt, reason, missing))
        self._drop(held)

    def _hand_back_waiting(self, held: Held, reason: str, now_s: float, missing: tuple[str, ...] = ()) -> None:
        """Hand an attempt back that has a place and waits for its inputs: it was not started."""
        executor = held.executor
        assert executor is not None
        executor.end(held.run, now_s)
        self.queue.refund(held.charge)
        self._hand_back(held, reason, missing)
        self._place_freed(executor, now_s)

    def _report(
        self,
        held: Held,
        status: TaskStatus,
        error: str,
        *,
        started_at_s: float | None = None,
        service_s: float | None = None,
    ) -> None:
        """Report an attempt that has no result; the times of one that ran."""
        job = held.job
        report = m.Report(job.id, held.task, held.attempt, status, b"", error, started_at_s, service_s)
        if status is not CANCELLED:
            self._memory.remember(job.owner, report)
        self._to_scheduler(job.scheduler, report)
        self._drop(held)

    def _drop(self, held: Held) -> None:
        """The attempt is here no more."""
        job = held.job
        del self._held[job.scheduler, job.id, held.attempt]
        if held.charge.ticket.demand:
            self._return_resources(held.charge)
        if held.missing:
            self._fetch_no_more(held)
        job.held -= 1
        if job.forgotten and not job.held:
            self._forget(job)

    def _fetch_no_more(self, held: Held) -> None:
        """The attempt waits for no inputs any more."""
        for hash_ in held.missing:
            waiting = self._fetching[hash_]
            waiting.remove(held)
            if not waiting:
                del self._fetching[hash_]

    # ---- jobs --------------------------------------------------------------------------------

    def _forget_job(self, scheduler: str, message: m.ForgetJob, now_s: float) -> None:
        job = self._jobs.get((scheduler, message.job))
        if job is not None:
            self._forget(job)
        if self._ready:  # Nobody waits for its tasks any more.
            for key, task in self._ready.remove(lambda key, task: (key[0], task.job) == (scheduler, message.job)):
                self._withdraw_ready(key, task)

    def _forget(self, job: JobHere) -> None:
        job.forgotten = True
        if job.held:
            return
        del self._jobs[(job.scheduler, job.id)]
        self._blobs.unpin(job.number)
        for executor in self._executors.values():
            for number in sorted(executor.commons.intersection(job.numbers)) if executor.commons else ():
                executor.commons.discard(number)
                self._to_executor(executor.id, x.ForgetCommon(number))

    def _claim(self, scheduler: str, message: m.Claim, now_s: float) -> None:
        """The job is another scheduler's now: it is told what is known of it here (DESIGN.md §5)."""
        owner, job_id, epoch = (message.user, message.instance), message.job, message.epoch
        known = self._memory.epoch(owner, job_id)
        if known > epoch:
            self._to_scheduler(scheduler, m.Fenced(job_id, known))
            return
        self._memory.fence(owner, job_id, epoch)
        for job in [job for job in self._jobs.values() if job.id == job_id and job.owner == owner]:
            if job.scheduler != scheduler:
                self._to_scheduler(job.scheduler, m.Fenced(job_id, epoch))
                self._move(job, scheduler)
        for report in self._memory.outcomes(owner, job_id):
            self._to_scheduler(scheduler, report)
        for key, task in self._ready.remove(
            lambda key, task: task.job == job_id and self._owner(key, task) == owner and _epoch(task.attempt) < epoch
        ):
            if key[0] != scheduler:
                self._to_scheduler(key[0], m.Fenced(job_id, epoch))
                self._say_handed_back(key[0], task, "another scheduler has the job")
            self._withdraw_ready(key, task)
        held = [held for held in self._held.values() if held.job.id == job_id and held.job.scheduler == scheduler]
        for unstarted in [one for one in held if one.missing]:
            self._withdraw(unstarted, now_s)
        running = [(one.task, one.attempt) for one in held if one.key in self._held]
        left = self._jobs.get((scheduler, job_id))
        if left is not None and not left.held:  # What the earlier scheduler had sent; this one does not know of it.
            self._forget(left)
        vouches = message.age_s is not None and self._tell_starts(scheduler, message, now_s - message.age_s)
        self._to_scheduler(scheduler, m.Claimed(job_id, epoch, running, vouches))
        self._note(now_s, "scheduler %s claimed job %s with epoch %d", scheduler, job_id, epoch)

    def _tell_starts(self, scheduler: str, message: m.Claim, submitted_s: float) -> bool:
        """Name the job's tasks that were started here; returns whether those are all."""
        tasks = self._memory.started_of((message.user, message.instance), message.job)
        for first in range(0, len(tasks), m.NUMBERS_PER_MESSAGE_MAX):
            some = tasks[first : first + m.NUMBERS_PER_MESSAGE_MAX]
            self._to_scheduler(scheduler, m.StartedHere(message.job, message.epoch, some))
        return self._memory.remembers_since(message.user, submitted_s)

    def _owner(self, key: Key, task: m.Launch) -> tuple[str, int]:
        """The user and the instance of a waiting task's job."""
        ticket = self.queue.ticket(key)
        job = self._jobs.get((key[0], task.job))
        return ("" if ticket is None else ticket.user, 0 if job is None else job.instance)

    def _move(self, job: JobHere, scheduler: str) -> None:
        """What of the job is here is the other scheduler's from now on."""
        held = [held for held in self._held.values() if held.job is job]
        for one in held:
            del self._held[one.key]
        before = self._jobs.pop((job.scheduler, job.id))
        if not before.forgotten:
            # The earlier scheduler may go on to launch: until it forgets the job, its fence must be found.
            fenced = self._job(job.scheduler, job.id)
            fenced.instance, fenced.owner = job.instance, job.owner
        there = self._jobs.get((scheduler, job.id))
        if there is None:
            job.scheduler, job.forgotten = scheduler, False
            self._jobs[scheduler, job.id] = there = job
        else:
            there.held += job.held
            there.numbers += job.numbers
            self._blobs.unpin(job.number)
        for one in held:
            one.job = there
            self._held[one.key] = one

    def _withdraw(self, held: Held, now_s: float) -> None:
        """An attempt of a claimed job that has not started is dropped: nobody will ask for it."""
        executor = held.executor
        assert executor is not None
        executor.end(held.run, now_s)
        self.queue.refund(held.charge)
        self._drop(held)
        self._place_freed(executor, now_s)

    # ---- executors ---------------------------------------------------------------------------

    def _want_executors(self, app: AppState, lacking: int = 0) -> None:
        """Start as many processes as the app lacks; `lacking`: so many tasks could start now if they had one."""
        app.wanted = True
        if app.plan.supervised and not app.executors:
            app.offer.starts()
        places = self.slots if app.plan.one_process else 1
        for _ in range(app.missing(self.slots, lacking)):
            app.starting += 1
            self._start_executor(app.name, places)

    def _even_out(self, now_s: float) -> None:
        """Start executors for users who had their turn and found none, and end those that are more than may be kept."""
        self._uneven = False
        for app in self.apps.values():
            if app.short:
                self._restart_soon(app, self._lacking(app))
                app.short.clear()
        for offered in self.offered.values():
            while offered.surplus(self.slots) > self._kept_max:
                executor = offered.least_wanted(self.slots)
                if executor is None:
                    break  # They have been taken for tasks.
                self._end_executor(executor, now_s)

    def _lacking(self, app: AppState) -> int:
        """For how many tasks of those who are short an executor is to be started: for each user's first, and as many
        as there are slots that nobody else had a task for."""
        queued = sum(map(self.queue.user_count, app.short))
        return min(self.slots, max(len(app.short), min(queued, self.free_slots)))

    def _restart_soon(self, app: AppState, lacking: int = 0) -> None:
        if not self.draining:
            self._want_executors(app, lacking)

    def _restart_later(self, app: AppState, now_s: float) -> None:
        """An executor died without having done anything: it may well do so again."""
        app.waiting += 1
        if app.offer.withdrawn:
            self._tell_of_node(now_s)  # The reason may be another.
        delay_s = min(RESTART_DELAY_S * 2 ** min(max(app.offer.failures - 1, 0), 20), RESTART_DELAY_MAX_S)
        self._at(now_s + delay_s, lambda _: self._restart(app))

    def _withdraw_app(self, app: AppState, now_s: float) -> None:
        """Its executors do not start: schedulers hear so, and then that what they have reserved here is refused."""
        self.counters.withdrawals += 1
        self._tell_of_node(now_s)
        for ticket in [ticket for ticket in self.queue.tickets() if ticket.app == app.name]:
            self._turn_away(ticket, *_not_starting(app))
        self._offer_changed(app.name, app.offer.reason)

    def _suspect(self, app: AppState, job: JobHere, now_s: float) -> None:
        """A task of this job died with its executor: perhaps the node is to be avoided for a while."""
        until_s = app.suspicion.died(*job.owner, job.id, now_s)
        if until_s is None:
            return
        self.counters.suspicions += 1
        self._note(now_s, "executors of %s die here", app.name)
        for ticket in [ticket for ticket in self.queue.tickets() if ticket.app == app.name]:
            if app.suspicion.refuses(ticket.user, now_s):
                self._turn_away(ticket, f"executors of {app.plan.app!r} die here")
        self._at(until_s, lambda _: self._take_part_again())

    def _take_part_again(self) -> None:
        """Who was told of free slots was refused: say it again."""
        self._idle_told = 0

    def _restart(self, app: AppState) -> None:
        app.waiting -= 1
        self._restart_soon(app)

    # ---- helpers -----------------------------------------------------------------------------

    def _at(self, at_s: float, action: Callable[[float], None]) -> None:
        self._timers.at(at_s, action)

    def _note(self, now_s: float, text: str, *values: object) -> None:
        if self._keep_history:
            self._history.append((now_s, text % values))

    # ---- invariants --------------------------------------------------------------------------

    def check_invariants(self) -> None:
        """Raise `InvariantViolated`, with the story, if something that must hold does not (guarantee 5)."""
        problem = self._problem()
        if problem:
            raise InvariantViolated(problem, self.story())
        self.queue.check_invariants()

    def _problem(self) -> str | None:
        executors = self._executors.values()
        taken: dict[str, float] = {}
        charges = [charge for ask in self._asks.values() for charge, _ in ask.slots]
        for charge in [*charges, *(held.charge for held in self._held.values())]:
            for name, amount in (charge.ticket.demand or {}).items():
                taken[name] = taken.get(name, 0.0) + amount
        for name, amount in self._resources.items():
            if abs(self.free[name] + taken.get(name, 0.0) - amount) > 1e-6 * amount or self.free[name] < -1e-6 * amount:
                return f"{self.free[name]} free and {taken.get(name, 0.0)} taken of {amount} {name}"
        for hash_, fetching in self._fetching.items():
            if not fetching or any(hash_ not in held.missing for held in fetching):
                return f"{hash_} is fetched for attempts that do not wait for it"
        busy = sum(executor.busy_places for executor in executors)
        asking = sum(len(ask.slots) for ask in self._asks.values())
        if self.free_slots + busy + asking != self.slots:
            return f"{self.free_slots} free + {busy} busy + {asking} asking slots are not {self.slots}"
        if self.free_slots < 0:
            return f"{self.free_slots} free slots"
        for executor in executors:
            runs = len(executor.running) if executor.places > 1 else bool(executor.running)
            if executor.busy_places != runs or executor.busy_places > executor.places:
                return f"executor {executor.id}: {executor.busy_places} busy of {executor.places}, {runs} run"
        for app in self.apps.values():
            asks = [ask for ask in self._asks.values() if ask.app is app]
            if problem := app.problem(sum(not executor.leaving for ask in asks for _, executor in ask.slots)):
                return f"app {app.name}: {problem}"
        problem = self._problem_of_idle() or self._problem_ahead()
        if problem:
            return problem
        held = sum(len(executor.running) for executor in executors)
        if held != len(self._held) or held != sum(job.held for job in self._jobs.values()):
            return f"{held} tasks are here, {len(self._held)} known, {sum(j.held for j in self._jobs.values())} by job"
        return None

    def _problem_of_idle(self) -> str | None:
        """What is wrong with the count of executors that have nothing to do."""
        for name, offered in self.offered.items():
            idle = sum(len(kept) for app in offered.by_account.values() for kept in app.kept.values())
            if offered.idle != idle:
                return f"app {name}: {offered.idle} executors are counted as idle; there are {idle}"
        return None

    def _problem_ahead(self) -> str | None:
        """What is wrong with what is ahead of its turn."""
        ahead: dict[int, int] = {}
        asked: dict[Key, int] = {}
        for ask in self._asks.values():
            if ask.ahead:
                asked[ask.ticket.key] = asked.get(ask.ticket.key, 0) + ask.ahead
                ahead[id(ask.ticket.ahead)] = ahead.get(id(ask.ticket.ahead), 0) + ask.ahead
        for key, task in self._ready.all():
            ticket = self.queue.ticket(key)
            if task.ask and ticket is None:
                return f"attempt {task.attempt} waits for the turn of ticket {key}, which is not queued"
            if task.ask and ticket is not None:
                ahead[id(ticket.ahead)] = ahead.get(id(ticket.ahead), 0) + 1
        for executor in self._executors.values():
            for number, held in enumerate(executor.running.values()):
                if (held.ahead is None) == (executor.places == 1 and number > 0):
                    return f"run {held.run} is number {number} of executor {executor.id}, which is not counted so"
                if held.ahead is not None:
                    ahead[id(held.ahead)] = ahead.get(id(held.ahead), 0) + 1
        for ticket in self.queue.tickets():
            if ticket.asked != asked.get(ticket.key, 0) or (ticket.prefetch and self._unasked(ticket) < 0):
                return f"{ticket}: {asked.get(ticket.key, 0)} asked for, {ticket.asked} known"
        counted = {id(books): books.count for books in self._ahead.all()}
        if ahead != {books: count for books, count in counted.items() if count}:
            return f"ahead of their turn are {sorted(ahead.values())}, counted as {sorted(counted.values())}"
        return None


_FROM_SCHEDULER: dict[type, Callable[[NodeMonitorCore, str, Any, float], None]] = {
    m.Reserve: NodeMonitorCore._reserve,
    m.CancelReservations: NodeMonitorCore._cancel_reservations,
    m.Common: NodeMonitorCore._common,
    m.Launch: NodeMonitorCore._launch,
    m.NoTask: NodeMonitorCore._no_task,
    m.CancelAttempt: NodeMonitorCore._cancel_attempt,
    m.ForgetJob: NodeMonitorCore._forget_job,
    m.Input: NodeMonitorCore._input,
    m.Claim: NodeMonitorCore._claim,
    m.AskLength: NodeMonitorCore._ask_length,
    m.DrainingKnown: NodeMonitorCore._draining_known,
}


def _not_starting(app: AppState) -> tuple[str, bool]:
    """Why a task of an app that is withdrawn is refused, and whether that is lasting.

    It is where the app runs here as another account: schedulers are told that the node has it, and would try for ever.
    """
    if not app.offered.told:  # Then they are told the reason with the node.
        return f"executors of {app.plan.app!r} do not start here", False
    reason = f"executors of {app.plan.app!r} do not start here as account {app.plan.account!r}: {app.offer.reason}"
    return m.cut_reason(reason), True


def _epoch(attempt: int) -> int:
    """The epoch of the job in which the attempt was launched."""
    return attempt >> m.EPOCH_SHIFT


def _shares(whole_s: float, messages: Sequence[x.Done]) -> list[float]:
    """Divide the time that one executor took for these runs as it says that they took it."""
    said_s = [message.service_s if 0 < message.service_s <= SERVICE_MAX_S else 0.0 for message in messages]
    total_s = sum(said_s)
    return [whole_s * one_s / total_s if total_s else whole_s / len(said_s) for one_s in said_s]


def _unfit(held: Held, error: str, message: x.Done) -> m.Report:
    """The report of a task whose result cannot be kept or returned."""
    return m.Report(held.job.id, held.task, held.attempt, FAILED, b"", error, message.started_at_s, message.service_s)
