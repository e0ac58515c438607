"""Links: what is sent arrives, by shared memory, by sockets, by both; ends have reasons; nothing is left."""

from __future__ import annotations

import re
import secrets
import select
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from frontends.dataflow.dialling import Address
from frontends.dataflow.encoding import INLINE_BYTES_MAX, flat_bytes
from frontends.dataflow.errors import LinkRefused, MessageTooLarge, PlaintextRefused
from frontends.dataflow.messages import Arrived, Chunk, Partition, Replica
from frontends.dataflow.mover import SLICE, SLICE_BYTES, Mover
from frontends.dataflow.transport import Transport
from tests.support.dataflow_peers import WAIT_S, Peer, chunk, marked
from tests.support.suites import rest_after
from tests.support.waiting import wait_until

LARGE = INLINE_BYTES_MAX // 8 + 1
MakePeer = Callable[..., Peer]


def test_messages_arrive_in_order_in_both_directions(pair: tuple[Peer, Peer]) -> None:
    one, other = pair
    for number in range(100):
        other.links.send(0, marked(number))
    assert one.messages(100) == [(1, marked(number)) for number in range(100)]
    one.links.send(1, marked(7))
    assert other.message() == marked(7)


def test_posted_messages_go_with_the_next_that_is_sent_and_before_a_wait(pair: tuple[Peer, Peer]) -> None:
    one, other = pair
    for number in range(10_000):
        other.links.post(0, marked(number))
    other.links.send(0, marked(10_000))
    assert [message.index for _, message in one.messages(10_001)] == list(range(10_001))
    other.links.post(0, marked(1))
    other.links.receive()
    assert one.message() == marked(1)


def test_small_and_large_arrays_arrive_in_order_and_may_be_written(pair: tuple[Peer, Peer]) -> None:
    one, other = pair
    rng = np.random.default_rng(0)
    sizes = [3, LARGE, 0, 100_000, 7, 1_000_000, LARGE]
    arrays = [rng.random(size) for size in sizes]
    for array in arrays:
        other.links.send(0, chunk(array))
    came = [message.chunks[0] for _, message in one.messages(len(sizes), other)]
    for array, arrived in zip(arrays, came, strict=True):
        assert np.array_equal(array, arrived)
        arrived[:] = 1


def test_what_the_sender_writes_after_sending_does_not_arrive(pair: tuple[Peer, Peer]) -> None:
    one, other = pair
    array = np.zeros(4_000_000)
    for number in range(4):
        array[:] = number
        other.links.send(0, chunk(array))
    array[:] = 99
    came = [message.chunks[0] for _, message in one.messages(4, other)]
    assert [(array == number).all() for number, array in enumerate(came)] == [True] * 4


def test_a_partition_s_arrays_change_hands(pair: tuple[Peer, Peer]) -> None:
    one, other = pair
    array = other.memory.empty(400_000)
    array[:] = np.arange(400_000)
    message = Partition(1, 2, 3, 4, {0: array, 1: np.arange(LARGE), 2: 2.5}, {0: 1}, [(1, 2, {3: [4]}, frozenset({5}))])
    other.links.send(0, message)
    del array, message
    came = one.message(other)
    assert np.array_equal(came.values[0], np.arange(400_000)) and np.array_equal(came.values[1], np.arange(LARGE))
    assert came.arrived == [(1, 2, {3: [4]}, frozenset({5}))]
    if other.transport == "unix":
        assert one.memory.own_file(flat_bytes(came.values[0])) is not None, "it can be handed on"
    # The thread that sends large buffers over TCP may let go of them after they have come.
    wait_until(lambda: other.memory.mapped_bytes() < 400_000 * 8, "the sender has none of it any more")


def test_an_array_that_is_handed_over_twice_is_copied_the_second_time(peers: MakePeer, tmp_path: Path) -> None:
    one, other = peers(0, "unix"), peers(1, "unix")
    other.links.dial(0, one.links.listen(tmp_path))
    array = other.memory.empty(LARGE)
    array[:] = 1
    for _ in range(2):
        other.links.send(0, Partition(1, 2, 3, 4, {0: array, 1: array}, {}, []))
    first, second = (message.values for _, message in one.messages(2))
    first[0][:] = 2
    assert (first[1] == 1).all() and (second[0] == 1).all() and (second[1] == 1).all()


