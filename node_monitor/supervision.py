"""Executors come, are short, are given to users, have to leave, and are gone; what of that schedulers hear."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from node_monitor.attempt_book import AttemptBook
from node_monitor.attempts import STOPPED, WAITS, Attempt
from node_monitor.attributes import check_attributes
from node_monitor.counters import Counters
from node_monitor.executors.executor_state import AppState, Balance, ExecutorState, OfferedApp
from node_monitor.executors.offers import STOOD_S
from node_monitor.history import History
from node_monitor.jobs import LocalJob
from node_monitor.lanes import Lane
from node_monitor.queueing.backlog import Backlog
from node_monitor.schedulers import Schedulers
from node_monitor.slots import Slots
from sparrow_py.errors import LinkError
from sparrow_py.executors import executor_protocol as x
from sparrow_py.job import FAILED, LOST
from sparrow_py.timing.timers import Timers
from sparrow_py.wire import messages as m

RESTART_DELAY_S = 0.1
"""First wait before an executor that did no task is restarted; doubles up to the maximum."""
RESTART_DELAY_MAX_S = 30.0


class Supervisor(Protocol):
    """Who starts and ends processes for the node monitor."""

    def start_executor(self, app: str, places: int) -> None:
        """Start a process for the app of this plan's name; `executor_up` or `executor_failed` follows."""

    def kill_executor(self, executor: str) -> None:
        """End an executor at once; `executor_down` follows."""

    def offer_changed(self, app: str, reason: str) -> None:
        """The app is withdrawn for this reason, or offered again if that is empty: somebody may want to know."""


