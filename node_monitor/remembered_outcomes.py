"""Outcomes that were reported, for schedulers that claim their jobs later.

They bridge the moment in which an outcome was reported to a scheduler that died before the client had it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from node_monitor.fences import Owner
from sparrow_py.limits.latest_of_users import Latest
from sparrow_py.wire.messages import Report

OUTCOMES_MAX = 10_000
OUTCOMES_MIN = 20
LARGE_BYTES = 1024
LARGE_OUTCOME_BYTES_MAX = 32 << 20
"""Outcomes held for a scheduler that may claim their job: the latest, so many; of those above `LARGE_BYTES`, the
latest of so many bytes together. No user's drive out another's (`sparrow_py.limits.latest_of_users`)."""


class RememberedOutcomes:
    """The latest outcomes of each user. `share` of the limits, for one of several nodes in a process."""

    __slots__ = ("_large", "_small")

    def __init__(self, share: float = 1.0) -> None:
        self._small: Latest[tuple[Owner, Report]] = Latest(max(OUTCOMES_MIN, int(OUTCOMES_MAX * share)))
        self._large: Latest[tuple[Owner, Report]] = Latest(int(LARGE_OUTCOME_BYTES_MAX * share))

    def remember(self, owner: Owner, report: Report) -> None:
        """The outcome was reported."""
        result = report.result
        size = (len(result) if type(result) is bytes else 0) + len(report.stdout) + len(report.stderr)
        if size <= LARGE_BYTES:  # As a rule: this is for every task.
            self._small.add(owner[0], (owner, report))
        else:
            self._large.add(owner[0], (owner, report), size)

    def of(self, owner: Owner, job: str) -> Iterator[Report]:
        """Those of the job that are still held."""
        held = itertools.chain(self._small.of(owner[0]), self._large.of(owner[0]))
        return (report for held_for, report in held if report.job == job and held_for == owner)
