"""The figures of the Sparrow paper: which simulations each needs, and what is shown of them.

3 and 4 are the closed forms of §4.2 with simulated points over them, 5 to 7 the simulations of §5, 4.3 the idle
fraction of §4.3, and 6-alpha what figure 6 leaves open: how much its Pareto result depends on the tail index.

Sparrow is simulated with the profile `paper`; in 5 to 7, 4.3 and 6-alpha curves of the profile `default` stand beside
it. Both may be had alone in 5 to 7; the others are about the paper's algorithm and have it in any case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from loadgen.durations import Durations
from loadgen.synthetic import Synthetic
from simulator.cluster import Cluster
from simulator.figures import closed_forms
from simulator.figures.idle_slots import WATCHED
from simulator.figures.intervals import Interval, interval
from simulator.figures.sweep import Figures, Point
from simulator.network import Delay
from simulator.policies import Settings
from sparrow_py.errors import InvalidOption
from sparrow_py.profiles import DEFAULT, PAPER, check_profile, in_words

SHARE_OF_CLUSTER = 20
"""A job of figures 5 to 7 has a task for one in so many slots: 500 of 10,000, as in the paper."""

SHORT_JOB = 10
"""Tasks of the smaller jobs of figures 3 and 4."""

SPARROW = ("sparrow", WATCHED)
"""The policies that profiles are about."""
HIGH_LOAD = 0.9
JOBS_MIN = 20
NODES_MIN = 2 * SHARE_OF_CLUSTER

POLICY_NAMES = {
    "random": "random", "per-task": "per-task sampling", "batch": "batch sampling",
    "sparrow": "late binding (the paper's Sparrow)", "central": "central",
}  # fmt: skip
OURS = "Sparrow with today's defaults"
"""The curve of the daemons as they are, beside the paper's policies."""
SPARROW_NAMES = {PAPER: POLICY_NAMES["sparrow"], DEFAULT: OURS}
"""By profile."""


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How large the simulations are; the defaults are the paper's cluster.

    nodes: machines, or slots where machines have several. jobs: of figures 5 to 7 at loads from 0.9; lower loads settle
    sooner, and run a third; figures whose jobs are smaller run as many tasks for each slot as that.
    seeds: simulations of each point, with seeds 1, 2, ….
    few_points: fewer points on each curve. profiles: those of which Sparrow has curves.
    """

    nodes: int = 10_000
    jobs: int = 3000
    seeds: int = 3
    few_points: bool = False
    profiles: tuple[str, ...] = (PAPER, DEFAULT)

    def __post_init__(self) -> None:
        if not self.profiles:
            raise InvalidOption("profile", "", f"{PAPER}, {DEFAULT} or both")
        for profile in self.profiles:
            check_profile(profile)
        for name, least in (("nodes", NODES_MIN), ("jobs", JOBS_MIN), ("seeds", 1)):
            value = getattr(self, name)
            if value < least:
                raise InvalidOption(name, value, f"a whole number from {least}")

    @property
    def tasks(self) -> int:
        """Of a job of figures 5 to 7."""
        return self.nodes // SHARE_OF_CLUSTER

    def jobs_at(self, load: float) -> int:
        """How many jobs of figures 5 to 7."""
        return self.jobs if load >= HIGH_LOAD else max(JOBS_MIN, self.jobs // 3)

    def jobs_of(self, tasks: int, slots: int) -> int:
        """How many jobs of so many tasks bring as many tasks to each of so many slots as figures 5 to 7 at low load."""
        return max(JOBS_MIN, round(self.jobs_at(0.0) * self.tasks / self.nodes * slots / tasks))

    def loads(self, all_: Sequence[float], few: Sequence[float]) -> Sequence[float]:
        """Which loads are simulated."""
        return few if self.few_points else all_


QUICK = Scale(nodes=200, jobs=600, seeds=4, few_points=True)


def paper(**changes: Any) -> Settings:
    """Sparrow as the paper has it: everything off that came after it, cancellation included (§8 only proposes it)."""
    return Settings.of(PAPER, **{"probe_ratio": 2.0} | changes)


@dataclass(frozen=True)
class Samples:
    """A point of a curve: the same simulation with several seeds. `over`: what its measure is divided by, by seed.
    `like`: the curve whose colour it has, itself being dashed; empty: it has its own."""

    group: str
    curve: str
    x: float
    points: tuple[Point, ...]
    over: tuple[Point, ...] = ()
    like: str = ""


@dataclass(frozen=True)
class Line:
    """A closed form. `of`: the curve of samples that it foretells, whose colour it has; empty: none."""

    group: str
    label: str
    of: str
    xs: tuple[float, ...]
    ys: tuple[float, ...]
    dashed: bool = False


@dataclass(frozen=True)
class Panel:
    """One pair of axes: a measure of the samples of a group. `whiskers`: measures at their ends."""

    title: str
    group: str
    measure: str
    y_label: str
    whiskers: tuple[str, str] | None = None
    log_y: bool = False


@dataclass(frozen=True)
class Figure:
    """A figure before it is computed."""

    name: str
    title: str
    scale: str
    x_label: str
    panels: tuple[Panel, ...]
    samples: tuple[Samples, ...]
    lines: tuple[Line, ...] = ()
    columns: int = 2
    log_x: bool = False

    @property
    def profiles(self) -> list[str]:
        """The profiles with which Sparrow is simulated, "" where settings are of none."""
        return list(dict.fromkeys(point.settings.profile for point in self.points if point.policy in SPARROW))

    @property
    def profiles_text(self) -> str:
        """For the title: which profiles these are."""
        return in_words(name for name in self.profiles if name)

    @property
    def points(self) -> list[Point]:
        """All simulations that it needs."""
        return [point for samples in self.samples for point in (*samples.points, *samples.over)]


@dataclass(frozen=True)
class Row:
    """A computed number of a figure: over the seeds, the mean of a measure with its interval and all its values."""

    panel: str
    curve: str
    x: float
    value: Interval
    by_seed: tuple[float, ...] = field(repr=False)
    whiskers: tuple[float, float] | None = None


def rows(figure: Figure, results: Mapping[str, Figures]) -> list[Row]:
    """What a figure shows, panel by panel; `results` are the points' figures by their keys."""
    return [
        _row(panel, samples, results)
        for panel in figure.panels
        for samples in figure.samples
        if samples.group == panel.group
    ]


