"""Daemons as an operator starts, asks and ends them."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sparrow_py import Client, InvalidRequest, JobSpec, NoScheduler, Refused, TaskStatus
from tests.support import forked_starts, tasks
from tests.support.daemons import Daemon, clean_environment, get_json, http, node_of, nodes_of, wait_for_nodes
from tests.support.suites import rest_after
from tests.support.waiting import TIMEOUT_S, wait_until

TOKEN = "0123456789abcdef0123456789abcdef"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, scheduler: Daemon) -> Iterator[Daemon]:
    """Its only node."""
    with node_of(scheduler.address, tmp_path_factory.mktemp("node") / "log", "--attr", "zone=a") as daemon:
        yield daemon


@pytest.fixture
def own_scheduler(tmp_path: Path) -> Iterator[Daemon]:
    """A test's own."""
    with Daemon("scheduler", log=tmp_path / "scheduler.log") as daemon:
        yield daemon


@pytest.fixture
def own_node(tmp_path: Path, own_scheduler: Daemon) -> Iterator[Daemon]:
    """A test's own."""
    with node_of(own_scheduler.address, tmp_path / "node.log", "--attr", "zone=a") as daemon:
        yield daemon


# ---- starting --------------------------------------------------------------------------------


@pytest.mark.real_starts
def test_the_announcement_is_one_line_of_json_with_the_real_address(scheduler: Daemon, node: Daemon) -> None:
    assert scheduler.announcement["daemon"] == "scheduler"
    assert scheduler.announcement["pid"] == scheduler.process.pid
    assert scheduler.port > 0
    assert node.announcement["daemon"] == "node_monitor"
    assert node.announcement["nodes"] == ["n"]
    assert {daemon.announcement["profile"] for daemon in (scheduler, node)} == {"default"}
    for daemon in (scheduler, node):
        assert http(daemon.address, "/livez") == (200, "ok\n")


@pytest.mark.parametrize("module", ["scheduler", "node_monitor"])
@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--nonsense"], "--nonsense"),
        (["--port", "x"], "'x'"),
        (["--port", "-1"], "port"),
        (["--heartbeat-s", "0"], "heartbeat_s"),
        (["--host", "0.0.0.0"], "tokens (--token-file or SPARROW_TOKEN) or mutual TLS"),
        (["--token-file", "/nonexistent"], "token_file"),
        (["--config", "/nonexistent"], "/nonexistent"),
    ],
)
def test_a_mistake_is_one_line_and_an_exit_code(module: str, flags: list[str], said: str) -> None:
    """One of them is executed; to parse options the others are forked."""
    command, environment = [sys.executable, "-m", module, *flags], clean_environment()
    if flags == ["--nonsense"]:
        answer = subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT_S, env=environment, check=False
        )
    else:
        answer = forked_starts.run(command, env=environment)
    assert answer.returncode in (1, 2)
    assert answer.stdout == ""
    assert answer.stderr.count("\n") == 1, answer.stderr
    assert said in answer.stderr


def test_a_port_that_is_taken_is_one_line(scheduler: Daemon) -> None:
    answer = subprocess.run(
        [sys.executable, "-m", "scheduler", "--port", str(scheduler.port)],
        capture_output=True, text=True, timeout=TIMEOUT_S, env=clean_environment(), check=False,
    )  # fmt: skip
    assert answer.returncode == 1
    assert answer.stderr.count("\n") == 1, answer.stderr
    assert scheduler.address in answer.stderr


@pytest.mark.real_starts
def test_options_by_flag_environment_and_file(tmp_path: Path, own_scheduler: Daemon) -> None:
    config = tmp_path / "node.toml"
    config.write_text(f'scheduler = "{own_scheduler.address}"\nslots = 5\nnode_id = "file"\nattr = ["zone=file"]\n')
    flags = ["--config", str(config), "--slots", "3"]
    with Daemon("node_monitor", *flags, log=tmp_path / "log", SPARROW_NODE_ID="environment", SPARROW_SLOTS="4"):
        wait_for_nodes(own_scheduler.address, "environment")
        node = nodes_of(own_scheduler.address)["environment"]
        assert (node["slots"], node["attributes"]) == (3, {"zone": "file"})


