"""The WebSocket under a link, over real sockets: other implementations, both loops, TLS, and peers that misbehave."""

import asyncio
import contextlib
import os
import re
import socket
import struct
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import aiohttp
import msgspec
import pytest
from aiohttp import web

from sparrow_py.errors import InvalidRequest, LinkError
from sparrow_py.http import http_guard
from sparrow_py.wire import messages as m
from sparrow_py.wire import upgrade, websocket
from sparrow_py.wire.connection import MESSAGES_PER_TURN_MAX, READ_BYTES_MAX, Connection, Nobody
from sparrow_py.wire.links import LINK_PATH, Link
from sparrow_py.wire.outgoing import Outgoing
from tests.support.linked import HELLO, LOOPS, Tls, accepting, both_ends, dialled, encoded, run_on, served, until
from tests.support.raw import BINARY, CLOSE, CONTINUATION, PING, PONG, Raw, batch, connected, request, ws_frame
from tests.support.waiting import TIMEOUT_S

WELCOME = m.Welcome(m.PROTOCOL_VERSION, "s", m.FRAME_BYTES_MAX)
SIZES = [0, 1, 100, 200, 64 << 10, 900 << 10]


@pytest.fixture(params=LOOPS)
def loop(request: pytest.FixtureRequest) -> str:
    kind: str = request.param
    return kind


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Tls:
    return Tls(tmp_path_factory.mktemp("tls"))


def outcome(size: int) -> m.Outcome:
    return m.Outcome("j", 0, "finished", os.urandom(size), "", 1, "n", None, None, None)  # type: ignore[arg-type]


def tasks(size: int) -> m.AddTasks:
    return m.AddTasks("j", 0, [os.urandom(size)])


# ---- both ends are ours --------------------------------------------------------------------------


@pytest.mark.parametrize("secured", [False, True], ids=["plain", "tls"])
def test_payloads_of_all_sizes_both_ways(loop: str, secured: bool, tls: Tls) -> None:
    async def play() -> None:
        async with both_ends(tls if secured else None) as (near, far):
            at_near: list[Any] = []
            at_far: list[Any] = []
            near.listen(at_near.extend)
            far.listen(at_far.extend)
            down, up = [outcome(size) for size in SIZES], [tasks(size) for size in SIZES]
            for there, back in zip(up, down, strict=True):
                near.send(there)
                far.send(back)
            await until(lambda: (at_near, at_far) == (down, up))

    run_on(loop, play())


def test_asyncio_reads_no_more_at_a_time_than_an_allocator_has_at_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    pieces: list[int] = []
    received = Connection.data_received

    def noted(connection: Connection, data: bytes) -> None:
        pieces.append(len(data))
        received(connection, data)

    monkeypatch.setattr(Connection, "data_received", noted)

    async def play() -> None:
        async with both_ends() as (near, far):
            came: list[Any] = []
            near.listen(came.extend)
            far.listen(came.extend)
            near.send(tasks(4 * READ_BYTES_MAX))
            far.send(outcome(4 * READ_BYTES_MAX))
            await until(lambda: len(came) == 2)

    run_on("asyncio", play())
    assert max(pieces) == READ_BYTES_MAX
    assert sum(pieces) > 8 * READ_BYTES_MAX


