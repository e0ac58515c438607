"""The simulator beside another implementation of the paper's model: ours, the reference, and how far apart they are.

Single-slot nodes and nodes of four slots, jobs of 100 tasks, exponential task durations of 100 ms on average, d = 2,
0.5 ms one way. The reference is one run of 5,000 jobs for each number, so it has the noise of a seed: about ±2 % at
load 0.6 and ±6 % at 0.95. Ours are means over seeds, with half the 95 % confidence interval by Student's t.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import click
from rich.console import Console

from benchmarks.report import Report, Row, progress
from loadgen.synthetic import Synthetic
from simulator.cluster import Cluster
from simulator.figures.catalogue import paper
from simulator.figures.intervals import interval
from simulator.figures.sweep import Figures, Point, run
from simulator.policies import Settings
from sparrow_py.errors import InvalidOption


class Reference(NamedTuple):
    """What the other implementation gave, in milliseconds."""

    load: float
    slots: int
    what: str
    percentiles_ms: dict[str, int]


SPARROW, OURS = "sparrow", "today's defaults"
REFERENCES = (
    Reference(0.6, 1, SPARROW, {"p50": 509, "p95": 772, "p99": 911}),
    Reference(0.6, 1, "central", {"p50": 497}),
    Reference(0.6, 1, "per-task", {"p50": 655}),
    Reference(0.6, 1, "random", {"p50": 1204}),
    Reference(0.6, 4, SPARROW, {"p50": 499, "p95": 760, "p99": 896}),
    Reference(0.8, 1, SPARROW, {"p50": 551, "p95": 814, "p99": 972}),
    Reference(0.8, 1, "central", {"p50": 501}),
    Reference(0.8, 1, "per-task", {"p50": 794}),
    Reference(0.8, 1, "random", {"p50": 2238}),
    Reference(0.95, 1, SPARROW, {"p50": 731, "p95": 1133, "p99": 1305}),
    Reference(0.95, 1, "central", {"p50": 531}),
    Reference(0.95, 1, "per-task", {"p50": 1096}),
    Reference(0.95, 1, "random", {"p50": 4634}),
    Reference(0.95, 4, SPARROW, {"p50": 545, "p95": 809, "p99": 961}),
)
LOADS = tuple(dict.fromkeys(reference.load for reference in REFERENCES))
NOISE_PERCENT = {0.6: 2.0, 0.8: 3.0, 0.95: 6.0}
"""Of the reference, by load; that of 0.8 is between what is known of the others."""
NODES, TASKS = 1000, 100
JOBS, QUICK_JOBS = 5000, 1000
SEEDS, QUICK_SEEDS = 3, 1


def policy_of(what: str) -> tuple[str, Settings]:
    """The policy and its settings: the paper's, but for the row of today's defaults."""
    return (SPARROW, Settings()) if what == OURS else (what, paper())


def point(reference: Reference, what: str, jobs: int, seed: int) -> Point:
    """The simulation of a reference number, or of something else in its place."""
    policy, settings = policy_of(what)
    return Point(
        cluster=Cluster(nodes=NODES, slots=reference.slots),
        workload=Synthetic(tasks=TASKS, load=reference.load, jobs=jobs),
        policy=policy,
        settings=settings,
        seed=seed,
    )


def rows(reference: Reference, jobs: int, seeds: range, figures: dict[str, Figures]) -> list[Row]:
    """A row for each percentile; where Sparrow is meant, what today's defaults do stands beside."""
    found = []
    for name, expected in reference.percentiles_ms.items():
        ours = interval(_values(reference, reference.what, name, jobs, seeds, figures))
        defaults = "–"
        if reference.what == SPARROW:
            defaults = f"{interval(_values(reference, OURS, name, jobs, seeds, figures)).mean:.0f}"
        found.append(
            {
                "load": reference.load,
                "slots": reference.slots,
                "policy": reference.what,
                "figure": name,
                "reference ms": expected,
                "ours ms": round(ours.mean, 1),
                "±": round(ours.high - ours.mean, 1) if len(seeds) > 1 else "–",
                "deviation %": f"{100 * (ours.mean / expected - 1):+.1f}",
                "its noise %": f"±{NOISE_PERCENT[reference.load]:g}",
                "today's defaults ms": defaults,
            }
        )
    return found


def _values(
    reference: Reference, what: str, name: str, jobs: int, seeds: range, figures: dict[str, Figures]
) -> list[float]:
    return [float(figures[point(reference, what, jobs, seed).key][f"response_{name}_ms"]) for seed in seeds]


def measure(references: Sequence[Reference], jobs: int, seeds: range, results: Path, processes: int | None) -> Report:
    """One table; the figure is the largest deviation of a median of the paper's Sparrow."""
    wanted = [(reference, what) for reference in references for what in _whats(reference)]
    points = [point(reference, what, jobs, seed) for seed in seeds for reference, what in wanted]
    progress(f"{len(points)} simulations of {jobs} jobs of {TASKS} tasks")
    figures = run("simulator_reference", points, results, processes=processes)
    table = [row for reference in references for row in rows(reference, jobs, seeds, figures)]
    title = f"{NODES:,} nodes, {TASKS}-task jobs, {jobs:,} jobs, {len(seeds)} seed{'s' * (len(seeds) > 1)}"
    notes = [f"{JOBS:,} jobs stand behind the reference; at load 0.95 a shorter run is less settled, and so lower."]
    medians = [row for row in table if (row["policy"], row["figure"]) == (SPARROW, "p50")]
    worst = max(abs(row["ours ms"] / row["reference ms"] - 1) for row in medians)
    unit = "% at most between medians of the paper's Sparrow and the reference"
    return Report("simulator_reference", 100 * worst, unit, {title: table}, [figures[one.key] for one in points], notes)


def _whats(reference: Reference) -> Iterable[str]:
    return (reference.what, OURS) if reference.what == SPARROW else (reference.what,)


@click.command("simulator_reference", help=__doc__)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
@click.option("--repeat", type=click.IntRange(1), help=f"Seeds.  [default: {SEEDS}; with --quick {QUICK_SEEDS}]")
@click.option("--quick", is_flag=True, help=f"{QUICK_JOBS:,} jobs in place of {JOBS:,}.")
@click.option("--load", multiple=True, type=float, default=LOADS, show_default=True)
@click.option("--slots", multiple=True, type=int, default=(1, 4), show_default=True, help="Of a node.")
@click.option("--results", type=click.Path(path_type=Path), help="Keep results here, and go on from those there.")
@click.option("--processes", type=click.IntRange(1), help="Simulations at a time.  [default: a core each]")
def main(
    as_json: bool,
    repeat: int | None,
    quick: bool,
    load: tuple[float, ...],
    slots: tuple[int, ...],
    results: Path | None,
    processes: int | None,
) -> None:
    """Print the table."""
    references = [reference for reference in REFERENCES if reference.load in load and reference.slots in slots]
    if not any(reference.what == SPARROW for reference in references):
        raise click.ClickException(f"the reference has loads {', '.join(map(str, LOADS))} and 1 or 4 slots")
    jobs = QUICK_JOBS if quick else JOBS
    seeds = range(1, (repeat or (QUICK_SEEDS if quick else SEEDS)) + 1)
    with tempfile.TemporaryDirectory() as directory:
        file = results or Path(directory) / "results.jsonl"
        try:
            report = measure(references, jobs, seeds, file, processes)
        except InvalidOption as error:
            raise click.ClickException(str(error)) from None
    if as_json:
        click.echo(report.as_json())
    else:
        report.show(Console(highlight=False))


if __name__ == "__main__":
    main()
