"""Calls of an actor's method, next to calls of a process pool and of the cluster itself: a no-op, in sequence.

`actor.noop().result()` on an embedded cluster of one scheduler and one node monitor; the same from a task that was
given the handle, whose calls go by the client; `submit(noop).result()` of that cluster's client; and
`ProcessPoolExecutor.submit(noop).result()`. In this process, in short blocks that take turns, so that what else the
machine does hits all. "calls/s" are those of all blocks together; a task's come in blocks of its own. `value` is the
calls per second of the actor.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, wait
from typing import Any

from benchmarks.functions import noop, sleep
from benchmarks.latency import wait_for_workers
from benchmarks.report import Report, Row, command, median_rows, percentiles
from sparrow_py import Client, LocalCluster

CALLS = 2_000
CALLS_PER_BLOCK = 100
SLOTS = 2


class Idle:
    """An actor that does nothing."""

    def noop(self) -> None:
        """Be called."""


def seconds_of(call: Callable[[], Any], calls: int) -> list[float]:
    """What each of so many calls takes until its result is there, one after the other."""
    taken = []
    for _ in range(calls):
        started_s = time.perf_counter()
        call().result()
        taken.append(time.perf_counter() - started_s)
    return taken


def called_in_a_task(actor: Any) -> list[float]:
    """As a task that was given the handle measures it."""
    return seconds_of(actor.noop, CALLS_PER_BLOCK)


def measure_rows() -> list[Row]:
    """A row for each kind of call."""
    with ProcessPoolExecutor(SLOTS) as pool:
        wait([pool.submit(sleep) for _ in range(4 * SLOTS)])  # It forks its workers before we have threads.
        with LocalCluster(1, 1, slots=SLOTS) as cluster, Client(cluster) as client:
            wait_for_workers(client, SLOTS)
            with client.actor(Idle) as actor:
                actor.ready()
                kinds: dict[str, Callable[[], list[float]]] = {
                    "actor": lambda: seconds_of(actor.noop, CALLS_PER_BLOCK),
                    "actor, from a task": lambda: client.submit(called_in_a_task, actor).result(),
                    "submit": lambda: seconds_of(lambda: client.submit(noop), CALLS_PER_BLOCK),
                    "ProcessPoolExecutor": lambda: seconds_of(lambda: pool.submit(noop), CALLS_PER_BLOCK),
                }
                taken: dict[str, list[float]] = {kind: [] for kind in kinds}
                for block in range(-1, CALLS // CALLS_PER_BLOCK):
                    for kind, play in kinds.items():
                        found = play()
                        if block >= 0:  # The first block warms up.
                            taken[kind] += found
    return [
        {"": kind, "calls/s": len(seconds) / sum(seconds)}
        | {f"{name} ms": 1000 * value for name, value in percentiles(seconds).items()}
        for kind, seconds in taken.items()
    ]


def measure(repeat: int) -> Report:
    """The table, `repeat` times."""
    tables = [measure_rows() for _ in range(repeat)]
    rows = median_rows(tables)
    return Report(
        "actor_calls",
        rows[0]["calls/s"],
        "calls per second of an actor's method, one after the other",
        {f"No-op calls, {CALLS:,} in sequence": rows},
        [{"calls": table} for table in tables],
        ["All rows ran in turn, block by block."],
        {"slots": SLOTS, "samples": {"calls": CALLS}},
    )


main = command("actor_calls", measure, repeat=3, help="Calls of an actor, next to a process pool.")

if __name__ == "__main__":
    main()
