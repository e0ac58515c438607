"""What comes over a WebSocket that should not: its link alone is closed, with a reason, and memory stays bounded."""

import asyncio
import functools
import socket
import struct
import time
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from scheduler import daemon as scheduler_daemon
from scheduler.daemon import SchedulerDaemon
from scheduler.options import SchedulerOptions
from sparrow_py.daemon.process import until
from sparrow_py.errors import LinkError
from sparrow_py.http import http_guard
from sparrow_py.wire import handshake
from sparrow_py.wire import messages as m
from sparrow_py.wire.connection import MESSAGES_PER_TURN_MAX
from tests.support.daemons import Daemon, get_json, nodes_of
from tests.support.raw import BINARY, CLOSE, CONTINUATION, PING, TEXT, Raw, batch, connected, ws_frame
from tests.support.waiting import TIMEOUT_S, wait_until

CLIENT = m.Hello(m.PROTOCOL_VERSION, "client", "", "mallory", "")
NODE = m.Hello(m.PROTOCOL_VERSION, "node", "intruder", "", "", m.NodeInfo(0, {}, {}, {}))
FRAME_MAX = m.FRAME_BYTES_MAX + m.MESSAGE_OVERHEAD_BYTES
PROTOCOL_ERROR, BAD_TEXT, TOO_BIG = 1002, 1007, 1009
CANCEL = batch(m.CancelJob("no-such-job"))
DECODERS = [m.FrameDecoder(kind) for kind in (m.FromClient, m.FromNode, m.ToClient, m.ToNode, m.Hello, m.Welcome)]


@asynccontextmanager
async def here(**options: Any) -> AsyncIterator[SchedulerDaemon]:
    """A scheduler in this process."""
    daemon = SchedulerDaemon(SchedulerOptions(port=0, **options))
    await daemon.start()
    try:
        async with asyncio.timeout(TIMEOUT_S):
            yield daemon
    finally:
        await daemon.stop()


# ---- the WebSocket ---------------------------------------------------------------------------


@functools.cache
def deflated() -> bytes:
    """100 MB of zeros."""
    deflate = zlib.compressobj(9, wbits=-15)
    return b"".join([*(deflate.compress(bytes(1 << 20)) for _ in range(100)), deflate.flush(zlib.Z_SYNC_FLUSH)])[:-4]


FRAMES: dict[str, Callable[[], bytes]] = {
    "compressed, though that was not agreed on": lambda: ws_frame(BINARY, deflated(), rsv=4),
    "reserved bits": lambda: ws_frame(BINARY, CANCEL, rsv=2),
    "an opcode of the future": lambda: ws_frame(3, CANCEL),
    "a control opcode of the future": lambda: ws_frame(0xF),
    "the rest of nothing": lambda: ws_frame(CONTINUATION, CANCEL),
    "a message within a message": lambda: ws_frame(BINARY, b"\x91", fin=False) + ws_frame(BINARY, CANCEL),
    "a ping in two parts": lambda: ws_frame(PING, b"x", fin=False),
    "a ping of 200 bytes": lambda: ws_frame(PING, b"x" * 200),
    "a close of one byte": lambda: ws_frame(CLOSE, b"x"),
    "a close with a code that is none": lambda: ws_frame(CLOSE, struct.pack(">H", 5)),
    "text": lambda: ws_frame(TEXT, b"text"),
    "text that is none": lambda: ws_frame(TEXT, b"\xff\xfe"),
    "a length of 2^63": lambda: ws_frame(BINARY, b"x", length=(1 << 64) - 1),
    "a length of 1 TB": lambda: ws_frame(BINARY, b"x" * 1000, length=1 << 40),
    "64 MB": lambda: ws_frame(BINARY, bytes(64 << 20)),
    "64 MB in parts": lambda: ws_frame(BINARY, fin=False) + ws_frame(CONTINUATION, bytes(1 << 16), fin=False) * 1024,
    "9 MB, a byte a part": lambda: ws_frame(BINARY, fin=False) + ws_frame(CONTINUATION, b"x", fin=False) * 9_000_000,
    "a frame of no messages": lambda: ws_frame(BINARY, b"\x90"),
    "nothing": lambda: ws_frame(BINARY),
    "HTTP again": lambda: b"GET /v1/jobs HTTP/1.1\r\nHost: localhost\r\n\r\n" * 10,
}  # fmt: skip


