"""How what workers write gets to the program that has made their cluster.

The program (`output_forwarding`) holds one end of a pair of sockets, its daemons and their workers inherit the other.
Each worker makes pipes of its own and sends their read ends: nothing lies between what it writes and the program, no
daemon copies it, and a pipe that is full holds up its worker alone.

A worker says on a *page* of shared memory which task it runs, which costs no system call. At the end of a task that
has written something it *settles*: it asks the program, and waits for the answer, that all has been shown. So what a
task has written is seen before its result.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import mmap
import os
import socket
import termios
from collections.abc import Iterator

from sparrow_py.executors.output_lines import name_in_mark
from sparrow_py.logs.printable import printable

OUTPUT_VARIABLE = "SPARROW_OUTPUT_FD"
"""Where a fork server, and a worker that it forks, find the channel's descriptor."""
STREAMS = ("stdout", "stderr")
MESSAGE = b"\x01"
"""On the channel; what counts are the descriptors beside it."""
WORKER_DESCRIPTORS = 4
"""Of a worker: the read ends of its two pipes, its control socket, its page. Of other processes: the two pipes; of a
daemon's log: one."""
READY = b"\x00"
"""The program's first word on a control socket: it reads the worker's pipes."""
ATTACH_TIMEOUT_S = 1.0
"""A worker whose pipes the program has not taken by then writes where its fork server does."""
SETTLE_TIMEOUT_S = 1.0
"""A task's result waits no longer for its output to be shown: the program's own stream may be stuck."""
LOOK_AFTER_S = 0.001
"""After a task that took longer its worker looks whether something lies in its pipes that did not come through Python:
a system call, which shorter tasks are spared."""


UNSETTLED, TASK, NAME_BYTES = range(3)
"""Words of a page."""


class Page:
    """The page of memory that a worker shares with the program: which task it runs, and whether anything was read.

    Words of 64 bits, of which each is written by one side and read by the other in one piece, then the name's bytes.
    """

    BYTES = 4096
    SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
    """Whoever has the descriptor could else take the memory from beneath the other side, to which that is SIGBUS."""
    _NAME_AT = 24
    NAME_BYTES_MAX = 256
    _NO_TASK = -1
    _LOOKS_MAX = 3

    def __init__(self, descriptor: int) -> None:
        """Use the page of this descriptor, which may be closed then.

        `OSError` or `ValueError` if it is none, or one that could become smaller.
        """
        seals = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS)  # An error for most that is no memory.
        if seals & self.SEALS != self.SEALS or os.fstat(descriptor).st_size != self.BYTES:
            raise ValueError(f"a page has {self.BYTES} bytes and is sealed; got seals {seals}")
        self._memory = mmap.mmap(descriptor, self.BYTES)
        self._view = memoryview(self._memory)
        self.words = self._view.cast("q")
        self._name = ""

    @classmethod
    def create(cls) -> tuple[Page, int]:
        """A new page, and a descriptor of it for the other side."""
        with contextlib.ExitStack() as undo:
            descriptor = os.memfd_create("sparrow-output", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            undo.callback(os.close, descriptor)
            os.ftruncate(descriptor, cls.BYTES)
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, cls.SEALS)
            page = cls(descriptor)
            page.words[TASK] = cls._NO_TASK
            undo.pop_all()
        return page, descriptor

    def begin(self, name: str, task: int) -> None:
        """The worker runs this task from now on; `name` is that of its job."""
        if name is not self._name:
            self.words[TASK] = self._NO_TASK  # Else the other side might take the one's name for the other's.
            encoded = printable(name).encode("utf-8", "replace")[: self.NAME_BYTES_MAX]
            self.words[NAME_BYTES] = len(encoded)
            self._view[self._NAME_AT : self._NAME_AT + len(encoded)] = encoded
            self._name = name
        self.words[TASK] = task

    @property
    def mark(self) -> str:
        """What to write before each line of the task that runs now, or ran last; empty if there is none."""
        for _ in range(self._LOOKS_MAX):
            task, length = self.words[TASK], self.words[NAME_BYTES]
            if not 0 <= length <= self.NAME_BYTES_MAX:
                break  # Whatever wrote there.
            name = bytes(self._view[self._NAME_AT : self._NAME_AT + length]).decode("utf-8", "replace")
            if task == self.words[TASK]:  # Else it is just changing.
                return "" if task == self._NO_TASK else f"[{name_in_mark(name)} {task}] "
        return ""

    @property
    def unsettled(self) -> bool:
        """Whether the program has read something since the worker settled last."""
        return self.words[UNSETTLED] != 0

    @unsettled.setter
    def unsettled(self, value: bool) -> None:
        self.words[UNSETTLED] = value

    def close(self) -> None:
        """Give the memory back."""
        self.words.release()
        self._view.release()
        self._memory.close()


