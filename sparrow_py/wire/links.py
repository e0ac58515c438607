"""Links: one WebSocket per pair of processes, one frame per event and peer.

`Link.send` encodes a message at once and returns; everything sent to a peer during one event leaves as one frame when
the event ends (`outgoing`). What comes is handed to who listens in the call that brings it. A peer that reads too
slowly is cut off once `backlog_bytes_max` bytes wait for it. Who dials says `Hello`; who was dialled answers `Welcome`
or `Goodbye` (`handshake`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from sparrow_py.access.principals import ANYBODY, Principal
from sparrow_py.errors import InvalidRequest, LinkError
from sparrow_py.wire import messages as m
from sparrow_py.wire import websocket
from sparrow_py.wire.connection import CLOSE_TIMEOUT_S, MESSAGES_PER_TURN_MAX, Connection
from sparrow_py.wire.websocket import HEADER_ROOM, Payload, WebSocketError

log = logging.getLogger("sparrow.links")
LINK_PATH = "/link"
BACKLOG_BYTES_MAX = 256 << 20
BACKLOG_LOW_BYTES = 4 << 20
"""`Link.drained` waits until fewer bytes than this wait to be sent."""
REASON_CHARS_MAX = 500

_EMPTY_FRAME = bytes(HEADER_ROOM) + b"\xdc\x00\x00"
"""Room for the header, then msgpack: an array with a 16-bit count, filled in when the frame leaves."""
_COUNT = slice(HEADER_ROOM + 1, HEADER_ROOM + 3)

Handler = Callable[[list[Any]], list[Any] | None]
"""Takes a batch, and may return the end of it, be it empty: others have their turn, then that is handed over."""


class Link:
    """One connection to a peer. `send` queues; `listen` says who is handed what arrives."""

    def __init__(
        self,
        connection: Connection,
        peer: str,
        decode: m.FrameDecoder,
        *,
        version: int = m.PROTOCOL_VERSION,
        frame_bytes_max: int = m.FRAME_BYTES_MAX,
        backlog_bytes_max: int = BACKLOG_BYTES_MAX,
        heartbeat_s: float,
    ) -> None:
        self.loop = connection.loop
        self.first = False
        """Whether what it has to send leaves before what other links have."""
        self.peer = peer
        self.version = version
        """Of the protocol, as both sides speak it."""
        self.frame_bytes_max = frame_bytes_max
        self.closed_because = ""
        self.principal: Principal = ANYBODY
        """Who dialled, if it is the end that was dialled."""
        self.unsent: list[bytes] = []
        """Frames that were to be sent when the link was cut off, or found to be lost: nothing of them has left."""
        self._connection = connection
        self._outgoing = connection.outgoing
        self._decode = decode
        self._heartbeat_s = heartbeat_s
        self._handle: Handler = _unheard
        self._look: Callable[[], None] = _see_nothing
        self._slices: deque[list[Any]] = deque()
        """What is left of a frame that is handed over in several turns of the loop."""
        self._backlog_bytes_max = backlog_bytes_max
        self._frames: deque[bytearray] = deque()
        self._frame = bytearray(_EMPTY_FRAME)
        self._frame_messages = 0
        self._full_bytes = HEADER_ROOM + frame_bytes_max
        self._backlog_bytes = 0
        self._flush_due: asyncio.TimerHandle | None = None
        self._flush_due_s = 0.0
        """When, by the loop's clock, if nothing hurried is queued."""
        self._hurried = False
        """Whether something that the peer waits for is queued: then it is flushed when the event ends."""
        self._low: asyncio.Event | None = None
        """While somebody waits until little is left to send."""
        self.closing = False
        """Whether nothing more is sent, and nothing more heard."""
        self._close_code = websocket.NORMAL
        self._error: LinkError | InvalidRequest | None = None
        """What the peer did that it must not do."""
        self._ended: asyncio.Future[None] = self.loop.create_future()
        connection.hand_to(self)

    # ---- what is sent ------------------------------------------------------------------------

    def send(self, message: m.Message) -> None:
        """Queue a message; after the link has closed it is dropped.

        It leaves when the present event ends, or outside of one at the end of this turn of the loop; one that the peer
        does not wait for leaves with the next that it does, or after a while (`messages.UNHURRIED_S`).
        Raises `LinkError` if the message is larger than a frame may be.
        """
        if self.closing:
            return
        self._append(message)
        if not self._hurried:
            unhurried_s = m.UNHURRIED_S.get(type(message))
            if unhurried_s is None:
                self._hurried = True
                self._outgoing.add(self)
            else:
                self._flush_in(unhurried_s)
        if self._backlog_bytes > self._backlog_bytes_max:
            self._check_backlog()

    def _append(self, message: m.Message) -> None:
        frame = self._frame
        before = len(frame)
        m.encode_into(message, frame, -1)
        size = len(frame) - before
        if len(frame) > self._full_bytes or self._frame_messages == m.MESSAGES_PER_FRAME_MAX:
            self._begin_frame(before, size)
        self._frame_messages += 1
        self._backlog_bytes += size

    def _begin_frame(self, before: int, size: int) -> None:
        """The message at the end of the frame, from `before`, is the first of another."""
        frame = self._frame
        if self._frame_messages:
            encoded = bytes(memoryview(frame)[before:])
            del frame[before:]
            self._close_frame()
            self._frame += encoded
        if size > self.frame_bytes_max + m.MESSAGE_OVERHEAD_BYTES:
            self._frame = bytearray(_EMPTY_FRAME)
            raise LinkError(f"a message of {size} bytes does not fit a frame of {self.frame_bytes_max}")

    def _close_frame(self) -> None:
        """Move the frame being filled to those ready to leave."""
        frame = self._frame
        frame[_COUNT] = self._frame_messages.to_bytes(2, "big")
        self._frames.append(frame)
        self._frame = bytearray(_EMPTY_FRAME)
        self._frame_messages = 0

    def _flush_in(self, seconds: float) -> None:
        """Flush after so long, or sooner if it was to be sooner."""
        due_s = self.loop.time() + seconds
        if self._flush_due is None or due_s < self._flush_due_s:
            if self._flush_due is not None:
                self._flush_due.cancel()
            self._flush_due, self._flush_due_s = self.loop.call_later(seconds, self.flush), due_s

    @property
    def backlog_bytes(self) -> int:
        """What waits to be sent."""
        return self._backlog_bytes

    def backlog_at_least(self, bytes_max: int) -> None:
        """So much may wait, whatever else was said: the peer may be sent that at once, and it is not its fault."""
        self._backlog_bytes_max = max(self._backlog_bytes_max, bytes_max)

    def _check_backlog(self) -> None:
        """More waits than may: cut the peer off if that is because it does not read."""
        self.flush()
        if self._backlog_bytes > self._backlog_bytes_max:
            reason = (
                f"{self.peer} reads too slowly: {self._backlog_bytes} bytes wait for it, "
                f"and link_backlog_bytes_max = {self._backlog_bytes_max}"
            )
            log.warning("a link is cut off: %s", reason)
            # It hears why, if it reads what has left already.
            self._keep_unsent()
            self.close(reason)

    def _keep_unsent(self) -> None:
        """What is queued will not leave."""
        if self._frame_messages:
            self._close_frame()
        self.unsent += [bytes(memoryview(frame)[HEADER_ROOM:]) for frame in self._frames]
        self._frames.clear()

    def flush_hurried(self) -> None:
        """Send what is queued if the peer waits for any of it."""
        if self._hurried:
            self.flush()

    def flush(self) -> None:
        """Send what is queued now, as far as the peer takes it."""
        if self._flush_due is not None:
            self._flush_due.cancel()
            self._flush_due = None
        self._hurried = False
        if self._frame_messages:
            self._close_frame()
        frames, connection = self._frames, self._connection
        while frames and connection.writable:
            frame = frames.popleft()
            size = len(frame)
            if not connection.write(frame):
                frames.appendleft(frame)
                self.gone("connection lost")
                return
            self._backlog_bytes -= size - len(_EMPTY_FRAME)
        if self._low is not None and self._backlog_bytes < BACKLOG_LOW_BYTES:
            self._low.set()
        if self.closing and not frames:
            connection.close(self._close_code)

    async def drained(self) -> None:
        """Wait until little is left to send, so that a large submission does not fill memory."""
        while self._backlog_bytes >= BACKLOG_LOW_BYTES and not self.closing:
            self.flush()
            if self._backlog_bytes >= BACKLOG_LOW_BYTES and not self.closing:
                self._low = asyncio.Event() if self._low is None else self._low
                self._low.clear()
                await self._low.wait()

    # ---- what comes --------------------------------------------------------------------------

    def listen(self, handle: Handler, look: Callable[[], None] | None = None) -> None:
        """Hand over the messages of each frame that arrives, from now on.

        `LinkError` or `InvalidRequest` that `handle` raises closes the link with a Goodbye that says why, and so does
        a frame that does not decode. `look` is called before a frame is looked at.
        """
        self._handle = handle
        self._look = look or _see_nothing
        self._connection.watch(self._heartbeat_s)
        self._connection.go_on()

    async def ended(self) -> None:
        """Wait until nothing more will be handed over; raises what closed the link if the peer is to blame."""
        await asyncio.wait([self._ended])
        if self._error is not None:
            raise self._error

    def received(self, message: Payload) -> int:
        """A frame came: see `connection.Owner`."""
        count = 1
        if self.closing:
            return count
        try:
            self._look()
            if self.closing:
                return count
            batch = self._decode(message)
            count = len(batch)
            if not count:
                raise LinkError("a frame without messages")
            if count > MESSAGES_PER_TURN_MAX:
                self._cut_up(batch)
            elif (rest := self._handle(batch)) is not None:
                self._hand_over_later([rest] if rest else [])
        except Exception as error:
            self._failed(error)
        return count

    def _cut_up(self, batch: list[Any]) -> None:
        """Hand over a part of a long frame; the next ones follow in the next turns of the loop."""
        steps = range(0, len(batch), MESSAGES_PER_TURN_MAX)
        self._hand_over_later(batch[step : step + MESSAGES_PER_TURN_MAX] for step in steps)
        self._hand_over_slice()

    def _hand_over_later(self, slices: Iterable[list[Any]]) -> None:
        """Hand these over in the next turns of the loop, and read no further before."""
        self._slices.extend(slices)
        self._connection.hold()
        self.loop.call_soon(self._next_slice)

    def _hand_over_slice(self) -> None:
        rest = self._handle(self._slices.popleft())
        if rest:
            self._slices.appendleft(rest)

    def _next_slice(self) -> None:
        if not self._slices or self.closing:
            self._slices.clear()
            self._connection.go_on()
            return
        self._outgoing.begin()
        try:
            self._look()
            if not self.closing:
                self._hand_over_slice()
        except Exception as error:
            self._failed(error)
        finally:
            self._outgoing.end()
        self.loop.call_soon(self._next_slice)

    def _failed(self, error: Exception) -> None:
        """What came could not be handled."""
        if isinstance(error, LinkError | InvalidRequest):
            self._error = error
            self.close(str(error))
        else:  # A bug of ours, or of code of the user's that was called.
            log.error("the link to %s failed", self.peer, exc_info=error)
            self.close("internal error")

    def broke(self, error: WebSocketError) -> None:
        """The peer broke the rules of WebSockets: see `connection.Owner`."""
        if not self.closing:
            self._error, self._close_code = error, error.code
            self.close(str(error))

    def may_write(self) -> None:
        """See `connection.Owner`."""
        if self._frames:
            self.flush()

    # ---- its end -----------------------------------------------------------------------------

    def close(self, reason: str) -> None:
        """Send what is queued, say Goodbye with the reason, and close, without waiting for it."""
        if self.closing:
            return
        self.closed_because = reason
        self._end()
        self._append(m.Goodbye(reason[:REASON_CHARS_MAX]))
        self.flush()
        if self._frames:
            self._connection.cut_in(CLOSE_TIMEOUT_S)
        if self._handle is _unheard:
            self._connection.go_on()  # The peer's last frame is waited for.

    async def aclose(self, reason: str = "") -> None:
        """As `close`, and wait until the connection is no more."""
        self.close(self.closed_because or reason)
        self.closed_because = self.closed_because or reason
        await self._connection.wait_lost()

    def _end(self) -> None:
        """Nothing more is sent or handed over."""
        self.closing = True
        if self._low is not None:
            self._low.set()
        if not self._ended.done():
            self._ended.set_result(None)

    def gone(self, reason: str) -> None:
        """The connection is gone: see `connection.Owner`."""
        if self._flush_due is not None:
            self._flush_due.cancel()
        self.closed_because = self.closed_because or reason
        self._keep_unsent()
        self._end()


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


def single_frame(message: m.Message) -> bytearray:
    """A frame with one message, as `Connection.write` wants it: for the first of each side."""
    frame = bytearray(_EMPTY_FRAME)
    m.encode_into(message, frame, -1)
    frame[_COUNT] = b"\x00\x01"
    return frame


def _unheard(_: list[Any]) -> None:
    raise AssertionError("a link is read before anybody listens")


def _see_nothing() -> None:
    pass
