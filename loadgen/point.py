"""A point: one replay of a workload against a cluster, and the measurements from it."""

from __future__ import annotations

import math
import tempfile
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from loadgen.audit import Audit, read_audit_logs
from loadgen.generators import Replayed, replay_in_processes
from loadgen.job_records import WRONG_ANSWER
from loadgen.jobs import WorkloadJob
from loadgen.lateness import lateness, why_starved, why_too_late
from loadgen.measures import figures
from loadgen.policies import check_policy, leads, stated
from loadgen.queries import Measured, PreparedQueries, Queries
from loadgen.recorded import Point
from loadgen.replay import Plan, Progress
from loadgen.tables import events_table, jobs_table, tasks_table
from loadgen.targets import SPARROW, ExistingTarget, LocalTarget, Shape, Target, counters
from sparrow_py.errors import InvalidOption
from sparrow_py.job import PROBE_RATIO_DEFAULT, check_number

APPS = ("sleep", "spin")
GENERATORS_MAX = 64
TASKS_MAX = 10_000_000
"""Tasks of a point; a record of each is kept."""
WAIT_MAX_S = 60.0


class Workload(Protocol):
    """Jobs that arrive: `Synthetic`, `Mix`, `Trace`, `TpchLike`, or any class with the same method."""

    def generate(self, seed: int, nodes: int, slots: int) -> Iterator[WorkloadJob]:
        """The jobs in order of arrival."""


@dataclass(frozen=True, kw_only=True)
class PointPlan:
    """The jobs of a point, and the cluster for them.

    workload: the jobs, for a cluster of the shape's size. load: the load that they bring, as the user stated it. shape:
    of the cluster that is started, or None for the one at `schedulers`. app: of the tasks, "sleep" (they occupy a slot)
    or "spin" (they use a CPU). generators: the number of processes that submit. wait_max_s: how long jobs may take
    after the last arrival. settings: further settings that are needed to reproduce the point. policy: that all jobs
    state, but for queries; or a scheduler of the altruistic plane, and they state that (`policies`).
    """

    workload: Workload | Queries
    load: float
    shape: Shape | None = field(default_factory=Shape)
    schedulers: tuple[str, ...] = ()
    probe_ratio: float = PROBE_RATIO_DEFAULT
    duration_ms: float | None = None
    app: str = "sleep"
    generators: int = 1
    seed: int = 1
    wait_max_s: float = WAIT_MAX_S
    label: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    policy: str = ""

    def __post_init__(self) -> None:
        check_number("probe_ratio", self.probe_ratio, 1, 1000)
        if self.app not in APPS:
            raise InvalidOption("app", self.app, " or ".join(APPS))
        if self.policy:
            check_policy(self.policy)
        if not 1 <= self.generators <= GENERATORS_MAX:
            raise InvalidOption("generators", self.generators, f"a whole number from 1 to {GENERATORS_MAX}")
        if not 0 <= self.wait_max_s <= 1e6:
            raise InvalidOption("wait_max_s", self.wait_max_s, "seconds from 0 to 1e6")

    def jobs(self, nodes: int, slots: int) -> list[WorkloadJob]:
        """The jobs; `InvalidOption` if there are no jobs or too many tasks, or a stage has more tasks than the cluster
        has slots. Of queries there are none before their cluster has run each alone, and their stages run in turns."""
        if isinstance(self.workload, Queries):
            self.workload.check()
            return []
        jobs: list[WorkloadJob] = []
        tasks = 0
        for job in self.workload.generate(self.seed, nodes, slots):
            jobs.append(job)
            tasks += len(job.durations_s)
            if tasks > TASKS_MAX:
                raise InvalidOption("workload", f"more than {TASKS_MAX} tasks", f"at most {TASKS_MAX} tasks a point")
        if not jobs:
            raise InvalidOption("workload", "no jobs", "at least one job in the time given")
        widest = max(stage.tasks for job in jobs for stage in job.as_stages())
        if widest > nodes * slots:
            cluster = f"{nodes} × {slots} = {nodes * slots} slots"
            raise InvalidOption(
                "nodes", cluster, f"at least {widest} slots, for a stage of {widest} tasks to run at once"
            )
        return jobs


@dataclass(frozen=True)
class PointResult:
    """The measurements: the point, and its rows of the tables of `loadgen.recorded`."""

    point: Point
    jobs: pa.Table
    tasks: pa.Table
    events: pa.Table


Show = Callable[[list[Progress]], None]


def run_point(
    number: int, plan: PointPlan, show: Show = lambda _: None, measured: Measured | None = None
) -> PointResult:
    """Run a point, and call `show` with its progress now and then. measured: what queries took alone at earlier points
    of the run; what is missing is added."""
    with tempfile.TemporaryDirectory(prefix="sparrow-loadgen-") as directory:
        return _run(number, plan, Path(directory), show, {} if measured is None else measured)


