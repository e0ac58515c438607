"""What a workload of DAG jobs is like: the figures of tables 1 and 2 of paper 002, and how much work it brings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from loadgen.dags.dag_job import DagJob, DagStage
from loadgen.dags.paper_tables import DEPTH, TABLE, Spread
from loadgen.dags.resources import MACHINES, RESOURCES, shares

Column = NDArray[np.float64]
"""A number for each stage, or resource."""

WITHIN = 0.15
"""How far a figure of a generated workload may be from the paper's, as a part of that."""


@dataclass(frozen=True, slots=True)
class DagFigures:
    """Of all jobs. Spreads are among jobs, that of `duration_s` among tasks. depth: the median. dominant: by resource,
    the part of the work of tasks that demand more of it, as a share of the paper's machine, than of any other.
    load: what arrives over what `MACHINES` machines can do, by resource; None if all jobs arrive at once."""

    jobs: int
    stages: Spread
    barriers: Spread
    input_work: Spread
    depth: float
    tasks: Spread
    all_tasks: int
    duration_s: Spread
    critical_path_s: Spread
    dominant: dict[str, float]
    share: dict[str, Spread]
    load: dict[str, float] | None
    kinds: dict[str, KindFigures]


@dataclass(frozen=True, slots=True)
class KindFigures:
    """Of the tasks of stages of a kind: medians of seconds, and of what they demand. part: of all work."""

    part: float
    duration_s: float
    demand: dict[str, float]


def figures(jobs: Sequence[DagJob]) -> DagFigures:
    """The figures of at least one job."""
    stages = [stage for job in jobs for stage in job.stages]
    tasks = np.array([stage.tasks for stage in stages])
    work_s = np.array([stage.work_s for stage in stages])
    taken = np.array([shares(stage.demand) for stage in stages])
    most = np.bincount(taken.argmax(axis=1), work_s, len(RESOURCES)) / work_s.sum()
    return DagFigures(
        jobs=len(jobs),
        stages=_spread([len(job.stages) for job in jobs]),
        barriers=_spread([job.barriers for job in jobs]),
        input_work=_spread([job.input_work for job in jobs]),
        depth=float(np.median([job.depth for job in jobs])),
        tasks=_spread([job.tasks for job in jobs]),
        all_tasks=sum(job.tasks for job in jobs),
        duration_s=_spread_of_tasks(np.array([stage.duration_s for stage in stages]), tasks),
        critical_path_s=_spread([job.critical_path_s for job in jobs]),
        dominant=dict(zip(RESOURCES, most.tolist(), strict=True)),
        share={resource: _spread_of_tasks(taken[:, place], tasks) for place, resource in enumerate(RESOURCES)},
        load=_load(jobs, work_s @ taken),
        kinds={
            kind: _kind([stage for stage in stages if stage.kind == kind], float(work_s.sum()))
            for kind in sorted({stage.kind for stage in stages})
        },
    )


def beside_paper(found: DagFigures, workload: str) -> list[tuple[str, float, float | None]]:
    """(what, ours, the paper's) of the figures that the tables have; None where the paper has no such workload."""
    row = TABLE.get(workload)
    rows: list[tuple[str, float, float | None]] = []
    for name in ("stages", "barriers", "input_work"):
        ours: Spread = getattr(found, name)
        theirs: Spread | None = getattr(row, name) if row else None
        rows.append((f"{name} p50", ours.p50, theirs.p50 if theirs else None))
        rows.append((f"{name} p95", ours.p95, theirs.p95 if theirs else None))
    return [*rows, ("critical path p50", found.depth, float(DEPTH) if row else None)]


def _spread(values: Sequence[float]) -> Spread:
    p50, p95 = np.percentile(values, [50, 95])
    return Spread(float(p50), float(p95))


def _spread_of_tasks(values: Column, tasks: NDArray[np.int64]) -> Spread:
    """Among tasks, from a value for each stage."""
    order = np.argsort(values, kind="stable")
    below = np.cumsum(tasks[order])
    p50, p95 = values[order][np.searchsorted(below, [0.5 * below[-1], 0.95 * below[-1]])]
    return Spread(float(p50), float(p95))


def _kind(stages: Sequence[DagStage], work_s: float) -> KindFigures:
    tasks = np.array([stage.tasks for stage in stages])
    demand = {
        resource: _spread_of_tasks(np.array([stage.demand.get(resource, 0.0) for stage in stages]), tasks).p50
        for resource in RESOURCES
    }
    duration_s = _spread_of_tasks(np.array([stage.duration_s for stage in stages]), tasks).p50
    return KindFigures(sum(stage.work_s for stage in stages) / work_s, duration_s, demand)


def _load(jobs: Sequence[DagJob], machine_s: Column) -> dict[str, float] | None:
    """machine_s: by resource, how long one machine would be busy."""
    span_s = max(job.arrival_s for job in jobs) - min(job.arrival_s for job in jobs)
    if not span_s:
        return None
    return dict(zip(RESOURCES, (machine_s / (span_s * MACHINES)).tolist(), strict=True))
