"""Peers that send what cannot be, or nothing: their links end with a reason, nothing of them stays, others go on."""

from __future__ import annotations

import array
import os
import pickle
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontends.dataflow.dialling import Address, connect
from frontends.dataflow.door import Connection, Door
from frontends.dataflow.encoding import Decoder, Encoder
from frontends.dataflow.errors import ProtocolError
from frontends.dataflow.frames import ARENA, HEADER, PIECE, Entry, Kind, Where, pack, pack_carried
from frontends.dataflow.handshake import INTRODUCTION_BYTES
from frontends.dataflow.link import Link, LinkEnded
from frontends.dataflow.memory import Memory
from frontends.dataflow.messages import Message, Partition
from frontends.dataflow.mover import SLICE
from tests.frontends.dataflow.conftest import MakePeer
from tests.support.dataflow_peers import KEY, PUMP_S, WAIT_S, Peer, chunk, marked, open_memory

HOSTILE, HONEST = 8, 9
STALLED_S = 0.05


class Attacked:
    """A peer, a connection to it of one that has the key and keeps no rule, and an honest peer beside."""

    def __init__(self, transport: str, peers: MakePeer, directory: Path) -> None:
        self.peer: Peer = peers(0, transport, stalled_s=STALLED_S)
        self.address = self.peer.links.listen(directory)
        self.honest: Peer = peers(HONEST, transport)
        self.honest.links.dial(0, self.address)
        how = "tcp" if transport == "tcp" else "unix"
        self.connection = connect(KEY, HOSTILE, 0, self.address, transport=how, allow_plaintext=False)  # type: ignore[arg-type]
        self.socket = self.connection.messages
        until_s = time.monotonic() + WAIT_S
        while HOSTILE not in self.peer.links.peers():  # Else nobody reads what fills the socket: all is in one thread.
            assert time.monotonic() < until_s
            self.peer.links.wait(PUMP_S)

    def send(self, data: bytes, *descriptors: int) -> None:
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
        try:
            self.socket.sendmsg([data], rights)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def assert_ended(self, reason: str) -> None:
        """The peer ended the link for this reason, and goes on with the other one."""
        ((peer, told),) = self.peer.lost()
        assert peer == HOSTILE and reason in told, told
        self.honest.links.send(0, marked(1))
        assert self.peer.messages(1) == [(HONEST, marked(1))]


@pytest.fixture(params=["unix", "tcp"])
def attacked(request: pytest.FixtureRequest, peers: MakePeer, tmp_path: Path) -> Iterator[Attacked]:
    made = Attacked(request.param, peers, tmp_path)
    yield made
    made.socket.close()
    if made.connection.buffers is not None:
        made.connection.buffers.close()


def encoded(message: object) -> bytes:
    out = bytearray()
    Encoder().append(message, out)  # type: ignore[arg-type]
    return bytes(out)


def carried(*entries: tuple[int, ...], kind: Kind = Kind.CARRIED) -> bytes:
    """A frame of a message with these buffers."""
    return pack_carried(kind, [Entry(*entry) for entry in entries], encoded(marked(1)))  # type: ignore[arg-type]


def sealed_memory(size: int = 4_096) -> int:
    mapped = Memory().file(size, "a test")
    return os.dup(mapped.descriptor)


FRAMES: dict[str, tuple[bytes, str]] = {
    "too long": (HEADER.pack(1 << 31, Kind.BATCH, 0, 0), "a frame announces 2,147,483,648 bytes"),
    "of no kind": (HEADER.pack(0, 77, 0, 0), "frames of kind 77"),
    "no messages": (pack(Kind.BATCH, b"\xc1"), "no list of messages"),
    "another message": (pack(Kind.BATCH, b"\x91\x92\x63\x00"), "no list of messages"),
    "an object that cannot be unpickled": (
        pack_carried(Kind.CARRIED, [], encoded(chunk({0: pickle})).replace(b"pickle", b"pickl_")),
        "no message",
    ),
    "a buffer too many": (HEADER.pack(0, Kind.CARRIED, 0, 3), "announces 3 buffers"),
    "an array that has not come": (carried((Where.ARENA, 1, 0, 5_000)), "arena 1 has not come"),
    "a piece that was not lent": (pack(Kind.FREED, PIECE.pack(1, 0)), "given back that was not lent"),
    "half a piece": (pack(Kind.FREED, b"half"), "a frame FREED of 4 bytes is not allowed"),
    "half an arena": (pack(Kind.ARENA, b"half"), "a frame ARENA of 4 bytes is not allowed"),
    "more than there is": (carried((Where.STREAM, 0, 0, 1 << 40), kind=Kind.MOVED), "needs 1,099,511,627,776 bytes"),
    "a descriptor that does not come": (
        pack(Kind.ARENA, ARENA.pack(1, 4_096), descriptors=1),
        "announces descriptors that did not come",
    ),
    "memory that does not come": (carried((Where.OWN, 0, 0, 5_000)), "announces descriptors that did not come"),
}


