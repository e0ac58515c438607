"""Run a workload on a simulated cluster."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np

from loadgen.jobs import WorkloadJob
from loadgen.synthetic import Synthetic
from simulator.cluster import Cluster
from simulator.engine import Engine
from simulator.policies import POLICIES, Policy, Settings
from simulator.records import JobRecord
from sparrow_py.errors import InvalidOption

WARM_UP = 0.1
COOL_DOWN = 0.05
PERCENTILES = (5, 50, 95, 99)


class Workload(Protocol):
    """Jobs that arrive: `loadgen.Synthetic`, `loadgen.Trace`, or what has the same methods."""

    @property
    def jobs(self) -> int:
        """How many."""

    def generate(self, seed: int, nodes: int, slots: int) -> Iterator[WorkloadJob]:
        """The jobs in order of arrival."""


@dataclass(frozen=True)
class Result:
    """What a simulation measured; arrays are in order of arrival, of all jobs but those of warm-up and cool-down.

    settings: what was simulated.
    response_ms: of shape (jobs,), in milliseconds: from a job's arrival until its last task's end.
    ideal_ms: of shape (jobs,), in milliseconds: the job's longest task, or the longest way through its stages, which
        no scheduler can beat.
    wait_ms: of shape (tasks,), in milliseconds: from the arrival of the task's job, or from the end of the stages
        before its own, until its start.
    counts: what the policy counted, over the whole run.
    events: how many events were simulated.
    records: all jobs, the unmeasured ones included.
    """

    settings: dict[str, Any]
    response_ms: np.ndarray[Any, Any]
    ideal_ms: np.ndarray[Any, Any]
    wait_ms: np.ndarray[Any, Any]
    counts: dict[str, int]
    events: int
    records: list[JobRecord]

    def percentile(self, percent: float) -> float:
        """This percentile (0 to 100) of the jobs' response times, in milliseconds; `percent` may be a fraction."""
        return float(np.percentile(self.response_ms, percent))

    def figures(self) -> dict[str, Any]:
        """The figures that a run is known by; times in milliseconds, rounded to microseconds."""
        waits = self.wait_ms
        figures: dict[str, Any] = {
            f"response_p{percent}_ms": round(self.percentile(percent), 3) for percent in PERCENTILES
        }
        figures["ideal_p50_ms"] = round(float(np.median(self.ideal_ms)), 3)
        figures |= {f"wait_p{percent}_ms": round(float(np.percentile(waits, percent)), 3) for percent in PERCENTILES}
        figures["jobs_measured"] = len(self.response_ms)
        figures["noop_asks"] = self.counts.get("noops", 0)
        figures["events"] = self.counts.get("core_events", self.events)
        return figures | {name: count for name, count in self.counts.items() if name not in ("noops", "core_events")}


def simulate(
    cluster: Cluster,
    workload: Workload | None = None,
    policy: str = "sparrow",
    settings: Settings | None = None,
    *,
    seed: int = 1,
) -> Result:
    """Simulate the workload on the cluster under a policy (a key of `POLICIES`) with these settings.

    The same arguments give the same result; with the same seed, all policies meet the same jobs. Raises
    `InvalidOption` for what cannot be simulated and `SimulationError` if a job is refused or lost.
    """
    workload = Synthetic() if workload is None else workload
    settings = Settings() if settings is None else settings
    if policy not in POLICIES:
        raise InvalidOption("policy", policy, ", ".join(POLICIES))
    jobs = workload.generate(seed, cluster.nodes, cluster.slots)
    engine = Engine()
    users = tuple(getattr(workload, "users", ())) or ("user0",)
    records: list[JobRecord] = []

    def arrive(job: WorkloadJob) -> None:
        record = JobRecord(job)
        records.append(record)
        placer.submit(record)
        expect_next()

    def expect_next() -> None:
        job = next(jobs, None)
        if job is not None:
            engine.at(job.arrival_s, arrive, job)

    with _no_collections():
        placer: Policy = POLICIES[policy](cluster, settings, engine, seed, users)
        expect_next()
        engine.run()
    described = {"policy": policy, "seed": seed, "profile": settings.profile, **_described(cluster)}
    described |= _described(workload) | asdict(settings)
    return _result(described, records, placer.counts(), engine.events)


@contextlib.contextmanager
def _no_collections() -> Iterator[None]:
    """Nothing that a simulation uses up is cyclic: the collector would look through the cluster again and again for
    nothing."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _described(what: Any) -> dict[str, Any]:
    """A settings object as plain data."""
    if hasattr(what, "path"):
        return {"trace": what.path, "stretch": what.stretch, "jobs": what.jobs}
    fields = asdict(what)
    return {name: list(value) if isinstance(value, tuple) else value for name, value in fields.items()}


def _result(settings: dict[str, Any], records: list[JobRecord], counts: dict[str, int], events: int) -> Result:
    first, last = int(len(records) * WARM_UP), len(records) - int(len(records) * COOL_DOWN)
    responses, ideals, waits = [], [], []
    for record in records[first:last]:
        assert not record.unended, f"job {record.job.number} has {record.unended} tasks that have not ended"
        started = np.frombuffer(record.started_s) - record.job.arrival_s
        durations = np.frombuffer(record.job.durations_s)
        waits.append(np.array(record.waits_s()))
        responses.append((started + durations).max())
        ideals.append(record.ideal_s())
    return Result(
        settings,
        1000 * np.array(responses),
        1000 * np.array(ideals),
        1000 * np.concatenate(waits),
        counts,
        events,
        records,
    )
