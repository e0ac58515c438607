"""Failover: SIGKILL of a job's scheduler in the middle of the job, and how long its client waits.

A job of `TASKS` calls that sleep for `SLEEP_S` on 2 node monitors × `SLOTS` slots, prefetch 0, d = 2; its scheduler,
one of two, is killed once a quarter of the tasks have ended. Measured at the client: from the kill to the first
result after it, and to the last less what the tasks that were left need at least (`beyond`, the figure with an aim).
The same without a kill, in turn, says how much of that is the machine's.
The client sees the broken connection at once; where a machine vanishes without a word, add the heartbeat.
"""

from __future__ import annotations

import math
import threading
import time

from benchmarks.functions import SLEEP_S, sleep
from benchmarks.report import Report, Row, command, median_rows
from sparrow_py import Client, LocalCluster, TaskStatus
from sparrow_py.embedded.daemon_process import Daemon
from sparrow_py.wire.http_get import http_get_json

TASKS = 800
SLOTS = 4
NODES = 2
AIM_S = 1.0
SETTLED_S = 2.0
"""A scheduler waits for node monitors for so long after its start (`settling_s`); as a rule it is up for longer."""


def busy_scheduler(cluster: LocalCluster) -> Daemon:
    """The scheduler that has the job."""
    return next(p for p in cluster.scheduler_processes if http_get_json(p.address, "/v1/jobs")["jobs"])


def measure_once(kill: bool) -> Row:
    """One job, on a cluster of its own."""
    ended_at_s: list[float] = []
    quarter = threading.Event()

    def ended(_: object) -> None:
        ended_at_s.append(time.monotonic())
        if len(ended_at_s) >= TASKS // 4:
            quarter.set()

    with LocalCluster(schedulers=2, node_monitors=NODES, slots=SLOTS) as cluster, Client(cluster) as client:
        client.submit_calls(sleep, [()] * 4 * NODES * SLOTS).results()  # Workers are up.
        time.sleep(SETTLED_S)
        job = client.submit_calls(sleep, [()] * TASKS)
        for future in job.futures:
            future.add_done_callback(ended)
        quarter.wait()
        victim = busy_scheduler(cluster)
        left = TASKS - len(ended_at_s)
        killed_s = time.monotonic()
        if kill:
            victim.kill()
        report = job.report()
    after = [at_s - killed_s for at_s in ended_at_s if at_s > killed_s]
    ideal_s = math.ceil(left / (NODES * SLOTS)) * SLEEP_S
    return {
        "scheduler": "killed" if kill else "left alone",
        "tasks left": left,
        "first result s": min(after),
        "last result s": max(after),
        "ideal s": ideal_s,
        "beyond s": max(after) - ideal_s,
        "lost": report.count(TaskStatus.LOST),
        "placed again": sum(task.attempts > 1 for task in report.tasks),
    }


def measure(repeat: int) -> Report:
    """Both rows, `repeat` times in turn: the second says what the machine itself adds."""
    repetitions = [[measure_once(True), measure_once(False)] for _ in range(repeat)]
    rows = median_rows(repetitions)
    title = f"SIGKILL of the scheduler of {TASKS} tasks of {1000 * SLEEP_S:g} ms on {NODES} × {SLOTS} slots"
    return Report(
        "failover",
        rows[0]["beyond s"],
        "s from SIGKILL of the scheduler to the last result, beyond the time that the tasks left need",
        {title: rows},
        list(repetitions),
        [f"Aim: under {AIM_S:g} s beyond. Results that were on their way when the kill came count as first results."],
        {"probe_ratio": 2, "prefetch": 0, "aim_s": AIM_S},
    )


main = command("failover", measure, repeat=5, help="From SIGKILL of a scheduler to its job's next and last result.")

if __name__ == "__main__":
    main()
