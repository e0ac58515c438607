"""The first message of each side of a link, and the protocol version that both speak."""

from __future__ import annotations

import asyncio
from typing import Any

from sparrow_py.errors import LinkError
from sparrow_py.wire import messages as m
from sparrow_py.wire.connection import Connection, Nobody
from sparrow_py.wire.websocket import Payload, WebSocketError

HANDSHAKE_TIMEOUT_S = 10.0


class FirstMessage(Nobody):
    """Owns a connection until its first frame has come, and has it read no further than that."""

    def __init__(self, connection: Connection, kind: Any) -> None:
        """The frame must hold just one message of this kind."""
        self._connection = connection
        self._decode = m.FrameDecoder(kind)
        self._came: asyncio.Future[Any] = connection.loop.create_future()
        connection.hand_to(self)

    async def wait(self) -> Any:
        """The message; `LinkError` if none comes in time, or another."""
        self._connection.go_on()
        try:
            async with asyncio.timeout(HANDSHAKE_TIMEOUT_S):
                return await self._came
        except TimeoutError:
            raise LinkError(f"no first message within {HANDSHAKE_TIMEOUT_S:g} s") from None

    def received(self, message: Payload) -> int:
        """See `connection.Owner`."""
        self._connection.hold()
        try:
            batch = self._decode(message)
            if len(batch) != 1:
                raise LinkError(f"{len(batch)} messages in the first frame; one is expected")
        except LinkError as error:
            self._fail(error)
        else:
            if not self._came.done():
                self._came.set_result(batch[0])
        return 1

    def broke(self, error: WebSocketError) -> None:
        """See `connection.Owner`."""
        self._fail(error)

    def gone(self, reason: str) -> None:
        """See `connection.Owner`."""
        self._fail(LinkError(reason or "closed before its first message"))

    def _fail(self, error: LinkError) -> None:
        if not self._came.done():
            self._came.set_exception(error)
            self._came.exception()  # Who waited may be gone.


def spoken(oldest: int, newest: int) -> str:
    """Which versions these are, for an error."""
    return f"version {oldest} is" if oldest == newest else f"versions {oldest} to {newest} are"


def common_version(hello: m.Hello) -> int:
    """The newest protocol version that both sides speak; `LinkError` if there is none, with what to upgrade first."""
    oldest, newest = hello.version, max(hello.version, hello.newest)
    common = min(newest, m.PROTOCOL_VERSION)
    if oldest <= common >= m.PROTOCOL_VERSION_OLDEST:
        return common
    dialler = "the node monitor" if hello.role == "node" else "the client"
    behind = "the scheduler" if oldest > m.PROTOCOL_VERSION else dialler
    raise LinkError(
        f"protocol {spoken(oldest, newest)} not spoken here; "
        f"{spoken(m.PROTOCOL_VERSION_OLDEST, m.PROTOCOL_VERSION)}: upgrade {behind} first, one version at a time"
    )
