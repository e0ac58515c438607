"""A task against the socket of its node's executors: it locks nobody out, and takes no memory."""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from node_monitor.blobs.blob_store import BlobStore
from node_monitor.executors import executors, mute_connections
from node_monitor.executors.apps import App
from node_monitor.executors.executor_state import AppPlan
from node_monitor.executors.executors import ExecutorPool
from node_monitor.executors.mute_connections import MUTE_MAX, MuteConnections
from sparrow_py.daemon.process import until
from sparrow_py.errors import LinkError
from sparrow_py.executors import executor_protocol as x
from tests.support.stores import store_in
from tests.support.waiting import TIMEOUT_S

EXAMPLE = Path(__file__).parents[2] / "examples" / "executor_stdlib.py"
HELLO = b'[[1,1,"","guest",1,"",1]]'
RUN = x.Run(1, 0, b"a b")


class Node:
    """A pool with the apps "words", which it starts, and "guest"; what it tells is in `told`."""

    def __init__(self, store: BlobStore) -> None:
        self.told: list[tuple[Any, ...]] = []
        apps = {
            "words": App(AppPlan("words"), (sys.executable, str(EXAMPLE))),
            "guest": App(AppPlan("guest", supervised=False)),
        }
        self.pool = ExecutorPool(apps, self, store)
        self.attackers: list[socket.socket] = []

    def executor_up(self, executor: str, app: str, places: int, version: int) -> None:
        self.told.append(("up", app, executor))

    def executor_failed(self, app: str, reason: str) -> None:
        self.told.append(("failed", app, reason))

    def executor_leaving(self, executor: str) -> None:
        pass

    def executor_down(self, executor: str, reason: str, failure: str = "") -> None:
        self.told.append(("down", executor))

    def user_of(self, executor: str, run: int) -> str:
        return ""

    def executor_said(self, executor: str, messages: list[Any]) -> None:
        self.told += [("said", type(message).__name__) for message in messages]

    async def attack(self, said: bytes = b"") -> socket.socket:
        """Connect, say this and nothing more."""
        attacker = socket.socket(socket.AF_UNIX)
        self.attackers.append(attacker)
        attacker.setblocking(False)
        while True:
            try:
                attacker.connect(self.pool.socket_path)
                break
            except BlockingIOError:  # The kernel's queue is full: it is the node monitor's turn.
                await asyncio.sleep(0)
        if said:
            await asyncio.get_running_loop().sock_sendall(attacker, said)
        return attacker

    async def heard(self, what: str) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            await until(lambda: any(entry[0] == what for entry in self.told), every_s=0.001)


@pytest.fixture
async def node() -> AsyncIterator[Node]:
    store = store_in()
    node = Node(store)
    await node.pool.start()
    yield node
    await node.pool.stop()
    await store.stop()
    for attacker in node.attackers:
        attacker.close()


async def closed(attacker: socket.socket) -> bool:
    """Whether the other side has closed it, once it has."""
    async with asyncio.timeout(TIMEOUT_S):
        try:
            return await asyncio.get_running_loop().sock_recv(attacker, 1) == b""
        except ConnectionError:
            return True


async def test_mute_connections_in_masses_are_bounded_and_lock_no_executor_out(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3 * MUTE_MAX):
        await node.attack()
    async with asyncio.timeout(TIMEOUT_S):
        await until(lambda: len(node.pool.mute) == MUTE_MAX, every_s=0.001)
    assert await closed(node.attackers[0])
    node.pool.start_executor("words", 1)
    while not node.told:  # It connects meanwhile.
        await node.attack()
        node.attackers.pop(0).close()
        await asyncio.sleep(0)
        assert len(node.pool.mute) <= MUTE_MAX
    assert node.told == [("up", "words", "words-1")]
    node.pool.send("words-1", RUN)
    node.pool.flush()
    await node.heard("said")
    lines = [line for line in caplog.messages if "without a hello" in line]
    assert lines == [
        "a connection without a hello, or with an end unread, is closed for there are more than "
        f"{MUTE_MAX} of user {os.geteuid()} (1 such)"
    ]


@pytest.mark.parametrize("said", [b"", b"\0", (1000).to_bytes(4, "big") + HELLO[:10]], ids=["mute", "byte", "half"])
async def test_who_does_not_say_hello_in_time_is_cut_off(
    node: Node, said: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mute_connections, "MUTE_TIMEOUT_S", 0.01)
    attacker = await node.attack(said)
    assert await closed(attacker)
    assert len(node.pool.mute) == 0


async def test_a_first_frame_is_no_larger_than_a_hello(node: Node) -> None:
    """Before it nothing is held of what is said, beyond that."""
    assert await closed(await node.attack((x.HELLO_BYTES_MAX + 1).to_bytes(4, "big")))
    assert await closed(await node.attack(x.FRAME_BYTES_MAX.to_bytes(4, "big") + bytes(1000)))
    assert node.told == []


async def test_who_has_said_hello_stays(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mute_connections, "MUTE_TIMEOUT_S", 0.01)
    for _ in range(2):
        await node.attack(len(HELLO).to_bytes(4, "big") + HELLO)
        await node.heard("up")
    assert await closed(await node.attack())  # Later than those.
    assert [entry[0] for entry in node.told] == ["up", "up"]


