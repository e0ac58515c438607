"""`python -m simulator dags`: jobs of stages on machines with several resources, under one scheduler or several."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click
import numpy as np
import orjson
from rich import box
from rich.console import Console
from rich.table import Table

from sparrow_py.errors import InvalidOption

MACHINES_MAX = 100_000


def measured(result: Any, base: Any) -> dict[str, float]:
    """The figures of a run; `base`: the completion times of the first policy's, job by job."""
    took_s, windows = result.completions_s, result.windows
    factor = base / took_s
    found = {"jobs": len(took_s), "mean_s": took_s.mean()}
    found |= {f"p{q}_s": np.percentile(took_s, q) for q in (50, 95)}
    found |= {"makespan_s": result.makespan_s, "factor": factor.mean(), "slower": (factor < 0.99).mean()}
    found["jain"] = np.mean(windows.by_entitlement) if windows.by_entitlement else 1.0
    return {name: round(float(value), 4) for name, value in found.items()}


def _run(file: str, policies: str, machines: int, seed: int, misestimate: float, as_json: bool) -> None:
    from loadgen.dags.dag_files import read_dags
    from loadgen.dags.resources import RESOURCES
    from scheduler.altruistic.estimates import check_misestimation
    from scheduler.altruistic.settings import settings_named
    from simulator.dags.arrivals import MEMORY, arrival_of
    from simulator.dags.play import play

    if not 1 <= machines <= MACHINES_MAX:
        raise InvalidOption("machines", machines, f"a whole number from 1 to {MACHINES_MAX:,}")
    names = policies.split(",")
    try:
        check_misestimation("misestimate", misestimate)
        settings = [settings_named(name) for name in names]
        arrivals = [arrival_of(job) for job in read_dags(file)]
    except ValueError as error:  # Of the altruistic scheduler's rooms, which know no errors of ours.
        raise click.ClickException(str(error)) from None
    if not arrivals:
        raise InvalidOption("workload", file, "a file with at least one job")
    rows: dict[str, Mapping[str, float]] = {}
    base = None
    for name, chosen in zip(names, settings, strict=True):
        result = play(
            arrivals, np.ones((machines, len(RESOURCES))), chosen, seed=seed, misestimate=misestimate, memory=MEMORY
        )
        base = result.completions_s if base is None else base
        rows[name] = measured(result, base)
    if as_json:
        click.echo(orjson.dumps({"machines": machines, "seed": seed, "misestimate": misestimate, "policies": rows}))
    else:
        _show(rows)


def _show(rows: Mapping[str, Mapping[str, float]]) -> None:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), collapse_padding=True, pad_edge=False)
    table.add_column("policy")
    for heading in next(iter(rows.values())):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, row in rows.items():
        table.add_row(name, *(f"{value:,.0f}" if value >= 100 else f"{value:.2f}" for value in row.values()))
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=200)  # A pipe has no width to fit.
    console.print(table)


dags_command = click.Command(
    "dags",
    callback=_run,
    params=[
        click.Argument(["file"], metavar="FILE"),
        click.Option(
            ["--policy", "policies"], default="drf,tetris,altruistic,srtf", metavar="NAME,…",
            help="Which schedulers; the first is the one that `factor` compares with. Settings come after slashes: "
            "altruistic/horizon=barrier.",
        ),
        click.Option(["--machines"], type=int, default=100, help="Of 20 cores, 128 GB and 10 Gbit/s."),
        click.Option(["--seed"], type=int, default=1, help="Of what is drawn by chance."),
        click.Option(
            ["--misestimate"], type=float, default=0.0,
            help="How wrong the scheduler is: it sees demands × (1 + X), durations ÷ (1 + X).",
        ),
        click.Option(["--json", "as_json"], is_flag=True, help="One object."),
    ],
    help="Jobs of stages with several resources (paper 002): FILE is a workload of `python -m loadgen dags`. factor is "
    "how many times as long jobs took under the first policy, on average; slower the part of jobs that take more than "
    "1 % longer than under that; jain how alike jobs fare, by Jain's index of what they have of their share.",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100, "show_default": True},
)  # fmt: skip
