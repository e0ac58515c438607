"""The commands of `python -m benchmarks.altruistic`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from benchmarks.altruistic import decisions, document, live
from benchmarks.altruistic.catalogue import FIGURES, FULL, MIDDLE, QUICK, SCALES, Row, runs_of
from benchmarks.altruistic.measuring import DOCUMENT, RESULTS, have_all
from benchmarks.altruistic.tables import rows_of, targets_of
from benchmarks.report import table

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100, "show_default": True}


@click.group("altruistic", context_settings=CONTEXT)
def main() -> None:
    """Figures of paper 002 (Carbyne), simulated; what was measured before is not measured again.

    \b
    Examples:
      python -m benchmarks.altruistic figure 1 --quick
      python -m benchmarks.altruistic figure --processes 2
      python -m benchmarks.altruistic decisions
      python -m benchmarks.altruistic live --quick
    """


def _show(rows: list[Row], title: str) -> None:
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console = Console(highlight=False, markup=False, width=220)
    console.print(title, style="bold")
    if rows:
        console.print(table(rows))


SCALE = (
    click.option("--full", "scale", flag_value=FULL.name, default=True, help=f"{FULL.jobs} jobs, as in the paper."),
    click.option(
        "--middle", "scale", flag_value=MIDDLE.name, help=f"{MIDDLE.jobs} jobs on {MIDDLE.machines} machines."
    ),
)
"""As options."""


@main.command("figure")
@click.argument("names", nargs=-1)
@SCALE[0]
@SCALE[1]
@click.option(
    "--quick", "scale", flag_value=QUICK.name, help=f"{QUICK.jobs} jobs on {QUICK.machines} machines, one seed."
)
@click.option("--processes", type=click.IntRange(1, 64), default=1, help="Runs at a time.")
@click.option("--json", "as_json", is_flag=True, help="One object.")
@click.option(
    "--results",
    type=click.Path(path_type=Path),
    default=RESULTS,
    show_default=False,
    help="Where results are kept.  [default: benchmarks/altruistic/results.jsonl]",
)
def figure_command(names: tuple[str, ...], scale: str, processes: int, as_json: bool, results: Path) -> None:
    """Figures by name; all, if none is named."""
    objects: list[dict[str, Any]] = []
    for name in names or tuple(FIGURES):
        if name not in FIGURES:
            raise click.ClickException(f"{name} is no figure; there are {', '.join(FIGURES)}")
        figure = FIGURES[name]
        cases = figure.cases(SCALES[scale])
        runs = [run for case in cases for run in case.runs()]
        found = []
        for result in have_all(runs, results, processes):
            found.append(result)
            click.echo(f"{name}: {len(found)} of {len(runs)} runs, {result.took_s:g} s", err=True)
        rows, targets = rows_of(figure, cases, found), targets_of(figure, cases, found)
        if as_json:
            objects.append(
                {
                    "figure": name,
                    "title": figure.title,
                    "paper": figure.paper,
                    "rows": rows,
                    "targets": [vars_of(target) for target in targets],
                }
            )
            continue
        _show(rows, f"{name}: {figure.title} (paper: {figure.paper})")
        _show([vars_of(target) for target in targets], "targets")
    if as_json:
        click.echo(json.dumps({"name": "altruistic", "figures": objects}))


def vars_of(target: Any) -> Row:
    """As a row."""
    return {"target": target.text, "ours": target.ours, "verdict": target.verdict}


@main.command("record")
@SCALE[0]
@SCALE[1]
@click.option("--seeds", type=click.IntRange(1, 20), default=20, help="At most, of each figure.")
@click.option("--processes", type=click.IntRange(1, 64), default=1, help="Runs at a time.")
@click.option("--results", type=click.Path(path_type=Path), default=RESULTS, show_default=False)
@click.argument("names", nargs=-1)
def record_command(names: tuple[str, ...], scale: str, seeds: int, processes: int, results: Path) -> None:
    """All runs of figures, the first seed of each figure first; ended at any time, it goes on where it was."""
    runs = runs_of(names or tuple(FIGURES), SCALES[scale], seeds)
    for number, result in enumerate(have_all(runs, results, processes), 1):
        click.echo(f"{number} of {len(runs)}: {result.run}, {result.took_s:g} s", err=True)


@main.command("decisions")
@click.option("--pending", type=click.IntRange(100, 1_000_000), default=10_000, help="Tasks that wait.")
@click.option("--machines", type=click.IntRange(1, 100_000), default=1_000, help="Of the paper's kind.")
@click.option("--jobs", type=click.IntRange(1, 10_000), default=100, help="That are there at a time.")
@click.option("--json", "as_json", is_flag=True, help="One object.")
def decisions_command(pending: int, machines: int, jobs: int, as_json: bool) -> None:
    """CPU time of decisions: a task's end, an arrival, a look at everything."""
    report = decisions.measure(pending, machines, jobs)
    if as_json:
        click.echo(report.as_json())
    else:
        report.show(Console(highlight=False, markup=False, width=160))


@main.command("live")
@click.option("--quick", is_flag=True, help="Fewer jobs, of tasks that sleep a tenth of a second and longer.")
@click.option("--json", "as_json", is_flag=True, help="One object.")
def live_command(quick: bool, as_json: bool) -> None:
    """The same jobs live on this machine and simulated; it wants the machine for itself."""
    report = live.measure(live.QUICK if quick else live.FULL)
    if as_json:
        click.echo(report.as_json())
    else:
        report.show(Console(highlight=False, markup=False, width=160))


@main.command("document")
@click.option("--results", type=click.Path(path_type=Path), default=RESULTS, show_default=False)
def document_command(results: Path) -> None:
    """Write docs/altruistic-figures.md from results."""
    DOCUMENT.write_text(document.written(results))


if __name__ == "__main__":
    sys.exit(main())
