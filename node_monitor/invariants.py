"""What must hold between the parts of a node monitor's core, after every event (guarantee 5)."""

from __future__ import annotations

from collections.abc import Mapping

from node_monitor.asking import Asking
from node_monitor.attempt_book import AttemptBook
from node_monitor.attempts import PAUSED, RESUMING, STOPPED
from node_monitor.executors.executor_state import AppState, ExecutorState, OfferedApp
from node_monitor.inputs import Inputs
from node_monitor.jobs import Jobs
from node_monitor.lanes import Lane
from node_monitor.leases import Leases
from node_monitor.paused_tasks import PausedTasks
from node_monitor.queueing.backlog import Backlog
from node_monitor.queueing.tickets import PUSHED, Key
from node_monitor.slots import Slots


class Invariants:
    """The parts that are compared."""

    __slots__ = (
        "_apps", "_asking", "_backlog", "_book", "_executors", "_inputs", "_jobs", "_lane", "_leases", "_offered",
        "_pauses", "_slots",
    )  # fmt: skip

    def __init__(
        self,
        apps: Mapping[str, AppState],
        offered: Mapping[str, OfferedApp],
        executors: Mapping[str, ExecutorState],
        slots: Slots,
        backlog: Backlog,
        jobs: Jobs,
        book: AttemptBook,
        inputs: Inputs,
        asking: Asking,
        lane: Lane,
        leases: Leases,
        pauses: PausedTasks,
    ) -> None:
        self._apps = apps
        self._offered = offered
        self._executors = executors
        self._slots = slots
        self._backlog = backlog
        self._jobs = jobs
        self._book = book
        self._inputs = inputs
        self._asking = asking
        self._lane = lane
        self._leases = leases
        self._pauses = pauses

    def problem(self) -> str | None:
        """What does not hold, if anything."""
        return (
            self._of_slots()
            or self._inputs.problem()
            or self._of_executors()
            or self._of_idle()
            or self._of_ahead()
            or self._of_attempts()
            or self._of_pushes()
            or self._of_lane()
            or self._leases.problem()
            or self._pauses.problem()
        )

    def _of_slots(self) -> str | None:
        asking = [charge for ask in self._asking.open.values() for charge, _ in ask.slots]
        charges = [*asking, *(attempt.charge for attempt in self._book.by_key.values())]
        busy = sum(executor.busy_places for executor in self._executors.values())
        waiting = [one for executor in self._executors.values() if (one := executor.waiting) is not None]
        placed_waiting = sum(one.charge.ticket.placed for one in waiting)
        return self._slots.problem(charges, busy, len(asking), placed_waiting)

    def _of_executors(self) -> str | None:
        for executor in self._executors.values():
            runs = len(executor.running) if executor.places > 1 else bool(executor.running)
            if (waiting := executor.waiting) is not None:
                if waiting.state not in (PAUSED, RESUMING, STOPPED) or waiting is not next(
                    iter(executor.running.values()), None
                ):
                    return f"executor {executor.id} waits for {waiting.key}, which {waiting.state.value}"
                runs = 0
            if executor.busy_places != runs or executor.busy_places > executor.places:
                return f"executor {executor.id}: {executor.busy_places} busy of {executor.places}, {runs} run"
        for app in self._apps.values():
            asks = [ask for ask in self._asking.open.values() if ask.app is app]
            if problem := app.problem(sum(not executor.leaving for ask in asks for _, executor in ask.slots)):
                return f"app {app.name}: {problem}"
        return None

    def _of_idle(self) -> str | None:
        """What is wrong with the count of executors that have nothing to do."""
        for name, offered in self._offered.items():
            idle = sum(len(kept) for app in offered.by_account.values() for kept in app.kept.values())
            if offered.idle != idle:
                return f"app {name}: {offered.idle} executors are counted as idle; there are {idle}"
        return None

    def _of_ahead(self) -> str | None:
        """What is wrong with what is ahead of its turn."""
        backlog = self._backlog
        counts: dict[int, int] = {}
        asked_of: dict[Key, int] = {}
        for ask in self._asking.open.values():
            if ask.ahead:
                asked_of[ask.ticket.key] = asked_of.get(ask.ticket.key, 0) + ask.ahead
                counts[id(ask.ticket.ahead)] = counts.get(id(ask.ticket.ahead), 0) + ask.ahead
        for key, task in backlog.ready.all():
            ticket = backlog.queue.ticket(key)
            if task.ask and ticket is None:
                return f"attempt {task.attempt} waits for the turn of ticket {key}, which is not queued"
            if task.ask and ticket is not None:
                counts[id(ticket.ahead)] = counts.get(id(ticket.ahead), 0) + 1
        for executor in self._executors.values():
            for number, attempt in enumerate(executor.running.values()):
                if (attempt.ahead is None) == (executor.places == 1 and number > 0):
                    return f"run {attempt.run} is number {number} of executor {executor.id}, which is not counted so"
                if attempt.ahead is not None:
                    counts[id(attempt.ahead)] = counts.get(id(attempt.ahead), 0) + 1
        for ticket in backlog.queue.tickets():
            if ticket.asked != asked_of.get(ticket.key, 0) or (ticket.prefetch and backlog.unasked(ticket) < 0):
                return f"{ticket}: {asked_of.get(ticket.key, 0)} asked for, {ticket.asked} known"
        counted = {id(book): book.count for book in backlog.ahead.all()}
        if counts != {book: count for book, count in counted.items() if count}:
            return f"ahead of their turn are {sorted(counts.values())}, counted as {sorted(counted.values())}"
        return None

    def _of_attempts(self) -> str | None:
        """What is wrong with the attempts here."""
        here = sum(len(executor.running) for executor in self._executors.values())
        by_job = sum(job.attempts for job in self._jobs.by_key.values())
        if here != len(self._book.by_key) or here != by_job:
            return f"{here} attempts are here, {len(self._book.by_key)} known, {by_job} by job"
        return next((problem for one in self._book.by_key.values() if (problem := one.problem())), None)

    def _of_pushes(self) -> str | None:
        """What was pushed runs or was handed back: whether any of it waits."""
        for ticket in self._backlog.queue.tickets():
            if ticket.key[1] == PUSHED:
                return f"a pushed task of job {ticket.job} of {ticket.key[0]} is queued"
        return None

    def _of_lane(self) -> str | None:
        """What is wrong with the placed tasks that wait."""
        for key, task in self._lane.waiting.items():
            if key in self._book.by_key or task.app is not self._apps.get(task.ticket.app):
                return f"placed task {key} waits, and runs, or is of no app here"
        return self._lane.problem()