def _row(panel: Panel, samples: Samples, results: Mapping[str, Figures]) -> Row:
    def values(measure: str) -> tuple[float, ...]:
        found = [float(results[point.key][measure]) for point in samples.points]
        if samples.over:
            return tuple(a / float(results[b.key][measure]) for a, b in zip(found, samples.over, strict=True))
        return tuple(found)

    by_seed = values(panel.measure)
    whiskers = None
    if panel.whiskers is not None:
        low, high = (interval(values(measure)).mean for measure in panel.whiskers)
        whiskers = (low, high)
    return Row(panel.title, samples.curve, samples.x, interval(by_seed), by_seed, whiskers)


# ---- figures 3 and 4: zero wait --------------------------------------------------------------

ZERO_WAIT: dict[str, tuple[str, Callable[..., float]]] = {
    "random": ("random", closed_forms.random_placement),
    "per-task": ("per-task sampling", closed_forms.per_task_sampling),
    "sparrow": ("batch sampling", closed_forms.batch_sampling),
}
"""Table 2, by the policy that is simulated: late binding starts at once what batch sampling places at idle slots."""


def figure_3(scale: Scale) -> Figure:
    """Probability that a job waits for nothing, single-core machines (§4.2).

    The closed form takes infinitely many machines, of which the share ρ is busy at all times. In a cluster of n slots
    the share varies as jobs come and go, by about √(ρ(m + 1)/2n), so simulated curves fall less steeply than
    the closed form where that is steep.
    """
    return _zero_wait("3", "Jobs that wait for nothing, single-core machines (figure 3, table 2)", 1, scale)


