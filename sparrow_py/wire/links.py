"""Links: one WebSocket per pair of processes, one frame per turn of the loop.

`Link.send` encodes a message at once and returns; everything sent to a peer in one turn of the
loop leaves as one frame. A peer that reads too slowly is cut off once `backlog_bytes_max` bytes
wait for it. Who dials says `Hello`; who was dialled answers `Welcome` or `Goodbye`.
"""

from __future__ import annotations

import asyncio
import types
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any

import aiohttp
import msgspec

from sparrow_py.access.credentials import OPEN, Access, tls_reason
from sparrow_py.access.principals import ANYBODY, Principal
from sparrow_py.errors import LinkError, LinkRefused
from sparrow_py.wire import messages as m

if TYPE_CHECKING:
    from aiohttp.web import WebSocketResponse  # With much that clients and node monitors need not load.

    WebSocket = WebSocketResponse | aiohttp.ClientWebSocketResponse

LINK_PATH = "/link"
HANDSHAKE_TIMEOUT_S = 10.0
BACKLOG_BYTES_MAX = 256 << 20
BACKLOG_LOW_BYTES = 4 << 20
"""`Link.drained` waits until fewer bytes than this wait to be sent."""
TRUSTED_FRAME_BYTES_MAX = 64 << 20
"""What a dialler accepts from the scheduler it chose."""
CLOSE_TIMEOUT_S = 0.5
REASON_CHARS_MAX = 500

ARRAY_HEADER = b"\xdc\x00\x00"  # msgpack: array with a 16-bit count, filled in when the frame leaves.
_MESSAGES_PER_FRAME_MAX = 0xFFFF


LINK_LOST = (ConnectionError, aiohttp.ClientError, RuntimeError)
"""What aiohttp raises when a message is written to a connection that is gone or going."""


@types.coroutine
def _resumed(step: Coroutine[Any, Any, None], waits_for: Any) -> Generator[Any, Any, None]:
    """Go on with a coroutine that was stepped by hand until it waited for `waits_for`."""
    while True:
        try:
            value = yield waits_for
        except BaseException as error:
            waits_for = _step(step.throw, error)
        else:
            waits_for = _step(step.send, value)
        if waits_for is _DONE:
            return


_DONE = object()


def _step(advance: Callable[[Any], Any], value: Any) -> Any:
    try:
        return advance(value)
    except StopIteration:
        return _DONE


