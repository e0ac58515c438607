"""Simulations with several seeds, each run once for all tests of a process, and what they say with what confidence.

A claim is held to a 95 % confidence interval by Student's t over seeds. Policies are compared seed by seed: they meet
the same jobs, so a ratio is far more certain than what it is made of.

That takes several seeds. `cheaply()` has one, and of some cases fewer jobs; its mean stands for the interval: equal
seeds give equal runs, so whether a claim is seen to hold with that seed is no matter of luck.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from simulator.cluster import Cluster
from simulator.figures.catalogue import paper
from simulator.figures.intervals import Interval, interval
from simulator.figures.sweep import Point, compute
from simulator.policies import Settings
from simulator.simulate import Workload

SEEDS = range(1, 5)
SEEDS_CHEAP = range(1, 2)

_seeds = SEEDS

_known: dict[str, dict[str, Any]] = {}
"""What was measured, by the points' keys."""


@contextmanager
def cheaply() -> Iterator[None]:
    """Meanwhile, cases have one seed."""
    global _seeds  # noqa: PLW0603 (cases are made in many places, which need not know)
    _seeds = SEEDS_CHEAP
    try:
        yield
    finally:
        _seeds = SEEDS


def slack(confident: float, cheap: float) -> float:
    """How far from what is expected a mean may be: one seed says less than several."""
    return confident if _seeds is SEEDS else cheap


def size(confident: int, cheap: int) -> int:
    """How much is simulated with each seed."""
    return confident if _seeds is SEEDS else cheap


def some_seeds() -> range:
    """Those that do for a claim which is far from what chance could make."""
    return _seeds[:3]


@dataclass(frozen=True, kw_only=True)
class Case:
    """What is simulated with each seed."""

    cluster: Cluster
    workload: Workload
    policy: str = "sparrow"
    settings: Settings = field(default_factory=paper)
    seeds: range = field(default_factory=lambda: _seeds)

    def by_seed(self, measure: str) -> list[float]:
        """The measure (`simulator.figures.measures`) with each seed."""
        return [float(self._measured(seed)[measure]) for seed in self.seeds]

    def _measured(self, seed: int) -> dict[str, Any]:
        point = Point(
            cluster=self.cluster, workload=self.workload, policy=self.policy, settings=self.settings, seed=seed
        )
        if point.key not in _known:
            _known[point.key] = compute(point)
        return _known[point.key]


def mean(case: Case, measure: str) -> Interval:
    """The measure's mean over seeds."""
    return interval(case.by_seed(measure))


def ratio(above: Case, below: Case, measure: str = "response_p50_ms") -> Interval:
    """The mean over seeds of how many times as much the one has as the other."""
    return interval([a / b for a, b in zip(above.by_seed(measure), below.by_seed(measure), strict=True)])
