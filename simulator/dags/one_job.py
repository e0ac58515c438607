"""How many tasks of one job run, as time passes (paper 002, figure 8)."""

from __future__ import annotations

from scheduler.altruistic.allocator import Allocator, Start
from simulator.dags.watching import Watcher


class OneJob(Watcher):
    """Each `every_s` from the job's arrival to its end: its running tasks, and those of them that were lent room."""

    def __init__(self, name: str, every_s: float) -> None:
        self.running: list[int] = []
        self.lent: list[int] = []
        self._name, self._every_s = name, every_s
        self._now = [0, 0]
        """Tasks that run, and those of them that were lent room."""
        self._begin_s: float | None = None

    def started(self, start: Start) -> None:
        self._count(start, start.tasks)

    def ended(self, start: Start, tasks: int) -> None:
        self._count(start, -tasks)

    def _count(self, start: Start, tasks: int) -> None:
        if start.job == self._name:
            self._now[0] += tasks
            self._now[1] += tasks * start.is_lent

    def pumped(self, allocator: Allocator, now_s: float) -> None:
        if self._begin_s is None:
            if self._name not in allocator.jobs:
                return
            self._begin_s = now_s
        if self._name not in allocator.jobs and self.running and not self.running[-1]:
            return
        while self._begin_s + len(self.running) * self._every_s <= now_s:
            self.running.append(self._now[0])
            self.lent.append(self._now[1])