@pytest.mark.parametrize("name", FRAMES)
def test_a_frame_that_cannot_be_ends_the_link(name: str, attacked: Attacked) -> None:
    data, reason = FRAMES[name]
    attacked.send(data)
    attacked.assert_ended(reason)


def test_an_end_within_a_frame_is_told_from_one_between_frames(attacked: Attacked) -> None:
    attacked.send(pack(Kind.BATCH, b"\x91" + encoded(marked(1)))[:-1])
    attacked.socket.close()
    attacked.assert_ended("it ended within a frame")


def test_messages_before_what_cannot_be_are_received(attacked: Attacked) -> None:
    attacked.send(pack(Kind.BATCH, b"\x91" + encoded(marked(5))) + HEADER.pack(0, 77, 0, 0))
    assert attacked.peer.messages(1) == [(HOSTILE, marked(5))]
    attacked.assert_ended("frames of kind 77")
    assert b"frames of kind 77" in attacked.socket.recv(1_000), "the other side is told why"


@pytest.mark.parametrize("attacked", ["unix"], indirect=True)
class TestDescriptors:
    def test_those_that_no_frame_announces_are_closed(self, attacked: Attacked) -> None:
        attacked.send(pack(Kind.BATCH, b"\x91" + encoded(marked(5))), sealed_memory(), sealed_memory())
        assert attacked.peer.messages(1) == [(HOSTILE, marked(5))]
        attacked.assert_ended("2 descriptors came that no frame has announced")
        assert open_memory() == 0

    def test_so_are_those_of_frames_that_never_end(self, attacked: Attacked) -> None:
        begun = HEADER.pack(1_000_000, Kind.CARRIED, 1, 1)
        attacked.send(begun, sealed_memory())
        with pytest.raises(OSError):
            for _ in range(10_000):
                attacked.send(b"x", sealed_memory())
                attacked.peer.links.receive()
        attacked.assert_ended("descriptors came that no frame has announced")

    def test_what_is_no_memory_is_refused(self, attacked: Attacked) -> None:
        attacked.send(carried((Where.OWN, 0, 0, 5_000)), os.open(os.devnull, os.O_RDONLY))
        attacked.assert_ended("no memory")

    def test_memory_that_is_smaller_than_announced_is_refused(self, attacked: Attacked) -> None:
        attacked.send(carried((Where.OWN, 0, 0, 5_000)), sealed_memory(4_096))
        attacked.assert_ended("8,192 were announced")
        assert attacked.peer.memory.mapped_bytes() == 0

    def test_a_piece_beyond_its_arena_is_refused(self, attacked: Attacked) -> None:
        attacked.send(pack(Kind.ARENA, ARENA.pack(1, 8_192), descriptors=1), sealed_memory(8_192))
        attacked.send(carried((Where.ARENA, 1, 8_000, 193)))
        attacked.assert_ended("193 bytes at 8000 is beyond its arena")

    def test_an_arena_that_comes_twice_is_refused(self, attacked: Attacked) -> None:
        for _ in range(2):
            attacked.send(pack(Kind.ARENA, ARENA.pack(1, 8_192), descriptors=1), sealed_memory(8_192))
        attacked.assert_ended("arena 1 came twice")

    def test_a_second_connection_that_is_not_there_is_an_error(self, attacked: Attacked) -> None:
        attacked.send(carried((Where.APART, 1, 0, 5_000)))
        attacked.assert_ended("this link has none")


