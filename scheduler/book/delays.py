"""Times before which held tasks of a stage do not start again."""

from __future__ import annotations

import heapq


class Delays:
    """Those of one stage, by its count of tasks."""

    __slots__ = ("due",)

    def __init__(self) -> None:
        self.due: list[tuple[float, int]] = []
        """A heap of (when its delay is over, task); some may wait no more."""

    def wait(self, task: int, until_s: float) -> bool:
        """The task waits so long; whether no other's delay is over before."""
        heapq.heappush(self.due, (until_s, task))
        return self.due[0][0] == until_s

    def take_due(self, now_s: float) -> list[tuple[float, int]]:
        """The (end, task) of those delays that are over."""
        over = []
        while self.due and self.due[0][0] <= now_s:
            over.append(heapq.heappop(self.due))
        return over
