"""One link: what is to be sent, what has come, and the memory that its ends lend each other."""

from __future__ import annotations

import array
import contextlib
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from frontends.dataflow.door import Connection
from frontends.dataflow.encoding import Bytes, Decoder, Encoder
from frontends.dataflow.errors import MessageTooLarge, ProtocolError
from frontends.dataflow.frames import (
    ARENA,
    ARRAY_32,
    BATCH_PREFIX,
    BODY_BYTES_MAX,
    DESCRIPTORS_MAX,
    HEADER,
    NUMBER,
    PIECE,
    Entry,
    Frame,
    FrameReader,
    Kind,
    Where,
    entries_of,
    farewell,
    pack,
    pack_carried,
)
from frontends.dataflow.memory import Arena, Arenas, Mapped, Memory, Piece
from frontends.dataflow.messages import Partition
from frontends.dataflow.mover import Mover

MESSAGE_BYTES_MAX = BODY_BYTES_MAX - (4 << 20)
"""Of a message beside its large arrays. The rest of a frame is for what says where these are."""
BATCH_BYTES = 64 << 10
"""Of messages that are gathered for one frame."""
READS_MAX = 16
"""From one link before others have their turn."""
FREED_MAX = 4_096
"""Pieces that one frame gives back."""
DESCRIPTORS_PENDING_MAX = 4 * DESCRIPTORS_MAX
ANCILLARY_BYTES = socket.CMSG_SPACE(DESCRIPTORS_PENDING_MAX * array.array("i").itemsize)
LENT_BYTES_MAX = 1 << 30
"""Of the memory that a link lends. What is beyond goes through the socket, and so has to wait until it is read."""
APART_BYTES_MIN = 256 << 10
"""Of a buffer that travels on the connection for buffers."""
HANDED_OVER: tuple[type, ...] = (Partition,)
"""Messages whose sender does not use their arrays any more. They may overtake others, and others may overtake them:
what is routed to a partition that is on its way waits for the partition (`routing.RULES`)."""
_CLOSE_ON_EXEC = int(socket.MSG_CMSG_CLOEXEC)
_TRUNCATED = int(socket.MSG_CTRUNC)
"""Plain numbers, which are faster than members of enumerations."""
_APART = "an array that comes over the network"
_NOT_YET: Bytes = np.empty(0, np.uint8)
"""In place of a buffer that is on its way."""
_CLOSED = "it closed the connection"
_BATCH_HEAD = HEADER.size + BATCH_PREFIX.size


class LinkEnded(Exception):
    """Why a link is over."""


@dataclass(eq=False, slots=True)
class _Segment:
    """Bytes that are to be sent, and descriptors that go with the first of them."""

    data: memoryview
    files: tuple[Mapped, ...] = ()
    """Whose descriptors; each is closed when it is sent."""
    is_ours: bool = True
    """Whether nobody else writes there."""


@dataclass(eq=False, slots=True)
class _Coming:
    """A message of which buffers are on their way."""

    message: bytes
    buffers: list[Bytes]
    missing: int
    in_turn: bool
    """Whether what came after it has to wait."""


class _Lent:
    """An arena of the other side."""

    def __init__(self, mapped: Mapped, number: int, freed: Callable[[int, int], None]) -> None:
        self.mapped, self._number, self._freed = mapped, number, freed

    def piece(self, offset: int, size: int) -> Bytes:
        if offset + size > self.mapped.size:
            raise ProtocolError(f"a piece of {size} bytes at {offset} is beyond its arena")
        return np.asarray(Piece(self.mapped, offset, size, self._free))

    def _free(self, offset: int) -> None:
        """In any thread."""
        self._freed(self._number, offset)


