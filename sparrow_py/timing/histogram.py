"""Histograms of seconds, one for each application, as metrics show them. Pure, and bounded."""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby, repeat
from operator import itemgetter
from typing import Any, Generic, NamedTuple, TypeVar

Times = TypeVar("Times")

TASK_BOUNDS_S = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0,
)  # fmt: skip
"""Upper bounds for what tasks take, and wait for."""
ROUND_TRIP_BOUNDS_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
"""Upper bounds for a message and its answer."""
APPS_MAX = 20
"""Applications that have histograms of their own, the first that are seen; the others share one. Names of applications
are whatever operators and users call them, and each is a label of every bucket."""
OTHER = "other"
"""The name of what the others share; an application that is called so shares it, too."""
SECONDS_MAX = 1e9
"""What is not below this, or is not a number, is not counted: the sum would be of no use afterwards."""


PENDING_MAX = 256
"""Values that are counted together."""


class Example(NamedTuple):
    """The latest value of a bucket: whose it was."""

    job: str
    seconds: float
    at_s: float
    """When it was seen, in seconds since the epoch."""


@dataclass(slots=True)
class Histogram:
    """How many values were not above each bound, and above the bound before; the last count is of those above all."""

    bounds_s: tuple[float, ...]
    counts: list[int] = field(default_factory=list)
    sum_s: float = 0.0
    examples: list[Example | None] = field(default_factory=list)
    """The latest value of each bucket."""

    def __post_init__(self) -> None:
        if not self.counts:
            self.counts, self.examples = [0] * (len(self.bounds_s) + 1), [None] * (len(self.bounds_s) + 1)

    def add(self, seconds: Sequence[float], jobs: Iterable[str], at_s: Iterable[float]) -> None:
        """Count values that are seconds (`_are_seconds`), each of a task of some job and seen at some time."""
        # What comes once for each value is done by functions in C: it is part of what each task costs.
        buckets = list(map(bisect_left, repeat(self.bounds_s), seconds))
        for bucket, count in Counter(buckets).items():
            self.counts[bucket] += count
        for bucket, latest in dict(zip(buckets, zip(jobs, seconds, at_s, strict=True), strict=True)).items():
            self.examples[bucket] = Example._make(latest)
        self.sum_s += sum(seconds)

    def merge(self, other: Histogram) -> None:
        """What the other one has counted, with the same bounds, is counted here, too."""
        self.counts = [one + more for one, more in zip(self.counts, other.counts, strict=True)]
        self.sum_s += other.sum_s
        self.examples = [
            max(
                (example for example in examples if example is not None), key=lambda example: example.at_s, default=None
            )
            for examples in zip(self.examples, other.examples, strict=True)
        ]


class TaskTimes(NamedTuple):
    """How long an application's tasks wait, from when nodes were sought for them to their starts, and how long they
    run."""

    wait: Histogram
    service: Histogram


class ByApp(Generic[Times]):
    """The times of each application, and those of all beyond `APPS_MAX` together."""

    __slots__ = ("_make", "apps")

    def __init__(self, make: Callable[[], Times]) -> None:
        self._make = make
        self.apps: dict[str, Times] = {}

    def of(self, app: str) -> Times:
        """Those of the application."""
        times = self.apps.get(app)
        if times is None:
            if len(self.apps) - (OTHER in self.apps) >= APPS_MAX:
                app = OTHER
            times = self.apps.setdefault(app, self._make())
        return times


class _CountedTogether(Generic[Times]):
    """The times of each application. What becomes known is put into `pending`, as a plain tuple that begins with the
    application's name, and `PENDING_MAX` of them are counted together: little of what that costs comes with each task
    (`python -m benchmarks.instructions`)."""

    __slots__ = ("_by_app", "pending")

    def __init__(self, make: Callable[[], Times]) -> None:
        self.pending: list[Any] = []
        self._by_app = ByApp(make)

    def count(self) -> None:
        """Count what is pending: to be called when there are `PENDING_MAX`."""
        name = itemgetter(0)
        for app, some in groupby(sorted(self.pending, key=name), key=name):
            self._add(self._by_app.of(app), list(some))
        self.pending.clear()

    @property
    def apps(self) -> dict[str, Times]:
        """Of each application, all counted."""
        self.count()
        return self._by_app.apps

    @abstractmethod
    def _add(self, times: Times, some: list[Any]) -> None:
        """Count some of one application, in the order in which they became known."""


class EndedTasks(_CountedTogether[TaskTimes]):
    """Of all tasks that have ended. Pending are: app, wait_s, service_s, job and when that was known."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(lambda: TaskTimes(Histogram(TASK_BOUNDS_S), Histogram(TASK_BOUNDS_S)))

    def _add(self, times: TaskTimes, some: list[tuple[str, float, float, str, float]]) -> None:
        _, waits_s, services_s, jobs, at_s = zip(*some, strict=True)
        if min(waits_s) < 0.0:  # Of clocks that differ.
            waits_s = tuple(max(wait_s, 0.0) for wait_s in waits_s)
        if _are_seconds(waits_s) and _are_seconds(services_s):
            times.wait.add(waits_s, jobs, at_s)
            times.service.add(services_s, jobs, at_s)
        elif len(some) > 1:
            for one in some:
                self._add(times, [one])


class RoundTrips(_CountedTogether[Histogram]):
    """Of messages and their answers. Pending are: app, seconds, job and when that was known."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(partial(Histogram, ROUND_TRIP_BOUNDS_S))

    def _add(self, times: Histogram, some: list[tuple[str, float, str, float]]) -> None:
        _, seconds, jobs, at_s = zip(*some, strict=True)
        if _are_seconds(seconds):
            times.add(seconds, jobs, at_s)
        elif len(some) > 1:
            for one in some:
                self._add(times, [one])


def _are_seconds(values: Sequence[float]) -> bool:
    """Whether each value may be counted: with one that is not a number, the sum is none."""
    return min(values) >= 0.0 and sum(values) < SECONDS_MAX


def merged(several: Iterable[RoundTrips]) -> dict[str, Histogram]:
    """By application, what several have counted together."""
    together = ByApp(partial(Histogram, ROUND_TRIP_BOUNDS_S))
    for one in several:
        for app, histogram in one.apps.items():
            together.of(app).merge(histogram)
    return together.apps
