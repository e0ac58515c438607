"""Random placement, per-task sampling and batch sampling once more, as the paper has them in §4.2 and §5.2."""

from __future__ import annotations

from collections import deque
from functools import partial

from loadgen.jobs import WorkloadJob
from tests.support.in_few_lines import InFewLines


class EarlyBinding(InFewLines):
    """Single-slot nodes, one scheduler, a fixed delay. technique: "random", "per-task" or "batch", d = 2."""

    def __init__(self, jobs: list[WorkloadJob], nodes: int, technique: str, one_way_s: float, seed: int) -> None:
        super().__init__(jobs, one_way_s, seed)
        self._queues: list[deque[tuple[int, float]]] = [deque() for _ in range(nodes)]
        """The task that runs, and those that wait."""
        self._technique = technique

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