class Link:
    """One connection to a peer. `send` queues; `batches` yields what arrives, frame by frame."""

    def __init__(
        self,
        ws: WebSocket,
        peer: str,
        decode: m.FrameDecoder,
        *,
        version: int = m.PROTOCOL_VERSION,
        frame_bytes_max: int = m.FRAME_BYTES_MAX,
        backlog_bytes_max: int = BACKLOG_BYTES_MAX,
    ) -> None:
        self.peer = peer
        self.version = version
        """Of the protocol, as both sides speak it."""
        self.frame_bytes_max = frame_bytes_max
        self.closed_because = ""
        self.principal: Principal = ANYBODY
        """Who dialled, if it is the end that was dialled."""
        self.transport: asyncio.Transport | None = None
        """What is to be cut after the last frame, rather than wait for the other side to end TLS, too."""
        self.unsent: list[bytearray] = []
        """Frames that were to be sent when the connection was found to be lost: nothing of them has left."""
        self._ws = ws
        self._decode = decode
        self._backlog_bytes_max = backlog_bytes_max
        self._frames: deque[bytearray] = deque()
        self._frame = bytearray(ARRAY_HEADER)
        self._frame_messages = 0
        self._backlog_bytes = 0
        self._flush_due: asyncio.Handle | None = None
        self._flush_due_s = 0.0
        """When, by the loop's clock, if nothing hurried is queued."""
        self._hurried = False
        """Whether something that the peer waits for is queued."""
        self._writing: asyncio.Future[None] | None = None
        self._low: asyncio.Event = asyncio.Event()
        self._closing = False
        self._closer: asyncio.Future[None] | None = None

    def send(self, message: m.Message) -> None:
        """Queue a message; after the link has closed it is dropped.

        It leaves at the end of this turn of the loop; one that the peer does not wait for
        leaves with the next that it does, or after a while (`messages.UNHURRIED_S`).
        Raises `LinkError` if the message is larger than a frame may be.
        """
        if self._closing:
            return
        frame = self._frame
        before = len(frame)
        m.encode_into(message, frame, -1)
        size = len(frame) - before
        if len(frame) > self.frame_bytes_max or self._frame_messages == _MESSAGES_PER_FRAME_MAX:
            if self._frame_messages:
                encoded = bytes(memoryview(frame)[before:])
                del frame[before:]
                self._close_frame()
                self._frame += encoded
            if size > self.frame_bytes_max + m.MESSAGE_OVERHEAD_BYTES:
                self._frame = bytearray(ARRAY_HEADER)
                raise LinkError(f"a message of {size} bytes does not fit a frame of {self.frame_bytes_max}")
        self._frame_messages += 1
        self._backlog_bytes += size
        if type(message) in m.UNHURRIED_S:
            if not self._hurried:
                self._flush_in(m.UNHURRIED_S[type(message)])
        elif not self._hurried:
            self._hurried = True
            if self._flush_due is not None:
                self._flush_due.cancel()
            self._flush_due = asyncio.get_running_loop().call_soon(self.flush)
        elif self._backlog_bytes > self._backlog_bytes_max:
            self.close(f"{self.peer} reads too slowly: {self._backlog_bytes} bytes wait for it")

    def _flush_in(self, seconds: float) -> None:
        """Flush after so long, or sooner if it was to be sooner."""
        loop = asyncio.get_running_loop()
        due_s = loop.time() + seconds
        if self._flush_due is None or due_s < self._flush_due_s:
            if self._flush_due is not None:
                self._flush_due.cancel()
            self._flush_due, self._flush_due_s = loop.call_later(seconds, self.flush), due_s

    def flush(self) -> None:
        """Send what is queued now. Called by itself at the end of the loop's turn at the latest."""
        if self._flush_due is not None:
            self._flush_due.cancel()
            self._flush_due = None
        if self._writing is not None:
            return  # The socket is full: the writing task goes on when it is not.
        self._hurried = False
        if self._frame_messages:
            self._close_frame()
        while self._frames:
            frame = self._frames.popleft()
            # To write seldom waits, and a task for it would cost a turn of the loop and more than the write:
            # so the coroutine is stepped by hand, and becomes a task only if it does wait.
            step = self._ws.send_bytes(frame)  # type: ignore[arg-type]
            try:
                waits_for = step.send(None)
            except StopIteration:
                self._written(frame)
            except LINK_LOST as error:  # aiohttp looks before it writes.
                self._frames.appendleft(frame)
                self._lost(error)
                return
            else:
                self._hurried = True
                self._writing = asyncio.ensure_future(self._write_on(frame, _resumed(step, waits_for)))
                return
        self._low.set()

    async def _write_on(self, frame: bytearray, write: Awaitable[None]) -> None:
        """Finish the write that had to wait, then write what was queued meanwhile."""
        try:
            await write
            self._written(frame)
        except LINK_LOST as error:
            self._lost(error)
            return
        self._writing = None
        self.flush()

    def _written(self, frame: bytearray) -> None:
        self._backlog_bytes -= len(frame) - len(ARRAY_HEADER)
        if self._backlog_bytes < BACKLOG_LOW_BYTES:
            self._low.set()

    def _lost(self, error: BaseException) -> None:
        self._closing = True
        self.closed_because = self.closed_because or f"connection lost: {error}"
        if self._frame_messages:
            self._close_frame()
        self.unsent += self._frames
        self._frames.clear()
        self._low.set()

    def _close_frame(self) -> None:
        """Move the frame being filled to those ready to leave."""
        frame = self._frame
        frame[1:3] = self._frame_messages.to_bytes(2, "big")
        self._frames.append(frame)
        self._frame = bytearray(ARRAY_HEADER)
        self._frame_messages = 0

    async def drained(self) -> None:
        """Wait until little is left to send, so that a large submission does not fill memory."""
        while self._backlog_bytes >= BACKLOG_LOW_BYTES and not self._closing:
            self._low.clear()
            await self._low.wait()

    async def batches(self) -> AsyncIterator[list[Any]]:
        """The messages of each frame that arrives, until the link closes.

        A frame that does not decode raises `LinkError`; a peer that goes or falls silent without Goodbye just ends it.
        """
        receive, decode = self._ws.receive, self._decode
        while True:
            try:
                frame = await receive()
            except LINK_LOST as error:  # While a ping was answered.
                self._lost(error)
                return
            if frame.type is aiohttp.WSMsgType.BINARY:
                batch = decode(frame.data)
                if not batch:
                    raise LinkError("a frame without messages")
                yield batch
            elif frame.type is aiohttp.WSMsgType.TEXT:
                raise LinkError("a text frame came; frames are binary")
            elif frame.type is aiohttp.WSMsgType.ERROR:
                if isinstance(frame.data, aiohttp.WebSocketError):
                    raise LinkError(f"{frame.data}")
                self.closed_because = self.closed_because or f"{frame.data}"
                return
            else:
                return

    def close(self, reason: str) -> None:
        """Say Goodbye and close, without waiting for it."""
        if not self._closing and self._closer is None:
            self.closed_because = reason
            self._closer = asyncio.ensure_future(self.aclose(reason))

    async def aclose(self, reason: str = "") -> None:
        """Send what is queued, say Goodbye with the reason, and close."""
        if self._closer is not None and self._closer is not asyncio.current_task():
            # Who serves the link would drop it when this returns, and the other side not hear why.
            await asyncio.wait([self._closer])
            return
        if not self._closing:
            self.closed_because = self.closed_because or reason
            self.send(m.Goodbye(self.closed_because[:REASON_CHARS_MAX]))
            self._closing = True
            self.flush()
            if self._writing is not None:
                await asyncio.wait([self._writing], timeout=CLOSE_TIMEOUT_S)
        if self._writing is not None:
            self._writing.cancel()
        self._low.set()
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._ws.close()
        except (TimeoutError, ConnectionError, aiohttp.ClientError):
            pass
        if self.transport is not None:
            self.transport.abort()


