"""What an embedded cluster's tasks and daemons write reaches the program's `sys.stdout` and `sys.stderr`.

A thread of the program reads the pipes that came by the `output_channel`, a piece of each in turn, and writes whole
lines to the objects that `sys.stdout` and `sys.stderr` are at that time. While one of them takes nothing it reads
nothing: pipes fill, and who writes more waits, too. The memory that takes is bounded, by `PIPES_MAX` times what is
held back of a line (`output_lines.LINE_CHARS_MAX`) and a piece.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import resource
import selectors
import socket
import sys
import threading
from typing import Any

from sparrow_py.output_channel import READY, STREAMS, WORKER_DESCRIPTORS, Page
from sparrow_py.output_lines import LineAssembler, Screen
from sparrow_py.process_bound import let_go
from sparrow_py.tasks_in_flight import TasksInFlight

READ_BYTES = 1 << 16
"""Read of a pipe at a time: as much as one holds by default."""
DRAIN_READS_MAX = 16
"""Such pieces of each pipe at the end: as much as one can hold."""
FILES_SHARE = 0.5
"""Of the files that the program may have open: so many are workers' at most. One that comes to no pipes of its own
writes to those of its fork server, unmarked."""
PIPES_MAX = 2048
"""Pipes, of workers and others."""
FLUSH_TIMEOUT_S = 5.0
"""At the end a stream of the program that takes nothing is waited for so long."""
NAME_BYTES_MAX = 64
"""Of a daemon's name."""
ORDERS_MAX = 64
_STOP, _IGNORE_LOGS = b"s", b"l"
QUESTIONS_MAX = 64
"""Questions of a worker that are read at a time: all but the last were not waited for."""


class OutputForwarder:
    """Shows what a cluster's processes write. `channel` is for its daemons to inherit (`OutputChannel`)."""

    def __init__(self) -> None:
        self.tasks = TasksInFlight()
        ours, self.channel = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._reader = _Reader(ours, self.tasks)

    def log_pipe(self, name: str) -> int:
        """The write end of a pipe for a daemon's log: its lines go to `sys.stderr`, after the daemon's name.

        To write to it never blocks: what the pipe cannot hold while nobody reads is lost.
        """
        read_end, write_end = os.pipe()
        os.set_blocking(write_end, False)
        try:
            socket.send_fds(self.channel, [name.encode()[:NAME_BYTES_MAX]], [read_end])
        finally:
            os.close(read_end)
        return write_end

    def ignore_logs(self) -> None:
        """Show what daemons have logged so far, and no more: they are being ended, and complain of each other's end."""
        self._reader.ignore_logs()

    def forked(self) -> None:
        """In a child of the program: the pipes are the parent's, and writers are to hear of the parent's end."""
        let_go([self.channel.fileno(), *self._reader.descriptors()])

    def stop(self) -> None:
        """Show what has been written so far, and end."""
        self.channel.close()
        self._reader.stop()


class _Display:
    """The program's streams, and what was last written to each."""

    def __init__(self) -> None:
        self._screens = {name: Screen() for name in STREAMS}

    def show(self, stream: _Stream, text: str, mark: str) -> None:
        self._write(stream.name, self._screens[stream.name].show(stream, text, mark))

    def end_line(self, stream: _Stream) -> None:
        self._write(stream.name, self._screens[stream.name].end_line(stream))

    @staticmethod
    def _write(name: str, text: str) -> None:
        """Write to the program's stream of this name; if it takes nothing at all, to the one that it began with."""
        if not text:
            return
        for stream in (getattr(sys, name), getattr(sys, f"__{name}__")):
            if stream is not None:
                with contextlib.suppress(Exception):  # It is the program's, and may be anything; or it is closed.
                    _print(text, stream)
                    return


def _print(text: str, stream: Any) -> None:
    try:
        stream.write(text)
    except UnicodeEncodeError:
        encoding = stream.encoding
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
    stream.flush()


