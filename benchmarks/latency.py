"""Latency of an unloaded cluster, next to a process pool: from submission to the result at the client.

(a) One no-op Python function per job, one job at a time: `submit(noop).result()`.
(b) Jobs of 10 parallel 10 ms sleeps (`time.sleep`) on 16 slots: the response time of the whole job minus 10 ms.

Embedded cluster of 1 scheduler and 1 node monitor, prefetch 0, d = 2, functions imported by reference: a process each,
and, as is the default, both in one. "Scheduler
here" is a client that runs the scheduler in its own process (Sparrow §6.1), with a node monitor like the other. The
last row is `concurrent.futures.ProcessPoolExecutor` with as many workers. Both run in this process, one
after the other in short blocks, so that what else the machine does hits both. `value` is the p50 of (a).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, wait
from contextlib import contextmanager
from subprocess import DEVNULL
from typing import Any

from benchmarks.functions import SLEEP_S, noop, sleep
from benchmarks.report import Report, Row, command, median_rows, percentiles
from sparrow_py import Client, LocalCluster, SchedulerHere
from sparrow_py.embedded.daemon_process import DaemonProcess

CALLS = 2000
CALLS_PER_BLOCK = 100
CALL_SLOTS = 2
SLEEP_JOBS = 100
SLEEP_JOBS_PER_BLOCK = 20
SLEEPS = 10
SLEEP_SLOTS = 16
AIMS_MS = {"no-op": {"p50": 0.5}, "sleeps": {"p50": 1.5, "p95": 3.0}}

Submitter = Client | Executor


def call(submitter: Submitter) -> float:
    """One call; seconds until its result."""
    started_s = time.perf_counter()
    submitter.submit(noop).result()
    return time.perf_counter() - started_s


def sleep_job(submitter: Submitter) -> float:
    """One job of parallel sleeps; seconds until all its results, less one sleep."""
    started_s = time.perf_counter()
    if isinstance(submitter, Client):
        submitter.submit_calls(sleep, [()] * SLEEPS).results()
    else:
        wait([submitter.submit(sleep) for _ in range(SLEEPS)])
    return time.perf_counter() - started_s - SLEEP_S


def interleaved(submitters: list[Submitter], sample: Callable[[Any], float], samples: int, per_block: int) -> list[Row]:
    """Percentiles in ms for each submitter; the first block only warms up."""
    seconds: list[list[float]] = [[] for _ in submitters]
    for block in range(-1, samples // per_block):
        for taken, submitter in zip(seconds, submitters, strict=True):
            found = [sample(submitter) for _ in range(per_block)]
            if block >= 0:
                taken.extend(found)
    return [{k: 1000 * v for k, v in percentiles(taken).items()} for taken in seconds]


@contextmanager
def client_with_scheduler(slots: int) -> Iterator[Client]:
    """A client that runs the scheduler itself, and a node monitor for it."""
    here = SchedulerHere()
    with Client(here) as client:
        flags = ["--scheduler", here.address, "--slots", str(slots)]
        node_monitor = DaemonProcess("node_monitor", flags, dict(os.environ), log=DEVNULL)
        node_monitor.wait_until_ready()
        try:
            yield client
        finally:
            node_monitor.end()
            node_monitor.wait_ended()


def measure_rows(slots: int, sample: Callable[[Any], float], samples: int, per_block: int) -> list[Row]:
    """Rows for an embedded cluster of three processes with this one and of two, as by default; for one with the
    scheduler in the client's process; for the pool."""
    with ProcessPoolExecutor(slots) as pool:
        wait([pool.submit(sleep) for _ in range(4 * slots)])  # It forks its workers before we have threads.
        with (
            LocalCluster(1, 1, slots=slots, processes="separate") as cluster,
            Client(cluster) as client,
            LocalCluster(1, 1, slots=slots) as both,
            Client(both) as embedded,
            client_with_scheduler(slots) as near,
        ):
            wait_for_workers(client, slots)
            wait_for_workers(embedded, slots)
            wait_for_workers(near, slots)
            submitters: list[Submitter] = [client, embedded, near, pool]
            sparrow, one, here, other = interleaved(submitters, sample, samples, per_block)
    prefix: Row = {"slots": slots, "prefetch": 0}
    return [
        {"": "sparrow-py"} | prefix | {f"{p} ms": ms for p, ms in sparrow.items()},
        {"": "embedded default"} | prefix | {f"{p} ms": ms for p, ms in one.items()},
        {"": "scheduler here"} | prefix | {f"{p} ms": ms for p, ms in here.items()},
        {"": "ProcessPoolExecutor"} | prefix | {f"{p} ms": ms for p, ms in other.items()},
    ]


def wait_for_workers(client: Client, slots: int) -> None:
    """Run sleeps until they run `slots` at a time: workers take a moment to start."""
    deadline_s = time.monotonic() + 30
    while time.monotonic() < deadline_s:
        started_s = time.perf_counter()
        client.submit_calls(sleep, [()] * slots).results()
        if time.perf_counter() - started_s < 2 * SLEEP_S:
            return


def measure(repeat: int) -> Report:
    """Both tables, `repeat` times in turn."""
    calls, sleeps = [], []
    for _ in range(repeat):
        calls.append(measure_rows(CALL_SLOTS, call, CALLS, CALLS_PER_BLOCK))
        sleeps.append(measure_rows(SLEEP_SLOTS, sleep_job, SLEEP_JOBS, SLEEP_JOBS_PER_BLOCK))
    rows = median_rows(calls)
    return Report(
        "latency",
        rows[0]["p50 ms"],
        "ms from submitting one no-op Python function to its result, p50",
        {
            f"One no-op Python function per job, {CALLS:,} in sequence": rows,
            f"{SLEEPS} parallel sleeps of {1000 * SLEEP_S:g} ms per job: response time less "
            f"{1000 * SLEEP_S:g} ms, {SLEEP_JOBS} in sequence": median_rows(sleeps),
        },
        [{"calls": c, "sleep_jobs": s} for c, s in zip(calls, sleeps, strict=True)],
        ["Aims: no-op p50 0.5 ms; sleeps p50 1.5 ms, p95 3 ms. All rows ran in turn, block by block."],
        {"probe_ratio": 2, "aims_ms": AIMS_MS, "samples": {"calls": CALLS, "sleep_jobs": SLEEP_JOBS}},
    )


main = command("latency", measure, repeat=3, help="Unloaded latency of calls and small jobs, next to a process pool.")

if __name__ == "__main__":
    main()