@pytest.mark.parametrize("hello", [None, CLIENT, NODE], ids=["stranger", "client", "node"])
@pytest.mark.parametrize("frame", FRAMES)
def test_frames_that_are_none(scheduler: Daemon, hello: m.Hello | None, frame: str) -> None:
    with connected(scheduler.address) as raw:
        if hello is None:
            assert raw.upgrade().status == 101
        else:
            raw.hello(hello)
        raw.send(FRAMES[frame]())
        ended = raw.said()
    assert ended.goodbye or ended.code in (PROTOCOL_ERROR, BAD_TEXT, TOO_BIG, 1000, None)
    wait_until(lambda: "intruder" not in nodes_of(scheduler.address))


def test_compression_is_not_agreed_on(scheduler: Daemon) -> None:
    with connected(scheduler.address) as raw:
        answer = raw.upgrade("Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits, x-anything")
        assert answer.status == 101
        assert "Sec-WebSocket-Extensions" not in answer.headers


@pytest.mark.parametrize("hello", [None, CLIENT], ids=["stranger", "client"])
@pytest.mark.parametrize("size", [0, 125])
def test_pings_whose_pongs_nobody_reads(scheduler: Daemon, hello: m.Hello | None, size: int) -> None:
    """What cannot be answered is not read any more."""
    flood = ws_frame(PING, bytes(size)) * 10_000
    with connected(scheduler.address) as raw:
        if hello is None:
            assert raw.upgrade().status == 101
        else:
            raw.hello(hello)
        raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # So little suffices.
        raw.socket.settimeout(0.5)
        try:
            for _ in range(2000):
                raw.socket.sendall(flood)
        except (TimeoutError, ConnectionError):
            pass
        else:
            pytest.fail("20 million pings were taken in")
        get_json(scheduler.address, "/v1/nodes")


def test_empty_parts_of_a_message_that_does_not_end(scheduler: Daemon) -> None:
    with connected(scheduler.address) as raw:
        raw.hello(CLIENT)
        raw.send(ws_frame(BINARY, fin=False))
        for _ in range(20):
            raw.send(ws_frame(CONTINUATION, fin=False) * 50_000)
        get_json(scheduler.address, "/v1/nodes")
        ended = raw.said()
    assert (ended.goodbye, ended.code) == ("a message comes in more than 10000 frames", TOO_BIG)


def test_an_honest_link_by_hand(scheduler: Daemon) -> None:
    """What the others are measured against."""
    with connected(scheduler.address) as raw:
        raw.hello(CLIENT)
        halves = [ws_frame(BINARY, CANCEL[:3], fin=False), ws_frame(CONTINUATION, CANCEL[3:])]
        raw.send(b"".join([ws_frame(PING, b"x"), *halves, ws_frame(BINARY, batch(m.Goodbye("bye")))]))
        raw.send(ws_frame(CLOSE, struct.pack(">H", 1000)))
        ended = raw.said()
    assert (ended.goodbye, ended.pongs, ended.code) == ("bye", 1, 1000)


def test_a_dialler_that_does_not_mask(scheduler: Daemon) -> None:
    with connected(scheduler.address) as raw:
        raw.hello(CLIENT)
        raw.send(ws_frame(BINARY, CANCEL, mask=False))
        ended = raw.said()
    assert (ended.goodbye, ended.code) == ("a frame is not masked", PROTOCOL_ERROR)


async def test_who_says_nothing_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake, "HANDSHAKE_TIMEOUT_S", 0.1)
    async with here() as daemon:
        with connected(daemon.address) as raw:
            assert (await asyncio.to_thread(raw.upgrade)).status == 101
            assert (await asyncio.to_thread(raw.said)).goodbye == "no first message within 0.1 s"


async def test_who_falls_silent_has_said_no_goodbye() -> None:
    """A client that does not answer pings, as one that is cut off, has its time of grace to come back."""
    async with here(heartbeat_s=0.4, client_grace_s=1000.0) as daemon:
        with connected(daemon.address) as raw:
            assert (await asyncio.to_thread(raw.upgrade)).status == 101
            job = m.SubmitJob("j", 0, "", [m.Stage("noop", 1, b"", "", 1.0, 0, None)], 1, False, None, False)
            # At once: however slow this process is, all is there before the first ping is due.
            raw.send(ws_frame(BINARY, batch(CLIENT)) + ws_frame(BINARY, batch(job, m.AddTasks("j", 0, [b""]))))
            await until(lambda: bool(daemon.core.jobs))
            await until(lambda: not daemon.core.jobs["j"].client)
            assert daemon.core.jobs["j"].unplaced == 1


