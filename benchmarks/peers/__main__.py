"""The command: all systems that are there, in all cases."""

from __future__ import annotations

import datetime
import os
import platform
import signal
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import click
import msgspec
import psutil
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.paper.measuring import commit_of_code
from benchmarks.peers.broken_scheduler import scheduler_killed
from benchmarks.peers.cases import COMMANDS, FULL, IN_USER, NAMES, QUICK, SCHEDULER, START
from benchmarks.peers.document import inserted, tables
from benchmarks.peers.lives import commands, starts
from benchmarks.peers.outcome import DOCUMENT, RESULTS, CaseResult, PeerResult, Run, add, number, ratios, read, rounded
from benchmarks.peers.peer import Library, Peer, Tool
from benchmarks.peers.systems import peers
from benchmarks.peers.turns import in_turns, round_trip_ms
from benchmarks.report import progress

TURNS = 3


@click.command("benchmarks.peers", context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--only", type=click.Choice(NAMES), multiple=True, help="Only this case; may be repeated.")
@click.option(
    "--peer", "names", type=click.Choice(list(peers())), multiple=True, help="Only this system; may be repeated."
)
@click.option("--repeat", type=click.IntRange(1), default=TURNS, show_default=True, help="Turns.")
@click.option("--quick", is_flag=True, help="A tenth of the work, and one turn.")
@click.option(
    "--limit-s",
    type=click.FloatRange(1),
    default=3600,
    show_default=True,
    help="Seconds after which no further case is begun.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of tables.")
@click.option(
    "--results", type=click.Path(dir_okay=False, path_type=Path), help="Append what was measured to this file."
)
@click.option(
    "--document", is_flag=True, help=f"Measure nothing; write {DOCUMENT.name} from the results that are kept."
)
def main(
    only: tuple[str, ...], names: tuple[str, ...], repeat: int, quick: bool, limit_s: float, as_json: bool,
    results: Path | None, document: bool,
) -> None:  # fmt: skip
    """Sparrow beside a process pool, loky, executorlib, Ray, Dask, Parsl, Celery, HyperQueue, GNU parallel and xargs.

    Those that are not installed are left out with the reason; `pip install '.[peers]'` brings most. A quarter of an
    hour, with --quick five minutes; each table says how long its columns took.
    """
    if document:
        DOCUMENT.write_text(inserted(DOCUMENT.read_text("utf-8"), tables(read(results or RESULTS))), "utf-8")
        return
    cases = [name for name in NAMES if not only or name in only]
    wanted = {name: peer for name, peer in peers().items() if not names or name in names}
    run = measure(wanted, cases, repeat, quick, time.monotonic() + limit_s)
    if results is not None:
        add(results, run)
    if as_json:
        click.echo(msgspec.json.encode(run))
    else:
        show(run)


def measure(wanted: dict[str, Peer], cases: Sequence[str], repeat: int, quick: bool, until_s: float) -> Run:
    """All cases; of the systems those that can run here. until_s: of the monotonic clock, when no more is begun."""
    left_out = {name: why for name, peer in wanted.items() if (why := peer.why_not())}
    for name, why in left_out.items():
        progress(f"{name} is left out: {why}")
    there = {name: peer for name, peer in wanted.items() if name not in left_out}
    libraries = {name: peer for name, peer in there.items() if isinstance(peer, Library)}
    tools = {name: peer for name, peer in there.items() if isinstance(peer, Tool)}
    size, turns = (QUICK, 1) if quick else (FULL, repeat)
    found: dict[str, CaseResult] = {}
    if COMMANDS in cases and tools:
        title = f"{size.commands:,} × `true`"
        found[COMMANDS] = outside(title, "s", lambda: commands(tools, turns, size.commands))
    if START in cases and libraries:
        found[START] = outside("start to first result", "s", lambda: starts(libraries, turns))
    if libraries:
        found |= dict(in_turns([case for case in IN_USER if case.name in cases], libraries, size, turns, until_s))
    if SCHEDULER in cases and libraries and time.monotonic() < until_s:
        found[SCHEDULER] = outside("scheduler killed", "s", lambda: scheduler_killed(libraries))
    return Run(
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        commit=commit_of_code((RESULTS, DOCUMENT)),
        quick=quick,
        cores=os.cpu_count() or 1,
        python=platform.python_version(),
        memory_gb=round(psutil.virtual_memory().total / 2**30),
        load=round(os.getloadavg()[0], 1),
        versions={name: peer.version() for name, peer in there.items()},
        left_out=left_out,
        cases={name: found[name] for name in NAMES if name in found},
    )


def outside(title: str, unit: str, measured: Callable[[], dict[str, PeerResult]]) -> CaseResult:
    """A case that no user's process runs."""
    began_s, trip_ms = time.monotonic(), round_trip_ms()
    results = measured()
    for result in results.values():
        result.values, result.cpu_ms = rounded(result.values), rounded(result.cpu_ms)
    return CaseResult(title, unit, round(time.monotonic() - began_s, 1), round(trip_ms, 4), results)


def show(run: Run) -> None:
    """For people: a table for each case."""
    console = Console(highlight=False)
    for name, case in run.cases.items():
        table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
        for column in ("", case.unit, "95th percentile", "CPU ms a task", "ours / this", ""):
            table.add_column(column, justify="right" if column else "left")
        for peer, result in case.peers.items():
            shown = (_median(result.values), _median(result.p95), _median(result.cpu_ms), _ratio(case, peer))
            table.add_row(peer, *shown, (result.why or result.note).replace("[", r"\["))
        console.print(f"{name}: {case.title}", style="bold", markup=False)
        console.print(table)
        idle = "" if case.idle_cores is None else f"; systems that wait take {case.idle_cores:g} cores together"
        console.print(
            f"Took {case.took_s:g} s. A process pool's round trip: {case.round_trip_ms:.3g} ms{idle}.",
            style="dim", markup=False,
        )  # fmt: skip
    for name, why in run.left_out.items():
        console.print(f"{name} is left out: {why}", style="dim", markup=False)


def _median(values: Sequence[float]) -> str:
    return number(statistics.median(values)) if values else ""


def _ratio(case: CaseResult, name: str) -> str:
    found = ratios(case, name)
    return found.text() if found else ""


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # On the way out all processes are ended.
    main()
