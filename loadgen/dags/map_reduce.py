"""Mixes of map-reduce jobs: like those of Facebook's cluster in paper 002, of which a good part only maps (§5.3)."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from loadgen.dags.dag_job import DagJob, DagStage
from loadgen.dags.demands import draw_demand
from loadgen.dags.generators import DURATION_S, DURATION_S_MAX, DURATION_S_MIN, JOBS_MAX, USERS_MAX
from loadgen.dags.operators import AGGREGATE, SCAN
from loadgen.dags.paper_tables import Spread
from loadgen.dags.strata import NORMAL, lognormal, normals
from sparrow_py.errors import InvalidOption

LABEL = "map-reduce"
PAPER_JOBS, PAPER_TASKS, PAPER_SECONDS = 7_000, 650_000, 6 * 3600.0
"""Of the paper's trace (§5.1)."""
TASKS = Spread(12, 370)
"""Of a job: as many on average as in the paper's trace, most jobs being small."""
TASKS_MAX = 5_000
"""Of a job."""
REDUCES = 0.25
"""Reduce tasks for each map task."""


@dataclass(frozen=True, kw_only=True)
class MapReduceMix:
    """Jobs that map, and mostly reduce then. map_only: the part of them that does not reduce. users: who submit jobs
    in turn."""

    map_only: float = 0.4
    users: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.map_only <= 1:
            raise InvalidOption("map_only", self.map_only, "a part from 0 to 1")
        if not 1 <= self.users <= USERS_MAX:
            raise InvalidOption("users", self.users, f"a whole number from 1 to {USERS_MAX}")

    def generate(self, seed: int, arrivals_s: Sequence[float]) -> Iterator[DagJob]:
        """A job for each arrival; equal seeds give equal jobs."""
        count = len(arrivals_s)
        if not 1 <= count <= JOBS_MAX:
            raise InvalidOption("jobs", f"{count:,}", f"a whole number from 1 to {JOBS_MAX:,}")
        rng = random.Random(f"{seed} dags {LABEL}")
        drawn = zip(arrivals_s, normals(rng, count), normals(rng, count), strict=True)
        for number, (arrival_s, size, kind) in enumerate(drawn):
            tasks = min(TASKS_MAX, max(1, round(lognormal(TASKS, size))))
            stages = _stages(rng, tasks, only_maps=tasks < 2 or NORMAL.cdf(kind) < self.map_only)
            yield DagJob(f"{LABEL}-{number}", arrival_s, stages, f"user{number % self.users}", LABEL)


def _stages(rng: random.Random, tasks: int, *, only_maps: bool) -> tuple[DagStage, ...]:
    if only_maps:
        return (_stage(rng, tasks, SCAN, ()),)
    maps = max(1, math.floor(tasks / (1 + REDUCES)))
    return _stage(rng, maps, SCAN, ()), _stage(rng, tasks - maps, AGGREGATE, (0,))


def _stage(rng: random.Random, tasks: int, kind: str, parents: tuple[int, ...]) -> DagStage:
    duration_s = max(DURATION_S_MIN, min(DURATION_S_MAX, lognormal(DURATION_S, rng.gauss(0.0, 1.0))))
    return DagStage(tasks, round(duration_s, 3), draw_demand(rng, kind), parents, kind)
