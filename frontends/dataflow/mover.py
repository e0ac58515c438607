"""The second connection of a link over TCP: large buffers, moved by threads while the worker computes.

A worker that runs tasks of 50 ms and looks at its sockets between them would move what a socket's buffers hold in that
time, some MB a second. The threads wait within system calls, so they need the interpreter's lock for moments alone.

Buffers have numbers, which the frames of their messages announce. They travel in slices by turns, so that a small one
does not wait for all of a large one.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable

SLICE_BYTES = 1 << 20
"""Of a buffer before another has its turn."""
JOIN_S = 5.0
SLICE = struct.Struct("<II")
"""Number of the buffer, length of the slice."""


class Mover:
    """`moved` is called, in a thread, when a buffer has gone, or is in `arrived`, or nothing goes or comes any more."""

    def __init__(self, connection: socket.socket, moved: Callable[[], None]) -> None:
        connection.settimeout(None)
        self._socket, self._moved = connection, moved
        self._changed = threading.Condition()
        self._to_send: deque[tuple[int, memoryview]] = deque()
        self._expected: dict[int, memoryview] = {}
        self._threads: list[threading.Thread] = []
        self._closed = False
        self._all_expected = False
        self.queued_bytes = 0
        """That are to be sent."""
        self.arrived: deque[int] = deque()
        """Numbers of buffers that are whole."""
        self.is_mute = False
        """Whether nothing goes any more."""
        self.failed = ""
        """Why nothing comes any more."""

    # ---- for the link -----------------------------------------------------------------------------

    def send(self, number: int, data: memoryview) -> None:
        """Send a buffer that nobody writes to any more."""
        with self._changed:
            if self.is_mute:
                return
            if not self._is_running("send"):
                self._start("send", self._send_all)
            self._to_send.append((number, data))
            self.queued_bytes += len(data)
            self._changed.notify_all()

    def expect(self, number: int, target: memoryview) -> bool:
        """Receive the buffer of this number into `target`; False if it is expected already."""
        with self._changed:
            if number in self._expected:
                return False
            if not self._is_running("receive"):
                self._start("receive", self._receive_all)
            self._expected[number] = target
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
                self.queued_bytes = 0
                self.is_mute = True
            self._moved()

    def _send_until_closed(self) -> None:
        while True:
            with self._changed:
                while not self._to_send and not self._closed:
                    self._changed.wait()
                if self._closed:
                    return
                number, data = self._to_send.popleft()
            part = data[:SLICE_BYTES]
            self._send(SLICE.pack(number, len(part)), part)
            with self._changed:
                self.queued_bytes -= len(part)
                if len(part) < len(data):
                    self._to_send.append((number, data[len(part) :]))
                    continue
            del data, part  # Before the next one comes, which may be never.
            self._moved()

    def _send(self, head: bytes, part: memoryview) -> None:
        sent = self._socket.sendmsg([head, part])
        if sent < len(head):
            self._socket.sendall(head[sent:])
        if (begun := max(sent - len(head), 0)) < len(part):
            self._socket.sendall(part[begun:])

    def _receive_all(self) -> None:
        try:
            self._receive_until_closed()
        except OSError as error:
            self.failed = f"the connection for buffers broke: {os.strerror(error.errno) if error.errno else error}"
            self._moved()

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
            target = self._target(number)
            if target is None:
                return
            if not 0 < length <= min(len(target), SLICE_BYTES):
                raise ConnectionError(
                    f"a slice of {length:,} bytes came for a buffer of which {len(target):,} are missing"
                )
            self._fill(target[:length])
            with self._changed:
                if length < len(target):
                    self._expected[number] = target[length:]
                    continue
                del self._expected[number]
            del target
            self.arrived.append(number)
            self._moved()

    def _target(self, number: int) -> memoryview | None:
        """Where a buffer is to lie. Its first slice may come before the frame that announces it. None: closed."""
        with self._changed:
            while number not in self._expected and not self._closed:
                if self._all_expected:
                    raise ConnectionError(f"a slice came of buffer {number}, which was not announced")
                self._changed.wait()
            return self._expected.get(number)

    def _fill(self, target: memoryview) -> None:
        while target:
            count = self._socket.recv_into(target, len(target), socket.MSG_WAITALL)
            if not count:
                raise ConnectionError("the other side closed it")
            target = target[count:]
