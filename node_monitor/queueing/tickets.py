"""What is queued at a node monitor, and what taking it costs its user: tickets, charges, and their limits. Pure."""

from __future__ import annotations

from bisect import insort
from collections import OrderedDict
from collections.abc import Callable, Iterator
from operator import neg
from typing import Any

MAX_DURATION_S = 1e9
"""Longest duration accepted (seconds, 31 years). Longer, or not a number, is an error of the caller."""

CHARGE_S_MAX = 600.0
"""Default of the most that a task is charged before it has ended (seconds), whatever its user states."""

TURN_S = 0.002
"""Seconds that a turn at a slot counts at least, where the longest of a user's tasks matters: a slot may be given
several short tasks at a time, so many seconds of them at most by their mean duration. It is also the estimate of a
task's duration for a user of whom nothing is known."""

MIN_WEIGHT, MAX_WEIGHT = 1e-6, 1e6
"""Weights accepted; only their ratios matter."""

SLOTS_PER_CHARGE = 1
"""Slots that a task takes. Tasks that hold k slots would have k in their ticket and in each of its charges. What takes
a slot for a charge names this number, as does what frees one without an attempt; `AttemptBook.leave` frees the rest."""

PUSHED = 0
"""Id of the ticket under which a task is charged that was pushed to a free slot; those of schedulers begin at 1."""

Key = tuple[str, int]


class QueuedTicket:
    """What is queued: `count` reservations for one group ("ticket") of a scheduler. The queue it is added to owns it.

    key: (scheduler name, ticket id), unique among what is queued.
    job, user, app: names. weight: the user's share relative to others', `MIN_WEIGHT` to `MAX_WEIGHT`.
    priority: higher goes first, under the policy "priority" only.
    prefetch, asked, ahead: for `AskingAhead`, not for the queue: how many tasks may be fetched ahead of each slot, how
    many were asked for and have not come, and the user's book in which they count.
    expected_duration_s: stated duration of one task in seconds, or None. demand: resources per task, or None.
    count: reservations left. placed: whether it is of a placed task, which holds a slot of the lane.
    depth: how deep its tasks are nested: 0 if no task has submitted their job, else one more than that task's. Of a
    user's tickets the deepest go first, as others wait for their tasks.
    holds_more: whether a task of it holds more than a slot: resources, or a slot of the lane.
    """

    __slots__ = (
        "ahead", "app", "asked", "count", "demand", "depth", "expected_duration_s", "holds_more", "job", "key",
        "placed", "prefetch", "priority", "user", "weight",
    )  # fmt: skip

    def __init__(
        self,
        key: Key,
        job: str,
        user: str,
        weight: float = 1.0,
        priority: int = 0,
        app: str = "",
        prefetch: int = 0,
        expected_duration_s: float | None = None,
        demand: dict[str, float] | None = None,
        count: int = 1,
        *,
        placed: bool = False,
        depth: int = 0,
    ) -> None:
        self.key = key
        self.job = job
        self.user = user
        self.weight = weight
        self.priority = priority
        self.app = app
        self.prefetch = prefetch
        self.expected_duration_s = expected_duration_s
        self.demand = demand
        self.count = count
        self.placed = placed
        self.depth = depth
        self.holds_more = placed or bool(demand)
        self.asked = 0
        self.ahead: AheadOfTurn | None = None

    def __repr__(self) -> str:
        return f"QueuedTicket({self.key}, user={self.user!r}, count={self.count})"


class AheadOfTurn:
    """One user's tasks of one app that are ahead of their turn: asked for, ready, or behind a running task.

    tickets: those that may have reservations for which no task was asked, in order of arrival. `AskingAhead` keeps
    these books, and hears by `fell` that more may be asked for.
    """

    __slots__ = ("_fell", "app", "count", "refill_at", "tickets", "user")

    def __init__(self, app: str, user: str, fell: Callable[[AheadOfTurn], None]) -> None:
        self._fell = fell
        self.app = app
        self.user = user
        self.count = 0
        self.refill_at = 0
        """More are asked for when so few are left."""
        self.tickets: OrderedDict[Key, QueuedTicket] = OrderedDict()

    def less(self, count: int = 1) -> None:
        """So many are not ahead any more."""
        self.count -= count
        if self.count <= self.refill_at or not self.count:
            self._fell(self)


class Charge:
    """One reservation taken off the queue and charged to its user, until `settle` or `refund`, whichever it is, once.

    estimate_s: what was charged, in seconds of slot time. A charge is for one slot (`SLOTS_PER_CHARGE`).
    """

    __slots__ = ("_open", "estimate_s", "ticket")

    def __init__(self, ticket: QueuedTicket, estimate_s: float) -> None:
        self.ticket = ticket
        self.estimate_s = estimate_s
        self._open = True

    def close(self) -> Any:
        """Mark the charge ended; a second end would take it off the user's tag twice. Returns the charge, which is of
        its queue's own kind."""
        if not self._open:
            raise ValueError(f"the charge for {self.ticket} was settled or refunded before")
        self._open = False
        return self


class TicketLine:
    """Tickets by their keys, deepest first, and in order of arrival among those that are equally deep. As an
    `OrderedDict`, which does as long as all are of depth 0."""

    __slots__ = ("_depth_of", "_depths", "_of_depth")

    def __init__(self, tickets: OrderedDict[Key, QueuedTicket]) -> None:
        """tickets: those that are there, of depth 0."""
        self._of_depth = {0: tickets} if tickets else {}
        self._depths = [*self._of_depth]
        """Deepest first."""
        self._depth_of = dict.fromkeys(tickets, 0)

    def __len__(self) -> int:
        return len(self._depth_of)

    def __iter__(self) -> Iterator[Key]:
        for depth in self._depths:
            yield from self._of_depth[depth]

    def values(self) -> Iterator[QueuedTicket]:
        """The tickets, in order."""
        for depth in self._depths:
            yield from self._of_depth[depth].values()

    def items(self) -> Iterator[tuple[Key, QueuedTicket]]:
        """The same with their keys."""
        for depth in self._depths:
            yield from self._of_depth[depth].items()

    def __setitem__(self, key: Key, ticket: QueuedTicket) -> None:
        depth = self._depth_of[key] = ticket.depth
        line = self._of_depth.get(depth)
        if line is None:
            line = self._of_depth[depth] = OrderedDict()
            insort(self._depths, depth, key=neg)
        line[key] = ticket

    def __delitem__(self, key: Key) -> None:
        depth = self._depth_of.pop(key)
        line = self._of_depth[depth]
        del line[key]
        if not line:
            del self._of_depth[depth]
            self._depths.remove(depth)


Tickets = OrderedDict[Key, QueuedTicket] | TicketLine
"""What is queued, in the order in which it is served."""


def with_depths(tickets: Tickets) -> TicketLine:
    """The same tickets, among which deeper ones may come."""
    return tickets if isinstance(tickets, TicketLine) else TicketLine(tickets)


def check_duration(name: str, duration_s: float) -> None:
    """ValueError unless this may be a duration."""
    if not 0.0 <= duration_s <= MAX_DURATION_S:  # false for NaN, too
        raise ValueError(f"{name} must be from 0 to {MAX_DURATION_S} seconds, not {duration_s}")
