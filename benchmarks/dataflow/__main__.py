"""The commands of `python -m benchmarks.dataflow`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import click
from rich.console import Console

from benchmarks.dataflow import fig4, messages, scaling, table3, table4, validation
from benchmarks.report import table

CONTEXT = {"help_option_names": ["-h", "--help"], "show_default": True}
Figures = dict[str, tuple[Callable[..., list[dict[str, object]]], str]]
CANARY: Figures = {"fig4": (fig4.rows, "scheduling a task, CPU time; the paper's 0.7 µs (aim 735 ns)")}
TEMPLATES: Figures = {
    "table1": (scaling.table_1, "tasks of the paper's lengths under this controller, virtual time"),
    "table3": (table3.rows, "what installing templates costs, CPU time"),
    "table4": (table4.rows, "an iteration of no-ops on two workers, CPU time of all parts"),
    "fig7": (scaling.fig_7, "a regression of fixed size by nodes, virtual time (figure 8: tasks a second)"),
    "fig9": (scaling.fig_9, "half of the nodes stop and come back, virtual time"),
    "messages": (messages.rows, "messages of the controller in an iteration, and its CPU time"),
    "validation": (validation.rows, "preconditions of a million objects, CPU time"),
}


def show(figures: Figures, names: Iterable[str], as_json: bool, **options: Any) -> None:
    """Measure figures, each shown when it is."""
    for name in names or sorted(figures):
        measure, title = figures[name]
        rows = measure(**options)
        if as_json:
            for row in rows:
                print(json.dumps({"figure": name, **row}))
        else:
            console = Console(highlight=False, markup=False)
            console.print(f"{name}: {title}")
            console.print(table(rows))


@click.group(context_settings=CONTEXT)
def main() -> None:
    """Programs over partitioned arrays, beside the figures of the papers that they are built after."""


@main.command()
@click.argument("figures", nargs=-1, type=click.Choice(sorted(CANARY)))
@click.option("--repeat", default=20, help="Runs of each row, interleaved; medians are shown.")
@click.option("--tasks", default=8_000, help="Tasks of a run.")
@click.option("--json", "as_json", is_flag=True, help="One line of JSON a row.")
def canary(figures: tuple[str, ...], repeat: int, tasks: int, as_json: bool) -> None:
    """Figures of Canary."""
    show(CANARY, figures, as_json, repeat=repeat, tasks=tasks)


@main.command()
@click.argument("figures", nargs=-1, type=click.Choice(sorted(TEMPLATES)))
@click.option("--repeat", default=None, type=int, help="Runs of each row; without it as many as the figure needs.")
@click.option("--tasks", default=None, type=int, help="Tasks of an iteration, objects of `validation`.")
@click.option("--json", "as_json", is_flag=True, help="One line of JSON a row.")
def templates(figures: tuple[str, ...], repeat: int | None, tasks: int | None, as_json: bool) -> None:
    """Figures of the execution templates' paper."""
    given = {"repeat": repeat, "tasks": tasks}
    show(TEMPLATES, figures, as_json, **{name: value for name, value in given.items() if value is not None})


if __name__ == "__main__":
    main()
