"""Graphs of single calls whose arguments are futures: here, and with the extra `peers` with Dask distributed and Ray.

Measured: wall time until the program has the values, and CPU time of all processes. Work, with a worker for each core:
a random graph of 10,000 tasks, each with up to 3 earlier futures as arguments; a tree that reduces 2^12 leaves by
pairs; 1,000 tasks that take one value, and one that takes all of theirs; and 500 calls one after the other, which a
process pool does, too, as a measure of how fast the machine is now; and fib(15), whose calls are tasks that wait for
tasks of their own. With 8 workers: an array of 100 MB, put once, of
which each worker sums a part, and is held for 0.1 s so that all get it. All systems run in turns, and are warm.
`value`: our wall ms for a task of the random graph; aimed at is 0.3.
"""

from __future__ import annotations

import operator
import os
import time
from dataclasses import asdict

import click

from benchmarks.graphs.moved import measure_moved
from benchmarks.graphs.nested import memory_of, recursion
from benchmarks.graphs.systems import POOL, System, missing, pool, systems
from benchmarks.graphs.work import (
    ARRAY_WORKERS,
    FULL,
    QUICK,
    ArrayToWorkers,
    Size,
    Work,
    fan,
    random_graph,
    random_inputs,
    round_trips,
    tree,
)
from benchmarks.habits.turns import OURS, in_turns
from benchmarks.report import Report, Row, cpu_s, tell
from sparrow_py.counted import counted

AIM_MS = 0.3
IDLE_S = 1.0


def measure(repeat: int, size: Size) -> Report:
    """All work in all systems."""
    tables: dict[str, list[Row]] = {}
    turns: list[object] = []

    def run(work: Work, ways: dict[str, System]) -> None:
        runs = {way: lambda s=system: work.run(s) for way, system in ways.items()}
        rows, seconds = in_turns(work.name, runs, repeat, operator.eq)
        tables[f"{work.name}: {work.tasks:,} tasks"] = [per_task(row, work.tasks) for row in rows]
        turns.append({work.name: seconds})

    cores = os.cpu_count() or 1
    array = ArrayToWorkers(size.array_bytes)
    with pool(cores) as of_pool, systems(cores) as found:
        run(round_trips(size.round_trips), {**found, POOL: of_pool})
        for work in (random_graph(random_inputs(size.random_tasks)), tree(size.leaves), fan(size.width)):
            run(work, found)
        nesting = {name: system for name, system in found.items() if system.fib is not None}
        if nesting:
            run(recursion(size.fib), nesting)
        idle = idle_cores()
    memory = waiting_memory(cores, size.fib)
    with systems(ARRAY_WORKERS) as found:
        run(array.work, found)
    in_round_trips(tables)
    notes = [*missing(), *memory, f"Systems that wait for their turn take {idle:.2f} cores together: in all CPU times."]
    notes += [f"{name}: in one turn the array went to {counted(count, 'worker')} only."
              for name, count in array.fewest_workers.items() if count < ARRAY_WORKERS]  # fmt: skip
    value = list(tables.values())[1][0]["wall ms per task"]
    unit = f"ms for a task of the random graph (aim: {AIM_MS:g})"
    return Report("graphs", value, unit, tables, turns, notes, {"size": asdict(size), "aim_ms": AIM_MS})


def waiting_memory(workers: int, number: int) -> list[str]:
    """A line on what processes that wait take, in one run of its own."""
    with systems(workers, peers=False) as found:
        system = found.get(OURS)
        if system is None or (by_tasks := system.fib) is None:
            return []
        by_tasks(2)
        before, most = memory_of(lambda: by_tasks(number))
    processes, private_mb = most.processes - before.processes, most.private_mb - before.private_mb
    return [
        f"fib({number}) here: at most {processes} processes more, with {private_mb:.0f} MB that they share with nobody."
    ]


def per_task(row: Row, tasks: int) -> Row:
    """A row of `in_turns`, of a work of so many tasks, with what one of them took."""
    return {
        "system": row["way"],
        "wall ms": row["wall ms"],
        "CPU ms": row["CPU ms"],
        "wall ms per task": row["wall ms"] / tasks,
        "CPU ms per task": row["CPU ms"] / tasks,
        "ours / this": row["ours / this"],
    }


def in_round_trips(tables: dict[str, list[Row]]) -> None:
    """Add to each row a task's wall time in round trips of the process pool in the same run."""
    rows = [row for table in tables.values() for row in table]
    round_trip_ms = next(row["wall ms per task"] for row in rows if row["system"] == POOL)
    for row in rows:
        row["wall / pool's trip"] = row["wall ms per task"] / round_trip_ms


def idle_cores() -> float:
    """Cores that all systems together keep busy while nothing runs."""
    before_s, began_s = cpu_s([os.getpid()], children=True), time.perf_counter()
    time.sleep(IDLE_S)
    return (cpu_s([os.getpid()], children=True) - before_s) / (time.perf_counter() - began_s)


@click.command("benchmarks.graphs", context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--quick", is_flag=True, help="Graphs of a tenth of the size.")
@click.option(
    "--repeat", type=click.IntRange(1), default=3, show_default=True, help="Turns; tables show their medians."
)
@click.option("--moved", is_flag=True, help="Only how many bytes tasks move that read large values, here: a minute.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of tables.")
def main(quick: bool, repeat: int, moved: bool, as_json: bool) -> None:
    """Graphs of single calls, beside Dask distributed and Ray: some minutes; with --quick less than one."""
    tell(measure_moved(repeat) if moved else measure(repeat, QUICK if quick else FULL), as_json=as_json)


if __name__ == "__main__":
    main()
