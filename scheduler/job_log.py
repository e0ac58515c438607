"""The scheduler's log has a line for each job that it has had: whose, how large, how it ended and how long it was here;
and one for each that it has refused: whose, and why.

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
from sparrow_py.wire import messages as m

if TYPE_CHECKING:
    from scheduler.book.admission import Refusal
    from scheduler.book.jobs import JobState

LINES_MAX = 100
"""Lines in `INTERVAL_S`."""
INTERVAL_S = 10.0


class JobLog:
    """Writes them to this log."""

    def __init__(self, log: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._lines = SparingLog(log, clock, lines_max=LINES_MAX, interval_s=INTERVAL_S)
        self._refusals = SparingLog(log, clock, lines_max=LINES_MAX, interval_s=INTERVAL_S)
        """Clients come again and again, which is not to leave out what becomes of other jobs."""

    def ended(self, job: JobState, how: str, now_s: float) -> None:
        """The job is here no more, for this reason."""
        if self._log.isEnabledFor(logging.INFO):
            self._lines.info("job %s", _Line(job, how, now_s))

    def refused(self, job_id: str, user: str, why: Refusal) -> None:
        """The user's job is not taken. For information: its client is told, and may come again or send it in parts."""
        if self._log.isEnabledFor(logging.INFO):
            again = "" if why.retry_after_s is None else f"; its client may try again after {why.retry_after_s:.1f} s"
            reason = m.cut_reason(why.reason)
            self._refusals.info("job %s", printable(f"{job_id} of user {user!r} was refused: {reason}{again}"))


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
