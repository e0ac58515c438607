"""Task-level constraints of a stage (§3.3): which reservation was made for which task.

Each constrained task gets reservations at d of its preferred nodes; those of all tasks at one
node travel as one count. A node that visits is given first the task that its oldest reservation
was made for, then another that prefers it, then one without a constraint. So a task's own
reservation never goes to another task while it is unplaced, and none is stranded.
"""

from __future__ import annotations

import heapq
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING

from scheduler.sampling.sampling import reservations_wanted

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

FREE = -1
"""In `made_for`: the reservation was made for whichever task without a constraint is next."""


class Locality:
    """The unplaced tasks of a stage some of whose tasks have preferred nodes, and its live reservations."""

    def __init__(self) -> None:
        self.preferred: dict[int, tuple[str, ...]] = {}
        """Tasks with preferred nodes, placed ones included."""
        self.made_for: dict[str, deque[int]] = {}
        """Node to the tasks that its live reservations were made for, oldest first."""
        self.free_live = 0
        """Live reservations made for tasks without a constraint."""
        self.uncovered: dict[int, None] = {}
        """Unplaced constrained tasks without a live reservation, in order."""
        self.hopeless: dict[int, float] = {}
        """Of `uncovered`, and `FREE` for all without a constraint: those that no connected node may run, since when."""
        self._made: dict[int, int] = {}
        """Live reservations by the task that they were made for, which may be placed meanwhile, and come back."""
        self._constrained: set[int] = set()
        """Unplaced tasks with preferred nodes."""
        self._wanting: dict[str, dict[int, None]] = {}
        self._free: list[int] = []
        self._free_set: set[int] = set()

    @property
    def free(self) -> int:
        """Unplaced tasks that may run on any eligible node."""
        return len(self._free_set)

    @property
    def lacking(self) -> bool:
        """Whether some unplaced task has no live reservation."""
        return bool(self.uncovered) or self.free > self.free_live

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
        self._constrained.add(task)
        if task not in self._made:
            self.uncovered[task] = None
        for node in nodes:
            self._wanting.setdefault(node, {})[task] = None

    def remove(self, task: int) -> None:
        """The task is unplaced no more; its reservations serve others."""
        if task in self._free_set:
            self._free_set.discard(task)
            return
        self._constrained.discard(task)
        self.uncovered.pop(task, None)
        self.hopeless.pop(task, None)
        for node in self.preferred[task]:
            wanting = self._wanting[node]
            del wanting[task]
            if not wanting:
                del self._wanting[node]

    def relax(self, task: int) -> None:
        """The unplaced task may run anywhere from now on (delay scheduling, §8)."""
        self.remove(task)
        del self.preferred[task]
        self.add(task)

    def take(self, node: str) -> int | None:
        """One reservation of the node is spent: the task for it, which is unplaced no more. None: nothing is spent."""
        queue = self.made_for.get(node)
        if not self.free and node not in self._wanting:
            return None
        own = self._pop(node, queue, 0) if queue else FREE
        if own in self._constrained:
            task: int | None = own
        elif own == FREE and self.free:
            task = self._next_free()
        else:
            task = next(iter(self._wanting.get(node, ())), None)
            if task is None:
                task = self._next_free()
        if task is not None:
            self.remove(task)
        return task

    def _next_free(self) -> int | None:
        while self._free:
            task = heapq.heappop(self._free)
            if task in self._free_set:
                return task
        return None

    def _pop(self, node: str, queue: deque[int], index: int) -> int:
        """Take a reservation of the node off the books: its oldest (0) or newest (-1)."""
        task = queue.popleft() if index == 0 else queue.pop()
        if not queue:
            del self.made_for[node]
        if task == FREE:
            self.free_live -= 1
            return task
        self._made[task] -= 1
        if not self._made[task]:
            del self._made[task]
            if task in self._constrained:
                self.uncovered[task] = None
        return task

    def waste(self, node: str, count: int) -> None:
        """The oldest `count` reservations of the node are spent, and no task was found for them."""
        queue = self.made_for.get(node)
        for _ in range(min(count, len(queue) if queue else 0)):
            assert queue is not None
            self._pop(node, queue, 0)

    def drop(self, node: str, count: int) -> None:
        """The newest `count` reservations of the node are gone: refused, or gone with it."""
        queue = self.made_for.get(node)
        for _ in range(min(count, len(queue) if queue else 0)):
            assert queue is not None
            self._pop(node, queue, -1)

    def clear(self) -> None:
        """All reservations are gone."""
        for node, queue in list(self.made_for.items()):
            self.drop(node, len(queue))

    def choose(
        self,
        probe_ratio: float,
        may_run: Callable[[str], bool],
        spread_free: Callable[[int], list[tuple[str, int]]],
        rng: random.Random,
    ) -> list[tuple[str, int]]:
        """Make reservations for all that lack them; returns (node, reservations), merged per node.

        `spread_free` says where reservations of tasks without a constraint go. A task none of whose
        nodes may run it stays in `uncovered`.
        """
        per_node: dict[str, int] = {}
        for task in list(self.uncovered):
            nodes = [node for node in self.preferred[task] if may_run(node)]
            for node in rng.sample(nodes, min(reservations_wanted(probe_ratio, 1), len(nodes))):
                self._reserve(node, task, per_node)
        missing = reservations_wanted(probe_ratio, self.free) - self.free_live
        if missing > 0:
            for node, count in spread_free(missing):
                for _ in range(count):
                    self._reserve(node, FREE, per_node)
        return list(per_node.items())

    def reserve_at(self, node: str, count: int) -> int:
        """Make up to `count` reservations at the node, for unplaced tasks that may run there; returns how many."""
        tasks = [*islice(self._wanting.get(node, ()), count)]
        tasks += [FREE] * min(count - len(tasks), self.free)
        for task in tasks:
            self._reserve(node, task, {})
        return len(tasks)

    def _reserve(self, node: str, task: int, per_node: dict[str, int]) -> None:
        self.made_for.setdefault(node, deque()).append(task)
        per_node[node] = per_node.get(node, 0) + 1
        if task == FREE:
            self.free_live += 1
        else:
            self._made[task] = self._made.get(task, 0) + 1
            self.uncovered.pop(task, None)

    def problem(self, live: dict[str, int], unplaced: set[int]) -> str | None:
        """What is wrong with these books, given the ticket's live reservations and the unplaced tasks."""
        counts = {node: len(queue) for node, queue in self.made_for.items()}
        if counts != live:
            return f"reservations by node are {live}, made for tasks {counts}"
        if self._free_set | self._constrained != unplaced:
            return f"unplaced are {sorted(unplaced)}, known as {sorted(self._free_set)} and {sorted(self._constrained)}"
        made: dict[int, int] = {}
        for queue in self.made_for.values():
            for task in queue:
                made[task] = made.get(task, 0) + 1
        if made.pop(FREE, 0) != self.free_live or made != self._made:
            return f"reservations by task are {made}, counted as {self._made} and {self.free_live}"
        if self._constrained - set(made) != set(self.uncovered):
            return f"without a reservation are {sorted(self._constrained - set(made))}, not {list(self.uncovered)}"
        return None
