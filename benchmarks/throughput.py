"""Throughput: 20,000 no-op Python functions through one client and 4 worker processes, next to a process pool.

Measured: wall time from the first submission to the last result, and CPU time of all processes together (this
one with its client, scheduler, node monitor, workers; for the pool this one and its workers) per task. Ways:
`Client.map`, and one job by `submit_calls`; without prefetch (the paper's late binding) and with 32 tasks
prefetched per slot; `ProcessPoolExecutor` by `submit` and `as_completed`, and by `map` with chunksize 1.
One task is one call everywhere. All ways run in turn in each repetition. `value`: tasks/s of
`submit_calls` with prefetch.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed, wait

from benchmarks.functions import noop
from benchmarks.report import Report, Row, command_of_cluster, cpu_s, median_rows
from sparrow_py import CallOptions, Client, LocalCluster

TASKS = 20_000
WORKERS = 4
PREFETCH = 32
WARM_UP_TASKS = 2_000

Way = tuple[str, str, Callable[[int], None]]
"""(who, how, what runs so many tasks)."""


def check(results: int, tasks: int) -> None:
    """Raise unless every task had a result."""
    if results != tasks:
        raise RuntimeError(f"{tasks} tasks gave {results} results")


def by_map(client: Client, tasks: int, prefetch: int) -> None:
    """`Client.map`."""
    check(sum(1 for _ in client.map(noop, range(tasks), options=CallOptions(prefetch=prefetch))), tasks)


def by_job(client: Client, tasks: int, prefetch: int) -> None:
    """One job of so many calls."""
    arguments = [(number,) for number in range(tasks)]
    check(len(client.submit_calls(noop, arguments, options=CallOptions(prefetch=prefetch)).results()), tasks)


def by_pool_submit(pool: ProcessPoolExecutor, tasks: int) -> None:
    """The pool, a future per call."""
    for future in as_completed([pool.submit(noop, number) for number in range(tasks)]):
        future.result()


def by_pool_map(pool: ProcessPoolExecutor, tasks: int) -> None:
    """The pool's map."""
    for _ in pool.map(noop, range(tasks), chunksize=1):
        pass


def ways_of(client: Client, pool: ProcessPoolExecutor) -> list[Way]:
    """All rows of the table."""
    return [
        *(
            ("sparrow-py", f"{name}, prefetch {prefetch}", lambda n, run=run, p=prefetch: run(client, n, p))
            for prefetch in (PREFETCH, 0)
            for name, run in (("submit_calls", by_job), ("map", by_map))
        ),
        ("ProcessPoolExecutor", "submit, as_completed", lambda n: by_pool_submit(pool, n)),
        ("ProcessPoolExecutor", "map, chunksize 1", lambda n: by_pool_map(pool, n)),
    ]


def measure_row(way: Way, tasks: int) -> Row:
    """One way: wall and CPU time per task. This process and all below it: those of the other ways idle meanwhile."""
    who, how, run = way
    cpu_before_s, started_s = cpu_s([os.getpid()], children=True), time.perf_counter()
    run(tasks)
    took_s, used_s = time.perf_counter() - started_s, cpu_s([os.getpid()], children=True) - cpu_before_s
    return {"": who, "how": how, "tasks/s": tasks / took_s, "CPU ms/task": 1000 * used_s / tasks}


def measure(repeat: int, processes: str) -> Report:
    """All ways in turn, `repeat` times."""
    with ProcessPoolExecutor(WORKERS) as pool:
        wait(
            [pool.submit(time.sleep, 0.01) for _ in range(4 * WORKERS)]
        )  # It forks its workers before we have threads.
        with LocalCluster(1, 1, slots=WORKERS, processes=processes) as cluster, Client(cluster) as client:
            ways = ways_of(client, pool)
            for _, _, run in ways:
                run(WARM_UP_TASKS)
            repetitions = [[measure_row(way, TASKS) for way in ways] for _ in range(repeat)]
    rows = median_rows(repetitions)
    return Report(
        "throughput",
        rows[0]["tasks/s"],
        f"no-op Python calls per second, one client, {WORKERS} workers, prefetch {PREFETCH}",
        {f"{TASKS:,} no-op Python functions, one client, {WORKERS} workers": rows},
        repetitions,
        ["CPU time is that of all processes. Aims: as fast as the pool and 0.12 ms with prefetch; "
         "6,000/s and 0.25 ms without."],
        {"tasks": TASKS, "workers": WORKERS, "prefetch": [PREFETCH, 0], "probe_ratio": 2, "processes": processes},
    )  # fmt: skip


main = command_of_cluster(
    "throughput", measure, repeat=3, help="No-op Python calls end to end, next to a process pool."
)

if __name__ == "__main__":
    main()
