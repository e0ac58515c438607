"""Two checkouts of the project compared: the same benchmarks in both, alternating, ratios within each pair.

A machine's speed drifts, so figures of two runs an hour apart say little. Here each pair runs a benchmark once in
`--before` and once in `--after`, in turns first, and what counts is the ratio after / before of the pair. The table
has for each figure of the benchmark's own tables the medians and the median ratio, with the interval that holds the
median of the ratios with 95 % confidence (by order statistics: no distribution is assumed). Above 1 is slower for
figures of time, and faster for figures per second; `value` is the geometric mean of the median ratios, rates inverted.

Each checkout runs with the interpreter of its own `.venv` (`make .venv/.dev` makes it).
"""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from benchmarks.report import Report, Row, progress

NAMES = ("cpu_per_task", "latency", "throughput", "memory")
BY_DEFAULT = ("cpu_per_task", "latency", "throughput")
"""Memory takes a minute and more, and hardly differs from run to run: a few pairs will do."""
COMPARED = (" ms", "/s", "ms per task", "ms/task", " MB")
"""A column is compared if its name ends like this, and is no target."""
CONFIDENCE = 0.95

Figures = dict[tuple[str, str, str], float]
"""(benchmark, row, column) to the figure of one run."""


def run_benchmark(checkout: Path, name: str) -> Figures:
    """One repetition of a benchmark in the checkout. `CalledProcessError` if it fails."""
    argv = [str(checkout / ".venv/bin/python"), "-m", f"benchmarks.{name}", "--json", "--repeat", "1"]
    output = subprocess.run(argv, cwd=checkout, check=True, capture_output=True, text=True).stdout
    return figures_of(name, json.loads(output))


def figures_of(name: str, report: dict[str, Any]) -> Figures:
    """The compared figures of a benchmark's JSON object."""
    figures: Figures = {}
    for title, rows in report["details"]["tables"].items():
        for row in rows:
            compared = {column for column in row if f" {column}".endswith(COMPARED) and not column.startswith("target")}
            label = ", ".join(
                f"{column} {value}".strip() for column, value in row.items() if column not in compared | {"target ms"}
            )
            for column in sorted(compared):
                figures[name, f"{title.split(', ')[0]}: {label}", column] = float(row[column])
    return figures


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """The order statistics between which the median lies with `CONFIDENCE` at least; the extremes if there are few."""
    ordered, n = sorted(values), len(values)
    outside, rank = 0.0, 0
    while rank < (n - 1) // 2:
        outside += math.comb(n, rank) / 2**n
        if 2 * outside > 1 - CONFIDENCE:
            break
        rank += 1
    rank = max(rank - 1, 0)
    return ordered[rank], ordered[n - 1 - rank]


def row_of(key: tuple[str, str, str], before: Sequence[float], after: Sequence[float]) -> Row:
    """A figure over all pairs."""
    name, label, column = key
    ratios = [two / one for one, two in zip(before, after, strict=True) if one]
    low, high = median_interval(ratios) if ratios else (math.nan, math.nan)
    return {
        "benchmark": name,
        "row": label,
        "figure": column,
        "before": statistics.median(before),
        "after": statistics.median(after),
        "after / before": statistics.median(ratios) if ratios else math.nan,
        "from": low,
        "to": high,
    }


def cost(row: Row) -> float:
    """The row's ratio as a cost: above 1 is worse."""
    ratio = float(row["after / before"])
    return 1 / ratio if row["figure"].endswith("/s") else ratio


def compare(before: Path, after: Path, names: Sequence[str], pairs: int) -> Report:
    """Run everything `pairs` times in both checkouts."""
    runs: list[tuple[Figures, Figures]] = []
    for pair in range(pairs):
        measured: dict[Path, Figures] = {before: {}, after: {}}
        for name in names:
            for checkout in (before, after) if pair % 2 == 0 else (after, before):
                measured[checkout] |= run_benchmark(checkout, name)
        runs.append((measured[before], measured[after]))
        progress(f"pair {pair + 1} of {pairs}")
    keys = [key for key in runs[0][0] if all(key in figures for pair in runs for figures in pair)]
    rows = [row_of(key, [one[key] for one, _ in runs], [two[key] for _, two in runs]) for key in keys]
    costs = [cost(row) for row in rows if "ProcessPool" not in row["row"] and row["after / before"] > 0]
    return Report(
        "before_after",
        statistics.geometric_mean(costs) if costs else math.nan,
        "geometric mean of the median ratios after / before (rates inverted; the process pool's left out)",
        {f"{pairs} interleaved pairs": rows},
        [{"before": list(one.items()), "after": list(two.items())} for one, two in runs],
        [f"from, to: the median ratio's {CONFIDENCE:.0%} interval. The process pool's rows are the control."],
    )


@click.command(
    help=f"Compare two checkouts by interleaved runs of benchmarks; by default {', '.join(BY_DEFAULT)}.",
)
@click.argument("names", nargs=-1, type=click.Choice(NAMES))
@click.option("--before", type=click.Path(exists=True, file_okay=False, path_type=Path), required=True)
@click.option("--after", type=click.Path(exists=True, file_okay=False, path_type=Path), default=".", show_default=True)
@click.option("--pairs", type=click.IntRange(2), default=15, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of the table.")
def main(names: tuple[str, ...], before: Path, after: Path, pairs: int, as_json: bool) -> None:
    """Exit with 1 if a benchmark fails."""
    try:
        report = compare(before.resolve(), after.resolve(), names or BY_DEFAULT, pairs)
    except subprocess.CalledProcessError as error:
        click.echo(f"error: {' '.join(error.cmd)} failed:\n{error.stderr}", err=True)
        sys.exit(1)
    if as_json:
        click.echo(report.as_json())
    else:
        report.show(Console(highlight=False, width=200))


if __name__ == "__main__":
    main()
