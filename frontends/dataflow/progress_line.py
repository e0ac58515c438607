"""A line on a terminal that says how a program over arrays does."""

from __future__ import annotations

import time
from typing import TextIO

from frontends.dataflow.control_messages import Progress

SPAN_S = 2.0
"""Tasks a second are those of about so long."""


class ProgressLine:
    """Nothing is shown where there is no terminal."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_shown = False
        self._seen: list[tuple[float, int]] = []
        """Times, and tasks run until then."""

    def show(self, progress: Progress) -> None:
        self._write(self.text(progress, time.monotonic()))

    def wait(self, what: str) -> None:
        """The run has not begun, for this reason."""
        self._write(f"dataflow: waiting: {what}")

    def _write(self, line: str) -> None:
        if not self._stream.isatty():
            return
        self._is_shown = True
        self._stream.write(f"\r\x1b[K{line}")
        self._stream.flush()

    def text(self, progress: Progress, now_s: float) -> str:
        """State, block, tasks a second, workers, moves."""
        self._seen = [(at_s, tasks) for at_s, tasks in self._seen if at_s >= now_s - SPAN_S][-100:]
        self._seen.append((now_s, progress.tasks))
        then_s, tasks = self._seen[0]
        rate = (progress.tasks - tasks) / (now_s - then_s) if now_s > then_s else 0.0
        parts = [
            f"dataflow: {progress.state}",
            f"run {progress.run}, block {progress.block}",
            f"{rate:,.0f} tasks/s",
            f"{progress.workers} {'worker' if progress.workers == 1 else 'workers'}",
            f"{progress.moves} moves",
        ]
        return " · ".join(parts + ([f"{progress.rollbacks} rollbacks"] if progress.rollbacks else []))

    def end(self) -> None:
        """The run is over."""
        if self._is_shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._is_shown = False