class OlderLink(Link):
    """A link to a peer that speaks an older version: what that does not know is left out.

    A class of its own, so that a link to a peer of today looks nothing up.
    """

    def send(self, message: m.Message) -> None:
        """As `Link.send`; a message that the peer could not decode is dropped."""
        if m.SINCE.get(type(message), 0) <= self.version:
            super().send(message)


def link_of(version: int) -> type[Link]:
    """The kind of link to a peer that speaks this version."""
    return Link if version == m.PROTOCOL_VERSION else OlderLink


def _spoken(oldest: int, newest: int) -> str:
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
        f"protocol {_spoken(oldest, newest)} not spoken here; "
        f"{_spoken(m.PROTOCOL_VERSION_OLDEST, m.PROTOCOL_VERSION)}: upgrade {behind} first, one version at a time"
    )


async def dial(
    session: aiohttp.ClientSession,
    address: str,
    hello: m.Hello,
    decode: m.FrameDecoder,
    *,
    heartbeat_s: float,
    backlog_bytes_max: int = BACKLOG_BYTES_MAX,
    access: Access = OPEN,
) -> tuple[Link, m.Welcome]:
    """Connect to the scheduler at `address` (host:port); `LinkError` with the reason if it says no.

    The Hello goes with the token of `access`.
    """
    try:
        async with asyncio.timeout(HANDSHAKE_TIMEOUT_S):
            ws = await session.ws_connect(
                access.url(address, LINK_PATH),
                ssl=access.ssl,
                heartbeat=heartbeat_s,
                max_msg_size=TRUSTED_FRAME_BYTES_MAX,
                timeout=aiohttp.ClientWSTimeout(ws_close=CLOSE_TIMEOUT_S),
            )
            transport = None if access.context is None else _transport_of(ws)
            try:
                frame = bytearray(ARRAY_HEADER[:1] + b"\x00\x01")
                m.encode_into(msgspec.structs.replace(hello, token=access.token), frame, -1)
                await ws.send_bytes(bytes(frame))
                welcome = await receive_one(ws, m.Welcome | m.Goodbye)
                if isinstance(welcome, m.Goodbye):
                    raise LinkRefused(f"scheduler {address} refused the link: {welcome.reason}")
                if not hello.version <= welcome.version <= max(hello.version, hello.newest):
                    offered = _spoken(hello.version, max(hello.version, hello.newest))
                    raise LinkError(
                        f"scheduler {address} chose protocol version {welcome.version}; {offered} spoken here"
                    )
            except BaseException:
                await ws.close()
                if transport is not None:
                    transport.abort()
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
        ws,
        address,
        decode,
        version=welcome.version,
        frame_bytes_max=welcome.frame_bytes_max,
        backlog_bytes_max=backlog_bytes_max,
    )
    link.transport = transport
    return link, welcome


def _transport_of(ws: aiohttp.ClientWebSocketResponse) -> asyncio.Transport | None:
    connection = ws._response.connection  # There is no public way to it.
    return None if connection is None else connection.transport


async def receive_one(ws: WebSocket, kind: Any) -> Any:
    """The first frame, which must hold just one message of this kind."""
    try:
        async with asyncio.timeout(HANDSHAKE_TIMEOUT_S):
            frame = await ws.receive()
    except TimeoutError:
        raise LinkError(f"no first message within {HANDSHAKE_TIMEOUT_S:g} s") from None
    except LINK_LOST as error:
        raise LinkError(f"connection lost: {error}") from None
    if frame.type is aiohttp.WSMsgType.ERROR:
        raise LinkError(f"{frame.data}")
    if frame.type is not aiohttp.WSMsgType.BINARY:
        raise LinkError("closed before its first message" if frame.type is not aiohttp.WSMsgType.TEXT else "text frame")
    batch = m.FrameDecoder(kind)(frame.data)
    if len(batch) != 1:
        raise LinkError(f"{len(batch)} messages in the first frame; one is expected")
    return batch[0]
