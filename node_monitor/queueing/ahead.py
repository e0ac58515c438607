"""What a node asks for ahead of free slots (prefetch): which tickets of a user may be, and how much of it is here.

A reservation that is asked for ahead stays queued and is charged to nobody. Its task waits beside it (`ReadyTasks`)
until the queue's policy takes the reservation. So to ask ahead changes nobody's turn, and each user may do so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from node_monitor.queueing.tickets import AheadOfTurn, QueuedTicket


class AskingAhead:
    """The books of all users and apps. slots: of the node; a ticket's `prefetch` is so many tasks for each."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._all: dict[tuple[str, str], AheadOfTurn] = {}
        self.due: dict[AheadOfTurn, None] = {}
        """Those for which there may be something to ask for."""

    def all(self) -> Iterator[AheadOfTurn]:
        """All books."""
        yield from self._all.values()

    def queued(self, ticket: QueuedTicket) -> None:
        """Reservations were queued for the ticket."""
        key = (ticket.app, ticket.user)
        ahead = self._all.get(key)
        if ahead is None:
            ahead = self._all[key] = AheadOfTurn(*key, self.looks)
        ticket.ahead = ahead
        ahead.tickets[ticket.key] = ticket
        self.due[ahead] = None

    def cancelled(self, ticket: QueuedTicket) -> None:
        """The ticket has no reservation any more for which no task was asked."""
        ahead = ticket.ahead
        if ahead is not None:
            ahead.tickets.pop(ticket.key, None)
            self.looks(ahead)

    def executors_came(self, app: str) -> None:
        """The app, which may have had no executor, has one."""
        for ahead in self._all.values():
            if ahead.app == app:
                self.due[ahead] = None

    def looks(self, ahead: AheadOfTurn) -> None:
        """Ask for more, if there is anything to ask for; an empty book is closed."""
        if ahead.tickets:
            self.due[ahead] = None
        elif not ahead.count:
            self._all.pop((ahead.app, ahead.user), None)
            self.due.pop(ahead, None)

    def take_due(
        self, has_executors: Callable[[str], bool], unasked: Callable[[QueuedTicket], int]
    ) -> list[tuple[QueuedTicket, int]]:
        """What to ask for now: tickets, and how many tasks of each; they count as asked from then on."""
        due, self.due = self.due, {}
        asking: list[tuple[QueuedTicket, int]] = []
        for ahead in due:
            if has_executors(ahead.app):  # Else `executors_came` follows.
                asking += self._fill(ahead, unasked)
            if not ahead.tickets:
                self.looks(ahead)
        return asking

    def _fill(self, ahead: AheadOfTurn, unasked: Callable[[QueuedTicket], int]) -> Iterator[tuple[QueuedTicket, int]]:
        """In bulk: once what is ahead has fallen to half of what the first ticket may have."""
        filling = False
        while ahead.tickets:
            ticket = next(iter(ahead.tickets.values()))
            most = ticket.prefetch * self._slots
            left = unasked(ticket)
            if left > 0:
                filling = filling or 2 * ahead.count <= most
                count = min(left, most - ahead.count) if filling else 0
                if count > 0:
                    ahead.count += count
                    ticket.asked += count
                    yield ticket, count
                if count < left:
                    ahead.refill_at = most // 2
                    return
            del ahead.tickets[ticket.key]
