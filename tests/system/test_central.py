"""A central scheduler with real node monitors: it fills all slots and no more, and a node that dies costs no task."""

from __future__ import annotations

import re
from pathlib import Path

from sparrow_py import Client, LocalCluster, TaskStatus
from tests.support import tasks
from tests.support.daemons import http
from tests.support.waiting import TIMEOUT_S, wait_until


def metric(address: str, name: str) -> int:
    (value,) = re.findall(rf"^sparrow_scheduler_{name} ([0-9.e+]+)$", http(address, "/metrics")[1], re.M)
    return int(float(value))


def test_tasks_beyond_the_slots_wait_at_the_scheduler_and_a_node_that_dies_costs_none(gate: Path) -> None:
    marks = [f"task{number}" for number in range(10)]
    with (
        LocalCluster(1, 2, slots=2, scheduler_options=["--placement", "central"]) as cluster,
        Client(cluster.addresses) as client,
    ):
        job = client.submit_calls(tasks.hold, [(gate, mark) for mark in marks])
        wait_until(lambda: tasks.started(gate, *marks[:4]), "the first four tasks to run")
        (address,) = cluster.addresses
        assert (metric(address, "launched_total"), metric(address, "unplaced_tasks")) == (4, 6)
        cluster.node_processes[0].kill()
        wait_until(lambda: metric(address, "attempts_lost_total") == 2, "the scheduler to know of the loss")
        gate.touch()
        report = job.report(TIMEOUT_S)
        assert report.count(TaskStatus.FINISHED) == 10 and job.results() == marks
        assert sorted(task.attempts for task in report.tasks) == [1] * 8 + [2] * 2
        assert metric(address, "asks_total") == 0
