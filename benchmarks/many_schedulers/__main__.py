"""The command."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import click
from click.core import ParameterSource
from rich.console import Console

import benchmarks.many_schedulers
from benchmarks.many_schedulers import live, simulated
from benchmarks.report import Report
from simulator.cluster import NODES_MAX
from sparrow_py.errors import InvalidOption, SparrowError
from sparrow_py.profiles import PROFILES

COUNTS, QUICK_COUNTS = (1, 2, 4, 8, 16, 32, 64), (1, 4, 16)
NODES, QUICK_NODES = 1000, 200
TASKS_PER_SLOT = 5
LIVE_COUNTS, QUICK_LIVE_COUNTS = (1, 2, 4, 8, 16), (1, 4)
LIVE_NODES, LIVE_TASKS_PER_S = 100, 3000.0
LIVE_S, QUICK_LIVE_S = 6.0, 2.0
FEW_NODES, FEW_SLOTS, MANY_TASKS = 4, 8, 100
"""Of a cluster and of jobs whose frames have several messages."""
FEW_TASKS_PER_S = 1000.0
OF_SIMULATIONS, OF_LIVE_RUNS = ("nodes", "slots", "load", "tasks_per_slot", "results"), ("repeat",)
"""Options that only these have."""


@click.command("many_schedulers", help=benchmarks.many_schedulers.__doc__)
@click.option("--live", "is_live", is_flag=True, help="Real daemons on this machine in place of simulated ones.")
@click.option("--quick", is_flag=True, help="Fewer schedulers, nodes and jobs: a minute.")
@click.option("--schedulers", "counts", type=click.IntRange(1, 1000), multiple=True, help="May be repeated.")
@click.option("--profile", "profiles", type=click.Choice(list(PROFILES)), multiple=True, help="Of all, this one only.")
@click.option("--nodes", type=click.IntRange(1, NODES_MAX), help=f"Node monitors.  [default: {NODES}]")
@click.option("--slots", type=click.IntRange(1, 1000), default=4, show_default=True, help="Of each.")
@click.option(
    "--load", type=click.FloatRange(0, 1, min_open=True, max_open=True), default=0.7, show_default=True,
    help="Of all slots.",
)  # fmt: skip
@click.option(
    "--tasks-per-slot", type=click.IntRange(1), default=TASKS_PER_SLOT, show_default=True,
    help="Length of a simulation.",
)  # fmt: skip
@click.option("--results", type=click.Path(path_type=Path), help="Keep results here, and go on from those there.")
@click.option("--repeat", type=click.IntRange(1), default=1, show_default=True, help="Live: repetitions; medians.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of tables.")
def main(
    is_live: bool,
    quick: bool,
    counts: tuple[int, ...],
    profiles: tuple[str, ...],
    nodes: int | None,
    slots: int,
    load: float,
    tasks_per_slot: int,
    results: Path | None,
    repeat: int,
    as_json: bool,
) -> None:
    """Print the tables."""
    profiles = profiles or tuple(PROFILES)
    try:
        _check_stated(is_live)
        if is_live:
            report = _live(quick, counts, profiles, repeat)
        else:
            plan = simulated.Plan(
                nodes or (QUICK_NODES if quick else NODES),
                slots,
                load,
                tasks_per_slot,
                counts or (QUICK_COUNTS if quick else COUNTS),
                profiles,
            )
            with tempfile.TemporaryDirectory() as directory:
                report = simulated.measure(plan, results or Path(directory) / "results.jsonl")
    except SparrowError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(2)
    if as_json:
        click.echo(report.as_json())
    else:
        report.show(Console(highlight=False, width=200))


def _check_stated(is_live: bool) -> None:
    """`InvalidOption` for an option that says nothing about runs of this kind, and so would be ignored."""
    context = click.get_current_context()
    for name in OF_SIMULATIONS if is_live else OF_LIVE_RUNS:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise InvalidOption(name, context.params[name], f"only {'without' if is_live else 'with'} --live")


def _live(quick: bool, counts: tuple[int, ...], profiles: tuple[str, ...], repeat: int) -> Report:
    """One cluster of few nodes and large jobs, whose frames have several messages; then more and more schedulers."""
    counts = counts or (QUICK_LIVE_COUNTS if quick else LIVE_COUNTS)
    lives = [
        shape
        for profile in profiles
        for shape in (
            live.Live(1, profile, FEW_NODES, FEW_SLOTS, MANY_TASKS, FEW_TASKS_PER_S),
            *(live.Live(count, profile, LIVE_NODES, 4, simulated.TASKS, LIVE_TASKS_PER_S) for count in counts),
        )
    ]
    return live.measure(lives, QUICK_LIVE_S if quick else LIVE_S, repeat)


if __name__ == "__main__":
    main()
