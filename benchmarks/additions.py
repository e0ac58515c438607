"""What each addition to the paper's Sparrow brings: on top of the paper's, and taken away from today's defaults.

The additions are the options in which the profiles `paper` and `default` differ. For each workload, load, number of
schedulers and number of users the daemons' cores run with a profile, and with one thing changed at a time. All runs of
a seed meet the same jobs, so a change is told by its differences, seed by seed: shown are their means in percent of the
profile's, and half the 95 % confidence interval by Student's t. Messages: those that daemons and clients get, and ends
of tasks, for each task.

With --live each setting is also run with daemons, on the same jobs by seed: one point after the other, which take the
machine for themselves. * marks points that are no measurement, as the generator was late.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import click
import orjson
from rich.console import Console

from benchmarks.report import Report, Row
from loadgen.durations import Durations
from loadgen.point import PointPlan, run_point
from loadgen.synthetic import Synthetic
from loadgen.targets import Shape
from simulator.cluster import Cluster
from simulator.figures.intervals import interval
from simulator.figures.sweep import Figures, Point, run
from simulator.policies import ROOMS, Settings
from sparrow_py.errors import InvalidOption
from sparrow_py.profiles import DEFAULT, PAPER, settings

PARETO = Durations(kind="pareto", alpha=1.5)
CONSTANT = Durations(kind="constant")
WORKLOADS: dict[str, tuple[int, dict[str, Any]]] = {
    "constant": (10, {"tasks": 10, "durations": CONSTANT}),
    "small": (10, {"tasks": 10}),
    "mixed-small": (19, {"tasks": 10, "large": 0.1, "large_tasks": 100}),
    "exponential": (100, {"tasks": 100}),
    "pareto": (100, {"tasks": 100, "durations": PARETO}),
    "mixed": (49, {"tasks": 10, "large": 0.1, "large_tasks": 400}),
}
"""Mean tasks of a job, and what makes the workload. Tasks last 100 ms on average, exponential unless said otherwise."""

ADDITIONS: dict[str, tuple[str, ...]] = {
    "idle reports": ("report_idle",),
    "shortest first": ("order",),
    "sharing": ("probe_sharing",),
    "pushing": ("push_to_idle",),
    "cancellation": ("cancellation",),
}
"""The options of each, which `default` has and `paper` has not."""
NEEDS = {"pushing": ("report_idle",)}
"""The options without which an addition does nothing."""

FURTHER: dict[str, dict[str, Any]] = {
    "oldest first": {"order": "oldest"},
    "d = 3": {"probe_ratio": 3.0},
    "d up to 6": {"probe_ratio_max": 6.0},
    "no idle reports, d up to 6": {"report_idle": False, "probe_ratio_max": 6.0},
}
"""Changes to the defaults that are neither profile's."""
CENTRAL = "central"
"""An omniscient scheduler, beside the defaults."""

MEASURES = {
    "mean": "response_mean_ms", "p50": "response_p50_ms", "p95": "response_p95_ms", "p99": "response_p99_ms",
    "messages": "events",
}  # fmt: skip
LIVE_MEASURES = {"live p50": "p50", "live p95": "p95"}
QUICK_TASKS_PER_SLOT, TASKS_PER_SLOT = 10, 30
QUICK_SEEDS, SEEDS = 2, 5


class Case(NamedTuple):
    """What all settings are compared in."""

    workload: str
    load: float
    schedulers: int
    users: int


