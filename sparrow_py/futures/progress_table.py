"""A table of how far jobs are, which changes as they go on: in a notebook as HTML in the cell, in a terminal as text.
Elsewhere, as in a log, it is written once, at the end.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Protocol

from sparrow_py.counted import counted
from sparrow_py.futures.late_condition import all_ended
from sparrow_py.futures.stage_progress import COLUMNS, StageProgress, stage_progress
from sparrow_py.futures.task_future import TaskFuture
from sparrow_py.html_tables import ROWS_MAX, html_block
from sparrow_py.job import JobSpec, check_number
from sparrow_py.logs.printable import printable

INTERVAL_MIN_S, INTERVAL_MAX_S = 0.05, 3600.0
COUNTING_SHARE = 0.1
"""Counting the futures of large jobs takes this part of the time at most."""
ID_CHARS = 8
"""Of a job's id, in the table."""
Row = tuple[str | int, ...]


class WatchedJob(Protocol):
    """A job as far as the table needs it: `client.Job`."""

    job_id: str
    spec: JobSpec
    futures: list[TaskFuture]


class Display(Protocol):
    """Where a table is shown."""

    def show(self, title: str, rows: Sequence[Row]) -> None:
        """Show this from now on."""

    def close(self) -> None:
        """What is shown stays."""


def watch(jobs: Sequence[WatchedJob], interval_s: float, open_display: Callable[[], Display] | None = None) -> None:
    """Show the jobs' table every so many seconds until all have ended; `InvalidRequest` for an interval that cannot be.

    Ctrl-C ends the table, and nothing else.
    """
    check_number("interval_s", interval_s, INTERVAL_MIN_S, INTERVAL_MAX_S)
    began_s = time.monotonic()
    display = (open_display or _display_here)()
    try:
        while True:
            counting_s = time.monotonic()
            ended = all(all_ended(job.futures, 0) for job in jobs)
            rows = progress_rows(jobs)
            now_s = time.monotonic()
            display.show(f"{counted(len(jobs), 'job')}, {now_s - began_s:.1f} s", rows)
            if ended:
                return
            _wait(jobs, max(interval_s, (now_s - counting_s) / COUNTING_SHARE))
    finally:
        display.close()


def _wait(jobs: Sequence[WatchedJob], timeout_s: float) -> None:
    until_s = time.monotonic() + timeout_s
    for job in jobs:
        if not all_ended(job.futures, max(until_s - time.monotonic(), 0)):
            return


def progress_rows(jobs: Sequence[WatchedJob]) -> list[Row]:
    """A row for each stage, or for each job where that would be too many; each begins with its job's id."""
    stages = [(job, stage_progress(job.spec, job.futures)) for job in jobs]
    if sum(len(found) for _, found in stages) > ROWS_MAX:
        stages = [(job, [_sum(job, found)]) for job, found in stages]
    return [(job.job_id[:ID_CHARS], *stage.row()) for job, found in stages for stage in found]


def _sum(job: WatchedJob, stages: Sequence[StageProgress]) -> StageProgress:
    name = f"{job.spec.name or job.spec.app} ({len(stages)} stages)" if len(stages) > 1 else stages[0].name
    columns = zip(*(stage.row()[1:-1] for stage in stages), strict=True)
    return StageProgress(name, *(sum(map(int, column)) for column in columns))


# ---- where it is shown -----------------------------------------------------------------------


def _display_here() -> Display:
    """In a notebook there, else on standard error."""
    return NotebookDisplay() if in_notebook() else TextDisplay()


def in_notebook() -> bool:
    """Whether this runs in a kernel of IPython, whose front end shows HTML."""
    ipython: Any = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None


class NotebookDisplay:
    """An output of the cell, which is replaced: what every front end can do, with or without widgets."""

    def __init__(self) -> None:
        self._handle: Any = None

    def show(self, title: str, rows: Sequence[Row]) -> None:
        """See `Display`."""
        display: Any = import_module("IPython.display")  # It is there in a notebook, and nobody else needs it.
        shown = display.HTML(html_block(title, columns=("job", *COLUMNS), rows=rows))
        if self._handle is None:
            self._handle = display.display(shown, display_id=True)
        else:
            self._handle.update(shown)

    def close(self) -> None:
        """See `Display`."""


class TextDisplay:
    """Lines on standard error: in a terminal they change, elsewhere they are written once, at the end."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = Console(stderr=True)
        self._table: Any = ""
        self._live = Live(console=self._console, auto_refresh=False) if self._console.is_terminal else None
        if self._live is not None:
            self._live.start()

    def show(self, title: str, rows: Sequence[Row]) -> None:
        """See `Display`."""
        from rich.table import Table
        from rich.text import Text

        self._table = Table(title=Text(title), box=None, pad_edge=False)
        for column in ("job", *COLUMNS):
            self._table.add_column(column, justify="left" if column in ("job", "stage") else "right")
        for row in rows[:ROWS_MAX]:
            self._table.add_row(*(Text(printable(str(cell))) for cell in row))
        if len(rows) > ROWS_MAX:
            self._table.caption = f"and {len(rows) - ROWS_MAX} more"
        if self._live is not None:
            self._live.update(self._table, refresh=True)

    def close(self) -> None:
        """See `Display`."""
        if self._live is not None:
            self._live.stop()
        else:
            self._console.print(self._table)
