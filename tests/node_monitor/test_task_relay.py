"""Clients within tasks at their node monitor: what is relayed where, what it may hold, and when it ends."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from node_monitor.blobs.blob_store import NoRoom
from node_monitor.blobs.lack_of_room import LackOfRoom
from node_monitor.frames_ahead import BYTES_MAX, FRAMES_MAX
from node_monitor.task_relay import (
    ADDRESS_CHARS_MAX,
    BACKLOG_BYTES_MAX,
    CLIENTS_MAX,
    FETCHES_MAX,
    HELLO_BYTES_MAX,
    TaskClient,
    TaskRelay,
)
from sparrow_py.errors import LinkError
from sparrow_py.executors import executor_protocol as x
from sparrow_py.wire import messages as m
from tests.support.node_core import OneJob

DIRECTORY: Any = None


class Peer:
    """A client's connection, or a link: what it is sent."""

    version = m.PROTOCOL_VERSION

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.ended = False
        self.unread = 0
        self.frame_bytes_max = 0

    def say(self, message: Any) -> None:
        if isinstance(message, x.ExecutorMessage):
            x.encode_frame([message])
        self.sent.append(message)

    send = say

    def take_frames(self, bytes_max: int) -> None:
        self.frame_bytes_max = bytes_max

    def unread_bytes(self) -> int:
        return self.unread

    def end(self) -> None:
        self.ended = True

    def goodbye(self) -> m.Goodbye:
        """Which it was sent last."""
        (goodbye,) = msgspec.msgpack.decode(self.sent[-1].data, type=list[m.Goodbye])
        return goodbye


class Store:
    """A node's large data: as much as it is told to have."""

    address = "here:1"

    def __init__(self) -> None:
        self.room = True
        self.unpinned: list[Any] = []
        self.fetches: list[Any] = []
        self.given_up: list[Any] = []

    async def take(self, directory: Any, file: x.File, owner: Any, user: str) -> x.File:
        if not self.room:
            raise NoRoom("no room")
        return x.File("kept", file.size, "ab" * 32)

    def fetch(self, ref: Any, done: Any, user: str, owner: Any) -> None:
        self.fetches.append(done)

    def give_up(self, hash_: str, size: int, user: str, owner: Any) -> None:
        self.given_up.append((hash_, size, user, owner))

    def pin(self, hash_: str, owner: Any, user: str) -> bool:
        return self.room

    def why_not_kept(self, hash_: str, user: str) -> str:
        return f"no room for {user}"

    def unpin(self, owner: Any) -> None:
        self.unpinned.append(owner)

    def file_for(self, hash_: str, account: str) -> x.File:
        return x.File(f"/blobs/{hash_}", 1, hash_)


class RelayingNode(OneJob):
    """A node with a run of the job j, attempt 7, and its task's clients."""

    def __init__(self) -> None:
        super().__init__()
        self.receive(m.Common("j", 0, b""))
        (ask,) = self.reserve(1)
        self.launch(7, ask.ask)
        self.link, self.store = Peer(), Store()
        self.links: dict[str, Any] = {"s": self.link}
        self.relay = TaskRelay(
            self.core.attempt_of,
            self.core.attempts,
            lambda: self.links,
            self.store,  # type: ignore[arg-type]
            self.core.told.bytes_max,
        )

    def come(self, run: int = 1) -> tuple[TaskClient | None, Peer]:
        """A client within the run."""
        connection = Peer()
        return self.relay.come("p0", x.TaskClientHello(2, run), connection), connection

    def comes(self) -> tuple[TaskClient, Peer]:
        """The same, which is let in."""
        client, connection = self.come()
        assert client is not None
        return client, connection


def test_frames_go_to_the_scheduler_of_the_attempt_and_back() -> None:
    node = RelayingNode()
    client, connection = node.comes()
    assert node.relay.said(client, [x.ClientFrame(b"one"), x.ClientFrame(b"two")], DIRECTORY) is None
    assert node.link.sent == [m.TaskSays("j", 7, client.number, frame) for frame in (b"one", b"two")]
    node.relay.hears("s", m.TaskHears("j", 7, client.number, b"answer"))
    assert connection.sent == [x.ClientFrame(b"answer")]
    node.relay.hears("other", m.TaskHears("j", 7, client.number, b"of another"))
    node.relay.hears("s", m.TaskHears("j", 7, client.number + 1, b"nobody's"))
    assert len(connection.sent) == 1


