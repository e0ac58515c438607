"""TPC-H's queries as jobs of stages for a live cluster: tasks that sleep, for a tenth of the time or so, and so many
times fewer of them that all tasks of any stage can run at once. What tasks demand besides a slot is left out.
"""

from __future__ import annotations

import math
import random
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice

from loadgen.arrivals import Rates, poisson
from loadgen.dags.arriving import at_once
from loadgen.dags.dag_job import DagJob
from loadgen.dags.tpch_jobs import START_S, TpchJobs
from loadgen.jobs import WorkloadJob, WorkloadStage
from loadgen.mix import LOAD_MAX
from sparrow_py.errors import InvalidOption

TASK_MIN_S = 0.1
"""How long the shortest tasks sleep: the altruistic plane is for such that last for so long and longer."""
TASK_MIN_S_MAX = 1e6


@dataclass(frozen=True, kw_only=True)
class LiveDags:
    """Jobs that arrive as a Poisson process.

    load: work that arrives over what the slots can do, on average over all queries. task_min_s: how long the shortest
    tasks sleep; all are shortened alike.
    """

    load: float
    jobs: int
    task_min_s: float = TASK_MIN_S
    queries: TpchJobs = field(default_factory=TpchJobs)

    def __post_init__(self) -> None:
        if not 0 < self.load <= LOAD_MAX:
            raise InvalidOption("load", self.load, f"a number above 0, at most {LOAD_MAX:g}")
        if not 0 < self.task_min_s <= TASK_MIN_S_MAX:
            raise InvalidOption("task_min_s", self.task_min_s, f"seconds above 0, up to {TASK_MIN_S_MAX:g}")

    def jobs_per_s(self, slots: int) -> float:
        """How many arrive a second, on a cluster of so many slots."""
        narrower = self._narrower(slots)
        return self.load * slots / _mean([self._work_s(job, narrower) for job in self._kinds])

    def generate(self, seed: int, nodes: int, slots: int) -> Iterator[WorkloadJob]:
        """The jobs in order of arrival, for a cluster of `nodes` × `slots`."""
        of_cluster = nodes * slots
        rng = random.Random(f"{seed} live dags arrivals")
        times = list(islice(poisson(rng, self.jobs_per_s(of_cluster), Rates()), self.jobs))
        narrower = self._narrower(of_cluster)
        for number, job in enumerate(self.queries.generate(seed, times)):
            yield self._job(number, job, narrower)

    @cached_property
    def _kinds(self) -> list[DagJob]:
        """A job of each kind."""
        count = len(self.queries.profile.queries) * len(self.queries.scales)
        return list(self.queries.generate(0, at_once(count)))

    def _narrower(self, slots: int) -> float:
        """How many times fewer tasks stages have."""
        return max(1.0, max(stage.tasks for job in self._kinds for stage in job.stages) / slots)

    def _work_s(self, job: DagJob, narrower: float) -> float:
        return sum(_tasks(stage.tasks, narrower) * self._sleep_s(stage.duration_s) for stage in job.stages)

    def _sleep_s(self, duration_s: float) -> float:
        return round(duration_s * self.task_min_s / START_S, 6)

    def _job(self, number: int, job: DagJob, narrower: float) -> WorkloadJob:
        names = [f"{place} {stage.kind}" for place, stage in enumerate(job.stages)]
        stages, durations_s = [], array("d")
        for name, stage in zip(names, job.stages, strict=True):
            tasks, sleep_s = _tasks(stage.tasks, narrower), self._sleep_s(stage.duration_s)
            stages.append(WorkloadStage(name, tuple(names[parent] for parent in stage.parents), tasks, sleep_s))
            durations_s.extend([sleep_s] * tasks)
        query = job.label.partition(" at ")[0]
        return WorkloadJob(number, job.arrival_s, job.user, durations_s, stages=tuple(stages), label=query)


def _tasks(tasks: int, narrower: float) -> int:
    return math.ceil(tasks / narrower - 1e-9)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
