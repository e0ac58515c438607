"""The timers of a pure core: what is to be done when; those that mean nothing any more are dropped in time."""

from __future__ import annotations

import heapq
from collections.abc import Callable

KEPT_MIN = 1000
"""Timers kept before any of them is looked at whether it still means something; then, whenever they have doubled."""


class Timers:
    """Actions by time; of equal times the one that was added first goes first. Times are seconds."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Callable[[float], None], Callable[[], bool] | None]] = []
        self._next = 0
        self._compact_above = KEPT_MIN

    def __len__(self) -> int:
        return len(self._heap)

    def at(self, at_s: float, action: Callable[[float], None], alive: Callable[[], bool] | None = None) -> None:
        """Call `action` with the time once it is `at_s`; it may be dropped before if `alive` says False."""
        heapq.heappush(self._heap, (at_s, self._next, action, alive))
        self._next += 1
        if len(self._heap) > self._compact_above:
            self._heap = [entry for entry in self._heap if entry[3] is None or entry[3]()]
            heapq.heapify(self._heap)
            self._compact_above = max(KEPT_MIN, 2 * len(self._heap))

    def next_deadline_s(self) -> float | None:
        """When the first of them is due."""
        return self._heap[0][0] if self._heap else None

    def run_due(self, now_s: float) -> None:
        """Time has come to `now_s`."""
        while self._heap and self._heap[0][0] <= now_s:
            heapq.heappop(self._heap)[2](now_s)
