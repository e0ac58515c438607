"""What an embedded cluster's tasks and daemons write reaches the program's `sys.stdout` and `sys.stderr`.

A thread of the program reads the pipes that came by the `output_channel`, a piece of each in turn, and writes whole
lines to the objects that `sys.stdout` and `sys.stderr` are at that time. While one of them takes nothing it reads
nothing: pipes fill, and who writes more waits, too. The memory that takes is bounded, by `PIPES_MAX` times what is
held back of a line (`output_lines.LINE_CHARS_MAX`) and a piece.

Marks can make much of little. So what was read is shown in pieces, too, and after a piece of each stream new workers
and those that ask are heard.

Tasks are not trusted here: they have the channel, and may send and keep what they like. The thread uses descriptors of
its own in place of those that came, waits for none of them, and drops what it cannot use.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import fcntl
import functools
import os
import resource
import selectors
import socket
import stat
import sys
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from sparrow_py.embedded.output_channel import READY, STREAMS, WORKER_DESCRIPTORS, Page
from sparrow_py.executors.output_lines import Backlog, LineAssembler, Screen, name_in_mark
from sparrow_py.processes.process_bound import let_go
from sparrow_py.session.tasks_in_flight import TasksInFlight

_Source = TypeVar("_Source", "_Stream", "_Worker")

READ_BYTES = 1 << 16
"""Read of a pipe at a time: as much as one holds by default."""
SHOWN_CHARS_MAX = 1 << 16
"""Shown of a stream at a time, with marks, and what the last line has more."""
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

    def __init__(self, control: int, page: int) -> None:
        """`OSError` or `ValueError` if these are no socket and no page. Both may be closed then."""
        self.page = Page(page)
        try:
            only_path = fcntl.fcntl(control, fcntl.F_GETFL) & os.O_PATH
            if only_path or not stat.S_ISSOCK(os.fstat(control).st_mode):
                raise ValueError("a worker's control must be a socket")
            self.control = socket.fromfd(control, socket.AF_UNIX, socket.SOCK_STREAM)
        except (OSError, ValueError):
            self.page.close()
            raise
        self.control.setblocking(False)
        self.streams: list[_Stream] = []
        self.question = b""
        """The last one, until it is answered."""

    def close(self) -> None:
        """Close it with its streams; they must have been unregistered."""
        for stream in self.streams:
            stream.close()
        self.control.close()
        self.page.close()


class _Stream:
    """A pipe: of a worker, or of a daemon's log (then `label` marks its lines), or of another process."""

    def __init__(self, descriptor: int, name: str, worker: _Worker | None = None, label: str = "") -> None:
        """`OSError` or `ValueError` if the descriptor is no pipe. It may be closed then."""
        if not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            raise ValueError("what a process writes must come through a pipe")
        # Opened anew, as whoever has sent it may have kept it, and could make reads of it wait.
        self.descriptor = os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self.name = name
        self.worker = worker
        self.label = label
        self.lines = LineAssembler()
        self.backlog = Backlog()
        self.asked = False
        """Whether to read a piece before the worker's question is answered."""

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

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
        self._unshown: set[_Stream] = set()
        """Those whose turn comes again whether something more comes from them or not."""
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
                for key, _ in self._selector.select(0 if self._unshown else None):
                    key.data()
                for stream in list(self._unshown):
                    self._serve(stream, self._go_on)
        finally:
            for stream in list(self._streams):
                self._serve(stream, self._drain)
                self._serve(stream, self._end)
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
                    self._serve(stream, self._drain)
                self._logs_ignored.set()

    # ---- who writes ----------------------------------------------------------------------------

    def _take(self) -> None:
        """A process has sent its pipes. What uses their descriptors has its own: these are closed in any case."""
        try:
            name, descriptors, truncated = _receive(self._channel)
        except OSError:
            return
        if not (name or descriptors or truncated):
            self._selector.unregister(self._channel)
            self._channel.close()
            return
        try:
            if not truncated:
                self._take_over(name, descriptors)
        except (OSError, ValueError):
            pass  # What came is not what such processes send. Who writes to it finds that nobody reads.
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _take_over(self, name: bytes, descriptors: list[int]) -> None:
        if len(self._streams) + len(STREAMS) > PIPES_MAX:
            return
        if len(descriptors) == 1:
            label = f"[{name_in_mark(name.decode('utf-8', 'replace'))}] "
            self._watch(_Stream(descriptors[0], "stderr", label=label))
        elif len(descriptors) == len(STREAMS):
            for descriptor, stream in zip(descriptors, STREAMS, strict=True):
                self._watch(_Stream(descriptor, stream))
        elif len(descriptors) == WORKER_DESCRIPTORS and len(self._selector.get_map()) < self._files_max:
            self._take_worker(descriptors)

    def _take_worker(self, descriptors: list[int]) -> None:
        *pipes, control, page = descriptors
        worker = _Worker(control, page)
        try:
            for descriptor, stream in zip(pipes, STREAMS, strict=True):
                worker.streams.append(_Stream(descriptor, stream, worker))
            asked = functools.partial(self._serve, worker, self._asked)
            self._selector.register(worker.control, selectors.EVENT_READ, asked)
            for watched in worker.streams:
                self._watch(watched)
        except (OSError, ValueError):
            self._let_go(worker)
            raise
        self._answer(worker, READY)

    def _watch(self, stream: _Stream) -> None:
        try:
            readable = functools.partial(self._serve, stream, self._readable)
            self._selector.register(stream.descriptor, selectors.EVENT_READ, readable)
        except OSError:
            stream.close()
            raise
        self._streams.add(stream)

    # ---- what they write -----------------------------------------------------------------------

    def _serve(self, source: _Source, handle: Callable[[_Source], object]) -> None:
        """Whatever comes of it, the others go on."""
        try:
            handle(source)
        except Exception:
            worker = source.worker if isinstance(source, _Stream) else source
            self._let_go(source if worker is None else worker)

    def _readable(self, stream: _Stream) -> None:
        if stream not in self._streams or stream in self._unshown:  # It has ended meanwhile, or its turn comes.
            return
        if stream.worker is None:
            self._read(stream)
            return
        page = stream.worker.page
        before, page.unsettled = page.unsettled, True  # First, as the worker looks into its pipes first, and then here.
        if not self._read(stream) and stream in self._streams:
            page.unsettled = before

    def _read(self, stream: _Stream) -> bool:
        """Read a piece, and show the beginning of what can be shown of it. Whether there was one."""
        try:
            data = os.read(stream.descriptor, READ_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self._end(stream)
            return False
        if not (stream.label and self._logs_ignored.is_set()):
            mark = stream.mark(self._tasks.several)
            stream.backlog.put(stream.lines.feed(data, marked=bool(mark)), mark)
            self._show_piece(stream)
        return True

    def _show_piece(self, stream: _Stream) -> None:
        self._display.show(stream, stream.backlog.take(SHOWN_CHARS_MAX), stream.backlog.mark)
        if stream.backlog:
            self._unshown.add(stream)

    def _go_on(self, stream: _Stream) -> None:
        """Show a piece of what was read, or read one that its worker asks for."""
        if stream not in self._streams:
            return
        self._unshown.discard(stream)
        if stream.backlog:
            self._show_piece(stream)
            if stream.asked:
                self._unshown.add(stream)
        elif stream.asked:
            stream.asked = False
            self._read(stream)
        if stream.worker is not None and stream.worker.question:
            self._answer_if_shown(stream.worker)

    def _asked(self, worker: _Worker) -> None:
        """A worker asks whether all that its task has written was shown; or the worker has ended."""
        if worker.control.fileno() < 0:  # It has ended since its socket was found to be readable.
            return
        try:
            questions = worker.control.recv(QUESTIONS_MAX, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return  # Somebody else has read it.
        except OSError:
            questions = b""
        if not questions:
            self._selector.unregister(worker.control)
            worker.control.close()
            return
        worker.question = questions[-1:]
        for stream in worker.streams:
            if stream in self._streams:
                stream.asked = True
                if stream in self._unshown:
                    continue
                self._unshown.add(stream)
                self._go_on(stream)
        if worker.question:
            self._answer_if_shown(worker)

    def _answer_if_shown(self, worker: _Worker) -> None:
        streams = [stream for stream in worker.streams if stream in self._streams]
        if not streams or not self._unshown.isdisjoint(streams):
            return
        for stream in streams:
            self._finish_line(stream)
        worker.page.unsettled = False
        self._answer(worker, worker.question)
        worker.question = b""

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
            while stream.backlog:
                self._show_piece(stream)
            if not self._read(stream):
                return
        while stream.backlog:
            self._show_piece(stream)

    def _end(self, stream: _Stream) -> None:
        """Show the rest of its last line, and forget it; the worker, too, with its last stream."""
        if stream not in self._streams:
            return
        self._finish_line(stream)
        worker = stream.worker
        self._let_go(stream)
        if worker is not None and self._streams.isdisjoint(worker.streams):
            self._let_go(worker)

    def _let_go(self, source: _Stream | _Worker) -> None:
        streams = [source] if isinstance(source, _Stream) else source.streams
        for stream in streams:
            self._streams.discard(stream)
            self._unshown.discard(stream)
            self._unregister(stream.descriptor)
        if isinstance(source, _Worker):
            self._unregister(source.control.fileno())
        source.close()

    def _unregister(self, descriptor: int) -> None:
        with contextlib.suppress(KeyError, ValueError):  # It has been unregistered, and may be closed.
            self._selector.unregister(descriptor)


def _receive(channel: socket.socket) -> tuple[bytes, list[int], bool]:
    """A message, its descriptors, and whether some of them did not fit. (`socket.recv_fds` ignores flags.)"""
    descriptors = array.array("i")
    room = socket.CMSG_LEN(WORKER_DESCRIPTORS * descriptors.itemsize)
    how = socket.MSG_CMSG_CLOEXEC | socket.MSG_DONTWAIT
    name, received, flags, _ = channel.recvmsg(NAME_BYTES_MAX, room, how)
    for level, kind, data in received:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            descriptors.frombytes(data[: len(data) - len(data) % descriptors.itemsize])
    return name, list(descriptors), bool(flags & socket.MSG_CTRUNC)
