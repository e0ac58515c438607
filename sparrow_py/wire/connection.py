"""The WebSocket under a link: an asyncio protocol that takes a connection over from HTTP once it has been upgraded.

What comes is read, handled and answered in the call in which the loop brings it: no task, no future and no timer is
made for a message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from aiohttp.base_protocol import BaseProtocol

from sparrow_py.wire import websocket
from sparrow_py.wire.outgoing import Outgoing
from sparrow_py.wire.websocket import FRAGMENT, Close, FrameReader, Payload, Ping, Pong, WebSocketError

CLOSE_TIMEOUT_S = 0.5
"""So long the other side has to take the last frames, to close as well, and to let go of the connection."""
PONG_PATIENCE = 0.5
"""Part of a heartbeat in which a ping must be answered."""
MESSAGES_PER_TURN_MAX = 1000
"""Of what one peer sent; others have their turn before the rest is looked at."""
PONGS_OWED_MAX = 100
"""Pings that may come while no pong can leave; after that nothing is read until they can."""
READ_BYTES_MAX = 65_536
"""Read from a socket at a time by asyncio, which takes so much memory for each read, of itself 256 KiB. From 128 KiB on
the allocator asks the system for it each time, and gives it back: 15 µs. uvloop reads into memory of its own."""
LAST_LOOK_S = 0.001
"""Before the other side is given up: what has come while this process did other things is to be read first."""


class Owner(Protocol):
    """Who uses a connection."""

    def received(self, message: Payload) -> int:
        """A whole message came. Returns what it counts of the `MESSAGES_PER_TURN_MAX`."""

    def broke(self, error: WebSocketError) -> None:
        """The other side broke the rules, and nothing more of it will be read."""

    def may_write(self) -> None:
        """There is room for what had to wait."""

    def gone(self, reason: str) -> None:
        """Nothing more will come, and nothing can be sent; the reason is empty if there is none. Said once."""


class Nobody:
    """Owns a connection of which nothing is to be heard any more."""

    def received(self, message: Payload) -> int:
        """As `Owner`'s."""
        return 1

    def broke(self, error: WebSocketError) -> None:
        """As `Owner`'s."""

    def may_write(self) -> None:
        """As `Owner`'s."""

    def gone(self, reason: str) -> None:
        """As `Owner`'s."""


