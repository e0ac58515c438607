"""How messages lie in a stream of bytes: frames, each with a header of 8 bytes and a body.

    BATCH      messages, as one msgpack array
    CARRIED    one message with buffers: an entry for each buffer that says where it is, then the message
    MOVED      the same; other messages may overtake it, and be overtaken by it
    ARENA      an arena of which pieces will be lent: its number and size; a descriptor comes with the frame
    FREED      pieces of the other side's arenas that are not used any more
    DROPPED    an arena of which no piece will be lent any more
    FAREWELL   why the other side ends the link

Pure: `FrameReader` takes what a socket gave and hands out frames; it copies nothing but frames that do not fit.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Sequence
from typing import NamedTuple

from frontends.dataflow.encoding import BUFFERS_MAX, Bytes
from frontends.dataflow.errors import ProtocolError

BODY_BYTES_MAX = 64 << 20
"""Of a frame. Large arrays do not count."""
BUFFER_BYTES_MAX = 1 << 40
"""Of one array."""
RECEIVE_BYTES = 128 << 10
"""What is read at once."""
DESCRIPTORS_MAX = 64
"""That come with one frame."""
FAREWELL_BYTES_MAX = 1_000
HEADER = struct.Struct("<IBBH")
"""Length of the body, kind, number of descriptors, number of buffers."""
BATCH_PREFIX = struct.Struct(">BI")
"""How a msgpack array begins whose length has 32 bits."""
ARRAY_32 = 0xDD


class Kind(enum.IntEnum):
    BATCH = 1
    CARRIED = 2
    MOVED = 3
    ARENA = 4
    FREED = 5
    DROPPED = 6
    FAREWELL = 7


class Where(enum.IntEnum):
    """Where a buffer of a message is."""

    STREAM = 0
    """After the frame."""
    ARENA = 1
    """In a piece of the sender's arena, which is the receiver's until it says FREED."""
    OWN = 2
    """In memory of its own, whose descriptor comes with the frame."""
    APART = 3
    """It comes on the connection for buffers."""


class Entry(NamedTuple):
    """A buffer of a message."""

    where: Where
    number: int
    """Of the arena; of the buffer, if it comes apart."""
    offset: int
    """In the arena."""
    size: int


ENTRY = struct.Struct("<BxxxIQQ")
ARENA = struct.Struct("<IQ")
PIECE = struct.Struct("<IxxxxQ")
NUMBER = struct.Struct("<I")


class Frame(NamedTuple):
    kind: Kind
    descriptors: int
    buffers: int
    body: memoryview
    """Valid until the next call of the reader."""


_KINDS = (None, *Kind)


def pack(kind: Kind, body: bytes, *, descriptors: int = 0, buffers: int = 0) -> bytes:
    return HEADER.pack(len(body), kind, descriptors, buffers) + body


def farewell(reason: str) -> bytes:
    return pack(Kind.FAREWELL, reason.encode("utf-8", "replace")[:FAREWELL_BYTES_MAX])


def pack_carried(kind: Kind, entries: Sequence[Entry], message: bytes | bytearray) -> bytes:
    """A message with buffers; CARRIED or MOVED."""
    table = b"".join([ENTRY.pack(*entry) for entry in entries])
    own = sum(entry.where is Where.OWN for entry in entries)
    return HEADER.pack(len(table) + len(message), kind, own, len(entries)) + table + message


def entries_of(frame: Frame) -> tuple[list[Entry], memoryview]:
    """The buffers of a frame, and the message; `ProtocolError` if the frame says what cannot be."""
    end = frame.buffers * ENTRY.size
    if end > len(frame.body):
        raise ProtocolError(f"a frame of {len(frame.body)} bytes announces {frame.buffers} buffers")
    entries = []
    for where, number, offset, size in ENTRY.iter_unpack(frame.body[:end]):
        if where >= len(Where) or not 0 < size <= BUFFER_BYTES_MAX:
            raise ProtocolError(f"a frame announces a buffer of {size} bytes at place {where}")
        entries.append(Entry(Where(where), number, offset, size))
    if sum(entry.where is Where.OWN for entry in entries) != frame.descriptors:
        raise ProtocolError(f"a frame announces {frame.descriptors} descriptors, and buffers that need another number")
    return entries, frame.body[end:]


class FrameReader:
    """Receive into `room()`, say `took(count)`, and take frames by `next()` until there is none."""

    def __init__(self, body_bytes_max: int = BODY_BYTES_MAX) -> None:
        self._body_bytes_max = body_bytes_max
        self._buffer = memoryview(bytearray(RECEIVE_BYTES))
        self._start = self._end = 0
        self._targets: list[memoryview] = []
        """What is still to be filled of buffers in the stream, the first one last."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing of a frame has come that was not handed out."""
        return self._start == self._end and not self._targets

    def room(self) -> memoryview:
        if self._targets:
            return self._targets[-1]
        if self._start == self._end:
            self._start = self._end = 0
            if len(self._buffer) > RECEIVE_BYTES:
                self._buffer = memoryview(bytearray(RECEIVE_BYTES))
        elif self._end == len(self._buffer):
            self._make_room()
        return self._buffer[self._end :]

    def took(self, count: int) -> None:
        """So many bytes were received into `room()`."""
        if self._targets:
            self._filled(count)
        else:
            self._end += count

    def next(self) -> Frame | None:
        """The next frame, if it is here; not before the buffers of the one before."""
        if self._targets or self._end - self._start < HEADER.size:
            return None
        length, number, descriptors, buffers = HEADER.unpack_from(self._buffer, self._start)
        if length > self._body_bytes_max:
            raise ProtocolError(f"a frame announces {length:,} bytes; at most {self._body_bytes_max:,} are allowed")
        body = self._start + HEADER.size
        if self._end - body < length:
            return None
        kind = _KINDS[number] if number < len(_KINDS) else None
        if kind is None or descriptors > DESCRIPTORS_MAX:
            raise ProtocolError(f"frames of kind {number} with {descriptors} descriptors are not known")
        self._start = body + length
        return Frame(kind, descriptors, buffers, self._buffer[body : self._start])

    def fill(self, targets: Sequence[Bytes]) -> bool:
        """What comes next are these buffers; whether all of them are here already."""
        for target in targets:
            view = target.data
            here = min(self._end - self._start, len(view))
            view[:here] = self._buffer[self._start : self._start + here]
            self._start += here
            if here < len(view):
                self._targets.insert(0, view[here:])
        return not self._targets

    @property
    def is_filling(self) -> bool:
        return bool(self._targets)

    def _filled(self, count: int) -> None:
        rest = self._targets.pop()[count:]
        if rest:
            self._targets.append(rest)

    def _make_room(self) -> None:
        """The frame that has begun does not fit behind what was handed out."""
        length = 0
        if self._end - self._start >= HEADER.size:
            (length, *_) = HEADER.unpack_from(self._buffer, self._start)
        needed = max(RECEIVE_BYTES, HEADER.size + length)
        begun = self._buffer[self._start : self._end]
        buffer = memoryview(bytearray(needed))
        buffer[: len(begun)] = begun
        self._buffer, self._start, self._end = buffer, 0, len(begun)


assert BUFFERS_MAX < 1 << 16
