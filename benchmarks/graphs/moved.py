"""`python -m benchmarks.graphs --moved`: how many bytes move when tasks read large values that lie on nodes.

On eight node monitors of one slot each a client puts eight values, each of which comes to a node at random; then 64
tasks read one each, the values in turn. They are submitted in one loop, which makes one job of them, and as 64 jobs.
Counted is what node monitors fetched, in copies of a value: 64 would be every value at each node, none each task where
its value was put. Each round has a cluster and values of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from statistics import median
from typing import Any

import numpy as np

from benchmarks.blobs import counters
from benchmarks.graphs.functions import first_of
from benchmarks.report import Report, Row
from sparrow_py import Client, LocalCluster, StoredValue

NODES = 8
VALUES = 8
TASKS = 64
VALUE_BYTES = 8_000_000
HOLD_S = 0.02
"""How long each task lasts besides."""


def in_a_loop(client: Client, values: Sequence[StoredValue]) -> list[Future[Any]]:
    """Single calls in quick succession: one job."""
    return [client.submit(first_of, values[task % VALUES], HOLD_S) for task in range(TASKS)]


def as_jobs(client: Client, values: Sequence[StoredValue]) -> list[Future[Any]]:
    """A job for each call."""
    jobs = [client.submit_calls(first_of, [(values[task % VALUES], HOLD_S)]) for task in range(TASKS)]
    return [future for job in jobs for future in job.futures]


WAYS: dict[str, Callable[[Client, Sequence[StoredValue]], list[Future[Any]]]] = {
    "submitted in a loop": in_a_loop,
    f"{TASKS} jobs": as_jobs,
}


def one_round(submit: Callable[[Client, Sequence[StoredValue]], list[Future[Any]]]) -> Row:
    """Copies of a value that node monitors fetched, and seconds until all tasks have ended."""
    with LocalCluster(1, NODES, slots=1) as cluster, Client(cluster) as client:
        client.submit_calls(first_of, [([0], 0.1)] * NODES).results()  # A worker on each node.
        values = [client.put(np.full(VALUE_BYTES // 8, number)) for number in range(VALUES)]
        began_s = time.perf_counter()
        found = client.gather(submit(client, values))
        seconds = time.perf_counter() - began_s
        assert found == [task % VALUES for task in range(TASKS)]
        fetched = sum(counters(process)["fetched_bytes"] for process in cluster.node_processes)
    return {"copies fetched": fetched / VALUE_BYTES, "seconds": seconds}


def measure_moved(repeat: int) -> Report:
    """Both ways, in turns."""
    rounds = [{way: one_round(submit) for way, submit in WAYS.items()} for _ in range(repeat)]
    rows: list[Row] = []
    for way in WAYS:
        copies, seconds = ([one[way][figure] for one in rounds] for figure in ("copies fetched", "seconds"))
        rows.append(
            {
                "": way,
                "copies fetched": median(copies),
                "least": min(copies),
                "most": max(copies),
                "MB moved": median(copies) * VALUE_BYTES / 1e6,
                "seconds": median(seconds),
            }
        )
    return Report(
        "graphs-moved",
        rows[0]["copies fetched"],
        f"copies of a value fetched by {TASKS} tasks that read one of {VALUES} each, on {NODES} nodes",
        {f"{TASKS} tasks, {VALUES} values of {VALUE_BYTES // 10**6} MB, {NODES} nodes": rows},
        rounds,
        [],
        {"nodes": NODES, "values": VALUES, "tasks": TASKS, "value_bytes": VALUE_BYTES},
    )