class Connection(asyncio.Protocol):
    """One end of an upgraded connection. Nothing is read of it until `go_on` is called."""

    def __init__(
        self,
        transport: asyncio.Transport,
        http: BaseProtocol,
        outgoing: Outgoing,
        *,
        dials: bool,
        message_bytes_max: int,
        over: Callable[[], object] = lambda: None,
    ) -> None:
        """Takes the transport over from `http`, which hears of its end; then `over` is called.

        `dials`: whether this end has dialled, and so masks what it sends.
        """
        self.loop = asyncio.get_running_loop()
        self.outgoing = outgoing
        self.owner: Owner = Nobody()
        self.writable = not http.writing_paused
        """Whether there is room; what is written all the same waits in memory.

        If the answers before, or that to the upgrade, have filled the transport, HTTP was told so, and will not be
        told again. When there is room the transport tells who has it then.
        """
        self.lost: asyncio.Future[None] = self.loop.create_future()
        """Done when the connection is no more."""
        self._transport = transport
        self._http = http
        self._over = over
        self._masks = dials
        self._reader = FrameReader(masked=not dials, message_bytes_max=message_bytes_max)
        self._time = self.loop.time
        self._heard_s = self._time()
        """When the last byte came, by the loop's clock."""
        self._heartbeat = Heartbeat(self)
        self._reads = False
        """Whether what comes is read; else it is kept, and no more of it is brought."""
        self._deaf = False
        """Whether what comes is thrown away."""
        self._limit: ByteLimit | None = None
        self._pongs = bytearray()
        """Answers to pings that have not left."""
        self._pongs_owed = 0
        self._held_for_pongs = False
        """Whether nothing is read until they have left."""
        self._closing = False
        """Whether our close frame has left."""
        self._broken: WebSocketError | None = None
        """Which rule the other side broke, once it has."""
        self._gone: str | None = None
        """Why nothing more comes, once that is so."""
        self._cut: asyncio.TimerHandle | None = None
        self._set_reading(reads=False)
        if hasattr(transport, "max_size"):  # asyncio's, of a socket.
            transport.max_size = READ_BYTES_MAX
        transport.set_protocol(self)

    def hand_to(self, owner: Owner) -> None:
        """Another owner has it from now on, and hears of what the one before may not have heard."""
        self.owner = owner
        if self._broken is not None:
            owner.broke(self._broken)
        if self._gone is not None:
            owner.gone(self._gone)

    # ---- what comes --------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """As asyncio's."""
        self._heard_s = self._time()
        if self._limit is not None and not self._limit.admits(len(data)):
            return
        if not self._deaf:
            self._reader.feed(data)
            if self._reads:
                self._read()

    def limit(self, limit: ByteLimit | None) -> None:
        """Take no more than this from now on."""
        self._limit = limit

    def hold(self) -> None:
        """Read no more for now."""
        self._reads = False
        self._set_reading(reads=False)

    def go_on(self) -> None:
        """Read on: first what has come already."""
        self._reads = True
        self._read()
        if self._reads:
            self._set_reading(reads=True)

    def _set_reading(self, *, reads: bool) -> None:
        if not self._transport.is_closing():
            self._transport.resume_reading() if reads else self._transport.pause_reading()

    def _read(self) -> None:
        """Handle what has come, as much as one turn of the loop allows."""
        read, left = self._reader.read, MESSAGES_PER_TURN_MAX
        self.outgoing.begin()
        try:
            while self._reads and not self._deaf:
                event = read()
                if event is None:
                    break
                if type(event) is memoryview or type(event) is bytearray or type(event) is bytes:
                    left -= self.owner.received(event)
                else:
                    left -= 1
                    self._control(event)
                if left <= 0 and self._reads:
                    self.hold()
                    self.loop.call_soon(self.go_on)
        except WebSocketError as error:
            self.broke(error)
        finally:
            if self._pongs and self.writable:
                self._answer_pings()
            self.outgoing.end()

    def broke(self, error: WebSocketError) -> None:
        """The other side broke a rule: nothing more of it is heard."""
        self._deaf = True
        self._broken = error
        self.owner.broke(error)

    # ---- control frames ----------------------------------------------------------------------

    def _control(self, event: Any) -> None:
        if type(event) is Ping:
            self._pongs += websocket.control_frame(websocket.PONG, event.payload, masks=self._masks)
            self._pongs_owed += 1
            if self._pongs_owed > PONGS_OWED_MAX and not self.writable:
                self._held_for_pongs = True
                self.hold()
        elif type(event) is Close:
            self._deaf = True  # It says nothing more (§5.5.1).
            if not self._closing:
                self._write_close(websocket.NORMAL if event.code is None else event.code)
            self._let_go()
            self._tell_gone(event.reason)
        else:
            assert type(event) is Pong or event is FRAGMENT

    def _answer_pings(self) -> None:
        pongs, self._pongs, self._pongs_owed = self._pongs, bytearray(), 0
        self._write_control(pongs)
        if self._held_for_pongs:
            self._held_for_pongs = False
            self.loop.call_soon(self.go_on)

    def _write_control(self, frame: bytes | bytearray) -> None:
        if not self._transport.is_closing() and not self._closing:
            self._transport.write(frame)

    # ---- what is sent ------------------------------------------------------------------------

    def write(self, frame: bytearray) -> bool:
        """Send a message, which stands in the bytearray behind `HEADER_ROOM` zeros; False if nobody is there."""
        if self._closing or self._transport.is_closing():
            return False
        websocket.put_header(frame, masks=self._masks)
        self._transport.write(frame)
        return True

    def pause_writing(self) -> None:
        """As asyncio's."""
        self.writable = False

    def resume_writing(self) -> None:
        """As asyncio's."""
        self.writable = True
        if self._pongs:
            self._answer_pings()
        self.owner.may_write()

    # ---- its end -----------------------------------------------------------------------------

    def close(self, code: int = websocket.NORMAL) -> None:
        """Send the last frame; the connection ends when the other side has answered, or after a while."""
        if not self._closing:
            self._write_close(code)
            self.cut_in(CLOSE_TIMEOUT_S)

    def _write_close(self, code: int) -> None:
        self._write_control(self._pongs + websocket.close_frame(code, masks=self._masks))
        self._closing = True

    def cut_in(self, seconds: float) -> None:
        """End the connection at the latest after so long."""
        if self._cut is not None:
            self._cut.cancel()
        self._cut = self.loop.call_later(seconds, self.abort)

    def _let_go(self) -> None:
        """Both sides have said their last: close the connection, without waiting long for the other end of TLS."""
        self._transport.close()
        self.cut_in(CLOSE_TIMEOUT_S)

    def abort(self) -> None:
        """End the connection at once."""
        self._transport.abort()

    def watch(self, heartbeat_s: float) -> None:
        """Ask the other side for a sign of life whenever none has come for so long; if none comes then, give it up."""
        if not self.lost.done():
            self._heartbeat.start(heartbeat_s)

    def quiet_s(self) -> float:
        """For how long nothing has come."""
        return self._time() - self._heard_s

    def ping(self) -> None:
        """Ask for a sign of life."""
        self._write_control(websocket.control_frame(websocket.PING, masks=self._masks))

    def mute(self, seconds: float) -> None:
        """No sign of life has come for so long."""
        self._deaf = True
        self.abort()
        self._tell_gone(f"no sign of life for {seconds:g} s")

    def eof_received(self) -> None:
        """As asyncio's: the other side has closed the connection."""
        self._let_go()

    def connection_lost(self, exc: Exception | None) -> None:
        """As asyncio's."""
        self._deaf = True
        self._heartbeat.stop()
        if self._cut is not None:
            self._cut.cancel()
        try:
            self._tell_gone("" if exc is None else f"connection lost: {exc}")
        finally:
            self._http.connection_lost(exc)
            self._over()
            if not self.lost.done():
                self.lost.set_result(None)

    def _tell_gone(self, reason: str) -> None:
        if self._gone is None:
            self._gone = reason
            self.outgoing.begin()
            try:
                self.owner.gone(reason)
            finally:
                self.outgoing.end()

    async def wait_lost(self) -> None:
        """Wait until it is no more, which is to be soon."""
        if self._cut is None:
            self.cut_in(CLOSE_TIMEOUT_S)
        await asyncio.wait([self.lost])


