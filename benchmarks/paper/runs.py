"""Runs: simulations, live replays, benchmarks and tests, each told from others by its settings."""

from __future__ import annotations

import functools
import json
import math
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

import numpy as np

from benchmarks.report import ROOT
from loadgen.presets import PRESETS, Size
from loadgen.tpch import PAPER_QUERIES, TpchLike, read_profile
from simulator.cluster import Cluster
from simulator.commands.queries import QueriesPoint, recorded_run
from simulator.figures.catalogue import FIGURES, SPARROW, Figure, Samples, Scale, paper
from simulator.figures.measures import measures
from simulator.figures.sweep import Point, compute
from simulator.policies import Settings
from simulator.records import JobRecord
from simulator.simulate import COOL_DOWN, WARM_UP, Result, simulate
from sparrow_py.errors import ClusterError
from sparrow_py.profiles import DEFAULT, PAPER

NONE = ""
"""The profile of what depends on none."""

SIMULATED_TASK_S, LARGE_TASK_S = 0.1e-3, 0.16e-3
CENTRAL_TASK_S = 0.002e-3
"""What the simulation of a task takes, about; the second on more than `LARGE_NODES` nodes, which no cache holds."""
LARGE_NODES = 1000
SIMULATED_QUERY_S = 6e-3
"""What the simulation of a query takes, about."""
LIVE_EXTRA_S = {25: 6.0, 100: 20.0}
"""What a live point takes beside the time in which jobs arrive, by the nodes of its cluster."""

KEPT = frozenset(
    {
        "value",
        "p5",
        "p50",
        "p95",
        "p99",
        "ideal_p50",
        "over_ideal_p50_ms",
        "wait_p50",
        "wait_p95",
        "utilisation",
        "noops_per_task",
        "cancellations_per_task",
        "jobs_measured",
        "jobs_unfinished",
        "response_p5_ms",
        "response_p50_ms",
        "response_p95_ms",
        "ideal_p50_ms",
        "wait_p50_ms",
        "wait_p95_ms",
        "zero_wait",
        "asking_over_service",
        "noop_asks",
        "reservations",
        "tasks",
        "running",
        "received",
    }
)
"""Names of the figures that are kept."""


@dataclass(frozen=True)
class Measured:
    """What a run gave. why_invalid: why it is no measurement; empty if it is one. samples: columns of numbers, where
    figures of one run do not do."""

    figures: dict[str, float]
    why_invalid: str = ""
    samples: dict[str, list[float]] = field(default_factory=dict)


class Measurable(Protocol):
    """What tells a run from others, and how to have its figures."""

    @property
    def settings(self) -> dict[str, Any]: ...

    def measure(self) -> Measured: ...


class Run(Measurable, Protocol):
    """One run. live: whether it needs the machine for itself."""

    @property
    def live(self) -> bool: ...

    @property
    def expected_s(self) -> float: ...


def numbers(found: Mapping[str, Any], before: str = "") -> dict[str, float]:
    """The kept numbers of nested figures, the groups' names before theirs."""
    flat: dict[str, float] = {}
    for name, value in found.items():
        if isinstance(value, Mapping):
            flat |= numbers(value, f"{before}{name}.")
        elif name in KEPT and isinstance(value, int | float) and math.isfinite(value):
            flat[before + name] = round(float(value), 6)
    return flat


def under(profile: str, policy: str, settings: Settings) -> Settings:
    """The settings of this profile, with the probe ratio of these, which are the paper's. Only Sparrow has profiles."""
    if profile == DEFAULT and policy in SPARROW:
        return Settings.of(DEFAULT, probe_ratio=settings.probe_ratio)
    return settings


# ---- simulations -----------------------------------------------------------------------------


@functools.cache
def _figure(name: str, scale: Scale) -> Figure:
    """With one profile curves have their plain names."""
    return FIGURES[name](replace(scale, profiles=(PAPER,)))