@dataclass(eq=False)
class Link:
    """`read` and `take_moved` raise `LinkEnded` when the link is over, and other errors when it has to end."""

    connection: Connection
    memory: Memory
    encoder: Encoder
    decoder: Decoder
    deliver: Callable[[int, list[Any]], None]
    """Is told the peer and messages, in order but for those of `HANDED_OVER`."""
    returned: Callable[[Link], None]
    """Is told that memory is to be given back by the next `flush`; in any thread."""
    moved: Callable[[Link], None]
    """Is told that `take_moved` has something to do; in any thread."""
    gives_way: Callable[[], bool]
    """Whether partitions that move have to; in any thread."""

    def __post_init__(self) -> None:
        self.peer = self.connection.peer
        self.socket = self.connection.messages
        self.socket.setblocking(False)
        self.local = self.socket.family == socket.AF_UNIX
        if not self.local:
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.watched = 0
        """What the kernel is asked to tell of the socket; of whoever asks it."""
        buffers = self.connection.buffers
        self._mover = None if buffers is None else Mover(buffers, lambda: self.moved(self), self.gives_way)
        self._batch = bytearray(_BATCH_HEAD)
        self._batched = 0
        self._queued_bytes = 0
        self._is_mute = False
        """Whether what is to be sent is dropped."""
        self.is_torn = False
        """Whether a call that sends is in the midst of what cannot be left half done: if Ctrl-C ends the call there,
        the other side cannot read what is sent after it."""
        self._queue: deque[_Segment] = deque()
        self._arenas = Arenas(self.memory, self._tell_arena, self._tell_dropped)
        self._reader = FrameReader()
        self._lent: dict[int, _Lent] = {}
        self._freed: deque[tuple[int, int]] = deque()
        """Pieces of the other side that are to be given back."""
        self._descriptors: deque[int] = deque()
        self._filling: _Coming | None = None
        """The message of which buffers come in the stream."""
        self._apart: dict[int, tuple[_Coming, int]] = {}
        """Messages of which buffers come on the connection for buffers, by their numbers, with their places there."""
        self._apart_sent = 0
        self._is_closing = False
        """Whether the other side sends nothing any more but such buffers."""
        self._turns: deque[_Coming | list[Any]] = deque()
        """What has come and waits for something before it."""

    # ---- sending ----------------------------------------------------------------------------------

    @property
    def queued_bytes(self) -> int:
        """That the sockets have not taken."""
        return self._queued_bytes if self._mover is None else self._queued_bytes + self._mover.queued_bytes

    def post(self, message: msgspec.Struct) -> bool:
        """Queue a message; arrays in it are copied, or handed over. Whether the next `flush` has something to do that
        it had not before."""
        batch = self._batch
        start = len(batch)
        try:
            buffers = self.encoder.append(message, batch)
            if len(batch) - start > MESSAGE_BYTES_MAX:
                raise MessageTooLarge(type(message).__name__, len(batch) - start, MESSAGE_BYTES_MAX)
        except BaseException:
            del batch[start:]
            raise
        self.is_torn = True
        if buffers:
            encoded = bytes(batch[start:])
            del batch[start:]
            self.is_torn = False
            self._post_carried(encoded, buffers, isinstance(message, HANDED_OVER))
            return True
        self._batched += 1
        self.is_torn = False
        if len(batch) > BATCH_BYTES:
            self.flush()
            return True
        return self._batched == 1

    def flush(self) -> None:
        """Send what the socket takes."""
        self.is_torn = True
        self._flush()
        self.is_torn = False

    def _flush(self) -> None:
        if self._freed:
            self._give_back()
        if self._batched:
            batch = self._batch
            HEADER.pack_into(batch, 0, len(batch) - HEADER.size, Kind.BATCH, 0, 0)
            BATCH_PREFIX.pack_into(batch, HEADER.size, ARRAY_32, self._batched)
            self._batched = 0
            sent = 0
            if not self._queue:
                try:
                    sent = self.socket.send(batch)
                except BlockingIOError:
                    pass
                except OSError:
                    self._give_up_sending()
                    sent = len(batch)
                if sent == len(batch):
                    del batch[_BATCH_HEAD:]
                    return
            self._batch = bytearray(_BATCH_HEAD)
            self._enqueue(_Segment(memoryview(batch)[sent:]))
        if self._queue:
            self._send_queue()

    def _enqueue(self, segment: _Segment) -> None:
        if self._is_mute:
            return
        self._queue.append(segment)
        self._queued_bytes += len(segment.data)

    def _send_queue(self) -> None:
        queue = self._queue
        try:
            while queue:
                segment = queue[0]
                if segment.files:
                    descriptors = array.array("i", [mapped.descriptor for mapped in segment.files])
                    rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)
                    sent = self.socket.sendmsg([segment.data], [rights])
                    for mapped in segment.files:
                        mapped.close_descriptor()
                    segment.files = ()
                else:
                    sent = self.socket.send(segment.data)
                self._queued_bytes -= sent
                if sent == len(segment.data):
                    queue.popleft()
                else:
                    segment.data = segment.data[sent:]
        except BlockingIOError:
            return
        except OSError:
            self._give_up_sending()

    def _give_up_sending(self) -> None:
        """The other side takes nothing any more. What it has sent before is still to be read, and then why it ended."""
        self._queue.clear()
        self._queued_bytes = 0
        self._is_mute = True

    def _post_carried(self, message: bytes, buffers: Sequence[Bytes], handed_over: bool) -> None:
        """A message with buffers beside it, in a frame of its own."""
        self.flush()
        files: list[Mapped] = []
        entries: list[Entry] = []
        stream: list[Bytes] = []
        apart: list[tuple[int, Bytes]] = []
        try:
            for buffer in buffers:
                if self.local:
                    entries.append(self._place_here(buffer, handed_over, files, stream))
                else:
                    entries.append(self._place_far(buffer, stream, apart))
        except BaseException:
            for entry in entries:
                if entry.where is Where.ARENA:
                    self._arenas.by_number[entry.number].give(entry.offset)
            raise
        self.is_torn = True
        for own in files:
            own.handed_over = True
        kind = Kind.MOVED if handed_over else Kind.CARRIED
        self._enqueue(_Segment(memoryview(pack_carried(kind, entries, message)), tuple(files)))
        for buffer in stream:
            self._enqueue(_Segment(memoryview(buffer.data), is_ours=handed_over))
        self._send_queue()
        for number, buffer in apart:
            assert self._mover is not None
            data = buffer.data if handed_over else memoryview(buffer.tobytes())
            self._mover.send(number, data, moves=handed_over)
        for segment in self._queue:
            if not segment.is_ours:
                segment.data, segment.is_ours = memoryview(bytes(segment.data)), True
        self.is_torn = False

    def _place_far(self, buffer: Bytes, stream: list[Bytes], apart: list[tuple[int, Bytes]]) -> Entry:
        """By which connection the other side gets a buffer."""
        size = buffer.nbytes
        if self._mover is None or size < APART_BYTES_MIN:
            stream.append(buffer)
            return Entry(Where.STREAM, 0, 0, size)
        self._apart_sent = (self._apart_sent + 1) % (1 << 32)
        apart.append((self._apart_sent, buffer))
        return Entry(Where.APART, self._apart_sent, 0, size)

    def _place_here(self, buffer: Bytes, handed_over: bool, files: list[Mapped], stream: list[Bytes]) -> Entry:
        """Where in shared memory the other side finds a buffer."""
        size = buffer.nbytes
        own = self.memory.own_file(buffer) if handed_over and len(files) < DESCRIPTORS_MAX else None
        if own is not None and own not in files:
            files.append(own)
            return Entry(Where.OWN, 0, 0, size)
        if self._arenas.taken_bytes + size > LENT_BYTES_MAX:
            stream.append(buffer)
            return Entry(Where.STREAM, 0, 0, size)
        arena, offset = self._arenas.take(size, "an array in a message")
        arena.bytes[offset : offset + size] = buffer
        return Entry(Where.ARENA, arena.number, offset, size)

    def _tell_arena(self, arena: Arena) -> None:
        body = ARENA.pack(arena.number, arena.mapped.size)
        self._enqueue(_Segment(memoryview(pack(Kind.ARENA, body, descriptors=1)), (arena.mapped,)))

    def _tell_dropped(self, arena: Arena) -> None:
        self._enqueue(_Segment(memoryview(pack(Kind.DROPPED, NUMBER.pack(arena.number)))))

    def _free(self, arena: int, offset: int) -> None:
        """In any thread: the array over a piece of the other side is gone."""
        self._freed.append((arena, offset))
        self.returned(self)

    def _give_back(self) -> None:
        pieces: list[bytes] = []
        while self._freed and len(pieces) < FREED_MAX:
            pieces.append(PIECE.pack(*self._freed.popleft()))
        self._enqueue(_Segment(memoryview(pack(Kind.FREED, b"".join(pieces)))))

    # ---- receiving --------------------------------------------------------------------------------

    def read(self) -> int:
        """Take what has come, and deliver messages that are whole; how many bytes came."""
        reader, came = self._reader, 0
        for _ in range(READS_MAX):
            room = reader.room()
            try:
                if self.local:
                    count, ancillary, flags, _ = self.socket.recvmsg_into([room], ANCILLARY_BYTES, _CLOSE_ON_EXEC)
                    if ancillary or flags & _TRUNCATED:
                        self._take_descriptors(ancillary, flags)
                else:
                    count = self.socket.recv_into(room)
            except BlockingIOError:
                break
            except OSError as error:
                raise LinkEnded(_broken(error)) from None
            if not count and self._apart and self._mover is not None:
                self._is_closing = True
                self._mover.expect_no_more()
                break
            if not count:
                raise LinkEnded(_CLOSED if reader.is_empty else "it ended within a frame")
            came += count
            reader.took(count)
            self._take_frames()
            if count < len(room):
                break
        return came

    def _take_descriptors(self, ancillary: list[tuple[int, int, bytes]], flags: int) -> None:
        for level, kind, data in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                came = array.array("i")
                came.frombytes(data[: len(data) - len(data) % came.itemsize])
                self._descriptors.extend(came)
        if flags & _TRUNCATED:
            raise LinkEnded("descriptors that came had no room: this process may not open more files")
        if len(self._descriptors) > DESCRIPTORS_PENDING_MAX:
            raise ProtocolError(f"{len(self._descriptors)} descriptors came that no frame has announced")

    def _take_frames(self) -> None:
        reader = self._reader
        if self._filling is not None:
            if reader.is_filling:
                return
            coming, self._filling = self._filling, None
            self._arrived(coming)
        while (frame := reader.next()) is not None:
            if frame.kind is Kind.BATCH:
                messages = self.decoder.batch(frame.body)
                if self._turns:
                    self._turns.append(messages)
                else:
                    self.deliver(self.peer, messages)
            else:
                self._take(frame)
        if self._descriptors and reader.is_empty:
            raise ProtocolError(f"{len(self._descriptors)} descriptors came that no frame has announced")

    def _take(self, frame: Frame) -> None:
        match frame.kind:
            case Kind.CARRIED | Kind.MOVED:
                self._take_carried(frame)
            case Kind.ARENA if len(frame.body) == ARENA.size and frame.descriptors == 1:
                number, size = ARENA.unpack(frame.body)
                if number in self._lent:
                    raise ProtocolError(f"arena {number} came twice")
                mapped = self.memory.map_foreign(self._descriptor(), size, populate=True)
                mapped.close_descriptor()
                self._lent[number] = _Lent(mapped, number, self._free)
            case Kind.FREED if len(frame.body) % PIECE.size == 0:
                self._take_back(frame.body)
            case Kind.DROPPED if len(frame.body) == NUMBER.size:
                self._lent.pop(NUMBER.unpack(frame.body)[0], None)
            case Kind.FAREWELL:
                raise LinkEnded(f"it ended the link: {bytes(frame.body).decode('utf-8', 'replace')}")
            case _:
                raise ProtocolError(f"a frame {frame.kind.name} of {len(frame.body)} bytes is not allowed")

    def _take_back(self, body: memoryview) -> None:
        for number, offset in PIECE.iter_unpack(body):
            arena = self._arenas.by_number.get(number)
            if arena is None or offset not in arena.pieces.taken:
                raise ProtocolError(f"a piece at {offset} of arena {number} was given back that was not lent")
            arena.give(offset)
        self._arenas.drop_free()

    def _take_carried(self, frame: Frame) -> None:
        entries, message = entries_of(frame)
        handed_over = frame.kind is Kind.MOVED
        coming = _Coming(bytes(message), [], 0, in_turn=not handed_over)
        stream: list[Bytes] = []
        for entry in entries:
            match entry.where:
                case Where.OWN:
                    buffer = self.memory.take_over(self._descriptor(), entry.size)
                case Where.ARENA:
                    lent = self._lent.get(entry.number)
                    if lent is None:
                        raise ProtocolError(f"arena {entry.number} has not come")
                    buffer = lent.piece(entry.offset, entry.size)
                case Where.STREAM:
                    buffer = self._room_for(entry.size, handed_over)
                    stream.append(buffer)
                case Where.APART:
                    buffer = _NOT_YET
                    self._expect(entry, coming)
            coming.buffers.append(buffer)
        if stream:
            coming.missing += 1
        if coming.in_turn and (coming.missing or self._turns):
            self._turns.append(coming)
        if stream and not self._reader.fill(stream):
            self._filling = coming
        elif stream:
            self._arrived(coming)
        elif not coming.missing:
            self._came_whole(coming)

    def _expect(self, entry: Entry, coming: _Coming) -> None:
        """The next buffer of a message comes on the connection for buffers, or is there already."""
        if self._mover is None:
            raise ProtocolError("a buffer is to come on a second connection, and this link has none")
        if not self._mover.expect(entry.number, lambda: self.memory.private_bytes(entry.size, _APART)):
            raise ProtocolError(f"buffer {entry.number} was announced twice")
        self._apart[entry.number] = coming, len(coming.buffers)
        coming.missing += 1

    def take_moved(self) -> int:
        """Deliver messages whose last buffer has come on the connection for buffers; how many bytes came."""
        mover, came = self._mover, 0
        assert mover is not None
        while mover.arrived:
            number, buffer = mover.arrived.popleft()
            coming, position = self._apart.pop(number)
            coming.buffers[position] = buffer
            came += buffer.nbytes
            self._arrived(coming)
        if mover.is_mute and not self._is_mute:
            self.finish()  # The other side does the same then, when all it has sent was read.
            self._give_up_sending()
        if isinstance(mover.failed, MemoryError):
            raise mover.failed
        if mover.failed is not None:
            raise LinkEnded(_broken(mover.failed, "the connection for buffers"))
        if self._is_closing and not self._apart:
            raise LinkEnded(_CLOSED)
        return came

    def _arrived(self, coming: _Coming) -> None:
        """One more part of a message is here."""
        coming.missing -= 1
        if not coming.missing:
            self._came_whole(coming)

    def _came_whole(self, coming: _Coming) -> None:
        if not coming.in_turn or not self._turns:
            self.deliver(self.peer, [self.decoder.message(coming.message, coming.buffers)])
            return
        while self._turns:
            first = self._turns[0]
            if isinstance(first, _Coming):
                if first.missing:
                    return
                first = [self.decoder.message(first.message, first.buffers)]
            self._turns.popleft()
            self.deliver(self.peer, first)

    def _room_for(self, size: int, handed_over: bool) -> Bytes:
        """Memory for a buffer that comes over the network; one that can be handed on, if the buffer may be."""
        if handed_over:
            return self.memory.empty_bytes(size, "an array of a partition that moves here")
        return np.empty(size, np.uint8)

    def _descriptor(self) -> int:
        if not self._descriptors:
            raise ProtocolError("a frame announces descriptors that did not come")
        return self._descriptors.popleft()

    # ---- end --------------------------------------------------------------------------------------

    @property
    def wants_to_write(self) -> bool:
        """Whether the socket has not taken all."""
        return bool(self._queue)

    @property
    def wants_to_read(self) -> bool:
        """Not once the other side has closed the connection, and only large buffers are still on their way."""
        return not self._is_closing

    @property
    def has_unsent(self) -> bool:
        return bool(self._queue or self._batched or self.queued_bytes)

    def finish(self) -> None:
        """Send nothing any more; the other side learns so when it has read all."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)

    def say_farewell(self, reason: str) -> None:
        """Tell the other side why the link ends, if the socket takes it between frames."""
        if not self._queue:
            with contextlib.suppress(OSError):
                self.socket.send(farewell(reason))

    def descriptors(self) -> list[int]:
        """Those of its sockets."""
        buffers = self.connection.buffers
        return [self.socket.fileno()] + ([] if buffers is None else [buffers.fileno()])

    def close(self) -> None:
        self.socket.close()
        if self._mover is not None:
            self._mover.close()
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors.clear()
        self._queue.clear()
        self._turns.clear()
        self._apart.clear()
        self._lent.clear()
        self._arenas.by_number.clear()


def _broken(error: OSError, what: str = "the connection") -> str:
    return f"{what} broke: {os.strerror(error.errno) if error.errno else error}"
