"""When the jobs of a workload arrive: all at once, as a Poisson process, or when those of another workload do."""

from __future__ import annotations

import random
from collections.abc import Iterable
from itertools import islice

from loadgen.arrivals import Rates, poisson
from loadgen.dags.dag_job import DURATION_S_MAX, DagJob
from sparrow_py.errors import InvalidOption

MEAN_S = 20.0
"""Between two arrivals (paper 002, §5.1)."""


def at_once(count: int) -> list[float]:
    """All at the beginning: the paper's offline case."""
    return [0.0] * count


def as_poisson(seed: int, count: int, mean_s: float = MEAN_S) -> list[float]:
    """So many seconds apart on average, from 0 on."""
    if not 0 < mean_s <= DURATION_S_MAX:
        raise InvalidOption("mean_s", mean_s, f"seconds above 0, up to {DURATION_S_MAX:g}")
    times = poisson(random.Random(f"{seed} dags arrivals"), 1 / mean_s, Rates())
    return list(islice(times, count))


def as_of(jobs: Iterable[DagJob], count: int) -> list[float]:
    """When the first jobs of another workload arrive."""
    times = [job.arrival_s for job in islice(jobs, count)]
    if len(times) < count:
        raise InvalidOption(
            "arrivals", f"{len(times):,} jobs", f"a workload of at least {count:,}, as many as are made"
        )
    return times
