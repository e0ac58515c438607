"""What waits at a node: reservations in the queue, and beside it the tasks of some of them, which are ready.

A reservation is queued. It may be asked for ahead of a slot (`AskingAhead`); its task is then ready (`ReadyTasks`), as
one that was pushed is, and waits beside the queue, where the reservation stays. What waits is charged to nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from node_monitor.counters import Counters
from node_monitor.queueing.ahead import AskingAhead
from node_monitor.queueing.ready_tasks import ReadyTasks
from node_monitor.queueing.reservation_queue import ReservationQueue
from node_monitor.queueing.tickets import Key, QueuedTicket
from sparrow_py.job import CANCELLED, FAILED, TaskStatus
from sparrow_py.wire import messages as m


class Backlog:
    """The queue, the ready tasks, what is ahead of its turn; and how what waits is refused, handed back or dropped."""

    __slots__ = ("_counters", "_to_scheduler", "ahead", "queue", "ready")

    def __init__(
        self,
        queue: ReservationQueue,
        slots: int,
        counters: Counters,
        to_scheduler: Callable[[str, m.Message], None],
    ) -> None:
        self.queue = queue
        self.ready = ReadyTasks()
        self.ahead = AskingAhead(slots)
        self._counters = counters
        self._to_scheduler = to_scheduler

    # ---- reservations ------------------------------------------------------------------------

    def unasked(self, ticket: QueuedTicket) -> int:
        """For how many of the ticket's reservations no task is here or under way."""
        return ticket.count - ticket.asked - self.ready.count(ticket.key)

    def cancel_unasked(self, ticket: QueuedTicket) -> int:
        """Remove those reservations; returns how many there were."""
        self.ahead.cancelled(ticket)
        unasked = self.unasked(ticket)
        return self.queue.cancel(ticket.key, unasked) if unasked > 0 else 0

    def refuse(self, scheduler: str, ticket: int, count: int, reason: str, lasting: bool = False) -> None:
        """So many reservations of the ticket are not wanted here."""
        self._counters.refused_reservations += count
        self._to_scheduler(scheduler, m.ReservationsRefused(ticket, count, reason, lasting))
        if self.ready:  # Of what was pushed, those without a reservation go with it.
            key = (scheduler, ticket)
            queued = self.queue.ticket(key)
            unreserved = self.ready.count(key) - (0 if queued is None else queued.count)
            if unreserved > 0:
                for _, task in self.ready.take_last(key, unreserved):
                    if lasting:  # Whoever pushed it decided for this node alone, and would go on doing so.
                        self._say_unstarted(scheduler, task, FAILED, reason)
                    else:
                        self.say_handed_back(scheduler, task, reason)

    def turn_away(self, ticket: QueuedTicket, reason: str, lasting: bool = False) -> None:
        """What is queued of the ticket is not wanted here any more; what was asked for is still to come."""
        (scheduler, number), refused = ticket.key, self.cancel_unasked(ticket)
        if refused:
            self.refuse(scheduler, number, refused, reason, lasting)
        self._hand_back(self.ready.remove(lambda key, _: key == ticket.key), reason)

    def scheduler_down(self, scheduler: str) -> None:
        """The scheduler is gone, and with it all that waits of it."""
        self.drop_ready(self.ready.remove(lambda key, _: key[0] == scheduler))
        for ticket in self.queue.tickets():
            if ticket.key[0] == scheduler:
                self.ahead.cancelled(ticket)
        self.queue.cancel_scheduler(scheduler)

    def drain(self, reason: str) -> None:
        """Hand back all that is ready, and drop all reservations for which nobody was asked."""
        self._hand_back(self.ready.remove(lambda _key, _task: True), reason)
        for ticket in list(self.queue.tickets()):
            self.cancel_unasked(ticket)

    # ---- ready tasks -------------------------------------------------------------------------

    def hand_back_app(self, app: str, reason: str) -> None:
        """Hand back all of an app's tasks that are ready."""

        def of_app(key: Key, _: m.Launch) -> bool:
            ticket = self.queue.ticket(key)
            return ticket is not None and ticket.app == app

        if self.ready:
            self._hand_back(self.ready.remove(of_app), reason)

    def drop_job(self, scheduler: str, job: str) -> None:
        """Nobody waits any more for tasks of this job that are ready."""
        if self.ready:
            self.drop_ready(self.ready.remove(lambda key, task: (key[0], task.job) == (scheduler, job)))

    def cancel(self, scheduler: str, job: str, attempt: int, *, preempt: bool = False) -> None:
        """Cancel an attempt, if it is ready, or hand it back if it is to make room; else it ended or was handed back,
        and the report is on its way."""
        found = self.ready.take_attempt(scheduler, job, attempt) if self.ready else None
        if found is not None:
            key, task = found
            if preempt:
                self.say_handed_back(scheduler, task, "it makes room for others")
            else:
                self._say_unstarted(scheduler, task, CANCELLED, "it was cancelled")
            self.withdraw(key, task)

    def drop_ready(self, tasks: Iterable[tuple[Key, m.Launch]]) -> None:
        """Tasks that were ready, and are taken out, do not start; nobody hears of it."""
        for key, task in tasks:
            self.withdraw(key, task)

    def _hand_back(self, tasks: Iterable[tuple[Key, m.Launch]], reason: str) -> None:
        """Hand back tasks that were ready, and are taken out."""
        for key, task in tasks:
            self.say_handed_back(key[0], task, reason)
            self.withdraw(key, task)

    def withdraw(self, key: Key, task: m.Launch) -> None:
        """A task that was ready, and is taken out, does not start: its reservation goes with it."""
        ticket = self.queue.ticket(key)
        if ticket is None:
            return  # It was pushed, and its reservation has not come.
        self.queue.cancel(key, 1)
        if task.ask and ticket.ahead is not None:
            ticket.ahead.less()

    def _say_unstarted(self, scheduler: str, task: m.Launch, status: TaskStatus, error: str) -> None:
        """A task that was ready ended without having started."""
        self._to_scheduler(scheduler, m.Report(task.job, task.task, task.attempt, status, b"", error, None, None))

    def say_handed_back(self, scheduler: str, task: m.Launch, reason: str) -> None:
        """A task that has no place here is handed back."""
        self._counters.handed_back += 1
        self._to_scheduler(scheduler, m.HandBack(task.job, task.attempt, reason))
