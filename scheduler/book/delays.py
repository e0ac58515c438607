"""Times before which held tasks of a stage do not start again."""

from __future__ import annotations

import heapq
import math


class Delays:
    """Those of one stage, by its count of tasks."""

    __slots__ = ("due", "timer_s")

    def __init__(self) -> None:
        self.due: list[tuple[float, int]] = []
        """A heap of (when its delay is over, task); some may wait no more."""
        self.timer_s = math.inf
        """When the next timer for these is due."""

    def wait(self, task: int, until_s: float) -> None:
        """The task waits so long."""
        heapq.heappush(self.due, (until_s, task))

    def take_due(self, now_s: float) -> list[tuple[float, int]]:
        """The (end, task) of those delays that are over, at a timer."""
        over = []
        while self.due and self.due[0][0] <= now_s:
            over.append(heapq.heappop(self.due))
        if self.timer_s <= now_s:
            self.timer_s = math.inf
        return over

    def next_timer_s(self) -> float | None:
        """When a timer is to be set; None if one is that is due no later than the next delay is over."""
        if not self.due or self.due[0][0] >= self.timer_s:
            return None
        self.timer_s = self.due[0][0]
        return self.timer_s
