"""What a simulation records: when each task started."""

from __future__ import annotations

import math
from array import array

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
