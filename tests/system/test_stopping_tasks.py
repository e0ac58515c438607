"""Tasks that are ended while they run: by their time-out, or cancelled; and nodes that are cordoned and drained."""

from __future__ import annotations

import os
from collections import Counter
from concurrent.futures import wait
from pathlib import Path

import pytest

from frontends.command.tasks import CommandTask, command_job
from sparrow_py import Client, LocalCluster, TaskCancelled, TaskFailed, TaskStatus
from tests.support import tasks
from tests.support.daemons import gone, nodes_of, post, workers_of
from tests.support.suites import rest_after
from tests.support.waiting import TIMEOUT_S, wait_until


def test_a_call_that_runs_too_long_is_stopped_and_its_worker_replaced(gate: Path) -> None:
    with LocalCluster(slots=1) as cluster, Client(cluster) as client:
        worker = client.submit(os.getpid).result(TIMEOUT_S)
        with pytest.raises(TaskFailed, match=r"ran for longer than task_timeout_s = 0.2 s"):
            client.with_options(task_timeout_s=0.2).submit(tasks.hold, gate).result(TIMEOUT_S)
        wait_until(lambda: gone(worker))
        assert client.submit(tasks.square, 3).result(TIMEOUT_S) == 9


def test_a_call_in_time_is_not_stopped() -> None:
    with LocalCluster(slots=1) as cluster, Client(cluster) as client:
        quick = client.with_options(task_timeout_s=30.0)
        assert list(quick.map(tasks.square, range(20))) == [number * number for number in range(20)]


def test_a_running_call_is_cancelled_by_ending_its_worker(gate: Path) -> None:
    with LocalCluster(slots=2) as cluster, Client(cluster) as client:
        futures = [client.submit(tasks.hold, gate, mark) for mark in ("goes", "stays")]
        wait_until(lambda: tasks.started(gate, "goes", "stays"))
        before = workers_of(cluster.node_processes[0].pid)
        client.cancel(futures[0])
        assert not futures[0].done(), "without running=True what runs goes on"
        client.cancel(futures[0], running=True)
        with pytest.raises(TaskCancelled, match="while it ran"):
            futures[0].result(TIMEOUT_S)
        gate.touch()
        assert futures[1].result(TIMEOUT_S) == "stays"
        wait_until(lambda: len(before - workers_of(cluster.node_processes[0].pid)) == 1)
        assert client.submit(tasks.square, 3).result(TIMEOUT_S) == 9


def test_a_whole_job_is_stopped(gate: Path) -> None:
    with LocalCluster(slots=2) as cluster, Client(cluster) as client:
        job = client.submit_calls(tasks.hold, [(gate, f"m{number}") for number in range(6)])
        wait_until(lambda: tasks.started(gate, "m0", "m1"))
        job.cancel(running=True)
        assert job.report(TIMEOUT_S).count(TaskStatus.CANCELLED) == 6
        assert client.submit(tasks.square, 3).result(TIMEOUT_S) == 9


@pytest.mark.parametrize("how", ["time-out", "cancelled"])
def test_a_command_is_stopped_with_all_that_it_started(tmp_path: Path, how: str) -> None:
    mark = tmp_path / "mark"
    script = f"sleep 600 & echo $! > {mark}; wait"
    with LocalCluster(slots=1, enable_command=True) as cluster, Client(cluster) as client:
        options = {"task_timeout_s": 0.5} if how == "time-out" else {}
        job = client.submit_job(command_job([CommandTask(["sh", "-c", script])], **options))
        wait_until(lambda: mark.exists() and mark.read_text().strip() != "")
        child = int(mark.read_text())
        if how == "cancelled":
            job.cancel(running=True)
        (task,) = job.report(TIMEOUT_S).tasks
        assert task.status is (TaskStatus.FAILED if how == "time-out" else TaskStatus.CANCELLED)
        wait_until(lambda: gone(child))


def test_a_cordoned_node_gets_no_more_and_an_uncordoned_one_does(gate: Path) -> None:
    with LocalCluster(node_monitors=2, slots=1) as cluster, Client(cluster) as client:
        node = cluster.node_processes[0].address
        assert post(node, "/v1/nodes/state", {"state": "cordoned"})[0] == 200
        wait_until(lambda: nodes_of(cluster.addresses[0])["node-0"]["state"] == "cordoned")
        job = client.submit_calls(tasks.square, [(number,) for number in range(40)])
        assert {task.node for task in job.report(TIMEOUT_S).tasks} == {"node-1"}
        assert post(node, "/v1/nodes/state", {"state": "ready"})[0] == 200
        wait_until(lambda: nodes_of(cluster.addresses[0])["node-0"]["state"] == "ready")
        held = client.submit_calls(tasks.hold, [(gate, mark) for mark in ("a", "b")])
        wait_until(lambda: tasks.started(gate, "a", "b"), "both nodes to run a task")
        gate.touch()
        held.results(TIMEOUT_S)


@pytest.mark.parametrize(
    ("by", "prefetch"), rest_after(1, ["SIGTERM", 8], ["SIGTERM", 0], ["command", 0], ["command", 8])
)
def test_draining_a_node_under_load_loses_and_repeats_nothing(tmp_path: Path, by: str, prefetch: int) -> None:
    starts = tmp_path / "starts"
    with LocalCluster(node_monitors=2, slots=2, log_dir=tmp_path / "logs") as cluster, Client(cluster) as client:
        arguments = [(starts, task, 0.005) for task in range(200)]
        job = client.with_options(prefetch=prefetch).submit_calls(tasks.record_start, arguments)
        wait_until(lambda: len(tasks.read_starts(starts)) >= 40)
        leaving = cluster.node_processes[0]
        if by == "SIGTERM":
            leaving.process.terminate()
        else:
            assert post(leaving.address, "/v1/nodes/state", {"state": "draining"})[0] == 200
        report = job.report(TIMEOUT_S)
        assert report.count(TaskStatus.FINISHED) == 200
        assert Counter(task for task, _ in tasks.read_starts(starts)) == Counter(range(200))
        assert all(task.attempts == 1 for task in report.tasks)
        if by == "SIGTERM":
            assert leaving.process.wait(TIMEOUT_S) == 0
        else:
            assert nodes_of(cluster.addresses[0])["node-0"]["state"] == "draining"


@pytest.mark.parametrize("report_placed", [False, True])
@pytest.mark.parametrize("asked_before", [False, True])
def test_a_task_that_was_stopped_is_cancelled_whatever_was_known_of_it(
    client: Client, gate: Path, report_placed: bool, asked_before: bool
) -> None:
    """Known to run, from the scheduler or as an answer, or not."""
    future = client.with_options(report_placed=report_placed).submit(tasks.hold, gate, "held")
    wait_until(lambda: tasks.started(gate, "held"))
    if asked_before:
        client.cancel(future)
    called: list[bool] = []
    future.add_done_callback(lambda future: called.append(future.cancelled()))
    client.cancel(future, running=True)
    assert not wait([future], TIMEOUT_S).not_done
    assert future.cancelled()
    assert not future.running()
    with pytest.raises(TaskCancelled, match="while it ran"):
        future.result()
    wait_until(lambda: called == [True])