def figure_4(scale: Scale) -> Figure:
    """As figure 3, with machines of four cores (§4.2.1).

    The closed form says that 99.7 % of 10-task jobs start at once at 70 % load, simulation 97 to 98 % on a thousand
    machines and more. The reason is its first assumption, that cores are idle independently of each other: it makes
    24 % of machines full (ρ^4). But a machine with one free core gets tasks as often as an empty one, so 32 % are full:
    see `closed_forms.full_machines`, with which the form gives 96.9 % (dashed). The rest is that a cluster is finite,
    as in figure 3. That a job has at most one task on a machine holds in both: probes go to distinct machines.
    """
    figure = _zero_wait("4", "Jobs that wait for nothing, 4-core machines (figure 4, §4.2.1)", 4, scale)
    forms: dict[str, Callable[..., float]] = {
        "random": closed_forms.random_placement_with_queues,
        "sparrow": closed_forms.batch_sampling_of_full_machines,
    }
    loads = _line_loads()
    dependent = tuple(
        Line(
            panel.group, f"{ZERO_WAIT[policy][0]}, cores not independent", POLICY_NAMES[policy], loads,
            tuple(form(load, int(panel.group), cores=4) for load in loads), dashed=True,
        )
        for policy, form in forms.items()
        for panel in figure.panels
    )  # fmt: skip
    return replace(figure, lines=figure.lines + dependent)


def _line_loads() -> tuple[float, ...]:
    return tuple(round(float(load), 4) for load in np.linspace(0.005, 0.995, 199))


