"""Links between two ends in one process: frames, limits, and what each end is told when one goes."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from sparrow_py.access.credentials import log
from sparrow_py.access.principals import ANYBODY
from sparrow_py.daemon.http_app import holder_of
from sparrow_py.errors import LinkError, LinkRefused
from sparrow_py.http import http_guard
from sparrow_py.logs.sparing_log import SparingLog
from sparrow_py.wire import accepting, links
from sparrow_py.wire import messages as m
from sparrow_py.wire.dial import dial as dial_scheduler
from sparrow_py.wire.outgoing import Outgoing
from tests.support.waiting import TIMEOUT_S

HELLO = m.Hello(m.PROTOCOL_VERSION_OLDEST, "client", "", "ann", "", newest=m.PROTOCOL_VERSION)
FRAME_BYTES_MAX = 64 << 10
Serve = Callable[[links.Link], Awaitable[None]]
Dial = Callable[..., Awaitable[links.Link]]


@pytest.fixture
async def dial() -> AsyncIterator[Dial]:
    """`await dial(serve)` is the dialling end of a link whose other end is given to `serve`."""
    servers: list[TestServer] = []
    ends: list[links.Link] = []
    async with aiohttp.ClientSession() as session:

        async def connect(serve: Serve, said: m.Hello = HELLO) -> links.Link:
            async def handle(request: web.Request) -> web.StreamResponse:
                accepted = await accepting.accept(
                    request, name="s", principal_of=lambda *_: ANYBODY,
                    decoders={"client": m.FrameDecoder(m.FromClient)}, heartbeat_s=10.0,
                    frame_bytes_max=FRAME_BYTES_MAX, backlog_bytes_max=1 << 20, admit=lambda *_: None,
                    outgoing=Outgoing(),
                )  # fmt: skip
                if not isinstance(accepted, tuple):
                    return accepted
                link, hello, response = accepted
                assert hello == said
                try:
                    await serve(link)
                finally:
                    await link.aclose("served")
                return response

            app = web.Application()
            http_guard.protect(app, names=None, public_paths=(), holder_of=holder_of)
            app.add_routes([web.get(links.LINK_PATH, handle)])
            server = TestServer(app)
            await server.start_server()
            servers.append(server)
            decode = m.FrameDecoder(m.ToClient)
            link, welcome = await dial_scheduler(
                session, f"{server.host}:{server.port}", said, decode, heartbeat_s=10.0, backlog_bytes_max=1 << 20
            )
            assert welcome == m.Welcome(max(said.version, said.newest), "s", FRAME_BYTES_MAX, "ann")
            ends.append(link)
            return link

        async with asyncio.timeout(TIMEOUT_S):
            yield connect
            for link in ends:
                await link.aclose("the test is over")
            for server in servers:
                await server.close()


async def read_all(link: links.Link, batches: list[list[Any]]) -> None:
    link.listen(batches.append)
    await link.ended()


async def test_who_is_refused_is_logged_for_whatever_reason(
    dial: Dial, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accepting, "refusals", SparingLog(log))  # One that has not had its lines.

    async def serve(_: links.Link) -> None:
        raise AssertionError("it was not refused")

    for said, reason in (
        (msgspec.structs.replace(HELLO, role="cuckoo"), "role: 'cuckoo' is not valid"),
        (msgspec.structs.replace(HELLO, version=0, newest=0), "protocol version"),
    ):
        with pytest.raises(LinkRefused, match=reason):
            await dial(serve, said)
        (record,) = [one for one in caplog.records if "a link from 127.0.0.1 was refused" in one.getMessage()]
        assert reason in record.getMessage()
        caplog.clear()


async def test_what_is_sent_in_one_turn_is_one_frame(dial: Dial) -> None:
    async def serve(link: links.Link) -> None:
        for number in range(100):
            link.send(m.Placed("j", number))
        link.flush()
        link.send(m.JobEnded("j"))

    batches: list[list[Any]] = []
    await read_all(await dial(serve), batches)
    assert batches[0] == [m.Placed("j", number) for number in range(100)]
    assert [message for batch in batches[1:] for message in batch] == [m.JobEnded("j"), m.Goodbye("served")]


async def test_what_is_sent_with_the_welcome_is_no_part_of_the_handshake(dial: Dial) -> None:
    async def serve(link: links.Link) -> None:
        link.send(m.JobAccepted("j"))  # In the turn in which the link was accepted.

    batches: list[list[Any]] = []
    await read_all(await dial(serve), batches)
    assert batches[0][0] == m.JobAccepted("j")


async def test_frames_keep_to_their_limit_and_the_order_of_messages(dial: Dial) -> None:
    received: list[list[Any]] = []

    async def serve(link: links.Link) -> None:
        await read_all(link, received)

    link = await dial(serve)
    sent = [m.AddTasks("j", number, [bytes(10_000)]) for number in range(50)]
    for message in sent:
        link.send(message)
    await link.aclose("done")
    while not received or type(received[-1][-1]) is not m.Goodbye:
        await asyncio.sleep(0)
    messages = [message for batch in received for message in batch]
    assert messages == [*sent, m.Goodbye("done")]
    assert max(len(batch) for batch in received) <= FRAME_BYTES_MAX // 10_000


async def test_a_message_larger_than_a_frame_is_an_error_and_the_link_stands(dial: Dial) -> None:
    received: list[list[Any]] = []

    async def serve(link: links.Link) -> None:
        await read_all(link, received)

    link = await dial(serve)
    link.send(m.CancelJob("before"))
    with pytest.raises(LinkError, match="does not fit a frame of 65536"):
        link.send(m.AddTasks("j", 0, [bytes(100_000)]))
    link.send(m.CancelJob("after"))
    await link.aclose("done")
    while not received or type(received[-1][-1]) is not m.Goodbye:
        await asyncio.sleep(0)
    messages = [message for batch in received for message in batch]
    assert messages == [m.CancelJob("before"), m.CancelJob("after"), m.Goodbye("done")]


async def test_a_peer_that_does_not_read_is_cut_off(dial: Dial) -> None:
    cut_off = asyncio.Event()

    async def serve(link: links.Link) -> None:
        while not link.closed_because:
            link.send(m.Outcome("j", 0, "finished", bytes(30_000), "", 1, "n", None, None, None))  # type: ignore[arg-type]
            await asyncio.sleep(0)
        assert "reads too slowly" in link.closed_because
        cut_off.set()

    await dial(serve)  # And reads nothing.
    await cut_off.wait()


async def test_both_ends_know_why_a_link_was_closed(dial: Dial) -> None:
    async def serve(link: links.Link) -> None:
        link.close("enough")
        await link.aclose()

    batches: list[list[Any]] = []
    link = await dial(serve)
    await read_all(link, batches)
    assert batches == [[m.Goodbye("enough")]]
    await link.aclose("mine")
    link.send(m.CancelJob("dropped"))
    await link.aclose("again")
    assert link.closed_because == "mine"


async def test_an_address_that_refuses() -> None:
    async with aiohttp.ClientSession() as session:
        with pytest.raises(LinkError, match=r"scheduler 127\.0\.0\.1:1 cannot be reached"):
            await dial_scheduler(session, "127.0.0.1:1", HELLO, m.FrameDecoder(m.ToClient), heartbeat_s=10.0)


@pytest.mark.parametrize("follower", [m.Placed("j", 0), m.JobEnded("j")], ids=["sooner", "hurried"])
async def test_what_nobody_waits_for_leaves_with_what_follows_it(
    dial: Dial, monkeypatch: pytest.MonkeyPatch, follower: m.Message
) -> None:
    """By itself it would leave after a thousand seconds."""
    monkeypatch.setattr(m, "UNHURRIED_S", {m.JobAccepted: 1000.0, m.Placed: 0.001})
    batches: list[list[Any]] = []

    async def serve(link: links.Link) -> None:
        link.send(m.JobAccepted("j"))
        await asyncio.sleep(0)  # Another turn of the loop: it was not sent in this one.
        link.send(follower)
        await read_all(link, [])

    link = await dial(serve)
    link.listen(batches.append)
    while not batches:
        await asyncio.sleep(0)
    assert batches == [[m.JobAccepted("j"), follower]]


@pytest.mark.parametrize(("hello", "version"), [(HELLO, 4), (m.Hello(3, "client", "", "ann", ""), 3)])
async def test_a_peer_is_not_sent_what_its_version_does_not_know(dial: Dial, hello: m.Hello, version: int) -> None:
    batches: list[list[Any]] = []

    async def serve(link: links.Link) -> None:
        assert link.version == version
        for message in (m.Placed("j", 0), m.Leads(False), m.JobEnded("j")):
            link.send(message)

    link = await dial(serve, hello)
    assert link.version == version
    await read_all(link, batches)
    kinds = [type(message) for batch in batches for message in batch]
    new = [m.Leads] if version == 4 else []
    assert kinds == [m.Placed, *new, m.JobEnded, m.Goodbye]


async def test_a_scheduler_that_chooses_a_version_that_was_not_offered() -> None:
    async def handle(request: web.Request) -> web.WebSocketResponse:
        ws = web.WebSocketResponse()
        await ws.prepare(request)
        await ws.receive_bytes()
        await ws.send_bytes(msgspec.msgpack.encode([m.Welcome(7, "s", FRAME_BYTES_MAX)]))
        return ws

    app = web.Application()
    app.add_routes([web.get(links.LINK_PATH, handle)])
    decode = m.FrameDecoder(m.ToClient)
    async with TestServer(app) as server, aiohttp.ClientSession() as session:
        with pytest.raises(LinkError, match=r"chose protocol version 7; versions 3 to 4 are spoken here"):
            await dial_scheduler(session, f"{server.host}:{server.port}", HELLO, decode, heartbeat_s=10.0)


async def test_what_was_to_be_sent_when_the_connection_was_lost_is_known(dial: Dial) -> None:
    async def serve(link: links.Link) -> None:
        link.send(m.Placed("j", 0))
        link.flush()
        await read_all(link, [])

    link = await dial(serve)
    batches: list[list[Any]] = []
    reading = asyncio.ensure_future(read_all(link, batches))
    async with asyncio.timeout(TIMEOUT_S):
        while not batches:
            await asyncio.sleep(0.001)
    link.send(m.CancelJob("sent"))
    link.flush()
    assert link.unsent == []
    link._connection.abort()
    link.send(m.CancelJob("a"))
    link.flush()
    link.send(m.CancelJob("dropped"))
    await reading
    decode = m.FrameDecoder(m.FromClient)
    assert [message for frame in link.unsent for message in decode(frame)] == [m.CancelJob("a")]


async def test_a_peer_that_hangs_up_before_it_is_answered_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    """A node monitor that is killed while it dials."""
    handled = asyncio.Event()

    async def handle(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        asyncio.get_running_loop().call_later(0.0, handled.set)
        await accepting.accept(
            request, name="s", principal_of=lambda *_: ANYBODY, decoders={}, heartbeat_s=10.0,
            frame_bytes_max=FRAME_BYTES_MAX, backlog_bytes_max=1 << 20, admit=lambda *_: None, outgoing=Outgoing(),
        )  # fmt: skip
        raise AssertionError("somebody who is gone was welcome")

    app = web.Application()
    app.add_routes([web.get(links.LINK_PATH, handle)])
    async with TestServer(app) as server, aiohttp.ClientSession() as session, asyncio.timeout(TIMEOUT_S):
        with pytest.raises(LinkError, match="cannot be reached"):
            await dial_scheduler(
                session, f"{server.host}:{server.port}", HELLO, m.FrameDecoder(m.ToClient), heartbeat_s=10.0
            )
        await handled.wait()
    assert not caplog.records
