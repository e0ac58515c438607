"""The scheduler's log has a line for each job that it has had: whose, how large, how it ended and how long it was here.

Who submits jobs decides how many there are, so the lines have a rate; what is left out is counted in the next one. The
audit log (`scheduler/audit/`) has every job, and all of it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from sparrow_py.counted import counted
from sparrow_py.logs.printable import printable
from sparrow_py.logs.sparing_log import SparingLog

if TYPE_CHECKING:
    from scheduler.book.jobs import JobState

LINES_MAX = 100
"""Lines in `INTERVAL_S`."""
INTERVAL_S = 10.0


class JobLog:
    """Writes them to this log."""

    def __init__(self, log: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._lines = SparingLog(log, clock, lines_max=LINES_MAX, interval_s=INTERVAL_S)

    def ended(self, job: JobState, how: str, now_s: float) -> None:
        """The job is here no more, for this reason."""
        if self._log.isEnabledFor(logging.INFO):
            self._lines.info("job %s", _Line(job, how, now_s))


class _Line:
    """The text, which is made only if it is written."""

    __slots__ = ("_how", "_job", "_now_s")

    def __init__(self, job: JobState, how: str, now_s: float) -> None:
        self._job = job
        self._how = how
        self._now_s = now_s

    def __str__(self) -> str:
        job = self._job
        outcomes = ", ".join(f"{count} {status}" for status, count in job.counts.items() if count)
        lasted_s = self._now_s - job.submitted_at_s
        return printable(
            f"{job.id} {job.name!r} of user {job.user!r} {self._how} after {lasted_s:.3f} s, "
            f"{counted(job.task_count, 'task')}: {outcomes or 'no outcome'}"
        )