@pytest.mark.parametrize("attacked", ["tcp"], indirect=True)
class TestBuffers:
    def test_one_that_is_announced_twice_ends_the_link(self, attacked: Attacked) -> None:
        attacked.send(carried((Where.APART, 1, 0, 5_000), (Where.APART, 1, 0, 5_000)))
        attacked.assert_ended("buffer 1 was announced twice")

    @pytest.mark.parametrize("length", [0, 5_001, 1 << 31])
    def test_slices_that_do_not_fit_end_the_link(self, length: int, attacked: Attacked) -> None:
        attacked.send(carried((Where.APART, 1, 0, 5_000)))
        assert attacked.connection.buffers is not None
        attacked.connection.buffers.sendall(SLICE.pack(1, length))
        attacked.assert_ended("a slice of")

    def test_an_end_before_the_buffer_has_come_ends_the_link(self, attacked: Attacked) -> None:
        attacked.send(carried((Where.APART, 1, 0, 5_000)))
        assert attacked.connection.buffers is not None
        attacked.connection.buffers.sendall(SLICE.pack(1, 5_000) + b"begun")
        attacked.connection.buffers.close()
        attacked.assert_ended("the connection for buffers broke: the other side closed it")
        assert attacked.peer.memory.mapped_bytes() == 0, "nothing is left of the buffer that has begun"

    def test_one_for_which_there_is_no_memory_ends_the_link(self, attacked: Attacked) -> None:
        attacked.send(carried((Where.APART, 1, 0, 1 << 39)))
        assert attacked.connection.buffers is not None
        attacked.connection.buffers.sendall(SLICE.pack(1, 5) + b"begun")
        attacked.assert_ended("needs 549,755,813,888 bytes")
        assert attacked.peer.memory.mapped_bytes() == 0

    def test_a_receiver_that_ends_amid_a_move_leaves_nothing_of_the_partition_here(self, attacked: Attacked) -> None:
        attacked.send(pack(Kind.BATCH, b"\x91" + encoded(marked(5))))
        assert attacked.peer.messages(1) == [(HOSTILE, marked(5))]
        array = attacked.peer.memory.empty(5_000_000)
        attacked.peer.links.send(HOSTILE, Partition(1, 2, 3, 4, {0: array}, {}, []))
        del array
        assert attacked.connection.buffers is not None
        assert attacked.connection.buffers.recv(SLICE.size), "it has begun"
        attacked.connection.buffers.close()
        attacked.socket.close()
        attacked.assert_ended("")
        assert attacked.peer.memory.mapped_bytes() == 0

    def test_a_slice_that_is_never_announced_ends_the_link_when_no_more_frames_come(self, attacked: Attacked) -> None:
        assert attacked.connection.buffers is not None
        attacked.connection.buffers.sendall(SLICE.pack(2, 5_000) + bytes(5_000))
        attacked.send(carried((Where.APART, 1, 0, 5_000)))
        attacked.socket.close()
        attacked.assert_ended("a slice came of buffer 2, which was not announced")


