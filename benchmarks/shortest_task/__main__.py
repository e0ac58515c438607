"""The command: all systems that are installed, from long tasks to short ones, as one table and one plot."""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import psutil
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.faults_peers.processes import Processes, kill
from benchmarks.report import machine, progress
from benchmarks.shortest_task.load import BROKEN, TASKS, WAIT_MAX_S, Load, Measured, measured, shortest
from benchmarks.shortest_task.ours import run_ours
from benchmarks.shortest_task.peers import PEERS, Peer

OURS = {"sampling": "sparrow", "central": "central"}
"""Our systems and their placements."""
SYSTEMS = (*OURS, *PEERS)
DURATIONS_MS = (1000.0, 500.0, 200.0, 100.0, 50.0, 20.0, 10.0)
CLIENT_EXTRA_S = 90.0
"""What a peer's client may take beside the jobs: it connects and warms its workers up."""

LAST_WORDS_CHARS_MAX = 500

Points = dict[str, dict[float, Measured]]
RunPoint = Callable[[Load], Measured]


class NoRun(Exception):
    """A system that is installed could not be measured."""


@click.command(help="The shortest task that sampling, our central scheduler, Dask and Ray can take at a load.")
@click.option("--only", type=click.Choice(SYSTEMS), multiple=True, help="Only this system; may be repeated.")
@click.option("--nodes", type=click.IntRange(1, 1000), default=25, show_default=True, help="Workers.")
@click.option("--slots", type=click.IntRange(1, 1000), default=4, show_default=True, help="Tasks of each at a time.")
@click.option(
    "--schedulers", type=click.IntRange(1, 100), default=1, show_default=True, help="Of sampling; others have one."
)
@click.option("--load", type=click.FloatRange(0.01, 1), default=0.8, show_default=True, help="Of all slots.")
@click.option(
    "--duration", "durations", type=click.FloatRange(0.1, 60_000), multiple=True, default=DURATIONS_MS,
    show_default=True, help="Of tasks, in milliseconds; may be repeated.",
)  # fmt: skip
@click.option(
    "--seconds", type=click.FloatRange(0.5, 600), default=5, show_default=True, help="Jobs arrive for so long."
)
@click.option(
    "--limit-s", type=click.FloatRange(1, 36_000), default=400, show_default=True,
    help="No further duration is begun after so many seconds.",
)  # fmt: skip
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path), help="Draw it into this file (.png, .svg).")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
def main(
    only: tuple[str, ...],
    nodes: int,
    slots: int,
    schedulers: int,
    load: float,
    durations: tuple[float, ...],
    seconds: float,
    limit_s: float,
    plot: Path | None,
    as_json: bool,
) -> None:
    """See the package's docstring."""
    if nodes * slots < TASKS:
        raise click.UsageError(f"--nodes {nodes} of --slots {slots} are fewer slots than the {TASKS} tasks of a job")
    names = [name for name in SYSTEMS if not only or name in only]
    for name in [name for name in names if name in PEERS and PEERS[name].system.missing()]:
        progress(f"{name} is left out: {PEERS[name].system.missing()}")
        names.remove(name)
    loads = [Load(nodes, slots, load, ms, seconds) for ms in sorted(set(durations), reverse=True)]
    deadline_s = time.monotonic() + limit_s
    points: Points = {}
    for name in names:
        try:
            with system(name, nodes, slots, schedulers) as run:
                points[name] = until_it_breaks(name, loads, run, deadline_s)
        except (NoRun, TimeoutError) as error:
            progress(f"{name} is left out: {error}")
    busy = os.getloadavg()[0]
    where = f"{nodes} × {slots} slots, {os.cpu_count()} cores, load average {busy:.1f} at the end"
    setting = f"{TASKS}-task jobs at {load:.0%} load, {where}"
    if plot is not None:
        from benchmarks.shortest_task.plot import draw  # It takes long to import.

        draw(points, setting, plot)
    if as_json:
        rows = {name: [asdict(point) for point in found.values()] for name, found in points.items()}
        taken = {name: shortest(found) for name, found in points.items()}
        details = machine() | {"setting": setting, "broken_from": BROKEN, "points": rows}
        click.echo(json.dumps({"name": "shortest_task", "value": taken, "unit": "ms", "details": details}))
    else:
        show(points, setting)


