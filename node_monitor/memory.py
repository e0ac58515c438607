"""What a node monitor remembers of jobs for the sake of schedulers to come (DESIGN.md §5): fences and outcomes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from sparrow_py.job import BlobRef
from sparrow_py.messages import Report

FENCES_MAX = 100_000
"""Claimed jobs remembered; the oldest are forgotten first."""
OUTCOMES_MAX = 10_000
OUTCOMES_MIN = 100
OUTCOME_BYTES_MAX = 32 << 20
"""Outcomes held for a scheduler that may claim their job: the latest, as many and as large as this together.

They bridge the moment in which an outcome was reported to a scheduler that died before the client had it.
"""


class Memory:
    """Fences and outcomes by (user, job). `share` of the limits, for one of several node monitors in a process."""

    def __init__(self, share: float = 1.0) -> None:
        self._fences: dict[tuple[str, str], int] = {}
        self._outcomes: deque[tuple[str, Report]] = deque()
        self._outcomes_max = max(OUTCOMES_MIN, int(OUTCOMES_MAX * share))
        self._bytes_max = int(OUTCOME_BYTES_MAX * share)
        self._bytes = 0

    def fence(self, user: str, job: str, epoch: int) -> None:
        """Lower epochs of the job may launch nothing more."""
        self._fences.pop((user, job), None)
        self._fences[user, job] = epoch
        if len(self._fences) > FENCES_MAX:
            del self._fences[next(iter(self._fences))]

    def epoch(self, user: str, job: str) -> int:
        """The highest epoch that claimed the job; 0 if none has."""
        return self._fences.get((user, job), 0) if self._fences else 0

    def remember(self, user: str, report: Report) -> None:
        """The outcome was reported."""
        self._outcomes.append((user, report))
        self._bytes += _size(report)
        while len(self._outcomes) > self._outcomes_max or self._bytes > self._bytes_max:
            self._bytes -= _size(self._outcomes.popleft()[1])

    def outcomes(self, user: str, job: str) -> Iterator[Report]:
        """Those of the job that are still held, oldest first."""
        return (report for owner, report in self._outcomes if report.job == job and owner == user)


def _size(report: Report) -> int:
    return 0 if isinstance(report.result, BlobRef) else len(report.result) + len(report.stdout) + len(report.stderr)
