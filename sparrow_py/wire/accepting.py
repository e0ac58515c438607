"""Links that are dialled from elsewhere: a scheduler checks the Hello of each, and answers Welcome or Goodbye."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import aiohttp
from aiohttp import web

from sparrow_py.access.credentials import refusals
from sparrow_py.access.principals import Principal
from sparrow_py.errors import AccessDenied, InvalidRequest, LinkError
from sparrow_py.http import http_guard
from sparrow_py.http.http_api import error_response
from sparrow_py.wire import messages as m
from sparrow_py.wire import upgrade, websocket
from sparrow_py.wire.connection import ByteLimit, Connection, Nobody
from sparrow_py.wire.handshake import FirstMessage, common_version
from sparrow_py.wire.links import REASON_CHARS_MAX, Link, link_of, single_frame
from sparrow_py.wire.outgoing import Outgoing
from sparrow_py.wire.websocket import WebSocketError


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
    outgoing: Outgoing,
    plane: str = m.SPARROW,
    leads: Callable[[], bool] = lambda: True,
) -> tuple[Link, m.Hello, web.StreamResponse] | web.StreamResponse:
    """Answer a dial: check the Hello and say Welcome, or say Goodbye and return the answer to a request that is over.

    `principal_of` says who showed this token, with its certificate, or raises `LinkError`. `decoders` has an entry
    per role that may dial; `admit` raises `InvalidRequest` or `LinkError` for a Hello that is not welcome, and fills
    in its user. `outgoing` is shared by the links of the loop. The Welcome says the `plane`, and whether the scheduler
    `leads` it.
    """
    why_not = upgrade.why_no_request(request.headers) or ("the request has a body" if request.body_exists else "")
    if why_not or request.method != "GET":
        return error_response(400, why_not or f"{request.method} is no way to ask for a link")
    response = web.StreamResponse(status=101, headers=upgrade.answer_headers(request.headers["Sec-WebSocket-Key"]))
    connection = await _upgraded(request, response, outgoing, frame_bytes_max + m.MESSAGE_OVERHEAD_BYTES)
    try:
        hello = await FirstMessage(connection, m.Hello).wait()
        version = common_version(hello)
        principal = principal_of(request, hello.token)
        if hello.role not in decoders:
            raise InvalidRequest("role", hello.role, " or ".join(decoders))
        admit(hello, principal)
    except (LinkError, InvalidRequest) as error:
        refusals.warning("a link from %s was refused: %s", request.remote or "this machine", error)
        await _refuse(connection, error)
        return response
    http_guard.is_link(request)
    connection.limit(None)
    link = link_of(version)(
        connection,
        hello.name or hello.user,
        decoders[hello.role],
        version=version,
        frame_bytes_max=frame_bytes_max,
        backlog_bytes_max=backlog_bytes_max,
        heartbeat_s=heartbeat_s,
    )
    link.principal = principal
    link.send(m.Welcome(version, name, frame_bytes_max, hello.user, plane, leads()))
    link.flush()  # A frame of its own, whatever is sent next in this event: the first frame is the handshake.
    return link, hello, response


async def _upgraded(
    request: web.Request, response: web.StreamResponse, outgoing: Outgoing, message_bytes_max: int
) -> Connection:
    """The connection of a request that has been answered by an upgrade, and of which HTTP hears no more but its end."""
    response.force_close()
    try:
        await response.prepare(request)
        await response.write_eof()  # So that nothing is written when the handler returns.
    except (ConnectionError, aiohttp.ClientError, RuntimeError):
        # It hung up before it was answered. Nobody hears this, and aiohttp logs no error for it.
        raise web.HTTPBadRequest from None
    http, transport = request.protocol, request.transport
    if transport is None or transport.is_closing():
        raise web.HTTPBadRequest
    behind = upgrade.Behind()
    http.set_parser(cast("Any", behind))
    http.keep_alive(False)
    connection = Connection(transport, http, outgoing, dials=False, message_bytes_max=message_bytes_max)
    http_guard.begins_link(request)
    limit, dropped = http_guard.HELLO_BYTES_MAX, http_guard.DROPPED_BYTES_MAX
    why_cut = f"more than HELLO_BYTES_MAX = {limit} bytes came before a Hello was accepted"
    connection.limit(ByteLimit(connection, limit, dropped, why_cut))
    connection.data_received(behind.data)
    return connection


async def _refuse(connection: Connection, error: LinkError | InvalidRequest) -> None:
    """Say why, and wait a moment for it to be read; what comes meanwhile is thrown away."""
    connection.hand_to(Nobody())
    goodbye = m.Goodbye(str(error)[:REASON_CHARS_MAX], isinstance(error, AccessDenied))
    connection.write(single_frame(goodbye))
    connection.close(error.code if isinstance(error, WebSocketError) else websocket.NORMAL)
    connection.go_on()
    await connection.wait_lost()