def until_it_breaks(name: str, loads: list[Load], run: RunPoint, deadline_s: float) -> dict[float, Measured]:
    """From long tasks to short ones; those after the first that is too short are left out."""
    found: dict[float, Measured] = {}
    for load in loads:
        if time.monotonic() > deadline_s:
            progress(f"{name}: time is up before {load.duration_ms:g} ms")
            break
        point = found[load.duration_ms] = run(load)
        progress(f"{name}, {load.duration_ms:g} ms: {_cell(point)}")
        if point.broken:
            break
    return found


@contextmanager
def system(name: str, nodes: int, slots: int, schedulers: int) -> Iterator[RunPoint]:
    """What runs a load on this system. A peer has one cluster for all of them."""
    if name in OURS:
        yield lambda load: run_ours(OURS[name], load, schedulers)
        return
    peer = PEERS[name]
    with tempfile.TemporaryDirectory(prefix="peer-") as directory, Processes(Path(directory), {}) as processes:
        address = peer.start(processes, nodes, slots)
        yield lambda load: run_peer(peer, processes, address, load)


def run_peer(peer: Peer, processes: Processes, address: str, load: Load) -> Measured:
    """One client's life. A system whose client does not come to an end has broken down; `NoRun` if it died."""
    number = len(list(processes.directory.glob("client-*.out")))
    words = [load.nodes, load.slots, load.load, load.duration_ms, load.seconds]
    command = ["benchmarks.shortest_task.client", peer.name, address, *map(str, words)]
    client = processes.python(f"client-{number}", command)
    try:
        client.wait(load.jobs * load.interval_s + 2 * WAIT_MAX_S + CLIENT_EXTRA_S)
    except psutil.TimeoutExpired:
        kill(client)
        progress(f"{peer.name}: its client did not come to an end")
        return measured(load, [None] * load.jobs)
    told = [line for line in processes.out(f"client-{number}").read_text().splitlines() if line.startswith("[")]
    if not told:
        raise NoRun(f"its client died: {processes.said(f'client-{number}')[-LAST_WORDS_CHARS_MAX:].strip()}")
    return measured(load, json.loads(told[-1]))


def show(points: Points, setting: str) -> None:
    """For people."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
    table.add_column("task ms", justify="right")
    for name in points:
        table.add_column(name, justify="right")
    for duration_ms in sorted({ms for found in points.values() for ms in found}, reverse=True):
        table.add_row(f"{duration_ms:g}", *(_cell(found.get(duration_ms)) for found in points.values()))
    table.add_section()
    table.add_row("shortest", *(_shortest(found) for found in points.values()))
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=160)
    console.print(setting, markup=False, style="bold")
    console.print(table)
    console.print(
        f"Median response over ideal, and in parentheses the 95th percentile. ×: broken down, from {BROKEN:g} on, "
        "or with jobs that did not end. *: the load generator was late.",
        markup=False, style="dim",
    )  # fmt: skip


def _cell(point: Measured | None) -> str:
    if point is None:
        return ""
    if point.over_ideal is None or point.p95_over_ideal is None:
        return "× no job ended"
    marks = ("× " if point.broken else "") + ("* " if point.why_invalid else "")
    left = f", {point.unended} of {point.jobs} not ended" if point.unended else ""
    return f"{marks}{point.over_ideal:.2f} ({point.p95_over_ideal:.2f}){left}"


def _shortest(found: dict[float, Measured]) -> str:
    taken: Any = shortest(found)
    return "none" if taken is None else f"{taken:g} ms"


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # On the way out all processes are ended.
    main()
