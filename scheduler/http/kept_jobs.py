"""The jobs that are kept, and for how long: until they have been over for `http_retention_s`, or newer ones need room.

A user has a share of the jobs and of the bytes that are kept (`sparrow_py.limits.shares`). Beyond it the user's own
oldest jobs go. Where several users fill the whole, those of the user that has most go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from scheduler.http.job import TASK_BYTES, BareLine, HttpJob, bytes_of_line
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
        self._ended_bytes: Counter[str] = Counter()
        """What those of a user take."""

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

    @property
    def tasks_max(self) -> int:
        """More tasks than this no job that is kept can have."""
        return self.bytes.share // TASK_BYTES

    # ---- a job's life ------------------------------------------------------------------------

    def why_never(self, job: HttpJob) -> str:
        """Why the job cannot be kept, whatever else is; empty if it can."""
        most = self.bytes.most_of(job.user)
        if job.bytes <= most:
            return ""
        return (
            f"the job takes {job.bytes} bytes without its results, and at most {most} of "
            f"{self.bytes.name} = {self.bytes.limit} are kept for one user"
        )

    def why_no_room(self, job: HttpJob) -> str:
        """Why the job cannot be kept now; empty if it can, once `make_room` has dropped others."""
        for shares, amount in ((self._count, 1), (self.bytes, job.bytes)):
            why_not = shares.why_not(job.user, amount)
            if why_not and not self._would_help(shares, job.user, amount):
                return why_not
        return ""

    def add(self, job: HttpJob) -> None:
        """Keep a job, which runs, whether there is room or not."""
        self._jobs[job.id] = job
        self._count.take(job.user)
        self.bytes.take(job.user, job.bytes)

    def make_room(self, user: str) -> None:
        """The user has a job more: drop those that have to go for it."""
        for shares in (self._count, self.bytes):
            self._make_room(shares, user, 0)

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
        self._ended_bytes[job.user] += job.bytes
        job.tell()

    def remove(self, job: HttpJob) -> None:
        """Forget a job that runs. (Jobs that have ended are dropped.)"""
        del self._jobs[job.id]
        self._count.give_back(job.user)
        self.bytes.give_back(job.user, job.bytes)

    def close(self, reason: str) -> None:
        """Forget all jobs."""
        jobs, self._jobs, self._ended, self._ended_of = self._jobs, {}, {}, {}
        self._ended_bytes.clear()
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
        if shares.why_not(user, amount) and not self._would_help(shares, user, amount):
            return shares.why_not(user, amount)
        while why_not := shares.why_not(user, amount):
            loser = user
            if shares.total + amount > shares.limit and shares.of(user) + amount <= shares.share:
                loser = shares.greatest()  # The whole is full: that user has more than a share of it.
            if not self._ended_of.get(loser):
                return why_not
            self._drop(next(iter(self._ended_of[loser].values())), why_not)
        return ""

    def _would_help(self, shares: Shares, user: str, amount: int) -> bool:
        """Whether the user could have so much more if ended jobs were dropped; of other users' jobs, one at least."""
        ended = self._ended_bytes[user] if shares is self.bytes else len(self._ended_of.get(user, ()))
        if user and shares.of(user) - ended + amount > shares.share:
            return False
        return shares.total - ended + amount <= shares.limit or shares.greatest() in self._ended_of

    def _drop(self, job: HttpJob, reason: str) -> None:
        """Forget an ended job; its readers are told the reason."""
        del self._ended[job.id]
        ended = self._ended_of[job.user]
        del ended[job.id]
        self._ended_bytes[job.user] -= job.bytes
        if not ended:
            del self._ended_of[job.user], self._ended_bytes[job.user]
        self.remove(job)
        job.clear(reason)
