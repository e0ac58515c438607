"""The same jobs live and simulated: how much faster they are with altruism than under DRF, in each.

Live, they are sleeping tasks on a cluster of this machine, at a scheduler of policy altruistic that is asked to be one
or the other. Simulated, the same allocator plays them on machines of as many slots, which are the only resource.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.flow.outcome import Target, at_most
from benchmarks.report import Report, Row
from loadgen.dags.live import LiveDags
from loadgen.jobs import WorkloadJob
from loadgen.point import PointPlan, PointResult, run_point
from loadgen.policies import ALTRUISTIC
from loadgen.targets import Shape
from scheduler.altruistic.dags import Dag, Group
from scheduler.altruistic.settings import settings_named
from simulator.dags.play import Arrival, play
from sparrow_py.errors import ClusterError

BASE, OURS = "drf", "altruistic"
APART_MAX = 0.1
"""Of the factors, live and simulated."""
Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Setup:
    """jobs: TPC-H's queries at several scales. task_min_s: how long the shortest tasks sleep. load: work that arrives
    over what the slots can do. wait_max_s: how long jobs may take after the last has come."""

    jobs: int
    task_min_s: float
    wait_max_s: float
    load: float
    nodes: int = 20
    slots: int = 5
    seed: int = 1

    @property
    def workload(self) -> LiveDags:
        return LiveDags(load=self.load, jobs=self.jobs, task_min_s=self.task_min_s)

    def made(self) -> list[WorkloadJob]:
        """Its jobs."""
        return list(self.workload.generate(self.seed, self.nodes, self.slots))


FULL = Setup(jobs=100, task_min_s=1.0, wait_max_s=450.0, load=2.0)
"""Two minutes of arrivals, and five in all, as simulated; ten at most. At a load of 1.2 little would tell the
schedulers apart (a simulated factor of 1.14)."""
QUICK = Setup(jobs=40, task_min_s=0.1, wait_max_s=30.0, load=3.0)


@dataclass(frozen=True)
class Played:
    """What came of the jobs under a scheduler. took_s: of each job, in order of arrival. notes: what must be known."""

    took_s: Vector
    scheduler_busy: float | None = None
    """Cores that the scheduler used on average."""
    lag_p95_s: float | None = None
    """From a job's submission to its arrival at the scheduler: how late that is with what it hears."""
    notes: tuple[str, ...] = ()


Play = Callable[[Setup, str], Played]


def simulated(setup: Setup, policy: str) -> Played:
    """On machines of as many slots."""
    machines = np.full((setup.nodes, 1), float(setup.slots))
    result = play([arrival_of(job) for job in setup.made()], machines, settings_named(policy), memory=None)
    return Played(result.completions_s)


def arrival_of(job: WorkloadJob) -> Arrival:
    """Each task takes a slot."""
    place = {stage.name: number for number, stage in enumerate(job.stages)}
    groups = [
        Group(stage.tasks, (1.0,), stage.expected_s or 0.0, tuple(place[name] for name in stage.after))
        for stage in job.stages
    ]
    return Arrival(job.arrival_s, str(job.number), Dag(groups), job.user)


def live(setup: Setup, policy: str) -> Played:
    """On a cluster that is started here."""
    shape = Shape(nodes=setup.nodes, slots=setup.slots, schedulers=1, leads=ALTRUISTIC, altruistic_policy=policy)
    plan = PointPlan(
        workload=setup.workload, load=setup.load, shape=shape, seed=setup.seed, wait_max_s=setup.wait_max_s,
        label=policy, policy=policy,
    )  # fmt: skip
    return played(run_point(0, plan))


