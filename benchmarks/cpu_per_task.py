"""CPU time of scheduler plus node monitor per no-op task: what the scheduling itself costs.

Measured: user + system time of the scheduler's process and of the one node-monitor process, which hosts all
nodes (`--count`), over at least `SPAN_S` of wall time of jobs of built-in no-op tasks; probe ratio d = 2,
probe sharing on (the default). The client's CPU time is not counted. Each row keeps so many jobs in flight:
`IN_FLIGHT`, so that frames carry several messages as under load, and 1, each job alone.
`value` is the row of 100-task jobs on 4 × 4 slots with `IN_FLIGHT` jobs, without prefetch.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass

from benchmarks.report import Report, Row, command_of_cluster, cpu_s, median_rows
from frontends.synthetic.tasks import noop_job
from sparrow_py import Client, LocalCluster
from sparrow_py.client import Job

IN_FLIGHT = 4
SPAN_S = 1.5
WARM_UP_S = 0.3
NODES_TIMEOUT_S = 30.0
TARGET_MS = 0.05
TARGET_SPREAD_MS = 0.25


@dataclass(frozen=True)
class Setting:
    """A row: `tasks` per job on `nodes` × `slots`."""

    tasks: int
    nodes: int
    slots: int
    in_flight: int
    target_ms: float
    prefetch: int = 0


CLUSTERS = [(100, 1, 16, TARGET_MS), (100, 4, 4, TARGET_MS), (10, 100, 4, TARGET_SPREAD_MS)]
SETTINGS = [
    Setting(tasks, nodes, slots, in_flight, target_ms)
    for tasks, nodes, slots, target_ms in CLUSTERS
    for in_flight in (IN_FLIGHT, 1)
]
VALUE_ROW = 2


def start_cluster(setting: Setting, processes: str) -> LocalCluster:
    """One scheduler, and one process that hosts the node monitors, or both in one."""
    options = ["--count", str(setting.nodes), "--warm", "noop"]
    cluster = LocalCluster(1, 1, slots=setting.slots, node_options=options, processes=processes)
    cluster.wait_for_nodes(setting.nodes, NODES_TIMEOUT_S)  # Of itself it counts processes only.
    return cluster


def run_jobs(client: Client, setting: Setting, span_s: float) -> int:
    """Run jobs for so long, `in_flight` at a time; returns how many."""
    jobs: deque[Job] = deque()
    ended, until_s = 0, time.monotonic() + span_s
    while jobs or time.monotonic() < until_s:
        while len(jobs) < setting.in_flight and time.monotonic() < until_s:
            jobs.append(client.submit_job(noop_job(setting.tasks, prefetch=setting.prefetch)))
        if jobs:
            jobs.popleft().results()
            ended += 1
    return ended


def measure_row(setting: Setting, processes: str) -> Row:
    """One setting, on a cluster of its own."""
    with start_cluster(setting, processes) as cluster, Client(cluster) as client:
        scheduler, node_monitor = cluster.scheduler_processes[0].pid, cluster.node_processes[0].pid
        run_jobs(client, setting, WARM_UP_S)
        both = {scheduler, node_monitor}
        before = cpu_s([scheduler]), cpu_s(both)
        started_s = time.monotonic()
        jobs = run_jobs(client, setting, SPAN_S)
        took_s = time.monotonic() - started_s
        scheduler_s, both_s = cpu_s([scheduler]) - before[0], cpu_s(both) - before[1]
    tasks = jobs * setting.tasks
    each: Row = {}
    if len(both) > 1:
        each["scheduler ms per task"] = 1000 * scheduler_s / tasks
        each["node monitor ms per task"] = 1000 * (both_s - scheduler_s) / tasks
    return {
        "tasks per job": setting.tasks,
        "nodes × slots": f"{setting.nodes}×{setting.slots}",
        "jobs in flight": setting.in_flight,
        "prefetch": setting.prefetch,
        **each,
        "both ms per task": 1000 * both_s / tasks,
        "target ms": setting.target_ms,
        "tasks/s": tasks / took_s,
    }


def measure(repeat: int, processes: str) -> Report:
    """All rows, `repeat` times in turn."""
    repetitions = [[measure_row(setting, processes) for setting in SETTINGS] for _ in range(repeat)]
    rows = median_rows(repetitions)
    return Report(
        "cpu_per_task",
        rows[VALUE_ROW]["both ms per task"],
        "CPU ms of scheduler and node monitor per no-op task (100-task jobs on 4 × 4 slots)",
        {"CPU time of scheduler and node monitor per no-op task, d = 2": rows},
        repetitions,
        ["One process hosts all nodes. tasks/s is what one client submits in this time, not a limit."],
        {
            "probe_ratio": 2,
            "probe_sharing": True,
            "jobs_in_flight": IN_FLIGHT,
            "span_s": SPAN_S,
            "processes": processes,
        },
    )


main = command_of_cluster(
    "cpu_per_task", measure, repeat=3, help="CPU time of scheduler and node monitor per no-op task."
)

if __name__ == "__main__":
    main()
