"""What a node monitor remembers of jobs for the sake of schedulers to come (DESIGN.md §5): fences, outcomes, starts.

An owner is (user, instance): ids of jobs may be used again, and one user knows nothing of another's.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Iterator

from sparrow_py.messages import Report

Owner = tuple[str, int]
FENCES_MAX = 100_000
"""Claimed jobs remembered; the oldest are forgotten first."""
OUTCOMES_MAX = 10_000
OUTCOMES_MIN = 20
LARGE_BYTES = 1024
LARGE_OUTCOME_BYTES_MAX = 32 << 20
"""Outcomes held for a scheduler that may claim their job: the latest, so many; of those above `LARGE_BYTES`, the
latest of so many bytes together.

They bridge the moment in which an outcome was reported to a scheduler that died before the client had it.
"""
STARTED_MAX = 100_000
"""Started tasks remembered, of jobs whose tasks may start once at most; jobs that came first are forgotten first."""
STARTED_MIN = 200


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
        self._outcomes: deque[tuple[Owner, Report]] = deque(maxlen=max(OUTCOMES_MIN, int(OUTCOMES_MAX * share)))
        self._large: deque[tuple[int, tuple[Owner, Report]]] = deque()
        """With the bytes of each."""
        self._large_bytes_max = int(LARGE_OUTCOME_BYTES_MAX * share)
        self._large_bytes = 0
        self._started: dict[tuple[Owner, str], _Started] = {}
        """In the order of `since_s`."""
        self._started_count = 0
        self._started_max = max(STARTED_MIN, int(STARTED_MAX * share))
        self._forgotten_s = -math.inf
        """`since_s` of the last job whose starts were forgotten."""

    def fence(self, owner: Owner, job: str, epoch: int) -> None:
        """Lower epochs of the job may launch nothing more."""
        self.fences.pop((owner, job), None)
        self.fences[owner, job] = epoch
        if len(self.fences) > FENCES_MAX:
            del self.fences[next(iter(self.fences))]

    def epoch(self, owner: Owner, job: str) -> int:
        """The highest epoch that claimed the job; 0 if none has."""
        return self.fences.get((owner, job), 0)

    def remember(self, owner: Owner, report: Report) -> None:
        """The outcome was reported."""
        result = report.result
        size = (len(result) if type(result) is bytes else 0) + len(report.stdout) + len(report.stderr)
        if size <= LARGE_BYTES:  # As a rule: this is for every task.
            self._outcomes.append((owner, report))
            return
        self._large.append((size, (owner, report)))
        self._large_bytes += size
        while self._large_bytes > self._large_bytes_max:
            self._large_bytes -= self._large.popleft()[0]

    def outcomes(self, owner: Owner, job: str) -> Iterator[Report]:
        """Those of the job that are still held."""
        held = itertools.chain(self._outcomes, (entry for _, entry in self._large))
        return (report for held_for, report in held if report.job == job and held_for == owner)

    # ---- starts of jobs whose tasks may start once at most -----------------------------------

    def started(self, owner: Owner, job: str, task: int, now_s: float) -> None:
        """The task, which may start once at most, starts."""
        jobs = self._started
        known = jobs.get((owner, job))
        if known is None:
            known = jobs[owner, job] = _Started(now_s)
        if task not in known.tasks:
            known.tasks.add(task)
            self._started_count += 1
        while self._started_count > self._started_max:
            forgotten = jobs.pop(next(iter(jobs)))
            self._started_count -= len(forgotten.tasks)
            self._forgotten_s = forgotten.since_s

    def started_of(self, owner: Owner, job: str) -> list[int]:
        """The job's tasks that have started here, as far as they are remembered."""
        known = self._started.get((owner, job))
        return [] if known is None else sorted(known.tasks)

    def remembers_since(self, submitted_s: float) -> bool:
        """Whether all starts are remembered of jobs that were submitted then or later.

        A job is forgotten whole, and before all whose first task started later. So of one that was submitted after the
        first start of the last that was forgotten nothing has been.
        """
        return submitted_s > self._forgotten_s
