"""How processes end: waited for or killed, why in words, and the last lines of their output."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import subprocess
import threading
import time
from typing import Any

from sparrow_py.logs.printable import printable

READ_BYTES = 1 << 16
KEPT_BYTES = 4096
"""Bytes at the end of the output that are kept."""
LINES_MAX = 12
"""Most lines that are told."""
POLL_S = 0.01


def wait_or_kill(process: subprocess.Popen[Any], timeout_s: float) -> None:
    """Wait until it has ended; kill it if it takes longer than that."""
    try:
        process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def exit_reason(code: int) -> str:
    """How a process ended, in words. `code`: its exit code, or the negative number of a signal."""
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


class Tail:
    """A pipe, and a thread that reads it, passes the output on, and keeps the end of it.

    The process writes to `descriptor`; `close_ours` is called once the process has it. The output is passed on to (a
    copy of) the descriptor `to`; None: it is not passed on. The thread blocks where `to` blocks, so a process that
    writes much slows only itself. `OSError` if there are no descriptors or threads left.
    """

    def __init__(self, to: int | None = None) -> None:
        self._source, self.descriptor = os.pipe()
        self._to = None if to is None else os.dup(to)
        self._kept = b""
        self._reading = threading.Lock()
        """Held while bytes are read and put into `_kept`."""
        self._over = threading.Event()
        try:
            threading.Thread(target=self._read, name="sparrow-tail", daemon=True).start()
        except RuntimeError as error:
            for descriptor in (self._source, self.descriptor, *(() if self._to is None else (self._to,))):
                os.close(descriptor)
            raise OSError(errno.EAGAIN, str(error)) from None

    def close_ours(self) -> None:
        """Close this process's copy of `descriptor`: the other process has its own copy, or will not get one."""
        os.close(self.descriptor)

    def lines(self, timeout_s: float) -> list[str]:
        """The last lines, printable. Waits until all output so far has been read, and no longer than `timeout_s`: other
        processes that have the descriptor may go on writing."""
        deadline_s = time.monotonic() + timeout_s
        while not self._over.wait(POLL_S) and self._pending() and time.monotonic() < deadline_s:
            pass
        text = self._kept.decode("utf-8", "replace")
        return [printable(line.rstrip()) for line in text.splitlines() if line.strip()][-LINES_MAX:]

    def _pending(self) -> bool:
        """Whether there is output that has not been read."""
        with self._reading:
            return not self._over.is_set() and any(event & select.POLLIN for _, event in self._poll().poll(0))

    def _poll(self) -> select.poll:
        poll = select.poll()
        poll.register(self._source, select.POLLIN)
        return poll

    def _read(self) -> None:
        try:
            poll = self._poll()
            while data := self._read_when(poll):
                if self._to is not None:
                    with contextlib.suppress(OSError):
                        _write_all(self._to, data)
        finally:
            with self._reading:
                self._over.set()
                os.close(self._source)
            if self._to is not None:
                os.close(self._to)

    def _read_when(self, poll: select.poll) -> bytes:
        """The next bytes; empty at the end of the output."""
        poll.poll()
        with self._reading:
            data = os.read(self._source, READ_BYTES)
            self._kept = (self._kept + data)[-KEPT_BYTES:]
        return data


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
