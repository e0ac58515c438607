"""A one-task job on a cluster of 1,000 node monitors that few processes host, next to a process pool.

One scheduler, 1,000 node monitors of one slot each (hosted by `HOSTS` processes), and this process: jobs of one task of
the app `noop`, one job at a time, from submission to the result; and as many no-ops in a `ProcessPoolExecutor`, in
short blocks in turn. `value` is the p50 of the jobs.
"""

from __future__ import annotations

import time
from concurrent.futures import ProcessPoolExecutor, wait

from benchmarks.functions import noop, sleep
from benchmarks.report import Report, Row, command, median_rows, percentiles
from frontends.synthetic.tasks import noop_job
from sparrow_py import Client, LocalCluster

NODES = 1000
HOSTS = 2
JOBS = 1000
JOBS_PER_BLOCK = 100
POOL_WORKERS = 2
AIM_MS = 0.6


def job(client: Client) -> float:
    """One job of one task; seconds until its result."""
    started_s = time.perf_counter()
    client.submit_job(noop_job(1)).results()
    return time.perf_counter() - started_s


def call(pool: ProcessPoolExecutor) -> float:
    """One call of the pool; seconds until its result."""
    started_s = time.perf_counter()
    pool.submit(noop).result()
    return time.perf_counter() - started_s


def measure_rows() -> list[Row]:
    """Percentiles in ms of jobs and of calls; the first block only warms up."""
    jobs: list[float] = []
    calls: list[float] = []
    with ProcessPoolExecutor(POOL_WORKERS) as pool:
        wait([pool.submit(sleep) for _ in range(4 * POOL_WORKERS)])  # It forks its workers before we have threads.
        node_options = ["--count", str(NODES // HOSTS), "--warm", "noop"]
        with LocalCluster(1, HOSTS, slots=1, node_options=node_options) as cluster, Client(cluster) as client:
            cluster.wait_for_nodes(NODES, 60.0)
            for block in range(-1, JOBS // JOBS_PER_BLOCK):
                ours = [job(client) for _ in range(JOBS_PER_BLOCK)]
                theirs = [call(pool) for _ in range(JOBS_PER_BLOCK)]
                if block >= 0:
                    jobs += ours
                    calls += theirs
    named = {f"job on one of {NODES:,} node monitors": jobs, "ProcessPoolExecutor": calls}
    return [{"": name} | {f"{p} ms": 1000 * s for p, s in percentiles(taken).items()} for name, taken in named.items()]


def measure(repeat: int) -> Report:
    """Both rows, `repeat` times."""
    repetitions = [measure_rows() for _ in range(repeat)]
    rows = median_rows(repetitions)
    return Report(
        "hosted",
        rows[0]["p50 ms"],
        f"ms from submitting a one-task job to its result, with {NODES:,} node monitors, p50",
        {f"{JOBS:,} jobs of one no-op in sequence": rows},
        repetitions,
        [f"Aim: p50 {AIM_MS} ms."],
        {"aim_ms": AIM_MS, "hosts": HOSTS},
    )


main = command("hosted", measure, repeat=3, help="A one-task job on a cluster of 1,000 node monitors.")

if __name__ == "__main__":
    main()
