"""What the second implementations of the paper's techniques share: time, events, and the response times of jobs.

They share no code with the daemons: what they and those say of the same jobs must agree but for which nodes are drawn.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from functools import partial

from loadgen.jobs import WorkloadJob

Action = Callable[[], None]


class InFewLines:
    """Single-slot nodes, one scheduler, a fixed delay."""

    def __init__(self, jobs: list[WorkloadJob], one_way_s: float, seed: int) -> None:
        self.response_s = [0.0] * len(jobs)
        self._jobs = jobs
        self._one_way_s = one_way_s
        self._rng = random.Random(seed)
        self._now_s = 0.0
        self._events: list[tuple[float, int, Action]] = []
        self._added = 0

    def run(self) -> list[float]:
        """Response times of all jobs, in order of arrival, in seconds."""
        for number, job in enumerate(self._jobs):
            self._after(job.arrival_s + self._one_way_s, partial(self._submitted, number))
        while self._events:
            self._now_s, _, action = heapq.heappop(self._events)
            action()
        return self.response_s

    def _after(self, seconds: float, action: Action) -> None:
        self._added += 1
        heapq.heappush(self._events, (self._now_s + seconds, self._added, action))

    def _submitted(self, job: int) -> None:
        """The job is at the scheduler."""
        raise NotImplementedError