@pytest.mark.parametrize("secured", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("closes", ["the dialler", "who was dialled", "both"])
def test_whoever_closes_both_know_why(loop: str, secured: bool, closes: str, tls: Tls) -> None:
    async def play() -> None:
        async with both_ends(tls if secured else None) as (near, far):
            said: dict[Link, list[Any]] = {near: [], far: []}
            near.listen(said[near].extend)
            far.listen(said[far].extend)
            if closes != "who was dialled":
                near.close("near")
            if closes != "the dialler":
                far.close("far")
            await asyncio.gather(near.ended(), far.ended())
            await asyncio.gather(near.aclose("later"), far.aclose("later"))
            if closes == "both":
                assert (near.closed_because, far.closed_because) == ("near", "far")
            else:
                closed, other = (near, far) if closes == "the dialler" else (far, near)
                assert said[other] == [m.Goodbye(closed.closed_because)]
                assert not said[closed]

    run_on(loop, play())


def test_a_long_frame_is_handed_over_in_slices_and_others_have_their_turn(loop: str) -> None:
    async def play() -> None:
        async with both_ends() as (near, far):
            batches: list[list[Any]] = []
            turns: list[int] = []

            def count_turns() -> None:
                turns.append(len(batches))
                if not batches or type(batches[-1][-1]) is not m.JobEnded:
                    asyncio.get_running_loop().call_soon(count_turns)

            near.listen(batches.append)
            far.listen(lambda _: None)
            sent = [m.Placed("j", number) for number in range(10 * MESSAGES_PER_TURN_MAX + 1)]
            count_turns()
            for message in sent:
                far.send(message)
            far.flush()
            far.send(m.JobEnded("j"))  # A frame of its own.
            await until(lambda: batches and type(batches[-1][-1]) is m.JobEnded)
            assert [message for batch in batches for message in batch] == [*sent, m.JobEnded("j")]
            assert max(map(len, batches)) <= MESSAGES_PER_TURN_MAX
            assert set(turns) >= set(range(10))  # Never were two handed over in one turn.

    run_on(loop, play())


def test_many_short_frames_are_not_read_in_one_turn(loop: str) -> None:
    async def play() -> None:
        frame = ws_frame(BINARY, batch(*[m.CancelJob("j")] * 100), mask=True)

        async def serve(link: Link) -> None:
            served.set_result(link)
            await link.ended()

        served: asyncio.Future[Link] = asyncio.get_running_loop().create_future()
        async with accepting(serve) as address:
            with connected(address) as raw:
                await asyncio.to_thread(raw.hello, HELLO)
                link, counts, turn = await served, [0], 0

                def handle(messages: list[Any]) -> None:
                    counts[-1] += len(messages)

                raw.send(frame * 100)
                link.listen(handle)
                while sum(counts) < 10_000:
                    await asyncio.sleep(0)
                    counts.append(0)
                assert max(counts) <= 2 * MESSAGES_PER_TURN_MAX, turn

    run_on(loop, play())


def test_fragments_are_not_read_in_one_turn(loop: str) -> None:
    async def play() -> None:
        async with against_raw() as (raw, link):
            came: list[Any] = []
            link.listen(came.extend)
            reader, counts = link._connection._reader, [0]
            read = reader.read

            class Counting:
                def __getattr__(self, name: str) -> Any:
                    return getattr(reader, name)

                def read(self) -> Any:
                    event = read()
                    counts[-1] += event is not None
                    return event

            link._connection._reader = Counting()  # type: ignore[assignment]
            parts = ws_frame(CONTINUATION, fin=False) * 9_000
            raw.send(ws_frame(BINARY, fin=False) + parts + ws_frame(CONTINUATION, batch(m.CancelJob("j"))))
            while not came:
                await asyncio.sleep(0)
                counts.append(0)
            assert sum(counts) == 9_002
            assert max(counts) <= 2 * MESSAGES_PER_TURN_MAX

    run_on(loop, play())


def test_a_slice_that_is_refused_ends_the_rest(loop: str) -> None:
    async def play() -> None:
        async with both_ends() as (near, far):
            count = 0

            def handle(messages: list[Any]) -> None:
                nonlocal count
                count += 1
                if count == 2:
                    raise LinkError("enough")

            near.listen(handle)
            goodbyes: list[Any] = []
            far.listen(goodbyes.extend)
            for number in range(5 * MESSAGES_PER_TURN_MAX):
                far.send(m.Placed("j", number))
            with pytest.raises(LinkError, match="enough"):
                await near.ended()
            await far.ended()
            assert count == 2
            assert goodbyes == [m.Goodbye("enough")]

    run_on(loop, play())


@pytest.mark.parametrize(
    ("error", "reason"),
    [(LinkError("no"), "no"), (InvalidRequest("f", 1, "2"), "f: 1 is not valid"), (KeyError("x"), "internal error")],
)
def test_what_a_handler_raises_closes_its_link(
    loop: str, error: Exception, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def play() -> None:
        async with both_ends() as (near, far):
            told: list[Any] = []

            def handle(_: list[Any]) -> None:
                raise error

            far.listen(handle)
            near.listen(told.extend)
            near.send(m.CancelJob("j"))
            near.flush()
            near.send(m.CancelJob("not heard"))
            with contextlib.suppress(LinkError, InvalidRequest):
                await far.ended()
            await near.ended()
            assert [type(message) for message in told] == [m.Goodbye]
            assert told[0].reason.startswith(reason)

    run_on(loop, play())
    assert [record.exc_info is not None for record in caplog.records] == [True] * isinstance(error, KeyError)


def test_what_an_event_leads_to_leaves_as_one_frame_per_link_and_clients_come_first(loop: str) -> None:
    async def play() -> None:
        outgoing, written = Outgoing(), []
        ends: list[Link] = []

        async def serve(link: Link) -> None:
            ends.append(link)
            await link.ended()

        async with accepting(serve, outgoing=outgoing) as address, dialled(address) as one, dialled(address) as two:
            await until(lambda: len(ends) == 2)
            ends[1].first = True
            for number, end in enumerate(ends):
                write = end._connection.write

                def writes(frame: bytearray, number: int = number, write: Any = write) -> bool:
                    written.append(number)
                    done: bool = write(frame)
                    return done

                end._connection.write = writes  # type: ignore[method-assign]

            def handle(_: list[Any]) -> None:
                for number in range(3):
                    for end in ends:
                        end.send(m.Placed("j", number))
                assert not written

            came: list[list[list[Any]]] = [[], []]
            for link, batches in zip((one, two), came, strict=True):
                link.listen(batches.append)
            ends[0].listen(handle)
            ends[1].listen(handle)
            one.send(m.CancelJob("j"))
            await until(lambda: all(came))
            assert written == [1, 0]
            assert came == [[[m.Placed("j", number) for number in range(3)]]] * 2

    run_on(loop, play())


def test_what_is_sent_while_the_loop_stands_leaves_with_a_flush() -> None:
    """A client's loop runs only while somebody waits."""
    loop = asyncio.new_event_loop()

    async def begin() -> tuple[Any, Link, Link]:
        ends = both_ends()
        near, far = await ends.__aenter__()
        return ends, near, far

    ends, near, far = loop.run_until_complete(begin())
    came: list[Any] = []
    near.send(m.CancelJob("j"))
    near.flush()
    loop.run_until_complete(_heard(far, came))
    assert came == [m.CancelJob("j")]
    loop.run_until_complete(ends.__aexit__(None, None, None))
    loop.close()


async def _heard(link: Link, came: list[Any]) -> None:
    link.listen(came.extend)
    async with asyncio.timeout(TIMEOUT_S):
        await until(lambda: came)


# ---- aiohttp is the other end, as in releases before ------------------------------------------------


@pytest.mark.parametrize("secured", [False, True], ids=["plain", "tls"])
def test_aiohttp_dials(loop: str, secured: bool, tls: Tls) -> None:
    """With random masks."""

    async def play() -> None:
        came: list[Any] = []
        down, up = [outcome(size) for size in SIZES], [tasks(size) for size in SIZES]

        async def serve(link: Link) -> None:
            link.listen(came.extend)
            for message in down:
                link.send(message)
                link.flush()
            link._connection.ping()
            await until(lambda: came == up)
            link.close("enough")
            await link.aclose()

        scheme, context = ("https", tls.access.context) if secured else ("http", None)
        async with (
            accepting(serve, tls=tls if secured else None) as address,
            aiohttp.ClientSession() as session,
            session.ws_connect(f"{scheme}://{address}{LINK_PATH}", ssl=context or True, autoping=False) as ws,
        ):
            await ws.send_bytes(encoded(HELLO))
            welcome = msgspec.msgpack.decode(await ws.receive_bytes(), type=list[m.Welcome])
            assert len(welcome) == 1
            decode = m.FrameDecoder(m.ToClient)
            assert [decode(await ws.receive_bytes()) for _ in down] == [[message] for message in down]
            assert (await ws.receive()).type is aiohttp.WSMsgType.PING
            await ws.pong()
            await ws.ping(b"x")
            assert await ws.receive() == (aiohttp.WSMsgType.PONG, b"x", "")
            for message in up:
                await ws.send_bytes(encoded(message))
            assert decode(await ws.receive_bytes()) == [m.Goodbye("enough")]
            assert (await ws.receive()).type is aiohttp.WSMsgType.CLOSE
            assert ws.close_code == 1000

    run_on(loop, play())


@contextlib.asynccontextmanager
async def aiohttp_server(serve: Any, tls: Tls | None = None, **options: Any) -> AsyncIterator[str]:
    """A scheduler with aiohttp's WebSockets, which says Welcome and then does what `serve` does; its address."""

    async def handle(asked: web.Request) -> web.WebSocketResponse:
        ws = web.WebSocketResponse(max_msg_size=0, compress=False, **options)
        await ws.prepare(asked)
        await ws.receive_bytes()
        await ws.send_bytes(encoded(WELCOME))
        await serve(ws)
        return ws

    app = web.Application()
    app.add_routes([web.get(LINK_PATH, handle)])
    async with served(web.AppRunner(app, shutdown_timeout=1.0), tls) as address:
        yield address


@pytest.mark.parametrize("secured", [False, True], ids=["plain", "tls"])
def test_aiohttp_is_dialled(loop: str, secured: bool, tls: Tls) -> None:
    async def play() -> None:
        up, down = [tasks(size) for size in SIZES], [outcome(size) for size in SIZES]
        decode = m.FrameDecoder(m.FromClient)
        heard: list[Any] = []

        async def serve(ws: web.WebSocketResponse) -> None:
            for message in down:
                await ws.send_bytes(encoded(message))
            await ws.ping(b"x")
            async for frame in ws:
                heard.extend(decode(frame.data) if frame.type is aiohttp.WSMsgType.BINARY else [frame[:2]])

        from_server = tls if secured else None
        async with aiohttp_server(serve, from_server, autoping=False) as address:
            access = {"access": tls.access} if secured else {}
            async with dialled(address, **access) as link:
                came: list[Any] = []
                link.listen(came.extend)
                for message in up:
                    link.send(message)
                await until(lambda: len(heard) == len(up) + 1 and came == down)
                link._connection.ping()
            pong, ping = (aiohttp.WSMsgType.PONG, b"x"), (aiohttp.WSMsgType.PING, b"")
            assert pong in heard
            assert [one for one in heard if one != pong] == [*up, ping, m.Goodbye("the test is over")]

    run_on(loop, play())


def test_aiohttp_goes_without_a_goodbye(loop: str) -> None:
    async def play() -> None:
        async def serve(ws: web.WebSocketResponse) -> None:
            await ws.close(code=1011, message=b"tired")

        async with aiohttp_server(serve) as address, dialled(address) as link:
            link.listen(lambda _: None)
            await link.ended()
            assert link.closed_because == "tired"

    run_on(loop, play())


# ---- what comes with the upgrade -------------------------------------------------------------------


def test_frames_that_come_in_one_piece_with_the_request(loop: str) -> None:
    async def play() -> None:
        came: list[Any] = []

        async def serve(link: Link) -> None:
            link.listen(came.extend)
            await link.ended()

        async with accepting(serve) as address:
            key = upgrade.new_key()
            asked = [f"{name}: {value}" for name, value in upgrade.request_headers(key).items()]
            frames = ws_frame(BINARY, batch(HELLO)) + ws_frame(BINARY, batch(m.CancelJob("a"), m.CancelJob("b")))
            with connected(address) as raw:
                raw.send(request("GET", LINK_PATH, *asked) + frames)
                await until(lambda: len(came) == 2)
                assert came == [m.CancelJob("a"), m.CancelJob("b")]

    run_on(loop, play())


@pytest.mark.parametrize("hello", [False, True], ids=["no hello", "a hello"])
def test_too_much_in_one_piece_with_the_request_is_refused_with_its_reason(loop: str, hello: bool) -> None:
    async def serve(_: Link) -> None:
        raise AssertionError("there is a link")

    async def play() -> None:
        async with accepting(serve) as address:
            with connected(address) as raw:
                junk = ws_frame(BINARY, batch(HELLO)) * hello + ws_frame(BINARY, bytes(http_guard.HELLO_BYTES_MAX))
                raw.ask_to_upgrade(behind=junk)
                assert (await asyncio.to_thread(raw.upgraded)).status == 101
                ended = await asyncio.to_thread(raw.said)
                assert ended.goodbye.startswith(f"more than HELLO_BYTES_MAX = {http_guard.HELLO_BYTES_MAX} bytes came")
                assert ended.code == 1009

    run_on(loop, play())


def test_a_new_owner_hears_of_the_rule_that_was_broken_before(loop: str) -> None:
    async def play() -> None:
        async with against_raw() as (raw, link):
            link.listen(lambda _: None)
            connection = link._connection
            connection.hand_to(Nobody())
            raw.send(ws_frame(PING, fin=False))
            await until(lambda: connection._deaf)
            assert not link.closed_because
            connection.hand_to(link)
            assert link.closed_because == "a control frame comes in parts"
            assert (await asyncio.to_thread(raw.said)).code == 1002

    run_on(loop, play())


def test_frames_that_come_in_one_piece_with_the_answer(loop: str) -> None:
    async def play() -> None:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            found = re.search("(?i)sec-websocket-key: (.*)", head)
            assert found
            key = found[1].strip()
            lines = ["HTTP/1.1 101 Switching Protocols"]
            lines += [f"{name}: {value}" for name, value in upgrade.answer_headers(key).items()]
            frames = [ws_frame(BINARY, batch(message), mask=False) for message in (WELCOME, m.JobEnded("j"))]
            writer.write("\r\n".join([*lines, "", ""]).encode() + b"".join(frames))
            await reader.read()
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        came: list[Any] = []
        async with dialled(f"{host}:{port}") as link:
            link.listen(came.extend)
            await until(lambda: came)
        assert came == [m.JobEnded("j")]
        server.close()
        await server.wait_closed()

    run_on(loop, play())


@pytest.mark.parametrize("secured", [False, True], ids=["plain", "tls"])
def test_a_transport_that_was_full_before_the_upgrade_is_full_after_it(loop: str, secured: bool, tls: Tls) -> None:
    async def play() -> None:
        before, sent = bytes(16 << 20), outcome(1000)
        served: asyncio.Future[Link] = asyncio.get_running_loop().create_future()

        async def serve(link: Link) -> None:
            link.listen(lambda _: None)
            link.send(sent)
            link.flush()
            served.set_result(link)
            await link.ended()

        def read(raw: Raw) -> list[tuple[int, bytes]]:
            assert raw.exactly(len(before)) == before
            assert raw.upgraded().status == 101
            return [raw.frame(), raw.frame()]

        async with accepting(serve, tls=tls if secured else None, before=before) as address:
            with connected(address) as raw:
                if secured:
                    assert tls.access.context is not None
                    wrap = partial(tls.access.context.wrap_socket, raw.socket, server_hostname="127.0.0.1")
                    raw.socket = await asyncio.to_thread(wrap)
                raw.ask_to_upgrade()
                raw.send(ws_frame(BINARY, batch(HELLO)))
                link = await served
                assert not link._connection.writable
                assert len(link._frames) == 2  # The Welcome, too.
                frames = await asyncio.to_thread(read, raw)
                assert frames[1] == (BINARY, encoded(sent).replace(b"\x91", b"\xdc\x00\x01", 1))
                assert link._connection.writable
                link.close("enough")
                assert (await asyncio.to_thread(raw.said)).goodbye == "enough"

    run_on(loop, play())


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"Upgrade": "h2c"}, "Upgrade: websocket"),
        ({"Connection": "close"}, "Connection: Upgrade"),
        ({"Sec-WebSocket-Version": "8"}, "Sec-WebSocket-Version: 13"),
        ({"Sec-WebSocket-Key": "short"}, "Sec-WebSocket-Key"),
        ({"Sec-WebSocket-Key": "AAAA"}, "Sec-WebSocket-Key"),
        ({"Content-Length": "4"}, "body"),
    ],
)
def test_requests_that_ask_for_no_link(change: dict[str, str], why: str) -> None:
    async def serve(_: Link) -> None:
        raise AssertionError("there is a link")

    async def play() -> None:
        async with accepting(serve) as address:
            headers = {**upgrade.request_headers(upgrade.new_key()), **change}
            with connected(address) as raw:
                body = b"body" if "Content-Length" in change else b""
                lines = [f"{name}: {value}" for name, value in headers.items()]
                raw.send(request("GET", LINK_PATH, *lines, body=body))
                answer = await asyncio.to_thread(raw.answer)
            assert answer.status == 400
            assert why in answer.error["message"]

    run_on("uvloop", play())


