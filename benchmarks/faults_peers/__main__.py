"""The command: every system that is installed, under every fault and with every setting, as one table."""

from __future__ import annotations

import json
import signal
import sys
from dataclasses import asdict
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.faults_peers.faults import MEANING, SLOTS, STARTS_BEFORE, TASKS, WORKERS, Fault
from benchmarks.faults_peers.network import namespaces_possible
from benchmarks.faults_peers.observation import shortened
from benchmarks.faults_peers.run import NoRun, Plan, run
from benchmarks.faults_peers.systems import SYSTEMS
from benchmarks.faults_peers.work import TASK_S
from benchmarks.report import machine, progress


@click.command(help="What users of Sparrow, Dask, Ray and Celery see of six faults.")
@click.option("--only", type=click.Choice(list(SYSTEMS)), multiple=True, help="Only this system; may be repeated.")
@click.option("--fault", type=click.Choice([*map(str, Fault)]), multiple=True, help="Only this fault; may be repeated.")
@click.option(
    "--tasks", type=click.IntRange(2 * STARTS_BEFORE, 100_000), default=TASKS, show_default=True,
    help="Tasks of the job.",
)  # fmt: skip
@click.option(
    "--timeout-s", type=click.FloatRange(1, 3600), default=90, show_default=True,
    help="Seconds after the fault until a user who still waits is left alone.",
)  # fmt: skip
@click.option(
    "--cut", type=click.Choice(["auto", "namespace", "stop"]), default="auto", show_default=True,
    help="How the network is cut: by a network namespace (root on Linux), or by SIGSTOP of the worker.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
def main(only: tuple[str, ...], fault: tuple[str, ...], tasks: int, timeout_s: float, cut: str, as_json: bool) -> None:
    """Exit with 1 if a fault could not be brought about."""
    if cut == "namespace" and not namespaces_possible():
        raise click.UsageError("--cut namespace needs root, Linux and the command ip")
    plan = Plan(tasks, timeout_s, cut != "stop" and namespaces_possible())
    names = [name for name in SYSTEMS if not only or name in only]
    for name in [name for name in names if SYSTEMS[name].missing()]:
        progress(f"{name} is left out: {SYSTEMS[name].missing()}")
        names.remove(name)
    rows = [
        row
        for each in [known for known in Fault if not fault or known in fault]
        for name in names
        for row in measured(name, each, plan)
    ]
    if as_json:
        versions = {name: SYSTEMS[name].version() for name in names}
        details = (
            machine() | asdict(plan) | {"versions": versions, "task_s": TASK_S, "workers": WORKERS, "slots": SLOTS}
        )
        click.echo(json.dumps({"name": "faults_peers", "details": details, "rows": rows}))
    else:
        show(rows, plan)
    if any("no_run" in row for row in rows):
        sys.exit(1)


def measured(name: str, fault: Fault, plan: Plan) -> list[dict[str, Any]]:
    """A row for each of the system's settings."""
    system = SYSTEMS[name]
    rows = []
    for setting in system.settings(fault):
        row: dict[str, Any] = {"fault": fault, "system": f"{name} {system.version()}", "setting": setting.name}
        try:
            observation = run(system, fault, setting, plan)
            row |= {"seen": observation.sentence(), **asdict(observation)}
        except (NoRun, TimeoutError) as error:
            row |= {"seen": f"no run: {shortened(str(error))}", "no_run": str(error)}
        progress(f"{row['fault']}, {row['system']}, {row['setting']}: {row['seen']}")
        rows.append(row)
    return rows


def show(rows: list[dict[str, Any]], plan: Plan) -> None:
    """For people; the words of errors are theirs, so none of it is markup."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), collapse_padding=True, pad_edge=False)
    for column in ("fault", "system", "setting", "what its user saw"):
        table.add_column(column, vertical="top", overflow="fold")
    for row in rows:
        table.add_row(*(str(row[column]).replace("[", r"\[") for column in ("fault", "system", "setting", "seen")))
    console = Console(highlight=False)
    console.print(table)
    for fault in dict.fromkeys(row["fault"] for row in rows):
        console.print(f"{fault}: {MEANING[fault]}.", markup=False, style="dim")
    cut = "a network namespace's link, taken down" if plan.with_namespaces else "SIGSTOP of the worker's processes"
    console.print(
        f"{plan.tasks} tasks of {TASK_S:g} s; seconds count from the fault. Cut: {cut}.", markup=False, style="dim"
    )


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # On the way out all processes are ended.
    main()
