"""Memory: resident sets of daemons, idle and with much to remember.

(a) An idle scheduler and an idle node monitor of a fresh cluster, and both in one process, as by default; the workers
are processes of their own and not counted. (b) A scheduler with 1,000 connected node monitors of one slot each (hosted
by `HOSTS` processes) and then with 1,000,000 queued tasks: sleeps that outlast the measurement, 9 bytes of payload
each, in jobs of 10,000. 1 MB is 10^6 bytes. `value` is the scheduler of (b) with all tasks queued.
"""

from __future__ import annotations

import time

from benchmarks.report import Report, Row, command, median_rows, progress, rss_mb
from frontends.synthetic.tasks import sleep_job
from sparrow_py import Client, JobSpec, LocalCluster
from sparrow_py.wire.http_get import http_get_json

NODES = 1000
HOSTS = 2
QUEUED_TASKS = 1_000_000
JOB_TASKS = 10_000
SLEEP_S = 10_000.0
IDLE_AIM_MB = 60
QUEUE_TIMEOUT_S = 120.0


def idle_rows() -> list[Row]:
    """A fresh cluster that has done nothing."""
    found = {}
    with LocalCluster(1, 1, processes="separate") as cluster, LocalCluster(1, 1) as both:
        time.sleep(0.5)
        found["scheduler"] = cluster.scheduler_processes[0].pid
        found["node monitor"] = cluster.node_processes[0].pid
        found["scheduler and node monitor in one process"] = both.scheduler_processes[0].pid
        return [{"process": f"idle {name}", "RSS MB": rss_mb([pid])} for name, pid in found.items()]


def queued_tasks(cluster: LocalCluster) -> int:
    """Tasks at the scheduler that have not been placed."""
    return sum(job["unplaced"] for job in http_get_json(cluster.addresses[0], "/v1/jobs", 60.0)["jobs"])


def queue_tasks(cluster: LocalCluster, client: Client) -> None:
    """Fill all slots, and queue the tasks behind them."""
    tasks = QUEUED_TASKS + NODES
    payloads = list(sleep_job([SLEEP_S]).tasks) * JOB_TASKS
    for first in range(0, tasks, JOB_TASKS):
        client.submit_job(JobSpec(payloads[: tasks - first], app="sleep")).accepted(QUEUE_TIMEOUT_S)
    deadline_s = time.monotonic() + QUEUE_TIMEOUT_S
    while queued_tasks(cluster) < QUEUED_TASKS:
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"{queued_tasks(cluster)} tasks are queued after {QUEUE_TIMEOUT_S:g} s")
        time.sleep(0.25)


def loaded_rows() -> list[Row]:
    """A scheduler with many nodes, then with many tasks too."""
    node_options = ["--count", str(NODES // HOSTS), "--warm", "sleep"]
    limit = ["--unplaced-tasks-max", str(2 * QUEUED_TASKS)]
    with LocalCluster(1, HOSTS, slots=1, scheduler_options=limit, node_options=node_options) as cluster:
        cluster.wait_for_nodes(NODES, 60.0)
        scheduler = cluster.scheduler_processes[0].pid
        hosts = [process.pid for process in cluster.node_processes]
        name = f"with {NODES:,} node monitors"
        rows: list[Row] = [{"process": f"scheduler {name}", "RSS MB": rss_mb([scheduler])}]
        progress(f"{NODES} node monitors are connected; queueing {QUEUED_TASKS:,} tasks")
        with Client(cluster) as client:
            queue_tasks(cluster, client)
            rows += [
                {"process": f"scheduler {name} and {QUEUED_TASKS:,} queued tasks", "RSS MB": rss_mb([scheduler])},
                {"process": f"then, each of these {NODES:,} node monitors", "RSS MB": rss_mb(hosts) / NODES},
            ]
            for process in [*cluster.node_processes, *cluster.scheduler_processes]:
                process.kill()  # To cancel a million tasks one by one is not measured here.
    return rows


def measure(repeat: int) -> Report:
    """Both parts, `repeat` times."""
    repetitions = [[*idle_rows(), *loaded_rows()] for _ in range(repeat)]
    rows = median_rows(repetitions)
    return Report(
        "memory",
        rows[4]["RSS MB"],
        f"MB resident, scheduler with {NODES:,} node monitors and {QUEUED_TASKS:,} queued tasks",
        {"Resident sets": rows},
        repetitions,
        [f"Aim: {IDLE_AIM_MB} MB each when idle. Workers are not counted; {HOSTS} processes host the node monitors."],
    )


main = command("memory", measure, repeat=1, help="Resident sets of idle and of loaded daemons.")

if __name__ == "__main__":
    main()
