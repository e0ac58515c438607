"""A scheduler in its frontend's own process (Sparrow §6.1): without a socket between, and otherwise like any other."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparrow_py import AsyncClient, Client, ClusterError, SchedulerHere, TaskStatus
from tests.support import tasks
from tests.support.daemons import Daemon, get_json, node_of, wait_for_nodes
from tests.support.waiting import TIMEOUT_S, wait_until


def test_calls_cancellation_and_large_data(tmp_path: Path, gate: Path) -> None:
    here = SchedulerHere()
    with Client(here) as client, node_of(here.address, tmp_path / "node.log"):
        assert list(client.map(tasks.square, range(2000))) == [x * x for x in range(2000)]
        assert client.submit(len, bytes(3 << 20)).result(TIMEOUT_S) == 3 << 20
        job = client.submit_calls(tasks.hold, [(gate, f"m{number}") for number in range(4)])
        wait_until(lambda: tasks.started(gate, "m0", "m1"))
        job.cancel()
        wait_until(lambda: sum(future.cancelled() for future in job.futures) == 2)
        gate.touch()
        report = job.report(TIMEOUT_S)
        assert (report.count(TaskStatus.FINISHED), report.count(TaskStatus.CANCELLED)) == (2, 2)


def test_other_clients_may_use_it(tmp_path: Path) -> None:
    here = SchedulerHere()
    with Client(here) as client, node_of(here.address, tmp_path / "node.log"), Client(here.address) as other:
        futures = [client.submit(tasks.square, 3), other.submit(tasks.square, 4)]
        assert [future.result(TIMEOUT_S) for future in futures] == [9, 16]


def test_work_waits_for_node_monitors(tmp_path: Path) -> None:
    here = SchedulerHere()
    with Client(here) as client:
        future = client.submit(tasks.square, 5)
        with node_of(here.address, tmp_path / "node.log"):
            assert future.result(TIMEOUT_S) == 25


async def test_in_an_event_loop_of_ones_own(tmp_path: Path) -> None:
    here = SchedulerHere()
    flags = ("--slots", "2", "--node-id", "node")
    async with AsyncClient(here) as client:
        with Daemon("node_monitor", "--scheduler", here.address, *flags, log=tmp_path / "node.log"):
            assert await client.submit(tasks.square, 6) == 36


@pytest.mark.rest
def test_what_ran_ends_with_the_client(tmp_path: Path, gate: Path) -> None:
    """A scheduler's death is that of its client here: nobody is left to be told."""
    here = SchedulerHere()
    with Daemon("scheduler", log=tmp_path / "scheduler.log") as elsewhere, Client(here) as client:
        both = f"{here.address},{elsewhere.address}"
        flags = ("--scheduler", both, "--slots", "2", "--node-id", "node")
        with Daemon("node_monitor", *flags, log=tmp_path / "node.log"):
            wait_for_nodes(here.address, "node")
            wait_for_nodes(elsewhere.address, "node")
            future = client.submit(tasks.hold, gate, "mark")
            wait_until(lambda: tasks.started(gate, "mark"))
            client.close()
            assert future.done()
            gate.touch()
            with Client(elsewhere.address) as other:
                assert other.submit(tasks.square, 7).result(TIMEOUT_S) == 49
            assert get_json(elsewhere.address, "/v1/jobs")["jobs"] == []


def test_what_cannot_be_is_said(tmp_path: Path) -> None:
    here = SchedulerHere()
    with Client(here):
        with pytest.raises(ClusterError, match="for one client"):
            Client(here)
        port = int(here.address.rpartition(":")[2])
        with pytest.raises(ClusterError, match=f"cannot listen on .*{port}"):
            Client(SchedulerHere(port))
    with pytest.raises(ClusterError, match="No such option"):
        Client(SchedulerHere(flags=["--colour", "blue"]))
