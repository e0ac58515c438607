"""WebSocket framing (RFC 6455) without any I/O: bytes in, messages and control frames out; and the other way round.

Links send binary messages and nothing else, and no extension is agreed on. So text, reserved bits and unknown opcodes
end the conversation with the close code that the RFC has for them.

Masks. A client masks all it sends (§5.3). The keys are to be unpredictable because of scripts in browsers, which could
otherwise choose the bytes that a caching proxy sees, and pass them off as HTTP (§10.3). Who dials here is no browser,
and runs no script of anybody's; so it masks with the key zero, which changes no byte: that costs nothing at either end.
Other keys are taken off all the same: a peer of an older release chooses them at random.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from sparrow_py.errors import LinkError

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA
NORMAL, PROTOCOL_ERROR, UNSUPPORTED, BAD_TEXT, TOO_LARGE = 1000, 1002, 1003, 1007, 1009
"""Close codes (§7.4.1)."""
CONTROL_BYTES_MAX = 125
"""A control frame's payload (§5.5)."""
FRAGMENTS_MAX = 10_000
"""Frames that a message may come in. Peers of ours send one."""
HEADER_ROOM = 14
"""Bytes that a frame's header takes at most."""

_FINAL, _RESERVED, _OPCODE, _MASKED, _LENGTH = 0x80, 0x70, 0x0F, 0x80, 0x7F
_FINAL_BINARY = _FINAL | BINARY
_NO_KEY = bytes(4)
_SHORT_BYTES_MAX = 1024
"""Up to here a mask is taken off faster as one large number."""
_XOR = [bytes(byte ^ key for byte in range(256)) for key in range(256)]
"""For each byte of a key, what it makes of each byte."""
_SHORT, _MEDIUM, _LONG = struct.Struct(">BB"), struct.Struct(">BBH"), struct.Struct(">BBQ")
_CODE = struct.Struct(">H")

Payload = bytes | bytearray | memoryview


