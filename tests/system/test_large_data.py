"""Inputs and results too large for messages, on real daemons: they arrive whole, and round the schedulers."""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path

import psutil
import pytest

from sparrow_py import (
    BlobRef,
    CallStage,
    Client,
    InvalidRequest,
    JobSpec,
    LocalCluster,
    ResultLost,
    ResultOf,
    TaskFailed,
    TaskLost,
    TaskStatus,
    calls,
)
from sparrow_py.embedded.daemon_process import DaemonProcess
from sparrow_py.wire.http_get import http_get_text
from tests.support import tasks
from tests.support.daemons import http
from tests.support.waiting import TIMEOUT_S, wait_until

LARGE = 100_000_000


def counted(process: DaemonProcess, name: str) -> float:
    """A counter of a node monitor's blob store."""
    lines = http_get_text(process.address, "/metrics").splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith(f"sparrow_node_monitor_blob_{name}")))


def rss_mb(process: DaemonProcess) -> float:
    return float(psutil.Process(process.pid).memory_info().rss) / 1e6


@pytest.mark.rest
def test_100_mb_arrive_whole_and_no_daemons_memory_grows() -> None:
    with LocalCluster(slots=1) as cluster, Client(cluster) as client:
        assert client.submit(tasks.pattern, 1000).result(TIMEOUT_S) == tasks.pattern(1000)
        daemons = [*cluster.scheduler_processes, *cluster.node_processes]
        before = [rss_mb(process) for process in daemons]
        result = client.submit(tasks.pattern, LARGE).result(TIMEOUT_S)
        assert hashlib.sha256(result).digest() == hashlib.sha256(tasks.pattern(LARGE)).digest()
        assert client.submit(tasks.digest, result).result(TIMEOUT_S) == hashlib.sha256(result).hexdigest()
        grown = [rss_mb(process) - mb for process, mb in zip(daemons, before, strict=True)]
        assert max(grown) < LARGE / 1e6 / 2, f"daemons grew by {grown} MB"


def test_an_input_is_uploaded_once_and_fetched_once_by_each_node_that_needs_it() -> None:
    data = tasks.pattern(5_000_000)
    with LocalCluster(node_monitors=3, slots=2) as cluster, Client(cluster) as client:
        # Six tasks at a time on three nodes: each node runs some, and its workers share what it has fetched.
        job = client.submit_calls(lambda _: len(data), [(number,) for number in range(60)])
        assert job.results(TIMEOUT_S) == [len(data)] * 60
        nodes = {task.node for task in job.report().tasks}
        uploaded = sum(counted(process, "uploaded_bytes") for process in cluster.node_processes)
        fetched = sum(counted(process, "fetched_bytes") for process in cluster.node_processes)
    size = uploaded  # The pickled function with its data.
    assert len(data) <= size < len(data) + 10_000
    assert fetched in ((len(nodes) - 1) * size, len(nodes) * size)


@pytest.mark.rest
def test_a_reference_serves_many_jobs() -> None:
    with LocalCluster(node_monitors=2, slots=1) as cluster, Client(cluster) as client:
        ref = client.upload(tasks.pattern(2_000_000))
        assert isinstance(ref, BlobRef) and ref.size == 2_000_000
        assert client.fetch(ref) == tasks.pattern(2_000_000)
        uploaded = sum(counted(process, "uploaded_bytes") for process in cluster.node_processes)
        assert uploaded == 2_000_000


def test_large_results_go_from_stage_to_stage_between_nodes(tmp_path: Path) -> None:
    with LocalCluster(node_monitors=2, slots=2) as cluster, Client(cluster) as client:
        stages = [
            CallStage("make", tasks.pattern, [(3_000_000 + number,) for number in range(6)]),
            CallStage("size", len, [(ResultOf("make", number),) for number in range(6)]),
            CallStage("sum", sum, [(ResultOf("size"),)]),
        ]
        job = client.submit_stages(stages)
        assert job.stage("sum")[0].result(TIMEOUT_S) == sum(3_000_000 + number for number in range(6))
        refs = [future.result() for future in job.stage("make")]
        assert all(isinstance(ref, BlobRef) for ref in refs), "results of inner stages stay where they are"


@pytest.mark.rest
def test_a_node_dies_with_a_result_that_another_stage_needs(tmp_path: Path, gate: Path) -> None:
    """Its producer runs again, without a second outcome."""
    starts = tmp_path / "starts"
    with LocalCluster(node_monitors=2, slots=1, log_dir=tmp_path / "logs") as cluster, Client(cluster) as client:
        stages = [
            CallStage("make", tasks.record_start_pattern, [(starts, 0, 2_000_000)]),
            CallStage("hold", tasks.hold, [(gate, "between")], after=["make"]),
            CallStage("use", len, [(ResultOf("make", 0),)], after=["hold"]),
        ]
        job = client.submit_stages(stages)
        told: Counter[int] = Counter()
        for future in job.futures:
            future.add_done_callback(lambda future: told.update([future.task]))  # type: ignore[attr-defined]
        wait_until(lambda: tasks.started(gate, "between"))
        ref = job.futures[0].result(TIMEOUT_S)
        (holder,) = (process for process in cluster.node_processes if process.address in ref.at)
        holder.kill()
        gate.touch()
        assert job.futures[2].result(TIMEOUT_S) == 2_000_000
        assert job.report(TIMEOUT_S).count(TaskStatus.FINISHED) == 3
        assert told == Counter(range(3))
        assert len(tasks.read_starts(starts)) == 2