class Scale(NamedTuple):
    """How much is run."""

    nodes: int
    slots: int
    tasks_per_slot: int
    seeds: range

    def jobs(self, mean_tasks: int) -> int:
        """Jobs that bring so many tasks to each slot."""
        return max(20, self.nodes * self.slots * self.tasks_per_slot // mean_tasks)


class Variant(NamedTuple):
    """One thing that is compared. base: the name of what it is compared with; its own if it is that."""

    name: str
    base: str
    policy: str
    settings: Settings


def variants(bases: Sequence[str], further: Sequence[str] = ()) -> list[Variant]:
    """The profiles, each with its additions or without them, and these further changes of the defaults."""
    found = []
    on, off = settings(DEFAULT, *ROOMS), settings(PAPER, *ROOMS)
    if PAPER in bases:
        found.append(Variant(PAPER, PAPER, "sparrow", Settings.of(PAPER)))
        for name, options in ADDITIONS.items():
            needs = NEEDS.get(name, ())
            changed = Settings.of(PAPER, **{option: on[option] for option in (*options, *needs)})
            found.append(Variant(f"+ {name}{' (and idle reports)' if needs else ''}", PAPER, "sparrow", changed))
    if DEFAULT in bases:
        found.append(Variant(DEFAULT, DEFAULT, "sparrow", Settings()))
        for name, options in ADDITIONS.items():
            needed = " (and pushing)" if any(set(options) & set(needs) for needs in NEEDS.values()) else ""
            changed = Settings(**{option: off[option] for option in options})
            found.append(Variant(f"- {name}{needed}", DEFAULT, "sparrow", changed))
        for name in further:
            policy, changed = (CENTRAL, Settings()) if name == CENTRAL else ("sparrow", Settings(**FURTHER[name]))
            found.append(Variant(name, DEFAULT, policy, changed))
    return found


# ---- points ----------------------------------------------------------------------------------


def workload(case: Case, scale: Scale) -> Synthetic:
    """The jobs of a case."""
    mean_tasks, made = WORKLOADS[case.workload]
    users = tuple(f"user{number}" for number in range(case.users))
    return Synthetic(load=case.load, jobs=scale.jobs(mean_tasks), users=users, **made)


def point(case: Case, variant: Variant, scale: Scale, seed: int) -> Point:
    """One simulation."""
    return Point(
        cluster=Cluster(nodes=scale.nodes, slots=scale.slots, schedulers=case.schedulers),
        workload=workload(case, scale),
        policy=variant.policy,
        settings=variant.settings,
        seed=seed,
    )


@dataclass(frozen=True)
class LivePoint:
    """One run with daemons."""

    shape: Shape
    workload: Synthetic
    probe_ratio: float
    seed: int

    @cached_property
    def key(self) -> str:
        """What tells it from other points."""
        return hashlib.sha256(orjson.dumps(asdict(self), option=orjson.OPT_SORT_KEYS)).hexdigest()[:32]


def live_point(case: Case, variant: Variant, scale: Scale, seed: int) -> LivePoint:
    """The daemons with these settings, on the jobs of the simulation."""
    values = asdict(variant.settings)
    options = tuple((name, values[name]) for name in settings(DEFAULT, *ROOMS))
    shape = Shape(nodes=scale.nodes, slots=scale.slots, schedulers=case.schedulers, options=options)
    return LivePoint(shape, workload(case, scale), variant.settings.probe_ratio, seed)


def run_live(one: LivePoint) -> Figures:
    """Its figures, and whether they are a measurement."""
    plan = PointPlan(
        workload=one.workload, load=one.workload.load, shape=one.shape, probe_ratio=one.probe_ratio, seed=one.seed
    )
    found = run_point(0, plan).point
    return {name: found.figures[name] for name in LIVE_MEASURES.values()} | {"valid": found.valid}


# ---- tables ----------------------------------------------------------------------------------

FiguresOf = Callable[[Case, Variant], list[Figures]]
"""The figures of a setting, by seed."""


def cell(case: Case, variant: Variant, base: Variant, measure: str, figures_of: FiguresOf) -> str:
    """The base's own figure, or the mean difference to it in percent and half its confidence interval."""
    key = (MEASURES | LIVE_MEASURES)[measure]
    own = figures_of(case, variant)
    if variant.policy == CENTRAL and measure == "messages":
        return ""
    mark = "" if all(one.get("valid", True) for one in own) else "* "
    if variant.name == base.name:
        mean = interval([one[key] for one in own]).mean
        if measure == "messages":
            mean_tasks, _ = WORKLOADS[case.workload]
            return f"{mark}{mean / (own[0]['jobs'] * mean_tasks):.1f}"
        return f"{mark}{mean:,.1f} ms"
    pairs = zip(figures_of(case, base), own, strict=True)
    found = interval([100 * (after[key] / before[key] - 1) for before, after in pairs])
    half = f" ± {found.high - found.mean:.1f}" if len(own) > 1 else ""
    return f"{mark}{found.mean:+.1f}{half}"


def tables(
    cases: Sequence[Case], compared: Sequence[Variant], measures: Sequence[str], figures_of: FiguresOf, size: str
) -> dict[str, list[Row]]:
    """For each workload and number of schedulers and users: a table of the measures at the one load, or for each
    measure one of the loads."""
    bases = {variant.name: variant for variant in compared if variant.name == variant.base}
    kinds: dict[tuple[str, int, int], list[Case]] = {}
    for case in cases:
        kinds.setdefault((case.workload, case.schedulers, case.users), []).append(case)
    found: dict[str, list[Row]] = {}
    for (name, schedulers, users), own in kinds.items():
        title = f"{name}, schedulers: {schedulers}, users: {users} ({size})"
        if len(own) == 1:
            found[f"{title}, load {own[0].load:g}"] = [
                {"what": one.name}
                | {measure: cell(own[0], one, bases[one.base], measure, figures_of) for measure in measures}
                for one in compared
            ]
            continue
        for measure in measures:
            found[f"{measure}: {title}"] = [
                {"what": one.name}
                | {f"{case.load:g}": cell(case, one, bases[one.base], measure, figures_of) for case in own}
                for one in compared
            ]
    return found


def measure(
    cases: Sequence[Case], scale: Scale, compared: Sequence[Variant], measures: Sequence[str], results: Path,
    processes: int | None,
) -> Report:  # fmt: skip
    """The simulated tables."""

    def of(case: Case, variant: Variant) -> list[Point]:
        return [point(case, variant, scale, seed) for seed in scale.seeds]

    points = [one for case in cases for variant in compared for one in of(case, variant)]
    figures = run("additions", points, results, processes=processes)

    def figures_of(case: Case, variant: Variant) -> list[Figures]:
        return [figures[one.key] | {"jobs": scale.jobs(WORKLOADS[case.workload][0])} for one in of(case, variant)]

    found = tables(
        cases, compared, measures, figures_of, f"{scale.nodes} x {scale.slots} slots, {len(scale.seeds)} seeds"
    )
    return _report(cases, compared, figures_of, MEASURES["mean"], found, [figures[one.key] for one in points])


def measure_live(cases: Sequence[Case], scale: Scale, compared: Sequence[Variant], results: Path) -> Report:
    """The live tables."""

    def of(case: Case, variant: Variant) -> list[LivePoint]:
        return [live_point(case, variant, scale, seed) for seed in scale.seeds]

    # All settings of a seed one after the other: what else the machine does changes slowly.
    points = [of(case, variant)[place] for place, _ in enumerate(scale.seeds) for case in cases for variant in compared]
    figures = run("additions live", points, results, processes=1, work=run_live)

    def figures_of(case: Case, variant: Variant) -> list[Figures]:
        return [figures[one.key] for one in of(case, variant)]

    size = f"{scale.nodes} x {scale.slots} slots, {len(scale.seeds)} seeds, live"
    found = tables(cases, compared, list(LIVE_MEASURES), figures_of, size)
    return _report(cases, compared, figures_of, "p50", found, [figures[one.key] for one in points])


def _report(
    cases: Sequence[Case], compared: Sequence[Variant], figures_of: FiguresOf, key: str, found: dict[str, list[Row]],
    raw: list[Figures],
) -> Report:  # fmt: skip
    """value: a profile's response time at the highest load; with both, the default's over the paper's."""
    hardest = max(cases, key=lambda case: case.load)
    bases = [variant for variant in compared if variant.name == variant.base]
    first, last = (interval([one[key] for one in figures_of(hardest, base)]).mean for base in (bases[0], bases[-1]))
    value, unit = (100 * (last / first - 1), "% response, default against paper") if len(bases) > 1 else (first, "ms")
    notes = ["Below a profile's row: mean paired difference from it in percent, ± half the 95 % confidence interval."]
    return Report("additions", value, f"{unit} ({hardest.workload}, load {hardest.load:g})", found, raw, notes)


# ---- the command -----------------------------------------------------------------------------

_FURTHER_NAMES = (*FURTHER, CENTRAL)


@click.command("additions", help=__doc__)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of tables.")
@click.option("--repeat", type=click.IntRange(1), help=f"Seeds.  [default: {SEEDS}; with --quick {QUICK_SEEDS}]")
@click.option("--quick", is_flag=True, help=f"{QUICK_TASKS_PER_SLOT} tasks a slot in place of {TASKS_PER_SLOT}.")
@click.option("--base", multiple=True, type=click.Choice([PAPER, DEFAULT]), help="Only this profile.  [both]")
@click.option(
    "--further", multiple=True, type=click.Choice(_FURTHER_NAMES), help="Compare with the defaults, too; repeat."
)
@click.option("--workload", multiple=True, type=click.Choice(list(WORKLOADS)), default=("small",), show_default=True)
@click.option("--load", multiple=True, type=float, default=(0.3, 0.5, 0.7, 0.9, 0.95), show_default=True)
@click.option("--schedulers", multiple=True, type=int, default=(1, 10), show_default=True)
@click.option("--users", multiple=True, type=int, default=(1,), show_default=True)
@click.option("--nodes", type=int, default=100, show_default=True)
@click.option("--slots", type=int, default=4, show_default=True, help="Of each node.")
@click.option(
    "--measure",
    "measures",
    multiple=True,
    type=click.Choice(list(MEASURES)),
    default=("mean", "p95", "messages"),
    show_default=True,
)
@click.option("--tasks-per-slot", type=click.IntRange(1), help="How much to run.")
@click.option("--live", is_flag=True, help="Run daemons in place of the simulator.")
@click.option("--results", type=click.Path(path_type=Path), help="Keep results here, and go on from those there.")
@click.option("--processes", type=click.IntRange(1), help="Simulations at a time.  [default: a core each]")
def main(as_json: bool, **asked: Any) -> None:
    """Print the tables."""
    with tempfile.TemporaryDirectory() as directory:
        try:
            report = _measured(asked, Path(directory))
        except InvalidOption as error:
            raise click.ClickException(str(error)) from None
    if as_json:
        click.echo(report.as_json())
    else:
        report.show(Console(highlight=False, width=200))


def _measured(asked: Mapping[str, Any], directory: Path) -> Report:
    quick = asked["quick"]
    seeds = range(1, (asked["repeat"] or (QUICK_SEEDS if quick else SEEDS)) + 1)
    tasks_per_slot = asked["tasks_per_slot"] or (QUICK_TASKS_PER_SLOT if quick else TASKS_PER_SLOT)
    scale = Scale(asked["nodes"], asked["slots"], tasks_per_slot, seeds)
    cases = [
        Case(name, load, schedulers, users)
        for name in asked["workload"]
        for schedulers in asked["schedulers"]
        for users in asked["users"]
        for load in asked["load"]
    ]
    compared = variants(asked["base"] or (PAPER, DEFAULT), asked["further"])
    results = asked["results"] or directory / "results.jsonl"
    if asked["live"]:
        if CENTRAL in asked["further"]:
            raise InvalidOption("further", CENTRAL, "what daemons can do, with --live")
        return measure_live(cases, scale, compared, results)
    return measure(cases, scale, compared, asked["measures"], results, asked["processes"])


if __name__ == "__main__":
    main()
