"""Which tasks of a stage are slow (Sparrow §3.4): those that have been running for longer than the others took.

Pure: no sockets, clock or chance. `speculator` asks for one stage at a time.
"""

from __future__ import annotations

import heapq
import math
from collections import OrderedDict

from sparrow_py.job import TaskStatus
from sparrow_py.speculation import Speculation

ROUNDING = 1e-9
"""By rounding, a share of a number of tasks may be this much too large."""


class RunningMedian:
    """The median of the numbers added so far. To add one costs O(log n)."""

    __slots__ = ("_lower", "_upper")

    def __init__(self) -> None:
        self._lower: list[float] = []
        """A heap of the lower half, negated, so that the largest comes first. Never shorter than the upper half."""
        self._upper: list[float] = []
        """A heap of the upper half."""

    def add(self, number: float) -> None:
        """One more number."""
        heapq.heappush(self._upper, -heapq.heappushpop(self._lower, -number))
        if len(self._upper) > len(self._lower):
            heapq.heappush(self._lower, -heapq.heappop(self._upper))

    @property
    def value(self) -> float | None:
        """The median; None if there are no numbers."""
        if not self._lower:
            return None
        if len(self._lower) > len(self._upper):
            return -self._lower[0]
        return (self._upper[0] - self._lower[0]) / 2


class SlowTasks:
    """The tasks of one stage: those that run, and which of them are slow and get a copy, as far as `speculate` allows.
    Tasks may have any numbers. Times are seconds of any clock that never goes back."""

    def __init__(self, task_count: int, speculate: Speculation) -> None:
        self.running: OrderedDict[int, float] = OrderedDict()
        """The tasks that run and may get a copy, and when each was placed; the first one comes first. (In a plain dict
        the search for the first key takes the longer, the more keys before it are gone.)"""
        self._speculate = speculate
        self._task_count = task_count
        self._copies_left = math.ceil(speculate.copies_max * task_count - ROUNDING)
        self._finished = 0
        self._ended_otherwise = 0
        self._median_s = RunningMedian()

    # ---- events ------------------------------------------------------------------------------

    def runs(self, task: int, now_s: float) -> None:
        """The task was placed, perhaps not for the first time, and may get a copy."""
        self.running[task] = now_s
        self.running.move_to_end(task)

    def forget(self, task: int) -> None:
        """The task gets no copy any more."""
        self.running.pop(task, None)

    def count(self, status: TaskStatus, service_s: float | None) -> None:
        """A task has ended with this status, after it ran for so long."""
        if status is not TaskStatus.FINISHED:
            self._ended_otherwise += 1
            return
        self._finished += 1
        if service_s is not None:
            self._median_s.add(service_s)

    def give_up(self) -> None:
        """No task gets a copy any more."""
        self._copies_left = 0
        self.running.clear()

    # ---- decisions ---------------------------------------------------------------------------

    def next_deadline_s(self) -> float | None:
        """When the next task will be slow; None if that is not known, or if no task may get a copy any more."""
        if not self.running or not self._copies_left:
            return None
        slow_s = self._slow_s()
        return None if slow_s is None else next(iter(self.running.values())) + slow_s

    def take_slow(self, now_s: float) -> list[int]:
        """The tasks that are slow by now and get a copy, the longest-running first. Each is returned once."""
        slow_s = self._slow_s()
        slow: list[int] = []
        if slow_s is None:
            return slow
        for task, placed_s in self.running.items():
            if placed_s + slow_s > now_s or len(slow) == self._copies_left:
                break
            slow.append(task)
        for task in slow:
            del self.running[task]
        self._copies_left -= len(slow)
        return slow

    def _slow_s(self) -> float | None:
        """A task that runs for longer than that is slow; None while too few tasks have finished."""
        median_s = self._median_s.value
        counted = self._task_count - self._ended_otherwise
        if median_s is None or self._finished < self._speculate.quantile * counted - ROUNDING:
            return None
        return max(self._speculate.slowdown * median_s, self._speculate.running_s_min)