def _run(number: int, plan: PointPlan, directory: Path, show: Show, measured: Measured) -> PointResult:
    if plan.shape is not None:
        jobs = plan.jobs(plan.shape.nodes, plan.shape.slots)  # An invalid plan fails before a cluster is started.
        target: Target = LocalTarget(plan.shape, directory)
    else:
        target = ExistingTarget(plan.schedulers)
        jobs = plan.jobs(len(target.nodes), target.slots)
    with target:
        prepared = None
        if isinstance(plan.workload, Queries):
            prepared = plan.workload.prepare(target.addresses, target.nodes, target.slots, plan.seed, measured)
            jobs, plan = prepared.jobs, replace(plan, settings=plan.settings | prepared.settings)
        before_s = target.waited_s()
        replayed, counts, cpu_s = _replay(target, plan, jobs, prepared, show)
        waited_s = _longest(before_s, target.waited_s()) if leads(plan.policy) else None
    audit = read_audit_logs(target.audit_logs())
    return _result(number, plan, target, jobs, replayed, audit, counts, cpu_s, waited_s)


def _longest(before_s: list[float] | None, after_s: list[float] | None) -> float | None:
    """How long that scheduler waited between these two that waited for longest."""
    if not before_s or not after_s:
        return None
    return max(after - before for before, after in zip(before_s, after_s, strict=True))


def _replay(
    target: Target,
    plan: PointPlan,
    jobs: Sequence[WorkloadJob],
    prepared: PreparedQueries | None,
    show: Show,
) -> tuple[Replayed, dict[str, int], dict[str, float]]:
    """Replay the jobs; also returns the schedulers' counts and the CPU time of the replay."""
    before: list[Any] = []
    generators = min(plan.generators, len(jobs))
    query_jobs = None if prepared is None else prepared.query_jobs
    run, policy = uuid.uuid4().hex[:12], stated(plan.policy)
    details = Plan(run, plan.app, plan.probe_ratio, target.nodes, plan.wait_max_s, query_jobs, policy)

    def begun() -> None:
        before.extend((counters(target.addresses), target.cpu_s()))

    replayed = replay_in_processes(target.addresses, jobs, details, generators, begun, show)
    counted, used = counters(target.addresses), target.cpu_s()
    counts = {name: count - before[0][name] for name, count in counted.items()}
    cpu_s = {kind: round(used_s - before[1][kind], 3) for kind, used_s in used.items()}
    return replayed, counts, cpu_s | {"generators": round(replayed.cpu_s, 3)}


def _result(
    number: int,
    plan: PointPlan,
    target: Target,
    jobs: list[WorkloadJob],
    replayed: Replayed,
    audit: Audit,
    counts: dict[str, int],
    cpu_s: dict[str, float],
    waited_s: float | None,
) -> PointResult:
    records, start_s = replayed.records, replayed.start_s
    of_jobs = jobs_table(number, jobs, records, start_s, audit)
    of_tasks = tasks_table(number, jobs, records, start_s, audit)
    statuses = Counter(record.status for record in records)
    counts = {"jobs": len(jobs), "tasks": len(of_tasks), **counts, "refused_jobs": statuses["refused"]}
    counts |= {f"{status}_jobs": statuses[status] for status in ("failed", "cancelled", "lost") if statuses[status]}
    measured = np.asarray(of_jobs["measured"])
    late_s = (np.asarray(of_jobs["submitted_s"]) - np.asarray(of_jobs["due_s"]))[measured]
    why_invalid = why_too_late(late_s, np.asarray(of_jobs["ideal_s"])[measured])
    wrong = sum(record.error == WRONG_ANSWER for record in records)
    if wrong:
        counts["wrong_answers"] = wrong
        why_invalid = f"{wrong} queries had another answer than when they ran alone"
    if audit.dropped:
        why_invalid = why_invalid or f"the schedulers' audit logs miss {audit.dropped} lines: the disk was too slow"
    ends_s = [ended_s for ended_s in (record.ended_s for record in records) if not math.isnan(ended_s)]
    lasted_s = round(max(ends_s, default=start_s) - start_s, 3)
    why_invalid = why_invalid or why_starved(waited_s, lasted_s)
    point = Point(
        point=number,
        label=plan.label,
        settings=_settings(plan, target),
        valid=not why_invalid,
        why_invalid=why_invalid,
        late=lateness(late_s),
        counts=counts,
        cpu_s=cpu_s,
        lasted_s=lasted_s,
    )
    slots = len(target.nodes) * target.slots
    point.figures = figures(of_jobs, of_tasks, slots=slots, counts=counts, cpu_s=cpu_s)
    return PointResult(point, of_jobs, of_tasks, events_table(number, start_s, audit))


def _settings(plan: PointPlan, target: Target) -> dict[str, Any]:
    """All settings that are needed to reproduce the point."""
    shape = plan.shape
    settings: dict[str, Any] = {
        "placement": shape.placement if shape is not None else plan.settings.get("placement", SPARROW),
        "profile": target.profile,
        "load": plan.load,
        "probe_ratio": plan.probe_ratio,
        "duration_ms": plan.duration_ms,
        "nodes": len(target.nodes),
        "slots": target.slots,
        "schedulers": len(target.addresses) if shape is None else shape.schedulers,
        "generators": plan.generators,
        "seed": plan.seed,
        "tasks_sleep": plan.app == "sleep",
        "wait_max_s": plan.wait_max_s,
    }
    if plan.policy:
        settings["policy"] = plan.policy
    if shape is not None:
        settings |= dict(shape.options)
        if shape.weights:
            settings["weights"] = dict(shape.weights)
        if shape.unplaced_tasks_max is not None:
            settings["unplaced_tasks_max"] = shape.unplaced_tasks_max
    else:
        settings["existing_cluster"] = list(plan.schedulers)
    return settings | plan.settings
