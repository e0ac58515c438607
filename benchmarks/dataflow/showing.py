"""What was measured, on the terminal."""

from __future__ import annotations

from collections.abc import Sequence

import click
import msgspec
from rich.console import Console

from benchmarks.dataflow.catalogue import Figure
from benchmarks.flow.outcome import Row
from benchmarks.flow.results import FigureResult
from benchmarks.report import table


def show(figure: Figure, result: FigureResult, *, as_json: bool) -> None:
    """Its tables, verdicts and notes; or a line of JSON for each row."""
    if as_json:
        for row in result.rows:
            click.echo(msgspec.json.encode({"figure": result.figure, **row}))
        return
    terminal = Console(highlight=False, markup=False)
    console = terminal if terminal.is_terminal else Console(highlight=False, markup=False, width=200)
    console.print(f"{result.figure}: {figure.title}")
    for rows in alike(result.rows):
        console.print(table(rows))
    for target in result.targets:
        console.print(f"{target.text}: {target.ours} ({target.verdict})")
    for note in result.notes:
        console.print(note, style="dim")


def alike(rows: Sequence[Row]) -> list[list[Row]]:
    """Rows by their columns: a table for each."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row), []).append(row)
    return list(groups.values())
