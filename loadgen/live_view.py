"""The progress of a point while it runs: a few changing lines on standard error, if that is a terminal."""

from __future__ import annotations

import math
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from loadgen.replay import Progress as Replayed


class LiveView:
    """A context manager; nothing is shown where standard error is no terminal."""

    def __init__(self, points: int, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True, highlight=False)
        self._points = Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
            console=self._console,
        )  # fmt: skip
        self._bar = self._points.add_task("points", total=points)
        self._live: Live | None = None
        self._label = ""

    def __enter__(self) -> LiveView:
        if self._console.is_terminal:
            self._live = Live(console=self._console, transient=True, refresh_per_second=4)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def begin(self, label: str) -> None:
        """Begin to show a point."""
        self._label = label
        self._show(f"{label}: starting")

    def show(self, progress: list[Replayed]) -> None:
        """Show how far the point's generators are."""
        self._show(f"{self._label}: {line(progress)}")

    def end(self) -> None:
        """End the view of this point."""
        self._points.advance(self._bar)
        self._show(f"{self._label}: done")

    def _show(self, text: str) -> None:
        if self._live is not None:
            self._live.update(Group(self._points, Text(text)))


def line(progress: list[Replayed]) -> str:
    """A line on the progress of all generators together; the median is that of the first generator that has one."""
    total = {
        name: sum(getattr(one, name) for one in progress)
        for name in ("jobs", "submitted", "ended", "refused", "tasks_under_way")
    }
    p50_s = next((one.p50_s for one in progress if not math.isnan(one.p50_s)), math.nan)
    running = total["submitted"] - total["ended"] - total["refused"]
    late_ms = 1000 * max((one.late_max_s for one in progress), default=0.0)
    parts = [
        f"jobs {total['submitted']:,} of {total['jobs']:,} submitted, {running:,} running, {total['ended']:,} done",
        f"{total['refused']:,} refused" if total["refused"] else "",
        f"tasks under way {total['tasks_under_way']:,}",
        "" if math.isnan(p50_s) else f"p50 {1000 * p50_s:,.1f} ms",
        f"late at most {late_ms:.1f} ms",
    ]
    return " · ".join(part for part in parts if part)
