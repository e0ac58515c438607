"""Scheduler and node monitor in one process, as an embedded cluster has them by default: what holds for daemons that
are apart holds here, too, and their common end is survived."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path

import pytest

from frontends.synthetic.tasks import noop_job
from sparrow_py import Client, InvalidRequest, LocalCluster, TaskCancelled, TaskStatus
from tests.support import tasks
from tests.support.daemons import gone, http, nodes_of, post, workers_of
from tests.support.waiting import TIMEOUT_S, wait_until

ARRANGEMENTS = pytest.mark.parametrize("processes", ["one", pytest.param("separate", marks=pytest.mark.rest)])


@pytest.mark.parametrize(
    ("fields", "allowed"),
    [
        ({"processes": "two"}, "'one', 'separate' or None"),
        ({"processes": "one", "schedulers": 2}, "'separate' or None where there are several"),
        ({"processes": "one", "node_monitors": 2}, "'separate' or None where there are several"),
        ({"processes": "separate", "in_process": True}, "None with in_process"),
    ],
)
def test_an_arrangement_that_cannot_be_is_named(fields: dict[str, object], allowed: str) -> None:
    with pytest.raises(InvalidRequest, match=f"^processes: .*{allowed}"):
        LocalCluster(**fields)  # type: ignore[arg-type]


@pytest.mark.real_starts
def test_both_answer_over_http_at_their_own_ports() -> None:
    with LocalCluster(slots=1) as cluster:
        (scheduler,), (node,) = cluster.scheduler_processes, cluster.node_processes
        assert scheduler.pid == node.pid
        assert scheduler.address == cluster.addresses[0] != node.address
        assert "sparrow_scheduler" in http(scheduler.address, "/metrics")[1]
        assert "sparrow_node" in http(node.address, "/metrics")[1]
        assert [http(daemon.address, "/readyz")[0] for daemon in (scheduler, node)] == [200, 200]
        assert nodes_of(scheduler.address)["node-0"]["address"] == node.address


@ARRANGEMENTS
def test_each_task_has_one_outcome_and_one_start(processes: str, tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    with LocalCluster(slots=2, processes=processes) as cluster, Client(cluster) as client:
        jobs = [
            client.with_options(prefetch=prefetch).submit_calls(
                tasks.record_start, [(starts, task, 0.0) for task in range(first, first + 50)]
            )
            for first, prefetch in ((0, 0), (50, 4))
        ]
        for job in jobs:
            report = job.report(TIMEOUT_S)
            assert report.count(TaskStatus.FINISHED) == 50
            assert {task.attempts for task in report.tasks} == {1}
        assert max(Counter(task for task, _ in tasks.read_starts(starts)).values()) == 1


@pytest.mark.rest
def test_tasks_that_take_no_time_leave_others_their_turn(gate: Path) -> None:
    """They are started, reported and followed by others within the process, without a turn of its loop."""
    with LocalCluster(slots=1) as cluster, Client(cluster) as client, Client(cluster) as other:
        job = client.submit_job(noop_job(20_000))
        assert other.submit(tasks.square, 3).result(TIMEOUT_S) == 9
        assert job.report(TIMEOUT_S).count(TaskStatus.FINISHED) == 20_000


@ARRANGEMENTS
def test_what_runs_can_be_stopped_and_its_node_cordoned(processes: str, gate: Path) -> None:
    with LocalCluster(slots=1, processes=processes) as cluster, Client(cluster) as client:
        (node,) = cluster.node_processes
        held = client.submit(tasks.hold, gate, "held")
        wait_until(lambda: tasks.started(gate, "held"))
        before = workers_of(node.pid)
        client.cancel(held, running=True)
        with pytest.raises(TaskCancelled, match="while it ran"):
            held.result(TIMEOUT_S)
        wait_until(lambda: before - workers_of(node.pid))
        assert post(node.address, "/v1/nodes/state", {"state": "cordoned"})[0] == 200
        wait_until(lambda: nodes_of(cluster.addresses[0])["node-0"]["state"] == "cordoned")
        waits = client.submit(tasks.square, 5)
        assert post(node.address, "/v1/nodes/state", {"state": "ready"})[0] == 200
        assert waits.result(TIMEOUT_S) == 25


def test_what_it_was_given_is_done_before_it_ends_when_it_is_told_to(gate: Path) -> None:
    with LocalCluster(slots=1) as cluster, Client(cluster) as client:
        (process,) = cluster.scheduler_processes
        workers = workers_of(process.pid)
        job = client.submit_calls(tasks.hold, [(gate, "first"), (gate, "second")])
        wait_until(lambda: tasks.started(gate, "first"))
        process.process.send_signal(signal.SIGTERM)
        wait_until(lambda: http(process.address, "/readyz")[0] == 503)
        gate.touch()
        assert job.results(TIMEOUT_S) == ["first", "second"]
        assert [task.attempts for task in job.report().tasks] == [1, 1]
        assert process.process.wait(TIMEOUT_S) == 0
        wait_until(lambda: all(gone(worker) for worker in workers))


@pytest.mark.parametrize("max_attempts", [1, 3])
def test_its_death_costs_what_ran_a_start(max_attempts: int, gate: Path) -> None:
    with LocalCluster(slots=1) as cluster, Client(cluster) as client:
        (process,) = cluster.scheduler_processes
        job = client.with_options(max_attempts=max_attempts).submit_calls(tasks.hold, [(gate, "runs"), (gate, "waits")])
        wait_until(lambda: tasks.started(gate, "runs"))
        workers = workers_of(process.pid)
        os.kill(process.pid, signal.SIGKILL)
        wait_until(lambda: all(gone(worker) for worker in workers), "its workers to end with it")
        gate.touch()
        ran, waited = job.report(TIMEOUT_S).tasks
        if max_attempts == 1:  # Nobody is left who knows what had started.
            assert (ran.status, ran.attempts) == (TaskStatus.LOST, 1)
            assert waited.status in (TaskStatus.LOST, TaskStatus.FINISHED)
            assert not tasks.started(gate, "waits") or waited.status is TaskStatus.FINISHED
        else:
            assert [task.status for task in (ran, waited)] == [TaskStatus.FINISHED] * 2
        assert client.submit(tasks.square, 3).result(TIMEOUT_S) == 9


@pytest.mark.rest
def test_a_node_monitor_that_is_added_works_beside_it_and_survives_it(gate: Path) -> None:
    with LocalCluster(slots=1) as cluster, Client(cluster) as client:
        added = cluster.add_node_monitor()
        cluster.wait_for_nodes(2, TIMEOUT_S)
        assert [node.id for node in cluster.nodes()] == ["node-0", "node-1"]
        job = client.submit_calls(tasks.hold, [(gate, "a"), (gate, "b")])
        wait_until(lambda: tasks.started(gate, "a", "b"))
        os.kill(cluster.scheduler_processes[0].pid, signal.SIGKILL)
        gate.touch()
        assert job.results(TIMEOUT_S) == ["a", "b"]
        assert added in cluster.node_processes
        cluster.wait_for_nodes(2, TIMEOUT_S)


def test_a_process_that_stood_still_goes_on_with_what_ran(gate: Path) -> None:
    """Its clients have given it up meanwhile; its node monitor has not."""
    beat = ["--heartbeat-s", "0.2"]
    with (
        LocalCluster(slots=1, scheduler_options=beat, node_options=beat) as cluster,
        Client(cluster, heartbeat_s=0.2) as client,
    ):
        pid = cluster.scheduler_processes[0].pid
        job = client.submit_calls(tasks.hold, [(gate, "held")])
        wait_until(lambda: tasks.started(gate, "held"))
        os.kill(pid, signal.SIGSTOP)
        try:
            wait_until(lambda: not client._session._links, "the client to give it up")
        finally:
            os.kill(pid, signal.SIGCONT)
        gate.touch()
        assert job.results(TIMEOUT_S) == ["held"]
        assert [task.attempts for task in job.report().tasks] == [1]
