"""More than the cluster can do, in small: what is refused, what is bounded, who is served, and that it ends.

`python -m benchmarks.overload` measures it. Here no clock is asked: tasks are held at gates, so the cluster is full
for as long as a test wants.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from frontends.synthetic.tasks import noop_job, sleep_job
from sparrow_py import Client, Job, LocalCluster, Refused, TaskStatus
from tests.support import tasks
from tests.support.daemons import get_json, http
from tests.support.waiting import TIMEOUT_S, wait_until

NODES = 2
SLOTS = 2
UNPLACED_MAX = 30
RESERVATIONS_MAX = 8
"""Of a user, at a node: far fewer than two for each unplaced task."""
JOB_TASKS = 5
OVERLOAD = 10


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """Four slots, and limits that are soon reached."""
    with LocalCluster(
        node_monitors=NODES,
        slots=SLOTS,
        scheduler_options=["--unplaced-tasks-max", str(UNPLACED_MAX)],
        node_options=["--reservations-per-user-max", str(RESERVATIONS_MAX)],
        log_dir=tmp_path / "logs",
    ) as cluster:
        yield cluster


def gauge(address: str, name: str) -> float:
    found = re.search(rf"^{name} (\S+)$", http(address, "/metrics")[1], re.M)
    assert found is not None, name
    return float(found[1])


def reservations(cluster: LocalCluster) -> list[dict[str, int]]:
    """By user, at each node."""
    return [get_json(process.address, "/v1/nodes")["nodes"][0]["queued_by_user"] for process in cluster.node_processes]


def check_bounds(cluster: LocalCluster, *, users: int) -> None:
    """No queue is longer than it may be."""
    assert gauge(cluster.addresses[0], "sparrow_scheduler_unplaced_tasks") <= users * UNPLACED_MAX
    assert all(count <= RESERVATIONS_MAX for queued in reservations(cluster) for count in queued.values())


def check_empty(cluster: LocalCluster) -> None:
    """It is over, and nothing is left of it."""
    address = cluster.addresses[0]
    wait_until(lambda: gauge(address, "sparrow_scheduler_jobs") == 0, "all jobs to end")
    assert gauge(address, "sparrow_scheduler_unplaced_tasks") == 0
    wait_until(lambda: reservations(cluster) == [{}] * NODES, "queues to drain")


def occupy(client: Client, gate: Path) -> Job:
    """Hold all slots until the gate opens."""
    marks = [f"slot{number}" for number in range(NODES * SLOTS)]
    job = client.submit_calls(tasks.hold, [(gate, mark) for mark in marks])
    wait_until(lambda: tasks.started(gate, *marks), "every slot to be held")
    return job


def test_what_is_beyond_the_limits_is_refused_with_a_time(cluster: LocalCluster, gate: Path) -> None:
    """Ten times what may wait is offered at once, by one who takes no for an answer."""
    with Client(cluster, user="mallory", submit_timeout_s=0) as client:
        held = occupy(client, gate)
        offered = [client.submit_job(noop_job(JOB_TASKS)) for _ in range(OVERLOAD * UNPLACED_MAX // JOB_TASKS)]
        accepted, refused = [], []
        for job in offered:
            try:
                job.accepted(TIMEOUT_S)
            except Refused as refusal:
                refused.append(refusal)
            else:
                accepted.append(job)
            check_bounds(cluster, users=1)
        assert len(accepted) == UNPLACED_MAX // JOB_TASKS, "not one too many, and not one too few"
        assert len(accepted) + len(refused) == len(offered)
        assert all(refusal.retry_after_s is not None and refusal.retry_after_s > 0 for refusal in refused)
        assert all("unplaced_tasks_max" in refusal.reason for refusal in refused)
        assert gauge(cluster.addresses[0], "sparrow_scheduler_jobs_refused_total") == len(refused)
        gate.touch()
        for job in [held, *accepted]:
            assert job.report(TIMEOUT_S).count(TaskStatus.FINISHED) == len(job)
        check_empty(cluster)
        client.submit_job(noop_job(UNPLACED_MAX)).accepted(TIMEOUT_S)


@pytest.mark.rest
def test_a_client_offers_what_was_refused_again_by_itself(cluster: LocalCluster) -> None:
    """Ten times what may wait, of one who has time: all of it is done, and nobody but the library notices."""
    with Client(cluster, user="ada", submit_timeout_s=TIMEOUT_S) as client:
        jobs = [client.submit_job(sleep_job([0.002] * JOB_TASKS)) for _ in range(OVERLOAD * UNPLACED_MAX // JOB_TASKS)]
        while not all(future.done() for job in jobs for future in job.futures):
            check_bounds(cluster, users=1)
        assert all(job.report().count(TaskStatus.FINISHED) == JOB_TASKS for job in jobs)
        assert gauge(cluster.addresses[0], "sparrow_scheduler_jobs_refused_total") > 0, "there was an overload"
        check_empty(cluster)


@pytest.mark.rest
def test_users_within_their_share_are_served_while_another_is_beyond_its_own(cluster: LocalCluster) -> None:
    """Mallory's queue is always full; that of Ada and Grace is theirs, so nothing of theirs is refused or waits for it.

    Mallory's tasks are many and long enough that whoever waited for all of them would not be done before them.
    """
    with (
        Client(cluster, user="mallory", submit_timeout_s=0) as greedy,
        Client(cluster, user="ada", submit_timeout_s=0) as ada,
        Client(cluster, user="grace", submit_timeout_s=0) as grace,
    ):
        long = [greedy.submit_job(sleep_job([1.0] * JOB_TASKS)) for _ in range(OVERLOAD * UNPLACED_MAX // JOB_TASKS)]
        wait_until(lambda: all(job._decided.is_set() for job in long), "answers to all that Mallory offers")
        for _ in range(2):
            short = [polite.submit_job(sleep_job([0.005, 0.005])) for polite in (ada, grace)]
            check_bounds(cluster, users=3)
            assert [job.report(TIMEOUT_S).count(TaskStatus.FINISHED) for job in short] == [2, 2]
            check_bounds(cluster, users=3)
        unplaced = gauge(cluster.addresses[0], "sparrow_scheduler_unplaced_tasks")
        assert unplaced > 0, "Mallory's tasks still wait, though they were first"
        for job in long:
            job.cancel(running=True)
        wait_until(lambda: all(job.wait(0) for job in long), "the outcomes of what was cancelled")
        check_empty(cluster)
