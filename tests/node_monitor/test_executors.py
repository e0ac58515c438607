"""The executors of a node monitor, which are real processes and sockets, and those who are told of them."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from node_monitor.executors import executors
from node_monitor.executors.apps import App, offered_apps
from node_monitor.executors.executor_state import AppPlan
from node_monitor.executors.executors import ExecutorPool
from node_monitor.executors.socket_directory import SOCKET_PATH_BYTES_MAX, SocketDirectory, remove_stale_directories
from node_monitor.options import NodeMonitorOptions
from sparrow_py.errors import InvalidOption
from sparrow_py.executors import executor_protocol as x
from sparrow_py.executors.executor_files import read
from sparrow_py.job import TaskStatus
from tests.support.stores import store_in
from tests.support.waiting import TIMEOUT_S

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "executor_stdlib.py"
TEXT = b"the bird and the bee"
HELLO = [1, 1, "", "guest", 1, "", 1]
NUMBERS = itertools.count()


class Events:
    """Keeps what it is told, in order, for `next`."""

    def __init__(self) -> None:
        self._told: asyncio.Queue[tuple[Any, ...]] = asyncio.Queue()
        self.user: str | None = ""
        """Whose all runs are; None: no executor has any."""
        self.clients: list[Any] = []
        """Clients within tasks, as (executor, run), and their ends."""

    def executor_up(self, executor: str, app: str, places: int, version: int) -> None:
        self._told.put_nowait(("up", executor, app, places))

    def executor_failed(self, app: str, reason: str) -> None:
        self._told.put_nowait(("failed", app, reason))

    def executor_leaving(self, executor: str) -> None:
        """Its end follows, and says why."""

    def executor_down(self, executor: str, reason: str, failure: str = "") -> None:
        self._told.put_nowait(("down", executor, reason))

    def user_of(self, executor: str, run: int) -> str | None:
        return self.user

    def executor_said(self, executor: str, messages: list[Any]) -> None:
        self._told.put_nowait(("said", executor, *messages))

    def task_client_came(self, executor: str, hello: x.TaskClientHello, connection: Any) -> Any:
        self.clients.append((executor, hello.run))
        return connection

    def task_client_said(self, client: Any, messages: list[Any], directory: Any) -> None:
        client.say(messages[-1])

    def task_client_gone(self, client: Any) -> None:
        self.clients.append("gone")

    @property
    def empty(self) -> bool:
        """Whether nothing was told that `next` has not passed on."""
        return self._told.empty()

    async def next(self) -> tuple[Any, ...]:
        async with asyncio.timeout(TIMEOUT_S):
            return await self._told.get()


class Rig:
    """A pool with the app "words" (the example) and the app "guest", whose executors attach."""

    def __init__(self, folder: Path, bytes_max: int = 1 << 30, **options: Any) -> None:
        self.folder = folder
        self.events = Events()
        self.store = store_in(folder / f"blobs-{next(NUMBERS)}", bytes_max)
        apps = {
            "words": App(AppPlan("words"), (sys.executable, str(EXAMPLE))),
            "mute": App(AppPlan("mute"), (sys.executable, "-c", "import sys; sys.exit(7)")),
            "guest": App(AppPlan("guest", supervised=False)),
        }
        self.pool = ExecutorPool(apps, self.events, self.store, **options)

    @property
    def incoming(self) -> Path:
        """Where executors' directories are."""
        return Path(self.store.incoming)

    async def stop(self) -> None:
        await self.pool.stop()
        await self.store.stop()

    async def started(self, app: str = "words") -> str:
        """The id of an executor of this app, which is up."""
        self.pool.start_executor(app, 1)
        kind, executor, *rest = await self.events.next()
        assert (kind, rest) == ("up", [app, 1])
        return str(executor)

    async def run(self, executor: str, run: x.Run) -> x.Done:
        """What comes of this run."""
        self.pool.send(executor, run)
        self.pool.flush()
        kind, teller, done = await self.events.next()
        assert (kind, teller, type(done)) == ("said", executor, x.Done)
        return done  # type: ignore[no-any-return]


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    rig = Rig(tmp_path)
    await rig.pool.start()
    directory = Path(rig.pool.socket_path).parent
    yield rig
    await rig.stop()
    assert not directory.exists()