class WebSocketError(LinkError):
    """The other side broke the rules of WebSockets; `code` is what it is closed with."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Ping(NamedTuple):
    """To be answered with a pong of the same payload."""

    payload: bytes


class Pong(NamedTuple):
    """An answer to a ping."""

    payload: bytes


class Close(NamedTuple):
    """The last frame of a side. `code` is None if none was given."""

    code: int | None
    reason: str


class Fragment(NamedTuple):
    """A frame of a message that is still to end."""


FRAGMENT = Fragment()
Event = Payload | Ping | Pong | Close | Fragment
"""A whole binary message, a control frame, or a part of a message, which is work for whoever reads, too."""


class FrameReader:
    """Reads one side of a conversation: `feed` what comes, then `read` until there is nothing more to be read.

    A message that came in one frame, and in one piece, is a view of the bytes that were fed.
    """

    __slots__ = (
        "_at", "_data", "_end", "_final", "_fragments", "_key", "_length", "_masked", "_missing", "_opcode", "_parts",
        "_payload", "message_bytes_max",
    )  # fmt: skip

    def __init__(self, *, masked: bool, message_bytes_max: int) -> None:
        """`masked`: whether the other side must mask what it sends, else it must not."""
        self.message_bytes_max = message_bytes_max
        """A message may have so many bytes; may be changed between messages."""
        self._masked = _MASKED if masked else 0
        self._data: bytes | bytearray = b""
        self._at = self._end = 0
        """What of the data has not been looked at."""
        self._opcode = self._length = 0
        self._final = False
        self._key = _NO_KEY
        self._payload = bytearray()
        """What has come of a frame's payload that is to come in several pieces."""
        self._missing = 0
        """Bytes of it that are still to come."""
        self._parts: bytearray | None = None
        """The frames of a message that has not ended."""
        self._fragments = 0
        """How many these are."""

    def feed(self, data: bytes) -> None:
        """These bytes came."""
        if self._at == self._end:
            self._data, self._at, self._end = data, 0, len(data)
        else:
            self._data = bytearray(memoryview(self._data)[self._at : self._end]) + data
            self._at, self._end = 0, len(self._data)

    def read(self) -> Event | None:
        """What the next frame amounts to; None if it is still to come. `WebSocketError` if there will be none."""
        if self._missing:
            payload = self._more_payload()
        elif self._header():
            payload = self._whole_payload()
        else:
            if self._at == self._end:
                self._data, self._at, self._end = b"", 0, 0  # Let go of what was read.
            return None
        if payload is None:
            return None
        if self._key != _NO_KEY:
            payload = unmasked(payload, self._key)
        return self._event(payload)

    # ---- headers -----------------------------------------------------------------------------

    def _header(self) -> bool:
        """Read a frame's header, if all of it has come."""
        data, at = self._data, self._at
        there = self._end - at
        if there < 2:
            return False
        first, second = data[at], data[at + 1]
        if first != _FINAL_BINARY or self._parts is not None:
            self._check_first(first)
        if second & _MASKED != self._masked:
            raise WebSocketError(PROTOCOL_ERROR, f"a frame is {'not ' if self._masked else ''}masked")
        length, size = second & _LENGTH, 2
        if first & CLOSE and length > CONTROL_BYTES_MAX:
            raise WebSocketError(PROTOCOL_ERROR, f"a control frame has more than {CONTROL_BYTES_MAX} bytes")
        if length > CONTROL_BYTES_MAX:
            size = 4 if length == 126 else 10
            if there < size:
                return False
            length = self._long_length(at, size)
        if not first & CLOSE:
            self._check_room(length)
        if self._masked:
            if there < size + 4:
                return False
            self._key = bytes(data[at + size : at + size + 4])
            size += 4
        self._opcode, self._final, self._length = first & _OPCODE, first >= _FINAL, length
        self._at = at + size
        return True

    def _check_first(self, first: int) -> None:
        if first & _RESERVED:
            raise WebSocketError(PROTOCOL_ERROR, "a frame has reserved bits, and no extension was agreed on")
        opcode, final = first & _OPCODE, first & _FINAL
        if opcode in (CLOSE, PING, PONG):
            if not final:
                raise WebSocketError(PROTOCOL_ERROR, "a control frame comes in parts")
        elif opcode == TEXT:
            raise WebSocketError(UNSUPPORTED, "a text frame came; frames are binary")
        elif opcode == CONTINUATION:
            if self._parts is None:
                raise WebSocketError(PROTOCOL_ERROR, "a frame continues a message, and none has begun")
        elif opcode != BINARY:
            raise WebSocketError(PROTOCOL_ERROR, f"a frame has the unknown opcode {opcode}")
        elif self._parts is not None:
            raise WebSocketError(PROTOCOL_ERROR, "a message begins before the one before has ended")

    def _long_length(self, at: int, size: int) -> int:
        length = int.from_bytes(self._data[at + 2 : at + size], "big")
        if length >> 63:
            raise WebSocketError(PROTOCOL_ERROR, "a frame's length has its highest bit set")
        if length <= (CONTROL_BYTES_MAX if size == 4 else 0xFFFF):
            raise WebSocketError(PROTOCOL_ERROR, f"a frame's length of {length} is written with too many bytes")
        return length

    def _check_room(self, length: int) -> None:
        """Before its bytes are taken in."""
        before = 0 if self._parts is None else len(self._parts)
        if before + length > self.message_bytes_max:
            raise WebSocketError(
                TOO_LARGE, f"a message of {before + length} bytes or more came; {self.message_bytes_max} are allowed"
            )

    # ---- payloads ----------------------------------------------------------------------------

    def _whole_payload(self) -> Payload | None:
        """The payload of the frame whose header was read, or None if that is still to come."""
        at, end = self._at, self._at + self._length
        if end <= self._end:
            self._at = end
            return memoryview(self._data)[at:end]
        self._payload = bytearray(memoryview(self._data)[at : self._end])
        self._missing = end - self._end
        self._at = self._end
        return None

    def _more_payload(self) -> Payload | None:
        taken = min(self._missing, self._end - self._at)
        self._payload += memoryview(self._data)[self._at : self._at + taken]
        self._at += taken
        self._missing -= taken
        if self._missing:
            return None
        payload, self._payload = self._payload, bytearray()
        return payload

    def _event(self, payload: Payload) -> Event:
        """What a whole frame amounts to."""
        opcode = self._opcode
        if opcode == BINARY and self._final:
            return payload
        if opcode == PING:
            return Ping(bytes(payload))
        if opcode == PONG:
            return Pong(bytes(payload))
        if opcode == CLOSE:
            return parsed_close(bytes(payload))
        if self._parts is None:
            self._parts = bytearray(payload)
        else:
            self._parts += payload
        self._fragments += 1
        if self._final:
            message, self._parts, self._fragments = self._parts, None, 0
            return message
        if self._fragments >= FRAGMENTS_MAX:
            raise WebSocketError(TOO_LARGE, f"a message comes in more than {FRAGMENTS_MAX} frames")
        return FRAGMENT