class Supervision:
    """The executors of all apps. Which of them there should be; attempts leave with those that go."""

    __slots__ = (
        "_apps", "_backlog", "_balance", "_book", "_counters", "_executors", "_history", "_lane", "_offered",
        "_schedulers", "_slots", "_supervisor", "_timers",
    )  # fmt: skip

    def __init__(
        self,
        apps: Mapping[str, AppState],
        offered: Mapping[str, OfferedApp],
        executors: dict[str, ExecutorState],
        balance: Balance,
        slots: Slots,
        backlog: Backlog,
        lane: Lane,
        book: AttemptBook,
        schedulers: Schedulers,
        timers: Timers,
        counters: Counters,
        history: History,
        supervisor: Supervisor,
    ) -> None:
        self._apps = apps
        self._offered = offered
        self._executors = executors
        self._balance = balance
        self._slots = slots
        self._backlog = backlog
        self._lane = lane
        self._book = book
        self._schedulers = schedulers
        self._timers = timers
        self._counters = counters
        self._history = history
        self._supervisor = supervisor

    # ---- executors come ----------------------------------------------------------------------

    def start(self, warm: list[str]) -> None:
        """Start the executors that are to be warm before the first task."""
        for name in warm:
            for app in self._offered[name].by_account.values():
                self.want(app)

    def executor_up(
        self,
        executor_id: str,
        app_name: str,
        places: int,
        now_s: float,
        version: int = x.EXECUTOR_PROTOCOL_VERSION,
    ) -> None:
        """An executor said hello; it speaks this version of the executor protocol."""
        app = self._apps[app_name]
        executor = ExecutorState(executor_id, app, places, now_s, version)
        self._executors[executor_id] = executor
        app.came(executor)
        self._backlog.ahead.executors_came(app_name)
        self._history.note(now_s, "executor %s up, app %s, %d places", executor_id, app_name, places)
        if app.offered.has_accounts:  # Who wanted it may have gone.
            self._balance.uneven = True
        was_withdrawn = app.offer.withdrawn
        others = app.offered.told
        if app.offer.came(app.starting):
            self._tell_of_node(now_s)
        if was_withdrawn:
            self._supervisor.offer_changed(app_name, "")
            if others:  # The node is as it was to schedulers, which take a refusal to be for good until it changes.
                self._schedulers.tell_all_again()
            self._restart_soon(app)  # One was tried at a time.

    def executor_failed(self, app_name: str, reason: str, now_s: float) -> None:
        """A process that was started for the app ended before its hello."""
        self._history.note(now_s, "an executor of app %s did not start: %s", app_name, reason)
        app = self._apps[app_name]
        app.starting -= 1
        if app.kept and not app.fresh and self._backlog.queue.size:  # What it lacked may be what another user keeps.
            self.end(app.unused_longest(), now_s)
        self._counters.start_failures += 1
        reason = m.cut_reason(reason)
        if app.offer.start_failed(reason, app.starting, alone=not app.executors):
            self._withdraw_app(app, now_s)
        self._restart_later(app, now_s)

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

    def _tell_of_node(self, now_s: float) -> None:
        self._schedulers.tell_of_node((executor.attributes for executor in self._executors.values()), now_s)

    # ---- executors go ------------------------------------------------------------------------

    def executor_leaving(self, executor_id: str, now_s: float) -> None:
        """An executor is about to be gone: it gets no task. What it still says counts; then `executor_down` follows."""
        self._retire(self._executors[executor_id], now_s)

    def _retire(self, executor: ExecutorState, now_s: float) -> None:
        """Give it nothing more; what it was given and waits for its inputs has not started."""
        if executor.leaving:
            return
        executor.app.retire(executor)
        self._history.note(now_s, "executor %s is leaving", executor.id)
        for attempt in [attempt for attempt in executor.running.values() if attempt.state is WAITS]:
            self._book.hand_back_waiting(attempt, f"executor {executor.id} is leaving", now_s)

    def end(self, executor: ExecutorState, now_s: float) -> None:
        """Have it ended. From now on it is given nothing, however long its end takes."""
        self._retire(executor, now_s)
        executor.ended_here = True
        self._supervisor.kill_executor(executor.id)

    def executor_down(self, executor_id: str, reason: str, now_s: float, failure: str = "") -> None:
        """An executor died: its slots come back, its tasks are reported lost (guarantee 4).

        With a `failure`, the task that it ran has failed for that reason, if there is no doubt which it was.
        """
        executor = self._executors.pop(executor_id)
        app, attempts = executor.app, list(executor.running.values())
        if attempts or not executor.ended_here:
            self._counters.executor_deaths += 1
        app.went(executor)
        began = (attempt for attempt in attempts if attempt.state is not WAITS)
        culprit = None if executor.ended_here or failure else next(began, None)
        for attempt in attempts:
            self._died(attempt, executor, reason, failure if len(attempts) == 1 else "", now_s)
        if culprit is not None:
            self._suspect(app, culprit.job, now_s)
        self._history.note(now_s, "executor %s down: %s", executor_id, reason)
        if executor.attributes:
            self._tell_of_node(now_s)
        if not app.executors:
            self._backlog.hand_back_app(app.name, f"the node's {app.plan.app} executors are gone")
        if app.plan.supervised:
            self._replace(executor, bool(attempts), reason, now_s)

    def _died(self, attempt: Attempt, executor: ExecutorState, reason: str, failure: str, now_s: float) -> None:
        """The attempt's executor died."""
        if attempt.state is WAITS:
            self._book.hand_back(attempt, executor, reason, now_s)
            return
        attempt.waited_until(now_s)
        service_s = None if attempt.began_at_s is None else now_s - attempt.began_at_s
        if attempt.state is STOPPED:
            if attempt.stopped_as is None:
                self._counters.preempted += 1
                preempted = m.Preempted(attempt.job.id, attempt.number, service_s or 0.0)
                self._book.leave(attempt, executor, now_s, preempted, service_s)
                return
            status, reason = attempt.stopped_as
        elif failure:
            status, reason = FAILED, failure
        else:
            self._book.report(attempt, executor, now_s, LOST, reason, service_s)
            return
        given_s = attempt.given_at_s
        report = m.Report(
            attempt.job.id, attempt.task, attempt.number, status, b"", reason, given_s, now_s - given_s
        )  # fmt: skip
        self._book.leave(attempt, executor, now_s, report, service_s)

    def _replace(self, executor: ExecutorState, had_tasks: bool, reason: str, now_s: float) -> None:
        """The executor, which we started, is gone: start another, at once or in time."""
        app = executor.app
        if executor.did_tasks or had_tasks or executor.ended_here:
            self._restart_soon(app)  # What ended it may well have been a task.
            return
        if now_s - executor.came_at_s >= STOOD_S:
            app.offer.worked()
        if app.offer.died_unused(m.cut_reason(reason), executor.failures_before, alone=not app.executors):
            self._withdraw_app(app, now_s)
        self._restart_later(app, now_s)

    # ---- how many there should be ------------------------------------------------------------

    def want(self, app: AppState, lacking: int = 0) -> None:
        """Start as many processes as the app lacks; `lacking`: so many tasks could start now if they had one."""
        app.wanted = True
        if app.plan.supervised and not app.executors:
            app.offer.starts()
        places = self._slots.count if app.plan.one_process else 1
        for _ in range(app.missing(self._slots.count, lacking)):
            app.starting += 1
            self._supervisor.start_executor(app.name, places)

    def want_again(self) -> None:
        """The node takes part again: executors that ended while it was draining were not restarted."""
        for app in self._apps.values():
            if app.wanted:
                self.want(app)

    def assign(self, executor: ExecutorState, user: str) -> None:
        """A fresh executor is this user's for good, and another takes its place: the next user need not wait."""
        executor.app.assign(executor, user)
        self._restart_soon(executor.app)

    def slot_given_back(self, app: AppState) -> None:
        """A task of the app waits, and its executor with it: another may be needed for its slot."""
        self._restart_soon(app)

    def even_out(self, now_s: float) -> None:
        """Start executors for users who had their turn and found none, and end those that are more than may be kept."""
        balance, slots = self._balance, self._slots.count
        balance.uneven = False
        for app in self._apps.values():
            if app.short:
                self._restart_soon(app, self._lacking(app))
                app.short.clear()
        for offered in self._offered.values():
            while offered.surplus(slots) > balance.idle_max:
                executor = offered.least_wanted(slots)
                if executor is None:
                    break  # They have been taken for tasks.
                self.end(executor, now_s)

    def _lacking(self, app: AppState) -> int:
        """For how many tasks of those who are short an executor is to be started: for each user's first, and as many
        as there are slots that nobody else had a task for."""
        queued = sum(map(self._backlog.queue.user_count, app.short)) + self._lane.count_of(app, app.short)
        return min(self._slots.count, max(len(app.short), min(queued, self._slots.free)))

    def _restart_soon(self, app: AppState, lacking: int = 0) -> None:
        if not self._schedulers.draining:
            self.want(app, lacking)

    def _restart_later(self, app: AppState, now_s: float) -> None:
        """An executor died without having done anything: it may well do so again."""
        app.waiting += 1
        if app.offer.withdrawn:
            self._tell_of_node(now_s)  # The reason may be another.
        delay_s = min(RESTART_DELAY_S * 2 ** min(max(app.offer.failures - 1, 0), 20), RESTART_DELAY_MAX_S)
        self._timers.at(now_s + delay_s, lambda _: self._restart(app))

    def _restart(self, app: AppState) -> None:
        app.waiting -= 1
        self._restart_soon(app)

    # ---- apps that are not offered, for good or for a while ------------------------------------

    @property
    def useless_for(self) -> list[str]:
        """The apps whose executors were to be started, if none of them can run here; empty as long as one can."""
        wanted = [app for app in self._apps.values() if app.wanted and app.plan.supervised]
        return [app.plan.app for app in wanted] if all(app.offer.withdrawn for app in wanted) else []

    def _withdraw_app(self, app: AppState, now_s: float) -> None:
        """Its executors do not start: schedulers hear so, and then that what they have reserved here is refused."""
        self._counters.withdrawals += 1
        self._tell_of_node(now_s)
        for ticket in [ticket for ticket in self._backlog.queue.tickets() if ticket.app == app.name]:
            self._backlog.turn_away(ticket, *not_starting(app))
        reason, lasting = not_starting(app)
        self._lane.hand_back(self._lane.take_all(lambda task: task.app is app), reason, lasting=lasting)
        self._supervisor.offer_changed(app.name, app.offer.reason)

    def _suspect(self, app: AppState, job: LocalJob, now_s: float) -> None:
        """A task of this job died with its executor: perhaps the node is to be avoided for a while."""
        until_s = app.suspicion.died(*job.owner, job.id, now_s)
        if until_s is None:
            return
        self._counters.suspicions += 1
        self._history.note(now_s, "executors of %s die here", app.name)
        for ticket in [ticket for ticket in self._backlog.queue.tickets() if ticket.app == app.name]:
            if app.suspicion.refuses(ticket.user, now_s):
                self._backlog.turn_away(ticket, f"executors of {app.plan.app!r} die here")
        refused = self._lane.take_all(lambda task: task.app is app and app.suspicion.refuses(task.ticket.user, now_s))
        self._lane.hand_back(refused, f"executors of {app.plan.app!r} die here")
        self._timers.at(until_s, lambda _: self._schedulers.take_part_again())


def not_starting(app: AppState) -> tuple[str, bool]:
    """Why a task of an app that is withdrawn is refused, and whether that is lasting.

    It is where the app runs here as another account: schedulers are told that the node has it, and would try for ever.
    """
    if not app.offered.told:  # Then they are told the reason with the node.
        return f"executors of {app.plan.app!r} do not start here", False
    reason = f"executors of {app.plan.app!r} do not start here as account {app.plan.account!r}: {app.offer.reason}"
    return m.cut_reason(reason), True
