"""What a node monitor remembers of jobs for the sake of schedulers to come (DESIGN.md §5): fences, outcomes, starts.

An owner is (user, instance): ids of jobs may be used again, and one user knows nothing of another's.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from sparrow_py.limits.latest_of_users import Latest
from sparrow_py.wire.messages import Report

Owner = tuple[str, int]
FENCES_MAX = 100_000
"""Claimed jobs remembered; beyond that the oldest is forgotten of the user that has most."""
OUTCOMES_MAX = 10_000
OUTCOMES_MIN = 20
LARGE_BYTES = 1024
LARGE_OUTCOME_BYTES_MAX = 32 << 20
"""Outcomes held for a scheduler that may claim their job: the latest, so many; of those above `LARGE_BYTES`, the
latest of so many bytes together. No user's drive out another's (`sparrow_py.limits.latest_of_users`).

They bridge the moment in which an outcome was reported to a scheduler that died before the client had it.
"""
STARTED_MAX = 100_000
"""Started tasks remembered, of jobs whose tasks may start once at most. Beyond that the user that has most forgets a
job, that which came first."""
STARTED_MIN = 200
FORGETFUL_USERS_MAX = 1000
"""Users of whom it is known since when their starts are remembered; of others as if they were all one."""


class _Started:
    """The tasks of a job that have started here."""

    __slots__ = ("since_s", "tasks")

    def __init__(self, since_s: float) -> None:
        self.since_s = since_s
        """When the first of them did."""
        self.tasks: set[int] = set()


class Memory:
    """Fences, outcomes and starts by (owner, job). `share` of the limits, for one of several nodes in a process."""

    def __init__(self, share: float = 1.0) -> None:
        self.fences: dict[tuple[Owner, str], int] = {}
        """The highest epoch that claimed each job; see `fence`."""
        self._fenced: dict[str, dict[tuple[Owner, str], None]] = {}
        """The same by user, the oldest first."""
        self._outcomes: Latest[tuple[Owner, Report]] = Latest(max(OUTCOMES_MIN, int(OUTCOMES_MAX * share)))
        self._large: Latest[tuple[Owner, Report]] = Latest(int(LARGE_OUTCOME_BYTES_MAX * share))
        self._started: dict[str, dict[tuple[Owner, str], _Started]] = {}
        """By user, in the order of `since_s`."""
        self._started_count: dict[str, int] = {}
        """Tasks in it, by user."""
        self._started_total = 0
        self._started_max = max(STARTED_MIN, int(STARTED_MAX * share))
        self._forgotten_s: dict[str, float] = {}
        """`since_s` of the last of each user's jobs whose starts were forgotten."""
        self._all_forgotten_s = -math.inf
        """The same of all other users."""

    def fence(self, owner: Owner, job: str, epoch: int) -> None:
        """Lower epochs of the job may launch nothing more."""
        self.fences[owner, job] = epoch
        fenced = self._fenced.setdefault(owner[0], {})
        fenced.pop((owner, job), None)
        fenced[owner, job] = None
        if len(self.fences) > FENCES_MAX:
            fenced = max(self._fenced.values(), key=len)
            oldest = next(iter(fenced))
            del fenced[oldest], self.fences[oldest]

    def epoch(self, owner: Owner, job: str) -> int:
        """The highest epoch that claimed the job; 0 if none has."""
        return self.fences.get((owner, job), 0)

    def remember(self, owner: Owner, report: Report) -> None:
        """The outcome was reported."""
        result = report.result
        size = (len(result) if type(result) is bytes else 0) + len(report.stdout) + len(report.stderr)
        if size <= LARGE_BYTES:  # As a rule: this is for every task.
            self._outcomes.add(owner[0], (owner, report))
        else:
            self._large.add(owner[0], (owner, report), size)

    def outcomes(self, owner: Owner, job: str) -> Iterator[Report]:
        """Those of the job that are still held."""
        held = itertools.chain(self._outcomes.of(owner[0]), self._large.of(owner[0]))
        return (report for held_for, report in held if report.job == job and held_for == owner)

    # ---- starts of jobs whose tasks may start once at most -----------------------------------

    def started(self, owner: Owner, job: str, task: int, now_s: float) -> None:
        """The task, which may start once at most, starts."""
        user, key = owner[0], (owner, job)
        jobs, counts = self._started.setdefault(user, {}), self._started_count
        known = jobs.get(key)
        if known is None:
            known = jobs[key] = _Started(now_s)
        if task not in known.tasks:
            known.tasks.add(task)
            counts[user] = counts.get(user, 0) + 1
            self._started_total += 1
            if self._started_total > self._started_max:
                self._forget_starts(max(counts, key=counts.__getitem__))

    def _forget_starts(self, user: str) -> None:
        """Forget those of the user's first job."""
        jobs = self._started[user]
        forgotten = jobs.pop(next(iter(jobs)))
        self._started_count[user] -= len(forgotten.tasks)
        self._started_total -= len(forgotten.tasks)
        if not jobs:
            del self._started[user], self._started_count[user]
        self._forgotten_s.pop(user, None)
        self._forgotten_s[user] = forgotten.since_s
        if len(self._forgotten_s) > FORGETFUL_USERS_MAX:
            since_s = self._forgotten_s.pop(next(iter(self._forgotten_s)))
            self._all_forgotten_s = max(self._all_forgotten_s, since_s)

    def started_of(self, owner: Owner, job: str) -> list[int]:
        """The job's tasks that have started here, as far as they are remembered."""
        known = self._started.get(owner[0], {}).get((owner, job))
        return [] if known is None else sorted(known.tasks)

    def remembers_since(self, user: str, submitted_s: float) -> bool:
        """Whether all starts are remembered of the user's jobs that were submitted then or later.

        A job is forgotten whole, and before all of its user's whose first task started later. So of one that was
        submitted after the first start of the last that was forgotten nothing has been.
        """
        return submitted_s > max(self._all_forgotten_s, self._forgotten_s.get(user, -math.inf))
