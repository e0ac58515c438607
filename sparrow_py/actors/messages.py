"""What an actor and its callers say to the client that owns the actor, and how messages lie in a stream of bytes.

A frame is a length of 4 bytes and one message in msgpack. Arguments, results and exceptions are pickled bytes that the
owner of the actor passes on unread, unless they are its own.
"""

from __future__ import annotations

import struct
from typing import Any

import msgspec

from sparrow_py.errors import LinkError

CALL_BYTES_MAX = 64 << 20
"""Of the arguments of a call, of its result, and of the state that an actor takes along when it moves."""
FRAME_BYTES_MAX = CALL_BYTES_MAX + (1 << 16)
METHOD_CHARS_MAX = 1_000
_HEADER = struct.Struct("<I")


class IsActor(msgspec.Struct, array_like=True, tag=1):
    """The first message of the actor itself: which time it has been started, and the id of its node, if it knows."""

    incarnation: int
    node: str = ""


class IsCaller(msgspec.Struct, array_like=True, tag=2):
    """The first message of whoever calls the actor from a task."""


class Ready(msgspec.Struct, array_like=True, tag=3):
    """The actor has been constructed."""


class NotConstructed(msgspec.Struct, array_like=True, tag=4):
    """Its constructor raised this exception (pickled, with the traceback's text)."""

    error: bytes


class Call(msgspec.Struct, array_like=True, tag=5):
    """Call this method. number: the caller's own. payload: the pickled arguments."""

    number: int
    method: str
    payload: bytes


class Answer(msgspec.Struct, array_like=True, tag=6):
    """How a call has ended. raised: whether `value` is a pickled exception with the traceback's text, or a result."""

    number: int
    raised: bool
    value: bytes


class Moves(msgspec.Struct, array_like=True, tag=7):
    """The lease is over, and it is another user's turn: the actor ends. state: the pickled object, with which it goes
    on elsewhere; empty if it cannot be pickled, for this reason."""

    state: bytes
    why_not: str = ""


class Stop(msgspec.Struct, array_like=True, tag=8):
    """The actor is to end."""


FromDialler = IsActor | IsCaller | Ready | NotConstructed | Call | Answer | Moves
ToDialler = Call | Answer | Stop
_encoder = msgspec.msgpack.Encoder()
FROM_DIALLER = msgspec.msgpack.Decoder(FromDialler)
TO_DIALLER = msgspec.msgpack.Decoder(ToDialler)


def frame_of(message: FromDialler | ToDialler) -> bytearray:
    """The frame of a message, which has at most `FRAME_BYTES_MAX` bytes as its sender has checked."""
    frame = bytearray(_HEADER.size)
    _encoder.encode_into(message, frame, _HEADER.size)
    _HEADER.pack_into(frame, 0, len(frame) - _HEADER.size)
    return frame


class Splitter:
    """Cuts a stream of bytes into messages."""

    def __init__(self, decoder: msgspec.msgpack.Decoder[Any]) -> None:
        self._decode = decoder.decode
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Any]:
        """The messages that `data` completes; `LinkError` if one is malformed, or larger than `FRAME_BYTES_MAX`."""
        buffer = self._buffer
        buffer += data
        messages: list[Any] = []
        position, size = 0, len(buffer)
        while size - position >= _HEADER.size:
            (length,) = _HEADER.unpack_from(buffer, position)
            if length > FRAME_BYTES_MAX:
                raise LinkError(
                    f"a message of {length} bytes to or from an actor; at most {FRAME_BYTES_MAX} are allowed"
                )
            end = position + _HEADER.size + length
            if end > size:
                break
            try:
                messages.append(self._decode(memoryview(buffer)[position + _HEADER.size : end]))
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                raise LinkError(f"a malformed message to or from an actor: {error}") from None
            position = end
        if position:
            self._buffer = buffer[position:]  # A new object: a memoryview of the old one may still be there.
        return messages
