"""The audit log's file, which may grow large and whose disk may be slow.

Lines are encoded into a buffer at once (about a microsecond each); a thread writes the buffer to the file every
`FLUSH_S`.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import msgspec

from scheduler.audit.lines import Dropped, Line
from sparrow_py.errors import InvalidOption
from sparrow_py.logs.sparing_log import SparingLog

log = logging.getLogger("sparrow.scheduler.audit")
FLUSH_S = 0.5
BUFFER_BYTES_MAX = 64 << 20
"""Lines that wait for a slow disk; more are dropped, and a line says how many."""
DROPPED_BEGINS = b'{"event":"dropped"'
GIVEN_UP_INTERVAL_S = 3600.0
"""The log says at most so often that older lines were given up for room."""


class Lost(NamedTuple):
    """Lines of a write that are not in the file."""

    events: int
    said: int
    """Lines that were missing before, as those among them said that told of it."""


class AuditFile:
    """Lines on their way to a file.

    Once the file has `bytes_max` bytes it is renamed to PATH.1, over the one before: the two have the last `bytes_max`
    bytes at least. All methods but `_write` and what it calls are for the loop's thread.
    """

    def __init__(self, path: str, bytes_max: int, flush_s: float = FLUSH_S) -> None:
        self.path = Path(path)
        self.older = Path(f"{path}.1")
        self.lines_lost = 0
        """Since the start."""
        self._bytes_max = bytes_max
        self._flush_s = flush_s
        self._buffer = bytearray()
        self._dropped = 0
        """Lines that are missing, and of which no line has told."""
        self._last_s = 0.0
        self._failed = ""
        """Why the last write failed, if it did."""
        self._stays = False
        """Whether the file could not be rotated the last time."""
        self._given_up = SparingLog(log, lines_max=1, interval_s=GIVEN_UP_INTERVAL_S)
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Future[Lost] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="audit-log")
        self._encode_into = msgspec.json.Encoder().encode_into
        try:
            self._file = self._open()
            self._size = os.fstat(self._file).st_size
        except OSError as error:
            raise InvalidOption(
                "audit_log", path, f"a file that can be written, in a directory that is there ({error.strerror})"
            ) from None
        self._torn = bool(self._size) and _ends_within_a_line(self.path)
        """Whether the file ends within a line: whoever wrote it died. The next line must not be added to that."""

    def _open(self) -> int:
        return os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o640)

    def add(self, line: Line) -> None:
        """Queue a line."""
        buffer = self._buffer
        if len(buffer) >= BUFFER_BYTES_MAX:
            self._dropped += 1
            self.lines_lost += 1
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
            lost = self._writing.result()
            self._dropped += lost.events + lost.said
            self.lines_lost += lost.events
            self._writing = None

    def _write(self, lines: bytearray) -> Lost:
        """On the thread. Returns what was lost because it could not be written; the log says so once.

        Each file gets what belongs to it, and no more: much may come at once.
        """
        begun = 0
        while begun < len(lines):
            if self._size < self._bytes_max or self._rotate():
                end = lines.find(b"\n", begun + self._bytes_max - self._size - 1) + 1 or len(lines)
                missing = self._write_some(lines[begun:end])
            else:
                room = max(2 * self._bytes_max - self._size, 0)
                end = max(lines.rfind(b"\n", begun, begun + room) + 1, begun)
                missing = self._write_some(lines[begun:end]) + lines[end:]
                end = len(lines)
            if missing:
                return _lost(missing + lines[end:])
            begun = end
        return Lost(0, 0)

    def _write_some(self, lines: bytearray) -> bytearray:
        """Returns the lines that could not be written."""
        lines, error = self._append(lines)
        if error is not None and self._is_short_of_room(error) and self._rotate():
            self._given_up.warning("no space was left for the audit log: its older lines, %s, were deleted", self.older)
            lines, error = self._append(lines)
        if error is not None and self._failed != str(error):
            log.warning("the audit log misses lines: %s", error)
        self._failed = "" if error is None else str(error)
        return lines

    def _rotate(self) -> bool:
        """Rename the file and begin it anew. Where that cannot be the log says so once, until it can."""
        try:
            with contextlib.suppress(FileNotFoundError):  # It was renamed, by us or others, and not begun anew.
                self.path.rename(self.older)
            file = self._open()
        except OSError as error:
            if not self._stays:
                log.warning(
                    "the audit log cannot be rotated: %s; once it has twice its limit, lines are dropped", error
                )
            self._stays = True
            return False
        os.close(self._file)
        self._file, self._size, self._stays, self._torn = file, 0, False, False
        return True

    def _append(self, lines: bytearray) -> tuple[bytearray, OSError | None]:
        """Returns the lines that could not be written, and why."""
        written = 0
        try:
            if self._torn:
                self._size += os.write(self._file, b"\n")
                self._torn = False
            while written < len(lines):
                written += os.write(self._file, memoryview(lines)[written:])
        except OSError as error:
            return self._keep_whole_lines(lines, written), error
        self._size += written
        return bytearray(), None

    def _keep_whole_lines(self, lines: bytearray, written: int) -> bytearray:
        """Only so many bytes were written: let the file end with a whole line. Returns the lines that it lacks."""
        whole = lines.rfind(b"\n", 0, written) + 1
        if written > whole:
            try:
                os.ftruncate(self._file, os.fstat(self._file).st_size - (written - whole))
            except OSError:
                self._torn = True
        self._size += whole
        return lines[whole:]

    def _is_short_of_room(self, error: OSError) -> bool:
        """Whether the disk is full, and the older lines take much of it: then these give way to new ones.

        If others fill the disk, half the limit at least is kept of what there is.
        """
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        return is_full and 2 * self._size >= self._bytes_max and self.older.is_file()

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


def _lost(lines: bytearray) -> Lost:
    """Counts them. Some may say themselves that lines are missing."""
    events = said = 0
    for line in lines.splitlines():
        if line.startswith(DROPPED_BEGINS):
            said += msgspec.json.decode(line, type=Dropped).lines
        else:
            events += 1
    return Lost(events, said)


def _ends_within_a_line(path: Path) -> bool:
    """Whether the file, which is not empty, has no newline at its end. Not if it may be written and not read."""
    try:
        with path.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read() != b"\n"
    except OSError:
        return False
