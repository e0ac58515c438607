"""Made-up DAG jobs that are like those of a workload of paper 002, as far as its tables 1 and 2 say how those are.

Stages, barriers and input work have the table's medians and 95th percentiles, and jobs with many stages have many
barriers and long paths. How many tasks stages have, how long these take and what they demand, the paper does not say;
jobs last some minutes when they are alone (§5.1), and a job each 20 s keeps 100 machines well busy.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from loadgen.dags import shapes
from loadgen.dags.dag_job import DagJob, DagStage
from loadgen.dags.demands import draw_demand, kind_of
from loadgen.dags.paper_tables import BIGBENCH, PRODUCTION, TABLE, TPCDS, PaperRow, Spread
from loadgen.dags.strata import logit_normal, lognormal, normals, together
from sparrow_py.errors import InvalidOption

JOBS_MAX = 1_000_000
USERS_MAX = 10_000
STAGES_MIN = 2
STAGES_TIMES_P95_MAX = 4
"""No job has more stages than so many times the 95th percentile."""
TASKS_MAX = 20_000
"""Of a generated job, about: work beyond that makes its tasks longer."""
CORRELATION = 0.9
"""Of barriers, and of the longest path, with the number of stages."""
DURATION_S = Spread(14.0, 60.0)
"""Of tasks."""
DURATION_S_MIN, DURATION_S_MAX = 1.0, 300.0
WEIGHT_SPREAD = 0.8
"""σ of the logarithm of a stage's part of the work."""
LAST_WEIGHT = 0.2
"""What a job's last stage does of the work, beside its others: it puts together what they left."""
INPUT_WORK_MIN = 0.005


@dataclass(frozen=True, kw_only=True)
class DagLike:
    """Jobs like those of a workload of the paper.

    label: of the jobs. row: the workload's numbers of table 1. depth: of the longest path, in stages. work_s: of a job,
    of all its tasks together, at the row's median of stages; it grows with the root of their number. users: who submit
    jobs in turn.
    """

    label: str
    row: PaperRow
    depth: Spread
    work_s: Spread
    users: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.users <= USERS_MAX:
            raise InvalidOption("users", self.users, f"a whole number from 1 to {USERS_MAX}")

    def generate(self, seed: int, arrivals_s: Sequence[float]) -> Iterator[DagJob]:
        """A job for each arrival; equal seeds give equal jobs."""
        count = len(arrivals_s)
        if not 1 <= count <= JOBS_MAX:
            raise InvalidOption("jobs", f"{count:,}", f"a whole number from 1 to {JOBS_MAX:,}")
        rng = random.Random(f"{seed} dags {self.label}")
        drawn = zip(*(normals(rng, count) for _ in range(5)), strict=True)
        for number, (arrival_s, (size, barriers, depth, work, input_work)) in enumerate(
            zip(arrivals_s, drawn, strict=True)
        ):
            parents = self._shape(rng, size, together(size, barriers, CORRELATION), together(size, depth, CORRELATION))
            work_s = lognormal(self.work_s, work) * math.sqrt(len(parents) / self.row.stages.p50)
            share = max(INPUT_WORK_MIN, min(1 - INPUT_WORK_MIN, logit_normal(self.row.input_work, input_work)))
            stages = _stages(rng, parents, work_s, share)
            yield DagJob(f"{self.label}-{number}", arrival_s, stages, f"user{number % self.users}", self.label)

    def _shape(self, rng: random.Random, size: float, barriers: float, depth: float) -> shapes.Parents:
        most = STAGES_TIMES_P95_MAX * int(self.row.stages.p95)
        return shapes.draw(
            rng,
            max(STAGES_MIN, min(most, round(lognormal(self.row.stages, size)))),
            round(lognormal(self.row.barriers, barriers)),
            max(2, round(lognormal(self.depth, depth))),
        )


def _stages(rng: random.Random, parents: shapes.Parents, work_s: float, input_work: float) -> tuple[DagStage, ...]:
    """Stages that together do this work, this part of it where input is read."""
    last = len(parents) - 1
    weights = [
        math.exp(rng.gauss(0.0, WEIGHT_SPREAD)) * (LAST_WEIGHT if index == last else 1.0) for index in range(last + 1)
    ]
    of_input = sum(weight for weight, above in zip(weights, parents, strict=True) if not above)
    of_others = sum(weights) - of_input
    stages = []
    for index, (weight, above) in enumerate(zip(weights, parents, strict=True)):
        part = (1 - input_work) * weight / of_others if above else input_work * weight / of_input
        tasks, duration_s = _tasks(rng, part * work_s, TASKS_MAX * part)
        kind = kind_of(len(above), index == last)
        stages.append(DagStage(tasks, duration_s, draw_demand(rng, kind), above, kind))
    return tuple(stages)


def _tasks(rng: random.Random, work_s: float, most: float) -> tuple[int, float]:
    """How many tasks do this work, and how long each takes."""
    wanted_s = max(DURATION_S_MIN, min(DURATION_S_MAX, lognormal(DURATION_S, rng.gauss(0.0, 1.0))))
    tasks = max(1, min(round(work_s / wanted_s), int(most)))
    return tasks, max(0.001, round(work_s / tasks, 3))


WORKLOADS = {
    TPCDS: DagLike(label=TPCDS, row=TABLE[TPCDS], depth=Spread(5, 8), work_s=Spread(13_000, 80_000)),
    BIGBENCH: DagLike(label=BIGBENCH, row=TABLE[BIGBENCH], depth=Spread(5.5, 8), work_s=Spread(13_000, 80_000)),
    PRODUCTION: DagLike(label=PRODUCTION, row=TABLE[PRODUCTION], depth=Spread(5, 8), work_s=Spread(9_000, 80_000)),
}
"""By name."""
