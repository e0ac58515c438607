"""`LocalCluster`: as processes and in this process."""

import os
import re
import threading
from pathlib import Path
from typing import Any

import pytest

from sparrow_py import Client, ClusterError, InvalidRequest, LocalCluster, TaskFailed
from sparrow_py.wire.http_get import http_get_json, http_get_text
from tests.support import tasks
from tests.support.daemons import gone, workers_of
from tests.support.suites import rest_after
from tests.support.waiting import TIMEOUT_S, wait_until

pytestmark = [pytest.mark.processes, pytest.mark.real_starts]


def test_processes_end_with_it(tmp_path: Path) -> None:
    with LocalCluster(schedulers=2, node_monitors=2, slots=1, log_dir=tmp_path) as cluster:
        assert len(set(cluster.addresses)) == 2
        daemons = [process.pid for process in (*cluster.scheduler_processes, *cluster.node_processes)]
        workers = [worker for process in cluster.node_processes for worker in workers_of(process.pid)]
        assert [len(http_get_json(address, "/v1/nodes")["nodes"]) for address in cluster.addresses] == [2, 2]
        assert [node.id for node in cluster.nodes()] == ["node-0", "node-1"]
        with Client(cluster) as client:
            assert list(client.map(tasks.square, range(50))) == [x * x for x in range(50)]
    assert all(gone(pid) for pid in [*daemons, *workers])
    cluster.stop()
    assert {path.name for path in tmp_path.iterdir()} == {
        "scheduler-0.log", "scheduler-1.log", "node-0.log", "node-1.log",
    }  # fmt: skip


@pytest.mark.parametrize("in_process", rest_after(1, True, False))
def test_all_its_daemons_have_its_profile(in_process: bool) -> None:
    with LocalCluster(slots=1, profile="paper", in_process=in_process) as cluster, Client(cluster) as client:
        assert client.submit(tasks.square, 3).result(TIMEOUT_S) == 9
        found = http_get_text(cluster.addresses[0], "/metrics")
    (info,) = re.findall(r"^sparrow_scheduler_info\{(.*)\} 1.0$", found, re.M)
    assert {'profile="paper"', 'placement="sparrow"', 'order="reserved"', 'push_to_idle="false"'} <= set(
        info.split(",")
    )
    assert "sparrow_scheduler_pushes_total 0.0" in found


def test_a_profile_and_a_flag_that_contradicts_it() -> None:
    with pytest.raises(ClusterError, match="report_idle: True is not valid; allowed: False with profile 'paper'"):
        LocalCluster(profile="paper", in_process=True, node_options=["--report-idle"])


def test_a_daemon_that_does_not_start_says_why(tmp_path: Path) -> None:
    for processes, who in (("one", "scheduler and node monitor"), ("separate", "scheduler")):
        with pytest.raises(ClusterError, match=rf"(?s)^{who} ended with code 2 .*--nonsense"):
            LocalCluster(processes=processes, scheduler_options=["--nonsense"], log_dir=tmp_path)


@pytest.mark.parametrize(
    ("fields", "name"),
    [({"schedulers": 0}, "schedulers"), ({"node_monitors": -1}, "node_monitors"), ({"slots": 0}, "slots")],
)
def test_bad_counts_are_named(fields: dict[str, int], name: str) -> None:
    with pytest.raises(InvalidRequest, match=f"^{name}: "):
        LocalCluster(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        *(({"policies": wrong}, "policies") for wrong in ((), ("flow", "fast"), "flow")),
        ({"policies": ("flow",), "schedulers": 2}, "schedulers"),
        ({"policies": ("sparrow", "flow"), "in_process": True}, "policies"),
        ({"policies": ("flow",), "processes": "one"}, "processes"),
    ],
)  # fmt: skip
def test_policies_that_there_cannot_be_are_named(fields: dict[str, Any], name: str) -> None:
    with pytest.raises(InvalidRequest, match=f"^{name}: "):
        LocalCluster(**fields)


def test_http_get_json_names_what_does_not_answer() -> None:
    with pytest.raises(ClusterError, match=r"127\.0\.0\.1:1 does not answer"):
        http_get_json("127.0.0.1:1", "/livez")


def test_in_process() -> None:
    before = {thread.ident for thread in threading.enumerate()}
    with LocalCluster(schedulers=2, node_monitors=2, slots=2, in_process=True) as cluster:
        assert len(set(cluster.addresses)) == 2
        with Client(cluster) as client:
            assert client.submit(os.getpid).result(TIMEOUT_S) == os.getpid()
            assert list(client.map(tasks.square, range(200))) == [x * x for x in range(200)]
            with pytest.raises(ValueError, match="on purpose"):
                client.submit(tasks.fail, "on purpose").result(TIMEOUT_S)
            with pytest.raises(SystemExit):
                client.submit(tasks.exit_politely, 3).result(TIMEOUT_S)
    wait_until(lambda: {thread.ident for thread in threading.enumerate()} <= before, "its threads to end")
    cluster.stop()


def test_in_process_a_task_that_was_to_be_stopped_has_its_slot_no_longer_than_it_lasts(gate: Path) -> None:
    with LocalCluster(slots=1, in_process=True) as cluster, Client(cluster) as client:
        late = client.with_options(task_timeout_s=0.05).submit(tasks.hold, gate)
        with pytest.raises(TaskFailed, match="task_timeout_s"):
            late.result(TIMEOUT_S)
        gate.touch()
        assert client.submit(tasks.square, 3).result(TIMEOUT_S) == 9


def test_in_process_says_why_it_does_not_start() -> None:
    with pytest.raises(ClusterError, match="nonsense"):
        LocalCluster(in_process=True, node_options=["--nonsense"])
