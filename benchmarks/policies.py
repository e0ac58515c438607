"""What schedulers do beyond the paper, and what each of it is worth: paired simulations.

For each workload, load, number of schedulers and number of users the daemons' cores run with today's defaults, and with
one thing changed at a time. All runs of a seed meet the same jobs, so a change is told by its differences, seed by
seed: shown are their means in percent of the defaults, and half the 95 % confidence interval by Student's t.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click
from rich.console import Console

from benchmarks.report import Report, Row
from loadgen.durations import Durations
from loadgen.synthetic import Synthetic
from simulator.cluster import Cluster
from simulator.intervals import interval
from simulator.policies import Settings
from simulator.sweep import Figures, Point, run
from sparrow_py.errors import InvalidOption

PARETO = Durations(kind="pareto", alpha=1.5)
WORKLOADS: dict[str, tuple[int, dict[str, Any]]] = {
    "exponential": (100, {"tasks": 100}),
    "pareto": (100, {"tasks": 100, "durations": PARETO}),
    "mixed": (49, {"tasks": 10, "large": 0.1, "large_tasks": 400}),
}
"""Mean tasks of a job, and what makes the workload. Tasks last 100 ms on average."""

CHANGES: dict[str, dict[str, Any]] = {
    "order reserved": {"order": "reserved"},
    "order oldest": {"order": "oldest"},
    "order shortest": {"order": "shortest"},
    "no idle reports": {"report_idle": False},
    "d = 3": {"probe_ratio": 3.0},
    "d up to 6": {"probe_ratio_max": 6.0},
    "no idle, d up to 6": {"report_idle": False, "probe_ratio_max": 6.0},
}
"""Those that are the defaults are left out."""

DEFAULTS, CENTRAL = "defaults", "central"
MEASURES = {"mean": "response_mean_ms", "p50": "response_p50_ms", "p95": "response_p95_ms", "p99": "response_p99_ms"}
QUICK_TASKS_PER_SLOT, TASKS_PER_SLOT = 30, 100
QUICK_NODES, NODES = 200, 1000
QUICK_SEEDS, SEEDS = 3, 5


class Case(NamedTuple):
    """What all changes are compared in."""

    workload: str
    load: float
    schedulers: int
    users: int


class Scale(NamedTuple):
    """How much is simulated."""

    nodes: int
    tasks_per_slot: int
    seeds: range


Variants = dict[str, tuple[str, Settings]]
"""Policy and settings of each thing that is compared, by its name, the defaults first."""


def variants(changes: Sequence[str]) -> Variants:
    """The defaults, the omniscient scheduler, and these changes."""
    found = {DEFAULTS: ("sparrow", Settings()), CENTRAL: ("central", Settings())}
    for name in changes:
        if Settings(**CHANGES[name]) != Settings():
            found[name] = ("sparrow", Settings(**CHANGES[name]))
    return found


def point(case: Case, policy: str, settings: Settings, scale: Scale, seed: int) -> Point:
    """One simulation."""
    mean_tasks, made = WORKLOADS[case.workload]
    users = tuple(f"user{number}" for number in range(case.users))
    jobs = scale.nodes * scale.tasks_per_slot // mean_tasks
    workload = Synthetic(load=case.load, jobs=jobs, users=users, **made)
    return Point(
        cluster=Cluster(nodes=scale.nodes, schedulers=case.schedulers),
        workload=workload,
        policy=policy,
        settings=settings,
        seed=seed,
    )


def rows(case: Case, scale: Scale, compared: Variants, figures: dict[str, Figures]) -> Iterator[Row]:
    """The table's rows of a case: what the defaults do, and what each change does to that."""
    base = [figures[point(case, "sparrow", Settings(), scale, seed).key] for seed in scale.seeds]
    yield (
        {"what": DEFAULTS}
        | {name: f"{interval([run_[key] for run_ in base]).mean:.0f} ms" for name, key in MEASURES.items()}
        | {"events": f"{interval([run_['events'] / 1000 for run_ in base]).mean:,.0f} k"}
    )
    for what, (policy, settings) in compared.items():
        if what != DEFAULTS:
            changed = [figures[point(case, policy, settings, scale, seed).key] for seed in scale.seeds]
            yield {"what": what} | {
                name: _difference(base, changed, key) for name, key in {**MEASURES, "events": "events"}.items()
            }