def test_pieces_of_shared_memory_come_back_and_are_used_again(peers: MakePeer, tmp_path: Path) -> None:
    one, other = peers(0, "unix"), peers(1, "unix")
    other.links.dial(0, one.links.listen(tmp_path))
    for number in range(200):
        other.links.send(0, chunk(np.full(50_000, number)))
        came = one.message().chunks[0]
        assert (came == number).all()
        del came
        one.links.receive()
        other.links.receive()
    assert other.memory.mapped_bytes() <= 2 << 20, "200 arrays of 400 kB went through memory of two"


def test_an_array_outlives_the_link_by_which_it_came(peers: MakePeer, tmp_path: Path) -> None:
    one, other = peers(0, "unix"), peers(1, "unix")
    other.links.dial(0, one.links.listen(tmp_path))
    other.links.send(0, chunk(np.full(50_000, 3.0)))
    came = one.message().chunks[0]
    other.links.close()
    assert one.lost() == [(1, "it closed the connection")]
    assert other.memory.mapped_bytes() == 0
    came += 1
    assert (came == 4).all()
    del came
    assert one.memory.mapped_bytes() == 0


def test_what_was_sent_before_a_link_ended_arrives(pair: tuple[Peer, Peer]) -> None:
    one, other = pair
    for number in range(5_000):
        other.links.post(0, marked(number))
    other.links.close(0)
    assert len(one.messages(5_000)) == 5_000
    assert one.lost() == [(1, "it closed the connection")]
    one.links.send(1, marked(1))  # Dropped.
    assert one.links.peers() == []


class InterruptedSocket:
    """It sends, and then Ctrl-C comes."""

    def __init__(self, whole: socket.socket) -> None:
        self._whole = whole

    def send(self, data: memoryview) -> None:
        self._whole.send(data)
        raise KeyboardInterrupt

    def sendmsg(self, parts: list[memoryview], rights: list[Any]) -> None:
        self._whole.sendmsg(parts, rights)
        raise KeyboardInterrupt

    def __getattr__(self, name: str) -> Any:
        return getattr(self._whole, name)


@pytest.mark.parametrize("place", ["socket", "queue", "message", "encoding"])
@pytest.mark.parametrize("size", [1, LARGE, 100_000])
def test_a_call_that_ctrl_c_ends_midway_leaves_nothing_that_cannot_be_read(
    pair: tuple[Peer, Peer], monkeypatch: pytest.MonkeyPatch, place: str, size: int
) -> None:
    one, other = pair
    link = other.links._links[0]
    owner, name = {
        "socket": (link, "socket"), "queue": (link, "_enqueue"), "message": (link, "_flush"),
        "encoding": (link.encoder, "append"),
    }[place]  # fmt: skip
    whole = getattr(owner, name)

    def interrupted(*args: Any) -> None:
        if place != "message":
            whole(*args)
        raise KeyboardInterrupt

    other.links.send(0, marked(1))
    with monkeypatch.context() as during:
        during.setattr(owner, name, InterruptedSocket(whole) if place == "socket" else interrupted)
        message = chunk(np.arange(float(size)))
        with suppress(KeyboardInterrupt):
            other.links.send(0, message)
    other.links.send(0, marked(2))
    until_s = time.monotonic() + WAIT_S
    came: list[Any] = []
    while marked(2) not in came and not (lost := one.links.lost()):
        assert time.monotonic() < until_s
        one.links.wait(0.01)
        came += [message for _, message in one.links.receive()]
    assert came[0] == marked(1)
    if marked(2) not in came:
        assert re.fullmatch("it closed the connection|it ended within a frame|.* the other side closed it", lost[0][1])
        assert other.links.lost() == [(0, "a call that sent by it was interrupted")]


def test_a_peer_that_never_had_a_link_is_an_error(peers: MakePeer) -> None:
    with pytest.raises(KeyError, match="no link with worker 5"):
        peers(0).links.send(5, marked(1))


def test_a_link_that_was_lost_can_be_made_again(pair: tuple[Peer, Peer], peers: MakePeer, tmp_path: Path) -> None:
    one, _ = pair
    third = peers(2)
    address = third.links.listen(tmp_path)
    one.links.dial(2, address)
    one.links.end(2, "for a test")
    assert one.links.lost() == [(2, "for a test")]
    assert third.lost() == [(0, "it ended the link: for a test")]
    one.links.dial(2, address)
    one.links.send(2, marked(3))
    assert third.message() == marked(3)


