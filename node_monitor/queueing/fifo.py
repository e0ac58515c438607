"""Tickets in order of arrival, whoever's they are: as the paper's prototype without shares (§3.5)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from node_monitor.queueing.reservation_queue import ReservationQueue
from node_monitor.queueing.tickets import TURN_S, Charge, QueuedTicket, Tickets, check_duration, with_depths


class FifoQueue(ReservationQueue):
    """Tickets in order of arrival, whoever's they are. Charges mean nothing here; each is still closed once. A task
    with a lease ends after it if anything of another user waits: what came first has the slot first."""

    def __init__(self) -> None:
        super().__init__()
        self._line: Tickets = OrderedDict()

    def take(
        self, may_run: Callable[[QueuedTicket], bool], wanted: Callable[[QueuedTicket], bool] | None = None
    ) -> Charge | None:
        for ticket in self._line.values():
            if may_run(ticket):
                return self.take_of(ticket) if wanted is None or wanted(ticket) else None
        return None

    def take_of(self, ticket: QueuedTicket) -> Charge:
        self._spend(ticket, 1)
        ticket.count -= 1
        if not ticket.count:
            del self._line[ticket.key]
            self._unindex(ticket.key)
        stated = ticket.expected_duration_s
        return Charge(ticket, TURN_S if stated is None else stated)

    def refund(self, charge: Charge) -> None:
        charge.close()

    def settle(self, charge: Charge, service_s: float) -> None:
        check_duration("service_s", service_s)
        charge.close()

    def lease(self, charge: Charge, lease_s: float) -> None:
        """Nothing is charged."""

    def settle_lease(self, charge: Charge, held_s: float) -> None:
        check_duration("held_s", held_s)

    def renew(self, charge: Charge, waits: Callable[[QueuedTicket], bool]) -> bool:
        """The next lease comes now, and so after all that is in the line, but for what is the user's own."""
        return not any(ticket.user != charge.ticket.user and waits(ticket) for ticket in self._line.values())

    def comes_before(self, ticket: QueuedTicket, charge: Charge) -> bool:
        return ticket.user != charge.ticket.user

    def wants_again(self, charge: Charge) -> None:
        """Nothing is saved up."""

    def comes_first(self, charge: Charge, may_run: Callable[[QueuedTicket], bool]) -> bool:
        """It came before all that is in the line."""
        return True

    def precedes(self, charge: Charge, other: Charge) -> bool:
        return False

    def end_lease(self, charge: Charge, held_s: float) -> None:
        self.settle(charge, held_s)

    def check_invariants(self) -> None:
        super().check_invariants()
        assert sorted(self._line) == sorted(ticket.key for ticket in self.tickets()), "the line and the index differ"

    def _enqueue(self, ticket: QueuedTicket) -> None:
        if ticket.depth:  # It is part of a task that came before.
            self._line = with_depths(self._line)
        self._line[ticket.key] = ticket

    def _dequeue(self, ticket: QueuedTicket) -> None:
        del self._line[ticket.key]