@pytest.mark.rest
def test_a_node_dies_with_an_input_that_was_uploaded(tmp_path: Path, gate: Path) -> None:
    """The client still has it, and uploads it again."""
    data = tasks.pattern(2_000_000)
    with LocalCluster(node_monitors=2, slots=1, log_dir=tmp_path / "logs") as cluster, Client(cluster) as client:
        blockers = [client.submit(tasks.hold, gate, f"b{number}") for number in range(2)]
        wait_until(lambda: tasks.started(gate, "b0", "b1"))
        job = client.submit_calls(tasks.digest, [(data,)] * 4)
        job.accepted(TIMEOUT_S)
        (holder,) = (process for process in cluster.node_processes if counted(process, "uploaded_bytes"))
        holder.kill()
        gate.touch()
        assert job.results(TIMEOUT_S) == [hashlib.sha256(data).hexdigest()] * 4
        assert {future.result(TIMEOUT_S) for future in blockers} == {"b0", "b1"}


@pytest.mark.rest
def test_a_final_result_whose_node_died_is_lost_and_says_so(tmp_path: Path) -> None:
    with LocalCluster(node_monitors=1, slots=1) as cluster, Client(cluster) as client:
        job = client.submit_stages(
            [CallStage("make", tasks.pattern, [(2_000_000,)]), CallStage("end", tasks.square, [(2,)], after=["make"])]
        )
        assert job.results(TIMEOUT_S)[1] == 4
        ref = job.futures[0].result()
        cluster.node_processes[0].kill()
        with pytest.raises(ResultLost, match=r"2000\d\d\d bytes cannot be fetched: 127\.0\.0\.1"):
            client.fetch(ref)


@pytest.mark.rest
def test_an_input_that_nobody_has_any_more() -> None:
    with LocalCluster(node_monitors=1, slots=1) as cluster, Client(cluster) as client:
        gone = BlobRef("ab" * 32, 1_500_000, (cluster.node_processes[0].address,))
        job = client.submit_job(JobSpec([gone], common=calls.encode_function(len), runtime=calls.RUNTIME))
        with pytest.raises(TaskLost, match="the client does not have it"):
            job.results(TIMEOUT_S)
        assert client.submit(tasks.square, 3).result(TIMEOUT_S) == 9


@pytest.mark.rest
def test_a_result_larger_than_the_nodes_limit_fails_its_task_alone() -> None:
    with LocalCluster(slots=1, node_options=["--blob-bytes-max", "3000000"]) as cluster, Client(cluster) as client:
        with pytest.raises(TaskFailed, match=r"result .*4000\d\d\d bytes.*blob_bytes_max = 3000000"):
            client.submit(tasks.pattern, 4_000_000).result(TIMEOUT_S)
        assert len(client.submit(tasks.pattern, 2_000_000).result(TIMEOUT_S)) == 2_000_000


def test_an_upload_with_the_wrong_hash_is_refused() -> None:
    with LocalCluster(slots=1) as cluster, Client(cluster) as client:
        address = cluster.node_processes[0].address
        status, body = http(address, f"/v1/blobs/{'ab' * 32}", "PUT", **{"Content-Length": "0"})
        assert status == 422 and "SHA-256" in body
        assert client.submit(tasks.square, 3).result(TIMEOUT_S) == 9


@pytest.mark.rest
def test_a_node_dies_with_many_results_that_another_stage_needs(tmp_path: Path, gate: Path) -> None:
    """All of them are produced again, however many."""
    with LocalCluster(node_monitors=2, slots=2, log_dir=tmp_path / "logs") as cluster, Client(cluster) as client:
        stages = [
            CallStage("make", tasks.pattern, [(100_000 + number,) for number in range(40)]),
            CallStage("hold", tasks.hold, [(gate, "between")], after=["make"]),
            CallStage("use", tasks.lengths, [(ResultOf("make"),)], after=["hold"]),
        ]
        job = client.submit_stages(stages)
        wait_until(lambda: tasks.started(gate, "between"))
        held_by = Counter(future.result(TIMEOUT_S).at[0] for future in job.stage("make"))
        (victim,) = (process for process in cluster.node_processes if process.address == held_by.most_common(1)[0][0])
        victim.kill()
        gate.touch()
        assert job.stage("use")[0].result(TIMEOUT_S) == [100_000 + number for number in range(40)]


def test_a_job_is_cancelled_while_its_input_is_uploaded() -> None:
    with LocalCluster(slots=1) as cluster, Client(cluster) as client:
        for _ in range(5):
            job = client.submit_calls(len, [(bytes(2_000_000),)] * 2)
            job.cancel()
            statuses = {task.status for task in job.report(TIMEOUT_S).tasks}
            assert statuses <= {TaskStatus.CANCELLED, TaskStatus.FINISHED}
        assert client.submit(tasks.square, 3).result(TIMEOUT_S) == 9


def test_a_reference_that_is_none_is_refused_by_name() -> None:
    with pytest.raises(InvalidRequest, match=r"tasks\[0\].payload.hash: 'zz'"):
        JobSpec([BlobRef("zz", 10, ("127.0.0.1:1",))]).validate()
