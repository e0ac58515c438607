"""The commands of `python -m benchmarks.dataflow`."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import click
from rich.console import Console

from benchmarks.dataflow import compiled, fig4, fig12, links
from benchmarks.report import table

CONTEXT = {"help_option_names": ["-h", "--help"], "show_default": True}
FIGURES = {"fig4": fig4.rows}
Rows = Sequence[dict[str, object]]


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


@main.command()
@click.argument("figures", nargs=-1, type=click.Choice(sorted(FIGURES)))
@click.option("--tasks", default=8_000, help="Tasks of a run.")
@_measured(20)
def canary(figures: tuple[str, ...], repeat: int, tasks: int, as_json: bool) -> None:
    """Figures of Canary."""
    for name in figures or sorted(FIGURES):
        rows = FIGURES[name](repeat=repeat, tasks=tasks)
        _show(name, "scheduling a task, CPU time; the paper's 0.7 µs (aim 735 ns)", rows, as_json)


@main.command("compiled")
@click.option("--tasks", default=100_000, help="Tasks of a run.")
@_measured(20)
def compiled_stages(repeat: int, tasks: int, as_json: bool) -> None:
    """Tasks of compiled stages beside plain ones."""
    rows = compiled.rows(repeat=repeat, tasks=tasks)
    _show("compiled", "CPU time of a task, all included; aim 50 M tasks a second of CPU", rows, as_json)


@main.command("fig12")
@click.option("--size", default=1200, help="Cells in a row and in a column of the grid.")
@click.option("--frames", default=1, help="Frames of the simulation.")
@_measured(3)
def water(repeat: int, size: int, frames: int, as_json: bool) -> None:
    """Figure 12 of execution templates: the example water beside the same by hand for MPI (the extra peers)."""
    rows = fig12.rows(repeat=repeat, size=size, frames=frames)
    _show("fig12", "a water simulation; CPU beside that of one rank of MPI; aim 1.15", rows, as_json)


@main.command("links")
@click.option("--repeat", default=10, help="Runs of each row, interleaved; medians are shown.")
@click.option("--json", "as_json", is_flag=True, help="One line of JSON a row.")
def links_command(repeat: int, as_json: bool) -> None:
    """Round trips between two processes, with arrays of some sizes, beside a process pool's."""
    rows = links.rows(repeat)
    if as_json:
        for row in rows:
            print(json.dumps({"figure": "links", **row}))
        return
    console = Console(highlight=False, markup=False)
    console.print("links: round trips between two processes; CPU time of both")
    console.print(table(rows))


if __name__ == "__main__":
    main()
