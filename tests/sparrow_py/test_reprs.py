"""What is shown of clients, jobs and reports in a prompt or a log is one line, and has no secret."""

from pathlib import Path

import pytest

from sparrow_py import AsyncClient, Client, JobReport, LocalCluster, SchedulerHere, SparrowExecutor, TaskReport
from sparrow_py.job import TaskStatus
from sparrow_py.session.session import Session
from tests.support import tasks
from tests.support.waiting import TIMEOUT_S

SECRET = "s" * 40
OK = TaskReport(0, TaskStatus.FINISHED, 1, "n1", "", 100.0, 100.1, 100.2, 100.5, 0.3)
LOST = TaskReport(1, TaskStatus.LOST, 3, "", "its node\nwas lost", 100.0, None, None, None, None, stdout="x\n" * 9999)


def test_a_client_and_its_jobs(cluster: LocalCluster, gate: Path) -> None:
    with Client(cluster, user="ann", token=SECRET) as client:
        assert repr(client) == f"<Client of {cluster.dialled[0]}, user 'ann', jobs: 0>"
        job = client.submit_calls(tasks.hold, [(gate,), (gate.parent,)], name="held")
        job.futures[1].result(TIMEOUT_S)
        assert repr(job) == f"<Job {job.job_id} 'held', 1 of 2 tasks done>"
        assert repr(client) == f"<Client of {cluster.dialled[0]}, user 'ann', jobs: 1>"
        job.cancel(running=True)
    assert repr(client) == f"<Client of {cluster.dialled[0]}, user 'ann', closed>"


async def test_the_same_for_asyncio(cluster: LocalCluster) -> None:
    client = AsyncClient(cluster, user="ann", token=SECRET)
    assert repr(client) == "<AsyncClient, new>"
    async with client:
        job = client.submit_calls(tasks.square, [(1,), (2,)], name="squares")
        assert repr(job) == f"<AsyncJob {job.job_id} 'squares', 0 of 2 tasks done>"
        assert repr(client) == f"<AsyncClient of {cluster.dialled[0]}, user 'ann', jobs: 1>"
        await job.results()
        assert repr(job) == f"<AsyncJob {job.job_id} 'squares', 2 of 2 tasks done>"
    assert repr(client) == "<AsyncClient, closed>"


def test_an_executor(cluster: LocalCluster) -> None:
    with SparrowExecutor(cluster, user="ann") as executor:
        assert repr(executor) == f"<SparrowExecutor of {cluster.dialled[0]}, user 'ann', jobs: 0>"


def test_a_client_of_a_scheduler_here_and_one_of_many() -> None:
    with Client(SchedulerHere(), user="ann") as client:
        assert repr(client) == "<Client of a scheduler here, user 'ann', jobs: 0>"
    many = Session([f"10.0.0.{number}:1" for number in range(1, 9)], user="ann")
    assert str(many) == "10.0.0.1:1, 10.0.0.2:1, 10.0.0.3:1 and 5 more, user 'ann'"


def test_a_cluster(cluster: LocalCluster) -> None:
    assert repr(cluster) == f"<LocalCluster {cluster.addresses[0]}, in processes>"
    with LocalCluster(in_process=True, slots=1) as here:
        assert repr(here) == f"<LocalCluster {here.addresses[0]}, in this process>"
    assert repr(here) == f"<LocalCluster {here.addresses[0]}, in this process, stopped>"


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (OK, "<TaskReport of task 0, finished on n1 after 0.300 s, attempts: 1>"),
        (LOST, "<TaskReport of task 1, lost, attempts: 3, error: 'its node\\nwas lost'>"),
        (
            JobReport("j", [OK] * 1000 + [LOST]),
            "<JobReport of job j, tasks: 1000 finished, 1 lost; response 0.500 s>",
        ),
        (JobReport("j", [LOST]), "<JobReport of job j, tasks: 1 lost>"),
        (JobReport("j"), "<JobReport of job j, tasks: none>"),
    ],
)
def test_reports(shown: object, text: str) -> None:
    assert repr(shown) == text