@pytest.mark.parametrize("kind", ["no upgrade", "another key", "a redirect"])
def test_answers_that_are_no_link(kind: str) -> None:
    async def play() -> None:
        async def handle(asked: web.Request) -> web.StreamResponse:
            if kind == "no upgrade":
                return web.Response(text="hello")
            if kind == "a redirect":
                raise web.HTTPFound("/elsewhere")
            response = web.StreamResponse(status=101, headers=upgrade.answer_headers(upgrade.new_key()))
            await response.prepare(asked)
            return response

        app = web.Application()
        app.add_routes([web.get(LINK_PATH, handle)])
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        with pytest.raises(LinkError, match="cannot be reached: it "):
            async with dialled("{}:{}".format(*runner.addresses[0])):
                raise AssertionError("there is a link")
        await runner.cleanup()

    run_on("uvloop", play())


# ---- peers that do not behave ----------------------------------------------------------------------


@contextlib.asynccontextmanager
async def against_raw(**options: Any) -> AsyncIterator[tuple[Raw, Link]]:
    """(a peer by hand, our end of its link, which was dialled)."""
    served: asyncio.Future[Link] = asyncio.get_running_loop().create_future()

    async def serve(link: Link) -> None:
        served.set_result(link)
        with contextlib.suppress(LinkError):
            await link.ended()

    async with accepting(serve, **options) as address:
        with connected(address) as raw:
            await asyncio.to_thread(raw.hello, HELLO)
            yield raw, await served