@pytest.mark.parametrize("end", ["done", "executor died", "closed"])
def test_with_its_run_a_client_ends_and_its_scheduler_hears_so_once(end: str) -> None:
    node = RelayingNode()
    client, connection = node.comes()
    if end == "done":
        node.done("p0", 1)
    elif end == "executor died":
        node.died("p0")
    else:
        node.relay.closed(client)
    node.relay.closed(client)
    assert node.link.sent == [m.TaskGone("j", 7, client.number)]
    assert connection.ended == (end != "closed") and node.store.unpinned == [client]
    assert not len(node.relay) and node.core.attempts.left is None


def test_when_its_schedulers_link_breaks_a_client_is_to_connect_again() -> None:
    node = RelayingNode()
    _, connection = node.comes()
    del node.links["s"]
    node.relay.scheduler_down("s")
    assert connection.ended and not len(node.relay)
    node.links["s"] = Peer()
    assert node.come()[0] is not None


class Cut(RelayingNode):
    """The same, whose scheduler s has died, and t is there; a client is connected since, which has said Hello."""

    def __init__(self) -> None:
        super().__init__()
        del self.links["s"]
        self.other = self.links["t"] = Peer()
        self.core.scheduler_up("t")
        self.relay.scheduler_down("s")
        self.core.scheduler_down("s", 0.0)
        self.client, self.connection = self.comes()
        self.relay.said(self.client, [x.ClientFrame(b"hello")], DIRECTORY)

    def claim(self, job: str = "j") -> None:
        self.receive(m.Claim(job, "anna", 1), scheduler="t")


def test_a_client_whose_scheduler_is_gone_waits_for_the_one_that_claims_its_attempt_and_no_longer() -> None:
    node = Cut()
    node.claim("another")
    assert not node.other.sent and not node.connection.sent
    node.claim()
    assert node.other.sent == [m.TaskSays("j", 7, node.client.number, b"hello")]
    node.relay.hears("t", m.TaskHears("j", 7, node.client.number, b"welcome"))
    assert node.connection.sent == [x.ClientFrame(b"welcome")] and not node.connection.ended
    node.claim()
    assert len(node.other.sent) == 1


def test_that_scheduler_hears_of_the_attempt_before_it_hears_the_client() -> None:
    node = Cut()
    before: list[Any] = []
    node.other.send = lambda message: before.extend(node.take(m.Claimed))  # type: ignore[assignment]
    node.claim()
    assert [claimed.running for claimed in before] == [[(7, 7)]]


def test_one_that_comes_while_it_is_claimed_is_relayed_when_it_says_hello() -> None:
    node = Cut()
    late, _ = node.comes()
    node.claim()
    assert len(node.other.sent) == 1
    node.relay.said(late, [x.ClientFrame(b"late")], DIRECTORY)
    assert node.other.sent[1:] == [m.TaskSays("j", 7, late.number, b"late")]


def test_one_that_waits_may_say_one_small_hello() -> None:
    node = Cut()
    with pytest.raises(LinkError, match="more than its Hello"):
        node.relay.said(node.client, [x.ClientFrame(b"more")], DIRECTORY)
    late, _ = node.comes()
    with pytest.raises(LinkError, match=f"{HELLO_BYTES_MAX} may be"):
        node.relay.said(late, [x.ClientFrame(b"x" * (HELLO_BYTES_MAX + 1))], DIRECTORY)


def test_one_that_waits_ends_with_its_run() -> None:
    node = Cut()
    node.done("p0", 1)
    assert node.connection.ended and not len(node.relay) and node.core.attempts.moved is None
    assert not node.other.sent


def test_one_that_waits_is_told_if_the_scheduler_that_claims_its_attempt_is_too_old() -> None:
    node = Cut()
    node.other.version = m.PROTOCOL_VERSION_OLDEST  # type: ignore[misc]
    node.claim()
    assert node.connection.ended and node.connection.goodbye().is_denied and not node.other.sent
    assert "knows no nested tasks" in node.connection.goodbye().reason


def test_a_job_that_was_claimed_is_relayed_to_its_new_scheduler() -> None:
    node = RelayingNode()
    node.core.scheduler_up("t")
    node.links["t"] = Peer()
    node.receive(m.Claim("j", "anna", 1), scheduler="t")
    client, _ = node.comes()
    assert client.scheduler == "t"


