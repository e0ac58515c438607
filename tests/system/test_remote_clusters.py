"""Clusters of other machines: by ssh to an sshd on loopback, and by stand-ins for ssh and srun."""

from __future__ import annotations

import importlib
import math
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparrow_py import Client, ClusterError, InvalidRequest, LocalCluster, SlurmCluster, SSHCluster, remote_cluster
from sparrow_py.remote_cluster import address_towards
from tests.support.remote_machines import SSHD, sshd, stand_in
from tests.support.run_fakes import assert_one_line, sparrow
from tests.support.waiting import TIMEOUT_S, wait_until

FLAGS = ["--warm", "noop"]


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory at the front of the path."""
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    yield tmp_path / "bin"


def node_monitors(address: str) -> list[str]:
    """Command lines of node monitors of the scheduler at this address."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode("utf-8", "replace").split("\0")
        except OSError:
            continue
        if "node_monitor" in words and address in words:
            found.append(" ".join(words))
    return found


@pytest.mark.rest
@pytest.mark.skipif(SSHD is None, reason="sshd is not installed")
def test_machines_that_ssh_reaches(tmp_path: Path) -> None:
    with sshd(tmp_path) as ssh_options:
        hosts = ["127.0.0.1 slots=2"]
        with SSHCluster(hosts, ssh_options=ssh_options, node_options=FLAGS, log_dir=tmp_path / "logs") as cluster:
            (address,) = cluster.addresses
            assert [node.slots for node in cluster.nodes()] == [2]
            assert cluster.token not in " ".join(node_monitors(address))
            with Client(cluster) as client:
                assert client.submit(pow, 2, 5).result() == 32
        assert not node_monitors(address)