@pytest.mark.parametrize("size", [1_000, 100_000, 2_000_000], ids=["messages", "shared or stream", "moved"])
def test_a_peer_that_stops_reading_loses_its_link_when_the_queue_is_full(
    size: int, attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("frontends.dataflow.transport.QUEUED_BYTES_MAX", 1 << 20)
    monkeypatch.setattr("frontends.dataflow.link.LENT_BYTES_MAX", 10 << 20)
    attacked.send(pack(Kind.BATCH, b"\x91" + encoded(marked(5))))
    assert attacked.peer.messages(1) == [(HOSTILE, marked(5))]
    array = np.zeros(size, np.uint8)
    for _ in range(100_000_000 // size):
        if HOSTILE not in attacked.peer.links.peers():
            break
        attacked.peer.links.send(HOSTILE, chunk(array))
    attacked.assert_ended("it took nothing for 0.05 s, and")


def test_a_queue_that_is_full_ends_no_link_that_goes_on(
    pair: tuple[Peer, Peer], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = pair
    monkeypatch.setattr("frontends.dataflow.transport.QUEUED_BYTES_MAX", 1 << 20)
    with ExitStack() as stack:
        stack.callback(lambda: one.links.close(0))
        for _ in range(10):
            other.links.send(0, chunk(np.zeros(9_000, np.uint8)))
            one.messages(1)
    assert other.links.peers() == [0]


# ---- before a link begins ---------------------------------------------------------------------------


Opened = tuple[Door, Address, threading.Semaphore]
"""A door, its address, and what is released when it lets somebody in."""


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Callable[[float], Opened]]:
    """Opens a door whose handshakes may take so many seconds."""
    made: list[Door] = []
    let_in = threading.Semaphore(0)

    def opened(timeout_s: float) -> Opened:
        door = Door(0, KEY, set(), let_in.release, timeout_s=timeout_s)
        made.append(door)
        path = door.listen_unix(str(tmp_path))
        door.open()
        return door, Address("here", path, "", 0), let_in

    yield opened
    for each in made:
        each.close()


def stranger(address: Address) -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    made.settimeout(WAIT_S)
    made.connect(address.unix_path)
    return made


@pytest.mark.parametrize("said", [b"", b"x", b"x" * INTRODUCTION_BYTES], ids=["nothing", "a little", "nonsense"])
def test_a_stranger_is_shown_out(said: bytes, door: Callable[[float], Opened]) -> None:
    opened, address, _ = door(0.05)
    with stranger(address) as connection:
        connection.send(said)
        assert connection.recv(1) == b""
    assert not opened.connections


def test_strangers_that_say_nothing_do_not_keep_others_out(
    door: Callable[[float], Opened], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("frontends.dataflow.door.GREETED_MAX", 5)
    opened, address, let_in = door(WAIT_S)
    with ExitStack() as stack:
        silent = [stack.enter_context(stranger(address)) for _ in range(20)]
        connected = connect(KEY, 1, 0, address, transport="unix", allow_plaintext=False)
        stack.callback(connected.messages.close)
        assert all(connection.recv(1) == b"" for connection in silent[:15]), "those that came first are shown out"
        assert let_in.acquire(timeout=WAIT_S)
    assert [connection.peer for connection in opened.connections] == [1]


# ---- anything --------------------------------------------------------------------------------------


RIGHT = [
    pack(Kind.BATCH, b"\x91" + encoded(marked(1))),
    carried((Where.STREAM, 0, 0, 20)) + bytes(20),
    carried((Where.ARENA, 0, 0, 5)),
    pack(Kind.FREED, PIECE.pack(0, 0)),
    pack(Kind.DROPPED, bytes(4)),
    pack(Kind.ARENA, ARENA.pack(0, 4_096), descriptors=1),
    carried((Where.OWN, 0, 0, 4_096), kind=Kind.MOVED),
    pack_carried(Kind.MOVED, [], encoded(Partition(1, 2, 3, 4, {0: {"a": 5}}, {}, []))),
]


@given(
    st.lists(st.tuples(st.sampled_from(RIGHT), st.booleans()), max_size=6),
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=3),
    st.integers(0, 400),
)
def test_whatever_comes_a_link_ends_with_a_reason_or_goes_on(
    frames: list[tuple[bytes, bool]], changes: list[tuple[int, int]], cut: int
) -> None:
    """Frames that are right, with and without a descriptor, changed anywhere, and cut."""
    before, memfd = open_memory(), sealed_memory()
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    memory = Memory(free=lambda: 1 << 28)
    link = Link(
        Connection(1, ours, None),
        memory,
        Encoder(),
        Decoder(Message),
        lambda peer, messages: None,
        lambda link: None,
        lambda link: None,
        lambda: False,
    )
    try:
        for number, (frame, with_descriptor) in enumerate(frames):
            sent = bytearray(frame)
            for position, byte in changes:
                if position % len(frames) == number:
                    sent[position % len(sent)] = byte
            if number == len(frames) - 1:
                del sent[cut + 1 :]
            socket.send_fds(theirs, [sent], [memfd] if with_descriptor else [])
            link.read()
        theirs.close()
        link.read()
    except (LinkEnded, ProtocolError, MemoryError):
        pass
    finally:
        os.close(memfd)
        theirs.close()
        link.close()
    del link
    assert open_memory() == before and memory.mapped_bytes() == 0