async def test_who_says_goodbye_is_not_heard_any_more() -> None:
    async with here() as daemon:
        with connected(daemon.address) as raw:
            await asyncio.to_thread(raw.hello, NODE)
            raw.send(ws_frame(BINARY, batch(m.Goodbye("bye"))) + ws_frame(BINARY, batch(m.NodeState("draining", "x"))))
            await asyncio.to_thread(raw.said)
        assert not len(daemon.core.nodes)


# ---- frames ----------------------------------------------------------------------------------


MSGPACK = {
    "4 billion messages": b"\xdd\xff\xff\xff\xff",
    "4 billion messages, and some": b"\xdd\xff\xff\xff\xff" + b"\x92\x16\xa1j" * 1000,
    "4 billion fields": b"\x91\xdd\xff\xff\xff\xff\x16",
    "4 GB of text": b"\x91\x92\x16\xdb\xff\xff\xff\xff",
    "4 GB of bytes": b"\x91\x94\x15\xa1j\x00\x91\xc6\xff\xff\xff\xff",
    "a map of 4 billion": b"\x91\xdf\xff\xff\xff\xff",
    "depth": b"\x91" * 500_000,
    "depth in a field": b"\x91\x92\x16" + b"\x91" * 500_000,
    "depth in a map": b"\x91\x92\x16" + b"\x81\x01" * 250_000,
    "an extension": b"\x91\xc7\x05\x01abcde",
    "an extension of 4 GB": b"\x91\xc9\xff\xff\xff\xff\x01",
    "a time": b"\x91\xd6\xff\x00\x00\x00\x00",
    "the byte that is never used": b"\xc1",
    "text that is none": b"\x91\x92\x16\xa2\xff\xfe",
    "a tail": batch(m.CancelJob("j")) + b"\x90",
    "a tag that is none": b"\x91\x92\xcd\xff\xff\xa1j",
    "a tag of the wrong type": b"\x91\x92\xa1x\xa1j",
    "no tag": b"\x91\x90",
    "a field too few": b"\x91\x91\x16",
    "a number for text": b"\x91\x92\x16\x01",
    "a message that is none": b"\x91\xc0",
}


@pytest.mark.parametrize("body", MSGPACK)
def test_bodies_of_frames_that_are_none(body: str) -> None:
    """For every union of messages, in no time and with no memory."""
    for decode in DECODERS:
        with pytest.raises(LinkError, match="malformed frame"):
            decode(MSGPACK[body])


@pytest.mark.parametrize("hello", [None, CLIENT, NODE], ids=["stranger", "client", "node"])
def test_such_bodies_close_their_link_with_a_reason(scheduler: Daemon, hello: m.Hello | None) -> None:
    for name, body in MSGPACK.items():
        with connected(scheduler.address) as raw:
            if hello is None:
                assert raw.upgrade().status == 101
            else:
                raw.hello(hello)
            raw.send(ws_frame(BINARY, body))
            too_long = hello is None and len(body) > http_guard.HELLO_BYTES_MAX
            assert ("HELLO_BYTES_MAX" if too_long else "malformed frame") in raw.said().goodbye, name


FLOODS: dict[str, tuple[Callable[[int], m.Message], int]] = {
    "cancels of no job": (lambda _: m.CancelJob("j"), m.MESSAGES_PER_FRAME_MAX),
    "cancels of tasks of no job": (lambda _: m.CancelTasks("j", [0]), m.MESSAGES_PER_FRAME_MAX),
    "tasks of no job": (lambda _: m.AddTasks("j", 0, [b""]), m.MESSAGES_PER_FRAME_MAX),
    "jobs without tasks": (
        lambda n: m.SubmitJob(f"j{n}", 0, "", [m.Stage("noop", 0, b"", "", 1.0, 0, None)], 1, False, None, False),
        10_000,
    ),
}
"""Messages, and how many of them are a frame."""


@pytest.mark.parametrize("decode", DECODERS)
def test_a_frame_of_too_many_messages_is_refused_before_they_are_decoded(decode: m.FrameDecoder) -> None:
    """Decoded, 1 MiB of them would be 38 MiB."""
    most = m.MESSAGES_PER_FRAME_MAX
    begun = struct.pack(">BI", 0xDD, most + 1)
    for frame in (begun, begun + b"\xc1", begun + batch(m.Goodbye("x"))[1:] * (most + 1)):
        for kind in (bytes, bytearray, memoryview):
            with pytest.raises(LinkError, match=f"malformed frame .* {most + 1} messages; at most {most} are allowed"):
                decode(kind(frame))


