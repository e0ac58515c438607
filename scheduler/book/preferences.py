"""Task-level constraints of a stage (§3.3): which of its unplaced tasks wants which nodes."""

from __future__ import annotations

import heapq

FREE = -1
"""Stands for all unplaced tasks without a constraint."""


class Preferences:
    """The unplaced tasks of a stage some of whose tasks have preferred nodes."""

    def __init__(self) -> None:
        self.preferred: dict[int, tuple[str, ...]] = {}
        """Tasks with preferred nodes, placed ones included."""
        self.constrained: dict[int, None] = {}
        """Unplaced tasks with preferred nodes, in the order in which they became unplaced."""
        self.wanting: dict[str, dict[int, None]] = {}
        """Node to the unplaced tasks that prefer it."""
        self.hopeless: dict[int, float] = {}
        """Of the unplaced tasks, and `FREE` for all without a constraint: those that no connected node may run, since
        when."""
        self._free: list[int] = []
        self._free_set: set[int] = set()

    @property
    def free(self) -> int:
        """Unplaced tasks that may run on any eligible node."""
        return len(self._free_set)

    def free_tasks(self) -> list[int]:
        """The unplaced tasks without a constraint, in order."""
        return sorted(self._free_set)

    def constrain(self, task: int, preferred: tuple[str, ...]) -> None:
        """From now on the task wants one of these nodes."""
        self.preferred[task] = preferred

    def add(self, task: int) -> None:
        """The task is unplaced (again)."""
        nodes = self.preferred.get(task)
        if nodes is None:
            heapq.heappush(self._free, task)
            self._free_set.add(task)
            return
        self.constrained[task] = None
        for node in nodes:
            self.wanting.setdefault(node, {})[task] = None

    def remove(self, task: int) -> None:
        """The task is unplaced no more."""
        if task in self._free_set:
            self._free_set.discard(task)
            return
        self.constrained.pop(task, None)
        self.hopeless.pop(task, None)
        for node in self.preferred[task]:
            wanting = self.wanting[node]
            del wanting[task]
            if not wanting:
                del self.wanting[node]

    def relax(self, task: int) -> None:
        """The unplaced task may run anywhere from now on (delay scheduling, §8)."""
        self.remove(task)
        del self.preferred[task]
        self.add(task)

    def next_free(self) -> int | None:
        """The first unplaced task without a constraint. The caller removes it."""
        while self._free:
            task = heapq.heappop(self._free)
            if task in self._free_set:
                return task
        return None

    def problem(self, unplaced: set[int]) -> str | None:
        """What is wrong with these books, given the stage's unplaced tasks."""
        if self._free_set | set(self.constrained) != unplaced:
            return f"unplaced are {sorted(unplaced)}, known as {sorted(self._free_set)} and {sorted(self.constrained)}"
        return None
