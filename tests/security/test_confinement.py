"""Tasks that try to get at the daemon, at others and at the machine: real processes, as unprivileged users."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from frontends.command.tasks import command_job
from sparrow_py import Client, LocalCluster, SparrowError, TaskCancelled, TaskFailed, TaskLost, TaskStatus, start
from sparrow_py.calls import encode_arguments
from sparrow_py.wire.blobs import sha256_hex
from tests.support import forked_starts, hostile, tasks
from tests.support.daemons import Daemon, clean_environment, gone, http, workers_of
from tests.support.suites import rest_after
from tests.support.unprivileged import NOBODY, PYTHONPATH, SOMEBODY, interpreter, open_folder, takes_root
from tests.support.waiting import TIMEOUT_S, wait_until

pytestmark = pytest.mark.real_starts

__all__ = ["open_folder"]
TOKEN = "the-secret-of-a-cluster-of-32-characters-or-more"
MEMORY_BYTES_MAX = 256 << 20
CPU_S_MAX = 1
OPEN_FILES_MAX = 64
FLIPS = 2
LARGE_BYTES = 100_000


@dataclass
class Node:
    """A cluster of one node."""

    client: Client
    monitor: Daemon
    scheduler: str

    def user(self, name: str) -> Client:
        """A client of this user, by the cluster's token."""
        return Client(self.scheduler, token=TOKEN, user=name)


@dataclass
class Confined:
    """A node whose tasks run as nobody, and that runs commands."""

    node: Node
    token_file: Path
    blobs: Path
    sockets: Path


@contextmanager
def one_node(folder: Path, *flags: str, uid: int | None = None) -> Iterator[Node]:
    """Daemons with a token; the node monitor's, by an interpreter that every user may run, as this user."""
    environment = {
        "SPARROW_TOKEN": TOKEN,
        "PYTHONPATH": PYTHONPATH,
        "TMPDIR": str(folder),
        "AWS_SECRET_ACCESS_KEY": "x",
    }
    python = interpreter()
    with Daemon("scheduler", log=folder / "scheduler.log", SPARROW_TOKEN=TOKEN) as scheduler:
        flags = ("--scheduler", scheduler.address, "--slots", "2", "--node-id", "node", *flags)
        with (
            Daemon("node_monitor", *flags, log=folder / "node.log", python=python, uid=uid, **environment) as monitor,
            Client(scheduler.address, token=TOKEN) as client,
        ):
            wait_until(lambda: http(monitor.address, "/readyz")[0] == 200)
            yield Node(client, monitor, scheduler.address)


