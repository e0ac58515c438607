"""What a simulation records: when each task started."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator

from loadgen.jobs import WorkloadJob


class JobRecord:
    """A job and what became of it. `started_s`: of each task, in virtual seconds; not a number until it is known."""

    __slots__ = ("job", "nodes", "started_s", "unended")

    def __init__(self, job: WorkloadJob) -> None:
        tasks = len(job.durations_s)
        self.job = job
        self.started_s = array("d", [math.nan]) * tasks
        self.nodes = array("i", [-1]) * tasks
        """On which node each task ran; -1: not known (the central scheduler's slots are all one)."""
        self.unended = tasks
        """Tasks whose end is not known."""

    def ran(self, task: int, started_s: float, node: int) -> None:
        """The task started then and ran there; its end is known by now."""
        self.started_s[task] = started_s
        self.nodes[task] = node
        self.unended -= 1

    def waits_s(self) -> list[float]:
        """How long each task waited: from when it could have started, at its job's arrival or at the end of the stages
        before, until it did."""
        arrival_s = self.job.arrival_s
        if not self.job.stages:
            return [started_s - arrival_s for started_s in self.started_s]
        return [self.started_s[task] - ready_s for own, ready_s in self._ready_s() for task in own]

    def _ready_s(self) -> Iterator[tuple[range, float]]:
        """The tasks of each stage, and when they could start. A stage stands after those that it waits for."""
        ends_s: dict[str, float] = {}
        for stage, own in self.job.ranges():
            ready_s = max((ends_s[name] for name in stage.after), default=self.job.arrival_s)
            ends_s[stage.name] = max(
                (self.started_s[task] + self.job.durations_s[task] for task in own), default=ready_s
            )
            yield own, ready_s

    def ideal_s(self) -> float:
        """How long the job takes with no queueing and no overhead: its longest task, or its longest way through stages
        that each take as long as their longest task."""
        durations_s = self.job.durations_s
        if not self.job.stages:
            return max(durations_s)
        ends_s: dict[str, float] = {}
        for stage, own in self.job.ranges():
            ready_s = max((ends_s[name] for name in stage.after), default=0.0)
            ends_s[stage.name] = ready_s + max((durations_s[task] for task in own), default=0.0)
        return max(ends_s.values())
