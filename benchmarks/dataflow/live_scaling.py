"""Figure 5 of Canary by real processes: CPU time of a task on 1 to 16 workers of a cluster of one node monitor.

Ten partitions a worker and tasks of some microseconds, as the paper's; each worker notes its own CPU time in a dataset,
so that all it does counts: tasks, calls of the program, looking for messages, heartbeats. There are more workers than
cores, so nothing is said of tasks a second.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from statistics import median
from typing import Any

import numpy as np

from benchmarks.dataflow.canary_scaling import PARTITIONS_A_WORKER, ROUNDS
from benchmarks.flow.outcome import Row
from frontends.dataflow import Dataflow
from sparrow_py import LocalCluster

WORKERS = (1, 2, 4, 8, 16)
TURNS = 150
"""Of a task's loop: some microseconds."""
STAGES = 4


def cpu_of_workers(cluster: LocalCluster, workers: int, signals: int, repeat: int) -> list[Row]:
    """Of each run: CPU time of all workers and of the same loops alone, per task in ns."""
    with Dataflow(
        cluster, workers=workers, min_workers=workers, partitions=workers * PARTITIONS_A_WORKER, plane="local",
        progress=False,
    ) as df:  # fmt: skip
        x, spent = df.empty(1, name="x"), df.empty([(1, 4)] * workers * PARTITIONS_A_WORKER, name="spent")
        done = df.single(np.array(0), name="done")

        @df.stage(writes=[x])
        def loop(x: Any) -> None:
            for _ in range(TURNS):
                pass

        @df.stage(writes=[spent])
        def note(spent: Any, *, column: int) -> None:
            spent[0, 0], spent[0, column] = os.getpid(), time.process_time_ns()

        @df.stage(writes=[spent])
        def alone(spent: Any, *, count: int) -> None:
            then = time.thread_time_ns()
            for _ in range(count):
                for _ in range(TURNS):
                    pass
            spent[0, 3] = (time.thread_time_ns() - then) / count

        @df.signal(on=done)
        def more(done: Any, *, number: int, until: int) -> Any:
            return number < until

        def program() -> Any:
            note(column=1)
            number = 0
            while more(number=number, until=signals):
                for _ in range(ROUNDS * STAGES):
                    loop()
                number += 1
            note(column=2)
            alone(count=signals)
            return spent

        df.run(program)  # Derives the graphs.
        tasks = signals * ROUNDS * STAGES * PARTITIONS_A_WORKER
        made: list[Row] = []
        for _ in range(repeat):
            noted = df.run(program)
            by_worker = [noted[noted[:, 0] == pid] for pid in np.unique(noted[:, 0])]
            assert len(by_worker) == workers
            # A worker's partitions note one after the other: the first note of each kind has the same task after it.
            each = [(rows[:, 2].min() - rows[:, 1].min()) / tasks for rows in by_worker]
            made.append({"ns": float(np.mean(each)), "most_ns": max(each), "alone_ns": float(np.median(noted[:, 3]))})
        return made


def measure(repeat: int = 5, signals: int = 50, workers: Sequence[int] = WORKERS) -> list[Row]:
    """A row for each number of workers; medians."""
    runs: dict[int, list[Row]] = {}
    with LocalCluster(slots=max(workers)) as cluster:
        for count in workers:
            runs[count] = cpu_of_workers(cluster, count, signals, repeat)
    base = median(float(run["ns"]) for run in runs[workers[0]])
    return [
        {
            "workers": count,
            "tasks": signals * ROUNDS * STAGES * PARTITIONS_A_WORKER * count,
            "cpu_ns_a_task": round(median(float(run["ns"]) for run in each)),
            "function_alone_ns": round(median(float(run["alone_ns"]) for run in each)),
            "busiest_ns_a_task": round(median(float(run["most_ns"]) for run in each)),
            "to_one_worker": round(median(float(run["ns"]) for run in each) / base, 2),
        }
        for count, each in runs.items()
    ]
