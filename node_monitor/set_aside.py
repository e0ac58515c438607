"""The task of the fair queue for which resources are set aside, if there is one.

The fair queue passes over a task whose demand does not fit: others use what is free meanwhile. So streams of small
demands, or small ones that last, could keep a large one waiting for ever. What is free of the demand of one such task
is therefore set aside while free slots serve the queue: others may use the rest, and the task has its turn in the order
of the queue as before. That ends when a task of the ticket has been asked for or started, or the ticket is gone.

It is the first in the queue's order that lacked nothing but resources, and it has been passed over for `PASSED_OVER_S`
since; or one for which leases are given up (`leases`), and then it has this at once.
"""

from __future__ import annotations

from node_monitor.queueing.reservation_queue import ReservationQueue
from node_monitor.queueing.tickets import QueuedTicket

PASSED_OVER_S = 1.0
"""For so long a task that does not fit is passed over before resources are set aside for it. (Seconds.)"""


class SetAside:
    """See the module's docstring. One task has this at a time."""

    __slots__ = ("_from_s", "_queue", "noted")

    def __init__(self, queue: ReservationQueue) -> None:
        self._queue = queue
        self.noted: QueuedTicket | None = None
        """The ticket of `ticket`, which may not be queued any more."""
        self._from_s = 0.0

    @property
    def ticket(self) -> QueuedTicket | None:
        """Whose task it is. One that is not queued any more has nothing set aside."""
        ticket = self.noted
        if ticket is not None and self._queue.ticket(ticket.key) is not ticket:
            ticket = self.noted = None
        return ticket

    def due(self, now_s: float) -> QueuedTicket | None:
        """The ticket, if resources are set aside for it by now."""
        return self.ticket if self.noted is not None and now_s >= self._from_s else None

    def may_wait(self, ticket: QueuedTicket) -> bool:
        """Whether resources may be set aside for a task of this ticket: not while they are for another's, unless this
        one is of a higher priority."""
        present = self.ticket
        return present is None or present is ticket or self._queue.outranks(ticket, present)

    def wait_for(self, ticket: QueuedTicket, from_s: float) -> None:
        """Set resources aside for the ticket's first task from this time on, or sooner if that was said before."""
        if self.may_wait(ticket):
            self._from_s = min(self._from_s, from_s) if self.noted is ticket else from_s
            self.noted = ticket

    def waits_no_more(self, ticket: QueuedTicket) -> None:
        """A slot asks for a task of the ticket, or has it; or something else than resources is lacking."""
        if self.noted is ticket:
            self.noted = None
