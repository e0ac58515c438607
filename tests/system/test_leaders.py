"""Schedulers of a plane with a leader, as processes: the leader dies, comes back, makes way; a second is refused."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from frontends.cli.__main__ import main
from sparrow_py import Client, Job
from tests.support import tasks
from tests.support.commands import run_main
from tests.support.daemons import Daemon, free_ports, http, wait_for_nodes
from tests.support.waiting import TIMEOUT_S, wait_until

RUNNING = 4
WAITING = 3


class Cluster:
    """Two addresses of schedulers, which a process with so many node monitors dials, and schedulers at them or not."""

    def __init__(self, directory: Path, nodes: int) -> None:
        self.directory = directory
        self.nodes = [f"n/{number}" for number in range(nodes)] if nodes > 1 else ["n"]
        self.stack = ExitStack()
        self.addresses = [f"127.0.0.1:{port}" for port in free_ports(2)]
        self.schedulers: dict[str, Daemon] = {}

    def start(self, address: str, *flags: str) -> Daemon:
        """A scheduler at the address."""
        daemon = Daemon(
            "tests.support.led_scheduler", "--policy", "flow", "--settling-s", "0.2", "--takeover-s", "0.3", *flags,
            port=int(address.rpartition(":")[2]), log=self.log(address),
        )  # fmt: skip
        self.schedulers[address] = daemon
        return self.stack.enter_context(daemon)

    def log(self, address: str) -> Path:
        return self.directory / f"scheduler {address}.log"

    def start_nodes(self) -> None:
        flags = [flag for address in self.addresses for flag in ("--scheduler", address)]
        own = ("--count", str(len(self.nodes)), "--node-id", "n", "--slots", str(RUNNING // len(self.nodes)))
        self.stack.enter_context(Daemon("node_monitor", *flags, *own, log=self.directory / "nodes.log"))

    def lead_epoch(self, address: str) -> float:
        """With which it leads; 0 if it does not."""
        values = dict(
            line.split(" ") for line in http(address, "/metrics")[1].splitlines() if line.startswith("sparrow_sch")
            and "{" not in line
        )  # fmt: skip
        return float(values["sparrow_scheduler_leads"]) and float(values["sparrow_scheduler_lead_epoch"])

    def wait_for_leader(self, address: str) -> None:
        wait_until(lambda: http(address, "/readyz")[0] == 200, f"{address} to lead")


@pytest.fixture(params=[2], ids=lambda nodes: f"{nodes} nodes")
def cluster(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """The first scheduler leads."""
    found = Cluster(tmp_path, request.param)
    with found.stack:
        found.start(found.addresses[0])
        found.start_nodes()
        found.wait_for_leader(found.addresses[0])
        wait_for_nodes(found.addresses[0], *found.nodes)
        yield found


class Gated:
    """A job of which as many tasks run as there are slots, and others wait, until the gate is opened."""

    def __init__(self, client: Client, directory: Path) -> None:
        self.gate, self.starts = directory / "gate", directory / "starts"
        calls = [(self.starts, task, 0.0, self.gate) for task in range(RUNNING + WAITING)]
        self.job: Job = client.submit_calls(tasks.record_start, calls)
        wait_until(lambda: len(self.started()) == RUNNING, "all slots to be taken")

    def started(self) -> list[int]:
        return [task for task, _ in tasks.read_starts(self.starts)]

    def check(self) -> None:
        """Each task ran once, those that the first leader had started among them."""
        self.gate.touch()
        self.job.results(TIMEOUT_S)
        assert Counter(self.started()) == Counter(range(RUNNING + WAITING))


def test_when_the_leader_is_killed_its_standby_leads_the_job_goes_on_and_a_third_is_refused(
    cluster: Cluster, tmp_path: Path
) -> None:
    first, second = cluster.addresses
    cluster.start(second, "--standby-of", "any")
    wait_for_nodes(second, *cluster.nodes)
    wait_until(lambda: "another scheduler does" in http(second, "/readyz")[1], "the standby to know who leads")
    with Client(cluster.addresses) as client:
        job = Gated(client, tmp_path)
        cluster.schedulers[first].signal(signal.SIGKILL)
        cluster.wait_for_leader(second)
        assert cluster.lead_epoch(second) == 2
        job.check()
        assert client.submit(tasks.square, 3).result(TIMEOUT_S) == 9
    third = cluster.start(first)
    assert third.wait() == 1
    name = cluster.schedulers[second].announcement["name"]
    line = cluster.log(first).read_text().splitlines()[-1]
    assert f"another scheduler leads plane flow: {name} at {second}, epoch 2" in line
    assert "--standby-of any" in line and "sparrow lead --force" in line


@pytest.mark.rest
@pytest.mark.parametrize("cluster", [1], indirect=True)  # Of several one might dial again too late to tell what it has.
def test_a_leader_that_is_killed_and_started_again_leads_again(cluster: Cluster, tmp_path: Path) -> None:
    first, _ = cluster.addresses
    with Client(first) as client:
        job = Gated(client, tmp_path)
        cluster.schedulers[first].kill()
        cluster.start(first)
        cluster.wait_for_leader(first)
        assert cluster.lead_epoch(first) == 2
        job.check()


@pytest.mark.rest
def test_an_operator_makes_a_standby_lead_and_the_other_one_makes_way(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = cluster.addresses
    cluster.start(second, "--standby-of", first)
    wait_for_nodes(second, *cluster.nodes)
    with Client(cluster.addresses) as client:
        job = Gated(client, tmp_path)
        status, output, _ = run_main(main, capsys, "lead", "--force", "-s", second)
        assert status == 0 and "plane flow, epoch 2" in output
        cluster.wait_for_leader(second)
        wait_until(lambda: http(first, "/readyz")[0] == 503, "the other to make way")
        assert cluster.lead_epoch(first) == 0 and cluster.lead_epoch(second) == 2
        job.check()
        assert {task.attempts for task in job.job.report(TIMEOUT_S).tasks[RUNNING:]} == {1}, "they had not been sent"
