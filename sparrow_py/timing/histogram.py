"""Histograms of seconds, one for each application, as metrics show them. Pure, and bounded."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, NamedTuple, TypeVar

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
"""Tasks that are counted together."""


class Example(NamedTuple):
    """The latest value of a bucket: whose it was."""

    job: str
    seconds: float
    at_s: float
    """When it was seen, in seconds since the epoch."""


_Task = tuple[str, float, float, float]
"""Job, wait_s, service_s and when that was known. A plain tuple takes a fifth of the time to make of one with names."""


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

    def add(self, seconds: float, job: str, at_s: float) -> None:
        """Something took so long, of a task of the job's."""
        if 0.0 <= seconds < SECONDS_MAX:
            index = bisect_left(self.bounds_s, seconds)
            self.counts[index] += 1
            self.sum_s += seconds
            self.examples[index] = Example(job, seconds, at_s)

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


class TaskTimes:
    """How long an application's tasks wait, and how long they run: two histograms that are counted in one step, as that
    is part of what each task costs."""

    __slots__ = (
        "_service_counts", "_service_latest", "_service_sum_s", "_wait_counts", "_wait_latest", "_wait_sum_s",
    )  # fmt: skip

    def __init__(self) -> None:
        size = len(TASK_BOUNDS_S) + 1
        self._wait_counts, self._service_counts = [0] * size, [0] * size
        self._wait_sum_s = self._service_sum_s = 0.0
        self._wait_latest: list[_Task | None] = [None] * size
        self._service_latest: list[_Task | None] = [None] * size

    def add(self, wait_s: float, service_s: float, job: str, at_s: float) -> None:
        """A task of the job waited and ran so long. A negative wait, of clocks that differ, is none."""
        if wait_s < 0.0:  # noqa: PLR1730 - at every task, where max() costs three times that
            wait_s = 0.0
        if wait_s < SECONDS_MAX and 0.0 <= service_s < SECONDS_MAX:
            waited, ran = bisect_left(TASK_BOUNDS_S, wait_s), bisect_left(TASK_BOUNDS_S, service_s)
            self._wait_counts[waited] += 1
            self._wait_sum_s += wait_s
            self._service_counts[ran] += 1
            self._service_sum_s += service_s
            self._wait_latest[waited] = self._service_latest[ran] = job, wait_s, service_s, at_s

    @property
    def wait(self) -> Histogram:
        """From when nodes were sought for tasks to their starts."""
        examples = [task and Example(task[0], task[1], task[3]) for task in self._wait_latest]
        return Histogram(TASK_BOUNDS_S, self._wait_counts, self._wait_sum_s, examples)

    @property
    def service(self) -> Histogram:
        """From their starts to their ends."""
        examples = [task and Example(task[0], task[2], task[3]) for task in self._service_latest]
        return Histogram(TASK_BOUNDS_S, self._service_counts, self._service_sum_s, examples)


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


class EndedTasks:
    """The times of all tasks that have ended, by application.

    Each is put into `pending` as it ends, and they are counted together: so most of what that costs comes once for
    `PENDING_MAX` of them, when the memory that counting touches is at hand (`python -m benchmarks.submit_path`,
    "scheduler Report": 0.5 µs more than without histograms, and 1.8 µs more if each is counted as it ends).
    """

    __slots__ = ("_times", "pending")

    def __init__(self) -> None:
        self.pending: list[tuple[str, float, float, str, float]] = []
        """Of tasks that are not counted yet: app, wait_s, service_s, job and when that was known."""
        self._times = ByApp(TaskTimes)

    def count(self) -> None:
        """Count those that are pending: to be called when they are `PENDING_MAX`."""
        last, times = "", None
        for app, wait_s, service_s, job, at_s in self.pending:
            if times is None or app != last:
                last, times = app, self._times.of(app)
            times.add(wait_s, service_s, job, at_s)
        self.pending.clear()

    @property
    def apps(self) -> dict[str, TaskTimes]:
        """Of each application, all tasks counted."""
        self.count()
        return self._times.apps


def round_trips() -> ByApp[Histogram]:
    """For messages and their answers."""
    return ByApp(partial(Histogram, ROUND_TRIP_BOUNDS_S))


def merged(several: Iterable[ByApp[Histogram]]) -> ByApp[Histogram]:
    """What several of `round_trips` have counted together."""
    together = round_trips()
    for one in several:
        for app, histogram in one.apps.items():
            together.of(app).merge(histogram)
    return together