@pytest.mark.rest
def test_machines_of_a_slurm_allocation(programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(programs, "srun")
    for name, value in {"JOB_ID": "7", "JOB_NUM_NODES": "2", "CPUS_ON_NODE": "1"}.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    with SlurmCluster(address="127.0.0.1", node_options=[*FLAGS, "--slots", "1"], log_dir=tmp_path) as cluster:
        assert len(cluster.nodes()) == 2
        (address,) = cluster.addresses
        assert len(node_monitors(address)) == 2
        with Client(cluster) as client:
            assert list(client.map(abs, [-1, -2])) == [1, 2]
    wait_until(lambda: not node_monitors(address), "the node monitors to end")


@pytest.mark.rest
def test_what_becomes_of_a_cluster_whose_machines_are_lost(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Tasks find the modules of the directory, one machine that is lost is a warning, and the last one an error."""
    stand_in(programs, "ssh")
    (tmp_path / "of_ours.py").write_text("def triple(x): return 3 * x\n")
    monkeypatch.syspath_prepend(tmp_path)
    triple = importlib.import_module("of_ours").triple
    flags = ["--warm", "noop", "--slots", "1"]
    with SSHCluster(
        ["ant", "bee"], address="127.0.0.1", node_options=flags, directory=str(tmp_path), log_dir=tmp_path / "logs"
    ) as cluster, Client(cluster) as client:  # fmt: skip
        assert client.submit(triple, 2).result(TIMEOUT_S) == 6
        first, last = cluster._machines._launched.values()
        first.process.kill()
        wait_until(lambda: "ssh (ant) was killed by SIGKILL" in caplog.text, "the warning")
        with (tmp_path / "logs" / "bee.log").open("a") as log:
            log.write("no route to bee\n")
        waiting = client.submit(time.sleep, 600)
        last.process.kill()
        why = r"(?s)has no node monitor any more: ssh \(bee\) was killed by SIGKILL; its log ends with:\n.*no route"
        with pytest.raises(ClusterError, match=why):
            waiting.result(TIMEOUT_S)
        for late in (lambda: client.submit(abs, -1).result(TIMEOUT_S), cluster.wait, lambda: Client(cluster)):
            with pytest.raises(ClusterError, match="ssh"):
                late()


@pytest.mark.rest
def test_a_cluster_whose_last_node_has_left_in_order_is_broken_too(programs: Path, tmp_path: Path) -> None:
    stand_in(programs, "ssh")
    flags = [*FLAGS, "--slots", "1", "--idle-exit-s", "1"]
    with (
        SSHCluster(["ant"], address="127.0.0.1", node_options=flags, log_dir=tmp_path) as cluster,
        pytest.raises(ClusterError, match=r"no node monitor any more: ssh \(ant\) exited with code 0"),
    ):
        cluster.wait()


def test_a_machine_that_cannot_be_reached_is_said_and_nothing_is_left(programs: Path, tmp_path: Path) -> None:
    (stand_in(programs, "ssh") / "ssh").write_text("#!/bin/sh\necho no route to $7 >&2\nexit 255\n")
    with pytest.raises(ClusterError, match=r"^ssh \(ant\) exited with code 255 before its node monitors had reached"):
        SSHCluster(["ant"], address="127.0.0.1", log_dir=tmp_path / "logs")
    assert "no route to" in (tmp_path / "logs" / "ant.log").read_text()


def test_without_the_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ClusterError, match="ssh cannot be run: No such file"):
        SSHCluster(["ant"], address="127.0.0.1", log_dir=tmp_path)


@pytest.mark.parametrize("kind", ["ssh", "slurm"])
@pytest.mark.parametrize(
    ("field", "value"),
    [
        *[("timeout_s", value) for value in (math.nan, -1.0, -math.inf, True, "60")],
        *[("machines", value) for value in (math.nan, math.inf, -1, 2, True, 1.0)],
        *[(field, value) for field in ("scheduler_options", "node_options") for value in ("--slots 1", ["--slots", 1])],
    ],
)
def test_what_cannot_be_is_named_before_anything_starts(
    kind: str, field: str, value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_cluster, "DaemonProcess", None)
    for name, number in {"JOB_ID": "7", "JOB_NUM_NODES": "1"}.items():
        monkeypatch.setenv(f"SLURM_{name}", number)
    options: Any = {"address": "127.0.0.1", field: value}
    with pytest.raises(InvalidRequest) as error:
        SSHCluster(["ant"], **options) if kind == "ssh" else SlurmCluster(**options)
    assert error.value.field == field


@pytest.mark.parametrize(
    ("hosts", "said"),
    [
        (["ant", "bee", "ant"], "hosts: 'ant' is not valid; allowed: each host once"),
        (["ant slots=1", "ant slots=2"], "hosts: 'ant slots=2' is not valid; allowed: 'ant' with one number of slots"),
        (["ant", 7], "hosts: 7 is not valid"),
    ],
)
def test_a_machine_has_one_node_monitor(hosts: list[Any], said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        SSHCluster(hosts, address="127.0.0.1")


@pytest.mark.parametrize("value", [math.nan, math.inf, -1, 0, True, 1.0])
@pytest.mark.parametrize("field", ["schedulers", "node_monitors", "slots"])
def test_a_local_cluster_names_what_cannot_be(field: str, value: object) -> None:
    options: Any = {field: value}
    with pytest.raises(InvalidRequest) as error:
        LocalCluster(**options)
    assert error.value.field == field


@pytest.mark.parametrize("field", ["scheduler_options", "node_options"])
def test_flags_of_a_local_cluster_are_a_list_of_texts(field: str) -> None:
    for flags in ("--heartbeat-s 1", ["--heartbeat-s", 1]):
        options: Any = {field: flags}
        with pytest.raises(InvalidRequest) as error:
            LocalCluster(**options)
        assert error.value.field == field


def test_outside_of_an_allocation_nothing_starts() -> None:
    with pytest.raises(InvalidRequest, match="inside an allocation"):
        SlurmCluster()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--ssh", "/nonexistent"], "a file of them that can be read"),
        (["--slurm"], "inside an allocation, by sbatch or salloc"),
        (["--slurm", "--ssh", "hosts"], "do not go together"),
        (["--slurm", "--schedulers", "2"], "--schedulers is not for --ssh and --slurm"),
        (["--address", "10.0.0.1"], "--address is for --ssh and --slurm"),
    ],
)
def test_what_the_command_cannot_do(flags: list[str], said: str) -> None:
    assert_one_line(sparrow("cluster", *flags), 2, said)


def test_the_address_on_the_way_to_a_host() -> None:
    assert address_towards("127.0.0.1") == "127.0.0.1"
    assert address_towards("no such host")
