"""From the command line to the points that are run: everything is checked before anything is started."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from loadgen.dags.live import LiveDags
from loadgen.durations import Durations
from loadgen.mix import LOAD_MAX, Mix
from loadgen.point import PointPlan, Workload
from loadgen.policies import ALTRUISTIC, STATED, check_policy, leads
from loadgen.presets import PRESETS, Preset, Size
from loadgen.queries import Queries
from loadgen.recorded import POINTS_MAX, REPLAYED, SPUN
from loadgen.targets import CENTRAL, SPARROW, ExistingTarget, Shape
from loadgen.tpch import TpchLike
from loadgen.traces import Trace
from loadgen.workload_files import read_workload
from sparrow_py.errors import InvalidOption
from sparrow_py.profiles import DEFAULT, check_profile

DEFAULT_CLUSTER = Shape()
"""The cluster that is started for the workload of a file, if the user does not say another."""
WITH_PRESET_ONLY = "a preset; the tasks of a file have durations of their own"


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The values of the command line; where one is empty or None, the preset's or the file's own holds."""

    file: str | None = None
    preset: str | None = None
    loads: tuple[float, ...] = ()
    probe_ratios: tuple[float, ...] = ()
    durations_ms: tuple[float, ...] = ()
    placements: tuple[str, ...] = ()
    profiles: tuple[str, ...] = ()
    policies: tuple[str, ...] = ()
    nodes: int | None = None
    slots: int | None = None
    schedulers: int | None = None
    scheduler: tuple[str, ...] = ()
    generators: int = 1
    seed: int = 1
    jobs: int | None = None
    seconds: float | None = None
    data: str | None = None
    app: str = "sleep"
    wait_max_s: float = 60.0

    def __post_init__(self) -> None:
        if (self.file is None) == (self.preset is None):
            given = f"{self.file} and {self.preset}" if self.file else "neither"
            raise InvalidOption("file", given, "a file with a workload, or --preset NAME")
        if self.preset is not None and self.preset not in PRESETS:
            raise InvalidOption("preset", self.preset, ", ".join(PRESETS))
        for load in self.loads:
            if not 0 < load <= LOAD_MAX:
                raise InvalidOption("load", load, f"a number above 0, at most {LOAD_MAX:g}")
        for duration_ms in self.durations_ms:
            if not 0 < duration_ms <= 1e9:
                raise InvalidOption("duration", duration_ms, "milliseconds above 0, at most 1e9")
        for profile in self.profiles:
            check_profile(profile)
        for policy in self.policies:
            check_policy(policy)
        if self.policies and self.preset == "queries":
            raise InvalidOption("policy", self.policies[0], "nothing with --preset queries: its jobs state none")
        if self.jobs is not None and self.jobs < 1:
            raise InvalidOption("jobs", self.jobs, "a whole number from 1")
        if self.seconds is not None and not 0 < self.seconds <= 1e6:
            raise InvalidOption("seconds", self.seconds, "a number of seconds above 0, at most 1e6")
        if self.scheduler and len(self.placements) > 1:
            found = ", ".join(self.placements)
            raise InvalidOption("placement", found, "one value with --scheduler: a running cluster has one placement")
        if self.scheduler and len(self.profiles) > 1:
            found = ", ".join(self.profiles)
            raise InvalidOption("profile", found, "one value with --scheduler: a running cluster has one profile")
        if self.data is not None and self.preset != "queries":
            raise InvalidOption("data", self.data, "nothing without --preset queries, the only one that reads data")
        if self.preset == "queries" and self.app != "sleep":
            raise InvalidOption("app", self.app, "nothing with --preset queries: its tasks are those of queries")

    @property
    def title(self) -> str:
        """The title of the run."""
        return PRESETS[self.preset].title if self.preset else Path(str(self.file)).name


class _AxesPoint(NamedTuple):
    load: float | None
    duration_ms: float | None
    placement: str
    profile: str
    probe_ratio: float
    policy: str


@dataclass(frozen=True)
class _Axes:
    """The settings that are varied; every combination of their values is a point. Only the placement `sparrow` is run
    with each profile, since nothing in the others depends on that."""

    loads: Sequence[float | None]
    durations_ms: Sequence[float | None]
    placements: Sequence[str]
    profiles: Sequence[str]
    probe_ratios: Sequence[float]
    policies: Sequence[str]

    def points(self) -> list[_AxesPoint]:
        ways = [
            (placement, profile)
            for placement in self.placements
            for profile in (self.profiles if placement == SPARROW else self.profiles[:1])
        ]
        points = [
            _AxesPoint(load, duration_ms, placement, profile, probe_ratio, policy)
            for load, duration_ms, (placement, profile), probe_ratio, policy in itertools.product(
                self.loads, self.durations_ms, ways, self.probe_ratios, self.policies
            )
        ]
        if len(points) > POINTS_MAX:
            raise InvalidOption("points", f"{len(points)} of them", f"at most {POINTS_MAX} in a run")
        return points


