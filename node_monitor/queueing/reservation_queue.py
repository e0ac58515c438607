"""The queue of reservations at a node monitor, whatever its policy: what is queued, by ticket and by user.

The paper shares the cluster by sharing every node: each user's probes wait in a queue of their own, the node serves the
queues by weighted fair queueing, and shares then hold across the cluster in expectation; where operators want strict
priorities there is a queue per priority instead (§3.5). Three policies, one interface (`ReservationQueue`):
`fair.FairQueue`, the default, `priority.PriorityQueue`, `fifo.FifoQueue`.

Pure: no clock, no randomness, no I/O. Durations are seconds of slot time (one slot held for one second is one
slot-second).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator

from node_monitor.queueing.tickets import MAX_WEIGHT, MIN_WEIGHT, TURN_S, Charge, Key, QueuedTicket, check_duration


class ReservationQueue(ABC):
    """Reservations queued at one node monitor, and the policy that picks the next. Counts are plain numbers: a ticket
    for 100,000 reservations costs what a ticket for one does. All operations take constant time but for the length of a
    heap's path and the tickets that `take` passes over because they may not run."""

    def __init__(self) -> None:
        self._index: dict[str, dict[int, QueuedTicket]] = {}  # scheduler -> ticket id -> ticket
        self._users: dict[str, int] = {}  # reservations queued, users with none left out
        self.size = 0
        """Reservations queued in all."""

    def add(self, ticket: QueuedTicket) -> None:
        """Queue a ticket. If its key is queued already the count of that one grows, and it keeps its place. The weight
        is the user's from now on. ValueError, and nothing is queued, if a number is out of range."""
        if ticket.count < 1:
            raise ValueError(f"count must be at least 1, not {ticket.count}")
        if not MIN_WEIGHT <= ticket.weight <= MAX_WEIGHT:
            raise ValueError(f"weight must be from {MIN_WEIGHT} to {MAX_WEIGHT}, not {ticket.weight}")
        if ticket.expected_duration_s is not None:
            check_duration("expected_duration_s", ticket.expected_duration_s)
        scheduler, number = ticket.key
        tickets = self._index.get(scheduler)
        if tickets is None:
            tickets = self._index[scheduler] = {}
        known = tickets.get(number)
        users, user = self._users, (known or ticket).user
        self.size += ticket.count
        users[user] = users.get(user, 0) + ticket.count
        if known is None:
            tickets[number] = ticket
            self._enqueue(ticket)
        else:
            known.count += ticket.count
            known.weight = ticket.weight
            self._reweigh(known)

    def cancel(self, key: Key, count: int | None = None) -> int:
        """Remove `count` reservations of a ticket uncharged, or all; returns how many went, 0 if it was not queued."""
        ticket = self.ticket(key)
        if ticket is None:
            return 0
        if count is None or count >= ticket.count:
            count = ticket.count
            self._dequeue(ticket)
            self._unindex(key)
        self._spend(ticket, count)
        ticket.count -= count
        return count

    def cancel_scheduler(self, scheduler: str) -> int:
        """Remove all tickets of a scheduler; returns how many reservations went."""
        return sum([self.cancel(ticket.key) for ticket in list(self._index.get(scheduler, {}).values())])

    def clear(self) -> int:
        """Remove everything queued; returns how many reservations went. Outstanding charges stay."""
        return sum([self.cancel_scheduler(scheduler) for scheduler in list(self._index)])

    @abstractmethod
    def take(
        self, may_run: Callable[[QueuedTicket], bool], wanted: Callable[[QueuedTicket], bool] | None = None
    ) -> Charge | None:
        """Take the next reservation by policy among the tickets for which `may_run` is true, and charge its user an
        estimate. None, and nothing is charged, if there is none, or if it is of a ticket that is not `wanted`. Within a
        user (FIFO: within the queue) tickets go by depth, the deepest first, and in order of arrival; those that may
        not run are passed over. Neither function may touch the queue."""

    @abstractmethod
    def take_of(self, ticket: QueuedTicket) -> Charge:
        """Take another reservation of a ticket, which is queued, for the slot that was just given to one of it."""

    @abstractmethod
    def refund(self, charge: Charge) -> None:
        """The ask led to no task (no-op, time-out, handed back): as if it had never been charged, so it does not cost
        the user its turn. What held a slot, however briefly, is settled instead, or its user had that for nothing. The
        reservation stays taken; whoever wants it queued again adds it."""

    @abstractmethod
    def settle(self, charge: Charge, service_s: float) -> None:
        """The task ended after service_s seconds of slot time: the charge is corrected to it."""

    # ---- leases ------------------------------------------------------------------------------

    @abstractmethod
    def lease(self, charge: Charge, lease_s: float) -> None:
        """The charge turns out to be of a task that is charged a lease of so many seconds at a time: the first takes
        the place of the estimate."""

    @abstractmethod
    def settle_lease(self, charge: Charge, held_s: float) -> None:
        """A lease is over, or is looked at again: the task has held its slot so many seconds since that was done last,
        which count as service. The charge stays; what the user's other tasks are expected to take stays as well."""

    @abstractmethod
    def renew(self, charge: Charge, waits: Callable[[QueuedTicket], bool]) -> bool:
        """Charge the task another lease, unless it is another user's turn by policy: then False, and nothing is
        charged. waits: whether a reservation of the ticket waits for what this task holds and nothing else."""

    @abstractmethod
    def comes_before(self, ticket: QueuedTicket, charge: Charge) -> bool:
        """Whether a reservation of the ticket, which is queued, comes before another lease of the charge's task, once
        the present one is over."""

    def outranks(self, ticket: QueuedTicket, other: QueuedTicket) -> bool:
        """Whether the ticket is of a higher priority than the other."""
        return False

    @abstractmethod
    def end_lease(self, charge: Charge, held_s: float) -> None:
        """The task ended, so many seconds after its service was settled last."""

    # ---- tasks that wait ---------------------------------------------------------------------

    def pause(self, charge: Charge, held_s: float) -> None:
        """The task gives its slot back while it waits for others, having held it so many seconds since that was done
        last, which count as service. The charge stays, and next to nothing of it is pending."""
        self.settle_lease(charge, held_s)
        self.lease(charge, 0.0)

    @abstractmethod
    def wants_again(self, charge: Charge) -> None:
        """The task wants a slot again, and no other of its user's did: the user has saved nothing up meanwhile."""

    @abstractmethod
    def comes_first(self, charge: Charge, may_run: Callable[[QueuedTicket], bool]) -> bool:
        """Whether it is the turn of the task's user, and of no other who has a ticket for which `may_run` is true.
        What the user itself has queued comes after its tasks that want their slots again."""

    @abstractmethod
    def precedes(self, charge: Charge, other: Charge) -> bool:
        """Whether the one task's user comes before the other's, were both to be served now."""

    def go_on(self, charge: Charge) -> None:
        """The task has a slot again. It ends as one with a lease does (`end_lease`), or pauses again."""
        self.lease(charge, TURN_S)

    def user_count(self, user: str) -> int:
        """Reservations queued for the user."""
        return self._users.get(user, 0)

    def others_wait(self, user: str) -> bool:
        """Whether anybody but the user has something queued."""
        return len(self._users) > (user in self._users)

    def users(self) -> dict[str, int]:
        """Reservations queued per user, users with none left out. A copy."""
        return dict(self._users)

    def __len__(self) -> int:
        """Reservations queued in all."""
        return self.size

    def ticket(self, key: Key) -> QueuedTicket | None:
        """The ticket queued under the key."""
        tickets = self._index.get(key[0])
        return None if tickets is None else tickets.get(key[1])

    def tickets(self) -> Iterator[QueuedTicket]:
        """All tickets queued, in no particular order. The queue must not change meanwhile."""
        for tickets in self._index.values():
            yield from tickets.values()

    def check_invariants(self) -> None:
        """Raise AssertionError, with a message, if the bookkeeping does not add up. Costs a pass over all tickets."""
        users: dict[str, int] = {}
        for scheduler, tickets in self._index.items():
            assert tickets, f"scheduler {scheduler} is indexed without a ticket"
            for number, ticket in tickets.items():
                assert ticket.key == (scheduler, number), f"{ticket} is indexed as {(scheduler, number)}"
                assert ticket.count > 0, f"{ticket} is queued with nothing left"
                users[ticket.user] = users.get(ticket.user, 0) + ticket.count
        assert users == self._users, f"reservations per user: counted {users}, kept {self._users}"
        assert sum(users.values()) == self.size, f"reservations: counted {sum(users.values())}, kept {self.size}"

    @abstractmethod
    def _enqueue(self, ticket: QueuedTicket) -> None:
        """Give the new ticket its place."""

    @abstractmethod
    def _dequeue(self, ticket: QueuedTicket) -> None:
        """Take the ticket's place away."""

    def _reweigh(self, ticket: QueuedTicket) -> None:  # noqa: B027 - a policy without weights has nothing to do
        """The ticket, queued already, came with another weight."""

    def _spend(self, ticket: QueuedTicket, count: int) -> None:
        """Count reservations of the ticket as gone."""
        self.size -= count
        left = self._users[ticket.user] - count
        if left:
            self._users[ticket.user] = left
        else:
            del self._users[ticket.user]

    def _unindex(self, key: Key) -> None:
        tickets = self._index[key[0]]
        del tickets[key[1]]
        if not tickets:
            del self._index[key[0]]