def test_a_frame_may_have_as_many_messages_as_may_be_however_their_number_is_written() -> None:
    message = m.Goodbye("x")
    many = batch(message)[1:] * m.MESSAGES_PER_FRAME_MAX
    decode = m.FrameDecoder(m.FromClient)
    for head in (struct.pack(">BI", 0xDD, m.MESSAGES_PER_FRAME_MAX), struct.pack(">BH", 0xDC, 0xFFFF)):
        assert decode(head + many) == [message] * m.MESSAGES_PER_FRAME_MAX


def test_who_sends_a_frame_of_too_many_messages_is_told_so(scheduler: Daemon) -> None:
    with connected(scheduler.address) as raw:
        raw.hello(CLIENT)
        raw.send(ws_frame(BINARY, batch(*[m.CancelJob("")] * 209_713)))
        assert "209713 messages; at most 65535 are allowed" in raw.said().goodbye


@pytest.mark.parametrize("flood", FLOODS)
def test_frames_of_many_tiny_messages(scheduler: Daemon, flood: str) -> None:
    """Others are served between them."""
    message, count = FLOODS[flood]
    frame = ws_frame(BINARY, batch(*map(message, range(count))))
    with connected(scheduler.address) as raw:
        raw.hello(CLIENT)
        for _ in range(5):
            raw.send(frame)
            begun_s = time.monotonic()
            get_json(scheduler.address, "/v1/nodes")
            print(f"{flood}: {time.monotonic() - begun_s:.3f} s for another's answer")


def test_links_that_come_and_go(scheduler: Daemon) -> None:
    for hello in (CLIENT, NODE) * 100:
        raw = Raw(scheduler.address)
        raw.hello(hello)
        raw.socket.close()
    wait_until(lambda: "intruder" not in nodes_of(scheduler.address))


def test_reasons_that_would_begin_lines_of_the_log(scheduler: Daemon) -> None:
    forged = "2030-01-01 00:00:00,000 INFO sparrow.scheduler: all is well"
    for text in (f"\r\n{forged}", f"\x1b[2K\x1b[1A{forged}", f"\u2028{forged}\x00\u202e"):
        with connected(scheduler.address) as raw:
            raw.hello(NODE)
            raw.send(ws_frame(BINARY, batch(m.Goodbye(text))))
            raw.said()
    wait_until(lambda: scheduler.log.read_bytes().decode().count(forged) == 3)
    lines = scheduler.log.read_bytes().decode().split("\n")
    assert len([line for line in lines if forged in line]) == 3
    assert not [line for line in lines if line.startswith(forged)]
    assert all(line.isprintable() for line in lines)


# ---- batches -------------------------------------------------------------------------------------


def submitted(job: str, tasks: int) -> m.SubmitJob:
    return m.SubmitJob(job, 0, "", [m.Stage("noop", tasks, b"", "", 1.0, 0, None)], 1, False, None, False)


def heard_until_ended(raw: Raw, jobs: int) -> list[Any]:
    """The tags of all messages that come until so many jobs have ended."""
    tags: list[Any] = []
    while tags.count(m.JobEnded.__struct_config__.tag) < jobs:
        opcode, payload = raw.frame()
        assert opcode == BINARY
        tags += [message[0] for message in msgspec.msgpack.decode(payload)]
    return tags


@pytest.mark.parametrize("hello", [CLIENT, NODE], ids=["client", "node"])
async def test_of_a_batch_whose_answers_closed_the_link_nothing_more_is_handled(hello: m.Hello) -> None:
    async with here() as daemon:
        heard: list[Any] = []

        def receive(*args: Any) -> None:
            heard.append(args[-2])
            (link,) = [*daemon._clients.values(), *daemon._nodes.values()]
            link.close("enough")

        daemon.core.receive_from_client = receive  # type: ignore[method-assign]
        daemon.core.receive_from_node = receive  # type: ignore[method-assign]
        work: m.Message = m.CancelJob("j") if hello is CLIENT else m.Idle(1)
        with connected(daemon.address) as raw:
            await asyncio.to_thread(raw.hello, hello)
            raw.send(ws_frame(BINARY, batch(work, work, work)))
            assert (await asyncio.to_thread(raw.said)).goodbye == "enough"
        assert heard == [work]


