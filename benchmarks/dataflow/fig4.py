"""Figure 4 of Canary: the time of scheduling a task at one worker.

A program of four stages and a signal, as the paper's logistic regression has them, on P partitions at one worker that
spawns its tasks itself. Scheduling is the thread's CPU time in the program's loop less that of the same functions
called alone, per task: calls of the program, blocks, counters, flags, time per partition, polls, signals.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import numpy as np

from frontends.dataflow import Dataflow
from frontends.dataflow.calls import Block
from frontends.dataflow.local_core import LocalCore
from frontends.dataflow.messages import Message
from frontends.dataflow.partition_map import PartitionMap
from frontends.dataflow.placement import initial
from frontends.dataflow.store import first_value

PARTITIONS = (1, 4, 10, 40)
PAPER_NS = 735
"""Of a 6.6 µs task at 136,000 tasks a second: 10 % of the time of task and scheduling."""
POLL_NS = 1_000_000
CALIBRATION_TURNS, CALIBRATION_RUNS = 250, 200
"""Of the loop that a task is; of more turns, numbers would be made, which Python has of small ones."""


class _Nobody:
    """An outbox of a worker that is alone."""

    def send(self, worker: int, message: Message) -> None:
        raise AssertionError

    def report(self, message: Message) -> None: ...

    def flush(self) -> None: ...


class OneWorker:
    """Runs blocks by one core that holds everything, as a worker of the local plane does."""

    def __init__(self, df: Dataflow) -> None:
        definition = df._definition
        placed = PartitionMap(initial(definition.group_partitions(), [0]))
        self.core = LocalCore(
            definition, 0, [0], placed, _Nobody(), clock=time.perf_counter_ns, poll=lambda now: now + POLL_NS
        )
        for slot in placed:
            members = definition.members(slot[0])
            self.core.hold(slot, {d: first_value(definition.datasets[d], slot[1]) for d in members})
        for copy in definition.copies():
            self.core.put_copy(copy, first_value(definition.datasets[copy], 0))

    def load(self) -> None: ...

    def flush(self) -> None: ...

    def run_block(self, block: Block) -> bool:
        core = self.core
        core.begin(block)
        core.step()
        return core.finish()


def _nothing_1(a: Any) -> None: ...


def _nothing_2(a: Any, b: Any) -> None: ...


def _nothing_3(a: Any, b: Any, c: Any) -> None: ...


def _looped_ns(turns: int) -> int:
    """CPU time of so many turns of a loop."""
    then = time.thread_time_ns()
    for _ in range(turns):
        pass
    return time.thread_time_ns() - then


def spinning(duration_ns: int) -> list[Callable[..., None]]:
    """Functions of one, two and three arrays that take about so long."""
    least_ns = min(_looped_ns(CALIBRATION_TURNS) for _ in range(CALIBRATION_RUNS))
    turns = max(round(duration_ns * CALIBRATION_TURNS / least_ns), 1)

    def one(a: Any) -> None:
        for _ in range(turns):
            pass

    def two(a: Any, b: Any) -> None:
        for _ in range(turns):
            pass

    def three(a: Any, b: Any, c: Any) -> None:
        for _ in range(turns):
            pass

    return [one, two, three]


def measured(partitions: int, functions: Sequence[Callable[..., None]], rounds: int) -> tuple[float, float, int]:
    """CPU time of a task with its scheduling, of its function alone, and tasks; ns.

    The graph was derived before: the paper's program runs a billion stages.
    """
    takes_one, _, takes_three = functions
    df = Dataflow(plane="inline", partitions=partitions, progress=False)
    data, weights, gradient = df.empty(4), df.empty(4), df.empty(4)
    left = df.single(np.array(0))
    a = df.stage(reads=[data, weights], writes=[gradient], name="a")(takes_three)
    b = df.stage(writes=[gradient], name="b")(takes_one)
    c = df.stage(reads=[gradient, data], writes=[weights], name="c")(takes_three)
    d = df.stage(writes=[weights], name="d")(takes_one)

    @df.signal(on=left)
    def more(left: Any, *, number: int, until: int) -> Any:
        return number < until

    def program(until: int) -> None:
        number = 0
        while more(number=number, until=until):
            a()
            b()
            c()
            d()
            number += 1

    df._freeze()
    three, one = (df._definition.stages[number].function for number in (0, 1))  # As they run.
    assert three is not None and one is not None
    worker = OneWorker(df)
    df._runner = worker  # type: ignore[assignment]
    df.run(lambda: program(2))
    before, then = worker.core.tasks_run, time.thread_time_ns()
    df.run(lambda: program(rounds))
    total = time.thread_time_ns() - then
    tasks = worker.core.tasks_run - before
    array, calls = np.zeros(4), rounds * partitions * 2
    then = time.thread_time_ns()
    for _ in range(calls):
        three(array, array, array)
    for _ in range(calls):
        one(array)
    alone = time.thread_time_ns() - then
    return total / tasks, alone / tasks, tasks


def rows(repeat: int = 20, tasks: int = 8_000, partitions: Sequence[int] = PARTITIONS) -> list[dict[str, object]]:
    """A row for each number of partitions: no-ops, and tasks of 6.6 µs; medians of interleaved runs."""
    bodies: dict[str, list[Callable[..., None]]] = {
        "no-op": [_nothing_1, _nothing_2, _nothing_3],
        "6.6 µs": spinning(6_600),
    }
    runs: dict[tuple[int, str], list[tuple[float, float]]] = {}
    for _ in range(repeat):
        for count in partitions:
            for name, functions in bodies.items():
                share = tasks if name == "no-op" else tasks // 4
                total, alone, _ = measured(count, functions, max(share // (4 * count), 1))
                runs.setdefault((count, name), []).append((total, alone))
    made: list[dict[str, object]] = []
    for (count, name), each in runs.items():
        total, alone = median(total for total, _ in each), median(alone for _, alone in each)
        scheduling = median(total - alone for total, alone in each)
        made.append(
            {
                "partitions": count,
                "task": name,
                "scheduling_ns": round(scheduling),
                "least_ns": round(min(total - alone for total, alone in each)),
                "share_%": round(100 * scheduling / total, 1),
                "tasks_per_cpu_s": round(1e9 / total),
                "share_of_1_ms_%": round(scheduling / 1e4, 3) if name == "no-op" else None,
                "aim_ns": PAPER_NS if count in (4, 10) else None,
            }
        )
        assert alone > 0
    return made
