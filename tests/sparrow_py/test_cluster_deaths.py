"""Daemons of an embedded cluster that do not start, or end though nobody ended them."""

import asyncio
import os
import re
import signal
import threading
from pathlib import Path

import psutil
import pytest

from sparrow_py import AsyncClient, Client, ClusterError, LocalCluster
from sparrow_py.embedded import restarts
from sparrow_py.embedded.daemon_process import Daemon, DaemonProcess
from tests.support import tasks
from tests.support.executors import without_sparrow
from tests.support.waiting import TIMEOUT_S, wait_until

pytestmark = pytest.mark.processes

ARRANGEMENTS = [("separate", "node"), ("separate", "scheduler"), ("one", "scheduler")]
"""How daemons are spread over processes, and which is killed: where both are in one, that is either."""


def kill(process: Daemon) -> None:
    """As the kernel does where memory runs out: the cluster does not know of it before."""
    os.kill(process.pid, signal.SIGKILL)


def another(cluster: LocalCluster, kind: str, before: Daemon) -> Daemon:
    """The daemon that was started in this one's place, once it works."""
    processes = getattr(cluster, f"{kind}_processes")
    wait_until(lambda: processes[0] is not before and processes[0].announcement, f"another {kind}")
    return processes[0]  # type: ignore[no-any-return]


@pytest.mark.rest
def test_workers_that_do_not_start_are_an_error_of_the_cluster_with_their_last_words(tmp_path: Path) -> None:
    interpreter = without_sparrow(tmp_path)
    why = r"(?s)app 'python' do not start on node-0: .*exited with code 1; it said:\n.*No module named 'sparrow_py'"
    with pytest.raises(ClusterError, match=why):
        LocalCluster(slots=1, node_options=["--python", str(interpreter)])


@pytest.mark.rest
def test_a_daemon_that_does_not_start_says_why_without_a_log_directory() -> None:
    with pytest.raises(ClusterError, match=r"(?s)^scheduler and node monitor ended with code 2 .*--nonsense"):
        LocalCluster(node_options=["--nonsense"])


@pytest.mark.parametrize(("processes", "kind"), ARRANGEMENTS)
def test_a_daemon_that_dies_is_started_again_and_jobs_go_on(processes: str, kind: str, gate: Path) -> None:
    with LocalCluster(slots=2, processes=processes) as cluster, Client(cluster) as client:
        held = client.submit(tasks.hold, gate, "mark")
        wait_until(lambda: tasks.started(gate, "mark"))
        (before,) = getattr(cluster, f"{kind}_processes")
        kill(before)
        gate.touch()
        assert held.result(TIMEOUT_S) == "mark"
        assert client.submit(tasks.square, 12).result(TIMEOUT_S) == 144
        after = another(cluster, kind, before)
        assert (after.name, after.address if kind == "scheduler" else "") == (
            before.name,
            before.address if kind == "scheduler" else "",
        )


@pytest.mark.rest
@pytest.mark.parametrize(("processes", "kind"), ARRANGEMENTS)
def test_one_that_goes_on_dying_ends_the_futures_of_all_clients(
    processes: str, kind: str, gate: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restarts, "RESTARTS_MAX", 1)
    what = {"node": "node monitor", "scheduler": "scheduler"}[kind]
    missing, who = what, f"{what} {kind}-0"
    if processes == "one":
        missing, who = "scheduler and no node monitor", "the process 'cluster' (scheduler and node monitor)"
    ended = f"has no {missing} any more: {who} was killed by SIGKILL; its log ends with:"
    why = rf"(?s){re.escape(ended)}\n.* listens on "
    with (
        LocalCluster(slots=1, processes=processes, log_dir=tmp_path / "logs") as cluster,
        Client(cluster) as client,
        Client(cluster) as other,
    ):
        futures = [client.submit(tasks.hold, gate, "a"), other.submit(tasks.hold, gate, "b")]
        wait_until(lambda: tasks.started(gate, "a") or tasks.started(gate, "b"))
        (first,) = getattr(cluster, f"{kind}_processes")
        kill(first)
        second = another(cluster, kind, first)
        wait_until(lambda: "listens on" in second.log_tail())
        kill(second)
        for future in futures:
            with pytest.raises(ClusterError, match=why):
                future.result(TIMEOUT_S)
        with pytest.raises(ClusterError, match=why):
            client.submit(tasks.square, 1).result(TIMEOUT_S)
        with pytest.raises(ClusterError, match=why):
            Client(cluster)
        with pytest.raises(ClusterError, match=why):
            asyncio.run(AsyncClient(cluster).start())


@pytest.mark.parametrize("processes", ["one", "separate"])
@pytest.mark.rest
def test_a_scheduler_that_dies_while_it_is_started_again_is_started_once_more(processes: str) -> None:
    with LocalCluster(slots=1, processes=processes) as cluster, Client(cluster) as client:
        first = cluster.scheduler_processes[0]
        kill(first)
        wait_until(lambda: cluster.scheduler_processes[0] is not first)
        kill(cluster.scheduler_processes[0])  # It may not have told its address yet.
        assert client.submit(tasks.square, 12).result(TIMEOUT_S) == 144


def test_one_that_is_killed_on_purpose_stays_away() -> None:
    others = threading.enumerate()
    with LocalCluster(slots=1, processes="separate") as cluster:
        (node,) = cluster.node_processes
        threads = [thread for thread in threading.enumerate() if thread not in others]
        (watch,) = (thread for thread in threads if thread.name == "sparrow-node-0")
        node.kill()
        watch.join(TIMEOUT_S)
        assert cluster.node_processes == [node]
        wait_until(lambda: not cluster.nodes())
        cluster.add_node_monitor("node-0")
        with Client(cluster) as client:
            assert client.submit(tasks.square, 3).result(TIMEOUT_S) == 9


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_one_that_has_ended_leaves_no_descriptor_here(number: signal.Signals, tmp_path: Path) -> None:
    """Whether it is started again (as after SIGKILL) or not; nor do logs stay open."""
    with LocalCluster(slots=1, processes="separate", log_dir=tmp_path, forward_output=False) as cluster:
        node = cluster.node_processes[0]
        assert isinstance(node, DaemonProcess)
        os.kill(node.pid, number)
        wait_until(lambda: all(pipe and pipe.closed for pipe in (node.process.stdin, node.process.stdout)))
        if number == signal.SIGTERM:
            cluster.add_node_monitor(node.name)
        else:
            another(cluster, "node", node)
        assert not [file for file in psutil.Process().open_files() if Path(file.path).is_relative_to(tmp_path)]