def plans(asked: Asked) -> list[PointPlan]:
    """The points of a run; `InvalidOption` for the first invalid one."""
    asked = _with_cluster(asked)
    nodes, slots = asked.nodes, asked.slots
    assert nodes is not None
    assert slots is not None
    schedulers = asked.schedulers
    assert schedulers is not None
    if asked.scheduler:
        with ExistingTarget(asked.scheduler) as target:
            nodes, slots = len(target.nodes), target.slots
        if asked.profiles not in ((), (target.profile,)):
            raise InvalidOption("profile", asked.profiles[0], f"that of the running cluster, {target.profile!r}")
        for policy in asked.policies or (PRESETS[asked.preset].policies if asked.preset else ()):
            if policy and policy not in STATED:
                allowed = f"with --scheduler what jobs may state: {', '.join(STATED)}"
                raise InvalidOption("policy", policy, allowed)
        asked = replace(asked, profiles=(target.profile,))
    else:
        Shape(nodes=nodes, slots=slots, schedulers=schedulers)  # Raises if the numbers are not valid.
    made = (
        _preset_points(asked, PRESETS[asked.preset], nodes, slots)
        if asked.preset
        else _file_points(asked, nodes, slots)
    )
    for plan in made:
        plan.jobs(nodes, slots)
    return made


def _with_cluster(asked: Asked) -> Asked:
    """With the preset's cluster, where the user has not said another."""
    of = PRESETS[asked.preset] if asked.preset else DEFAULT_CLUSTER
    found = {name: getattr(asked, name) for name in ("nodes", "slots", "schedulers")}
    return replace(
        asked, **{name: getattr(of, name) if value is None else value for name, value in found.items()}
    )  # fmt: skip


def _preset_points(asked: Asked, preset: Preset, nodes: int, slots: int) -> list[PointPlan]:
    preset.check(nodes, slots)
    axes = _Axes(
        asked.loads or preset.loads,
        asked.durations_ms or preset.durations_ms,
        asked.placements or (preset.placements[:1] if asked.scheduler else preset.placements),
        asked.profiles or (DEFAULT,),
        asked.probe_ratios or preset.probe_ratios,
        asked.policies or preset.policies,
    )
    made = []
    for point in axes.points():
        load, duration_ms, placement = point.load, point.duration_ms, point.placement
        assert load is not None
        size = Size(nodes, slots, load, duration_ms, asked.seconds or preset.seconds, asked.jobs, asked.data)
        workload = preset.workload(size)
        shape = Shape(
            nodes=nodes,
            slots=slots,
            schedulers=_schedulers(asked, placement, point.policy),
            placement=placement,
            profile=point.profile,
            unplaced_tasks_max=preset.unplaced_tasks_max,
            sql_data=str(Path(asked.data).absolute()) if asked.data is not None else "",
            leads=leads(point.policy),
            altruistic_policy=point.policy if leads(point.policy) == ALTRUISTIC else "",
        )
        settings = {"workload": asked.preset, **_workload_settings(workload)}
        if isinstance(workload, TpchLike):
            settings["execution"] = REPLAYED if asked.app == "sleep" else SPUN
        made.append(_plan(asked, workload, shape, load, point, axes, settings))
    return made


def _file_points(asked: Asked, nodes: int, slots: int) -> list[PointPlan]:
    workload = read_workload(str(asked.file))
    if asked.durations_ms:
        raise InvalidOption("duration", asked.durations_ms[0], WITH_PRESET_ONLY)
    axes = _Axes(
        asked.loads or (None,),
        (None,),
        asked.placements or (SPARROW,),
        asked.profiles or (DEFAULT,),
        asked.probe_ratios or (2.0,),
        asked.policies or ("",),
    )
    made = []
    for point in axes.points():
        load, placement = point.load, point.placement
        at_load = workload if load is None else _at_load(workload, load, nodes, slots)
        shortened = _shortened(at_load, asked)
        brings = at_load.load(nodes, slots) if isinstance(at_load, Trace) else at_load.load
        weights = tuple(workload.weights.items()) if isinstance(workload, Mix) else ()
        shape = Shape(
            nodes=nodes,
            slots=slots,
            schedulers=_schedulers(asked, placement, point.policy),
            placement=placement,
            profile=point.profile,
            weights=weights,
            leads=leads(point.policy),
            altruistic_policy=point.policy if leads(point.policy) == ALTRUISTIC else "",
        )
        settings = {"workload": asked.file, **_workload_settings(shortened)}
        brings = round(brings, 6) if math.isfinite(brings) else 0.0  # Jobs that all arrive at once have no load.
        made.append(_plan(asked, shortened, shape, brings, point, axes, settings))
    return made