class OutputChannel:
    """The end of the channel that daemons and workers have."""

    def __init__(self, descriptor: int) -> None:
        """Take the descriptor over; `OSError` if it is no socket."""
        self._socket = socket.socket(fileno=descriptor)
        self._socket.set_inheritable(False)

    @classmethod
    def from_environment(cls) -> OutputChannel | None:
        """The one that this process has inherited; None if there is none. It is not passed on."""
        descriptor = os.environ.pop(OUTPUT_VARIABLE, "")
        if not descriptor:
            return None
        with contextlib.suppress(OSError, ValueError):
            return cls(int(descriptor))
        return None

    def fileno(self) -> int:
        """The descriptor."""
        return self._socket.fileno()

    @contextlib.contextmanager
    def pipes(self) -> Iterator[tuple[int, int]]:
        """Write ends of two pipes that the program reads, for a process's standard output and error.

        They are closed at the end of the block. `OSError` if the program takes no more.
        """
        with _pipes() as (read_ends, write_ends):
            self._send(read_ends)
            yield write_ends

    def attach(self) -> WorkerOutput | None:
        """Make this process's standard output and error pipes that the program reads; None if it does not take them."""
        with contextlib.ExitStack() as closing:
            try:
                read_ends, write_ends = closing.enter_context(_pipes())
                control, theirs = socket.socketpair()
                closing.enter_context(theirs)
                page, descriptor = Page.create()
                closing.callback(os.close, descriptor)
                self._send([*read_ends, theirs.fileno(), descriptor])
            except OSError:
                return None
            theirs.close()  # So that the end of the program is seen.
            output = WorkerOutput(control, page)
            if not output.taken():
                return None
            for number, write_end in enumerate(write_ends, 1):
                os.dup2(write_end, number)
        return output

    def close(self) -> None:
        """Send nothing more."""
        self._socket.close()

    def _send(self, descriptors: list[int]) -> None:
        # Whoever has this socket shares its flags: it is never made one that does not block.
        # (`socket.send_fds` takes flags, and ignores them.)
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))
        self._socket.sendmsg([MESSAGE], [rights], socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)


class WorkerOutput:
    """What a worker tells the program about what it writes."""

    def __init__(self, control: socket.socket, page: Page) -> None:
        self._control = control
        self._words = page.words
        self._question = 0
        self._asks = True
        """Until the program is gone."""
        self._waiting = array.array("i", [0])
        self.begin = page.begin

    def taken(self) -> bool:
        """Whether the program reads the pipes; waits for its word."""
        self._control.settimeout(ATTACH_TIMEOUT_S)
        try:
            return self._control.recv(1) == READY
        except OSError:
            return False
        finally:
            self._control.settimeout(SETTLE_TIMEOUT_S)

    def end(self, wrote: bool, service_s: float) -> None:
        """A task has ended, after `service_s` seconds; `wrote`: something came through Python. Wait until all that it
        has written was shown."""
        if wrote or self._words[UNSETTLED] or (service_s > LOOK_AFTER_S and self._lies_in_pipes()):
            self._settle()

    def _lies_in_pipes(self) -> bool:
        """Whether something was written that the program has not read yet."""
        for number in range(1, len(STREAMS) + 1):
            with contextlib.suppress(OSError):  # The task may have closed it, or put something else there.
                fcntl.ioctl(number, termios.FIONREAD, self._waiting)
                if self._waiting[0]:
                    return True
        return self._words[UNSETTLED] != 0  # Read meanwhile.

    def _settle(self) -> None:
        if not self._asks:
            return
        self._question = self._question % 255 + 1
        question = bytes([self._question])
        try:
            self._control.sendall(question)
            answer = b""
            while answer != question:  # One before may be answered late.
                answer = self._control.recv(1)
                if not answer:
                    self._asks = False
                    return
        except TimeoutError:
            return
        except OSError:
            self._asks = False


@contextlib.contextmanager
def _pipes() -> Iterator[tuple[list[int], tuple[int, int]]]:
    """Read ends and write ends of two pipes, which are closed at the end of the block."""
    with contextlib.ExitStack() as closing:
        ends = []
        for _ in STREAMS:
            ends.append(os.pipe())
            closing.callback(_close_all, ends[-1])
        (out_read, out_write), (error_read, error_write) = ends
        yield [out_read, error_read], (out_write, error_write)


def _close_all(descriptors: tuple[int, ...]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