def test_a_peer_that_does_not_answer_pings_is_found_out(loop: str) -> None:
    async def play() -> None:
        async with against_raw(heartbeat_s=0.05) as (raw, link):
            link.listen(lambda _: None)
            await link.ended()
            assert re.match(r"no sign of life for \d", link.closed_because)
            assert (await asyncio.to_thread(raw.frame))[0] == PING
            await link.aclose()

    run_on(loop, play())


def test_a_peer_that_answers_pings_lives(loop: str) -> None:
    async def play() -> None:
        async with against_raw(heartbeat_s=1000.0) as (raw, link):
            link.listen(lambda _: None)
            connection = link._connection

            def beat() -> None:
                """As the timer would."""
                connection._heartbeat.stop()
                connection._heartbeat._beat()

            for _ in range(10):
                connection._heard_s -= 1000.0  # Nothing has come for a heartbeat.
                beat()
                assert (await asyncio.to_thread(raw.frame))[0] == PING
                raw.send(ws_frame(PONG))
                await until(lambda: connection.quiet_s() < 1000.0)
                for _ in range(2):
                    beat()  # After an unanswered ping that would end the link.
                assert not link.closed_because

    run_on(loop, play())


def test_a_peer_that_says_something_is_not_asked_for_signs_of_life(loop: str) -> None:
    async def play() -> None:
        async with against_raw(heartbeat_s=1000.0) as (raw, link):
            came: list[Any] = []
            link.listen(came.extend)
            heartbeat = link._connection._heartbeat
            for number in range(5):
                raw.send(ws_frame(BINARY, batch(m.CancelJob("j"))))
                await until(lambda number=number: len(came) > number)
                heartbeat.stop()
                heartbeat._beat()  # As the timer would.
            link.close("enough")
            assert (await asyncio.to_thread(raw.frame))[0] == BINARY  # And no ping before the Goodbye.

    run_on(loop, play())