def test_several_node_monitors_in_one_process(tmp_path: Path, own_scheduler: Daemon) -> None:
    flags = ["--scheduler", own_scheduler.address, "--node-id", "many", "--count", "20", "--slots", "2"]
    with Daemon("node_monitor", *flags, log=tmp_path / "log") as daemon, Client(own_scheduler.address) as client:
        wait_for_nodes(own_scheduler.address, *daemon.announcement["nodes"])
        assert len(daemon.announcement["nodes"]) == 20
        report = client.submit_job(JobSpec([b""] * 1000, app="noop")).report(TIMEOUT_S)
        assert report.count(TaskStatus.FINISHED) == 1000
        assert len({task.node for task in report.tasks}) > 1


# ---- HTTP ------------------------------------------------------------------------------------


def test_readyz_says_why_not(own_scheduler: Daemon) -> None:
    assert http(own_scheduler.address, "/readyz") == (503, "no node monitor is connected\n")


def test_health_and_metrics(scheduler: Daemon, node: Daemon) -> None:
    for daemon in (scheduler, node):
        assert http(daemon.address, "/livez") == (200, "ok\n")
        assert http(daemon.address, "/readyz") == (200, "ok\n")
        status, metrics = http(daemon.address, "/metrics")
        assert status == 200
        assert "\n# TYPE sparrow_" in metrics
        samples = [line for line in metrics.splitlines() if line and not line.startswith("#")]
        assert samples
        assert all(line.startswith("sparrow_") for line in samples)


def test_metrics_count(own_scheduler: Daemon, own_node: Daemon) -> None:
    with Client(own_scheduler.address) as client:
        client.submit_job(JobSpec([b""] * 25, app="noop")).results(TIMEOUT_S)
    finished = [
        line
        for line in http(own_scheduler.address, "/metrics")[1].splitlines()
        if "finished" in line and line.endswith(" 25.0")
    ]
    assert finished


def test_nodes_and_jobs(scheduler: Daemon, node: Daemon, gate: Path) -> None:
    (listed,) = get_json(scheduler.address, "/v1/nodes")["nodes"]
    assert (listed["id"], listed["slots"], listed["state"]) == ("n", 2, "ready")
    assert listed["attributes"] == {"zone": "a"}
    assert set(listed["resources"]) == {"cpu", "memory_bytes"}
    assert {"noop", "sleep", "python"} <= set(listed["apps"])
    with Client(scheduler.address, user="ann") as client:
        job = client.submit_calls(tasks.hold, [(gate, f"m{number}") for number in range(5)], name="held")
        wait_until(lambda: tasks.started(gate, "m0", "m1"))
        (shown,) = get_json(scheduler.address, "/v1/jobs")["jobs"]
        assert (shown["id"], shown["name"], shown["user"], shown["app"]) == (job.job_id, "held", "ann", "python")
        assert (shown["tasks"], shown["running"], shown["unplaced"]) == (5, 2, 3)
        (here,) = get_json(node.address, "/v1/nodes")["nodes"]
        assert (here["id"], here["slots"], here["free_slots"]) == ("n", 2, 0)
        gate.touch()
        job.results(TIMEOUT_S)
    wait_until(lambda: get_json(scheduler.address, "/v1/jobs") == {"jobs": []})


def test_delete_cancels_a_job(scheduler: Daemon, node: Daemon, gate: Path) -> None:
    with Client(scheduler.address) as client:
        job = client.submit_calls(tasks.hold, [(gate, f"m{number}") for number in range(6)])
        wait_until(lambda: tasks.started(gate, "m0", "m1"))
        status, body = http(scheduler.address, f"/v1/jobs/{job.job_id}", "DELETE")
        assert (status, json.loads(body)) == (202, {"job": job.job_id})
        wait_until(lambda: sum(future.done() for future in job.futures) == 4)
        gate.touch()
        report = job.report(TIMEOUT_S)
    assert [task.status for task in report.tasks] == [TaskStatus.FINISHED] * 2 + [TaskStatus.CANCELLED] * 4
    assert "operator" in report.tasks[-1].error
    status, body = http(scheduler.address, f"/v1/jobs/{job.job_id}", "DELETE")
    assert status == 404
    assert job.job_id in json.loads(body)["error"]["message"]


def test_unknown_paths(scheduler: Daemon) -> None:
    assert http(scheduler.address, "/v1/nonsense")[0] == 404
    assert http(scheduler.address, "/v1/nodes", "POST")[0] == 405
    assert http(scheduler.address, "/link")[0] == 400


# ---- the token -------------------------------------------------------------------------------


