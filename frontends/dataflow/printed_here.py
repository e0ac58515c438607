"""What a program prints that is called in its own process, and again from its start after a failure: shown once.

It stands in the place of the standard streams while programs are called, one for all threads that call some. The
program, or a library that it uses, may keep a stream beyond that.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from frontends.dataflow.printed_lines import PrintedLines

_LOCK = threading.Lock()
"""Of what stands in the place of the standard streams."""


class _Stream:
    """A standard stream, to which a thread that calls a program writes what is new."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.is_new: dict[int, Callable[[], bool]] = {}
        """By thread: whether to show what it writes now."""

    def write(self, text: str) -> int:
        is_new = self.is_new.get(threading.get_ident())
        if is_new is None or is_new():
            self.stream.write(text)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


class _Pieces:
    """Numbers what a call of a program writes to a stream."""

    def __init__(self, lines: PrintedLines, run: int, call: PrintedHere, *, is_error: bool) -> None:
        self._lines, self._run, self._call, self._is_error = lines, run, call, is_error
        self._next = 0

    def is_new(self) -> bool:
        if self._call.is_left:
            return False
        number, self._next = self._next, self._next + 1
        return self._lines.is_next(self._run, number, is_error=self._is_error)


class PrintedHere:
    """Of one call of a program, which is made in the thread that enters `shown`."""

    def __init__(self, lines: PrintedLines, run: int) -> None:
        self._lines, self._run = lines, run
        self.is_left = False
        """Whether another call follows: what the program prints as it is left is none of what it prints."""

    @contextlib.contextmanager
    def shown(self) -> Iterator[None]:
        """Meanwhile only what is new is shown of what this thread prints."""
        thread = threading.get_ident()
        streams: dict[str, tuple[_Stream, Callable[[], bool] | None]] = {}
        with _LOCK:
            for name in ("stdout", "stderr"):
                stream = getattr(sys, name)
                if stream is None:
                    continue
                if not isinstance(stream, _Stream):
                    stream = _Stream(stream)
                    setattr(sys, name, stream)
                streams[name] = stream, stream.is_new.get(thread)
                pieces = _Pieces(self._lines, self._run, self, is_error=name == "stderr")
                stream.is_new[thread] = pieces.is_new
        try:
            yield
        finally:
            with _LOCK:
                for name, (stream, before) in streams.items():
                    del stream.is_new[thread]
                    if before is not None:  # The call was made within that of another Dataflow's program.
                        stream.is_new[thread] = before
                    if not stream.is_new and getattr(sys, name) is stream:
                        setattr(sys, name, stream.stream)  # What the program has put there instead stays.
