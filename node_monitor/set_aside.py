"""The task of the fair queue for which resources are set aside, if there is one.

The fair queue passes over a task whose demand does not fit: others use what is free meanwhile. So streams of small
demands, or small ones that last, could keep a large one waiting for ever. What is free of the demand of one such task
is therefore set aside while free slots serve the queue: others may use the rest, and the task has its turn in the order
of the queue as before. That ends when a task of the ticket has been asked for or started, or the ticket is gone.
"""

from __future__ import annotations

from node_monitor.queueing.reservation_queue import ReservationQueue
from node_monitor.queueing.tickets import QueuedTicket


class SetAside:
    """See the module's docstring. One task has this at a time."""

    __slots__ = ("_from_s", "_queue", "_ticket")

    def __init__(self, queue: ReservationQueue) -> None:
        self._queue = queue
        self._ticket: QueuedTicket | None = None
        self._from_s = 0.0

    @property
    def ticket(self) -> QueuedTicket | None:
        """Whose task it is. One that is not queued any more has nothing set aside."""
        ticket = self._ticket
        if ticket is not None and self._queue.ticket(ticket.key) is not ticket:
            ticket = self._ticket = None
        return ticket

    def due(self, now_s: float) -> QueuedTicket | None:
        """The ticket, if resources are set aside for it by now."""
        return self.ticket if self._ticket is not None and now_s >= self._from_s else None

    def may_wait(self, ticket: QueuedTicket) -> bool:
        """Whether resources may be set aside for a task of this ticket: not while they are for another's, unless this
        one is of a higher priority."""
        present = self.ticket
        return present is None or present is ticket or self._queue.outranks(ticket, present)

    def wait_for(self, ticket: QueuedTicket, from_s: float) -> None:
        """Set resources aside for the ticket's first task from this time on, or sooner if that was said before."""
        if self.may_wait(ticket):
            self._from_s = min(self._from_s, from_s) if self._ticket is ticket else from_s
            self._ticket = ticket

    def taken(self, ticket: QueuedTicket) -> None:
        """A slot asks for a task of the ticket, or has it."""
        if self._ticket is ticket:
            self._ticket = None
