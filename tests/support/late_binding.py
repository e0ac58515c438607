"""Batch sampling with late binding once more, as the paper has it in §3 and in as few lines as it takes."""

from __future__ import annotations

from collections import deque
from functools import partial

from loadgen.jobs import WorkloadJob
from tests.support.in_few_lines import InFewLines


class LateBinding(InFewLines):
    """Single-slot nodes, one scheduler, a fixed delay; no cancellation and nothing else that came later."""

    def __init__(self, jobs: list[WorkloadJob], nodes: int, probe_ratio: int, one_way_s: float, seed: int) -> None:
        super().__init__(jobs, one_way_s, seed)
        self._left = [deque(job.durations_s) for job in jobs]
        self._queues: list[deque[int]] = [deque() for _ in range(nodes)]
        self._busy = [False] * nodes
        self._probe_ratio = probe_ratio

    def _submitted(self, job: int) -> None:
        """At the scheduler: d·m reservations to distinct nodes."""
        count = self._probe_ratio * len(self._left[job])
        for node in self._rng.sample(range(len(self._queues)), count):
            self._after(self._one_way_s, partial(self._reserved, node, job))

    def _reserved(self, node: int, job: int) -> None:
        self._queues[node].append(job)
        self._next(node)

    def _next(self, node: int) -> None:
        """A node with a free slot asks for a task of its oldest reservation."""
        if not self._busy[node] and self._queues[node]:
            self._busy[node] = True
            self._after(self._one_way_s, partial(self._asked, node, self._queues[node].popleft()))

    def _asked(self, node: int, job: int) -> None:
        """At the scheduler: the job's next task, or none."""
        seconds = self._left[job].popleft() if self._left[job] else None
        self._after(self._one_way_s, partial(self._answered, node, job, seconds))

    def _answered(self, node: int, job: int, seconds: float | None) -> None:
        if seconds is not None:
            end_s = self._now_s + seconds - self._jobs[job].arrival_s
            self.response_s[job] = max(self.response_s[job], end_s)
        self._after(seconds or 0.0, partial(self._freed, node))

    def _freed(self, node: int) -> None:
        self._busy[node] = False
        self._next(node)
