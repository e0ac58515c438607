"""The second connection of a link over TCP: large buffers, moved by threads while the worker computes.

A worker that runs tasks of 50 ms and looks at its sockets between them would move what a socket's buffers hold in that
time, some MB a second. The threads wait within system calls, so they need the interpreter's lock for moments alone.

Buffers have numbers, which the frames of their messages announce. They travel in slices by turns, so that a small one
does not wait for all of a large one. The thread that receives makes the memory for a buffer, too: pages of 128 MB take
longer to make than to fill.

What moves gives way: while the worker runs tasks, the sender rests after each slice of a partition, so that both ends
have nine tenths of their time for tasks. What a task waits for does not wait for that.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable

from frontends.dataflow.encoding import Bytes

SLICE_BYTES = 1 << 20
"""Of a buffer before another has its turn."""
SHARE_OF_MOVES = 0.1
"""Of a core, for what gives way."""
JOIN_S = 5.0
SLICE = struct.Struct("<II")
"""Number of the buffer, length of the slice."""


_Buffer = tuple[int, memoryview]
"""The number of a buffer that is to be sent, and what is left of it."""


class Mover:
    """`moved` is called, in a thread, when a buffer has gone, or is in `arrived`, or nothing goes or comes any more."""

    def __init__(
        self, connection: socket.socket, moved: Callable[[], None], gives_way: Callable[[], bool] = lambda: False
    ) -> None:
        """`gives_way`: whether what moves has to; asked in a thread."""
        connection.settimeout(None)
        self._socket, self._moved, self._gives_way = connection, moved, gives_way
        self._changed = threading.Condition()
        self._to_send: deque[_Buffer] = deque()
        self._moving: deque[_Buffer] = deque()
        """The same, of what gives way."""
        self._rests_until_s = 0.0
        self._moves_next = True
        self._expected: dict[int, Callable[[], Bytes]] = {}
        self._begun: dict[int, tuple[Bytes, memoryview]] = {}
        """Buffers of which slices have come, with what is missing; of the thread that receives."""
        self._threads: list[threading.Thread] = []
        self._closed = False
        self._all_expected = False
        self.queued_bytes = 0
        """That are to be sent."""
        self.arrived: deque[tuple[int, Bytes]] = deque()
        """Buffers that are whole, with their numbers."""
        self.is_mute = False
        """Whether nothing goes any more."""
        self.failed: OSError | MemoryError | None = None
        """Why nothing comes any more."""

    # ---- for the link -----------------------------------------------------------------------------

    def send(self, number: int, data: memoryview, *, moves: bool = False) -> None:
        """Send a buffer that nobody writes to any more. One that `moves` gives way."""
        with self._changed:
            if self.is_mute:
                return
            if not self._is_running("send"):
                self._start("send", self._send_all)
            (self._moving if moves else self._to_send).append((number, data))
            self.queued_bytes += len(data)
            self._changed.notify_all()

    def expect(self, number: int, make: Callable[[], Bytes]) -> bool:
        """Receive the buffer of this number into what `make` gives, which is called in a thread once the buffer begins
        to come, and may raise `MemoryError`; False if the buffer is expected already."""
        with self._changed:
            if number in self._expected:
                return False
            if not self._is_running("receive"):
                self._start("receive", self._receive_all)
            self._expected[number] = make
            self._changed.notify_all()
            return True

    def expect_no_more(self) -> None:
        """All buffers that are to come have been announced."""
        with self._changed:
            self._all_expected = True
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(JOIN_S)
        for held in (self._to_send, self._moving, self._expected, self.arrived):
            held.clear()
        self._socket.close()

    def _is_running(self, what: str) -> bool:
        return any(thread.name.endswith(what) for thread in self._threads)

    def _start(self, what: str, run: Callable[[], None]) -> None:
        thread = threading.Thread(target=run, name=f"dataflow-{what}", daemon=True)
        self._threads.append(thread)
        thread.start()

    # ---- the threads ------------------------------------------------------------------------------

    def _send_all(self) -> None:
        try:
            self._send_until_closed()
        except OSError:
            with self._changed:
                self._to_send.clear()
                self._moving.clear()
                self.queued_bytes = 0
                self.is_mute = True
            self._moved()

    def _send_until_closed(self) -> None:
        while (turn := self._next()) is not None:
            (number, data), queue = turn
            part = data[:SLICE_BYTES]
            began_s = time.thread_time()
            self._send(SLICE.pack(number, len(part)), part)
            if queue is self._moving and self._gives_way():
                rest_s = (time.thread_time() - began_s) * (1 / SHARE_OF_MOVES - 1)
                self._rests_until_s = time.monotonic() + rest_s
            with self._changed:
                self.queued_bytes -= len(part)
                if len(part) < len(data):
                    queue.append((number, data[len(part) :]))
                    continue
            del data, part, turn  # Before the next one comes, which may be never.
            self._moved()

    def _next(self) -> tuple[_Buffer, deque[_Buffer]] | None:
        """What is to be sent now, and its queue; they take turns, but for rests of what moves. None: closed."""
        with self._changed:
            while not self._closed:
                rest_s = self._rests_until_s - time.monotonic() if self._moving else 1.0
                may_move = rest_s <= 0
                if self._to_send and not (may_move and self._moves_next):
                    self._moves_next = True
                    return self._to_send.popleft(), self._to_send
                if may_move:
                    self._moves_next = False
                    return self._moving.popleft(), self._moving
                self._changed.wait(rest_s if self._moving else None)
        return None

    def _send(self, head: bytes, part: memoryview) -> None:
        sent = self._socket.sendmsg([head, part])
        if sent < len(head):
            self._socket.sendall(head[sent:])
        if (begun := max(sent - len(head), 0)) < len(part):
            self._socket.sendall(part[begun:])

    def _receive_all(self) -> None:
        try:
            self._receive_until_closed()
        except (OSError, MemoryError) as error:
            self.failed = error.with_traceback(None)
            self._moved()
        finally:
            self._begun.clear()

    def _receive_until_closed(self) -> None:
        head = memoryview(bytearray(SLICE.size))
        while True:
            with self._changed:
                while not self._expected and not self._closed:
                    self._changed.wait()
            if self._closed:
                return
            self._fill(head)
            number, length = SLICE.unpack(head)
            if not self._begin(number):
                return
            self._take_slice(number, length)

    def _begin(self, number: int) -> bool:
        """Have room for a buffer of which a slice comes. The first one may come before the frame that announces the
        buffer. False: closed."""
        if number in self._begun:
            return True
        with self._changed:
            while number not in self._expected and not self._closed:
                if self._all_expected:
                    raise ConnectionError(f"a slice came of buffer {number}, which was not announced")
                self._changed.wait()
            make = self._expected.get(number)
        if make is None:
            return False
        buffer = make()
        self._begun[number] = buffer, buffer.data
        return True

    def _take_slice(self, number: int, length: int) -> None:
        buffer, missing = self._begun[number]
        if not 0 < length <= min(len(missing), SLICE_BYTES):
            raise ConnectionError(
                f"a slice of {length:,} bytes came for a buffer of which {len(missing):,} are missing"
            )
        self._fill(missing[:length])
        if length < len(missing):
            self._begun[number] = buffer, missing[length:]
            return
        del self._begun[number]
        with self._changed:
            del self._expected[number]
        self.arrived.append((number, buffer))
        self._moved()

    def _fill(self, target: memoryview) -> None:
        while target:
            count = self._socket.recv_into(target, len(target), socket.MSG_WAITALL)
            if not count:
                raise ConnectionError("the other side closed it")
            target = target[count:]