def _zero_wait(name: str, title: str, cores: int, scale: Scale) -> Figure:
    sizes = (SHORT_JOB, max(2 * SHORT_JOB, scale.nodes // 100))
    simulated = scale.loads((0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9), (0.3, 0.5, 0.7, 0.9))
    # The paper's model has no network delay (§4.1).
    cluster = Cluster(nodes=scale.nodes // cores, slots=cores, delay=Delay(one_way_ms=0.0))
    samples, lines = [], []
    for size in sizes:
        for policy, (name_of_form, form) in ZERO_WAIT.items():
            curve = POLICY_NAMES[policy]
            ratio = {} if policy == "random" else {"probe_ratio": 2}
            ys = tuple(form(load, size, cores=cores, **ratio) for load in _line_loads())
            lines.append(Line(str(size), f"{name_of_form}, closed form", curve, _line_loads(), ys))
            for load in simulated:
                workload = Synthetic(tasks=size, load=load, jobs=scale.jobs_of(size, scale.nodes))
                samples.append(Samples(str(size), curve, load, _points(scale, cluster, workload, policy)))
    panels = tuple(Panel(f"{size}-task jobs", str(size), "zero_wait", "share of jobs without wait") for size in sizes)
    each = f"{cores} core{'s' * (cores > 1)}"
    text = f"simulated: {scale.nodes // cores:,} machines of {each}, {scale.seeds} seeds, no network delay"
    return Figure(name, title, text, "load", panels, tuple(samples), tuple(lines))


# ---- figures 5 to 7: response times ----------------------------------------------------------


def figure_5(scale: Scale) -> Figure:
    """Response time against load for several probe ratios, and the central scheduler (§5.1)."""
    loads = scale.loads((0.2, 0.4, 0.6, 0.8, 0.9, 0.95), (0.6, 0.8, 0.95))
    cluster, samples = Cluster(nodes=scale.nodes), []
    for load in loads:
        workload = _paper_jobs(scale, load)
        central = _points(scale, cluster, workload, "central")
        curves = [
            (*_curve(scale, profile, f"d = {ratio:g}"), _points(scale, cluster, workload, "sparrow", settings))
            for profile in scale.profiles
            for ratio in (1.0, 1.2, 1.5, 2.0, 3.0, 4.0)
            for settings in [Settings.of(profile, probe_ratio=ratio)]
        ]
        for curve, like, points in [*curves, ("central", "", central)]:
            samples.append(Samples("response", curve, load, points, like=like))
            samples.append(Samples("ratio", curve, load, points, central, like))
    title = "Response time and probe ratio d (figure 5)"
    return Figure("5", title, _described(scale), "load", _response_panels("central's", log_y=True), tuple(samples))


def figure_6(scale: Scale) -> Figure:
    """Response time of the techniques for three distributions of task durations (§5.2)."""
    loads = scale.loads((0.2, 0.4, 0.6, 0.8, 0.9, 0.95), (0.6, 0.8, 0.95))
    kinds = {"constant": "constant", "exponential": "exponential", "pareto": f"Pareto, α = {Durations().alpha:g}"}
    cluster = Cluster(nodes=scale.nodes)
    others = [(name, policy, paper()) for policy, name in POLICY_NAMES.items() if policy != "sparrow"]
    sparrow = [(SPARROW_NAMES[profile], "sparrow", Settings.of(profile)) for profile in scale.profiles]
    curves = [*others[:-1], *sparrow, others[-1]]
    samples = [
        Samples(kind, name, load, _points(scale, cluster, _paper_jobs(scale, load, Durations(kind)), policy, settings))
        for kind in kinds
        for name, policy, settings in curves
        for load in loads
    ]
    panels = tuple(
        Panel(
            f"{name} durations", kind, "response_p50_ms", "response time (ms): median, 5th to 95th percentile",
            ("response_p5_ms", "response_p95_ms"), log_y=True,
        )
        for kind, name in kinds.items()
    )  # fmt: skip
    title = "Response time by technique and distribution (figure 6)"
    return Figure("6", title, _described(scale), "load", panels, tuple(samples), columns=3)


def figure_6_alpha(scale: Scale) -> Figure:
    """How many times slower per-task sampling is than Sparrow at 95 % load, over the tail index of Pareto durations.

    The paper's factor of 3 (§5.2) is for a tail index that it does not state.
    """
    alphas = scale.loads((1.1, 1.2, 1.35, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0), (1.2, 1.5, 2.0, 3.0))
    cluster, samples = Cluster(nodes=scale.nodes), []
    for alpha in alphas:
        workload = _paper_jobs(scale, 0.95, Durations("pareto", alpha=alpha))
        sparrow = _points(scale, cluster, workload, "sparrow")
        curves = {POLICY_NAMES[policy]: _points(scale, cluster, workload, policy) for policy in ("per-task", "batch")}
        if DEFAULT in scale.profiles:
            curves[OURS] = _points(scale, cluster, workload, "sparrow", Settings())
        samples += [Samples("ratio", curve, alpha, points, sparrow) for curve, points in curves.items()]
    panels = tuple(
        Panel(f"{name} response time", "ratio", f"response_{percentile}_ms", "times the paper's Sparrow")
        for name, percentile in (("median", "p50"), ("95th percentile", "p95"))
    )
    title = "Pareto durations: response time over that of the paper's Sparrow, at 95 % load"
    return Figure("6-alpha", title, _described(scale), "tail index α (smaller: heavier)", panels, tuple(samples))


def figure_7(scale: Scale) -> Figure:
    """Response time against load with 1 to 16 cores a machine, as many cores in all (§5.3)."""
    loads = scale.loads((0.2, 0.4, 0.6, 0.8, 0.9, 0.95), (0.6, 0.8, 0.95))
    samples = []
    for load in loads:
        workload = _paper_jobs(scale, load)
        for profile in scale.profiles:
            settings = Settings.of(profile)
            of_one = _points(scale, Cluster(nodes=scale.nodes), workload, "sparrow", settings)
            for cores in (1, 2, 4, 8) if scale.few_points else (1, 2, 4, 8, 16):
                cluster = Cluster(nodes=scale.nodes // cores, slots=cores)
                points = _points(scale, cluster, workload, "sparrow", settings)
                curve, like = _curve(scale, profile, f"{cores} core{'s' * (cores > 1)} a machine")
                samples.append(Samples("response", curve, load, points, like=like))
                samples.append(Samples("ratio", curve, load, points, of_one, like))
    title = "Response time and cores per machine (figure 7)"
    scale_text = _described(scale).replace("machines", "cores")
    return Figure("7", title, scale_text, "load", _response_panels("that of single cores", log_y=False), tuple(samples))


def _curve(scale: Scale, profile: str, name: str) -> tuple[str, str]:
    """The curve of a profile, and the one that it is like: that of the same name and the first profile."""
    if len(scale.profiles) == 1:
        return name, ""
    first = f"{name} ({scale.profiles[0]})"
    return (first, "") if profile == scale.profiles[0] else (f"{name} ({profile})", first)


def _paper_jobs(scale: Scale, load: float, durations: Durations | None = None) -> Synthetic:
    return Synthetic(tasks=scale.tasks, load=load, jobs=scale.jobs_at(load), durations=durations or Durations())


def _response_panels(over: str, *, log_y: bool) -> tuple[Panel, ...]:
    names = {"p5": "5th percentile", "p50": "median", "p95": "95th percentile"}
    panels = [
        Panel(name, "response", f"response_{percentile}_ms", "response time (ms)", log_y=log_y)
        for percentile, name in names.items()
    ]
    return (*panels, Panel(f"median, over {over}", "ratio", "response_p50_ms", "ratio", log_y=log_y))


# ---- §4.3: idle while asking -----------------------------------------------------------------


def figure_4_3(scale: Scale) -> Figure:
    """Slot time spent waiting for the answer to a getTask, over slot time spent on tasks, against RTT (§4.3).

    d·RTT/t supposes that each of a task's d reservations costs a round trip. That is so without cancellation; with it
    most reservations that nobody can use are cancelled before they cost anything.
    """
    rtts_ms = scale.loads((0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0), (0.5, 1.0, 5.0, 20.0))
    nodes, ratio, service_ms = max(100, scale.nodes // 10), 2.0, 100.0
    tasks = nodes // SHARE_OF_CLUSTER
    workload = Synthetic(
        tasks=tasks, load=0.8, jobs=scale.jobs_of(tasks, nodes), durations=Durations(mean_ms=service_ms)
    )
    ways = {
        "as in the paper": paper(probe_ratio=ratio),
        "with cancellation": paper(probe_ratio=ratio, cancellation=True),
    } | ({OURS: Settings(probe_ratio=ratio)} if DEFAULT in scale.profiles else {})
    samples = [
        Samples("idle", name, rtt_ms, _points(scale, cluster, workload, WATCHED, settings))
        for name, settings in ways.items()
        for rtt_ms in rtts_ms
        for cluster in [Cluster(nodes=nodes, delay=Delay(one_way_ms=rtt_ms / 2))]
    ]
    lines = tuple(
        Line(
            "idle", label, "", tuple(rtts_ms),
            tuple(closed_forms.idle_while_asking(d, rtt_ms, service_ms) for rtt_ms in rtts_ms), dashed,
        )
        for label, d, dashed in (("d·RTT/t (§4.3)", ratio, False), ("RTT/t: each task asked for once", 1, True))
    )  # fmt: skip
    panel = Panel("", "idle", "asking_over_service", "slot time asking over slot time in use", log_y=True)
    title = "Slots that wait for a task (§4.3)"
    text = f"{nodes:,} machines × {tasks}-task jobs of {service_ms:g} ms, d = 2, load 0.8, {scale.seeds} seeds"
    return Figure(
        "4.3", title, text, "round trip time (ms)", (panel,), tuple(samples), lines, columns=1, log_x=True
    )  # fmt: skip


def _described(scale: Scale) -> str:
    return (
        f"{scale.nodes:,} machines × {scale.tasks}-task jobs, mean task 100 ms, RTT 1 ms, "
        f"{scale.jobs:,} jobs ({scale.jobs_at(0.0):,} at loads below {HIGH_LOAD:g}) × {scale.seeds} seeds"
    )


def _points(
    scale: Scale, cluster: Cluster, workload: Synthetic, policy: str, settings: Settings | None = None
) -> tuple[Point, ...]:
    """The same with each seed."""
    point = partial(Point, cluster=cluster, workload=workload, policy=policy, settings=settings or paper())
    return tuple(point(seed=seed) for seed in range(1, scale.seeds + 1))


FIGURES: dict[str, Callable[[Scale], Figure]] = {
    "3": figure_3,
    "4": figure_4,
    "4.3": figure_4_3,
    "5": figure_5,
    "6": figure_6,
    "6-alpha": figure_6_alpha,
    "7": figure_7,
}
"""By the name that the command takes."""


def named(names: Iterable[str]) -> list[str]:
    """The figures that are meant; "all" is all of them."""
    wanted = []
    for name in names:
        if name != "all" and name not in FIGURES:
            raise InvalidOption("figure", name, ", ".join((*FIGURES, "all")))
        wanted += list(FIGURES) if name == "all" else [name]
    return list(dict.fromkeys(wanted))
