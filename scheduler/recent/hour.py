"""The last hour in spans of some seconds: what was counted in each, what percentiles were, who had how many slots."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from scheduler.recent.samples import Samples

if TYPE_CHECKING:
    from scheduler.book.counters import Counters

SPAN_S = 10.0
SPANS_MAX = 360
"""Spans that are remembered: an hour."""
USERS_MAX = 10
"""Users of whom a span has the slots: those that had most. The others' are in one sum."""
SPAN_BYTES_MAX = 6_000
"""What a span takes at most, with the names of its users."""
PARTS = (0.5, 0.9, 0.99)
COUNTED = (
    "jobs_accepted", "jobs_ended", "launched", "asks", "noops", "reservations", "reservations_cancelled", "retries",
    "attempts_lost", "handed_back", "preempted",
)  # fmt: skip
"""Counters of which a span has the difference."""


class Percentiles(msgspec.Struct):
    """Of some seconds: half, nine tenths and ninety-nine hundredths of all are not above these."""

    p50: float
    p90: float
    p99: float


class Span(msgspec.Struct, kw_only=True):
    """Some seconds. `launched` and the like are what scheduler's metrics of these names counted in it."""

    at_s: float
    """Its end, in seconds since the epoch."""
    seconds: float
    jobs_accepted: int
    jobs_ended: int
    launched: int
    asks: int
    noops: int
    reservations: int
    reservations_cancelled: int
    retries: int
    attempts_lost: int
    handed_back: int
    preempted: int
    finished: int
    failed: int
    cancelled: int
    lost: int
    job_s: Percentiles | None
    """From the submission of jobs to their ends; null if none ended."""
    wait_s: Percentiles | None
    """From the time that nodes were sought for tasks to their starts, by their nodes' clocks."""
    service_s: Percentiles | None
    """For how long tasks ran."""
    nodes: int
    slots: int
    busy: float
    """Attempts of this scheduler at nodes, on average."""
    unplaced: int
    users: dict[str, float]
    """The users that had most slots, and how many on average."""
    other_users: float
    """Slots of all others."""


def span_for(span: Span, may_see: Callable[[str], bool]) -> Span:
    """The span as one may see it who may see these users' jobs: of others only the sum."""
    hidden = sum(slots for user, slots in span.users.items() if not may_see(user))
    if not hidden:
        return span
    users = {user: slots for user, slots in span.users.items() if may_see(user)}
    return msgspec.structs.replace(span, users=users, other_users=span.other_users + hidden)


class Hour:
    """See the module's docstring."""

    def __init__(self, counters: Counters, now_s: float) -> None:
        self._counters = counters
        self.spans: deque[Span] = deque(maxlen=SPANS_MAX)
        self._begin(now_s)

    def _begin(self, now_s: float) -> None:
        self._began_s = now_s
        self._before = counted(self._counters)
        self.job_s, self.wait_s, self.service_s = Samples(), Samples(), Samples()
        """Of the present span."""
        self._looks = 0
        self._busy = 0
        self._users: dict[str, int] = {}

    def looked(self, by_user: dict[str, int]) -> None:
        """A look has shown who has how many slots."""
        self._looks += 1
        for user, count in by_user.items():
            self._busy += count
            self._users[user] = self._users.get(user, 0) + count

    def ends(self, now_s: float) -> bool:
        """Whether the present span is over."""
        return now_s >= self._began_s + SPAN_S

    def end(self, now_s: float, *, nodes: int, slots: int, unplaced: int) -> Span:
        """End the present span, and begin the next one."""
        counts, looks = counted(self._counters), max(1, self._looks)
        most = sorted(self._users, key=lambda user: (-self._users[user], user))[:USERS_MAX]
        users = {user: self._users[user] / looks for user in most}
        span = Span(
            at_s=now_s,
            seconds=now_s - self._began_s,
            **{name: count - self._before[name] for name, count in counts.items()},
            job_s=_percentiles(self.job_s),
            wait_s=_percentiles(self.wait_s),
            service_s=_percentiles(self.service_s),
            nodes=nodes,
            slots=slots,
            busy=self._busy / looks,
            unplaced=unplaced,
            users=users,
            other_users=self._busy / looks - sum(users.values()),
        )
        self.spans.append(span)
        self._begin(now_s)
        return span


def counted(counters: Counters) -> dict[str, int]:
    """The counters that spans have, and outcomes by status."""
    counts: dict[str, int] = {name: getattr(counters, name) for name in COUNTED}
    return counts | {status.value: count for status, count in counters.settled.items()}


class Rates:
    """What was counted a second from one look to the next."""

    def __init__(self, counters: Counters, now_s: float) -> None:
        self._counters = counters
        self._looked_s = now_s
        self._before = counted(counters)
        self.now = dict.fromkeys(self._before, 0.0)

    def look(self, now_s: float) -> None:
        """Look at the counters."""
        counts, seconds = counted(self._counters), max(now_s - self._looked_s, 1e-3)
        self.now = {name: (count - self._before[name]) / seconds for name, count in counts.items()}
        self._looked_s, self._before = now_s, counts


def _percentiles(samples: Samples) -> Percentiles | None:
    found = samples.percentiles(PARTS)
    return Percentiles(*found) if found else None