class ByteLimit:
    """What may come before the other side has shown a right to more: beyond it nothing is kept, and then it is cut."""

    def __init__(self, connection: Connection, bytes_max: int, dropped_bytes_max: int, reason: str) -> None:
        self._connection = connection
        self._left = bytes_max
        self._dropped_bytes_max = dropped_bytes_max
        self._reason = reason
        self._exceeded = False

    def admits(self, count: int) -> bool:
        """Whether so many more may be looked at. What comes beyond is dropped, so that the other side hears why."""
        self._left -= count
        if self._left >= 0:
            return True
        if self._left < -self._dropped_bytes_max:
            self._connection.abort()
        elif not self._exceeded:
            self._exceeded = True
            self._connection.broke(WebSocketError(websocket.TOO_LARGE, self._reason))
        return False


class Heartbeat:
    """Finds out whether the other side lives, with a timer that is set about once per heartbeat."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._heartbeat_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._act = self._listen

    def start(self, heartbeat_s: float) -> None:
        """Begin."""
        self._heartbeat_s = heartbeat_s
        self._again(heartbeat_s, self._listen)

    def stop(self) -> None:
        """End."""
        if self._timer is not None:
            self._timer.cancel()

    def _again(self, delay_s: float, act: Callable[[], None]) -> None:
        self._act = act
        self._timer = self._connection.loop.call_later(delay_s, self._beat)

    def _beat(self) -> None:
        left_s = self._heartbeat_s - self._connection.quiet_s()
        if left_s > 0:
            self._again(max(left_s, LAST_LOOK_S), self._listen)
        else:
            self._act()

    def _listen(self) -> None:
        self._connection.ping()
        self._again(self._heartbeat_s * PONG_PATIENCE, self._look_again)

    def _look_again(self) -> None:
        self._again(LAST_LOOK_S, self._give_up)

    def _give_up(self) -> None:
        self._connection.mute(self._connection.quiet_s())