@pytest.mark.rest
@pytest.mark.real_starts
def test_a_token_is_checked(tmp_path: Path) -> None:
    token_file = tmp_path / "token"
    token_file.write_text(TOKEN + "\n")
    token_file.chmod(0o600)
    with Daemon("scheduler", "--token-file", str(token_file), log=tmp_path / "scheduler.log") as scheduler:
        for path in ("/livez", "/readyz"):
            assert http(scheduler.address, path)[0] in (200, 503)
        for path in ("/metrics", "/v1/nodes", "/v1/jobs", "/v1/nonsense"):
            for given in ("", "Bearer wrong", f"Bearer {TOKEN}x", TOKEN, "Bearer \xff"):
                status, body = http(scheduler.address, path, **({"Authorization": given} if given else {}))
                assert status == 401
                assert "Authorization" in json.loads(body)["error"]["message"]
            assert http(scheduler.address, path, Authorization=f"Bearer {TOKEN}")[0] in (200, 404)

        def refused(token: str | None) -> None:  # A client's token is checked by the scheduler alone.
            with pytest.raises(NoScheduler, match="the token is missing or wrong"):
                Client(scheduler.address, token=token, connect_timeout_s=3600.0)

        with ThreadPoolExecutor() as threads:
            list(threads.map(refused, (None, TOKEN[::-1], TOKEN + "x")))
        flags = ["--scheduler", scheduler.address, "--node-id", "n", "--slots", "1"]
        bad_log = tmp_path / "bad.log"
        with (
            Daemon("node_monitor", *flags, "--log-level", "debug", log=bad_log),
            Daemon("node_monitor", *flags, log=tmp_path / "good.log", SPARROW_TOKEN=TOKEN),
            Client(scheduler.address, token=TOKEN) as client,
        ):
            wait_until(lambda: "the token is missing or wrong" in bad_log.read_text())
            assert client.submit(tasks.square, 3).result(TIMEOUT_S) == 9
            assert TOKEN not in str(client.submit(lambda: dict(os.environ)).result(TIMEOUT_S))
        for log in tmp_path.glob("*.log"):
            assert TOKEN not in log.read_text()


# ---- ending ----------------------------------------------------------------------------------


def test_sigterm_drains_a_node_monitor(tmp_path: Path, own_scheduler: Daemon, own_node: Daemon, gate: Path) -> None:
    with Client(own_scheduler.address) as client:
        job = client.submit_calls(tasks.hold, [(gate, f"m{number}") for number in range(4)])
        wait_until(lambda: tasks.started(gate, "m0", "m1"))
        own_node.signal(signal.SIGTERM)
        wait_until(lambda: http(own_node.address, "/readyz") == (503, "draining\n"))
        wait_until(lambda: nodes_of(own_scheduler.address)["n"]["state"] == "draining")
        flags = ["--scheduler", own_scheduler.address, "--node-id", "m", "--slots", "2"]
        with Daemon("node_monitor", *flags, log=tmp_path / "m.log"):
            wait_until(lambda: tasks.started(gate, "m2", "m3"), "the tasks that wait to go to another node")
            gate.touch()
            report = job.report(TIMEOUT_S)
            assert own_node.wait() == 0
            wait_for_nodes(own_scheduler.address, "m")
    assert [(task.status, task.attempts, task.node) for task in report.tasks] == [
        (TaskStatus.FINISHED, 1, "n"), (TaskStatus.FINISHED, 1, "n"),
        (TaskStatus.FINISHED, 1, "m"), (TaskStatus.FINISHED, 1, "m"),
    ]  # fmt: skip


@pytest.mark.real_starts
def test_sigterm_ends_an_idle_daemon(own_scheduler: Daemon, own_node: Daemon) -> None:
    for daemon in (own_node, own_scheduler):
        daemon.signal(signal.SIGTERM)
        assert daemon.wait() == 0


@pytest.mark.real_starts
def test_a_node_monitor_that_idles_leaves(tmp_path: Path, own_scheduler: Daemon) -> None:
    own = ("--scheduler", own_scheduler.address, "--node-id", "n", "--warm", "noop", "--idle-exit-s", "1")
    with Daemon("node_monitor", *own, log=tmp_path / "node.log") as node:
        assert node.wait() == 0
    assert "nothing was to be done for 1 s (idle_exit_s): draining" in (tmp_path / "node.log").read_text()
    wait_until(lambda: not nodes_of(own_scheduler.address), "the scheduler to see it go")


