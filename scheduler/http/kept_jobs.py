"""The jobs that are kept, and for how long: until they have been over for `http_retention_s`, or newer ones need room.

A user has a share of the jobs and of the bytes that are kept (`sparrow_py.limits.shares`). Beyond it the user's own
oldest jobs go. Where several users fill the whole, those of the user that has most go.
"""

from __future__ import annotations

from collections.abc import Iterable

from scheduler.http.job import BareLine, HttpJob, bytes_of_line
from sparrow_py.limits.shares import Shares

JOBS_MAX = 10_000
"""Jobs kept, those that have ended included. A user who has its share, and has no ended job to give up, is refused."""


class KeptJobs:
    """See the module's docstring. Pure."""

    def __init__(self, results_bytes_max: int, retention_s: float) -> None:
        self.bytes = Shares("http_results_bytes_max", results_bytes_max, "bytes of results are kept")
        self._count = Shares("JOBS_MAX", JOBS_MAX, "jobs that came over HTTP are kept")
        self._retention_s = retention_s
        self._jobs: dict[str, HttpJob] = {}
        self._ended: dict[str, HttpJob] = {}
        """Jobs that have ended, in that order."""
        self._ended_of: dict[str, dict[str, HttpJob]] = {}
        """The same by user."""

    def get(self, job_id: str) -> HttpJob | None:
        """The job, whether it runs or has ended and is kept."""
        return self._jobs.get(job_id)

    def ended(self) -> Iterable[HttpJob]:
        """The jobs that have ended and are kept, in the order in which they ended."""
        return self._ended.values()

    def wake_readers(self) -> None:
        """Have all readers look whether they may go on."""
        for job in self._jobs.values():
            job.tell()

    # ---- a job's life ------------------------------------------------------------------------

    def why_no_room(self, job: HttpJob) -> str:
        """Why the job cannot be kept; empty if it can: then there is room, as soon as this returns."""
        return self._make_room(self._count, job.user, 1) or self._make_room(self.bytes, job.user, job.bytes)

    def add(self, job: HttpJob) -> None:
        """Keep a job, which runs."""
        self._jobs[job.id] = job
        self._count.take(job.user)
        self.bytes.take(job.user, job.bytes)

    def why_no_room_for_line(self, job: HttpJob, line: bytes) -> str:
        """As `why_no_room`, for one more line of a job that is kept."""
        return self._make_room(self.bytes, job.user, bytes_of_line(line))

    def add_line(self, job: HttpJob, line: bytes | BareLine) -> None:
        """Keep one more line of the job, for which there is room."""
        self.bytes.take(job.user, bytes_of_line(line))
        job.add_line(line)

    def end(self, job: HttpJob, now_s: float) -> None:
        """The job has ended."""
        job.ended_at_s = now_s
        self._ended[job.id] = self._ended_of.setdefault(job.user, {})[job.id] = job
        job.tell()

    def remove(self, job: HttpJob) -> None:
        """Forget a job that runs. (Jobs that have ended are dropped.)"""
        del self._jobs[job.id]
        self._count.give_back(job.user)
        self.bytes.give_back(job.user, job.bytes)

    def close(self, reason: str) -> None:
        """Forget all jobs."""
        jobs, self._jobs, self._ended, self._ended_of = self._jobs, {}, {}, {}
        for job in jobs.values():
            job.clear(reason)

    # ---- ended jobs go -----------------------------------------------------------------------

    def next_expiry_s(self) -> float | None:
        """When the job that ended first has been over for `http_retention_s`."""
        first = next(iter(self._ended.values()), None)
        if first is None:
            return None
        assert first.ended_at_s is not None
        return first.ended_at_s + self._retention_s

    def expire(self, now_s: float) -> None:
        """Drop jobs that have been over for `http_retention_s`."""
        while (expiry_s := self.next_expiry_s()) is not None and expiry_s <= now_s:
            self._drop(next(iter(self._ended.values())), f"http_retention_s = {self._retention_s:g} s are over")

    def _make_room(self, shares: Shares, user: str, amount: int) -> str:
        """Drop ended jobs until the user can have so much more. Returns why the user cannot, or an empty text."""
        while why_not := shares.why_not(user, amount):
            loser = user
            if shares.total + amount > shares.limit and shares.of(user) + amount <= shares.share:
                loser = shares.greatest()  # The whole is full: that user has more than a share of it.
            if not self._ended_of.get(loser):
                return why_not
            self._drop(next(iter(self._ended_of[loser].values())), why_not)
        return ""

    def _drop(self, job: HttpJob, reason: str) -> None:
        """Forget an ended job; its readers are told the reason."""
        del self._ended[job.id]
        ended = self._ended_of[job.user]
        del ended[job.id]
        if not ended:
            del self._ended_of[job.user]
        self.remove(job)
        job.clear(reason)