class Guest:
    """An executor that attaches, and speaks JSON as a test wants it to."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def attached(cls, rig: Rig) -> tuple[Guest, str]:
        """One that said hello, and its id."""
        guest = cls(*await asyncio.open_unix_connection(rig.pool.socket_path))
        guest.say([HELLO])
        kind, executor, *rest = await rig.events.next()
        assert (kind, rest) == ("up", ["guest", 1])
        return guest, str(executor)

    def say(self, messages: Any) -> None:
        self.say_bytes(json.dumps(messages).encode())

    def say_bytes(self, body: bytes) -> None:
        self._writer.write(x.HEADER.pack(len(body)) + body)

    async def hear(self) -> Any:
        async with asyncio.timeout(TIMEOUT_S):
            (length,) = x.HEADER.unpack(await self._reader.readexactly(x.HEADER_BYTES))
            return json.loads(await self._reader.readexactly(length))

    async def cut_off(self) -> bool:
        """Whether the connection has ended, once it has."""
        async with asyncio.timeout(TIMEOUT_S):
            with contextlib.suppress(ConnectionError):
                await self._reader.read()
        self.close()
        return True

    def close(self) -> None:
        self._writer.close()


# ---- JSON and external commands --------------------------------------------------------------


async def test_an_executor_of_the_standard_library_runs_tasks(rig: Rig) -> None:
    executor = await rig.started()
    done = await rig.run(executor, x.Run(1, 0, TEXT, [b"unused"]))
    assert (done.run, done.status, json.loads(read(done.result))) == (
        1,
        TaskStatus.FINISHED,
        {"the": 2, "bird": 1, "and": 1, "bee": 1},
    )
    done = await rig.run(executor, x.Run(2, 0, b"\xff"))
    assert (done.status, done.result) == (TaskStatus.FAILED, b"")


@pytest.mark.parametrize("ours", [True, False])
async def test_the_log_says_whether_the_node_monitor_killed_an_executor(
    rig: Rig, caplog: pytest.LogCaptureFixture, ours: bool
) -> None:
    caplog.set_level("INFO", "sparrow.node_monitor.executors")
    executor = await rig.started()
    process = rig.pool._launched[executor].process
    assert process is not None
    if ours:
        rig.pool.kill(executor)
    else:
        os.kill(process.pid, signal.SIGKILL)
    assert await rig.events.next() == ("down", executor, f"executor {executor} was killed by SIGKILL")
    said = f"executor {executor} ended: was killed by SIGKILL"
    assert said + (executors.BY_US if ours else "") in caplog.messages


async def test_large_data_are_files_that_become_the_node_monitors(rig: Rig) -> None:
    executor = await rig.started()
    (mine,) = (path for path in rig.incoming.iterdir() if path.name.startswith("words"))
    (mine / "forgotten").touch()
    text = " ".join(map(str, range(20_000))).encode()
    path = rig.folder / "text"
    path.write_bytes(text)
    done = await rig.run(executor, x.Run(1, 0, x.File(str(path), len(text), hashlib.sha256(text).hexdigest())))
    assert isinstance(done.result, x.File)
    assert done.result.path == rig.store.path(done.result.hash)
    assert len(json.loads(read(done.result))) == 20_000
    assert hashlib.sha256(read(done.result)).hexdigest() == done.result.hash
    rig.pool.kill(executor)
    assert await rig.events.next() == ("down", executor, f"executor {executor} was killed by SIGKILL")
    await rig.store.remover.done()
    assert not mine.exists()
    assert rig.store.has(done.result.hash)


async def test_an_executor_that_ends_before_its_hello(rig: Rig) -> None:
    rig.pool.start_executor("mute", 1)
    assert await rig.events.next() == ("failed", "mute", "exited with code 7")
    await rig.store.remover.done()
    assert [path.name.split("-")[0] for path in rig.incoming.iterdir()] == ["attached"]


async def test_a_guest_is_told_in_json_and_finds_the_directory_for_files(rig: Rig) -> None:
    guest, executor = await Guest.attached(rig)
    rig.pool.send(executor, x.Common(3, b"all"))
    rig.pool.send(executor, x.Run(1, 3, TEXT))
    rig.pool.flush()
    assert await guest.hear() == [[11, 3, "YWxs"], [10, 1, 3, "dGhlIGJpcmQgYW5kIHRoZSBiZWU=", [], "", 0, False, ""]]
    beside = Path(rig.pool.socket_path).with_suffix(".files")
    (beside / "result").write_bytes(b"abc")
    guest.say([[2, 1, "finished", [str(beside / "result"), 3, ""], "", 1.5, 0.5], [3, []]])
    kind, _, done, returned = await rig.events.next()
    assert (kind, read(done.result), returned) == ("said", b"abc", x.Returned([]))
    assert done.result.hash == hashlib.sha256(b"abc").hexdigest()
    rig.pool.kill(executor)
    assert await guest.cut_off()
    assert await rig.events.next() == ("down", executor, f"executor {executor} disconnected")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"[", "malformed executor frame (JSON)"),
        (b'[[2,1,"finished","","\\ud800",1,0]]', "malformed executor frame (JSON)"),
        (b'[[2,1,"finished","","\xff",1,0]]', "malformed executor frame (JSON)"),
        (b"\x90", "malformed executor frame (JSON)"),
        (b'[[2,1,"finished",["/etc/passwd",1,""],"",1,0]]', "the result's file '/etc/passwd' is not in "),
        (b'[[2,1,"finished",["incoming/x",1,""],"",1,0]]', "the result's file 'incoming/x' is not in "),
        (b'[[2,1,"finished",["/\\u0000/x",1,""],"",1,0]]', "is not in "),
        (b'[[2,1,"finished",["FILES/\\u0000",1,""],"",1,0]]', "embedded null"),
        (b'[[2,1,"finished",["FILES/../x",1,""],"",1,0]]', "is not in "),
        (b'[[2,1,"finished",["FILES/..",1,""],"",1,0]]', "is not in "),
        (b'[[2,1,"finished",["FILES/link",2,"HASH"],"",1,0]]', "cannot be opened: Too many levels of symbolic links"),
        (b'[[2,1,"finished",["FILES/file",3,"HASH"],"",1,0]]', "is not a plain file of 3 bytes"),
        (b'[[2,1,"finished",["FILES/none",2,"HASH"],"",1,0]]', "cannot be opened: No such file or directory"),
        (b'[[2,1,"finished",["FILES/hard link",2,"HASH"],"",1,0]]', "has 2 names; allowed: 1"),
        (b'[[2,1,"finished",["FILES/directory",2,"HASH"],"",1,0]]', "is not a plain file of 2 bytes"),
        (b'[[2,1,"finished",["FILES/pipe",0,"HASH"],"",1,0]]', "is not a plain file of 0 bytes"),
    ],
)
async def test_a_guest_that_breaks_the_protocol_is_cut_off(
    rig: Rig, body: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    incoming = Path(rig.pool.socket_path).with_suffix(".files")
    (incoming / "file").write_bytes(b"ab")
    (incoming / "link").symlink_to("file")
    (rig.folder / "secret").write_bytes(b"ab")
    (incoming / "hard link").hardlink_to(rig.folder / "secret")
    (incoming / "directory").mkdir()
    os.mkfifo(incoming / "pipe")
    theirs = {entry.name for entry in incoming.iterdir()}
    guest, executor = await Guest.attached(rig)
    guest.say_bytes(body.replace(b"FILES", str(incoming).encode()).replace(b"HASH", b"ab" * 32))
    assert await rig.events.next() == ("down", executor, f"executor {executor} disconnected")
    assert await guest.cut_off()
    assert f"executor {executor} broke the protocol and is cut off: " in caplog.text
    assert reason in caplog.text
    assert {entry.name for entry in incoming.iterdir()} == theirs, "it is as it was"
    assert len(rig.store.table) == 0
    assert (rig.folder / "secret").read_bytes() == b"ab"
    assert (await rig.run(await rig.started(), x.Run(1, 0, TEXT))).status is TaskStatus.FINISHED


async def test_what_cannot_be_told_cuts_off(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    guest, executor = await Guest.attached(rig)
    rig.pool.send(executor, x.Run(1, 0, x.File("/\udcff", 1, "")))
    rig.pool.flush()
    assert await rig.events.next() == ("down", executor, f"executor {executor} disconnected")
    assert await guest.cut_off()
    assert "text that JSON cannot hold" in caplog.text


@pytest.mark.parametrize("change", [(0, 2), (1, 9), (3, "words"), (3, "noop"), (3, "no such"), (4, 0), (4, 1 << 20)])
async def test_a_hello_that_cannot_be(rig: Rig, change: tuple[int, Any]) -> None:
    guest = Guest(*await asyncio.open_unix_connection(rig.pool.socket_path))
    hello = list(HELLO)
    hello[change[0]] = change[1]
    guest.say([hello])
    assert await guest.cut_off()
    another, _ = await Guest.attached(rig)
    another.close()


# ---- large results ---------------------------------------------------------------------------


class HeldStore:
    """Has the store wait with each result that it takes over until `go`."""

    def __init__(self, rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.go = asyncio.Event(), asyncio.Event()
        take = rig.store.take

        async def held(*arguments: Any) -> x.File:
            self.begun.set()
            await self.go.wait()
            return await take(*arguments)

        monkeypatch.setattr(rig.store, "take", held)


def done(run: int, result: Any = "") -> list[Any]:
    return [2, run, "finished", result, "", 1.5, 0.5]


def put(rig: Rig, name: str, content: bytes = b"abc", hash_: str = "") -> list[Any]:
    """A guest's result, as its message names it."""
    path = Path(rig.pool.socket_path).with_suffix(".files") / name
    path.write_bytes(content)
    return [str(path), len(content), hash_]


