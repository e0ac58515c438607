"""Schedulers that die, stop and come back under a job: every outcome once, and started again only what must be."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from sparrow_py import CallStage, Client, Job, LocalCluster, ResultOf, TaskStatus
from sparrow_py.embedded.daemon_process import DaemonProcess
from tests.support import tasks
from tests.support.daemons import get_json, http, workers_of
from tests.support.waiting import TIMEOUT_S, wait_until

TASKS = 200


@pytest.fixture
def two_of_each(tmp_path: Path) -> Iterator[LocalCluster]:
    """Two schedulers and two node monitors of two slots, for a test that kills."""
    with LocalCluster(schedulers=2, node_monitors=2, slots=2, log_dir=tmp_path / "logs") as cluster:
        for process in cluster.node_processes:
            wait_until(lambda pid=process.pid: len(workers_of(pid)) >= 2)  # type: ignore[misc]
        yield cluster


def schedulers_with_jobs(cluster: LocalCluster) -> list[DaemonProcess]:
    processes = [process for process in cluster.scheduler_processes if process.process.poll() is None]
    return [process for process in processes if get_json(process.address, "/v1/jobs")["jobs"]]


def count_outcomes(job: Job) -> Counter[int]:
    """How often each task's end is told."""
    told: Counter[int] = Counter()

    def tell(future: Future[Any]) -> None:
        told.update([future.task])  # type: ignore[attr-defined]

    for future in job.futures:
        future.add_done_callback(tell)
    return told


def started(starts: Path) -> Counter[int]:
    return Counter(task for task, _ in tasks.read_starts(starts))


def test_a_scheduler_dies_in_the_middle_of_three_stages(two_of_each: LocalCluster, tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    with Client(two_of_each) as client:
        stages = [
            CallStage("first", tasks.record_start, [(starts, task, 0.005) for task in range(60)]),
            CallStage("second", tasks.record_start_after, [(starts, 60 + t, ResultOf("first", t)) for t in range(60)]),
            CallStage("third", tasks.record_start_after, [(starts, 120, ResultOf("second"))]),
        ]
        job = client.submit_stages(stages)
        told = count_outcomes(job)
        wait_until(lambda: len(tasks.read_starts(starts)) >= 80, "the second stage to have begun")
        (victim,) = schedulers_with_jobs(two_of_each)
        victim.kill()
        results = job.results(TIMEOUT_S)
        wait_until(lambda: told == Counter(range(121)))
    assert results == [*range(60), *range(60), list(range(60))]
    assert started(starts) == Counter(range(121)), "the node monitors held all that had been started"


@pytest.mark.rest
def test_a_scheduler_and_a_node_monitor_die_at_once(two_of_each: LocalCluster, tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    with Client(two_of_each) as client:
        job = client.submit_calls(tasks.record_start, [(starts, task, 0.005) for task in range(TASKS)])
        told = count_outcomes(job)
        wait_until(lambda: len(tasks.read_starts(starts)) >= 40)
        (scheduler,) = schedulers_with_jobs(two_of_each)
        node_monitor = two_of_each.node_processes[0]
        dead = workers_of(node_monitor.pid)
        scheduler.kill()  # On purpose, so that its cluster starts none in its place.
        node_monitor.kill()
        report = job.report(TIMEOUT_S)
        wait_until(lambda: told == Counter(range(TASKS)))
    assert report.count(TaskStatus.FINISHED) == TASKS
    pids: dict[int, list[int]] = {}
    for task, pid in tasks.read_starts(starts):
        pids.setdefault(task, []).append(pid)
    assert set(pids) == set(range(TASKS))
    for task, started_by in pids.items():
        assert len(started_by) <= report.tasks[task].attempts <= 3
        # The dead node monitor held outcomes that nobody has now, so those tasks run again; those of the other do not.
        alive = [pid for pid in started_by if pid not in dead]
        assert len(alive) <= 1, f"task {task} was started twice on the node that lives"


def test_a_scheduler_that_was_cut_off_and_replaced_starts_nothing_more(
    two_of_each: LocalCluster, tmp_path: Path
) -> None:
    """It stands still with asks for tasks in its sockets, and answers them when it goes on: too late. And says so."""
    starts = tmp_path / "starts"
    with Client(two_of_each, heartbeat_s=1.0) as client:
        job = client.submit_calls(tasks.record_start, [(starts, task, 0.02) for task in range(TASKS)])
        told = count_outcomes(job)
        wait_until(lambda: len(tasks.read_starts(starts)) >= 20)
        (stopped,) = schedulers_with_jobs(two_of_each)
        (other,) = (process for process in two_of_each.scheduler_processes if process is not stopped)
        os.kill(stopped.pid, signal.SIGSTOP)
        try:
            wait_until(lambda: get_json(other.address, "/v1/jobs")["jobs"] != [], "the client to move its job")
        finally:
            os.kill(stopped.pid, signal.SIGCONT)
        assert job.results(TIMEOUT_S) == list(range(TASKS))
        wait_until(lambda: told == Counter(range(TASKS)))
        wait_until(lambda: schedulers_with_jobs(two_of_each) == [], "the fenced scheduler to give the job up")
        # It says so: to who asks for the job, in its metrics, and in its log.
        status, told = http(stopped.address, f"/v1/jobs/{job.job_id}")
        assert status == 404
        assert "another scheduler has taken it over, with epoch 1" in told
        assert "\nsparrow_scheduler_jobs_fenced_total 1.0\n" in http(stopped.address, "/metrics")[1]
        logs = [log.read_text() for log in (tmp_path / "logs").iterdir()]
        said = f"job {job.job_id} is another scheduler's now (epoch 1): nothing more of it is started here"
        assert sum(said in log for log in logs) == 1
        assert started(starts) == Counter(range(TASKS))
        assert list(client.map(tasks.square, range(50))) == [number * number for number in range(50)]
