"""A client's side of blobs, against servers that behave and servers that do not."""

from __future__ import annotations

import asyncio
import errno
import os
import pickle
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from sparrow_py.access.credentials import OPEN, Access
from sparrow_py.errors import AccessDenied, LinkError, Refused, ResultLost, TaskError
from sparrow_py.job import BlobRef
from sparrow_py.wire import blobs
from tests.support.web_servers import web_servers

DATA = bytes(range(256)) * 4000
HASH = blobs.sha256_hex(DATA)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Serve = Callable[[Handler], Awaitable[str]]


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Serves a handler; returns the address."""
    async with web_servers() as listen:

        async def start(handler: Handler) -> str:
            app = web.Application(client_max_size=1 << 30)
            app.router.add_route("*", "/v1/blobs/{hash}", handler)
            return await listen(app)

        yield start


def answers(body: bytes, status: int = 200) -> Handler:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=body, status=status)

    return answer


def ref(*at: str, size: int = len(DATA)) -> BlobRef:
    return BlobRef(HASH, size, at)


async def hang_up(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def send_half(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Length": str(len(DATA))})
    await response.prepare(request)
    await response.write(DATA[:1000])
    assert request.transport is not None
    request.transport.abort()
    return response


def test_a_hash_is_the_sha_256_in_hexadecimal() -> None:
    assert blobs.sha256_hex(b"") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert blobs.sha256_hex(memoryview(DATA)) == blobs.sha256_hex(bytearray(DATA)) == HASH


@pytest.mark.parametrize("text", ["", "x", HASH.upper(), HASH[1:], HASH + "0", HASH + "\n", "٣" * 64])
def test_what_is_no_hash(text: str) -> None:
    assert blobs.is_hash(HASH)
    assert not blobs.is_hash(text)


# ---- upload ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
async def test_an_upload_sends_the_bytes_and_the_token(
    serve: Serve, session: aiohttp.ClientSession, kind: Callable[[bytes], bytes | bytearray | memoryview]
) -> None:
    seen: list[tuple[str, str, str, bytes]] = []

    async def take(request: web.Request) -> web.Response:
        seen.append((request.method, request.path, request.headers["Authorization"], await request.read()))
        assert request.content_length == len(DATA)
        return web.Response(status=201)

    address = await serve(take)
    assert await blobs.upload(session, address, Access("t"), kind(DATA), HASH) == ref(address)
    assert seen == [("PUT", f"/v1/blobs/{HASH}", "Bearer t", DATA)]


async def test_without_a_token_none_is_sent(serve: Serve, session: aiohttp.ClientSession) -> None:
    async def take(request: web.Request) -> web.Response:
        assert "Authorization" not in request.headers
        return web.Response(status=200)

    address = await serve(take)
    assert (await blobs.upload(session, address, OPEN, b"", HASH)).size == 0


async def test_elements_larger_than_a_byte_are_counted_in_bytes(serve: Serve, session: aiohttp.ClientSession) -> None:
    async def take(request: web.Request) -> web.Response:
        assert await request.read() == DATA
        return web.Response(status=201)

    assert (await blobs.upload(session, await serve(take), OPEN, memoryview(DATA).cast("q"), HASH)).size == len(DATA)


@pytest.mark.parametrize(("status", "retry_after_s"), [(413, None), (507, blobs.ROOM_RETRY_S)])
async def test_a_node_without_room_refuses(
    serve: Serve, session: aiohttp.ClientSession, status: int, retry_after_s: float | None
) -> None:
    """For good if the blob is larger than all its room."""
    address = await serve(answers(b'{"error": {"message": "full"}}', status))
    with pytest.raises(Refused) as refused:
        await blobs.upload(session, address, OPEN, DATA, HASH)
    assert refused.value.reason == f"{address}: full"
    assert refused.value.retry_after_s == retry_after_s


@pytest.mark.parametrize("status", [401, 403])
async def test_a_node_that_denies_access(serve: Serve, session: aiohttp.ClientSession, status: int) -> None:
    address = await serve(answers(b'{"error": {"message": "whose?"}}', status))
    with pytest.raises(AccessDenied, match=f"^{address}: {status}: whose\\?$"):
        await blobs.upload(session, address, OPEN, DATA, HASH)


@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b'{"error": 3}', b"\xff", b"x" * (1 << 20)])
async def test_an_error_that_says_nothing(serve: Serve, session: aiohttp.ClientSession, body: bytes) -> None:
    address = await serve(answers(body, 500))
    with pytest.raises(LinkError, match=f"^{address}: 500: Internal Server Error$"):
        await blobs.upload(session, address, OPEN, DATA, HASH)


async def test_an_upload_to_one_that_hangs_up(serve: Serve, session: aiohttp.ClientSession) -> None:
    address = await serve(hang_up)
    with pytest.raises(LinkError, match=f"^{address}: broke off: "):
        await blobs.upload(session, address, OPEN, DATA, HASH)


@pytest.mark.parametrize("reads", [True, False])
async def test_an_upload_that_stalls(
    serve: Serve, session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch, reads: bool
) -> None:
    """One that takes nothing, and one that takes it all and does not answer."""
    monkeypatch.setattr(blobs, "STALL_TIMEOUT_S", 0.1)
    monkeypatch.setattr(blobs, "CONNECT_TIMEOUT_S", 0.1)
    never = asyncio.Event()

    async def stall(request: web.Request) -> web.Response:
        if reads:
            await request.read()
        await never.wait()
        return web.Response()

    address = await serve(stall)
    with pytest.raises(LinkError, match=f"^{address}: nothing came or went for 0.1 s$"):
        await blobs.upload(session, address, OPEN, DATA * 20, HASH)


@pytest.mark.parametrize("address", ["", "host", "a b:1", "x/y:1", "user@host:1", "h:99999", "\n:1", "n" * 10_000])
async def test_an_address_that_is_none(session: aiohttp.ClientSession, address: str) -> None:
    with pytest.raises(LinkError, match="not host:port") as error:
        await blobs.upload(session, address, OPEN, DATA, HASH)
    assert len(str(error.value)) < 200
    with pytest.raises(ResultLost, match="not host:port"):
        await blobs.download(session, ref(address), OPEN)


@pytest.mark.parametrize("address", ["a..b:1", "-:1", "%zz:1", "[::::]:1", "\N{SNOWMAN}.invalid:1", "x" * 300 + ":1"])
async def test_an_address_of_no_host(session: aiohttp.ClientSession, address: str) -> None:
    with pytest.raises(LinkError):
        await blobs.upload(session, address, OPEN, DATA, HASH)
    with pytest.raises(ResultLost):
        await blobs.download(session, ref(address), OPEN)


# ---- download ----------------------------------------------------------------------------------


async def test_a_download_brings_the_bytes(serve: Serve, session: aiohttp.ClientSession) -> None:
    async def give(request: web.Request) -> web.Response:
        assert request.headers["Authorization"] == "Bearer t"
        assert request.path == f"/v1/blobs/{HASH}"
        return web.Response(body=DATA)

    got = await blobs.download(session, ref(await serve(give)), Access("t"))
    assert got == DATA
    assert isinstance(got, bytearray)


async def test_a_small_download(serve: Serve, session: aiohttp.ClientSession) -> None:
    small = BlobRef(blobs.sha256_hex(b"small"), 5, (await serve(answers(b"small")),))
    assert await blobs.download(session, small, OPEN) == b"small"


async def test_a_download_tries_one_after_another(serve: Serve, session: aiohttp.ClientSession) -> None:
    gone, cut, good = await serve(answers(b"", 404)), await serve(send_half), await serve(answers(DATA))
    unreached = await serve(answers(b"never asked"))
    assert await blobs.download(session, ref(gone, cut, good, unreached), OPEN) == DATA


async def test_a_lost_result_has_all_reasons(serve: Serve, session: aiohttp.ClientSession) -> None:
    wrong = b"!" + DATA[1:]
    gone, hangs, cut, lies, short = (
        await serve(answers(b"", 404)),
        await serve(hang_up),
        await serve(send_half),
        await serve(answers(wrong)),
        await serve(answers(DATA[:-1])),
    )
    with pytest.raises(ResultLost) as lost:
        await blobs.download(session, ref(gone, hangs, cut, lies, short), OPEN)
    first, *reasons = str(lost.value).split("; ")
    assert first == f"a result of {len(DATA)} bytes cannot be fetched: {gone}: 404"
    assert reasons[0].startswith(f"{hangs}: broke off: ")
    assert reasons[1].startswith(f"{cut}: broke off: ")
    assert reasons[2] == f"{lies}: its SHA-256 is {blobs.sha256_hex(wrong)}, not {HASH}"
    assert reasons[3] == f"{short}: it is not {len(DATA)} bytes there"


async def test_a_shortage_at_the_node_is_waited_out(serve: Serve, session: aiohttp.ClientSession) -> None:
    statuses = iter([503, 503, 200])

    async def give(_: web.Request) -> web.Response:
        return web.Response(body=DATA, status=next(statuses))

    assert await blobs.download(session, ref(await serve(answers(b"", 404)), await serve(give)), OPEN) == DATA


async def test_a_shortage_here_is_waited_out(
    serve: Serve, session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = iter([errno.EMFILE, errno.EMFILE])
    connect = aiohttp.TCPConnector._create_connection

    async def create(self: aiohttp.TCPConnector, request: Any, *more: Any) -> Any:
        if number := next(errors, 0):
            raise aiohttp.ClientConnectorError(request.connection_key, OSError(number, os.strerror(number)))
        return await connect(self, request, *more)

    monkeypatch.setattr(aiohttp.TCPConnector, "_create_connection", create)
    assert await blobs.download(session, ref(await serve(answers(DATA))), OPEN) == DATA


async def test_a_shortage_is_not_waited_out_for_ever(
    serve: Serve, session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blobs, "SHORTAGE_TIMEOUT_S", 0.2)
    address = await serve(answers(b'{"error": {"message": "too many"}}', 503))
    with pytest.raises(ResultLost, match=f"{address}: too many$"):
        await blobs.download(session, ref(address), OPEN)


async def test_who_does_not_answer_is_asked_once(serve: Serve, session: aiohttp.ClientSession) -> None:
    asked = []

    async def hang(request: web.Request) -> web.StreamResponse:
        asked.append(request.path)
        return await hang_up(request)

    with pytest.raises(ResultLost):
        await blobs.download(session, ref(await serve(hang)), OPEN)
    assert 1 <= len(asked) <= 2  # aiohttp itself tries a connection that was kept open again.


async def test_a_redirect_is_not_followed(serve: Serve, session: aiohttp.ClientSession) -> None:
    """It would take the token elsewhere."""

    async def redirect(_: web.Request) -> web.Response:
        raise web.HTTPFound("http://127.0.0.1:1/")

    address = await serve(redirect)
    with pytest.raises(ResultLost, match=f"{address}: 302$"):
        await blobs.download(session, ref(address), Access("t"))


async def test_a_download_that_stalls(
    serve: Serve, session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blobs, "STALL_TIMEOUT_S", 0.05)
    never = asyncio.Event()

    async def stall(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": str(len(DATA))})
        await response.prepare(request)
        await response.write(DATA[:1000])
        await never.wait()
        return response

    address = await serve(stall)
    with pytest.raises(ResultLost, match=f"{address}: nothing came or went for 0.05 s$"):
        await blobs.download(session, ref(address), OPEN)


async def test_no_address_and_too_many(session: aiohttp.ClientSession) -> None:
    with pytest.raises(ResultLost, match="no node is named that has it"):
        await blobs.download(session, ref(), OPEN)
    with pytest.raises(ResultLost) as lost:
        await blobs.download(session, ref(*["nowhere"] * 1000), OPEN)
    assert str(lost.value).count("nowhere") == blobs.ADDRESSES_TRIED_MAX


def test_a_lost_result_is_a_tasks_error_that_travels() -> None:
    error = pickle.loads(pickle.dumps(ResultLost("why")))
    assert isinstance(error, ResultLost)
    assert isinstance(error, TaskError)
    assert str(error) == "why"