@pytest.fixture(scope="module")
def confined() -> Iterator[Confined]:
    """For tests that leave it as it is."""
    takes_root()
    with tempfile.TemporaryDirectory(prefix="sparrow-test-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        token_file, blobs, sockets = (folder / name for name in ("token", "blobs", "sockets"))
        token_file.touch(0o600)
        token_file.write_text(TOKEN)
        flags = (
            "--run-as", str(NOBODY), "--token-file", str(token_file), "--blob-dir", str(blobs),
            "--socket-dir", str(sockets), "--enable-command", "--warm", "command",
        )  # fmt: skip
        with one_node(folder, *flags) as node:
            yield Confined(node, token_file, blobs, sockets)


# ---- the daemon and its secrets ------------------------------------------------------------------


def test_a_task_of_another_user_does_not_get_at_the_daemon_or_its_files(confined: Confined) -> None:
    node, blobs = confined.node, confined.blobs
    me = node.client.submit(hostile.who).result(TIMEOUT_S)
    assert me["ids"][:2] == ((NOBODY,) * 3, (NOBODY,) * 3) and set(me["ids"][2]) <= {NOBODY}
    assert me["capabilities"] == {"0" * 16} and me["no_new_privileges"]
    assert (me["secrets"], me["directory"]) == ([], "/")
    assert psutil.Process(me["parent"]).ppid() == node.monitor.process.pid, "its parent is the fork server"
    socket_path = Path(node.monitor.announcement["sockets"][0])
    paths = [confined.token_file, socket_path.parent / "lock", blobs / "sparrow-blobs" / "lock"]
    for victim in (me["parent"], node.monitor.process.pid):
        tried = node.client.submit(hostile.attempts_on, victim, *map(str, paths)).result(TIMEOUT_S)
        assert set(tried.values()) == {"denied"}, tried
    # It cannot list what lies at the node, nor change the directories.
    for directory in (socket_path.parent, blobs / "sparrow-blobs", blobs / "sparrow-blobs" / "incoming"):
        found = directory.stat()
        assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (0, NOBODY, 0o710), directory
    assert stat.S_IMODE(Path(me["files"]).stat().st_mode) == 0o700
    assert Path(me["files"]).stat().st_uid == NOBODY


def test_a_task_does_not_get_at_an_executor_that_runs_all_users_commands(confined: Confined) -> None:
    gets_at_no_executor_of("command", confined.node)


@pytest.mark.rest
def test_a_task_does_not_get_at_an_executor_that_runs_all_users_queries(open_folder: Path) -> None:
    takes_root()
    with one_node(open_folder, "--run-as", str(NOBODY), "--warm", "sql") as node:
        gets_at_no_executor_of("sql", node)


def gets_at_no_executor_of(app: str, node: Node) -> None:
    begin = ["-s", "-P", start.__file__, f"frontends.{app}.executor"]
    monitor, victims = psutil.Process(node.monitor.process.pid), list[int]()
    wait_until(lambda: victims.extend(_hidden(monitor, begin)) or victims, f"a hidden executor of {app}")
    tried = node.client.submit(hostile.attempts_on, victims[0]).result(TIMEOUT_S)
    assert set(tried.values()) == {"denied"}, tried


def _hidden(monitor: psutil.Process, begin: list[str]) -> Iterator[int]:
    """Its children that were started so and are not dumpable: the kernel gives what is in /proc of them to root."""
    for child in monitor.children():
        with suppress(psutil.NoSuchProcess, FileNotFoundError):
            if child.cmdline()[1:5] == begin and Path(f"/proc/{child.pid}/environ").stat().st_uid == 0:
                yield child.pid


@pytest.mark.parametrize("daemon", rest_after(1, "node monitor", "scheduler"))
def test_a_task_of_the_same_user_does_not_get_at_a_daemons_memory_or_environment(
    open_folder: Path, daemon: str
) -> None:
    takes_root()
    os.chown(open_folder, NOBODY, NOBODY)
    interpreter()
    with one_node(open_folder, uid=NOBODY) as node:
        victim = node.monitor.process.pid
        if daemon == "node monitor":
            tried = node.client.submit(hostile.attempts_on, victim).result(TIMEOUT_S)
            assert set(tried.values()) == {"denied"}, tried
            me = node.client.submit(hostile.who).result(TIMEOUT_S)
            assert me["secrets"] == []
            return
        environment = {"SPARROW_TOKEN": TOKEN, "PYTHONPATH": PYTHONPATH}
        log = open_folder / "second.log"
        with Daemon("scheduler", log=log, python=interpreter(), uid=NOBODY, **environment) as scheduler:
            tried = node.client.submit(hostile.attempts_on, scheduler.process.pid).result(TIMEOUT_S)
            assert set(tried.values()) == {"denied"}, tried


@pytest.mark.rest
def test_large_data_go_to_and_from_tasks_of_another_user_and_nothing_is_left(open_folder: Path) -> None:
    takes_root()
    blobs = open_folder / "blobs" / "sparrow-blobs"
    with one_node(open_folder, "--run-as", str(NOBODY), "--blob-dir", str(blobs.parent), "--enable-command") as node:
        large = tasks.pattern(3_000_000)
        assert node.client.submit(tasks.digest, large).result(TIMEOUT_S) == tasks.digest(large)
        assert node.client.submit(tasks.pattern, 3_000_000).result(TIMEOUT_S) == large
        for file in blobs.iterdir():
            if file.is_file() and file.name != "lock":
                found = file.stat()
                assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (0, NOBODY, 0o440), file
        job = node.client.submit_job(command_job([["id", "-u"], ["head", "-c", "200000", "/dev/zero"]]))
        assert str(NOBODY).encode() in job.futures[0].result(TIMEOUT_S)
        assert len(job.futures[1].result(TIMEOUT_S)) > 200_000
        socket_path = Path(node.monitor.announcement["sockets"][0])
    assert [entry.name for entry in blobs.iterdir()] == ["lock"]
    assert not socket_path.parent.exists()


@pytest.mark.rest
def test_tasks_that_lie_about_their_results_get_nothing_by_it(open_folder: Path) -> None:
    """They plant nothing under the hash of another user's input, and have root read and delete nothing of its own."""
    takes_root()
    blobs = open_folder / "blobs"
    outside = open_folder / "outside"
    (outside / "inner").mkdir(parents=True)
    (outside / "secret").write_bytes(bytes(LARGE_BYTES))
    (outside / "secret").chmod(0o600)
    with one_node(open_folder, "--run-as", str(NOBODY), "--blob-dir", str(blobs), "--slots", "1") as node:
        victim = tasks.pattern(3_000_000)
        once = node.client.with_options(max_attempts=1)
        planted = once.submit(hostile.plant, bytes(3_000_000), sha256_hex(encode_arguments((victim,), {})))
        with pytest.raises(TaskFailed, match="the result's file has the SHA-256"):
            planted.result(TIMEOUT_S)
        assert node.client.submit(tasks.digest, victim).result(TIMEOUT_S) == tasks.digest(victim)
        for name in ("secret", "inner"):
            size = (outside / name).stat().st_size
            for _ in range(FLIPS):
                with suppress(SparrowError):
                    once.submit(hostile.through_a_link, str(outside), name, max(size, LARGE_BYTES)).result(TIMEOUT_S)
        folder = node.client.submit(hostile.leave_a_mess, 1000, 1500).result(TIMEOUT_S)
    assert (outside / "inner").is_dir()
    secret = outside / "secret"
    assert (secret.stat().st_uid, stat.S_IMODE(secret.stat().st_mode), secret.stat().st_size) == (0, 0o600, LARGE_BYTES)
    assert not os.path.lexists(folder)
    assert [entry.name for entry in (blobs / "sparrow-blobs").iterdir()] == ["lock"]
    assert "Traceback" not in (open_folder / "node.log").read_text()


@pytest.mark.parametrize("mode", [0o710, 0o777])
def test_other_users_do_not_get_at_the_socket(confined: Confined, mode: int) -> None:
    """Even where somebody has opened the directory and the socket to all."""
    node = confined.node
    path = Path(node.monitor.announcement["sockets"][0])
    assert (path.stat().st_uid, stat.S_IMODE(path.stat().st_mode)) == (NOBODY, 0o600)
    assert stat.S_IMODE(confined.sockets.stat().st_mode) == 0o710
    code = f"from tests.support.hostile import connect; print(connect({str(path)!r}))"
    try:
        if mode == 0o777:
            confined.sockets.chmod(mode)
            path.chmod(mode)
        answer = subprocess.run(
            [interpreter(), "-c", code], user=SOMEBODY, group=SOMEBODY, extra_groups=[], cwd="/",
            env={"PYTHONPATH": PYTHONPATH}, capture_output=True, text=True, check=True, timeout=TIMEOUT_S,
        )  # fmt: skip
    finally:
        confined.sockets.chmod(0o710)
        path.chmod(0o600)
    if mode == 0o710:
        assert answer.stdout == "denied\n"
    else:  # Nothing was said to it, and its connection was closed.
        assert answer.stdout == "got (None, b'')\n" or "ConnectionReset" in answer.stdout
        wait_until(lambda: f"user {SOMEBODY} may not connect as an executor" in node.monitor.log.read_text())
    assert node.client.submit(tasks.square, 3).result(TIMEOUT_S) == 9


def test_tasks_do_not_attach_executors(open_folder: Path) -> None:
    """They would get other tasks' payloads. The node is this test's own, as one that has told of a connection that it
    closed does not tell of the next at once."""
    takes_root()
    with one_node(open_folder, "--run-as", str(NOBODY), "--attach", "guest") as node:
        path = node.monitor.announcement["sockets"][0]
        hello = b'[[1,1,"","guest",1,"",1]]'
        answer = node.client.submit(say_and_listen, path, len(hello).to_bytes(4, "big") + hello).result(TIMEOUT_S)
        assert answer == b""
        wait_until(lambda: f"user {NOBODY} may attach no executors here" in node.monitor.log.read_text())


def say_and_listen(path: str, said: bytes) -> bytes:
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(path)
        peer.sendall(said)
        try:
            return peer.recv(1)
        except ConnectionResetError:
            return b""


@pytest.mark.parametrize(
    ("flags", "uid", "reason"),
    [
        (["--run-as", "no-such-user"], None, "a user of this machine"),
        (["--run-as", "0"], NOBODY, "it takes root to start executors as another"),
        (["--run-as-processes-max", "100"], None, "0 unless run_as is another user"),
        (["--task-cpu-s-max", "-1"], None, "0 for no limit, or a whole number from 1"),
        (["--task-memory-bytes-max", "1000"], None, "0 for no limit, or a whole number from 67108864"),
    ],
)
def test_confinement_that_cannot_be_is_refused_at_start(flags: list[str], uid: int | None, reason: str) -> None:
    command = ["-m", "node_monitor", "--port", "0", *flags]
    if uid is None:
        ended = forked_starts.run([sys.executable, *command], env=clean_environment())
    else:
        takes_root()
        ended = subprocess.run(
            [interpreter(), *command], user=uid, group=uid, extra_groups=[], cwd="/",
            env=clean_environment(PYTHONPATH=PYTHONPATH),
            capture_output=True, text=True, check=False, timeout=TIMEOUT_S,
        )  # fmt: skip
    assert (ended.returncode, ended.stdout) == (2, "")
    assert reason in ended.stderr and "Traceback" not in ended.stderr


# ---- nothing outlives its end --------------------------------------------------------------------


@pytest.mark.parametrize("how", rest_after(1, "cancelled", "time-out", "executor is killed"))
@pytest.mark.rest
def test_a_daemon_that_a_call_makes_is_ended_with_its_worker(tmp_path: Path, how: str) -> None:
    """It has a session of its own, and its parent has ended (fork, setsid, fork). Another worker's goes on."""
    mine, others = tmp_path / "mine", tmp_path / "others"
    with LocalCluster(slots=2) as cluster, Client(cluster) as client:
        monitor = cluster.node_processes[0]
        client.submit(hostile.daemonise, others)
        wait_until(others.exists)
        options: dict[str, Any] = {"task_timeout_s": 2.0} if how == "time-out" else {}
        future = client.with_options(max_attempts=1, **options).submit(hostile.daemonise, mine)
        wait_until(mine.exists)
        if how == "cancelled":
            client.cancel(future, running=True)
        elif how == "executor is killed":
            parents = {psutil.Process(int(mark.read_text())).ppid() for mark in (mine, others)}
            assert len(parents) == 2 and parents <= workers_of(monitor.pid), "orphans are their workers' children"
            os.kill(psutil.Process(int(mine.read_text())).ppid(), signal.SIGKILL)
        with pytest.raises((TaskCancelled, CancelledError, TaskFailed, TaskLost)):
            future.result(TIMEOUT_S)
        wait_until(lambda: gone(int(mine.read_text())))
        assert not gone(int(others.read_text()))
    assert gone(int(others.read_text())), "it has outlived the node monitor"


def test_a_chain_of_processes_that_grows_does_not_outlive_its_worker(tmp_path: Path) -> None:
    alive, outlived = tmp_path / "alive", tmp_path / "outlived"
    with LocalCluster(slots=1) as cluster, Client(cluster) as client:
        future = client.with_options(max_attempts=1).submit(hostile.outrun, alive, outlived)
        with pytest.raises(TaskLost):
            future.result(TIMEOUT_S)
        wait_until(lambda: not hostile.is_locked(alive))
        assert not outlived.exists(), "nobody killed it"
        assert client.submit(tasks.square, 3).result(TIMEOUT_S) == 9


@pytest.mark.rest
@pytest.mark.parametrize("victim", ["executor", "node monitor"])
def test_a_daemon_that_a_command_makes_is_ended_whoever_is_killed(tmp_path: Path, victim: str) -> None:
    mark = tmp_path / "daemon"
    with LocalCluster(slots=1, enable_command=True) as cluster, Client(cluster) as client:
        client.submit_job(command_job([["sh", "-c", f"{hostile.daemon_script(mark)}; sleep 1000"]], max_attempts=1))
        wait_until(mark.exists)
        monitor = psutil.Process(cluster.node_processes[0].pid)
        executor = next(child for child in monitor.children() if "frontends.command.executor" in child.cmdline())
        (executor if victim == "executor" else monitor).kill()
        wait_until(lambda: gone(int(mark.read_text())))


# ---- limits --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def limited() -> Iterator[LocalCluster]:
    limits = {"memory-bytes": MEMORY_BYTES_MAX, "cpu-s": CPU_S_MAX, "open-files": OPEN_FILES_MAX}
    flags = [text for name, limit in limits.items() for text in (f"--task-{name}-max", str(limit))]
    with LocalCluster(slots=2, enable_command=True, node_options=flags) as cluster:
        yield cluster


def test_a_call_that_takes_too_much_memory_fails_and_its_worker_goes_on(limited: LocalCluster) -> None:
    with Client(limited) as client:
        with pytest.raises(MemoryError):
            client.submit(hostile.allocate, 2 * MEMORY_BYTES_MAX).result(TIMEOUT_S)
        assert client.submit(hostile.allocate, MEMORY_BYTES_MAX // 4).result(TIMEOUT_S) == MEMORY_BYTES_MAX // 4


@pytest.mark.rest
def test_a_call_that_takes_too_much_cpu_time_has_failed_and_what_many_calls_take_together_is_no_matter(
    limited: LocalCluster,
) -> None:
    with Client(limited) as client:
        with pytest.raises(TaskFailed, match="it used more than task_cpu_s_max = 1 s of CPU time"):
            client.submit(tasks.burn, 60.0).result(TIMEOUT_S)
        for _ in range(3):  # One after the other, so all by the worker that was used last.
            client.with_options(max_attempts=1).submit(tasks.burn, 0.5 * CPU_S_MAX).result(TIMEOUT_S)


def test_a_call_that_opens_too_many_files_fails(limited: LocalCluster) -> None:
    with Client(limited) as client:
        with pytest.raises(OSError, match="Too many open files"):
            client.submit(hostile.open_files, OPEN_FILES_MAX).result(TIMEOUT_S)
        assert client.submit(hostile.open_files, OPEN_FILES_MAX // 2).result(TIMEOUT_S) == OPEN_FILES_MAX // 2


@pytest.mark.parametrize(
    ("code", "error", "said"),
    [
        (f"bytes({2 * MEMORY_BYTES_MAX})", "exit code 1", b"MemoryError"),
        ("while True: pass", "it used more than task_cpu_s_max = 1 s of CPU time", b""),
        (f"[open('/dev/null') for _ in range({OPEN_FILES_MAX})]", "exit code 1", b"Too many open files"),
        ("import resource as r; r.setrlimit(r.RLIMIT_DATA, (1 << 40, 1 << 40))", "", b""),
    ],
    ids=["memory", "cpu", "files", "raised"],
)
def test_a_command_has_limits_of_its_own(limited: LocalCluster, code: str, error: str, said: bytes) -> None:
    if not error:  # No other user than root is kept from raising them.
        if os.geteuid() == 0:
            pytest.skip("root may raise limits")
        error, said = "exit code 1", b"not allowed to raise maximum limit"
    with Client(limited) as client:
        job = client.submit_job(command_job([[sys.executable, "-S", "-c", code]]))
        (task,) = job.report(TIMEOUT_S).tasks
        assert (task.status, task.error, task.attempts) == (TaskStatus.FAILED, error, 1)
        with pytest.raises(TaskFailed) as caught:
            job.futures[0].result()
        assert said in (caught.value.result or b"")


@pytest.mark.rest
def test_a_user_has_only_so_many_processes(open_folder: Path) -> None:
    takes_root()
    others = sum(process.num_threads() for process in psutil.process_iter() if process.uids().real == NOBODY)
    limit = others + 40
    with one_node(open_folder, "--run-as", str(NOBODY), "--run-as-processes-max", str(limit)) as node:
        assert 0 < node.client.submit(hostile.fork_many, limit + 10).result(TIMEOUT_S) < limit
        assert node.client.submit(tasks.square, 3).result(TIMEOUT_S) == 9


# ---- poison --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def poisoned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(node_monitors=2, slots=2, log_dir=tmp_path_factory.mktemp("logs")) as cluster:
        yield cluster


@pytest.mark.rest
@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("exit", "exited with code 3"),
        ("kill", "was killed by SIGKILL"),
        ("segfault", "was killed by SIGSEGV"),
        ("abort", "was killed by SIGABRT"),
        ("overflow", "was killed by SIGSEGV"),
    ],
)
def test_a_task_that_kills_its_executor_each_time_is_given_up_and_others_are_served(
    poisoned: LocalCluster, how: str, reason: str
) -> None:
    with Client(poisoned) as client, Client(poisoned, user="another") as another:
        poison = client.submit(hostile.die, how)
        served = [another.submit(tasks.square, number) for number in range(20)]
        assert another.gather(served) == [number * number for number in range(20)]
        with pytest.raises(TaskLost, match=rf"started 3 times: executor \S+ {reason}"):
            poison.result(TIMEOUT_S)
        assert another.submit(tasks.square, 5).result(TIMEOUT_S) == 25


@pytest.mark.rest
def test_a_node_where_every_task_dies_is_avoided_and_comes_back(tmp_path: Path) -> None:
    """The one node can start executors, and each task there dies; when it is mended, tasks that waited run."""
    broken = tmp_path / "broken"
    broken.touch()
    with LocalCluster(slots=1, log_dir=tmp_path / "logs") as cluster:
        users = [Client(cluster, user=f"user{number}") for number in range(4)]
        try:
            for client in users[:3]:
                with pytest.raises(TaskLost):
                    client.with_options(max_attempts=1).submit(tasks.die_if, broken).result(TIMEOUT_S)
            broken.unlink()
            assert users[3].with_options(max_attempts=1).submit(tasks.die_if, broken).result(TIMEOUT_S) == "alive"
        finally:
            for client in users:
                client.close()
        _, metrics = http(cluster.node_processes[0].address, "/metrics")
        assert "sparrow_node_monitor_suspicions_total 1.0" in metrics