def test_what_cannot_have_a_client_is_told_why() -> None:
    node = RelayingNode()
    client, connection = node.come(run=9)
    assert client is None and connection.goodbye().is_denied and "run 9 is over" in connection.goodbye().reason
    for _ in range(CLIENTS_MAX):
        node.comes()
    client, connection = node.come()
    assert client is None and f"a task may have {CLIENTS_MAX} clients" in connection.goodbye().reason


def test_a_scheduler_of_the_version_before_knows_no_nested_tasks() -> None:
    node = RelayingNode()
    node.link.version = m.PROTOCOL_VERSION_OLDEST  # type: ignore[misc]
    client, connection = node.come()
    assert client is None and connection.goodbye().is_denied
    assert "knows no nested tasks" in connection.goodbye().reason


def test_a_client_that_does_not_read_is_cut_off() -> None:
    node = RelayingNode()
    client, connection = node.comes()
    connection.unread = BACKLOG_BYTES_MAX + 1
    node.relay.hears("s", m.TaskHears("j", 7, client.number, b"answer"))
    assert connection.ended and not connection.sent
    assert node.link.sent == [m.TaskGone("j", 7, client.number)]


def test_the_clients_of_a_task_leave_no_more_unread_together() -> None:
    node = RelayingNode()
    (one, mute), (other, reads) = node.comes(), node.comes()
    mute.unread, reads.unread = BACKLOG_BYTES_MAX, BACKLOG_BYTES_MAX // CLIENTS_MAX
    node.relay.hears("s", m.TaskHears("j", 7, other.number, b"answer"))
    assert reads.sent and not reads.ended
    node.relay.hears("s", m.TaskHears("j", 7, one.number, b"answer"))
    assert mute.ended and not mute.sent
    reads.unread = BACKLOG_BYTES_MAX
    node.relay.hears("s", m.TaskHears("j", 7, other.number, b"answer"))
    assert len(reads.sent) == 2 and not reads.ended


@pytest.mark.parametrize("asks", ["fetch", "store"])
def test_nor_is_one_answered_that_asks_for_large_data_and_does_not_read(asks: str) -> None:
    node = RelayingNode()
    client, connection = node.comes()
    connection.unread = BACKLOG_BYTES_MAX + 1
    if asks == "fetch":
        node.relay.said(client, [x.FetchData(1, "cd", 1, ())], DIRECTORY)
        node.store.fetches[0]("cd", "nobody has it")
    else:
        later = node.relay.said(client, [x.StoreData(1, x.File("/incoming/f", 1, ""))], DIRECTORY)
        assert later is not None
        asyncio.run(later)
    assert connection.ended and not connection.sent
    assert node.link.sent == [m.TaskGone("j", 7, client.number)]


