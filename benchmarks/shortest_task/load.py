"""The jobs that all systems get, and what is made of their response times."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

TASKS = 10
"""Of each job."""
BROKEN = 2.0
"""Median response over ideal from which response times have broken down."""
WAIT_MAX_S = 5.0
"""Jobs may take so long to end after the last has arrived."""
JOBS_MIN = 10
UNMEASURED_FIRST, UNMEASURED_LAST = 0.1, 0.05
"""Parts of the jobs that are warm-up and cool-down, as in the load generator."""


@dataclass(frozen=True)
class Load:
    """Jobs at equal distances on a cluster of so many nodes and slots of each."""

    nodes: int
    slots: int
    load: float
    duration_ms: float
    seconds: float

    @property
    def interval_s(self) -> float:
        """Between two jobs."""
        return TASKS * self.duration_ms / 1000 / (self.load * self.nodes * self.slots)

    @property
    def jobs(self) -> int:
        """How many arrive."""
        return max(JOBS_MIN, int(self.seconds / self.interval_s))


@dataclass(frozen=True)
class Measured:
    """What a system made of a load. over_ideal: median response over the tasks' duration; None if no job ended."""

    duration_ms: float
    over_ideal: float | None
    p95_over_ideal: float | None
    jobs: int
    unended: int
    why_invalid: str = ""

    @property
    def broken(self) -> bool:
        """Whether response times have broken down."""
        return self.unended > 0 or self.over_ideal is None or self.over_ideal >= BROKEN


def measured(load: Load, responses_s: Sequence[float | None]) -> Measured:
    """Of all jobs in order of arrival; None for one that has not ended."""
    count = len(responses_s)
    kept = responses_s[int(count * UNMEASURED_FIRST) : count - int(count * UNMEASURED_LAST)]
    ended = [1000 * response_s / load.duration_ms for response_s in kept if response_s is not None]
    return Measured(
        load.duration_ms,
        statistics.median(ended) if ended else None,
        float(np.percentile(ended, 95)) if ended else None,
        len(kept),
        len(kept) - len(ended),
    )


def shortest(points: Mapping[float, Measured]) -> float | None:
    """The shortest of these durations that was taken, as were all longer ones; None if not even the longest was."""
    taken = None
    for duration_ms in sorted(points, reverse=True):
        if points[duration_ms].broken:
            break
        taken = duration_ms
    return taken
