"""Sampling and the central scheduler, by the load generator: a fresh cluster for each duration."""

from __future__ import annotations

from benchmarks.shortest_task.load import WAIT_MAX_S, Load, Measured
from loadgen.point import PointPlan, run_point
from loadgen.presets import Size, regular
from loadgen.targets import CENTRAL, Shape


def run_ours(placement: str, load: Load, schedulers: int) -> Measured:
    """The point of the preset fig13 at this load. Node monitors run the tasks themselves, as Dask's threads do."""
    size = Size(load.nodes, load.slots, load.load, load.duration_ms, load.seconds, load.jobs)
    plan = PointPlan(
        workload=regular(size),
        load=load.load,
        shape=Shape(
            nodes=load.nodes,
            slots=load.slots,
            schedulers=1 if placement == CENTRAL else schedulers,
            placement=placement,
        ),
        duration_ms=load.duration_ms,
        wait_max_s=WAIT_MAX_S,
    )
    point = run_point(0, plan).point
    figures = point.figures
    unended, p95 = figures["jobs_unfinished"], figures["p95"]
    return Measured(
        load.duration_ms,
        figures["value"],
        None if p95 is None else p95 / load.duration_ms,
        figures["jobs_measured"] + unended,
        unended,
        point.why_invalid,
    )
