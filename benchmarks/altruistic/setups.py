"""Runs: a workload on a simulated cluster, from one seed, under several schedulers."""

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
from simulator.dags.play import Result, play

MAP_REDUCE = "map-reduce"
BASE = "drf"
"""The scheduler with which the others are compared, job by job."""
SAME = 0.01
"""A job is slower if it takes so much longer."""

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Run:
    """mean_s: between arrivals; 0: all at once. machines: of the paper's kind. misestimate: X of §5.4."""

    workload: str
    jobs: int
    machines: int
    seed: int
    mean_s: float = 0.0
    schedulers: tuple[str, ...] = ("drf", "tetris", "altruistic", "srtf", "sjf")
    misestimate: float = 0.0

    @property
    def settings(self) -> dict[str, Any]:
        """What tells it from others."""
        return asdict(self) | {"schedulers": list(self.schedulers)}

    def measure(self) -> Measured:
        """Play it under each scheduler."""
        jobs = self._jobs()
        figures: dict[str, float] = {}
        base: Vector | None = None
        for name in self.schedulers:
            began_s = time.process_time()
            result = play(
                [arrival_of(job) for job in jobs], np.ones((self.machines, len(RESOURCES))), settings_named(name),
                seed=self.seed, misestimate=self.misestimate, memory=MEMORY,
            )  # fmt: skip
            took_s = time.process_time() - began_s
            if name == BASE:
                base = result.completions_s
            found = _figures(result, base) | {"cpu_us_per_task": 1e6 * took_s / result.events}
            figures |= {f"{name}.{figure}": round(value, 4) for figure, value in found.items()}
        return Measured(figures)

    def _jobs(self) -> list[DagJob]:
        times = as_poisson(self.seed, self.jobs, self.mean_s) if self.mean_s else at_once(self.jobs)
        if self.workload == TPCH:
            return list(TpchJobs(profile=read_tpch_dags(PROFILE)).generate(self.seed, times))
        if self.workload == MAP_REDUCE:
            return list(MapReduceMix().generate(self.seed, times))
        return list(WORKLOADS[self.workload].generate(self.seed, times))


def _figures(result: Result, base: Vector | None) -> dict[str, float]:
    took_s = result.completions_s
    found = {"mean_s": float(took_s.mean()), "makespan_s": result.makespan_s}
    found |= {f"p{q}_s": float(np.percentile(took_s, q)) for q in (50, 75, 95)}
    windows = result.windows
    if windows.by_entitlement:
        found |= {"jain": float(np.mean(windows.by_entitlement)), "jain_raw": float(np.mean(windows.by_usage))}
        found |= {"jain_min": min(windows.by_entitlement), "jain_max": max(windows.by_entitlement)}
    if base is not None:
        factor = base / took_s
        found |= {"factor_of_means": float(base.mean() / took_s.mean()), "factor": float(factor.mean())}
        found |= {f"factor_p{q}": float(np.percentile(factor, q)) for q in (50, 75, 95)}
        found |= {"slower": float((factor < 1 - SAME).mean()), "below_0.8": float((factor < 0.8).mean())}
        found["worst"] = float(factor.min())
    late = np.array([job.late for job in result.jobs.values()])
    found |= {"late": float((late > 0).mean()), "unfit": float(result.unfit), "kills": float(result.kills)}
    return found | {f"busy_{name}": float(part) for name, part in zip(RESOURCES, result.busy, strict=True)}
