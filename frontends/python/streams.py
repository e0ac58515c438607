"""`sys.stdout` and `sys.stderr` of tasks: the same objects for all tasks of a worker, wherever the output goes."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Iterator
from typing import Any, TextIO

CAPTURED_BYTES_MAX = 1 << 18
"""Bytes that are kept of each stream of a captured call: the first ones. All others are dropped."""


class TaskStream(io.TextIOBase):
    """Takes the place of `sys.stdout` or `sys.stderr`.

    A handler of `logging` that keeps this object writes to the same place as the task that runs at that time: to the
    stream beneath, or to a stream that captures the task's output.
    """

    def __init__(self, beneath: TextIO) -> None:
        self.beneath = beneath
        self.target = beneath
        self.written = False
        """Whether anything was written since this was last set to False; the stream beneath may still buffer that."""

    def write(self, text: str) -> int:
        self.written = True
        return self.target.write(text)

    def flush(self) -> None:
        self.target.flush()

    @property
    def buffer(self) -> Any:
        """The target's buffer. The caller may write to it later, unseen by this object."""
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
        """Reconfigure the target."""
        self.target.reconfigure(**settings)  # type: ignore[attr-defined]

    def close(self) -> None:
        """Do nothing: the stream belongs to the worker, and stays open."""


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
    """The output of a call."""

    def __init__(self) -> None:
        self._kept = _Beginning(), _Beginning()
        self.streams = [
            io.TextIOWrapper(io.BufferedWriter(kept), "utf-8", "backslashreplace", newline="\n", write_through=True)
            for kept in self._kept
        ]

    def texts(self, chars_max: int) -> tuple[str, str]:
        """The beginnings of standard output and error."""
        for stream in self.streams:
            with contextlib.suppress(ValueError):  # The call has closed the stream.
                stream.flush()
        stdout, stderr = (kept.kept.decode("utf-8", "replace")[:chars_max] for kept in self._kept)
        return stdout, stderr


class TaskStreams:
    """Standard output and standard error. In a worker process they replace `sys.stdout` and `sys.stderr` for good; in
    a worker that is a thread of a user's program, only while a call is captured."""

    def __init__(self) -> None:
        self.stdout = TaskStream(sys.stdout)
        self.stderr = TaskStream(sys.stderr)

    @classmethod
    def of_worker(cls) -> TaskStreams:
        """The streams of a worker process, put in place for good; what lies beneath is flushed after each line."""
        for stream in (sys.stdout, sys.stderr):
            assert isinstance(stream, io.TextIOWrapper)
            stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)
        streams = cls()
        sys.stdout, sys.stderr = streams.stdout, streams.stderr
        return streams

    def flush(self) -> bool:
        """Flush both streams; returns whether anything was written since the last flush."""
        if not (self.stdout.written or self.stderr.written):
            return False
        for stream in (self.stdout, self.stderr):
            stream.written = False
            with contextlib.suppress(Exception):  # The task may have closed the stream beneath.
                stream.flush()
        return True

    @contextlib.contextmanager
    def captured(self) -> Iterator[Captured]:
        """Capture what is printed in the `with` block."""
        captured = Captured()
        self.stdout.target, self.stderr.target = captured.streams
        try:
            with contextlib.redirect_stdout(self.stdout), contextlib.redirect_stderr(self.stderr):
                yield captured
        finally:
            self.stdout.target, self.stderr.target = self.stdout.beneath, self.stderr.beneath
