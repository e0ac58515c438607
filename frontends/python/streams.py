"""`sys.stdout` and `sys.stderr` of tasks: the same objects for all tasks of a worker, whoever takes what they print."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Iterator
from typing import Any, TextIO

CAPTURED_BYTES_MAX = 1 << 18
"""Of each stream of a call that is captured: its beginning. What follows is dropped, whatever it is."""


class TaskStream(io.TextIOBase):
    """In place of `sys.stdout` or `sys.stderr`.

    What keeps it, as a handler of `logging` does, writes where the task writes that runs then: to the stream beneath,
    or to what captures it.
    """

    def __init__(self, beneath: TextIO) -> None:
        self.beneath = beneath
        self.target = beneath
        self.written = False
        """Since somebody set it to False: then the stream beneath may hold something back."""

    def write(self, text: str) -> int:
        self.written = True
        return self.target.write(text)

    def flush(self) -> None:
        self.target.flush()

    @property
    def buffer(self) -> Any:
        """As that of the stream beneath. Who has it may write unseen."""
        self.written = True
        return self.target.buffer

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self.target.encoding

    @property
    def errors(self) -> str | None:  # type: ignore[override]
        return self.target.errors

    def fileno(self) -> int:
        return self.target.fileno()

    def isatty(self) -> bool:
        return self.target.isatty()

    def writable(self) -> bool:
        return True

    def reconfigure(self, **settings: Any) -> None:
        """As of the stream beneath."""
        self.target.reconfigure(**settings)  # type: ignore[attr-defined]

    def close(self) -> None:
        """It is the worker's, and stays open."""


class _Beginning(io.RawIOBase):
    """Keeps the first bytes that are written."""

    def __init__(self) -> None:
        self.kept = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.kept += memoryview(data)[: CAPTURED_BYTES_MAX - len(self.kept)]
        return len(data)


class Captured:
    """What a call has printed."""

    def __init__(self) -> None:
        self._kept = _Beginning(), _Beginning()
        self.streams = [
            io.TextIOWrapper(io.BufferedWriter(kept), "utf-8", "backslashreplace", newline="\n", write_through=True)
            for kept in self._kept
        ]

    def texts(self, chars_max: int) -> tuple[str, str]:
        """The beginnings of standard output and error."""
        for stream in self.streams:
            with contextlib.suppress(ValueError):  # The call has closed what is beneath.
                stream.flush()
        stdout, stderr = (kept.kept.decode("utf-8", "replace")[:chars_max] for kept in self._kept)
        return stdout, stderr


class TaskStreams:
    """Both streams. In a worker they take the place of `sys.stdout` and `sys.stderr` for good; a worker that is a
    thread of somebody's program has them there only while it captures a call."""

    def __init__(self) -> None:
        self.stdout = TaskStream(sys.stdout)
        self.stderr = TaskStream(sys.stderr)

    @classmethod
    def of_worker(cls) -> TaskStreams:
        """Put in place for good, on streams that hold no line back."""
        for stream in (sys.stdout, sys.stderr):
            assert isinstance(stream, io.TextIOWrapper)
            stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)
        streams = cls()
        sys.stdout, sys.stderr = streams.stdout, streams.stderr
        return streams

    def flush(self) -> bool:
        """Hold nothing back. Whether anything was written since the last time."""
        if not (self.stdout.written or self.stderr.written):
            return False
        for stream in (self.stdout, self.stderr):
            stream.written = False
            with contextlib.suppress(Exception):  # The task may have closed what is beneath.
                stream.flush()
        return True

    @contextlib.contextmanager
    def captured(self) -> Iterator[Captured]:
        """What is printed in the block goes there."""
        captured = Captured()
        self.stdout.target, self.stderr.target = captured.streams
        try:
            with contextlib.redirect_stdout(self.stdout), contextlib.redirect_stderr(self.stderr):
                yield captured
        finally:
            self.stdout.target, self.stderr.target = self.stdout.beneath, self.stderr.beneath