def test_a_client_sends_no_larger_frames_than_its_scheduler_takes() -> None:
    """In JSON, too, in which they are larger; and one that waits for a scheduler sends its Hello."""
    node = Cut()
    assert node.connection.frame_bytes_max == 2 * HELLO_BYTES_MAX
    node.claim()
    largest = x.ClientFrame(bytes(m.FRAME_BYTES_MAX + m.MESSAGE_OVERHEAD_BYTES // 2))
    assert len(x.encode_frame([largest], x.JSON)) < node.connection.frame_bytes_max < 3 * m.FRAME_BYTES_MAX
    _, connection = node.comes()
    assert connection.frame_bytes_max == node.connection.frame_bytes_max


@pytest.mark.parametrize("size", [1, BYTES_MAX // 4])
def test_a_users_clients_have_only_so_much_on_its_way_to_a_scheduler(size: int) -> None:
    """However many they are; they have turns, and go on as the scheduler has looked at what they said."""

    async def flood() -> None:
        node = RelayingNode()
        frames_max = min(FRAMES_MAX, BYTES_MAX // size)
        clients = [node.comes()[0] for _ in range(3)]
        first, second, third = clients
        tasks = []
        for client in clients:
            later = node.relay.said(client, [x.ClientFrame(bytes(size))] * 2 * frames_max, DIRECTORY)
            assert later is not None
            tasks.append(asyncio.create_task(later))
        await asyncio.sleep(0)
        assert len(node.link.sent) == frames_max
        for _ in range(4):
            node.relay.heard("s", m.TaskHeard(first.number, 1))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert len(node.link.sent) <= frames_max + 4
        assert {message.client for message in node.link.sent[frames_max:]} == {one.number for one in clients}
        node.relay.closed(third)
        await tasks[2]
        while not all(task.done() for task in tasks):
            for client in clients:
                node.relay.heard("s", m.TaskHeard(client.number, 1))
            await asyncio.sleep(0)
        said = [message.client for message in node.link.sent if isinstance(message, m.TaskSays)]
        assert said.count(first.number) == said.count(second.number) == 2 * frames_max

    asyncio.run(flood())


def test_a_client_that_waits_for_its_scheduler_does_so_no_more_when_that_is_gone() -> None:
    async def waits() -> None:
        node = RelayingNode()
        client, _ = node.comes()
        later = node.relay.said(client, [x.ClientFrame(b"")] * (FRAMES_MAX + 1), DIRECTORY)
        assert later is not None
        task = asyncio.create_task(later)
        await asyncio.sleep(0)
        node.relay.scheduler_down("s")
        await task
        again, _ = node.comes()
        assert node.relay.said(again, [x.ClientFrame(b"")], DIRECTORY) is None

    asyncio.run(waits())


def test_a_client_that_its_scheduler_hears_no_more_is_closed() -> None:
    node = RelayingNode()
    client, connection = node.comes()
    assert node.relay.said(client, [x.ClientFrame(b"nonsense")], DIRECTORY) is None
    node.relay.heard("other", m.TaskHeard(client.number, 1, is_over=True))
    assert not connection.ended
    node.relay.heard("s", m.TaskHeard(client.number, 1, is_over=True))
    assert connection.ended and node.link.sent[-1] == m.TaskGone("j", 7, client.number)
    assert not node.relay._ahead._users and not node.relay._ahead._clients


def test_large_data_are_handed_over_and_what_comes_after_them_waits() -> None:
    node = RelayingNode()
    client, connection = node.comes()
    file = x.File("/incoming/f", 3 << 20, "")
    for room in (True, False):
        node.store.room = room
        later = node.relay.said(client, [x.StoreData(1, file), x.ClientFrame(b"after")], DIRECTORY)
        assert later is not None and not node.link.sent
        asyncio.run(later)
        assert [message.frame for message in node.link.sent] == [b"after"]
        node.link.sent.clear()
    stored, refused = connection.sent
    assert stored == x.DataStored(1, "ab" * 32, ("here:1",))
    assert refused == x.DataStored(1, "", (), "no room")


def test_large_data_are_fetched_for_a_client_as_long_as_it_is_there() -> None:
    node = RelayingNode()
    client, connection = node.comes()
    node.relay.said(client, [x.FetchData(number, "cd", 1, ("far:1",)) for number in range(FETCHES_MAX)], DIRECTORY)
    with pytest.raises(LinkError, match=f"wants {FETCHES_MAX} large data"):
        node.relay.said(client, [x.FetchData(99, "cd", 1, ())], DIRECTORY)
    with pytest.raises(LinkError, match="names 65 addresses"):
        node.relay.said(client, [x.FetchData(99, "cd", 1, ("far:1",) * 65)], DIRECTORY)
    with pytest.raises(LinkError, match=f"an address of {ADDRESS_CHARS_MAX + 1} characters"):
        node.relay.said(client, [x.FetchData(99, "cd", 1, ("far:1", "f" * (ADDRESS_CHARS_MAX + 1)))], DIRECTORY)
    node.store.fetches[0]("cd", "")
    node.store.fetches[1]("cd", "nobody has it")
    assert connection.sent == [
        x.DataFetched(0, x.File("/blobs/cd", 1, "cd")),
        x.DataFetched(1, None, "nobody has it"),
    ]
    node.store.room = False
    node.store.fetches[2]("cd", "")
    node.store.fetches[3]("cd", LackOfRoom("the input is 1 byte"))
    assert [message.why_not for message in connection.sent[2:]] == ["no room for anna", "no room: the input is 1 byte"]
    node.relay.closed(client)
    assert node.store.given_up == [("cd", 1, "anna", client)]
    node.store.fetches[4]("cd", "")
    assert len(connection.sent) == 4


def test_data_that_are_stored_for_a_client_that_has_gone_are_not_kept_for_it() -> None:
    node = RelayingNode()
    client, connection = node.comes()
    later = node.relay.said(client, [x.StoreData(1, x.File("/incoming/f", 1, ""))], DIRECTORY)
    node.relay.closed(client)
    assert later is not None
    asyncio.run(later)
    assert node.store.unpinned == [client, client] and not connection.sent


def test_other_messages_are_not_for_clients() -> None:
    node = RelayingNode()
    client, _ = node.comes()
    with pytest.raises(LinkError, match="sent a SimpleNamespace"):
        node.relay.said(client, [SimpleNamespace()], DIRECTORY)
