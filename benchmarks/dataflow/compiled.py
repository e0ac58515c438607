"""What tasks of compiled stages cost, beside the same program with plain ones.

The program of figure 4, four stages and a signal, at one worker that spawns its tasks itself: once with a signal each
round, so that machine code runs four tasks of a partition at a time, and once with rounds up to the size of a block.
Times are the thread's CPU time of the whole run, bodies, calls of the program and signals included, per task.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import numpy as np

from benchmarks.dataflow.fig4 import OneWorker
from frontends.dataflow import Dataflow
from frontends.dataflow.calls import BLOCK_TASKS_MAX

PARTITIONS = (1, 4, 10, 40)
AIM_TASKS_PER_CPU_S = 50_000_000
STAGES = 4


def _nothing_1(a: Any) -> None: ...


def _nothing_3(a: Any, b: Any, c: Any) -> None: ...


def _scale(a: Any) -> None:
    for k in range(a.size):
        a[k] *= 0.5


def _add(a: Any, b: Any, c: Any) -> None:
    for k in range(c.size):
        c[k] += a[k] * b[k]


BODIES: dict[str, tuple[Callable[..., None], Callable[..., None]]] = {
    "no-op": (_nothing_1, _nothing_3),
    "4 elements": (_scale, _add),
}


class Program:
    """The program of figure 4, with so many rounds between two signals."""

    def __init__(self, partitions: int, bodies: str, rounds: int, *, is_compiled: bool) -> None:
        takes_one, takes_three = BODIES[bodies]
        df = Dataflow(plane="inline", partitions=partitions, progress=False)
        data, weights, gradient = df.empty(4), df.empty(4), df.empty(4)
        done = df.single(np.array(0))
        a = df.stage(reads=[data, weights], writes=[gradient], name="a", compiled=is_compiled)(takes_three)
        b = df.stage(writes=[gradient], name="b", compiled=is_compiled)(takes_one)
        c = df.stage(reads=[gradient, data], writes=[weights], name="c", compiled=is_compiled)(takes_three)
        d = df.stage(writes=[weights], name="d", compiled=is_compiled)(takes_one)

        @df.signal(on=done)
        def more(done: Any, *, number: int, until: int) -> Any:
            return number < until

        def program(signals: int) -> None:
            number = 0
            while more(number=number, until=signals):
                for _ in range(rounds):
                    a()
                    b()
                    c()
                    d()
                number += 1

        df._freeze()
        self.worker = OneWorker(df)
        df._runner = self.worker  # type: ignore[assignment]
        self.df, self.program = df, program
        self.run(2)  # Compiles, and derives the graph.

    def run(self, signals: int) -> tuple[int, int]:
        """CPU time of a run in ns, and its tasks."""
        before, then = self.worker.core.tasks_run, time.thread_time_ns()
        self.df.run(lambda: self.program(signals))
        return time.thread_time_ns() - then, self.worker.core.tasks_run - before


def rows(repeat: int = 20, tasks: int = 100_000, partitions: Sequence[int] = PARTITIONS) -> list[dict[str, object]]:
    """A row for each number of partitions, bodies and rounds a signal; medians of interleaved runs."""
    programs: dict[tuple[int, str, int, bool], Program] = {}
    for count in partitions:
        most = BLOCK_TASKS_MAX // (count * STAGES) - 1
        for bodies in BODIES:
            for rounds in (1, most):
                for is_compiled in (False, True):
                    programs[count, bodies, rounds, is_compiled] = Program(
                        count, bodies, rounds, is_compiled=is_compiled
                    )
    per_task: dict[tuple[int, str, int, bool], list[float]] = {key: [] for key in programs}
    for _ in range(repeat):
        for key, program in programs.items():
            count, _, rounds, _ = key
            spent, ran = program.run(max(tasks // (count * STAGES * rounds), 1))
            per_task[key].append(spent / ran)
    made: list[dict[str, object]] = []
    for (count, bodies, rounds, is_compiled), each in per_task.items():
        if not is_compiled:
            continue
        compiled, plain = median(each), median(per_task[count, bodies, rounds, False])
        made.append(
            {
                "partitions": count,
                "task": bodies,
                "tasks_a_chain": rounds * STAGES,
                "plain_ns": round(plain, 1),
                "compiled_ns": round(compiled, 1),
                "least_ns": round(min(each), 1),
                "tasks_per_cpu_s": round(1e9 / compiled),
                "aim_tasks_per_cpu_s": AIM_TASKS_PER_CPU_S if bodies == "no-op" and rounds > 1 else None,
            }
        )
    return made