def unmasked(payload: Payload, key: bytes) -> bytearray | bytes:
    """The payload without its mask, or with one: each byte XOR a byte of the key, in turn."""
    size = len(payload)
    if size <= _SHORT_BYTES_MAX:
        mask = (key * (size // 4 + 1))[:size]
        return (int.from_bytes(payload, "big") ^ int.from_bytes(mask, "big")).to_bytes(size, "big")
    result = bytearray(size)
    masked = bytes(payload)
    for number in range(4):
        result[number::4] = masked[number::4].translate(_XOR[key[number]])
    return result


def parsed_close(payload: bytes) -> Close:
    """What a close frame says; `WebSocketError` if it must not (§5.5.1, §7.4)."""
    if not payload:
        return Close(None, "")
    if len(payload) == 1:
        raise WebSocketError(PROTOCOL_ERROR, "a close frame has half a code")
    (code,) = _CODE.unpack_from(payload)
    if not (1000 <= code <= 1003 or 1007 <= code <= 1014 or 3000 <= code <= 4999):
        raise WebSocketError(PROTOCOL_ERROR, f"a close frame has the code {code}, which nobody may send")
    try:
        return Close(code, payload[2:].decode())
    except UnicodeDecodeError:
        raise WebSocketError(BAD_TEXT, "a close frame's reason is no UTF-8") from None


# ---- what is sent ----------------------------------------------------------------------------


def put_header(frame: bytearray, *, masks: bool) -> None:
    """Turn `HEADER_ROOM` bytes and a message into a frame, in place."""
    length = len(frame) - HEADER_ROOM
    flag = _MASKED if masks else 0
    end = HEADER_ROOM - 4 if masks else HEADER_ROOM  # The key is zero.
    if length <= CONTROL_BYTES_MAX:
        begin = end - 2
        _SHORT.pack_into(frame, begin, _FINAL_BINARY, flag | length)
    elif length <= 0xFFFF:
        begin = end - 4
        _MEDIUM.pack_into(frame, begin, _FINAL_BINARY, flag | 126, length)
    else:
        begin = end - 10
        _LONG.pack_into(frame, begin, _FINAL_BINARY, flag | 127, length)
    del frame[:begin]  # A bytearray begins later then; nothing is moved.


def control_frame(opcode: int, payload: bytes = b"", *, masks: bool) -> bytes:
    """A ping, a pong or a close frame."""
    if masks:
        return _SHORT.pack(_FINAL | opcode, _MASKED | len(payload)) + _NO_KEY + payload
    return _SHORT.pack(_FINAL | opcode, len(payload)) + payload


def close_frame(code: int, *, masks: bool) -> bytes:
    """A close frame without a reason: links say theirs in a Goodbye, which has more room."""
    return control_frame(CLOSE, _CODE.pack(code), masks=masks)