def test_a_service_manager_hears_of_start_life_and_end(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd, (tmp_path / "log").open("wb") as log:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(TIMEOUT_S)
        told = {"NOTIFY_SOCKET": systemd.getsockname(), "WATCHDOG_USEC": "60000000"}
        process = forked_starts.Popen(
            [sys.executable, "-m", "scheduler", "--port", "0"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, env=clean_environment(**told),
        )  # fmt: skip
        try:
            said = [systemd.recv(4096), systemd.recv(4096)]
            process.send_signal(signal.SIGTERM)
            said.append(systemd.recv(4096))
            assert process.wait(TIMEOUT_S) == 0
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
    assert [one.split(b"\n")[0] for one in said] == [b"READY=1", b"WATCHDOG=1", b"STOPPING=1"]


def test_a_second_signal_ends_at_once(own_scheduler: Daemon, own_node: Daemon, gate: Path) -> None:
    with Client(own_scheduler.address) as client:
        future = client.with_options(max_attempts=1).submit(tasks.hold, gate, "m")
        wait_until(lambda: tasks.started(gate, "m"))
        own_node.signal(signal.SIGTERM)
        wait_until(lambda: http(own_node.address, "/readyz")[0] == 503)
        own_node.signal(signal.SIGINT)
        assert own_node.wait() == 0
        assert not gate.exists()
        assert future.exception(TIMEOUT_S) is not None
        assert "node n was lost" in str(future.exception())


def test_draining_ends_after_its_timeout(tmp_path: Path, own_scheduler: Daemon, gate: Path) -> None:
    flags = ["--scheduler", own_scheduler.address, "--node-id", "n", "--slots", "1", "--drain-timeout-s", "0.05"]
    with Daemon("node_monitor", *flags, log=tmp_path / "log") as node, Client(own_scheduler.address) as client:
        wait_for_nodes(own_scheduler.address, "n")
        client.submit(tasks.hold, gate, "m")
        wait_until(lambda: tasks.started(gate, "m"))
        node.signal(signal.SIGTERM)
        assert node.wait() == 0


def test_sigterm_drains_a_scheduler(own_scheduler: Daemon, own_node: Daemon, gate: Path) -> None:
    with Client(own_scheduler.address, submit_timeout_s=0.0) as client:
        job = client.submit_calls(tasks.hold, [(gate, f"m{number}") for number in range(5)])
        wait_until(lambda: tasks.started(gate, "m0"))
        own_scheduler.signal(signal.SIGTERM)
        wait_until(lambda: http(own_scheduler.address, "/readyz") == (503, "draining\n"))
        with pytest.raises((Refused, NoScheduler), match="shutting down"):
            client.submit_job(JobSpec([b""], app="noop")).accepted(TIMEOUT_S)
        gate.touch()
        assert job.results(TIMEOUT_S) == [f"m{number}" for number in range(5)]
        assert own_scheduler.wait() == 0


def test_another_app_is_refused_where_the_operator_did_not_enable_it(scheduler: Daemon, node: Daemon) -> None:
    with Client(scheduler.address) as client, pytest.raises(InvalidRequest, match="command"):
        client.submit_job(JobSpec([b""], app="command")).accepted(TIMEOUT_S)


# ---- a node monitor's own socket -------------------------------------------------------------


@pytest.mark.parametrize(
    "garbage",
    rest_after(2, b"\xff" * 100, b"GET / HTTP/1.1\r\n\r\n", b"\x00\x00\x00\x01\xc3", b"\x00\x00\x00\x03\x91\x91\x01"),
)
def test_garbage_at_the_executors_socket_hurts_nobody(scheduler: Daemon, node: Daemon, garbage: bytes) -> None:
    path = node.announcement["sockets"][0]
    assert Path(path).parent.stat().st_mode & 0o077 == 0
    with Client(scheduler.address) as client, socket.socket(socket.AF_UNIX) as intruder:
        intruder.settimeout(TIMEOUT_S)
        intruder.connect(path)
        intruder.sendall(garbage)
        if garbage[:1] == b"\x00" or len(garbage) == 100:
            with contextlib.suppress(ConnectionResetError):
                assert intruder.recv(100) == b""
        assert client.gather([client.submit(tasks.square, x) for x in range(10)]) == [x * x for x in range(10)]
