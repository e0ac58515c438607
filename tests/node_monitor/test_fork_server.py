"""Executors that a fork server starts, and who may say hello for one."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import uvloop

from node_monitor.executors import executors, processes
from node_monitor.executors.apps import FORK_SERVER, App, executor_command
from node_monitor.executors.executor_state import AppPlan
from node_monitor.executors.executors import ExecutorPool
from sparrow_py.errors import LinkError
from sparrow_py.executors import executor_protocol as x
from sparrow_py.executors.executor_protocol import encode_frame
from sparrow_py.executors.fork_protocol import Forked
from sparrow_py.processes.orphans import Orphans
from tests.node_monitor.test_executors import Events
from tests.support.stores import store_in
from tests.support.waiting import POLL_S, TIMEOUT_S

pytestmark = pytest.mark.processes

PLAN = AppPlan("forked", forks=True)
ROOT = str(Path(__file__).parents[2])
APP = App(PLAN, executor_command(FORK_SERVER, "tests.node_monitor.forked_executor", path=[ROOT]))


async def eventually(condition: Callable[[], object]) -> None:
    """Return once the condition is true."""
    async with asyncio.timeout(TIMEOUT_S):
        while not condition():
            await asyncio.sleep(POLL_S)


class Rig:
    """A pool whose executors are forked."""

    def __init__(self, app: App = APP) -> None:
        self.events = Events()
        self.store = store_in()
        self.pool = ExecutorPool({"forked": app}, self.events, self.store)
        self._runs = 0

    async def started(self) -> str:
        """The id of a new executor, which is up."""
        self.pool.start_executor("forked", 1)
        kind, executor, *_ = await self.events.next()
        assert kind == "up"
        return str(executor)

    def give(self, executor: str, words: str) -> None:
        self._runs += 1
        self.pool.send(executor, x.Run(self._runs, 0, words.encode()))
        self.pool.flush()

    async def answer(self, executor: str, words: str) -> str:
        """What the executor says to this."""
        self.give(executor, words)
        kind, teller, done = await self.events.next()
        assert (kind, teller) == ("said", executor)
        return bytes(done.result).decode()

    def pid(self, executor: str) -> int:
        process = self.pool._launched[executor].process
        assert process is not None
        return process.pid


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    rig = Rig()
    await rig.pool.start()
    yield rig
    await rig.pool.stop()
    await rig.store.stop()


async def test_each_executor_is_a_process_of_its_own_that_begins_with_nothing_of_anothers(rig: Rig) -> None:
    first = await rig.started()
    assert await rig.answer(first, "secret") == ""
    second = await rig.started()
    assert await rig.answer(second, "seen") == "seen"
    assert await rig.answer(first, "seen") == "secret seen"
    server, session, dumpable, stdin = (await rig.answer(first, "stands")).split()
    assert int(session) == rig.pid(first) != rig.pid(second)
    assert (await rig.answer(second, "stands")).split() == [server, str(rig.pid(second)), "0", "b''"]
    assert (dumpable, stdin) == ("0", "b''"), "no process of the same user looks into it"


async def test_how_an_executor_ended_is_told(rig: Rig) -> None:
    first, second = await rig.started(), await rig.started()
    rig.give(first, "exit 3")
    assert await rig.events.next() == ("down", first, f"executor {first} exited with code 3")
    rig.pool.kill(second)
    assert await rig.events.next() == ("down", second, f"executor {second} was killed by SIGKILL")


async def test_executors_end_with_their_server_and_the_next_has_another(rig: Rig) -> None:
    first = await rig.started()
    server = int((await rig.answer(first, "stands")).split()[0])
    os.kill(server, signal.SIGKILL)
    assert await rig.events.next() == ("down", first, f"executor {first} was killed by SIGKILL")
    second = await rig.started()
    assert int((await rig.answer(second, "stands")).split()[0]) != server


async def test_nothing_is_left_when_the_pool_has_stopped(rig: Rig) -> None:
    executor = await rig.started()
    processes = [psutil.Process(rig.pid(executor)), psutil.Process(rig.pid(executor)).parent()]
    await rig.pool.stop()
    assert not any(process is not None and process.is_running() for process in processes)


async def test_a_server_that_does_not_start_is_a_start_in_vain() -> None:
    rig = Rig(App(PLAN, executor_command(FORK_SERVER, "no_such_module")))
    await rig.pool.start()
    rig.pool.start_executor("forked", 1)
    kind, app, reason = await rig.events.next()
    assert (kind, app) == ("failed", "forked")
    assert reason.startswith("cannot be started: its fork server exited with code 1; it said:\n")
    assert reason.endswith("\nModuleNotFoundError: No module named 'no_such_module'")
    await rig.pool.stop()


NOT_TODAY = App(PLAN, ("sh", "-c", "echo not today >&2; exit 3"))
ENDED = "cannot be started: its fork server exited with code 3; it said:\nnot today"


def test_who_asks_a_server_whose_connection_has_closed_hears_why_it_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a process that ends the loop may hear the end of its connection first, and its exit code later.

    With the loop that daemons have, which raises an error of its own where asyncio's drops what is written too late.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(ask_before_the_end_is_known(monkeypatch))


async def ask_before_the_end_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two executors are started; for the second the server is asked whose connection has closed."""
    rig, let_on = Rig(NOT_TODAY), asyncio.Event()
    lost: list[object] = []
    wait, server = asyncio.subprocess.Process.wait, processes._ForkServer

    async def delayed(process: asyncio.subprocess.Process) -> int:
        await let_on.wait()
        return await wait(process)

    def connection_lost(self: Any, error: Exception | None) -> None:
        forget(self, error)
        lost.append(self)

    forget = server.connection_lost
    monkeypatch.setattr(asyncio.subprocess.Process, "wait", delayed)
    monkeypatch.setattr(server, "connection_lost", connection_lost)
    await rig.pool.start()
    rig.pool.start_executor("forked", 1)
    await eventually(lambda: lost)
    await asyncio.sleep(0)  # The connection is closed once this was heard.
    rig.pool.start_executor("forked", 1)
    await eventually(lambda: len(rig.pool._processes._servers["forked"]._asked) == 2)
    let_on.set()
    assert [await rig.events.next() for _ in range(2)] == [("failed", "forked", ENDED)] * 2
    await rig.pool.stop()