async def test_nonsense_before_a_hello_fills_no_log(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(20):
        assert await closed(await node.attack(b"\0\0\0\1x"))
    assert len([line for line in caplog.messages if "a connection to the executors' socket is cut off" in line]) == 1


async def client_of(node: Node) -> Any:
    """The connection of a client within a task, as the node monitor has it, which has said hello."""
    await node.attack()
    async with asyncio.timeout(TIMEOUT_S):
        await until(lambda: len(node.pool.mute) > 0, every_s=0.001)
    (connection,) = node.pool.mute._of_user[os.geteuid()]
    node.pool.mute.gone(connection, os.geteuid())
    return connection


def end(connection: Any, unread: int) -> None:
    """End it when it was told something, so many bytes beyond what the kernel holds for it."""
    held = connection._transport.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
    connection.say(x.ClientFrame(bytes(held + unread)))
    connection.end()


async def test_what_is_told_last_is_read_before_the_connection_ends(node: Node) -> None:
    connection = await client_of(node)
    end(connection, executors.ENDING_BYTES_MAX // 2)
    heard = 0
    async with asyncio.timeout(TIMEOUT_S):
        while some := await asyncio.get_running_loop().sock_recv(node.attackers[0], 1 << 20):
            heard += len(some)
        await connection.closed.wait()
    assert heard > executors.ENDING_BYTES_MAX // 2 and not len(node.pool.mute)


async def test_who_does_not_read_that_its_connection_ends_is_cut_off_at_once_if_much_is_unread(node: Node) -> None:
    connection = await client_of(node)
    end(connection, 2 * executors.ENDING_BYTES_MAX)
    assert not len(node.pool.mute), "it waits for nothing"
    async with asyncio.timeout(TIMEOUT_S):
        await connection.closed.wait()


async def test_and_else_when_there_are_too_many_such(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """They count with those that have not said hello."""
    monkeypatch.setattr(mute_connections, "MUTE_TIMEOUT_S", 1000.0)
    connection = await client_of(node)
    end(connection, executors.ENDING_BYTES_MAX // 2)
    assert len(node.pool.mute) == 1
    for _ in range(MUTE_MAX):
        await node.attack()
    async with asyncio.timeout(TIMEOUT_S):
        await connection.closed.wait()


async def test_or_after_a_while(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    connection = await client_of(node)
    monkeypatch.setattr(mute_connections, "MUTE_TIMEOUT_S", 0.01)
    end(connection, executors.ENDING_BYTES_MAX // 2)
    async with asyncio.timeout(TIMEOUT_S):
        await connection.closed.wait()
    assert not len(node.pool.mute)


# ---- the rule --------------------------------------------------------------------------------


class Peer:
    """A connection."""

    def __init__(self) -> None:
        self.open = True

    def close(self) -> None:
        self.open = False


@pytest.fixture
async def mute() -> AsyncIterator[tuple[MuteConnections, Callable[[int, int], Peer]]]:
    """Process 7 is awaited."""
    mute = MuteConnections(lambda pid: pid == 7)
    came: dict[Peer, int] = {}

    def come(uid: int, pid: int) -> Peer:
        peer = Peer()
        came[peer] = uid
        mute.came(peer, uid, pid)
        return peer

    yield mute, come
    for peer, uid in came.items():
        mute.gone(peer, uid)
    assert len(mute) == 0


async def test_the_oldest_of_that_user_goes_and_none_that_is_awaited(
    mute: tuple[MuteConnections, Callable[[int, int], Peer]],
) -> None:
    table, come = mute
    other = come(1, 3)
    awaited = come(2, 7)
    peers = [come(2, 100 + number) for number in range(MUTE_MAX - 1)]
    assert all(peer.open for peer in (other, awaited, *peers))
    for peer in peers:
        come(2, 3)
        assert not peer.open
    assert other.open and awaited.open
    assert len(table) == MUTE_MAX + 1


async def test_if_all_are_awaited_the_oldest_goes(mute: tuple[MuteConnections, Callable[[int, int], Peer]]) -> None:
    _, come = mute
    peers = [come(2, 7) for _ in range(MUTE_MAX + 1)]
    assert [peer.open for peer in peers] == [False, *itertools.repeat(True, MUTE_MAX)]


async def test_one_that_is_gone_makes_room(mute: tuple[MuteConnections, Callable[[int, int], Peer]]) -> None:
    table, come = mute
    peers = [come(2, 1) for _ in range(MUTE_MAX)]
    table.gone(peers[5], 2)
    table.gone(peers[5], 2)
    come(2, 1)
    assert all(peer.open for peer in peers)


def test_the_first_frame_alone_is_to_be_small() -> None:
    """What comes with it may be as large as ever."""
    hello, large = x.encode_frame([x.Returned([1])]), x.encode_frame([x.Returned([1 << 20] * x.HELLO_BYTES_MAX)])
    splitter = x.FrameSplitter(first_bytes_max=x.HELLO_BYTES_MAX)
    assert len(splitter.feed(bytes(hello + large))) == 2
    with pytest.raises(LinkError, match=f"at most {x.HELLO_BYTES_MAX} are allowed"):
        x.FrameSplitter(first_bytes_max=x.HELLO_BYTES_MAX).feed(bytes(large[:4]))
