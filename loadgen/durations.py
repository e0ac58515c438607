"""Distributions of service times.

Draws use Python's own generator and are rounded to whole nanoseconds: the same seed gives the same times on every
machine, though its mathematical library may differ in the last bit.
"""

from __future__ import annotations

import math
import random
from array import array
from dataclasses import dataclass

from sparrow_py.errors import InvalidOption

KINDS = ("constant", "exponential", "pareto")
PER = ("task", "job")


@dataclass(frozen=True, slots=True)
class Durations:
    """How long tasks take.

    kind: one of `KINDS`.
    mean_ms: the mean, in milliseconds.
    alpha: tail index of "pareto" (above 1; the smaller, the heavier the tail; from 2 down the variance is infinite).
    per: "task" draws each task's time, "job" draws one for all tasks of a job.
    """

    kind: str = "exponential"
    mean_ms: float = 100.0
    alpha: float = 1.5
    per: str = "task"

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InvalidOption("service", self.kind, ", ".join(KINDS))
        if self.per not in PER:
            raise InvalidOption("per", self.per, " or ".join(PER))
        if not 0 < self.mean_ms <= 1e9:
            raise InvalidOption("mean_ms", self.mean_ms, "a number above 0, at most 1e9")
        if not 1 < self.alpha <= 1e6:
            raise InvalidOption("alpha", self.alpha, "a number above 1 (else the mean is infinite)")

    def draw(self, rng: random.Random, count: int) -> array[float]:
        """Service times in seconds of a job's `count` tasks, drawn from `rng`."""
        if self.per == "job":
            return array("d", [self._one_s(rng)]) * count
        return array("d", [self._one_s(rng) for _ in range(count)])

    def _one_s(self, rng: random.Random) -> float:
        mean_s = self.mean_ms / 1000
        if self.kind == "constant":
            return mean_s
        uniform = 1.0 - rng.random()  # In (0, 1].
        if self.kind == "exponential":
            return round(-math.log(uniform) * mean_s, 9)
        return round(mean_s * (self.alpha - 1) / self.alpha * float(uniform ** (-1 / self.alpha)), 9)
