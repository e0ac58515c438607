"""A scheduler with policy altruistic, its standby, node monitors and clients, all of them real."""

from __future__ import annotations

import signal
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from click.testing import CliRunner

from frontends.cli.__main__ import main as sparrow
from sparrow_py import Client, JobSpec, StageSpec
from tests.support import tasks
from tests.support.daemons import Daemon, free_ports, http, wait_for_nodes
from tests.support.waiting import TIMEOUT_S, wait_until

pytestmark = pytest.mark.processes
READY_S = 240.0
"""Where nobody has had the kernels compiled that takes some seconds, and longer on a busy machine."""
SLOTS = 3


def figures(address: str) -> dict[str, float]:
    """The metrics, by name and labels."""
    lines = http(address, "/metrics")[1].splitlines()
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}


def leads(address: str) -> bool:
    return http(address, "/readyz")[0] == 200


def history(path: Path) -> list[tuple[str, str]]:
    """(job, stage) of what is kept."""
    with sqlite3.connect(path) as database:
        return database.execute("SELECT job, stage FROM stages").fetchall()


class Cluster:
    """Two addresses of schedulers, which node monitors dial, and schedulers at them or not."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self.directory, self.stack = directory, stack
        self.addresses = [f"127.0.0.1:{port}" for port in free_ports(2)]

    def start(self, address: str, *flags: str) -> Daemon:
        return self.stack.enter_context(
            Daemon(
                "scheduler", "--settling-s", "0.2", "--takeover-s", "0.5", *flags,
                port=int(address.rpartition(":")[2]), log=self.log(address),
            )
        )  # fmt: skip

    def log(self, address: str) -> Path:
        return self.directory / f"scheduler {address}.log"

    def start_node(self, name: str) -> Daemon:
        flags = [flag for address in self.addresses for flag in ("--scheduler", address)]
        log = self.directory / f"{name}.log"
        own = ("--node-id", name, "--slots", str(SLOTS))
        return self.stack.enter_context(Daemon("node_monitor", *flags, *own, log=log))


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with ExitStack() as stack:
        yield Cluster(tmp_path, stack)


ALTRUISTIC = ("--policy", "altruistic")
TWO_STAGES = [
    StageSpec(app="sleep", tasks=[b"0.05"] * 6, name="map"),
    StageSpec(app="sleep", tasks=[b"0.05"] * 2, name="reduce", after=["map"]),
]


@pytest.mark.rest
def test_jobs_end_though_a_node_and_the_leader_are_killed_and_what_stages_took_is_kept(
    cluster: Cluster, tmp_path: Path
) -> None:
    starts, kept, gate = tmp_path / "starts", tmp_path / "history.db", tmp_path / "gate"
    first, second = cluster.addresses
    leader = cluster.start(first, *ALTRUISTIC, "--stage-history", str(kept))
    nodes = [cluster.start_node(name) for name in ("a", "b")]
    wait_until(lambda: leads(first), "the scheduler to lead, with its kernels", READY_S)
    wait_for_nodes(first, "a", "b")
    cluster.start(second, *ALTRUISTIC, "--standby-of", "any")
    wait_for_nodes(second, "a", "b")
    client = cluster.stack.enter_context(Client(cluster.addresses, user="anna"))
    client.submit_job(JobSpec(name="nightly", stages=TWO_STAGES, policy="altruistic")).results(TIMEOUT_S)
    wait_until(lambda: len(history(kept)) == 2, "what the stages took to be kept")
    calls = [(starts, task, 0.0, gate) for task in range(3 * SLOTS)]
    job = client.submit_calls(tasks.record_start, calls)
    wait_until(lambda: len(tasks.read_starts(starts)) == 2 * SLOTS, "all slots to be taken")
    explained = CliRunner().invoke(sparrow, ["explain", "-s", first, job.job_id]).stdout
    assert "it yields nothing, and has its share" in explained and "no node has room" in explained
    assert figures(first)["sparrow_scheduler_altruistic_jobs"] == 1
    nodes[0].kill()
    leader.signal(signal.SIGKILL)
    wait_until(lambda: leads(second), "the standby to lead")
    gate.touch()
    assert job.results(TIMEOUT_S) == list(range(3 * SLOTS))
    assert sorted(history(kept)) == [("nightly", "map"), ("nightly", "reduce")]


@pytest.mark.rest
def test_a_second_plane_that_places_tasks_is_refused_by_its_name(cluster: Cluster) -> None:
    first, second = cluster.addresses
    cluster.start(first, *ALTRUISTIC)
    cluster.start_node("n")
    wait_until(lambda: leads(first), "the scheduler to lead, with its kernels", READY_S)
    other = cluster.start(second, "--policy", "flow")
    assert other.wait() == 1
    line = cluster.log(second).read_text().splitlines()[-1]
    assert "another plane places the tasks of these nodes: altruistic, led by scheduler-" in line
    assert "Stop that scheduler before plane flow begins" in line