def _title(case: Case) -> str:
    return f"{case.workload}, load {case.load}, schedulers: {case.schedulers}, users: {case.users}"


def _difference(base: list[Figures], changed: list[Figures], key: str) -> str:
    """The mean difference in percent, and half its confidence interval."""
    found = interval([100 * (after[key] / before[key] - 1) for before, after in zip(base, changed, strict=True)])
    return f"{found.mean:+.1f} ± {found.high - found.mean:.1f}"


def measure(cases: list[Case], scale: Scale, compared: Variants, results: Path, processes: int | None) -> Report:
    """A table for each case."""
    points = [
        point(case, policy, settings, scale, seed)
        for seed in scale.seeds
        for case in cases
        for policy, settings in compared.values()
    ]
    figures = run("policies", points, results, processes=processes)
    size = f"{scale.nodes} nodes of 1 slot, {len(scale.seeds)} seeds"
    tables = {f"{_title(case)} ({size})": list(rows(case, scale, compared, figures)) for case in cases}
    hardest = max(cases, key=lambda case: case.load)
    over = [
        figures[point(hardest, "sparrow", Settings(), scale, seed).key]["response_p50_ms"]
        / figures[point(hardest, CENTRAL, Settings(), scale, seed).key]["response_p50_ms"]
        for seed in scale.seeds
    ]
    notes = ["Below the defaults' row: mean paired difference from it in percent ± half the 95 % confidence interval."]
    unit = f"% above central, p50 of the defaults ({hardest.workload}, load {hardest.load})"
    raw = [figures[one.key] for one in points]
    return Report("policies", 100 * (interval(over).mean - 1), unit, tables, raw, notes)


@click.command("policies", help=__doc__)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of tables.")
@click.option("--repeat", type=click.IntRange(1), help=f"Seeds.  [default: {SEEDS}; with --quick {QUICK_SEEDS}]")
@click.option("--quick", is_flag=True, help=f"{QUICK_NODES} nodes in place of {NODES}, the highest load only.")
@click.option("--workload", multiple=True, type=click.Choice(list(WORKLOADS)), help="One of them; repeat.  [all]")
@click.option("--load", multiple=True, type=float, default=(0.6, 0.8, 0.95), show_default=True)
@click.option("--schedulers", multiple=True, type=int, default=(1, 10), show_default=True)
@click.option("--users", multiple=True, type=int, default=(1, 10), show_default=True)
@click.option("--change", multiple=True, type=click.Choice(list(CHANGES)), help="What to compare; repeat.  [all]")
@click.option(
    "--tasks-per-slot",
    type=click.IntRange(1),
    help=f"How long to simulate.  [default: {TASKS_PER_SLOT}; with --quick {QUICK_TASKS_PER_SLOT}]",
)
@click.option("--results", type=click.Path(path_type=Path), help="Keep results here, and go on from those there.")
@click.option("--processes", type=click.IntRange(1), help="Simulations at a time.  [default: a core each]")
def main(
    as_json: bool,
    repeat: int | None,
    quick: bool,
    workload: tuple[str, ...],
    load: tuple[float, ...],
    schedulers: tuple[int, ...],
    users: tuple[int, ...],
    change: tuple[str, ...],
    tasks_per_slot: int | None,
    results: Path | None,
    processes: int | None,
) -> None:
    """Print the tables."""
    loads = load[-1:] if quick else load
    cases = [
        Case(name, one_load, schedulers_, users_)
        for name in workload or WORKLOADS
        for one_load in loads
        for schedulers_ in schedulers
        for users_ in users
    ]
    seeds = range(1, (repeat or (QUICK_SEEDS if quick else SEEDS)) + 1)
    compared = variants(change or tuple(CHANGES))
    tasks_per_slot = tasks_per_slot or (QUICK_TASKS_PER_SLOT if quick else TASKS_PER_SLOT)
    scale = Scale(QUICK_NODES if quick else NODES, tasks_per_slot, seeds)
    with tempfile.TemporaryDirectory() as directory:
        file = results or Path(directory) / "results.jsonl"
        try:
            report = measure(cases, scale, compared, file, processes)
        except InvalidOption as error:
            raise click.ClickException(str(error)) from None
    if as_json:
        click.echo(report.as_json())
    else:
        report.show(Console(highlight=False))


if __name__ == "__main__":
    main()
