"""How fairly jobs are treated: in each window of time, what each has of what it is entitled to (paper 002, §5.2)."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from scheduler.altruistic.allocator import Allocator
from scheduler.altruistic.kernels import kernel
from scheduler.altruistic.profile import Indexes, Matrix
from scheduler.altruistic.ready import JobRows

WINDOW_S = 60.0

Vector = NDArray[np.float64]


def jain(values: Vector) -> float:
    """Jain's index: 1 if all are equal, 1/n if one of n has all."""
    squares = float((values**2).sum())
    return float(values.sum()) ** 2 / (len(values) * squares) if squares > 0 else 1.0


@dataclass
class Windows:
    """Jain's index of each window, over the jobs that are there throughout; with only one there is none."""

    total: Vector
    window_s: float = WINDOW_S
    by_entitlement: list[float] = field(default_factory=list)
    """Of dominant usage over entitlement."""
    by_usage: list[float] = field(default_factory=list)
    """Of dominant usage."""
    _begin_s: float = 0.0
    _number: Indexes = field(default_factory=lambda: np.zeros(0, np.int64))
    """By row of the allocator's: the job that the other columns are about."""
    _seconds: Vector = field(default_factory=lambda: np.zeros(0))
    """In this window."""
    _used: Matrix = field(default_factory=lambda: np.zeros((0, 0)))
    """Amount by resource, times seconds."""
    _entitled: Vector = field(default_factory=lambda: np.zeros(0))
    """Share, times seconds."""

    def pass_time(self, allocator: Allocator, from_s: float, to_s: float) -> None:
        """What jobs have, they have had from then to then."""
        while to_s >= self._begin_s + self.window_s:
            end_s = self._begin_s + self.window_s
            if from_s < end_s:
                self._add(allocator.rows, end_s - max(from_s, self._begin_s))
            self._close()
            from_s, self._begin_s = max(from_s, end_s), end_s
        if to_s > from_s:
            self._add(allocator.rows, to_s - from_s)

    def _add(self, rows: JobRows, seconds: float) -> None:
        if len(self._number) != len(rows.number):
            more = len(rows.number) - len(self._number)
            self._number = np.concatenate([self._number, np.full(more, -1)])
            self._seconds = np.concatenate([self._seconds, np.zeros(more)])
            self._entitled = np.concatenate([self._entitled, np.zeros(more)])
            self._used = np.concatenate([self._used.reshape(-1, rows.has.shape[1]), np.zeros((more, len(self.total)))])
        _pass(
            self._number, self._seconds, self._used, self._entitled, rows.number, rows.has, rows.share, float(seconds)
        )  # fmt: skip

    def _close(self) -> None:
        there = self._seconds >= self.window_s * (1 - 1e-9)
        if there.sum() >= 2:
            used = (self._used[there] / self.total).max(axis=1)
            self.by_entitlement.append(jain(used / self._entitled[there]))
            self.by_usage.append(jain(used))
        self._seconds[:], self._used[:], self._entitled[:] = 0.0, 0.0, 0.0


@kernel
def _pass(
    number: Indexes, own_s: Vector, used: Matrix, entitled: Vector, now: Indexes, has: Matrix, share: Vector,
    seconds: float,
) -> None:  # fmt: skip
    """So many seconds of what jobs have: columns of windows, of which rows of other jobs begin anew, and of rows."""
    for row in range(len(now)):
        if number[row] != now[row]:
            number[row] = now[row]
            own_s[row], entitled[row] = 0.0, 0.0
            for resource in range(has.shape[1]):
                used[row, resource] = 0.0
        if share[row] > 0:
            own_s[row] += seconds
        entitled[row] += share[row] * seconds
        for resource in range(has.shape[1]):
            used[row, resource] += has[row, resource] * seconds


@kernel
def add_busy(busy: Vector, total: Vector, free: Matrix, seconds: float) -> None:
    """By resource: what machines use of their total, times so many seconds, is added."""
    for resource in range(len(total)):
        left = 0.0
        for machine in range(len(free)):
            left += free[machine, resource]
        busy[resource] += (total[resource] - left) * seconds