@pytest.mark.parametrize("way", ["one short frame", "one long frame", "a frame for each"])
async def test_others_have_their_turn_after_a_message_that_settles_many_tasks(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = MESSAGES_PER_TURN_MAX if way == "one long frame" else 0
    async with here() as daemon:
        monkeypatch.setattr(scheduler_daemon, "SETTLED_PER_TURN", 1000)
        turn = 0
        turns: list[tuple[m.Message, int]] = []
        receive = daemon.core.receive_from_client

        def count_turns() -> None:
            nonlocal turn
            turn += 1
            if len(turns) < before + 9:
                asyncio.get_running_loop().call_soon(count_turns)

        def noted(client: str, user: str, message: Any, now_s: float) -> None:
            turns.append((message, turn))
            receive(client, user, message, now_s)

        daemon.core.receive_from_client = noted  # type: ignore[method-assign]
        sent: list[m.Message] = [m.CancelJob("none")] * before
        for number in range(4):
            sent += [submitted(f"j{number}", 1001), m.CancelJob(f"j{number}")]
        sent.append(m.CancelJob("none"))
        frames = [batch(message) for message in sent] if way == "a frame for each" else [batch(*sent)]
        with connected(daemon.address) as raw:
            await asyncio.to_thread(raw.hello, CLIENT)
            count_turns()
            raw.send(b"".join(ws_frame(BINARY, frame) for frame in frames))
            tags = await asyncio.to_thread(heard_until_ended, raw, 4)
            await until(lambda: len(turns) == len(sent))
        assert tags.count(m.Outcome.__struct_config__.tag) == 4 * (1001)
        assert [message for message, _ in turns] == sent
        at = [turn for _, turn in turns[before:]]
        assert at[0] == at[1] < at[2] == at[3] < at[4] == at[5] < at[6] == at[7] < at[8]


@pytest.mark.parametrize("way", ["one short frame", "one long frame", "a frame for each"])
async def test_others_have_their_turn_after_messages_that_take_long(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As jobs of many stages do, which settle nothing when they come."""
    count = 2 * MESSAGES_PER_TURN_MAX + 5 if way == "one long frame" else 20
    async with here() as daemon:
        turn = 0
        turns: list[int] = []
        passed_s = 0.0

        def count_turns() -> None:
            nonlocal turn
            turn += 1
            if len(turns) < count:
                asyncio.get_running_loop().call_soon(count_turns)

        def slow(client: str, user: str, message: Any, now_s: float) -> None:
            nonlocal passed_s
            passed_s += 1.5 * scheduler_daemon.TURN_S_MAX
            turns.append(turn)

        monkeypatch.setattr(daemon, "clock", lambda: passed_s)
        daemon.core.receive_from_client = slow  # type: ignore[method-assign]
        sent: list[m.Message] = [m.CancelJob("none")] * count
        frames = [batch(message) for message in sent] if way == "a frame for each" else [batch(*sent)]
        with connected(daemon.address) as raw:
            await asyncio.to_thread(raw.hello, CLIENT)
            count_turns()
            raw.send(b"".join(ws_frame(BINARY, frame) for frame in frames))
            await until(lambda: len(turns) == count)
        assert max(turns.count(one) for one in set(turns)) == 1


async def test_a_client_in_the_process_lets_others_have_their_turn_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler_daemon, "SETTLED_PER_TURN", 1000)
    async with here() as daemon:
        told: list[Any] = []
        settled = daemon.core.counters.settled.values()
        at_each_turn: list[int] = []

        def look() -> None:
            at_each_turn.append(sum(settled))
            if at_each_turn[-1] < 4 * 1001:
                asyncio.get_running_loop().call_soon(look)

        link = daemon.attach("ann", told.extend)
        for number in range(4):
            for message in (submitted(f"j{number}", 1001), m.CancelJob(f"j{number}")):
                link.send(message)
        look()
        await until(lambda: at_each_turn[-1] == 4 * 1001)
        await until(lambda: sum(type(message) is m.JobEnded for message in told) == 4)
        assert sorted(set(at_each_turn)) == [1001 * count for count in range(5)]
        link.send(m.Goodbye("done"))
        link.send(m.CancelJob("none"))
        await until(lambda: not daemon._clients)
