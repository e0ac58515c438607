"""The commands of `python -m benchmarks.dataflow`."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import click
from rich.console import Console

from benchmarks.dataflow import (
    balance,
    compiled,
    fig4,
    fig12,
    links,
    messages,
    moves,
    scaling,
    shares,
    table3,
    table4,
    validation,
)
from benchmarks.report import table

CONTEXT = {"help_option_names": ["-h", "--help"], "show_default": True}
Rows = Sequence[dict[str, object]]
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


@click.group(context_settings=CONTEXT)
def main() -> None:
    """Programs over partitioned arrays, beside the figures of the papers that they are built after."""


def _show(name: str, says: str, rows: Rows, as_json: bool) -> None:
    if as_json:
        for row in rows:
            print(json.dumps({"figure": name, **row}))
        return
    console = Console(highlight=False, markup=False)
    console.print(f"{name}: {says}")
    console.print(table(rows))


def _measured(runs: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The options that all commands have."""
    as_json = click.option("--json", "as_json", is_flag=True, help="One line of JSON a row.")
    repeat = click.option("--repeat", default=runs, help="Runs of each row, interleaved; medians are shown.")
    return lambda command: repeat(as_json(command))


@main.command("balance")
@_measured(10)
def balance_command(repeat: int, as_json: bool) -> None:
    """A dear partition, even load, and a slow worker and a skew as Canary's figures 7 and 8 have them."""
    rows = balance.rows(repeat)
    _show("balance", "an iteration before and after partitions moved, virtual time; aim 1.15", rows, as_json)


@main.command()
@click.argument("figures", nargs=-1, type=click.Choice(sorted(CANARY)))
@click.option("--tasks", default=8_000, help="Tasks of a run.")
@_measured(20)
def canary(figures: tuple[str, ...], repeat: int, tasks: int, as_json: bool) -> None:
    """Figures of Canary."""
    for name in figures or sorted(CANARY):
        measure, title = CANARY[name]
        _show(name, title, measure(repeat=repeat, tasks=tasks), as_json)


@main.command("compiled")
@click.option("--tasks", default=100_000, help="Tasks of a run.")
@_measured(20)
def compiled_stages(repeat: int, tasks: int, as_json: bool) -> None:
    """Tasks of compiled stages beside plain ones."""
    rows = compiled.rows(repeat=repeat, tasks=tasks)
    _show("compiled", "CPU time of a task, all included; aim 50 M tasks a second of CPU", rows, as_json)


@main.command("fig12")
@click.option("--size", default=1800, help="Cells in a row and in a column of the grid.")
@click.option("--frames", default=1, help="Frames of the simulation.")
@_measured(3)
def water(repeat: int, size: int, frames: int, as_json: bool) -> None:
    """Figure 12 of execution templates: the example water beside the same by hand for MPI (the extra peers)."""
    rows = fig12.rows(repeat=repeat, size=size, frames=frames)
    _show("fig12", "a water simulation; CPU beside that of one rank of MPI; aim 1.15", rows, as_json)


@main.command("links")
@_measured(10)
def links_command(repeat: int, as_json: bool) -> None:
    """Round trips between two processes, with arrays of some sizes, beside a process pool's."""
    _show("links", "round trips between two processes; CPU time of both", links.rows(repeat), as_json)


@main.command("moves")
@_measured(5)
def moves_command(repeat: int, as_json: bool) -> None:
    """Iterations of two workers over TCP, with and without a partition of 128 MB that moves."""
    _show("moves", "an iteration while 128 MB move, beside one without; aim 1.2", moves.rows(repeat), as_json)


@main.command("shares")
@_measured(3)
def shares_command(repeat: int, as_json: bool) -> None:
    """Slots of a program and of another user's backlog, by weight; `--repeat` is for windows of 10 s."""
    rows = shares.rows(repeat)
    _show("shares", "the program's share of the slots' time in 10 s; aim: within 10 % of what is due", rows, as_json)


@main.command()
@click.argument("figures", nargs=-1, type=click.Choice(sorted(TEMPLATES)))
@click.option("--repeat", default=None, type=int, help="Runs of each row; without it as many as the figure needs.")
@click.option("--tasks", default=None, type=int, help="Tasks of an iteration, objects of `validation`.")
@click.option("--json", "as_json", is_flag=True, help="One line of JSON a row.")
def templates(figures: tuple[str, ...], repeat: int | None, tasks: int | None, as_json: bool) -> None:
    """Figures of the execution templates' paper."""
    given = {name: value for name, value in {"repeat": repeat, "tasks": tasks}.items() if value is not None}
    for name in figures or sorted(TEMPLATES):
        measure, title = TEMPLATES[name]
        _show(name, title, measure(**given), as_json)


if __name__ == "__main__":
    main()
