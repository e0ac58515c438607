"""What finished tasks of a stage have shown: in one run of the stage, and in the runs before (paper 002, §4).

Of a run, durations and CPUs are means; memory and bandwidth are what tasks came up to. Runs count alike, however many
tasks they have: the tasks that finish last are a stage's longest, and would be all that is remembered of a large one.
The latest runs count most in means; of what tasks come up to, larger figures count at once, and fade run by run.

Figures of runs that follow each other may be put together in any grouping: so schedulers that share a file add what
each of them has seen, and nothing depends on how often they write.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from scheduler.altruistic.durations import bounded

DURATION = "duration_s"
MEANS = frozenset({DURATION, "cpu"})
"""Figures that are means; the others are what tasks came up to."""
KEPT = 0.8
"""Of a run's weight in a mean, after one more run."""
PEAK_KEPT = 0.9
"""Of what a run came up to, after one more run."""
RESOURCES_MAX = 16
"""Of which a stage's use is remembered."""
AMOUNT_MAX = 1e18
"""Of a resource: as much as a task may demand."""
SAMPLES_MAX = 1 << 62
"""More runs count as so many, which changes no figure."""


class Figure(NamedTuple):
    """What some tasks, or some runs, have shown together."""

    samples: int
    """Of these tasks or runs."""
    value: float


Figures = Mapping[str, Figure]
"""Of a stage: its tasks' duration, and by resource what they used. What was never measured is not there."""


class Run:
    """Tasks of one job's stage that have finished."""

    __slots__ = ("_figures",)

    def __init__(self) -> None:
        self._figures: dict[str, Figure] = {}

    @property
    def tasks(self) -> int:
        """How many they are."""
        return self._figures[DURATION].samples if self._figures else 0

    @property
    def figures(self) -> Figures:
        """What they have shown."""
        return self._figures

    def finished(self, duration_s: float, used: Mapping[str, float | None]) -> None:
        """One more. What is no number from 0 is not known; a task without a duration shows nothing."""
        if not 0 <= duration_s < math.inf:
            return
        self._add(DURATION, bounded(duration_s))
        for name, amount in used.items():
            if amount is None or not 0 <= amount < math.inf or name == DURATION:
                continue
            if name in self._figures or len(self._figures) <= RESOURCES_MAX:
                self._add(name, min(float(amount), AMOUNT_MAX))

    def _add(self, name: str, value: float) -> None:
        one = Figure(1, value)
        before = self._figures.get(name)
        self._figures[name] = one if before is None else _together(name, before, one)

    def as_one(self) -> Figures:
        """What they have shown, as one run."""
        return {name: Figure(1, value) for name, (_, value) in self._figures.items()}


def followed(earlier: Figures, later: Figures) -> Figures:
    """What those runs and, after them, these have shown."""
    found = {**earlier, **later}
    for name in earlier.keys() & later.keys():
        found[name] = _together(name, earlier[name], later[name], KEPT, PEAK_KEPT)
    return found


def _together(name: str, earlier: Figure, later: Figure, kept: float = 1.0, peak_kept: float = 1.0) -> Figure:
    """The figure of those and these, if of each so much is left after one more."""
    samples = min(earlier.samples + later.samples, SAMPLES_MAX)
    if name not in MEANS:
        return Figure(samples, max(later.value, earlier.value * peak_kept**later.samples))
    left, own = _weight(earlier.samples, kept) * kept**later.samples, _weight(later.samples, kept)
    return Figure(samples, earlier.value + (later.value - earlier.value) * (own / (left + own)))


def _weight(samples: int, kept: float) -> float:
    return float(samples) if kept == 1 else (1 - kept**samples) / (1 - kept)
