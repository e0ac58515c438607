"""Node monitors and schedulers come and go while jobs run."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from sparrow_py import Client, JobSpec, LocalCluster, TaskStatus
from sparrow_py.wire import messages as m
from sparrow_py.wire import resolution
from sparrow_py.wire.dialling import Dialling
from tests.support import tasks
from tests.support.daemons import Daemon, wait_for_nodes
from tests.support.waiting import TIMEOUT_S, wait_until


@pytest.fixture
def scheduler(tmp_path: Path) -> Iterator[Daemon]:
    with Daemon("scheduler", log=tmp_path / "scheduler.log") as daemon:
        yield daemon


def test_node_monitors_come_and_go_while_a_job_runs(tmp_path: Path, scheduler: Daemon, gate: Path) -> None:
    starts = tmp_path / "starts"

    def node(name: str) -> Daemon:
        flags = ["--scheduler", scheduler.address, "--node-id", name, "--slots", "2"]
        return Daemon("node_monitor", *flags, log=tmp_path / f"{name}.log")

    with Client(scheduler.address) as client, node("first") as first:
        wait_for_nodes(scheduler.address, "first")
        # The first tasks are short, all others wait for the gate: the job lasts until the second node runs some.
        job = client.submit_calls(
            tasks.record_start, [(starts, task, 0.02, None if task < 10 else gate) for task in range(120)]
        )
        wait_until(lambda: len(tasks.read_starts(starts)) == 12, "the first node to hold two tasks")
        with node("second") as second:
            wait_for_nodes(scheduler.address, "first", "second")
            wait_until(lambda: len(tasks.read_starts(starts)) == 14, "the second node to hold two more")
            gate.touch()
            first.process.terminate()
            assert first.wait() == 0
            wait_for_nodes(scheduler.address, "second")
            report = job.report(TIMEOUT_S)
            assert second.process.poll() is None
    assert report.count(TaskStatus.FINISHED) == 120
    assert {task.node for task in report.tasks} == {"first", "second"}
    assert sorted(task for task, _ in tasks.read_starts(starts)) == list(range(120)), "each started once"


def test_a_job_waits_for_the_next_node_monitor(tmp_path: Path, scheduler: Daemon) -> None:
    def node(name: str) -> Daemon:
        flags = ["--scheduler", scheduler.address, "--node-id", name, "--slots", "1"]
        return Daemon("node_monitor", *flags, log=tmp_path / f"{name}.log")

    with Client(scheduler.address) as client:
        with node("a") as a:
            wait_for_nodes(scheduler.address, "a")
            job = client.submit_calls(tasks.hold, [(tmp_path / "gate", f"m{number}") for number in range(3)])
            wait_until(lambda: tasks.started(tmp_path / "gate", "m0"))
            a.kill()
            wait_for_nodes(scheduler.address)
        (tmp_path / "gate").touch()
        with node("b"):
            assert job.results(TIMEOUT_S) == ["m0", "m1", "m2"]
    assert [task.attempts for task in job.report().tasks] == [2, 1, 1]


def test_node_monitors_and_clients_dial_again_when_a_scheduler_restarts(tmp_path: Path) -> None:
    log = tmp_path / "scheduler.log"
    with Daemon("scheduler", log=log) as scheduler:
        flags = ["--scheduler", scheduler.address, "--node-id", "n", "--slots", "1"]
        with Daemon("node_monitor", *flags, log=tmp_path / "n.log"), Client(scheduler.address) as client:
            wait_for_nodes(scheduler.address, "n")
            assert client.submit(tasks.square, 2).result(TIMEOUT_S) == 4
            scheduler.kill()
            with Daemon("scheduler", port=scheduler.port, log=log) as again:
                assert again.address == scheduler.address
                wait_for_nodes(again.address, "n")
                assert client.submit(tasks.square, 3).result(TIMEOUT_S) == 9


class Peer:
    """Counts links that come and go."""

    def __init__(self) -> None:
        self.up: list[str] = []
        self.down: list[str] = []

    def scheduler_up(self, scheduler: str, welcome: m.Welcome) -> None:
        self.up.append(scheduler)

    def scheduler_said(self, scheduler: str, batch: list[Any]) -> None:
        pass

    def scheduler_down(self, scheduler: str, reason: str) -> None:
        self.down.append(scheduler)


async def until(condition: Any) -> None:
    import asyncio

    async with asyncio.timeout(TIMEOUT_S):
        while not condition():
            await asyncio.sleep(0.005)


async def test_schedulers_in_a_file_that_is_read_again(
    cluster: LocalCluster, tmp_path: Path, scheduler: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resolution, "REFRESH_S", 0.01)
    path = tmp_path / "schedulers"
    peer = Peer()

    def write(text: str) -> None:  # In one step: a file that is half written names fewer schedulers.
        path.with_suffix(".new").write_text(text)
        path.with_suffix(".new").rename(path)

    async with aiohttp.ClientSession() as session:
        hello = m.Hello(m.PROTOCOL_VERSION, "client", "", "ann", "")
        dialling = Dialling([f"file:{path}"], hello, m.FrameDecoder(m.ToClient), peer, session, heartbeat_s=10.0)
        dialling.start()
        await until(lambda: "cannot be read" in dialling.last_error)
        write(f"{cluster.addresses[0]}\n")
        await until(lambda: len(peer.up) == 1)
        write(f"{cluster.addresses[0]}\n{scheduler.address}\n")
        await until(lambda: len(peer.up) == 2)
        assert peer.down == []
        write("what is this\n")
        await until(lambda: "what is this" in dialling.last_error)
        assert len(dialling.links) == 2, "links stand while the file is wrong"
        write(f"{scheduler.address}\n")
        await until(lambda: len(peer.down) == 1)
        assert peer.down == [peer.up[0]]
        assert list(dialling.links) == [scheduler.announcement["name"]]
        await dialling.stop("the test is over")
    assert sorted(peer.down) == sorted(peer.up)


async def test_two_addresses_of_one_scheduler_make_one_link(scheduler: Daemon) -> None:
    peer = Peer()
    async with aiohttp.ClientSession() as session:
        sources = [scheduler.address, f"localhost:{scheduler.port}"]
        hello = m.Hello(m.PROTOCOL_VERSION, "client", "", "ann", "")
        dialling = Dialling(sources, hello, m.FrameDecoder(m.ToClient), peer, session, heartbeat_s=10.0)
        dialling.start()
        await until(lambda: len(dialling._scheduler_at) == 2)
        assert peer.up == [scheduler.announcement["name"]]
        assert peer.down == []
        await dialling.stop("the test is over")


@pytest.mark.rest
def test_nodes_of_any_number_of_schedulers(tmp_path: Path, scheduler: Daemon) -> None:
    with Daemon("scheduler", log=tmp_path / "other.log") as other:
        flags = ["--scheduler", scheduler.address, "--scheduler", other.address, "--node-id", "n", "--slots", "2"]
        with Daemon("node_monitor", *flags, log=tmp_path / "n.log"):
            for address in (scheduler.address, other.address):
                wait_for_nodes(address, "n")
                with Client(address) as client:
                    assert len(client.submit_job(JobSpec([b""] * 20, app="noop")).results(TIMEOUT_S)) == 20
