"""What a node monitor remembers of jobs for the sake of schedulers to come (DESIGN.md §5): fences and outcomes.

An owner is (user, instance): ids of jobs may be used again, and one user knows nothing of another's.
"""

from __future__ import annotations

import itertools
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


class Memory:
    """Fences and outcomes by (owner, job). `share` of the limits, for one of several node monitors in a process."""

    def __init__(self, share: float = 1.0) -> None:
        self.fences: dict[tuple[Owner, str], int] = {}
        """The highest epoch that claimed each job; see `fence`."""
        self._outcomes: deque[tuple[Owner, Report]] = deque(maxlen=max(OUTCOMES_MIN, int(OUTCOMES_MAX * share)))
        self._large: deque[tuple[int, tuple[Owner, Report]]] = deque()
        """With the bytes of each."""
        self._large_bytes_max = int(LARGE_OUTCOME_BYTES_MAX * share)
        self._large_bytes = 0

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