async def test_what_was_said_is_told_in_order_and_waits_only_for_files_before_it(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    guest, _ = await Guest.attached(rig)
    held = HeldStore(rig, monkeypatch)
    guest.say([done(1), done(2, put(rig, "a")), [3, []], done(3)])
    guest.say([done(4, put(rig, "b")), done(5)])
    kind, _, *first = await rig.events.next()
    assert (kind, [message.run for message in first]) == ("said", [1])
    await held.begun.wait()
    assert rig.events.empty
    held.go.set()
    told: list[Any] = []
    while len(told) < 5:
        told += (await rig.events.next())[2:]
    assert [message.run if isinstance(message, x.Done) else "returned" for message in told] == [2, "returned", 3, 4, 5]
    guest.close()
    assert (await rig.events.next())[0] == "down"


async def test_a_result_counts_though_its_executor_has_hung_up_meanwhile(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    guest, executor = await Guest.attached(rig)
    held = HeldStore(rig, monkeypatch)
    guest.say([done(1, put(rig, "a")), done(2)])
    await held.begun.wait()
    guest.close()
    rig.pool.kill(executor)
    held.go.set()
    kind, _, *told = await rig.events.next()
    assert (kind, [message.run for message in told]) == ("said", [1, 2])
    assert await rig.events.next() == ("down", executor, f"executor {executor} disconnected")


async def test_a_result_counts_though_its_executor_has_died_meanwhile(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if to take it over lasts longer than last words are waited for."""
    monkeypatch.setattr(executors, "LAST_WORDS_S", 0.01)
    executor = await rig.started()
    (mine,) = (path for path in rig.incoming.iterdir() if path.name.startswith("words"))
    held = HeldStore(rig, monkeypatch)
    rig.pool.send(executor, x.Run(1, 0, " ".join(map(str, range(20_000))).encode()))
    rig.pool.flush()
    await held.begun.wait()
    process = rig.pool._launched[executor].process
    assert process is not None
    rig.pool.kill(executor)
    await process.wait()
    await asyncio.sleep(5 * executors.LAST_WORDS_S)  # That nothing happens cannot be waited for otherwise.
    assert rig.events.empty and mine.exists()
    held.go.set()
    kind, _, told = await rig.events.next()
    assert (kind, len(json.loads(read(told.result)))) == ("said", 20_000)
    assert await rig.events.next() == ("down", executor, f"executor {executor} was killed by SIGKILL")
    await rig.store.remover.done()
    assert not mine.exists()


async def test_a_run_whose_result_cannot_be_kept_has_failed_and_its_executor_lives(tmp_path: Path) -> None:
    rig = Rig(tmp_path, bytes_max=5)
    await rig.pool.start()
    guest, _ = await Guest.attached(rig)
    guest.say([done(1, put(rig, "a", b"too large")), done(2, put(rig, "b", b"abc", "ab" * 32)), done(3)])
    for reason in ("the result is 9 bytes; at most blob_bytes_max = 5", "the result's file has the SHA-256 ba7816bf"):
        _, _, *told = await rig.events.next()
        assert (told[0].status, told[0].result) == (TaskStatus.FAILED, b"")
        assert told[0].error.startswith(reason)
    assert told[1].run == 3
    guest.close()
    await rig.stop()


async def test_a_result_that_an_executor_could_not_write_is_counted_and_the_log_says_so(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    guest, _ = await Guest.attached(rig)
    error = f"OSError: [Errno 28] the result of 80 bytes {x.NOT_KEPT}No space left on device"
    guest.say([[2, 1, "failed", "", error, 0.0, 0.0], done(2)])
    await rig.events.next()
    guest.say([[2, 3, "failed", "", error, 0.0, 0.0], done(4, put(rig, "a"))])
    await rig.events.next()
    assert rig.store.counters.no_room == 2
    line = f"no room in {rig.incoming.parent} for the result of 80 bytes: No space left on device"
    assert [record.getMessage() for record in caplog.records if "no room" in record.getMessage()] == [line] * 2
    guest.close()


async def test_the_file_of_a_run_that_an_executor_does_not_have_is_not_taken(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    guest, executor = await Guest.attached(rig)
    rig.events.user = None
    message = done(987, put(rig, "a"))
    guest.say([message])
    assert await rig.events.next() == ("down", executor, f"executor {executor} disconnected")
    assert f"executor {executor} reported run 987, which it does not have" in caplog.text
    assert Path(message[3][0]).exists() and len(rig.store.table) == 0
    guest.close()


async def test_a_pool_ends_while_a_result_is_taken_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(tmp_path)
    await rig.pool.start()
    guest, _ = await Guest.attached(rig)
    held = HeldStore(rig, monkeypatch)
    guest.say([done(1, put(rig, "a"))])
    await held.begun.wait()
    await rig.stop()
    assert await guest.cut_off()
    assert rig.events.empty


async def test_a_bug_in_the_taking_over_cuts_off_the_one_executor(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(*_: Any) -> x.File:
        raise RuntimeError("a bug")

    monkeypatch.setattr(rig.store, "take", fail)
    guest, executor = await Guest.attached(rig)
    guest.say([done(1, put(rig, "a"))])
    assert await guest.cut_off()
    assert await rig.events.next() == ("down", executor, f"executor {executor} disconnected")
    assert "a bug" in caplog.text


# ---- the socket's directory ------------------------------------------------------------------

LEAVE_A_DIRECTORY = """
import sys
from node_monitor.executors.socket_directory import SocketDirectory
print(SocketDirectory().path, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A directory in which a socket can be, however long the paths of the tests' directories are."""
    with tempfile.TemporaryDirectory(prefix="s") as path:
        yield Path(path)


def test_directories_of_dead_node_monitors_are_removed(short_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(short_path))
    (short_path / "sparrow-node-other").mkdir()
    (short_path / "sparrow-node-file").touch()
    living = SocketDirectory()
    path = os.pathsep.join(entry for entry in sys.path if entry)
    process = subprocess.Popen(
        [sys.executable, "-c", LEAVE_A_DIRECTORY],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env=os.environ | {"TMPDIR": str(short_path), "PYTHONPATH": path},
    )  # fmt: skip
    with process:
        assert process.stdout is not None
        left = Path(process.stdout.readline().strip())
        assert left.parent == short_path
        remove_stale_directories.__wrapped__(str(short_path))
        assert left.exists()
        process.send_signal(signal.SIGKILL)
    remove_stale_directories.__wrapped__(str(short_path))
    assert sorted(entry.name for entry in short_path.iterdir()) == sorted(
        ["sparrow-node-file", "sparrow-node-other", Path(living.path).name]
    )
    living.close()
    assert not Path(living.path).exists()


async def test_a_directory_that_was_given(short_path: Path) -> None:
    path = short_path / "sockets"
    first = Rig(short_path, socket_dir=str(path))
    await first.pool.start()
    assert first.pool.socket_path == str(path / "executors.sock")
    assert (path.stat().st_mode & 0o777, sorted(entry.name for entry in path.iterdir())) == (
        0o700,
        ["executors.files", "executors.sock", "lock"],
    )
    with pytest.raises(InvalidOption, match="a directory that no other node monitor uses"):
        await Rig(short_path, socket_dir=str(path)).pool.start()
    guest, _ = await Guest.attached(first)
    assert (path / "executors.files").readlink().parent == first.incoming
    await first.stop()
    assert await guest.cut_off()
    assert [entry.name for entry in path.iterdir()] == ["lock"]


async def test_what_lies_where_the_socket_is_to_be(short_path: Path) -> None:
    """Links are not followed; what cannot be removed is an error that says so."""
    path = short_path / "sockets"
    path.mkdir(0o700)
    (short_path / "elsewhere").mkdir()
    (path / "executors.sock").symlink_to(short_path / "elsewhere" / "executors.sock")
    (path / "executors.files").symlink_to(short_path / "elsewhere")
    rig = Rig(short_path, socket_dir=str(path))
    await rig.pool.start()
    assert not (path / "executors.sock").is_symlink()
    assert (path / "executors.files").readlink().parent == rig.incoming
    await rig.stop()
    assert list((short_path / "elsewhere").iterdir()) == []
    (path / "executors.sock").mkdir()
    with pytest.raises(InvalidOption, match=r"in which executors.sock can be made \(Is a directory\)"):
        await Rig(short_path, socket_dir=str(path)).pool.start()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a directory away")
async def test_a_directory_of_another_users(short_path: Path) -> None:
    path = short_path / "sockets"
    path.mkdir(0o700)
    os.chown(path, 65533, 65533)
    with pytest.raises(InvalidOption, match="of this user's that nobody else may enter"):
        await Rig(short_path, socket_dir=str(path)).pool.start()


@pytest.mark.parametrize(
    ("name", "allowed"),
    [("open", "mode 0700"), ("link", "no link"), ("file", "mode 0700"), ("a/b", "mode 0700"), ("x" * 100, "a path of")],
)
async def test_a_directory_that_cannot_be(short_path: Path, name: str, allowed: str) -> None:
    (short_path / "open").mkdir(0o755)
    (short_path / "private").mkdir(0o700)
    (short_path / "link").symlink_to("private")
    (short_path / "file").touch()
    rig = Rig(short_path, socket_dir=str(short_path / name))
    with pytest.raises(InvalidOption, match=allowed):
        await rig.pool.start()
    await rig.pool.stop()


# ---- options ---------------------------------------------------------------------------------


def test_apps_of_the_operator() -> None:
    options = NodeMonitorOptions(
        executor=("words=python3 'my executor.py' --fast",),
        shared_executor=("r.pool=Rscript a=b.R",),
        attach=("guest",),
    )
    apps = offered_apps(options)
    assert apps["words"] == App(AppPlan("words"), ("python3", "my executor.py", "--fast"))
    assert apps["r.pool"] == App(AppPlan("r.pool", one_process=True), ("Rscript", "a=b.R"))
    assert apps["guest"] == App(AppPlan("guest", supervised=False, awaited=True))


def test_no_executor_of_ours_has_packages_of_the_user_that_it_runs_as() -> None:
    """A task may write there, and others' tasks come to the same process."""
    started = [app for app in offered_apps(NodeMonitorOptions(enable_command=True)).values() if app.argv]
    assert {app.plan.app for app in started} >= {"python", "spin", "command"}
    assert [app.argv[1] for app in started] == ["-s"] * len(started)


def test_the_sql_executor_is_told_whose_data_sets_are_whose(tmp_path: Path) -> None:
    """Where the operator says nothing, any may be loaded; unless users are asked who they are: then none."""
    secret = tmp_path / "secret"
    secret.write_text("0123456789abcdef" * 4)
    secret.chmod(0o600)

    def arguments(**options: Any) -> tuple[str, ...]:
        return offered_apps(NodeMonitorOptions(**options))["sql"].argv[5:]

    assert arguments() == ("--any-data",)
    assert arguments(token_file=str(secret)) == ()
    assert arguments(sql_data=("/data", "ada=/home/ada")) == ("--data=/data", "--data=ada=/home/ada")
    assert offered_apps(NodeMonitorOptions())["sql"].plan.gives_attributes


@pytest.mark.parametrize(
    ("options", "field", "reason"),
    [
        ({"sql_data": ("data",)}, "sql_data", "DIR or USER=DIR, where DIR begins with /"),
        ({"executor": ("python=x",)}, "executor", "'python' is"),
        ({"shared_executor": ("command=x",)}, "shared_executor", "'command' is"),
        ({"attach": ("noop",)}, "attach", "'noop' is"),
        ({"executor": ("a=x",), "attach": ("a",)}, "attach", "'a' is"),
        ({"executor": ("a=x", "a=y")}, "executor", "'a' is"),
        ({"executor": ("a",)}, "executor", "APP=COMMAND LINE"),
        ({"executor": ("a=",)}, "executor", "APP=COMMAND LINE"),
        ({"executor": ("=x",)}, "executor", "APP=COMMAND LINE"),
        ({"executor": ("../a=x",)}, "executor", "APP=COMMAND LINE"),
        ({"executor": ("a='x",)}, "executor", "No closing quotation"),
        ({"executor": ("a=x\0",)}, "executor", "NUL"),
        ({"attach": ("a b",)}, "attach", "the name of an app"),
        ({"warm": ("b",)}, "warm", "noop, sleep, spin, python"),
    ],
)
def test_apps_that_cannot_be(options: dict[str, Any], field: str, reason: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        offered_apps(NodeMonitorOptions(**options))
    assert caught.value.field == field
    assert reason in str(caught.value)


def test_a_temporary_directory_just_short_enough_for_a_socket(
    short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    longest = str(short_path / "t").ljust(SOCKET_PATH_BYTES_MAX - len("/sparrow-node-12345678/executors.sock"), "t")
    Path(longest).mkdir()
    Path(f"{longest}t").mkdir()
    monkeypatch.setattr("tempfile.tempdir", longest)
    directory = SocketDirectory()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(directory.socket_path)
    directory.close()
    monkeypatch.setattr("tempfile.tempdir", f"{longest}t")
    with pytest.raises(InvalidOption, match=r"TMPDIR.*socket_dir"):
        SocketDirectory()


def test_one_directory_is_not_for_several_node_monitors() -> None:
    with pytest.raises(InvalidOption, match="socket_dir"):
        NodeMonitorOptions(socket_dir="/run/sparrow", count=2)
