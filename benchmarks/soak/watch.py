"""Memory and descriptors of the daemons, sampled while the soak runs, and whether those that lived on keep theirs.

What is judged is the last half: the median of its first fifth against that of its last. Judged are veterans alone,
as a process that was started anew has still to fill what it may (a node monitor remembers the last 10,000 outcomes,
`node_monitor/remembered_outcomes.py`).
"""

from __future__ import annotations

import contextlib
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import psutil

from benchmarks.laboratory.experiment import DESCRIPTORS_MAX

GROWTH_MAX = 0.05
"""Of a resident set, over the last half."""
WINDOW = 0.2
"""Share of the last half that is compared at each of its ends."""
SAMPLES_MIN = 5
"""In each window; with fewer nothing is judged."""


@dataclass(frozen=True)
class Sample:
    """A process at a moment."""

    at_s: float
    pid: int
    rss_bytes: int
    descriptors: int


@dataclass(frozen=True)
class Kept:
    """What became of a veteran's memory over the last half."""

    name: str
    before_bytes: float
    after_bytes: float
    descriptors_before: int
    descriptors_after: int
    least_descriptors_before: int
    least_descriptors_after: int

    @property
    def growth(self) -> float:
        """As a share of what it was."""
        return self.after_bytes / self.before_bytes - 1

    def violations(self) -> list[str]:
        """What is not flat."""
        found = []
        if self.growth > GROWTH_MAX:
            mb = f"from {self.before_bytes / 1e6:.1f} to {self.after_bytes / 1e6:.1f} MB"
            found.append(f"{self.name}: resident set grew by {self.growth:.1%} over the last half, {mb}")
        grown = self.descriptors_after - self.descriptors_before
        if min(grown, self.least_descriptors_after - self.least_descriptors_before) > DESCRIPTORS_MAX:
            counts = f"from {self.descriptors_before} to {self.descriptors_after}"
            found.append(f"{self.name}: descriptors grew over the last half, {counts}")
        return found


class Watch:
    """The samples of all daemons."""

    def __init__(self) -> None:
        self.samples: dict[str, list[Sample]] = defaultdict(list)

    def look(self, pids: Mapping[str, int], at_s: float) -> None:
        """One sample of each process that is there."""
        for name, pid in pids.items():
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                process = psutil.Process(pid)
                self.samples[name].append(Sample(at_s, pid, process.memory_info().rss, process.num_fds()))

    def peak_mb(self, names: Iterable[str]) -> float:
        """The largest resident set that one of these had."""
        return max((sample.rss_bytes for name in names for sample in self.samples[name]), default=0) / 1e6

    def kept(self, name: str, until_s: float) -> Kept | None:
        """Of the last half of so many seconds; None if it was another process meanwhile, or was seldom looked at."""
        half = [sample for sample in self.samples[name] if until_s / 2 <= sample.at_s <= until_s]
        width_s = WINDOW * until_s / 2
        first = [sample for sample in half if sample.at_s <= until_s / 2 + width_s]
        last = [sample for sample in half if sample.at_s >= until_s - width_s]
        if min(len(first), len(last)) < SAMPLES_MIN or len({sample.pid for sample in half}) > 1:
            return None
        return Kept(
            name,
            statistics.median(sample.rss_bytes for sample in first),
            statistics.median(sample.rss_bytes for sample in last),
            int(statistics.median(sample.descriptors for sample in first)),
            int(statistics.median(sample.descriptors for sample in last)),
            min(sample.descriptors for sample in first),
            min(sample.descriptors for sample in last),
        )
