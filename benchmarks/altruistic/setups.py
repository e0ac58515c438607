"""Runs: a workload on a simulated cluster, from one seed, under one scheduler."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.paper.runs import Measured
from loadgen.dags.arriving import as_poisson, at_once
from loadgen.dags.dag_job import DagJob
from loadgen.dags.generators import WORKLOADS
from loadgen.dags.map_reduce import MapReduceMix
from loadgen.dags.paper_tables import TPCH
from loadgen.dags.resources import RESOURCES
from loadgen.dags.tpch_jobs import TpchJobs
from loadgen.dags.tpch_profile import PROFILE, read_tpch_dags
from scheduler.altruistic.settings import settings_named
from simulator.dags.arrivals import MEMORY, arrival_of
from simulator.dags.leftovers import Leftovers
from simulator.dags.one_job import OneJob
from simulator.dags.play import Arrival, Result, play
from simulator.dags.watching import Watcher

MAP_REDUCE = "map-reduce"
BASE = "drf"
"""The scheduler with which the others are compared, job by job."""
WATCHED_FROM_S = 300.0
"""One job that arrives then or later is watched (figure 8)."""
WATCHED_EVERY_S = 10.0
LOOK_EVERY_S = 60.0
"""At what jobs could yield (§2.2)."""
LOOKED_AT, LOOKED_AT_SEEDS = ("drf", "altruistic"), 5

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Run:
    """mean_s: between arrivals; 0: all at once. machines: of the paper's kind. misestimate: X of §5.4.

    Samples: `completion_s` of each job, in order of arrival; of DRF the jobs' `rank` by work, 0 the least; of online
    runs without misestimates, of seed 0, how many tasks of one job are `running`, and `lent` room."""

    workload: str
    jobs: int
    machines: int
    seed: int
    mean_s: float = 0.0
    scheduler: str = "altruistic"
    misestimate: float = 0.0

    @property
    def settings(self) -> dict[str, Any]:
        """What tells it from others."""
        return asdict(self)

    def measure(self) -> Measured:
        """Play it."""
        arrivals = [arrival_of(job) for job in self.made()]
        machines = np.ones((self.machines, len(RESOURCES)))
        one, leftovers = OneJob(self.watched(arrivals), WATCHED_EVERY_S), Leftovers(LOOK_EVERY_S)
        watchers = self._watchers(one, leftovers)
        began_s = time.process_time()
        result = play(
            arrivals, machines, settings_named(self.scheduler), seed=self.seed, misestimate=self.misestimate,
            memory=MEMORY, watchers=watchers,
        )  # fmt: skip
        figures = _figures(result) | {"cpu_us_per_task": 1e6 * (time.process_time() - began_s) / result.events}
        samples = {"completion_s": [round(float(took_s), 2) for took_s in result.completions_s]}
        if leftovers in watchers:
            figures |= _of_leftovers(leftovers)
        if one in watchers:
            samples |= {
                "running": [float(tasks) for tasks in one.running],
                "lent": [float(tasks) for tasks in one.lent],
            }
        if self.scheduler == BASE:
            samples["rank"] = _ranks(arrivals)
        return Measured({name: round(float(value), 4) for name, value in figures.items()}, samples=samples)

    def made(self) -> list[DagJob]:
        """Its jobs."""
        times = as_poisson(self.seed, self.jobs, self.mean_s) if self.mean_s else at_once(self.jobs)
        if self.workload == TPCH:
            return list(TpchJobs(profile=read_tpch_dags(PROFILE)).generate(self.seed, times))
        if self.workload == MAP_REDUCE:
            return list(MapReduceMix().generate(self.seed, times))
        return list(WORKLOADS[self.workload].generate(self.seed, times))

    def watched(self, arrivals: list[Arrival]) -> str:
        """The first that comes when the cluster is well at work, and has more work and stages than half of all; the
        largest if there is none."""
        work = [float(arrival.dag.work.max()) for arrival in arrivals]
        stages = [len(arrival.dag.groups) for arrival in arrivals]
        for arrival, own, many in zip(arrivals, work, stages, strict=True):
            if arrival.at_s >= WATCHED_FROM_S and own > np.median(work) and many > np.median(stages):
                return arrival.name
        return arrivals[int(np.argmax(work))].name

    def _watchers(self, one: OneJob, leftovers: Leftovers) -> list[Watcher]:
        """Those that do not cost much beside the run."""
        watchers: list[Watcher] = []
        if self.mean_s and not self.misestimate:
            if self.scheduler in LOOKED_AT and self.seed < LOOKED_AT_SEEDS:
                watchers.append(leftovers)
            if not self.seed:
                watchers.append(one)
        return watchers


def _ranks(arrivals: list[Arrival]) -> list[float]:
    order = np.argsort([float(arrival.dag.work.max()) for arrival in arrivals], kind="stable")
    ranks = np.empty(len(order))
    ranks[order] = np.arange(len(order))
    return [float(rank) for rank in ranks]


def _figures(result: Result) -> dict[str, float]:
    took_s = result.completions_s
    found = {"mean_s": float(took_s.mean()), "makespan_s": result.makespan_s}
    found |= {f"p{q}_s": float(np.percentile(took_s, q)) for q in (50, 75, 95)}
    windows = result.windows
    if windows.by_entitlement:
        found |= {"jain": float(np.mean(windows.by_entitlement)), "jain_raw": float(np.mean(windows.by_usage))}
        found |= {"jain_min": min(windows.by_entitlement), "jain_max": max(windows.by_entitlement)}
    late = np.array([job.late for job in result.jobs.values()])
    found |= {"late": float((late > 0).mean()), "unfit": float(result.unfit), "kills": float(result.kills)}
    return found | {f"busy_{name}": float(part) for name, part in zip(RESOURCES, result.busy, strict=True)}


def _of_leftovers(leftovers: Leftovers) -> dict[str, float]:
    parts, waiting = leftovers.parts(), leftovers.waiting_parts()
    names = [name.removesuffix("_per_s").removesuffix("_bytes") for name in RESOURCES]
    found = {f"leftover_{name}": float(part) for name, part in zip(names, np.median(parts, axis=0), strict=True)}
    found |= {"leftover": float(np.median(parts.mean(axis=1))), "could_wait": float(np.median(waiting.mean(axis=1)))}
    found["leftover_20"] = float((parts.mean(axis=1) >= 0.2).mean())
    shapes = ("with_stages", "with_barriers", "with_paths")
    return found | dict(zip(shapes, leftovers.correlations(), strict=True))
