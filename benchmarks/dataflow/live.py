"""What a task costs on the workers of a cluster, by plane: loops of no-ops, and loops whose every round waits.

CPU time is of all processes of a program: its own, the controller, the workers. An epoch captures templates anew, so
rounds are many enough that this does not count. Beside the rows is the round trip of a process pool in the same run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from statistics import median
from typing import Any

import numpy as np
import psutil

from frontends.dataflow import Dataflow
from sparrow_py import LocalCluster

PLANES = ("local", "templates", "central")
PARTITIONS: dict[str, int] = {"no-ops": 800, "waits": 8}
CALLS: dict[str, int] = {"no-ops": 10, "waits": 1}
"""Calls of a stage in a round."""
ROUNDS: dict[tuple[str, str], int] = {("no-ops", "central"): 8, ("waits", "central"): 400}
ROUNDS_OTHERWISE: dict[str, int] = {"no-ops": 100, "waits": 2000}
ROUND_TRIPS = 1000


class Loop:
    """A program of rounds, each of some calls of a stage that does nothing, and of a signal."""

    def __init__(self, df: Dataflow, calls: int) -> None:
        X, count = df.partition(np.zeros(df.partitions)), df.single(np.zeros(1))
        nothing = df.stage(writes=[X], name="nothing")(lambda x: None)
        tick = df.stage(writes=[count], name="tick")(_tick)
        begin = df.stage(writes=[count], name="begin")(_begin)
        more = df.signal(on=count, name="more")(lambda count, *, below: count[0] < below)
        self._df, self._begin = df, begin

        def program(rounds: int) -> None:
            while more(below=rounds):
                for _ in range(calls):
                    nothing()
                tick()

        self._program = program

    def run(self, rounds: int) -> None:
        begin, program = self._begin, self._program
        self._df.run(lambda: (begin(), program(rounds))[1])


def _tick(count: Any) -> None:
    count += 1


def _begin(count: Any) -> None:
    count[:] = 0


def rows(repeat: int = 3, workers: int = 2, share: float = 1.0) -> list[dict[str, object]]:
    """A row for each kind of loop and plane; medians of interleaved runs. `share` of the rounds are run."""
    with LocalCluster(slots=workers) as cluster, ProcessPoolExecutor(1) as pool:
        found: dict[tuple[str, str], list[tuple[float, dict[str, float]]]] = {}
        pool_us = []
        for _ in range(repeat):
            pool_us.append(_pool_us(pool))
            for kind in CALLS:
                for plane in PLANES:
                    found.setdefault((kind, plane), []).append(_measured(cluster, workers, kind, plane, share))
    made: list[dict[str, object]] = []
    for (kind, plane), runs in found.items():
        tasks = CALLS[kind] * PARTITIONS[kind] + 2
        row: dict[str, object] = {
            "loop": kind, "plane": plane, "workers": workers, "tasks a round": tasks,
            "us a round": round(median(wall for wall, _ in runs), 1),
        }  # fmt: skip
        for who in runs[0][1]:
            row[f"{who} cpu us a round"] = round(median(cpu[who] for _, cpu in runs), 1)
        total = median(sum(cpu.values()) for _, cpu in runs)
        row["cpu us a task"] = round(total / tasks, 3)
        row["pool us"] = round(median(pool_us), 1)
        made.append(row)
    return made


def _pool_us(pool: ProcessPoolExecutor) -> float:
    """A round trip to a process of a pool."""
    pool.submit(abs, -1).result()
    then = time.perf_counter()
    for _ in range(ROUND_TRIPS):
        pool.submit(abs, -1).result()
    return 1e6 * (time.perf_counter() - then) / ROUND_TRIPS


def _measured(
    cluster: LocalCluster, workers: int, kind: str, plane: str, share: float
) -> tuple[float, dict[str, float]]:
    """Microseconds of a round, and of CPU time by kind of process."""
    rounds = max(2, int(share * ROUNDS.get((kind, plane), ROUNDS_OTHERWISE[kind])))
    options: dict[str, Any] = {"workers": workers, "min_workers": workers, "partitions": PARTITIONS[kind]}
    with Dataflow(cluster, plane=plane, progress=False, **options) as df:
        loop = Loop(df, CALLS[kind])
        loop.run(2)
        with _cpu_of(df, cluster) as spent_s:
            then = time.perf_counter()
            loop.run(rounds)
            wall_s = time.perf_counter() - then
        return 1e6 * wall_s / rounds, {who: 1e6 * each / rounds for who, each in spent_s().items()}


@contextmanager
def _cpu_of(df: Dataflow, cluster: LocalCluster) -> Iterator[Callable[[], dict[str, float]]]:
    """CPU time by kind of process since the start."""
    runner = df._cluster_runner
    assert runner is not None and runner._driver is not None
    controller = runner._driver._controller.pid
    kinds = {
        "program": [psutil.Process()],
        "controller": [psutil.Process(controller)],
        "workers": [
            process
            for daemon in cluster.node_processes
            for process in psutil.Process(daemon.pid).children(recursive=True)
        ],
    }

    def now() -> dict[str, float]:
        return {who: sum(sum(each.cpu_times()[:2]) for each in processes) for who, processes in kinds.items()}

    before = now()
    yield lambda: {who: spent_s - before[who] for who, spent_s in now().items()}
