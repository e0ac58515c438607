"""A DAG's overhead: jobs of 5 stages of 10 no-op tasks each, every stage after the one before.

Measured at the client, on an idle cluster of 4 × 4 slots, prefetch 0, d = 2: the response time of the whole job
over its stages, where the scheduler opens each stage by itself; and that of 5 jobs of one stage, each submitted when
the one before has ended, as a client in the loop would do it. Built-in no-op tasks, so that no executor's time is in
it. Both run in this process in turn, in short blocks. `value` is the former's p50.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from benchmarks.report import Report, Row, command, median_rows, percentiles
from frontends.synthetic.tasks import NOOP_APP, noop_job
from sparrow_py import Client, JobSpec, LocalCluster, StageSpec

STAGES = 5
TASKS = 10
JOBS = 300
JOBS_PER_BLOCK = 30
NODES = SLOTS = 4
AIM_MS = 1.0


def one_job(client: Client) -> None:
    """A job of five stages."""
    stages = [
        StageSpec([b""] * TASKS, name=f"s{number}", after=[f"s{number - 1}"] if number else [], app=NOOP_APP)
        for number in range(STAGES)
    ]
    client.submit_job(JobSpec(stages=stages)).results()


def five_jobs(client: Client) -> None:
    """Five jobs, one after the other."""
    for _ in range(STAGES):
        client.submit_job(noop_job(TASKS)).results()


def measure_once() -> list[Row]:
    """Both, in turn."""
    taken: dict[str, list[float]] = {"one job of 5 stages": [], "5 jobs, client in the loop": []}
    ways: list[Callable[[Client], None]] = [one_job, five_jobs]
    with LocalCluster(1, 1, slots=SLOTS, node_options=["--count", str(NODES)]) as cluster, Client(cluster) as client:
        for block in range(-1, JOBS // JOBS_PER_BLOCK):
            for way, seconds in zip(ways, taken.values(), strict=True):
                for _ in range(JOBS_PER_BLOCK):
                    started_s = time.perf_counter()
                    way(client)
                    if block >= 0:
                        seconds.append((time.perf_counter() - started_s) / STAGES)
    return [
        {"ms per stage": name} | {p: 1000 * s for p, s in percentiles(seconds).items()}
        for name, seconds in taken.items()
    ]


def measure(repeat: int) -> Report:
    """The table, `repeat` times."""
    repetitions = [measure_once() for _ in range(repeat)]
    rows = median_rows(repetitions)
    return Report(
        "dag",
        rows[0]["p50"],
        f"ms per stage of a job of {STAGES} stages of {TASKS} no-op tasks, p50",
        {f"{STAGES} stages of {TASKS} no-op tasks each on {NODES} × {SLOTS} slots": rows},
        list(repetitions),
        [f"Aim: under {AIM_MS:g} ms per stage."],
        {"probe_ratio": 2, "prefetch": 0, "aim_ms": AIM_MS, "jobs": JOBS},
    )


main = command("dag", measure, repeat=3, help="Overhead per stage of a DAG, next to a client in the loop.")

if __name__ == "__main__":
    main()
