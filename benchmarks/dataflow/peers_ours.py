"""Programs of this project for `peers`, on two workers of a cluster of one node monitor."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from statistics import median
from typing import Any

import numpy as np

from benchmarks.dataflow.peers import (
    ALLREDUCE,
    BUSY_US,
    DOUBLES,
    IDLE,
    NO_OPS,
    PARTITIONS,
    QUICKER,
    SIGNAL,
    SLOWER,
    STAGES,
    WORKERS,
    Below,
    Measure,
    Peer,
    Turn,
)
from frontends.dataflow import Dataflow
from sparrow_py import LocalCluster

SUMS = 20
"""Allreduces between two signals."""
ITERATIONS_MAX = 10_000
"""Whose times are noted."""
Program = Callable[[int], Any]


def no_ops(df: Dataflow) -> Program:
    """An iteration: three stages and a signal."""
    x, done = df.empty(1, name="x"), df.single(np.array(0), name="done")
    stages = [df.stage(writes=[x], name=f"no-op-{number}")(lambda x: None) for number in range(STAGES)]

    @df.signal(on=done)
    def more(done: Any, *, number: int, until: int) -> Any:
        return number < until

    def program(iterations: int) -> None:
        number = 0
        while more(number=number, until=iterations):
            for stage in stages:
                stage()
            number += 1

    return program


def allreduce(df: Dataflow) -> Program:
    """An iteration: a reduction into a copy at each worker."""
    part = df.empty(DOUBLES, partitions=WORKERS, fill=1.0, name="part")
    summed, done = df.replicate(np.zeros(DOUBLES), name="summed"), df.single(np.array(0), name="summed-all")
    add = df.reduce(part, into=summed, op=np.add)

    @df.signal(on=done)
    def go_on(done: Any, *, number: int, until: int) -> Any:
        return number < until

    def program(iterations: int) -> None:
        number = 0
        while go_on(number=number, until=iterations):
            for _ in range(SUMS):
                add()
            number += SUMS

    return program


def busy(df: Dataflow) -> Program:
    """An iteration: both workers are busy, then a signal. Each notes when it began; there is a row for each."""
    rows = [(1, ITERATIONS_MAX)] * WORKERS
    when, turn = df.empty(rows, partitions=WORKERS, name="when"), df.single(np.array(0), name="turn")

    @df.stage(writes=[when])
    def work(when: Any, *, number: int) -> None:
        began = when[0, number] = time.perf_counter_ns()
        while time.perf_counter_ns() < began + 1_000 * BUSY_US:
            pass

    @df.signal(on=turn)
    def keep_on(turn: Any, *, number: int, until: int) -> Any:
        return number < until

    def program(iterations: int) -> Any:
        number = 0
        while keep_on(number=number, until=iterations):
            work(number=number)
            number += 1
        return when

    return program


class Ours(Peer):
    """A plane of this project."""

    def __init__(self, plane: str) -> None:
        self.name, self.plane = f"sparrow {plane}", plane

    @contextmanager
    def started(self, below: Below) -> Iterator[Mapping[str, Measure]]:
        with (
            LocalCluster(slots=WORKERS) as cluster,
            Dataflow(
                cluster, workers=WORKERS, min_workers=WORKERS, partitions=PARTITIONS, plane=self.plane, progress=False
            ) as df,
        ):
            looped, summed, worked = no_ops(df), allreduce(df), busy(df)

            def run(program: Program, iterations: int) -> tuple[float, float]:
                """Wall and CPU time in µs."""
                before, then = below.cpu_us(), time.perf_counter()
                df.run(lambda: program(iterations))
                return (time.perf_counter() - then) * 1e6, below.cpu_us() - before

            def of(program: Program, step: int) -> Measure:
                """What an iteration adds to a run: its start and end, at which all processes talk, are no part."""

                def measure(iterations: int) -> Turn:
                    count = -(-iterations // step) * step
                    short, long = run(program, step), run(program, step + count)
                    wall_us, cpu_us = ((b - a) / count for a, b in zip(short, long, strict=True))
                    return Turn(count, [wall_us], cpu_us)

                return measure

            beyond: list[list[float]] = []
            """Of the last turn of `busy`: µs of each worker's iterations beyond the work; the slower worker first."""

            def signal(iterations: int) -> Turn:
                count = min(iterations, ITERATIONS_MAX)
                when = df.run(lambda: worked(count))[:, :count]
                took_us = np.diff(when) / 1e3 - BUSY_US
                beyond[:] = sorted(took_us.tolist(), key=median, reverse=True)
                return Turn(count, took_us.max(axis=0).tolist(), None)

            yield {
                NO_OPS: of(looped, 1),
                ALLREDUCE: of(summed, SUMS),
                SIGNAL: signal,
                SLOWER: lambda iterations: Turn(iterations, list(beyond[0]), None),
                QUICKER: lambda iterations: Turn(iterations, list(beyond[-1]), None),
                IDLE: below.idle,
            }
