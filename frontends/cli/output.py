"""The output of `sparrow run`: what the commands wrote, in order, notes on those that failed, and the progress."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import BinaryIO

from frontends.command.process import STREAM_BYTES_MAX
from frontends.command.tasks import CommandResult
from sparrow_py.counted import counted
from sparrow_py.logs.printable import printable

NOTES_MAX = 10
"""Failed tasks that get a line of their own; all are counted in the summary."""
LABEL_MAX = 60
"""Characters of a line of input that a note repeats."""
FAILED_EXIT_MAX = 101
"""As with GNU parallel, the exit code is the number of failed tasks up to 100, and 101 if there are more."""
PROGRESS_INTERVAL_S = 0.1
BAR_COLUMNS = 30
CLEAR_LINE = "\r\x1b[K"


@dataclass(frozen=True, slots=True)
class Ended:
    """How a task ended: `error` is empty if its command exited with 0; `result` is None if it has not run, or if an
    attach before has written it (`told_before`)."""

    task: int
    result: CommandResult | None
    error: str = ""
    cancelled: bool = False
    told_before: bool = False


class Progress:
    """One line on stderr that says how many of `total` tasks have ended."""

    def __init__(self, total: int, shown: bool) -> None:
        self._total = total
        self._shown = shown
        self._started_s = time.monotonic()
        self._drawn_s = 0.0

    def draw(self, ended: int, failed: int) -> None:
        """Draw the line, unless that was done just now."""
        now_s = time.monotonic()
        if not self._shown or now_s - self._drawn_s < PROGRESS_INTERVAL_S:
            return
        self._drawn_s = now_s
        bar = "#" * (BAR_COLUMNS * ended // self._total)
        failures = f", {failed} failed" if failed else ""
        line = f"[{bar:<{BAR_COLUMNS}}] {ended}/{self._total}{failures}, {now_s - self._started_s:.0f} s"
        sys.stderr.write(CLEAR_LINE + line)
        sys.stderr.flush()

    def clear(self) -> None:
        """Remove the line, so that other output can be written; the next `draw` draws it again."""
        if self._shown and self._drawn_s:
            sys.stderr.write(CLEAR_LINE)
            sys.stderr.flush()
            self._drawn_s = 0.0


class Output:
    """Takes tasks as they end, in any order, and writes them in the order asked for."""

    def __init__(
        self,
        labels: Sequence[str],
        *,
        ordered: bool,
        progress: bool,
        tag: bool = False,
        numbers: Sequence[int] | None = None,
    ) -> None:
        """`labels` name the tasks; with `tag` each line of output begins with that of its task, and a tab.

        numbers: what notes call the tasks. Default: from 0.
        """
        self._labels = labels
        self._numbers = numbers if numbers is not None else range(len(labels))
        self._tag = tag
        self._ordered = ordered
        self._progress = Progress(len(labels), progress)
        self._waiting: dict[int, Ended] = {}
        self._written = bytearray(len(labels))
        self._next = 0
        self._ended = 0
        self._notes = 0
        self._first_failure = ""
        self.failed = 0
        self.not_run = 0
        self.told_before = 0

    def add(self, ended: Ended) -> None:
        """Take a task that ended, and write what can be written now."""
        self._ended += 1
        self.failed += bool(ended.error) and not ended.cancelled
        self.not_run += ended.cancelled
        self.told_before += ended.told_before
        if not self._ordered:
            self._write(ended)
        else:
            self._waiting[ended.task] = ended
            while self._next in self._waiting:
                self._write(self._waiting.pop(self._next))
                self._next += 1
        self._progress.draw(self._ended, self.failed)

    def close(self) -> None:
        """Write the tasks that still wait for earlier ones, which did not end, and remove the progress line."""
        for task in sorted(self._waiting):
            self._write(self._waiting.pop(task))
        self._progress.clear()

    def abandon(self) -> None:
        """Write nothing more, and remove the progress line."""
        self._waiting.clear()
        self._progress.clear()

    def is_written(self, task: int) -> bool:
        """Whether all that this task wrote has been written here."""
        return bool(self._written[task])

    def summary(self) -> str:
        """One line about the tasks that failed, or that were written before; empty if there are none."""
        if not self.failed and not self.not_run and not self.told_before:
            return ""
        not_run = f", {self.not_run} cancelled or not run" if self.not_run else ""
        first = f" (first: {self._first_failure})" if self._first_failure else ""
        before = f", {self.told_before} written to an attach before" if self.told_before else ""
        return f"{self.failed:,} of {counted(len(self._labels), 'task')} failed{not_run}{before}{first}"

    @property
    def exit_code(self) -> int:
        """The number of tasks that failed, at most `FAILED_EXIT_MAX`; 1 if none failed but some did not run. Nothing
        is known here of those that were written to an attach before."""
        return min(self.failed or bool(self.not_run), FAILED_EXIT_MAX)

    def _write(self, ended: Ended) -> None:
        if ended.result is not None:
            self._write_bytes(sys.stdout.buffer, self._tagged(ended.task, ended.result.stdout))
            self._write_bytes(sys.stderr.buffer, self._tagged(ended.task, ended.result.stderr))
            if ended.result.truncated:
                kept_kib = STREAM_BYTES_MAX >> 10
                self._note(ended.task, f"the output was cut: of stdout and stderr the first {kept_kib} KiB are kept")
        if ended.error and not ended.cancelled:
            self._first_failure = self._first_failure or printable(f"{self._label(ended.task)}: {ended.error}")
            if ended.result is None or ended.result.exit_code < 0:
                # A command that exited with an error has said so on stderr; one that was killed or not run could not.
                self._note(ended.task, ended.error)
        self._written[ended.task] = True

    def _tagged(self, task: int, data: bytes) -> bytes:
        if not self._tag or not data:
            return data
        tag = f"{printable(self._labels[task])}\t".encode("utf-8", "backslashreplace")
        *lines, rest = data.split(b"\n")
        return b"".join(tag + line + b"\n" for line in lines) + (tag + rest if rest else b"")

    def _write_bytes(self, stream: BinaryIO, data: bytes) -> None:
        if data:
            self._progress.clear()
            stream.write(data)
            stream.flush()

    def _note(self, task: int, text: str) -> None:
        self._notes += 1
        if self._notes <= NOTES_MAX:
            self._write_bytes(sys.stderr.buffer, f"sparrow: {printable(f'{self._label(task)}: {text}')}\n".encode())

    def _label(self, task: int) -> str:
        label = self._labels[task]
        named = f" ({label if len(label) <= LABEL_MAX else label[:LABEL_MAX] + '…'})" if label else ""
        return f"task {self._numbers[task]}{named}"
