"""Instructions that the cores take for a task, counted by valgrind: the same within a percent on a slow or a busy day.

The simulator runs the cores of scheduler and node monitor, and `cachegrind` counts what its process does, with few jobs
and with three times as many; the difference is that of the tasks. With `--before` another checkout is counted, too: an
increase of one percent is seen, which pairs of clock times (`benchmarks.before_after`) lose in the machine's noise. An
instruction is no unit of time: caches and branches do not count here.

Each checkout runs with the interpreter of its own `.venv`. Drivers, links and executors are not in it.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import statistics
import subprocess
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import NamedTuple

import click

from benchmarks.report import ROOT, Report, Row, tell

TASKS = (10, 100)
"""Of a job."""
LOADS = (0.3, 0.8)
SIMULATED_TASKS = 10_000
"""About, in the smaller of both simulations. The start of an interpreter varies by some 30 million instructions, which
are then one in two hundred."""
JOBS_MIN = 20
NODES, SLOTS = 100, 4
COUNTED = re.compile(r"I +refs: +([\d,]+)")


class Shape(NamedTuple):
    """What is simulated."""

    tasks: int
    load: float

    @property
    def jobs(self) -> int:
        """Of the smaller of both simulations."""
        return SIMULATED_TASKS // self.tasks + JOBS_MIN

    def arguments(self, jobs: int) -> list[str]:
        """Of `simulator run`."""
        cluster = ["--nodes", str(NODES), "--slots", str(SLOTS), "--load", str(self.load)]
        return [*cluster, "--tasks", str(self.tasks), "--jobs", str(jobs), "--mean-ms", "20", "--service", "constant"]


def counted(checkout: Path, arguments: list[str]) -> int:
    """Instructions of a simulation in this checkout. `click.ClickException` if they cannot be counted."""
    valgrind = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]
    command = [*valgrind, str(checkout / ".venv/bin/python"), "-m", "simulator", "run", *arguments]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # To compile all modules is not the same work twice.
    done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)
    found = COUNTED.search(done.stderr)
    if done.returncode or found is None:
        raise click.ClickException(f"{checkout}: valgrind has counted nothing: {done.stderr.strip()[-500:]}")
    return int(found[1].replace(",", ""))


def per_task(checkout: Path, shape: Shape) -> float:
    """Thousands of instructions."""
    few, many = (counted(checkout, shape.arguments(count * shape.jobs)) for count in (1, 3))
    return (many - few) / (2 * shape.jobs * shape.tasks) / 1000


def measure(before: Path | None) -> Report:
    """A row for each shape."""
    checkouts = [ROOT] if before is None else [before.resolve(), ROOT]
    for checkout in checkouts:  # The first run of a checkout compiles its modules.
        counted(checkout, Shape(TASKS[0], LOADS[0]).arguments(JOBS_MIN))
    points = list(product(TASKS, LOADS, checkouts))
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        found = dict(zip(points, threads.map(lambda one: per_task(one[2], Shape(*one[:2])), points), strict=True))
    rows: list[Row] = []
    for tasks, load in product(TASKS, LOADS):
        row: Row = {"tasks per job": tasks, "load": load}
        if before is not None:
            row["before, 1000 per task"] = found[tasks, load, checkouts[0]]
        row["1000 per task"] = now = found[tasks, load, ROOT]
        if before is not None:
            row["ratio"] = now / row["before, 1000 per task"]
        rows.append(row)
    if before is None:
        value, unit = statistics.median(row["1000 per task"] for row in rows), "thousand instructions a task, median"
    else:
        ratios = [math.log(row["ratio"]) for row in rows]
        value, unit = math.exp(statistics.mean(ratios)), "times as many instructions as before, geometric mean"
    title = f"Instructions of the cores and the simulator for a task, {NODES} nodes × {SLOTS} slots"
    return Report("instructions", value, unit, {title: rows}, [])


@click.command(help="Count instructions of the cores for a task, with valgrind.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of tables.")
@click.option(
    "--before", type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Another checkout, which is counted, too; it needs a .venv of its own.",
)  # fmt: skip
def main(*, as_json: bool, before: Path | None) -> None:
    """The command."""
    if shutil.which("valgrind") is None:
        raise click.ClickException("valgrind is not installed: it counts the instructions")
    tell(measure(before), as_json=as_json)


if __name__ == "__main__":
    main()