@dataclass(frozen=True, kw_only=True)
class FigurePoint:
    """A point of a figure of `simulator.figures.catalogue`, with one seed."""

    figure: str
    group: str
    curve: str
    x: float
    scale: Scale
    seed: int
    profile: str

    live = False

    @functools.cached_property
    def point(self) -> Point:
        """The simulation."""
        scale = replace(self.scale, seeds=max(self.scale.seeds, self.seed))
        found: Samples = next(
            samples
            for samples in _figure(self.figure, scale).samples
            if (samples.group, samples.curve, samples.x) == (self.group, self.curve, self.x)
        )
        point = found.points[self.seed - 1]
        return replace(point, settings=under(self.profile, point.policy, point.settings))

    @property
    def settings(self) -> dict[str, Any]:
        """All that it depends on; the same for the same simulation in several figures."""
        workload: Any = self.point.workload
        cluster, settings, durations = self.point.cluster, self.point.settings, workload.durations
        found = {
            "policy": self.point.policy, "nodes": cluster.nodes, "slots": cluster.slots,
            "rtt_ms": 2 * cluster.delay.one_way_ms, "tasks": workload.tasks, "load": workload.load,
            "jobs": workload.jobs, "durations": durations.kind, "mean_ms": durations.mean_ms,
            "probe_ratio": settings.probe_ratio, "seed": self.seed, "profile": self.profile,
        }  # fmt: skip
        if durations.kind == "pareto":
            found["alpha"] = durations.alpha
        if self.profile:
            plain = asdict(Settings.of(self.profile, probe_ratio=settings.probe_ratio))
            found |= {name: value for name, value in asdict(settings).items() if value != plain[name]}
        return found

    @property
    def expected_s(self) -> float:
        """By the number of its tasks."""
        workload: Any = self.point.workload
        each_s = SIMULATED_TASK_S if self.point.cluster.nodes <= LARGE_NODES else LARGE_TASK_S
        if self.point.policy == "central":
            each_s = CENTRAL_TASK_S
        return float(workload.jobs * workload.tasks * each_s)

    def measure(self) -> Measured:
        """Simulate it."""
        return Measured(numbers(compute(self.point)))


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A cluster. seconds: how long jobs arrive; None: as long as the preset says."""

    nodes: int
    slots: int
    schedulers: int
    seconds: float | None = None


@dataclass(frozen=True, kw_only=True)
class SimulatedPreset:
    """The jobs of a preset of the load generator, simulated with one seed."""

    preset: str
    shape: Shape
    load: float
    probe_ratio: float
    policy: str
    seed: int
    profile: str

    live = False

    @property
    def _seconds(self) -> float:
        return self.shape.seconds or PRESETS[self.preset].seconds

    @property
    def settings(self) -> dict[str, Any]:
        """All that it depends on."""
        own = {"load": self.load, "probe_ratio": self.probe_ratio, "policy": self.policy, "seed": self.seed}
        shape = asdict(self.shape) | {"seconds": self._seconds}
        return {"simulated_preset": self.preset} | shape | own | {"profile": self.profile}

    @property
    def expected_s(self) -> float:
        """Tasks of 100 ms on all slots."""
        return self._seconds * self.shape.nodes * self.shape.slots * self.load * 10 * SIMULATED_TASK_S

    def measure(self) -> Measured:
        """Simulate it; response times and slots by user, too."""
        preset, shape = PRESETS[self.preset], self.shape
        workload = preset.workload(Size(shape.nodes, shape.slots, self.load, 100.0, self._seconds))
        cluster = Cluster(nodes=shape.nodes, slots=shape.slots, schedulers=shape.schedulers)
        settings = under(self.profile, self.policy, paper(probe_ratio=self.probe_ratio))
        result = simulate(cluster, workload, self.policy, settings, seed=self.seed)  # type: ignore[arg-type]
        return Measured(numbers(measures(result) | {"by_user": by_user(result)}))


def by_user(result: Result) -> dict[str, dict[str, float]]:
    """Percentiles of the measured jobs' response times for each user; and `slots_of`."""
    measured = measured_records(result)
    users = [record.job.user for record in measured]
    return {
        user: {
            f"p{percent}": float(np.percentile(result.response_ms[[other == user for other in users]], percent))
            for percent in (5, 50, 95)
        }
        | slots_of(user, result)
        for user in sorted(set(users))
    }


def measured_records(result: Result) -> list[JobRecord]:
    """All jobs but those of warm-up and cool-down."""
    jobs = len(result.records)
    return result.records[int(jobs * WARM_UP) : jobs - int(jobs * COOL_DOWN)]


def slots_of(user: str, result: Result) -> dict[str, float]:
    """Of the time in which the measured jobs arrived: running, the user's mean number of running tasks; received, those
    over the number that it wants: the work of its jobs that arrived then, by time."""
    measured = measured_records(result)
    first_s, last_s = measured[0].job.arrival_s, measured[-1].job.arrival_s
    own = [record for record in result.records if record.job.user == user]
    wanted_s = sum(sum(record.job.durations_s) for record in own if first_s <= record.job.arrival_s < last_s)
    ran_s = sum(
        max(0.0, min(started_s + duration_s, last_s) - max(started_s, first_s))
        for record in own
        for started_s, duration_s in zip(record.started_s, record.job.durations_s, strict=True)
    )
    return {"running": ran_s / (last_s - first_s), "received": ran_s / wanted_s}


@dataclass(frozen=True, kw_only=True)
class SimulatedQueries:
    """Recorded queries (§7.2) on simulated daemons, with one seed. stretch: tasks take so many times as long."""

    shape: Shape
    load: float
    stretch: float
    jobs: int
    placement: str
    seed: int
    profile: str

    live = False

    @property
    def settings(self) -> dict[str, Any]:
        """All that it depends on."""
        shape = {name: getattr(self.shape, name) for name in ("nodes", "slots", "schedulers")}
        own = {"load": self.load, "stretch": self.stretch, "jobs": self.jobs, "placement": self.placement}
        return {"simulated_queries": ",".join(PAPER_QUERIES)} | shape | own | {
            "seed": self.seed, "profile": self.profile,
        }  # fmt: skip

    @property
    def expected_s(self) -> float:
        """By the number of queries."""
        return self.jobs * SIMULATED_QUERY_S

    def measure(self) -> Measured:
        """Simulate it, and measure it as a load run is."""
        shape = self.shape
        point = QueriesPoint(
            Cluster(nodes=shape.nodes, slots=shape.slots, schedulers=shape.schedulers),
            TpchLike(
                profile=read_profile().only(PAPER_QUERIES), load=self.load, jobs=self.jobs, stretch=self.stretch
            ),
            self.placement,
            under(self.profile, self.placement, paper(probe_ratio=2.0)),
            self.seed,
        )  # fmt: skip
        recorded, *_ = recorded_run(0, point, point.simulate())
        return Measured(numbers(recorded.figures))