def test_pings_are_answered_in_order_with_what_they_said(loop: str) -> None:
    async def play() -> None:
        async with against_raw() as (raw, link):
            link.listen(lambda _: None)
            raw.send(b"".join(ws_frame(PING, b"%d" % number) for number in range(5)))
            for number in range(5):
                assert await asyncio.to_thread(raw.frame) == (PONG, b"%d" % number)

    run_on(loop, play())


@pytest.mark.parametrize("size", [0, 125])
def test_pings_whose_pongs_are_not_read_are_not_taken_in(loop: str, size: int) -> None:
    async def play() -> None:
        async with against_raw(heartbeat_s=1000.0) as (raw, link):
            link.listen(lambda _: None)
            flood = ws_frame(PING, bytes(size)) * 10_000
            left = memoryview(flood)
            connection = link._connection
            raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 12)
            near: socket.socket = connection._transport.get_extra_info("socket")
            near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 12)
            connection._transport.set_write_buffer_limits(1 << 10)
            raw.socket.setblocking(False)
            while not connection._held_for_pongs:
                with contextlib.suppress(BlockingIOError):
                    left = left[raw.socket.send(left) :] or memoryview(flood)
                await asyncio.sleep(0)
            assert connection._pongs_owed <= 2 * MESSAGES_PER_TURN_MAX
            for end in (raw.socket, near):  # Else it takes long.
                end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
                end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
            raw.socket.setblocking(True)
            raw.socket.settimeout(TIMEOUT_S)
            reading = asyncio.create_task(asyncio.to_thread(_read_all, raw.socket))
            await until(lambda: not connection._held_for_pongs)  # It goes on once they are read.
            connection.abort()
            await reading

    run_on(loop, play())


