"""The audit log's file, which may grow large and whose disk may be slow.

Lines are encoded into a buffer at once (about a microsecond each); a thread writes the buffer to the file every
`FLUSH_S`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from scheduler.audit.lines import Dropped, Line
from sparrow_py.errors import InvalidOption

log = logging.getLogger("sparrow.scheduler.audit")
FLUSH_S = 0.5
BUFFER_BYTES_MAX = 64 << 20
"""Lines that wait for a slow disk; more are dropped, and a line says how many."""
DROPPED_BEGINS = b'{"event":"dropped"'


class AuditFile:
    """Lines on their way to a file.

    Once the file has `bytes_max` bytes it is renamed to PATH.1, over the one before: the two have the last `bytes_max`
    bytes at least. All methods but `_write` are for the loop's thread.
    """

    def __init__(self, path: str, bytes_max: int, flush_s: float = FLUSH_S) -> None:
        self.path = Path(path)
        self._bytes_max = bytes_max
        self._flush_s = flush_s
        self._buffer = bytearray()
        self._dropped = 0
        self._last_s = 0.0
        self._failed = ""
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Future[int] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="audit-log")
        self._encode_into = msgspec.json.Encoder().encode_into
        try:
            self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o640)
            self._size = os.fstat(self._file).st_size
        except OSError as error:
            raise InvalidOption(
                "audit_log", path, f"a file that can be written, in a directory that is there ({error.strerror})"
            ) from None

    def add(self, line: Line) -> None:
        """Queue a line."""
        buffer = self._buffer
        if len(buffer) >= BUFFER_BYTES_MAX:
            self._dropped += 1
            return
        if self._dropped:
            self._say_dropped()
        self._last_s = line.at_s
        self._encode_into(line, buffer, -1)
        buffer += b"\n"
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._flush_s, self._flush)

    def _say_dropped(self) -> None:
        self._encode_into(Dropped(self._last_s, self._dropped), self._buffer, -1)
        self._buffer += b"\n"
        self._dropped = 0

    def _flush(self) -> None:
        self._timer = None
        if self._writing is not None and not self._writing.done():  # The disk is slow: look again later.
            self._timer = asyncio.get_running_loop().call_later(self._flush_s, self._flush)
            return
        self._count_lost()
        lines, self._buffer = self._buffer, bytearray()
        self._writing = asyncio.get_running_loop().run_in_executor(self._thread, self._write, lines)

    def _count_lost(self) -> None:
        """The last write is over: count the lines that it could not write."""
        if self._writing is not None:
            self._dropped += self._writing.result()
            self._writing = None

    def _write(self, lines: bytearray) -> int:
        """On the thread. Returns how many lines were lost because they could not be written; the log says so once."""
        written = 0
        try:
            while written < len(lines):
                written += os.write(self._file, memoryview(lines)[written:])
            self._size += written
            self._failed = ""
            if self._size >= self._bytes_max:
                self.path.rename(f"{self.path}.1")
                os.close(self._file)
                self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o640)
                self._size = 0
        except OSError as error:
            if self._failed != str(error):
                log.warning("the audit log misses lines: %s", error)
            self._failed = str(error)
            if written < len(lines):
                return self._keep_whole_lines(lines, written)
        return 0

    def _keep_whole_lines(self, lines: bytearray, written: int) -> int:
        """Only so many bytes were written: let the file end with a whole line. Returns how many lines are lost."""
        whole = lines.rfind(b"\n", 0, written) + 1
        with contextlib.suppress(OSError):
            os.ftruncate(self._file, os.fstat(self._file).st_size - (written - whole))
        self._size += whole
        return sum(map(_lines_in, lines[whole:].splitlines()))

    async def close(self) -> None:
        """Write what is queued."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._writing is not None:
            await self._writing
        self._count_lost()
        if self._dropped:
            self._say_dropped()
        lines, self._buffer = self._buffer, bytearray()
        await asyncio.get_running_loop().run_in_executor(self._thread, self._write, lines)
        self._thread.shutdown()
        with contextlib.suppress(OSError):
            os.close(self._file)


def _lines_in(line: bytearray) -> int:
    """How many lines are missing if this one is. It may say itself that lines are missing."""
    if not line.startswith(DROPPED_BEGINS):
        return 1
    return msgspec.json.decode(line, type=Dropped).lines