# ---- what runs real processes ----------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class LivePoint:
    """A point of a preset of the load generator, live."""

    preset: str
    shape: Shape
    load: float
    probe_ratio: float
    placement: str
    duration_ms: float | None
    profile: str

    live = True

    @property
    def _seconds(self) -> float:
        return self.shape.seconds or PRESETS[self.preset].seconds

    @property
    def settings(self) -> dict[str, Any]:
        """All that it depends on."""
        own = {"load": self.load, "probe_ratio": self.probe_ratio, "placement": self.placement}
        shape = asdict(self.shape) | {"seconds": self._seconds}
        return {"live": self.preset} | shape | own | {"duration_ms": self.duration_ms, "profile": self.profile}

    @property
    def expected_s(self) -> float:
        """The time in which jobs arrive, and the cluster's start and end."""
        return self._seconds + LIVE_EXTRA_S.get(self.shape.nodes, 20.0)

    @property
    def words(self) -> list[str]:
        """The command after `python -m`."""
        words = ["loadgen", "run", "--preset", self.preset, "--profile", self.profile, "--load", f"{self.load:g}"]
        words += ["--placement", self.placement, "--probe-ratio", f"{self.probe_ratio:g}"]
        if self.duration_ms is not None:
            words += ["--duration", f"{self.duration_ms:g}"]
        for name in ("nodes", "slots", "schedulers"):
            words += [f"--{name}", str(getattr(self.shape, name))]
        return [*words, "--seconds", f"{self._seconds:g}"]

    def measure(self) -> Measured:
        """Run it."""
        row = json.loads(output([*self.words, "--json"]).splitlines()[-1])
        figures = {name: row[name] for name in ("value", "p5", "p50", "p95")} | row["figures"]
        return Measured(numbers(figures), "" if row["valid"] else row["why_invalid"] or "the point is not valid")


@dataclass(frozen=True, kw_only=True)
class BenchmarkRun:
    """A benchmark of this package, whose `--json` has one value."""

    words: tuple[str, ...]
    seconds: float
    profile: str = DEFAULT
    live: bool = True

    @property
    def settings(self) -> dict[str, Any]:
        """All that it depends on."""
        return {"benchmark": " ".join(self.words), "profile": self.profile}

    @property
    def expected_s(self) -> float:
        """As was stated."""
        return self.seconds

    def measure(self) -> Measured:
        """Run it."""
        return Measured({"value": float(json.loads(output([*self.words, "--json"]).splitlines()[-1])["value"])})


@dataclass(frozen=True, kw_only=True)
class TestRun:
    """Tests of the repository: 1 if they pass."""

    tests: tuple[str, ...]
    seconds: float = 5.0
    profile: str = NONE

    live = False
    __test__ = False  # Nothing for pytest to collect.

    @property
    def settings(self) -> dict[str, Any]:
        """All that it depends on."""
        return {"tests": list(self.tests)}

    @property
    def expected_s(self) -> float:
        """As was stated."""
        return self.seconds

    def measure(self) -> Measured:
        """Run them. Tests that are skipped have not passed."""
        with TemporaryDirectory() as directory:
            report = Path(directory) / "report.xml"
            words = ["pytest", "-q", "-n", "0", "--suite", "test", "-p", "no:cacheprovider"]
            run_command([*words, f"--junit-xml={report}", *self.tests], check=False)
            if not report.exists():
                raise ClusterError(f"pytest gave no report of {' '.join(self.tests)}")
            suite = ET.parse(report).getroot()[0]
        count = {name: int(suite.get(name, 0)) for name in ("tests", "failures", "errors", "skipped")}
        passed = count["tests"] > 0 and not count["failures"] + count["errors"] + count["skipped"]
        return Measured({"value": float(passed)})


def output(words: list[str]) -> str:
    """What `python -m` with these words prints; `ClusterError` if it fails."""
    done = run_command(words)
    if not done.stdout.strip():
        raise ClusterError(f"python -m {' '.join(words)} printed nothing")
    return done.stdout


def run_command(words: list[str], *, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run `python -m` with these words in the repository."""
    command = [sys.executable, "-m", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if check and done.returncode:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
        raise ClusterError(f"python -m {' '.join(words)} failed: {' '.join(said)}")
    return done


RunOf = Callable[[str], Run]