def _schedulers(asked: Asked, placement: str, policy: str) -> int:
    """As many as were asked for, but of central ones there is one, and that of policy altruistic is alone."""
    assert asked.schedulers is not None
    return 1 if placement == CENTRAL or leads(policy) == ALTRUISTIC else asked.schedulers


def _at_load(workload: Trace | Mix, load: float, nodes: int, slots: int) -> Trace | Mix:
    return workload.at_load(load, nodes, slots) if isinstance(workload, Trace) else workload.at_load(load)


def _shortened(workload: Trace | Mix, asked: Asked) -> Trace | Mix:
    """The workload's first jobs, or the jobs of its first seconds, if the user asked for that."""
    if isinstance(workload, Mix):
        if asked.jobs is not None:
            raise InvalidOption("jobs", asked.jobs, "a trace; the length of a mix of users is given in seconds")
        return workload if asked.seconds is None else replace(workload, seconds=asked.seconds)
    first_s = workload.lines[0].arrival_s
    until_s = math.inf if asked.seconds is None else asked.seconds
    lines = [job for job in workload.lines[: asked.jobs] if (job.arrival_s - first_s) * workload.stretch < until_s]
    return replace(workload, lines=tuple(lines))


def _plan(
    asked: Asked,
    workload: Workload | Queries,
    shape: Shape,
    load: float,
    point: _AxesPoint,
    axes: _Axes,
    settings: dict[str, Any],
) -> PointPlan:
    """load: that the workload brings, where the point states none."""
    if asked.scheduler:
        settings = settings | {"placement": shape.placement, "profile": shape.profile}
    return PointPlan(
        workload=workload,
        load=load,
        shape=None if asked.scheduler else shape,
        schedulers=asked.scheduler,
        probe_ratio=point.probe_ratio,
        duration_ms=point.duration_ms,
        app=asked.app,
        generators=asked.generators,
        seed=asked.seed,
        wait_max_s=asked.wait_max_s,
        label=_label(load, point, axes),
        policy=point.policy,
        settings=settings,
    )


def _label(load: float, point: _AxesPoint, axes: _Axes) -> str:
    """The settings that tell the point from the others of its run."""
    parts = [
        point.placement if len(axes.placements) > 1 else "",
        point.profile if len(axes.profiles) > 1 and point.placement == SPARROW else "",
        point.policy if len(axes.policies) > 1 else "",
        f"d = {point.probe_ratio:g}" if len(axes.probe_ratios) > 1 else "",
        f"{point.duration_ms:g} ms" if len(axes.durations_ms) > 1 and point.duration_ms is not None else "",
    ]
    found = ", ".join(part for part in parts if part)
    return f"{found}, load {load:.3g}" if found and len(axes.loads) > 1 else found or f"load {load:.3g}"


def _workload_settings(workload: Any) -> dict[str, Any]:
    """The workload's own settings, which are needed to reproduce it."""
    if isinstance(workload, Trace):
        return {"jobs": workload.jobs, "stretch": workload.stretch}
    if isinstance(workload, Mix):
        users = {
            load.user: {
                "load": load.load,
                "tasks": load.tasks,
                "service": _durations(load.durations),
                "arrivals": "regular" if load.regular else "poisson",
                **({"rates": load.rates.pieces} if load.rates.pieces else {}),
                **({"constrained": load.constrained, "replicas": load.replicas} if load.constrained else {}),
            }
            for load in workload.loads
        }
        return {"seconds": workload.seconds, "users": users}
    if isinstance(workload, Queries):
        return {"queries": sorted(workload.queries)}
    if isinstance(workload, LiveDags):
        queries = workload.queries
        return {"jobs": workload.jobs, "task_min_s": workload.task_min_s, "scales": list(queries.scales)}
    if isinstance(workload, TpchLike):
        recorded = {"source": workload.profile.source, "queries": sorted(workload.profile.queries)}
        return {
            "jobs": workload.jobs,
            "users": workload.users,
            "stretch": workload.stretch,
            "data": workload.data,
            "recorded": recorded,
        }
    return {"jobs": workload.jobs, "tasks": workload.tasks, "service": _durations(workload.durations)}


def _durations(durations: Durations) -> str:
    return f"{durations.kind}, mean {durations.mean_ms:g} ms"
