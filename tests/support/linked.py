"""Two ends of a link in one process, or one end and somebody who speaks WebSocket in another way."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import uvloop
from aiohttp import web

from sparrow_py.access.credentials import OPEN, Access
from sparrow_py.access.principals import ANYBODY
from sparrow_py.daemon.http_app import holder_of
from sparrow_py.errors import InvalidRequest, LinkError
from sparrow_py.http import http_guard
from sparrow_py.wire import messages as m
from sparrow_py.wire.accepting import accept
from sparrow_py.wire.dial import dial
from sparrow_py.wire.links import LINK_PATH, Link
from sparrow_py.wire.outgoing import Outgoing
from tests.support.guarded import Authority
from tests.support.waiting import TIMEOUT_S

HELLO = m.Hello(m.PROTOCOL_VERSION_OLDEST, "client", "", "ann", "", newest=m.PROTOCOL_VERSION)
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}
Serve = Callable[[Link], Awaitable[None]]


def run_on(loop: str, test: Coroutine[Any, Any, None]) -> None:
    """Run this on a loop of this kind, for not too long."""

    async def bounded() -> None:
        async with asyncio.timeout(TIMEOUT_S):
            await test

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(bounded())


class Tls:
    """Contexts for a server and for who dials it."""

    def __init__(self, directory: Path) -> None:
        files = Authority(directory).issue("server", "cluster")
        self.server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.server.load_cert_chain(files.cert, files.key)
        context = ssl.create_default_context(cafile=files.ca)
        self.access = replace(OPEN, current=lambda: context)


@asynccontextmanager
async def accepting(
    serve: Serve,
    *,
    tls: Tls | None = None,
    frame_bytes_max: int = m.FRAME_BYTES_MAX,
    backlog_bytes_max: int = 64 << 20,
    heartbeat_s: float = TIMEOUT_S,
    outgoing: Outgoing | None = None,
    before: bytes = b"",
) -> AsyncIterator[str]:
    """A server of links, whose ends are given to `serve`; its address. `before` is written before each upgrade."""
    shared = outgoing or Outgoing()

    async def handle(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        for start in range(0, len(before), 1 << 20):  # Below TLS any one piece is taken, however long.
            request.transport.write(before[start : start + (1 << 20)])
        accepted = await accept(
            request, name="s", principal_of=lambda *_: ANYBODY, decoders={"client": m.FrameDecoder(m.FromClient)},
            heartbeat_s=heartbeat_s, frame_bytes_max=frame_bytes_max, backlog_bytes_max=backlog_bytes_max,
            admit=lambda *_: None, outgoing=shared,
        )  # fmt: skip
        if not isinstance(accepted, tuple):
            return accepted
        link, _, response = accepted
        try:
            await serve(link)
        finally:
            await link.aclose("served")
        return response

    app = web.Application()
    http_guard.protect(app, names=None, public_paths=(LINK_PATH,), holder_of=holder_of)
    app.add_routes([web.get(LINK_PATH, handle)])
    async with served(http_guard.Runner(app), tls) as address:
        yield address


@asynccontextmanager
async def served(runner: web.AppRunner, tls: Tls | None) -> AsyncIterator[str]:
    """The address at which an application is served."""
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=None if tls is None else tls.server).start()
    try:
        yield "{}:{}".format(*runner.addresses[0])
    finally:
        await runner.cleanup()


@asynccontextmanager
async def dialled(
    address: str, access: Access = OPEN, outgoing: Outgoing | None = None, heartbeat_s: float = TIMEOUT_S
) -> AsyncIterator[Link]:
    """The dialling end of a link to this address."""
    async with aiohttp.ClientSession() as session:
        link, _ = await dial(
            session, address, HELLO, m.FrameDecoder(m.ToClient),
            heartbeat_s=heartbeat_s, access=access, outgoing=outgoing,
        )  # fmt: skip
        try:
            yield link
        finally:
            await link.aclose("the test is over")


@asynccontextmanager
async def both_ends(tls: Tls | None = None, **options: Any) -> AsyncIterator[tuple[Link, Link]]:
    """(the end that dialled, the end that was dialled); the latter is open until the former is closed."""
    accepted: asyncio.Future[Link] = asyncio.get_running_loop().create_future()

    async def serve(link: Link) -> None:
        accepted.set_result(link)
        with suppress(LinkError, InvalidRequest):  # The test hears of it.
            await link.ended()

    async with AsyncExitStack() as stack:
        address = await stack.enter_async_context(accepting(serve, tls=tls, **options))
        link = await stack.enter_async_context(dialled(address, OPEN if tls is None else tls.access))
        yield link, await accepted


async def until(condition: Callable[[], object]) -> None:
    """Wait until this is so; `run_on` sees to it that this ends."""
    while not condition():
        await asyncio.sleep(0.001)


def encoded(*messages: m.Message) -> bytes:
    """A frame's payload."""
    return msgspec.msgpack.encode(list(messages))
