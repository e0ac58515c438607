"""Dialling one scheduler: HTTP, the upgrade, Hello and Welcome."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import aiohttp
import msgspec

from sparrow_py.access.credentials import OPEN, Access, tls_reason
from sparrow_py.errors import LinkError, LinkRefused
from sparrow_py.wire import messages as m
from sparrow_py.wire import upgrade
from sparrow_py.wire.connection import Connection
from sparrow_py.wire.handshake import HANDSHAKE_TIMEOUT_S, FirstMessage, spoken
from sparrow_py.wire.links import BACKLOG_BYTES_MAX, LINK_PATH, Link, link_of, single_frame
from sparrow_py.wire.outgoing import Outgoing

TRUSTED_FRAME_BYTES_MAX = 64 << 20
"""What a dialler accepts from the scheduler it chose."""
NO_TIMEOUT = aiohttp.ClientTimeout(total=None)
"""Of the request: the handshake has one of its own, and the link lasts."""


async def dial(
    session: aiohttp.ClientSession,
    address: str,
    hello: m.Hello,
    decode: m.FrameDecoder,
    *,
    heartbeat_s: float,
    backlog_bytes_max: int = BACKLOG_BYTES_MAX,
    access: Access = OPEN,
    outgoing: Outgoing | None = None,
) -> tuple[Link, m.Welcome]:
    """Connect to the scheduler at `address` (host:port); `LinkError` with the reason if it says no.

    The Hello goes with the token of `access`. `outgoing` is shared by the links of the loop.
    """
    try:
        async with asyncio.timeout(HANDSHAKE_TIMEOUT_S):
            connection = await _upgraded(session, address, access, outgoing or Outgoing())
            try:
                welcome = await _welcomed(connection, address, msgspec.structs.replace(hello, token=access.token))
            except LinkError:
                connection.close()
                connection.go_on()
                await connection.wait_lost()
                raise
            except BaseException:
                connection.abort()
                raise
    except LinkError:
        raise
    except TimeoutError:
        raise LinkError(f"scheduler {address} did not answer within {HANDSHAKE_TIMEOUT_S:g} s") from None
    except (aiohttp.ClientError, OSError) as error:
        cut_off = isinstance(error, aiohttp.ServerDisconnectedError)
        reason = tls_reason(error, access, cut_off=cut_off) or str(getattr(error, "os_error", error))
        raise LinkError(f"scheduler {address} cannot be reached: {reason}") from None
    link = link_of(welcome.version)(
        connection,
        address,
        decode,
        version=welcome.version,
        frame_bytes_max=welcome.frame_bytes_max,
        backlog_bytes_max=backlog_bytes_max,
        heartbeat_s=heartbeat_s,
    )
    return link, welcome


async def _upgraded(session: aiohttp.ClientSession, address: str, access: Access, outgoing: Outgoing) -> Connection:
    """A connection that HTTP has done with."""
    key = upgrade.new_key()
    response = await session.get(
        access.url(address, LINK_PATH),
        headers=upgrade.request_headers(key),
        ssl=access.ssl,
        allow_redirects=False,
        read_until_eof=False,
        timeout=NO_TIMEOUT,
    )
    try:
        if why_not := upgrade.why_no_answer(response.status, response.headers, key):
            raise LinkError(f"scheduler {address} cannot be reached: {why_not}")
        held = response.connection
        if held is None or held.protocol is None or held.transport is None:
            raise LinkError(f"scheduler {address} cannot be reached: it hung up")
        http, behind = held.protocol, upgrade.Behind()
        http.set_parser(cast("Any", behind), None)
        connection = Connection(
            held.transport, http, outgoing, dials=True, message_bytes_max=TRUSTED_FRAME_BYTES_MAX, over=response.close
        )
    except BaseException:
        response.close()
        raise
    connection.data_received(behind.data)
    return connection


async def _welcomed(connection: Connection, address: str, hello: m.Hello) -> m.Welcome:
    """Say Hello and hear Welcome; `LinkRefused` if it is a Goodbye."""
    first = FirstMessage(connection, m.Welcome | m.Goodbye)
    connection.write(single_frame(hello))
    welcome = await first.wait()
    if isinstance(welcome, m.Goodbye):
        raise LinkRefused(f"scheduler {address} refused the link: {welcome.reason}", is_denied=welcome.is_denied)
    assert isinstance(welcome, m.Welcome)
    newest = max(hello.version, hello.newest)
    if not hello.version <= welcome.version <= newest:
        raise LinkError(
            f"scheduler {address} chose protocol version {welcome.version}; {spoken(hello.version, newest)} spoken here"
        )
    return welcome