def _read_all(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while sock.recv(1 << 20):
            pass


def test_a_slow_reader_is_cut_off_and_a_fast_one_is_not(loop: str, caplog: pytest.LogCaptureFixture) -> None:
    async def play() -> None:
        async with against_raw(backlog_bytes_max=1 << 20) as (_, link):
            link.listen(lambda _: None)
            while not link.closed_because:
                link.send(outcome(30_000))
                await asyncio.sleep(0)
            assert "reads too slowly" in link.closed_because
            assert "link_backlog_bytes_max = 1048576" in link.closed_because
            assert f"a link is cut off: {link.closed_because}" in caplog.messages
            assert link.unsent, "what had not left is known, and does not stand before the reason"
            await link.aclose()
        async with both_ends(backlog_bytes_max=1 << 20) as (near, far):
            count = 0

            def handle(messages: list[Any]) -> None:
                nonlocal count
                count += len(messages)

            near.listen(handle)
            far.listen(lambda _: None)
            for _ in range(200):
                far.send(outcome(30_000))
                await far.drained()
                await until(lambda: far._backlog_bytes < 1 << 19)
            await until(lambda: count == 200)
            assert not far.closed_because

    run_on(loop, play())


def test_more_than_the_backlog_at_once_is_no_slow_reader() -> None:
    """What the socket takes does not wait."""

    async def play() -> None:
        async with both_ends(backlog_bytes_max=1000) as (near, far):
            came: list[Any] = []
            near.listen(came.extend)
            far.listen(lambda _: None)
            for number in range(20):
                far.send(m.Placed("j" * 100, number))
            await until(lambda: len(came) == 20)
            assert not far.closed_because

    run_on("asyncio", play())


def fill(link: Link) -> None:
    """Send so much that frames wait at this end."""
    link.listen(lambda _: None)
    while link._connection.writable:
        link.send(outcome(30_000))
        link.flush()


def test_frames_that_wait_for_a_reader_who_goes_are_unsent(loop: str) -> None:
    async def play() -> None:
        async with against_raw() as (raw, link):
            fill(link)
            waits = [m.Placed("j", 1), m.Placed("j", 2)]
            for message in waits:
                link.send(message)
                link.flush()
            raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            raw.socket.close()
            await link.ended()
            decode = m.FrameDecoder(m.ToClient)
            assert [message for frame in link.unsent for message in decode(frame)][-2:] == waits

    run_on(loop, play())


def test_a_reader_that_is_slow_but_not_too_slow_hears_the_goodbye(loop: str) -> None:
    async def play() -> None:
        async with against_raw() as (raw, link):
            fill(link)
            link.send(m.JobEnded("j"))
            link.close("enough")
            ended = await asyncio.to_thread(raw.said)
            assert (ended.goodbye, ended.code) == ("enough", 1000)

    run_on(loop, play())


VIOLATIONS = {
    "text": (ws_frame(1, b"x"), 1003),
    "reserved bits": (ws_frame(BINARY, rsv=4), 1002),
    "not masked": (ws_frame(BINARY, b"x", mask=False), 1002),
    "too large": (ws_frame(BINARY, length=1 << 40), 1009),
    "no UTF-8": (ws_frame(CLOSE, b"\x03\xe8\xff"), 1007),
    "half a code": (ws_frame(CLOSE, b"\x03"), 1002),
    "no messages": (ws_frame(BINARY, b"\x90"), 1000),
    "junk": (ws_frame(BINARY, b"\xc1"), 1000),
    "parts of a ping": (ws_frame(PING, fin=False), 1002),
    "the rest of nothing": (ws_frame(CONTINUATION, b"x"), 1002),
}


@pytest.mark.parametrize("violation", VIOLATIONS)
def test_who_breaks_the_rules_is_told_how_and_closed(loop: str, violation: str) -> None:
    frame, code = VIOLATIONS[violation]

    async def play() -> None:
        async with against_raw() as (raw, link):
            heard: list[Any] = []
            link.listen(heard.extend)
            raw.send(ws_frame(BINARY, batch(m.CancelJob("j"))) + frame + ws_frame(BINARY, batch(m.CancelJob("j"))))
            ended = await asyncio.to_thread(raw.said)
            assert ended.code == code
            assert ended.goodbye == link.closed_because != ""
            assert heard == [m.CancelJob("j")]
            with pytest.raises(LinkError):
                await link.ended()
            raw.socket.close()
            await link.aclose()

    run_on(loop, play())


@pytest.mark.parametrize("code", [None, 1000, 1001, 4000])
def test_a_close_frame_is_answered_with_its_code(loop: str, code: int | None) -> None:
    async def play() -> None:
        async with against_raw() as (raw, link):
            link.listen(lambda _: None)
            payload = b"" if code is None else struct.pack(">H", code) + b"why"
            raw.send(ws_frame(CLOSE, payload) + ws_frame(BINARY, b"\xc1"))
            ended = await asyncio.to_thread(raw.said)
            assert ended.code == (code or 1000)
            assert not ended.messages
            assert await asyncio.to_thread(raw.rest) == b""
            await link.ended()
            assert link.closed_because == ("served" if code is None else "why")  # The former by `accepting`.

    run_on(loop, play())


def test_who_does_not_close_is_cut(loop: str) -> None:
    async def play() -> None:
        async with against_raw() as (raw, link):
            link.listen(lambda _: None)
            await link.aclose("enough")
            ended = await asyncio.to_thread(raw.said)
            assert (ended.goodbye, ended.code) == ("enough", 1000)

    run_on(loop, play())


def test_half_a_connection_is_none(loop: str) -> None:
    async def play() -> None:
        async with against_raw() as (raw, link):
            link.listen(lambda _: None)
            raw.end()
            await link.ended()
            assert await asyncio.to_thread(raw.rest) == b""

    run_on(loop, play())


@pytest.mark.parametrize("junk", ["bytes", "one frame", "frames"])
def test_junk_before_a_hello_is_dropped_and_then_cut_off(loop: str, junk: str) -> None:
    size = http_guard.HELLO_BYTES_MAX + http_guard.DROPPED_BYTES_MAX + (1 << 17)
    made = {
        "bytes": os.urandom(size),
        "one frame": ws_frame(BINARY, bytes(size)),
        "frames": ws_frame(PONG, bytes(100)) * (size // 100),
    }[junk]

    async def serve(_: Link) -> None:
        raise AssertionError("there is a link")

    async def play() -> None:
        async with accepting(serve) as address:
            with connected(address) as raw:
                assert (await asyncio.to_thread(raw.upgrade)).status == 101
                await asyncio.to_thread(raw.send, made)
                await asyncio.to_thread(raw.rest)  # It ends.

    run_on(loop, play())


def test_the_http_protocol_hears_of_the_end_and_writes_nothing(loop: str) -> None:
    async def play() -> None:
        async with against_raw() as (raw, link):
            link.listen(lambda _: None)
            http = link._connection._http
            link.close("enough")
            data = await asyncio.to_thread(raw.rest)
            assert data.endswith(websocket.close_frame(1000, masks=False))
            await link.aclose()
            assert http.transport is None  # type: ignore[attr-defined]

    run_on(loop, play())