class _Worker:
    """A worker: its streams, its page, and the socket on which it asks whether all has been shown."""

    def __init__(self, control: socket.socket, page: Page) -> None:
        self.control = control
        self.page = page
        self.streams: list[_Stream] = []


class _Stream:
    """A pipe: of a worker, or of a daemon's log (then `label` marks its lines), or of another process."""

    def __init__(self, descriptor: int, name: str, worker: _Worker | None = None, label: str = "") -> None:
        os.set_blocking(descriptor, False)
        self.descriptor = descriptor
        self.name = name
        self.worker = worker
        self.label = label
        self.lines = LineAssembler()

    def mark(self, several: bool) -> str:
        """What stands before each of its lines, while there are `several` tasks in flight or not."""
        return self.worker.page.mark if self.worker is not None and several else self.label


class _Reader:
    """The thread, and what only it touches."""

    def __init__(self, channel: socket.socket, tasks: TasksInFlight) -> None:
        self._logs_ignored = threading.Event()
        self._tasks = tasks
        self._display = _Display()
        self._channel = channel
        self._streams: set[_Stream] = set()
        self._stopping = False
        self._over = False
        """Whether it has closed all that it had."""
        self._orders, self._gives_orders = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._selector.register(channel, selectors.EVENT_READ, self._take)
        self._selector.register(self._orders, selectors.EVENT_READ, self._ordered)
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._files_max = PIPES_MAX if soft == resource.RLIM_INFINITY else int(FILES_SHARE * soft)
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._run, name="sparrow-output", daemon=True)
        self._thread.start()
        atexit.register(self.stop)  # The interpreter must not end while a daemon thread writes.

    def stop(self) -> None:
        """Show what lies in the pipes, and end. In a forked copy of the program, which has no such thread, nothing."""
        atexit.unregister(self.stop)
        if self._order(_STOP):
            self._thread.join(FLUSH_TIMEOUT_S)

    def descriptors(self) -> list[int]:
        """All that it has open."""
        if self._over:
            return []
        own = [file.fileno() for file in (self._channel, self._orders, self._gives_orders, self._selector)]
        workers = {stream.worker for stream in self._streams if stream.worker is not None}
        return [
            *own,
            *(stream.descriptor for stream in self._streams),
            *(worker.control.fileno() for worker in workers),
        ]

    def ignore_logs(self) -> None:
        """Show what lies in the pipes of logs, and nothing that follows."""
        if self._order(_IGNORE_LOGS):
            self._logs_ignored.wait(FLUSH_TIMEOUT_S)

    def _order(self, what: bytes) -> bool:
        """Whether the thread is there, and will do this."""
        if os.getpid() != self._process:
            return False
        try:
            return self._gives_orders.send(what) > 0
        except OSError:  # It has ended by itself.
            return False

    def _run(self) -> None:
        try:
            # Without the channel nobody else comes: the cluster's processes, and its object here, are gone.
            while not self._stopping and (self._streams or self._channel.fileno() >= 0):
                for key, _ in self._selector.select():
                    key.data()
        finally:
            for stream in list(self._streams):
                self._drain(stream)
                self._end(stream)
            self._over = True
            for file in (self._channel, self._orders, self._gives_orders, self._selector):
                file.close()
            self._logs_ignored.set()
            atexit.unregister(self.stop)

    def _ordered(self) -> None:
        for order in self._orders.recv(ORDERS_MAX):
            if order == _STOP[0]:
                self._stopping = True
            else:
                for stream in [stream for stream in self._streams if stream.label]:
                    self._drain(stream)
                self._logs_ignored.set()

    # ---- who writes ----------------------------------------------------------------------------

    def _take(self) -> None:
        """A process has sent its pipes."""
        name, descriptors, _, _ = socket.recv_fds(
            self._channel, NAME_BYTES_MAX, WORKER_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC
        )
        if not name:
            self._selector.unregister(self._channel)
            self._channel.close()
        elif len(self._streams) + len(STREAMS) > PIPES_MAX:
            _close(descriptors)  # Who writes to them finds that nobody reads.
        elif len(descriptors) == 1:
            self._watch(_Stream(descriptors[0], "stderr", label=f"[{name.decode('utf-8', 'replace')}] "))
        elif len(descriptors) == len(STREAMS):
            for descriptor, stream in zip(descriptors, STREAMS, strict=True):
                self._watch(_Stream(descriptor, stream))
        elif len(descriptors) == WORKER_DESCRIPTORS and len(self._selector.get_map()) < self._files_max:
            self._take_worker(descriptors)
        else:  # There are too many files open.
            _close(descriptors)

    def _take_worker(self, descriptors: list[int]) -> None:
        *pipes, control, page = descriptors
        try:
            worker = _Worker(socket.socket(fileno=control), Page(page))
        except (OSError, ValueError):  # What came is not what a worker sends.
            _close([*pipes, control])
            return
        for descriptor, stream in zip(pipes, STREAMS, strict=True):
            worker.streams.append(_Stream(descriptor, stream, worker))
            self._watch(worker.streams[-1])
        self._selector.register(worker.control, selectors.EVENT_READ, lambda: self._asked(worker))
        self._answer(worker, READY)

    def _watch(self, stream: _Stream) -> None:
        self._streams.add(stream)
        self._selector.register(stream.descriptor, selectors.EVENT_READ, lambda: self._readable(stream))

    # ---- what they write -----------------------------------------------------------------------

    def _readable(self, stream: _Stream) -> None:
        if stream not in self._streams:  # It has ended since it was found to be readable.
            return
        if stream.worker is None:
            self._read(stream)
            return
        page = stream.worker.page
        before, page.unsettled = page.unsettled, True  # First, as the worker looks into its pipes first, and then here.
        if not self._read(stream) and stream in self._streams:
            page.unsettled = before

    def _read(self, stream: _Stream) -> bool:
        """Read a piece, and show what can be shown of it. Whether there was one."""
        try:
            data = os.read(stream.descriptor, READ_BYTES)
        except BlockingIOError:
            return False
        if not data:
            self._end(stream)
            return False
        if not (stream.label and self._logs_ignored.is_set()):
            mark = stream.mark(self._tasks.several)
            self._display.show(stream, stream.lines.feed(data, marked=bool(mark)), mark)
        return True

    def _asked(self, worker: _Worker) -> None:
        """A worker asks whether all that its task has written was shown; or the worker has ended."""
        if worker.control.fileno() < 0:  # It has ended since its socket was found to be readable.
            return
        try:
            questions = worker.control.recv(QUESTIONS_MAX)
        except OSError:
            questions = b""
        if not questions:
            self._selector.unregister(worker.control)
            worker.control.close()
            return
        for stream in worker.streams:
            if stream in self._streams:
                self._read(stream)
                self._finish_line(stream)
        worker.page.unsettled = False
        self._answer(worker, questions[-1:])

    @staticmethod
    def _answer(worker: _Worker, answer: bytes) -> None:
        with contextlib.suppress(OSError):  # It has just ended.
            worker.control.send(answer, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)

    def _finish_line(self, stream: _Stream) -> None:
        """Show what is held back of its last line, which gets an end if it has none."""
        self._display.show(stream, stream.lines.finish(), stream.mark(self._tasks.several))
        self._display.end_line(stream)

    def _drain(self, stream: _Stream) -> None:
        """Read what its pipe holds, and no more, whoever goes on writing to it."""
        for _ in range(DRAIN_READS_MAX):
            if not self._read(stream):
                break

    def _end(self, stream: _Stream) -> None:
        if stream not in self._streams:
            return
        self._finish_line(stream)
        self._streams.discard(stream)
        self._selector.unregister(stream.descriptor)
        os.close(stream.descriptor)
        worker = stream.worker
        if worker is not None and self._streams.isdisjoint(worker.streams):
            if worker.control.fileno() >= 0:
                self._selector.unregister(worker.control)
                worker.control.close()
            worker.page.close()


def _close(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
