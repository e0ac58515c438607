"""Clusters of real processes that grow with what their jobs could use, and shrink."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sparrow_py import Client, ClusterError, InvalidRequest, LocalCluster, SlurmCluster, SSHCluster
from sparrow_py.remote_cluster import RemoteCluster
from tests.support import tasks
from tests.support.remote_machines import stand_in
from tests.support.waiting import TIMEOUT_S, wait_until

SOON = {"quiet_s": 0.3, "interval_s": 0.05}
FLAGS = ["--warm", "noop", "--slots", "1"]


def names(cluster: LocalCluster | RemoteCluster) -> list[str]:
    return [node.id for node in cluster.nodes()]


def grows_and_shrinks(cluster: LocalCluster | RemoteCluster, gate: Path, least: int, most: int, client: Client) -> None:
    """By tasks that hold a slot each until the gate is opened; no task is lost, or started twice."""
    job = client.submit_calls(tasks.hold, [(gate, f"m{number}") for number in range(most)])
    wait_until(lambda: tasks.started(gate, *[f"m{number}" for number in range(most)]), "a slot for each task")
    assert len(names(cluster)) == most
    gate.touch()
    assert [task.attempts for task in job.report(TIMEOUT_S).tasks] == [1] * most
    wait_until(lambda: len(names(cluster)) == least, "nodes to leave")
    gate.unlink()


@pytest.mark.rest
def test_a_local_cluster(gate: Path, caplog: pytest.LogCaptureFixture) -> None:
    with LocalCluster(slots=1, processes="separate") as cluster, Client(cluster) as client:
        with cluster.adapt(minimum=1, maximum=3, **SOON):
            grows_and_shrinks(cluster, gate, 1, 3, client)
            wait_until(lambda: len(cluster.node_processes) == 1, "their processes to end")
        assert client.submit(abs, -1).result(TIMEOUT_S) == 1
    assert not [record for record in caplog.records if record.levelname == "WARNING"]


@pytest.mark.rest
@pytest.mark.parametrize("kind", ["ssh", "srun"])
def test_machines(
    kind: str, gate: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """From none to two and back, and up again: a cluster without node monitors is not broken."""
    monkeypatch.setenv("PATH", f"{stand_in(tmp_path / 'bin', kind)}{os.pathsep}{os.environ['PATH']}")
    for name, value in {"JOB_ID": "7", "JOB_NUM_NODES": "2"}.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    options = {"address": "127.0.0.1", "node_options": FLAGS, "log_dir": tmp_path / "logs", "machines": 0}
    made = SSHCluster(["ant", "bee"], **options) if kind == "ssh" else SlurmCluster(**options)  # type: ignore[arg-type]
    with made as cluster, Client(cluster) as client:
        cluster.adapt(minimum=0, maximum=2, **SOON)
        grows_and_shrinks(cluster, gate, 0, 2, client)
        assert client.submit(abs, -1).result(TIMEOUT_S) == 1
    assert not [record for record in caplog.records if record.levelname == "WARNING"]


@pytest.mark.rest
def test_what_cannot_be_adapted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with LocalCluster(slots=1) as one, pytest.raises(InvalidRequest, match="separate"):
        one.adapt(minimum=0, maximum=2)
    monkeypatch.setenv("PATH", f"{stand_in(tmp_path / 'bin', 'srun')}{os.pathsep}{os.environ['PATH']}")
    for name, value in {"JOB_ID": "7", "JOB_NUM_NODES": "2"}.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    for options, machines, said in (
        ([*FLAGS, "--node-id", "n"], 0, "--node-id"),
        (FLAGS, None, "a job step of its own"),
    ):
        with (
            SlurmCluster(address="127.0.0.1", node_options=options, machines=machines) as cluster,
            pytest.raises(InvalidRequest, match=said),
        ):
            cluster.adapt(minimum=0, maximum=2)
        with pytest.raises(ClusterError, match="this SlurmCluster is stopped"):
            cluster.adapt(minimum=0, maximum=2)


def test_a_stopped_cluster_is_neither_adapted_nor_grown() -> None:
    with LocalCluster(slots=1, processes="separate", node_options=["--warm", "noop"]) as cluster:
        adaptive = cluster.adapt(minimum=1, maximum=2)
    assert adaptive.is_stopped
    for late in (lambda: cluster.adapt(minimum=1, maximum=2), cluster.add_node_monitor):
        with pytest.raises(ClusterError, match="this LocalCluster is stopped"):
            late()
