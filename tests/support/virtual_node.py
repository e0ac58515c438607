"""One node monitor's slots under virtual time, driving a real reservation queue: tests measure who gets which slots.

Times are seconds of virtual time; service is slot-seconds. A run is a function of its arguments, no more.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count

from node_monitor.queueing.reservation_queue import ReservationQueue
from node_monitor.queueing.tickets import TURN_S, Charge, QueuedTicket


class VirtualNode:
    """Asks for a task whenever fewer than `slots` asks and tasks are outstanding, and runs what it gets.

    outcome: what an ask for the ticket yields: the duration of its task in seconds, or None, a no-op.
    latency_s: from the ask to its answer. may_run: passed to the queue.
    on_end: called with the ticket when its task ends (to refill closed loops).
    """

    def __init__(
        self,
        queue: ReservationQueue,
        slots: int,
        outcome: Callable[[QueuedTicket], float | None],
        *,
        latency_s: float = 0.0,
        may_run: Callable[[QueuedTicket], bool] = lambda ticket: True,
        on_end: Callable[[QueuedTicket], None] = lambda ticket: None,
    ) -> None:
        self.queue = queue
        self.slots = slots
        self.outcome = outcome
        self.latency_s = latency_s
        self.may_run = may_run
        self.on_end = on_end
        self.now = 0.0
        self.served: dict[str, float] = {}  # slot-seconds per user
        self.running: dict[str, int] = {}
        self.outstanding: dict[str, int] = {}
        self.longest: dict[str, float] = {}  # the longest task of each user, or TURN_S: L_k of the bound
        self.started: list[tuple[float, QueuedTicket]] = []
        self.watches: list[GapWatch] = []
        self._events: list[tuple[float, int, Callable[[], object]]] = []
        self._order = count()
        self._tickets = count()

    def at(self, time_s: float, action: Callable[[], object]) -> None:
        heappush(self._events, (time_s, next(self._order), action))

    def add(self, user: str, reservations: int, *, weight: float = 1.0, **fields: object) -> QueuedTicket:
        number = next(self._tickets)
        ticket = QueuedTicket(("s", number), f"job-{number}", user, weight, count=reservations, **fields)  # type: ignore[arg-type]
        self.queue.add(ticket)
        for table in (self.running, self.outstanding):
            table.setdefault(user, 0)
        self.served.setdefault(user, 0.0)
        self.longest.setdefault(user, TURN_S)
        self._seen()
        return ticket

    def run(self, until_s: float) -> None:
        self._ask()
        while self._events and self._events[0][0] <= until_s:
            time_s, _, action = heappop(self._events)
            self._advance(time_s)
            action()
            self._seen()
            self._ask()
        self._advance(until_s)
        self._seen()

    def _advance(self, time_s: float) -> None:
        for user, running in self.running.items():
            self.served[user] += running * (time_s - self.now)
        self.now = time_s

    def _seen(self) -> None:
        for watch in self.watches:
            watch.see(self)

    def _ask(self) -> None:
        while sum(self.outstanding.values()) < self.slots:
            charge = self.queue.take(self.may_run)
            if charge is None:
                return
            user = charge.ticket.user
            self.outstanding[user] += 1
            self._seen()
            self.at(self.now + self.latency_s, lambda charge=charge: self._answered(charge))  # type: ignore[misc]

    def _answered(self, charge: Charge) -> None:
        user = charge.ticket.user
        duration_s = self.outcome(charge.ticket)
        if duration_s is None:
            self.outstanding[user] -= 1
            self.queue.refund(charge)
            return
        self.longest[user] = max(self.longest[user], duration_s)
        self.running[user] += 1
        self.started.append((self.now, charge.ticket))
        self.at(self.now + duration_s, lambda: self._ended(charge, duration_s))

    def _ended(self, charge: Charge, duration_s: float) -> None:
        user = charge.ticket.user
        self.running[user] -= 1
        self.outstanding[user] -= 1
        self.queue.settle(charge, duration_s)
        self.on_end(charge.ticket)


class GapWatch:
    """How far the normalised services of two users drift apart over any interval in which both stay backlogged.

    `worst` is the largest |S_i - S_j| over all pairs of moments of one such interval: the range of the difference.
    """

    def __init__(self, first: tuple[str, float], second: tuple[str, float]) -> None:
        self.first, self.second = first, second  # (user, weight)
        self.worst = 0.0
        self.outstanding = 0  # the most charges of the two together: c of the bound
        self._low: float | None = None
        self._high = 0.0

    def see(self, node: VirtualNode) -> None:
        (i, w_i), (j, w_j) = self.first, self.second
        self.outstanding = max(self.outstanding, node.outstanding.get(i, 0) + node.outstanding.get(j, 0))
        if not (node.queue.user_count(i) and node.queue.user_count(j)):
            self._low = None
            return
        gap = node.served[i] / w_i - node.served[j] / w_j
        if self._low is None:
            self._low = self._high = gap
        self._low = min(self._low, gap)
        self._high = max(self._high, gap)
        self.worst = max(self.worst, self._high - self._low)

    def bound(self, node: VirtualNode) -> float:
        """The bound of `node_monitor.queueing.fair` on `worst`, with some room for sums of floats."""
        l_i, l_j = (node.longest[user] / weight for user, weight in (self.first, self.second))
        return self.outstanding * (l_i + l_j + 2 * max(l_i, l_j)) * (1 + 1e-9) + 1e-9