async def test_who_asks_a_server_that_has_ended_hears_why() -> None:
    """As one that ends while it is being connected."""
    rig = Rig(NOT_TODAY)
    await rig.pool.start()
    server = await rig.pool._processes._server(NOT_TODAY, {})
    await server._watch
    with pytest.raises(OSError, match="its fork server exited with code 3; it said:\nnot today"):
        await server.fork("forked-1", {})
    await rig.pool.stop()


async def test_a_start_that_fails_by_a_bug_of_ours_is_a_start_in_vain(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Else the executor would count as being started for ever, and no other would be."""

    async def start(*_: object) -> None:
        raise RuntimeError("the handler is closed")

    with monkeypatch.context() as patched:
        patched.setattr(rig.pool._processes, "start", start)
        rig.pool.start_executor("forked", 1)
        assert await rig.events.next() == ("failed", "forked", "cannot be started: the handler is closed")
    assert "RuntimeError: the handler is closed" in caplog.text
    assert await rig.started()


async def test_a_server_that_is_ended_with_its_pool_is_no_news(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    caplog.set_level("INFO")
    await rig.pool.start()
    await rig.started()
    await rig.pool.stop()
    assert "ended" not in caplog.text


async def test_a_server_that_never_answers_is_a_start_in_vain(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one whose modules take for ever to import."""
    monkeypatch.setattr(processes, "FORK_TIMEOUT_S", 0.05)
    rig = Rig(App(PLAN, ("sleep", "1000")))
    await rig.pool.start()
    rig.pool.start_executor("forked", 1)
    reason = "cannot be started: its fork server did not answer within 0.05 s"
    assert await rig.events.next() == ("failed", "forked", reason)
    await rig.pool.stop()


@pytest.mark.parametrize("asked", [True, False])
async def test_a_server_that_names_a_process_as_its_own_that_is_not_is_ended_and_the_process_lives(
    rig: Rig, *, asked: bool
) -> None:
    """Whoever gets hold of its connection would have the node monitor kill whom it likes."""
    first = await rig.started()
    with subprocess.Popen(["sleep", "1000"]) as bystander:
        server = rig.pool._processes._servers["forked"]
        if asked:
            server._asked["forked-2"] = asyncio.get_running_loop().create_future()
        named = Forked("forked-2", bystander.pid)
        server.data_received(encode_frame([named]))
        assert await rig.events.next() == ("down", first, f"executor {first} was killed by SIGKILL")
        assert bystander.poll() is None
        bystander.kill()


async def test_what_a_forked_executor_said_before_its_hello_is_told(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    await rig.started()
    assert rig.pool._directory is not None
    monkeypatch.setattr(type(rig.pool._directory), "socket_path_of", lambda *_: "/nowhere/executors.sock")
    rig.pool.start_executor("forked", 1)
    kind, _, reason = await rig.events.next()
    assert kind == "failed"
    assert reason.startswith("exited with code 1; it said:\n") and "No such file or directory" in reason


LEAVER = """
import asyncio, sys
from node_monitor.executors.executors import ExecutorPool
from sparrow_py.processes.orphans import Orphans
from tests.node_monitor.test_fork_server import leave_a_daemon
asyncio.run(leave_a_daemon(Orphans()))
"""


async def leave_a_daemon(orphans: Orphans) -> None:
    """For a process that has no other children: a task leaves one, and its executor ends."""
    rig = Rig()
    rig.pool = ExecutorPool({"forked": APP}, rig.events, rig.store, orphans=orphans)
    await rig.pool.start()
    executor, other = await rig.started(), await rig.started()
    daemon = psutil.Process(int(await rig.answer(executor, "leave")))
    rig.pool.kill(executor)
    assert (await rig.events.next())[0] == "down"
    await eventually(lambda: not daemon.is_running())
    assert await rig.answer(other, "seen") == "seen", "only what was left is ended"
    await rig.pool.stop()
    print("left nothing")


async def test_what_an_executor_left_behind_is_ended(tmp_path: Path) -> None:
    path = os.pathsep.join(entry for entry in sys.path if entry)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", LEAVER, stdout=asyncio.subprocess.PIPE, env=os.environ | {"PYTHONPATH": path}
    )
    async with asyncio.timeout(TIMEOUT_S):
        said, _ = await process.communicate()
    assert said == b"left nothing\n"


# ---- who says hello ------------------------------------------------------------------------------


class Impostor:
    """A process that was not started as an executor, and says that it is one."""

    def __init__(self, rig: Rig) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.setblocking(False)
        self._path = rig.pool.socket_path

    async def say(self, hello_id: str) -> bytes:
        """Say hello; what comes back until the end of the connection."""
        loop = asyncio.get_running_loop()
        await loop.sock_connect(self._socket, self._path)
        hello = x.ExecutorHello(1, hello_id, "forked", 1, "", os.getpid())
        await loop.sock_sendall(self._socket, x.encode_frame([hello]))
        async with asyncio.timeout(TIMEOUT_S):
            try:
                return await loop.sock_recv(self._socket, 1)
            except ConnectionError:
                return b""

    def close(self) -> None:
        self._socket.close()


async def test_an_impostor_that_knows_the_id_is_cut_off_and_the_executor_is_heard(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The one that was started is told by its process, and nobody is heard before that is known."""
    rig, let_on = Rig(), asyncio.Event()
    start = rig.pool._processes.start

    async def delayed(*arguments: Any) -> Any:
        process = await start(*arguments)
        await let_on.wait()
        return process

    monkeypatch.setattr(rig.pool._processes, "start", delayed)
    await rig.pool.start()
    impostor = Impostor(rig)
    rig.pool.start_executor("forked", 1)
    await eventually(lambda: rig.pool._due)
    ((hello_id, launched),) = rig.pool._due.items()
    heard = asyncio.create_task(impostor.say(hello_id))
    await eventually(lambda: len(launched._waiting) == 2)
    let_on.set()
    assert await heard == b""
    assert "does not belong to executor forked-1" in caplog.text
    assert (await rig.events.next())[:2] == ("up", "forked-1")
    assert await rig.answer("forked-1", "seen") == "seen"
    impostor.close()
    await rig.pool.stop()


async def test_an_impostor_has_to_guess_the_id(rig: Rig) -> None:
    rig.pool.start_executor("forked", 1)
    await eventually(lambda: rig.pool._launched)
    impostor = Impostor(rig)
    assert await impostor.say("forked-1") == b""
    impostor.close()
    assert (await rig.events.next())[:2] == ("up", "forked-1")


async def test_a_client_within_a_task_is_known_by_its_process(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel says of which executor it is; what it says is relayed. Further executors have what clients need."""
    monkeypatch.setattr(executors, "CLIENT_MODULES", ("colorsys", "of_no_such_name"))
    first, second = await rig.started(), await rig.started()
    assert await rig.answer(second, "has colorsys") == "False"
    frame = x.encode_frame([x.ClientFrame(b"hello")])[x.HEADER_BYTES :]
    assert await rig.answer(second, "client 7") == frame.hex()
    assert await rig.answer(first, "client 8") == frame.hex()
    await eventually(lambda: len(rig.events.clients) == 4)
    assert [one for one in rig.events.clients if one != "gone"] == [(second, 7), (first, 8)]
    third = await rig.started()
    assert await rig.answer(third, "has colorsys") == "True"


async def test_a_client_within_a_task_shows_the_key_of_its_executor(rig: Rig) -> None:
    """That a process has the id of one of the executor's proves nothing: ids come again."""
    first, second = await rig.started(), await rig.started()
    others = await rig.answer(second, "key")
    assert len(others) == 2 * executors.KEY_BYTES and others != await rig.answer(first, "key")
    for key in (others, "00", "00" * executors.KEY_BYTES):
        assert await rig.answer(first, f"client 7 {key}") == ""
    assert not rig.events.clients
    assert await rig.answer(second, f"client 7 {others}") != ""


async def test_a_client_within_a_task_has_the_account_of_its_executor(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor = await rig.started()
    came = executors._Connection.connection_made

    def of_another_account(connection: Any, transport: Any) -> None:
        came(connection, transport)
        connection.peer_uid += 1

    monkeypatch.setattr(executors._Connection, "connection_made", of_another_account)
    assert await rig.answer(executor, "client 7") == ""
    assert not rig.events.clients


async def test_whose_process_connects_is_asked_when_it_connects(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Later its id may be another process's."""
    executor = await rig.started()
    leader = rig.pool._launched[executor].process.pid  # type: ignore[union-attr]
    reader, writer = await asyncio.open_unix_connection(rig.pool.socket_path)
    await eventually(lambda: len(rig.pool.mute))
    monkeypatch.setattr(executors, "_leader_of", lambda _: leader)
    key = bytes.fromhex(await rig.answer(executor, "key"))
    writer.write(encode_frame([x.TaskClientHello(x.EXECUTOR_PROTOCOL_VERSION, 1, key)]))
    assert await reader.read() == b""
    writer.close()
    assert not rig.events.clients


async def test_clients_that_are_cut_off_leave_few_lines_in_the_log(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    executor = await rig.started()

    def refuses(*_: Any) -> None:
        raise LinkError("a client within a task sent a WantsSlot")

    monkeypatch.setattr(rig.events, "task_client_said", refuses)
    for _ in range(30):
        assert await rig.answer(executor, "client 7") == ""
    assert 0 < len([one for one in caplog.records if "is cut off" in one.message]) <= 10


async def test_a_client_of_the_version_before_is_none(rig: Rig) -> None:
    assert await rig.answer(await rig.started(), "client 7 version 1") == ""
    assert not rig.events.clients


async def test_a_process_of_no_executor_has_no_client(rig: Rig) -> None:
    await rig.started()
    reader, writer = await asyncio.open_unix_connection(rig.pool.socket_path)
    writer.write(encode_frame([x.TaskClientHello(x.EXECUTOR_PROTOCOL_VERSION, 1)]))
    assert await reader.read() == b""
    writer.close()
    assert not rig.events.clients
