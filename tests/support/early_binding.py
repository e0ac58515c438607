"""Random placement, per-task sampling and batch sampling once more, as the paper has them in §4.2 and §5.2.

They share no code with the daemons: what they and this say of the same jobs must agree but for which nodes are drawn.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable
from functools import partial

from loadgen.jobs import WorkloadJob

Action = Callable[[], None]


class EarlyBinding:
    """Single-slot nodes, one scheduler, a fixed delay. technique: "random", "per-task" or "batch", d = 2."""

    def __init__(self, jobs: list[WorkloadJob], nodes: int, technique: str, one_way_s: float, seed: int) -> None:
        self.response_s = [0.0] * len(jobs)
        self._jobs = jobs
        self._queues: list[deque[tuple[int, float]]] = [deque() for _ in range(nodes)]
        """The task that runs, and those that wait."""
        self._technique = technique
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
        """At the scheduler: tasks go out at once, or once queues have been looked at."""
        tasks = list(self._jobs[job].durations_s)
        everywhere = range(len(self._queues))
        if self._technique == "random":
            for seconds in tasks:
                self._send(job, seconds, self._rng.choice(everywhere))
        elif self._technique == "per-task":
            for seconds in tasks:
                self._after(self._one_way_s, partial(self._looked_at, job, [seconds], self._rng.sample(everywhere, 2)))
        else:
            nodes = self._rng.sample(everywhere, 2 * len(tasks))
            self._after(self._one_way_s, partial(self._looked_at, job, tasks, nodes))

    def _looked_at(self, job: int, tasks: list[float], nodes: list[int]) -> None:
        """At the nodes: the lengths of their queues, which the scheduler has one way later."""
        lengths = sorted((len(self._queues[node]), self._rng.random(), node) for node in nodes)
        self._after(self._one_way_s, partial(self._decided, job, tasks, [node for _, _, node in lengths]))

    def _decided(self, job: int, tasks: list[float], nodes: list[int]) -> None:
        for seconds, node in zip(tasks, nodes, strict=False):
            self._send(job, seconds, node)

    def _send(self, job: int, seconds: float, node: int) -> None:
        self._after(self._one_way_s, partial(self._arrived, job, seconds, node))

    def _arrived(self, job: int, seconds: float, node: int) -> None:
        self._queues[node].append((job, seconds))
        if len(self._queues[node]) == 1:
            self._after(seconds, partial(self._ended, node))

    def _ended(self, node: int) -> None:
        job, _ = self._queues[node].popleft()
        self.response_s[job] = max(self.response_s[job], self._now_s - self._jobs[job].arrival_s)
        if self._queues[node]:
            self._after(self._queues[node][0][1], partial(self._ended, node))
