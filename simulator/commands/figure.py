"""`python -m simulator figure`: computes figures, prints their numbers, and writes plots and tables."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.table import Table

from simulator.figures import catalogue, sweep
from simulator.figures.catalogue import FIGURES, QUICK, Figure, Row, Scale
from sparrow_py.distribution import install_command
from sparrow_py.errors import InvalidOption

RESULTS = "results.jsonl"
"""Where computed points stand; one file for all figures, which have some of them in common."""

COLUMNS = ("figure", "panel", "curve", "x", "mean", "low", "high", "seeds")


@click.command("figure")
@click.argument("names", nargs=-1, required=True, metavar=f"{{{'|'.join(FIGURES)}|all}}...")
@click.option("--out-dir", default="figures", help="Where plots, tables and results go.")
@click.option("--nodes", type=int, help=f"Machines, or cores in all.  [default: {Scale().nodes}]")
@click.option("--jobs", type=int, help=f"Jobs of each simulation at high load.  [default: {Scale().jobs}]")
@click.option("--seeds", type=int, help=f"Simulations of each point.  [default: {Scale().seeds}]")
@click.option(
    "--profile",
    default=",".join(Scale().profiles),
    show_default=True,
    help="Settings of Sparrow: paper, default, or both with a comma. "
    "Figures 3, 4, 4.3 and 6-alpha have the paper's in any case.",
)
@click.option("--quick", is_flag=True, help="Small clusters and few points, for a first look: minutes for all.")
@click.option("--processes", type=click.IntRange(1), help="Simulations at a time.  [default: one per core]")
def figure_command(
    names: tuple[str, ...],
    out_dir: str,
    nodes: int | None,
    jobs: int | None,
    seeds: int | None,
    profile: str,
    quick: bool,
    processes: int | None,
) -> None:
    """Reproduce figures of the Sparrow paper: 3 to 7, the idle fraction of §4.3, and figure 6 over the tail index.

    Writes figure-N.png, .svg, .csv and .json. What has been computed stands in results.jsonl: the command,
    run again after it was stopped, or with more seeds, goes on from there.
    """
    given = {"nodes": nodes, "jobs": jobs, "seeds": seeds}
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    profiles = tuple(dict.fromkeys(part.strip() for part in profile.split(",") if part.strip()))
    scale = replace(QUICK if quick else Scale(), profiles=profiles, **changes)
    wanted = catalogue.named(names)
    _check_matplotlib(wanted)
    directory = Path(out_dir)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidOption("out_dir", out_dir, f"a directory that can be written to ({error.strerror})") from None
    for name in wanted:
        make(FIGURES[name](scale), directory, processes)


def _check_matplotlib(names: Sequence[str]) -> None:
    """Say so before hours of simulation, not after them."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise InvalidOption(
            "figure", " ".join(names), f"nothing without matplotlib: {install_command('simulator')}"
        ) from None


def make(figure: Figure, directory: Path, processes: int | None = None) -> list[Row]:
    """Compute a figure, print it and write it; its rows."""
    from simulator.figures import plots

    computed = sweep.run(
        "figures", figure.points, directory / RESULTS, processes=processes, label=f"figure {figure.name}"
    )
    rows = catalogue.rows(figure, computed)
    _show(figure, rows)
    _write_csv(figure, rows, directory / f"figure-{figure.name}.csv")
    _write_json(figure, rows, directory / f"figure-{figure.name}.json")
    for path in plots.draw(figure, rows, directory):
        click.echo(f"wrote {path}", err=True)
    return rows


def _show(figure: Figure, rows: Sequence[Row]) -> None:
    """A table for each panel: a row per curve, a column per x, cells with the mean ± half the confidence interval."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=200)  # A pipe has no width to fit.
    console.print(f"{figure.title}; {figure.profiles_text}\n{figure.scale}", markup=False, style="bold")
    for panel in figure.panels:
        own = [row for row in rows if row.panel == panel.title]
        xs = sorted({row.x for row in own})
        table = Table(
            title=f"{panel.title or figure.title} – {panel.y_label}", title_justify="left", box=box.SIMPLE_HEAD,
            padding=(0, 1), collapse_padding=True, pad_edge=False,
        )  # fmt: skip
        table.add_column(figure.x_label)
        for x in xs:
            table.add_column(f"{x:g}", justify="right")
        for curve in dict.fromkeys(row.curve for row in own):
            cells = {row.x: row for row in own if row.curve == curve}
            table.add_row(curve, *(_cell(cells[x]) if x in cells else "" for x in xs))
        console.print(table)


def _cell(row: Row) -> str:
    half = row.value.high - row.value.mean
    digits = 0 if row.value.mean >= 100 else 2 if row.value.mean >= 1 else 4
    return f"{row.value.mean:,.{digits}f} ± {half:,.{digits}f}"


def _write_csv(figure: Figure, rows: Sequence[Row], path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for row in rows:
            writer.writerow([figure.name, row.panel, row.curve, row.x, *row.value, len(row.by_seed)])


def _write_json(figure: Figure, rows: Sequence[Row], path: Path) -> None:
    found = {
        "figure": figure.name,
        "title": figure.title,
        "scale": figure.scale,
        "profiles": figure.profiles,
        "x": figure.x_label,
        "interval": "mean over seeds and its 95 % confidence interval by Student's t",
        "rows": [
            {
                "panel": row.panel, "curve": row.curve, "x": row.x, "mean": row.value.mean, "low": row.value.low,
                "high": row.value.high, "by_seed": row.by_seed, "whiskers": row.whiskers,
            }
            for row in rows
        ],
        "closed_forms": [
            {"group": line.group, "curve": line.label, "x": line.xs, "y": line.ys} for line in figure.lines
        ],
    }  # fmt: skip
    path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
