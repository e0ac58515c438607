"""What a node monitor remembers of jobs for the sake of schedulers to come (DESIGN.md §5): fences and outcomes.

An owner is (user, instance): ids of jobs may be used again, and one user knows nothing of another's.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from sparrow_py.kept import Kept
from sparrow_py.messages import Report

Owner = tuple[str, int]
FENCES_MAX = 100_000
"""Claimed jobs remembered; beyond that the oldest is forgotten of the user that has most."""
OUTCOMES_MAX = 10_000
OUTCOMES_MIN = 20
LARGE_BYTES = 1024
LARGE_OUTCOME_BYTES_MAX = 32 << 20
"""Outcomes held for a scheduler that may claim their job: the latest, so many; of those above `LARGE_BYTES`, the
latest of so many bytes together. No user's drive out another's (`sparrow_py.kept`).

They bridge the moment in which an outcome was reported to a scheduler that died before the client had it.
"""


class Memory:
    """Fences and outcomes by (owner, job). `share` of the limits, for one of several node monitors in a process."""

    def __init__(self, share: float = 1.0) -> None:
        self.fences: dict[tuple[Owner, str], int] = {}
        """The highest epoch that claimed each job; see `fence`."""
        self._fenced: dict[str, dict[tuple[Owner, str], None]] = {}
        """The same by user, the oldest first."""
        self._outcomes: Kept[tuple[Owner, Report]] = Kept(max(OUTCOMES_MIN, int(OUTCOMES_MAX * share)))
        self._large: Kept[tuple[Owner, Report]] = Kept(int(LARGE_OUTCOME_BYTES_MAX * share))

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
