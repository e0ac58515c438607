"""Users with accounts of their own on one node: real processes of two accounts, as root starts them.

What one user's task may not do to another's is tried by tasks; `carl` has no account.
"""

from __future__ import annotations

import os
import signal
import stat
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from frontends.command.tasks import command_job
from sparrow_py import Client, SparrowError, TaskLost
from sparrow_py.calls import encode_value
from sparrow_py.executors import executor_protocol as x
from tests.security.test_confinement import TOKEN, Node, one_node
from tests.support import forked_starts, hostile, nested_tasks, tasks
from tests.support.daemons import clean_environment
from tests.support.unprivileged import NOBODY, PYTHONPATH, another_account, interpreter, takes_root
from tests.support.waiting import TIMEOUT_S, wait_until

pytestmark = pytest.mark.real_starts

LARGE_BYTES = 3_000_000


@dataclass
class Apart:
    """A node where anna's tasks run as nobody and bert's as another account."""

    node: Node
    folder: Path
    anna: Client
    bert: Client
    account: str
    uid: int
    """Bert's."""

    @property
    def blobs(self) -> Path:
        return self.folder / "blobs" / "sparrow-blobs"


@pytest.fixture(scope="module")
def apart() -> Iterator[Apart]:
    takes_root()
    account, uid = another_account()
    with tempfile.TemporaryDirectory(prefix="sparrow-test-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "shared").mkdir()
        (folder / "shared").chmod(0o1777)
        flags = ("--run-as", f"anna={NOBODY}", "--run-as", f"bert={account}", "--blob-dir", str(folder / "blobs"))
        with (
            one_node(folder, *flags, "--enable-command", "--slots", "4") as node,
            node.user("anna") as anna,
            node.user("bert") as bert,
        ):
            yield Apart(node, folder, anna, bert, account, uid)


def about() -> dict[str, Any]:
    """This worker, for another's task to look for."""
    return hostile.who() | {"pid": os.getpid(), "socket": os.environ[x.SOCKET_VARIABLE], "user": os.environ["USER"]}


def attack(pids: list[int], paths: list[str], socket: str) -> dict[str, str]:
    """What comes of looking into these processes, sending them signals, reading the files and connecting."""
    found = {f"{pid} {name}": told for pid in pids for name, told in hostile.attempts_on(pid, *paths).items()}
    for pid in pids:
        found[f"{pid} signal"] = hostile._outcome(lambda pid=pid: os.kill(pid, signal.SIGTERM))  # type: ignore[misc]
    found |= {f"list {path}": hostile._outcome(lambda path=path: os.listdir(path)) for path in paths}  # type: ignore[misc]  # noqa: PTH208
    return found | {"socket": hostile.connect(socket)}


def test_each_users_tasks_run_as_that_users_account(apart: Apart) -> None:
    mine, others = (client.submit(about).result(TIMEOUT_S) for client in (apart.anna, apart.bert))
    for me, uid in ((mine, NOBODY), (others, apart.uid)):
        assert me["ids"][0] == (uid,) * 3 and me["secrets"] == [] and me["no_new_privileges"]
        assert me["capabilities"] == {"0" * 16}
        assert Path(me["files"]).stat().st_uid == Path(me["socket"]).stat().st_uid == uid
        assert psutil.Process(me["parent"]).uids().real == uid, "its fork server's"
    assert others["user"] == apart.account
    assert mine["parent"] != others["parent"] and mine["socket"] != others["socket"]
    ids = [
        client.submit_job(command_job([["id", "-u"]])).futures[0].result(TIMEOUT_S)
        for client in (apart.anna, apart.bert)
    ]
    assert str(NOBODY).encode() in ids[0] and str(apart.uid).encode() in ids[1]


def test_a_task_gets_at_nothing_of_a_user_of_another_account(apart: Apart) -> None:
    """Worker and server, a command that runs, directory, socket; the two directions are alike."""
    mark = apart.folder / "shared" / "command"
    secret = "MY_SECRET=x exec sleep 1000"
    running = apart.anna.submit_job(command_job([["sh", "-c", f"echo $$ >{mark}.new; mv {mark}.new {mark}; {secret}"]]))
    wait_until(mark.exists)
    mine = apart.anna.submit(about).result(TIMEOUT_S)
    others = apart.bert.submit(about).result(TIMEOUT_S)
    command = int(mark.read_text())
    wait_until(lambda: psutil.Process(command).name() == "sleep")
    victims = [mine["pid"], mine["parent"], command]
    tried = apart.bert.submit(attack, victims, [mine["files"]], mine["socket"]).result(TIMEOUT_S)
    assert len(tried) > 20 and set(tried.values()) == {"denied"}, tried
    victims = [others["pid"], others["parent"], apart.node.monitor.process.pid]
    tried = apart.anna.submit(attack, victims, [others["files"]], others["socket"]).result(TIMEOUT_S)
    assert set(tried.values()) == {"denied"}, tried
    own = f"{mine['files']}/own"
    apart.anna.submit(put, own, 1).result(TIMEOUT_S)
    for path in (f"/proc/{command}/environ", own):
        assert apart.anna.submit(read_bytes, path).result(TIMEOUT_S).startswith("got"), "her own are open to her"
    running.cancel(running=True)


def read_bytes(path: str) -> str:
    return hostile._outcome(lambda: Path(path).read_bytes()[:1])


def here(apart: Apart) -> set[Path]:
    return {path for path in apart.blobs.iterdir() if path.is_file() and path.name != "lock"}


def test_large_data_of_both_arrive_and_neither_reads_the_others(apart: Apart) -> None:
    before = here(apart)
    large = {name: tasks.pattern(LARGE_BYTES)[:-1] + name.encode() for name in ("a", "b")}
    clients = {"a": apart.anna, "b": apart.bert}
    inputs: dict[str, set[Path]] = {}
    for name, client in clients.items():
        known = here(apart)
        assert client.submit(tasks.digest, large[name]).result(TIMEOUT_S) == tasks.digest(large[name])
        inputs[name] = here(apart) - known
    results = here(apart)
    for client in clients.values():
        assert client.submit(tasks.pattern, LARGE_BYTES).result(TIMEOUT_S) == tasks.pattern(LARGE_BYTES)
    results = here(apart) - results
    assert len(inputs["a"]) == len(inputs["b"]) == len(results) == 1, here(apart) - before
    for name, other in (("a", "b"), ("b", "a")):
        (own,), (others,), (result,) = inputs[name], inputs[other], results
        assert clients[name].submit(read_bytes, str(own)).result(TIMEOUT_S).startswith("got"), "tasks read it there"
        assert clients[name].submit(read_bytes, str(others)).result(TIMEOUT_S) == "denied"
        assert clients[name].submit(read_bytes, str(result)).result(TIMEOUT_S) == "denied", "its client fetches it"
        assert clients[name].submit(read_bytes, str(apart.blobs)).result(TIMEOUT_S) != "got"
    for path in (apart.blobs, apart.blobs / "incoming", Path(apart.node.monitor.announcement["sockets"][0]).parent):
        assert (path.stat().st_uid, path.stat().st_mode & 0o007) == (0, 0), "others do not enter"


def test_data_that_both_need_are_there_for_both(apart: Apart) -> None:
    shared = bytes(LARGE_BYTES)
    for client in (apart.anna, apart.bert, apart.anna):
        assert client.submit(tasks.digest, shared).result(TIMEOUT_S) == tasks.digest(shared)


def open_my_directory() -> str:
    folder = os.environ["SPARROW_EXECUTOR_FILES"]
    Path(folder).chmod(0o777)
    return folder


def put(path: str, size: int) -> None:
    Path(path).write_bytes(bytes(size))
    Path(path).chmod(0o666)


def name_it(path: str, size: int) -> bytes:
    """Return bytes of this size, and name the other file as the one that has them."""
    hostile._name_as_result(path, "")
    return bytes(size)


def test_a_file_of_another_account_is_no_result(apart: Apart) -> None:
    """It would be taken from whose it is, and given to who only may read it."""
    once = apart.bert.with_options(max_attempts=1)
    forged = f"{apart.bert.submit(open_my_directory).result(TIMEOUT_S)}/forged"
    apart.anna.submit(put, forged, len(encode_value(bytes(LARGE_BYTES)))).result(TIMEOUT_S)
    with pytest.raises(SparrowError):
        once.submit(name_it, forged, LARGE_BYTES).result(TIMEOUT_S)
    said = f"belongs to user {NOBODY}; allowed: {apart.uid}"
    wait_until(lambda: said in apart.node.monitor.log.read_text())
    assert apart.bert.submit(tasks.square, 3).result(TIMEOUT_S) == 9


def test_a_user_without_an_account_is_told_so(apart: Apart) -> None:
    reason = r"no connected node takes it; node node: user 'carl' has no account"
    with apart.node.user("carl") as carl, pytest.raises(TaskLost, match=reason):
        carl.submit(tasks.square, 3).result(TIMEOUT_S)
    assert apart.anna.submit(tasks.square, 3).result(TIMEOUT_S) == 9


@pytest.mark.rest
def test_nothing_is_left_and_there_is_no_app_sql() -> None:
    """Tasks of its account could end its executor, look into the next and change what it answers others."""
    takes_root()
    account, _ = another_account()
    with tempfile.TemporaryDirectory(prefix="sparrow-test-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        sockets, blobs = folder / "sockets", folder / "blobs"
        flags = ["--run-as", f"*={NOBODY}", "--run-as", f"anna={account}", "--socket-dir", str(sockets)]
        for _ in range(2):  # And again with what the first has left.
            with one_node(folder, *flags, "--blob-dir", str(blobs)) as node, node.user("anna") as anna:
                assert "sql" not in node.client.nodes()[0].apps
                assert anna.submit(tasks.square, 3).result(TIMEOUT_S) == 9
                assert node.client.submit(hostile.who).result(TIMEOUT_S)["ids"][0] == (NOBODY,) * 3
                assert len(list(sockets.glob("as-*"))) == 2
            assert [entry.name for entry in sockets.iterdir()] == ["lock"]
            assert stat.S_IMODE(sockets.stat().st_mode) == 0o700
            assert [entry.name for entry in (blobs / "sparrow-blobs").iterdir()] == ["lock"]


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["--run-as", "anna=no-such-user"], "'no-such-user' is not valid; allowed: a user of this machine"),
        (["--run-as", "anna=root", "--run-as", "bert=nobody"], "another user than the daemon's own"),
        (["--run-as", "anna=nobody", "--run-as", "anna=daemon"], "one account for each user; 'anna' has 'nobody'"),
        (["--run-as", "nobody", "--run-as", "anna=daemon"], "USER=ACCOUNT where there are several"),
        (["--run-as", "anna=nobody", "--warm", "sql"], "run it on a node monitor of its own with one account"),
        (["--run-as", "anna=nobody", "--sql-data", "/data"], "'/data' is not valid; allowed: no app sql"),
        (["--run-as", "anna=nobody"], "unless tokens or TLS say who a user is"),
    ],
)
def test_accounts_that_cannot_be_are_refused_at_start_in_one_line(flags: list[str], reason: str) -> None:
    takes_root()
    token = {} if "tokens" in reason else {"SPARROW_TOKEN": TOKEN}
    python = interpreter() if {"--warm", "--sql-data"} & set(flags) else sys.executable
    command = [python, "-m", "node_monitor", "--port", "0", *flags]
    ended = forked_starts.run(command, env=clean_environment(PYTHONPATH=PYTHONPATH, **token))
    assert (ended.returncode, ended.stdout) == (2, "")
    assert reason in ended.stderr and len(ended.stderr.splitlines()) == 1, ended.stderr


@pytest.mark.rest
def test_a_task_submits_tasks_of_its_own_as_its_account(apart: Apart) -> None:
    assert apart.anna.submit(nested_tasks.fib, 3).result(TIMEOUT_S) == 2
    assert apart.bert.submit(nested_tasks.large, LARGE_BYTES).result(TIMEOUT_S) == bytes(LARGE_BYTES)
