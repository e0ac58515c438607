"""The commands of `python -m benchmarks.dataflow`."""

from __future__ import annotations

import json

import click
from rich.console import Console

from benchmarks.dataflow import fig4, links
from benchmarks.report import table

CONTEXT = {"help_option_names": ["-h", "--help"], "show_default": True}
FIGURES = {"fig4": fig4.rows}


@click.group(context_settings=CONTEXT)
def main() -> None:
    """Programs over partitioned arrays, beside the figures of the papers that they are built after."""


@main.command()
@click.argument("figures", nargs=-1, type=click.Choice(sorted(FIGURES)))
@click.option("--repeat", default=20, help="Runs of each row, interleaved; medians are shown.")
@click.option("--tasks", default=8_000, help="Tasks of a run.")
@click.option("--json", "as_json", is_flag=True, help="One line of JSON a row.")
def canary(figures: tuple[str, ...], repeat: int, tasks: int, as_json: bool) -> None:
    """Figures of Canary."""
    for name in figures or sorted(FIGURES):
        rows = FIGURES[name](repeat=repeat, tasks=tasks)
        if as_json:
            for row in rows:
                print(json.dumps({"figure": name, **row}))
        else:
            console = Console(highlight=False, markup=False)
            console.print(f"{name}: scheduling a task, CPU time; the paper's 0.7 µs (aim 735 ns)")
            console.print(table(rows))


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
