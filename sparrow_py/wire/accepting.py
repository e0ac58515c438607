"""Links that are dialled from elsewhere: a scheduler checks the Hello of each, and answers Welcome or Goodbye."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import aiohttp
from aiohttp import web

from sparrow_py.access.credentials import refusals
from sparrow_py.access.principals import Principal
from sparrow_py.errors import InvalidRequest, LinkError
from sparrow_py.http import http_guard
from sparrow_py.wire import messages as m
from sparrow_py.wire.links import (
    ARRAY_HEADER,
    CLOSE_TIMEOUT_S,
    LINK_LOST,
    REASON_CHARS_MAX,
    Link,
    common_version,
    link_of,
    receive_one,
)


async def accept(
    request: web.Request,
    *,
    name: str,
    principal_of: Callable[[web.Request, str], Principal],
    decoders: dict[str, m.FrameDecoder],
    heartbeat_s: float,
    frame_bytes_max: int,
    backlog_bytes_max: int,
    admit: Callable[[m.Hello, Principal], None],
) -> tuple[Link, m.Hello, web.WebSocketResponse] | web.WebSocketResponse:
    """Answer a dial: check the Hello and say Welcome, or say Goodbye and return the closed socket.

    `principal_of` says who showed this token, with its certificate, or raises `LinkError`. `decoders` has an entry
    per role that may dial; `admit` raises `InvalidRequest` or `LinkError` for a Hello that is not welcome, and fills
    in its user.
    """
    ws = web.WebSocketResponse(
        heartbeat=heartbeat_s,
        max_msg_size=frame_bytes_max + m.MESSAGE_OVERHEAD_BYTES,
        compress=False,
        timeout=CLOSE_TIMEOUT_S,
    )
    try:
        await ws.prepare(request)
    except LINK_LOST:  # It hung up before it was answered. Nobody hears this, and aiohttp logs no error for it.
        raise web.HTTPBadRequest from None
    handshake = http_guard.Handshake(request, ws)
    try:
        hello = await receive_one(ws, m.Hello)
        version = common_version(hello)
        principal = principal_of(request, hello.token)
        if hello.role not in decoders:
            raise InvalidRequest("role", hello.role, " or ".join(decoders))
        admit(hello, principal)
    except (LinkError, InvalidRequest) as error:
        refusals.warning("a link from %s was refused: %s", request.remote, error)
        await _say_goodbye(ws, str(error))
        handshake.cut()
        return ws
    handshake.accepted()
    link = link_of(version)(
        ws,
        hello.name or hello.user,
        decoders[hello.role],
        version=version,
        frame_bytes_max=frame_bytes_max,
        backlog_bytes_max=backlog_bytes_max,
    )
    link.principal = principal
    link.send(m.Welcome(version, name, frame_bytes_max, hello.user))
    link.flush()  # A frame of its own, whatever is sent next in this turn: the first frame is the handshake.
    return link, hello, ws


async def _say_goodbye(ws: web.WebSocketResponse, reason: str) -> None:
    frame = bytearray(ARRAY_HEADER[:1] + b"\x00\x01")
    m.encode_into(m.Goodbye(reason[:REASON_CHARS_MAX]), frame, -1)
    try:
        async with asyncio.timeout(2 * CLOSE_TIMEOUT_S):  # It may not read what it is told.
            await ws.send_bytes(bytes(frame))
            await ws.close()
    except (TimeoutError, ConnectionError, aiohttp.ClientError):
        pass