def test_a_second_link_between_two_is_refused(pair: tuple[Peer, Peer], peers: MakePeer, tmp_path: Path) -> None:
    third = peers(2)
    address = third.links.listen(tmp_path)
    pair[0].links.dial(2, address)
    with pytest.raises(LinkRefused, match="there is a link with it already"):
        pair[0].links.dial(2, address)
    with pytest.raises(LinkRefused, match=r"no link to worker 2 at .*: it has a link with this peer already"):
        peers(0).links.dial(2, address)
    with pytest.raises(LinkRefused, match="another peer of the program listens there"):
        peers(5).links.dial(6, address)


@pytest.mark.parametrize("transport", ["unix", "tcp"])
def test_a_peer_with_another_key_is_refused_and_the_address_is_named(
    transport: Transport, peers: MakePeer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one = peers(0, transport)
    address = one.links.listen(tmp_path)
    with pytest.raises(LinkRefused, match="whoever listens there does not have the program's key") as refused:
        peers(1, transport, secrets.token_bytes(32)).links.dial(0, address)
    assert refused.value.address == (address.unix_path or f"{address.host}:{address.port}")
    other = peers(1, transport)
    other.links.dial(0, address)
    other.links.send(0, marked(1))
    assert one.messages(1) == [(1, marked(1))] and one.links.peers() == [1]


def test_an_address_where_nobody_listens_is_named(peers: MakePeer, tmp_path: Path) -> None:
    one = peers(0)
    address = one.links.listen(tmp_path)
    one.links.close()
    with pytest.raises(LinkRefused, match=rf"127.0.0.1:{address.port}: Connection refused"):
        peers(1).links.dial(0, address)
    with pytest.raises(LinkRefused, match=r"peer0-.*: No such file"):
        peers(1, "unix").links.dial(0, address)
    with pytest.raises(LinkRefused, match="Unix socket is on another machine"):
        peers(1).links.dial(0, Address("elsewhere", address.unix_path, "", 0))


def test_plain_text_does_not_leave_the_machine_unless_that_is_allowed(peers: MakePeer, tmp_path: Path) -> None:
    far = Address("elsewhere", "", "192.0.2.1", 9)
    with pytest.raises(PlaintextRefused, match=r"192.0.2.1:9: .*not encrypted.*allow_plaintext=True"):
        peers(1).links.dial(0, far)
    address = peers(0).links.listen(tmp_path, "0.0.0.0")
    assert address.unix_path and not address.host, "nor does anybody listen there"
    assert peers(3, allow_plaintext=True).links.listen(tmp_path, "0.0.0.0").port


def test_a_message_that_no_frame_holds_is_an_error_and_the_link_goes_on(
    pair: tuple[Peer, Peer], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = pair
    monkeypatch.setattr("frontends.dataflow.link.MESSAGE_BYTES_MAX", 1_000)
    with pytest.raises(MessageTooLarge, match=r"a message Replica has 2,0\d\d bytes.*at most 1,000"):
        other.links.send(0, Replica(1, 2, 3, 4, 5, 6, "x" * 2_000))
    other.links.send(0, marked(1))
    assert one.message() == marked(1)


def test_an_outer_selector_hears_of_messages(pair: tuple[Peer, Peer]) -> None:
    one, other = pair
    one.links.receive()
    other.links.send(0, marked(1))
    with select.epoll() as outer:
        outer.register(one.links.fileno(), select.EPOLLIN)
        assert outer.poll(WAIT_S)
    assert one.links.receive() == [(1, marked(1))]


def test_a_large_array_over_tcp_does_not_hold_up_what_comes_after_unless_it_must(
    peers: MakePeer, tmp_path: Path
) -> None:
    one, other = peers(0, "tcp"), peers(1, "tcp")
    other.links.dial(0, one.links.listen(tmp_path))
    large = np.arange(4_000_000)
    other.links.send(0, Partition(1, 2, 3, 4, {0: large}, {}, []))
    other.links.send(0, marked(1))
    other.links.send(0, chunk(large[::-1]))
    other.links.send(0, marked(2))
    came = [message for _, message in one.messages(4, other)]
    ordered = [message for message in came if not isinstance(message, Partition)]
    assert [type(message) for message in ordered] == [Arrived, Chunk, Arrived], "what does not move keeps its order"
    (moved,) = (message for message in came if isinstance(message, Partition))
    assert np.array_equal(moved.values[0], large) and np.array_equal(ordered[1].chunks[0], large[::-1])


def test_a_partition_whose_arrays_are_still_on_their_way_holds_up_nothing(
    peers: MakePeer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = peers(0, "tcp"), peers(1, "tcp")
    other.links.dial(0, one.links.listen(tmp_path))
    large, small = np.arange(400_000), np.arange(10)
    kept: list[Callable[[], None]] = []
    with monkeypatch.context() as patch:
        send = Mover.send
        patch.setattr(Mover, "send", lambda *arguments, **how: kept.append(lambda: send(*arguments, **how)))
        other.links.send(0, Partition(1, 2, 3, 4, {0: large}, {}, []))
    other.links.send(0, Partition(1, 2, 5, 4, {0: small}, {}, []))
    other.links.send(0, marked(1))
    (_, overtaking), (_, after) = one.messages(2, other)
    assert overtaking.index == 5 and after == marked(1)
    for go in kept:
        go()
    assert np.array_equal(one.message(other).values[0], large)


def test_a_partition_gives_way_to_tasks_and_to_what_they_wait_for_but_not_in_haste(
    peers: MakePeer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("frontends.dataflow.mover.SHARE_OF_MOVES", 1e-9)  # Hours of rest after each slice.
    one, other = peers(0, "tcp"), peers(1, "tcp")
    other.links.dial(0, one.links.listen(tmp_path))
    large = np.arange(400_000)

    def leave(index: int) -> None:
        other.links.send(0, Partition(1, 2, index, 4, {0: large}, {}, []))

    leave(5)
    assert one.message(other).index == 5, "the sender has nothing else to do"
    other.links.wait(0)
    other.links.in_haste = True
    leave(6)
    assert one.message(other).index == 6
    other.links.in_haste = False
    leave(7)
    other.links.send(0, chunk(large))
    assert isinstance(one.message(other), Chunk)


@pytest.mark.parametrize("works", [False, True])
def test_a_partition_and_other_buffers_take_turns_but_while_it_rests(
    works: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("frontends.dataflow.mover.SHARE_OF_MOVES", 1e-9)  # Hours of rest after each slice.
    gone: list[int] = []
    with socket.socket() as unused:
        mover = Mover(unused, lambda: None, lambda: works)
        monkeypatch.setattr(mover, "_start", lambda *arguments: None)

        def send(head: bytes, part: memoryview) -> None:
            gone.append(SLICE.unpack(head)[0])
            mover._closed = len(gone) == (3 if works else 5)

        monkeypatch.setattr(mover, "_send", send)
        mover.send(1, memoryview(bytes(3 * SLICE_BYTES)), moves=True)
        mover.send(2, memoryview(bytes(2 * SLICE_BYTES)))
        mover._send_until_closed()
    assert gone == ([1, 2, 2] if works else [1, 2, 1, 2, 1])


def test_a_large_array_arrives_though_its_sender_closes_the_link(peers: MakePeer, tmp_path: Path) -> None:
    one, other = peers(0, "tcp"), peers(1, "tcp")
    other.links.dial(0, one.links.listen(tmp_path))
    large = np.arange(4_000_000)
    other.links.send(0, Partition(1, 2, 3, 4, {0: large}, {}, []))
    closing = threading.Thread(target=other.links.close, args=(WAIT_S,))
    closing.start()
    assert np.array_equal(one.message().values[0], large)
    assert one.lost() == [(1, "it closed the connection")]
    closing.join()


@pytest.mark.parametrize("transport", ["unix", "tcp"])
@pytest.mark.parametrize(
    "array_bytes", rest_after(1, 10_000_000, INLINE_BYTES_MAX, 200_000), ids=["large", "small", "middle"]
)
@pytest.mark.rest
def test_two_that_send_each_other_100_mb_at_once_end(
    transport: Transport, array_bytes: int, peers: MakePeer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("frontends.dataflow.transport.QUEUED_BYTES_MAX", 1 << 20)
    one, other = peers(0, transport), peers(1, transport)
    other.links.dial(0, one.links.listen(tmp_path))
    count = 100_000_000 // array_bytes
    received: dict[int, int] = {}

    def send_all_then_receive_all(peer: Peer, to: int) -> None:
        array = np.zeros(array_bytes // 8)
        for number in range(count):
            array[:] = number
            peer.links.send(to, chunk(array))
        came = 0
        while came < count:
            peer.links.wait(WAIT_S)
            for _, message in peer.links.receive():
                assert (message.chunks[0] == came).all()
                came += 1
        received[peer.me] = came
        peer.links.close(WAIT_S)  # What is queued goes first.

    other.links.send(0, marked(1))
    assert one.message() == marked(1)
    threads = [threading.Thread(target=send_all_then_receive_all, args=each) for each in ((one, 1), (other, 0))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert received == {0: count, 1: count}