def played(result: PointResult) -> Played:
    """What a live run has recorded; `ClusterError` if a job has not finished."""
    jobs, tasks, point = result.jobs, result.tasks, result.point
    unfinished = [status for status in jobs["status"].to_pylist() if status != "finished"]
    if unfinished:
        raise ClusterError(f"{len(unfinished)} of {len(jobs)} jobs have not finished: {', '.join(set(unfinished))}")
    submitted_s = dict(zip(jobs["job"].to_pylist(), jobs["submitted_s"].to_pylist(), strict=True))
    arrived_s = dict(zip(tasks["job"].to_pylist(), tasks["arrived_s"].to_pylist(), strict=True))
    lags_s = [arrived_s[job] - submitted_s[job] for job in submitted_s]
    notes = () if point.valid else (f"{point.label}: no measurement, {point.why_invalid}",)
    return Played(
        np.asarray(jobs["response_s"].to_numpy()),
        point.cpu_s.get("schedulers", 0.0) / max(point.lasted_s or 0.0, 1e-9),
        float(np.percentile(lags_s, 95)),
        notes,
    )


@dataclass(frozen=True)
class Compared:
    """By scheduler, what came of the same jobs live and simulated."""

    live: Mapping[str, Played]
    simulated: Mapping[str, Played]

    @staticmethod
    def factors(both: Mapping[str, Played]) -> Vector:
        """By job: how many times as long it took under DRF."""
        return both[BASE].took_s / both[OURS].took_s

    @property
    def apart(self) -> float:
        """How far the mean factors are from each other, as a part of the simulated one."""
        simulated = float(self.factors(self.simulated).mean())
        return abs(float(self.factors(self.live).mean()) - simulated) / simulated

    def rows(self) -> list[Row]:
        """A row for each way and scheduler."""
        return [
            {
                "way": way,
                "scheduler": policy,
                "mean s": f"{each.took_s.mean():.2f}",
                "p95 s": f"{np.percentile(each.took_s, 95):.2f}",
                "factor": f"{(both[BASE].took_s / each.took_s).mean():.3f}",
                "factor of means": f"{both[BASE].took_s.mean() / each.took_s.mean():.3f}",
                "scheduler's cores": "" if each.scheduler_busy is None else f"{each.scheduler_busy:.2f}",
                "lag p95 ms": "" if each.lag_p95_s is None else f"{1000 * each.lag_p95_s:.0f}",
            }
            for way, both in (("live", self.live), ("simulated", self.simulated))
            for policy, each in both.items()
        ]


def compared(setup: Setup, play_live: Play = live, policies: Sequence[str] = (BASE, OURS)) -> Compared:
    """Play the setup's jobs live and simulated, under each scheduler."""
    return Compared(
        {policy: play_live(setup, policy) for policy in policies},
        {policy: simulated(setup, policy) for policy in policies},
    )


def target(found: Compared, *, tells: bool) -> Target:
    """What was aimed at."""
    return at_most(f"factors live and simulated apart: {APART_MAX:.0%}", found.apart, APART_MAX, tells=tells)


def measure(setup: Setup) -> Report:
    """Both, side by side. Only the full setup tells whether they are near enough."""
    found = compared(setup)
    aimed = target(found, tells=setup.task_min_s >= FULL.task_min_s and setup.jobs >= FULL.jobs)
    targets: list[Row] = [{"target": aimed.text, "ours": aimed.ours, "verdict": aimed.verdict}]
    notes = [note for each in found.live.values() for note in each.notes]
    notes.append(
        f"{setup.jobs} of TPC-H's queries at a load of {setup.load:g} on {setup.nodes} nodes of {setup.slots} slots, "
        f"whose tasks sleep {setup.task_min_s:g} s at least. A scheduler that lags has too little of the machine: then "
        f"the live factor says what this machine did, not what the plane does."
    )
    ways = (found.live, found.simulated)
    repetitions = [{policy: each.took_s.tolist() for policy, each in both.items()} for both in ways]
    tables = {"live and simulated": found.rows(), "targets": targets}
    return Report("altruistic_live", found.apart, "of the simulated factor", tables, repetitions, notes)
