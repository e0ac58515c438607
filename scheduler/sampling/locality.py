"""Reservations of a stage with task-level constraints (§3.3): which one was made for which task.

Each constrained task gets reservations at d of its preferred nodes, and all tasks together get
ceil(d·m): if d is no whole number, floor(d) each, and what is left goes to random tasks, one more
each. Tasks that want the same nodes are sampled for in one batch (§3.1), on distinct nodes while
there are enough. Reservations of all tasks at one node travel as one count.

A node that visits is given first the task that its oldest reservation was made for, then another
that prefers it, then one without a constraint. So a task's own reservation never goes to another
task while it is unplaced, and none is stranded.
"""

from __future__ import annotations

import math
from collections import deque
from itertools import cycle, islice
from typing import TYPE_CHECKING

from scheduler.book.preferences import FREE, Preferences
from scheduler.spreading import reservations_wanted, spread, spread_by_room

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping, Sequence

NOT_OCCUPIED: Mapping[str, float] = {}


class Locality(Preferences):
    """The unplaced tasks of a stage some of whose tasks have preferred nodes, and its live reservations."""

    def __init__(self) -> None:
        super().__init__()
        self.made_for: dict[str, deque[int]] = {}
        """Node to the tasks that its live reservations were made for, oldest first; `FREE` where it was made for
        whichever task without a constraint is next."""
        self.live = 0
        """Live reservations."""
        self.free_live = 0
        """Of these, those made for tasks without a constraint."""
        self.uncovered: dict[int, None] = {}
        """Unplaced constrained tasks without a live reservation, in order."""
        self._made: dict[int, int] = {}
        """Live reservations by the task that they were made for, which may be placed meanwhile, and come back."""
        self._in_vain = 0
        """Reservations spent in vain as the task that they were made for was placed, and whose loss the others have
        not made up for by being placed: nobody is owed another for them."""

    @property
    def lacking(self) -> bool:
        """Whether some unplaced task has no live reservation."""
        return bool(self.uncovered) or self.free > self.free_live

    def add(self, task: int) -> None:
        if task in self.preferred and task not in self._made:
            self.uncovered[task] = None
        super().add(task)

    def remove(self, task: int) -> None:
        """The task is unplaced no more; its reservations serve others."""
        self.uncovered.pop(task, None)
        super().remove(task)

    def take(self, node: str) -> int | None:
        """One reservation of the node is spent: the task for it, which is unplaced no more. None: nothing is spent."""
        queue = self.made_for.get(node)
        if not self.free and node not in self.wanting:
            return None
        own = self._pop(node, queue, 0) if queue else FREE
        if own in self.constrained:
            task: int | None = own
        elif own == FREE and self.free:
            task = self.next_free()
        else:
            task = next(iter(self.wanting.get(node, ())), None)
            if task is None:
                task = self.next_free()
        if task is not None:
            self.remove(task)
        return task

    def _pop(self, node: str, queue: deque[int], index: int) -> int:
        """Take a reservation of the node off the books: its oldest (0) or newest (-1)."""
        task = queue.popleft() if index == 0 else queue.pop()
        if not queue:
            del self.made_for[node]
        self.live -= 1
        if task == FREE:
            self.free_live -= 1
            return task
        self._made[task] -= 1
        if not self._made[task]:
            del self._made[task]
            if task in self.constrained:
                self.uncovered[task] = None
        return task

    def waste(self, node: str, count: int) -> None:
        """The oldest `count` reservations of the node are spent, and no task was found for them."""
        queue = self.made_for.get(node)
        for _ in range(min(count, len(queue) if queue else 0)):
            assert queue is not None
            task = self._pop(node, queue, 0)
            self._in_vain += not self.free if task == FREE else task not in self.constrained

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
        self, probe_ratio: float, nodes: Sequence[str], rng: random.Random, occupied: Mapping[str, float] = NOT_OCCUPIED
    ) -> list[tuple[str, int]]:
        """Make reservations for all that lack them, on nodes that may run the stage's tasks now; returns (node,
        reservations), merged per node. A task none of whose nodes may run it stays in `uncovered`.

        occupied: the share of a node's slots that placed tasks hold. Where they hold all, no reservation is made,
        unless a task has no other nodes.
        """
        allowed = frozenset(nodes)
        wanted = {task: [node for node in self.preferred[task] if node in allowed] for task in self.uncovered}
        if occupied:
            wanted = {task: [node for node in own if occupied.get(node, 0) < 1] or own for task, own in wanted.items()}
        wanted = {task: own for task, own in wanted.items() if own}
        shares, free_share = self._shares(probe_ratio, wanted, bool(nodes), rng)
        per_node: dict[str, int] = {}
        for tasks in _alike(wanted):
            self._sample(tasks, wanted[tasks[0]], shares, rng, per_node)
        if free_share > 0:
            if occupied:
                anywhere = spread_by_room(nodes, free_share, rng, lambda node: 1.0 - occupied.get(node, 0.0))
            else:
                anywhere = spread(nodes, free_share, rng)
            for node, count in anywhere:
                for _ in range(count):
                    self._reserve(node, FREE, per_node)
        return list(per_node.items())

    def _shares(
        self, probe_ratio: float, wanted: dict[int, list[str]], has_nodes: bool, rng: random.Random
    ) -> tuple[dict[int, int], int]:
        """How many reservations each of these tasks gets, and how many those without a constraint together: floor(d)
        for each, if it wants so many nodes, and of what is left of ceil(d·m) one more for some, at random."""
        least, most = math.floor(round(probe_ratio, 9)), reservations_wanted(probe_ratio, 1)
        shares = {task: min(least, len(own)) for task, own in wanted.items()}
        free = self.free if has_nodes else 0
        free_share = max(0, least * free - self.free_live)
        if most == least:
            return shares, free_share
        placeable = len(self.constrained) - (len(self.uncovered) - len(wanted)) + free
        total = reservations_wanted(probe_ratio, placeable)
        self._in_vain = min(self._in_vain, max(0, total - self.live))
        left = total - self.live - self._in_vain - sum(shares.values()) - free_share
        roomy = [task for task, own in wanted.items() if len(own) > least]
        free_room = min(free, max(0, most * free - self.free_live - free_share))
        for drawn in rng.sample(range(len(roomy) + free_room), max(0, min(left, len(roomy) + free_room))):
            if drawn < len(roomy):
                shares[roomy[drawn]] += 1
            else:
                free_share += 1
        return shares, free_share

    def _sample(
        self, tasks: list[int], nodes: list[str], shares: dict[int, int], rng: random.Random, per_node: dict[str, int]
    ) -> None:
        """Make reservations for tasks that want the same nodes: as many as they have shares, each of a task's own at
        another node."""
        if len(tasks) == 1:
            for node in rng.sample(nodes, shares[tasks[0]]):
                self._reserve(node, tasks[0], per_node)
            return
        # Those that get one more come first in each round: so a node's share, which is in one piece and no longer than
        # a round, has no task twice.
        in_order = sorted(tasks, key=lambda task: -shares[task])
        turns = cycle(in_order)
        for node, count in spread(nodes, sum(shares[task] for task in tasks), rng):
            for task in islice(turns, count):
                self._reserve(node, task, per_node)

    def reserve_at(self, node: str, count: int) -> int:
        """Make up to `count` reservations at the node, for unplaced tasks that may run there; returns how many."""
        tasks = [*islice(self.wanting.get(node, ()), count)]
        tasks += [FREE] * min(count - len(tasks), self.free)
        for task in tasks:
            self._reserve(node, task, {})
        return len(tasks)

    def _reserve(self, node: str, task: int, per_node: dict[str, int]) -> None:
        self.made_for.setdefault(node, deque()).append(task)
        per_node[node] = per_node.get(node, 0) + 1
        self.live += 1
        if task == FREE:
            self.free_live += 1
        else:
            self._made[task] = self._made.get(task, 0) + 1
            self.uncovered.pop(task, None)

    def problem_of(self, live: dict[str, int], unplaced: set[int]) -> str | None:
        """What is wrong with these books, given the stage's live reservations by node and its unplaced tasks."""
        counts = {node: len(queue) for node, queue in self.made_for.items()}
        if counts != live:
            return f"reservations by node are {live}, made for tasks {counts}"
        problem = self.problem(unplaced)
        if problem is not None:
            return problem
        made: dict[int, int] = {}
        for queue in self.made_for.values():
            for task in queue:
                made[task] = made.get(task, 0) + 1
        if sum(made.values()) != self.live or made.pop(FREE, 0) != self.free_live or made != self._made:
            return f"reservations by task are {made}, counted as {self._made} and {self.free_live}, {self.live} in all"
        uncovered = set(self.constrained) - set(made)
        if uncovered != set(self.uncovered):
            return f"without a reservation are {sorted(uncovered)}, not {list(self.uncovered)}"
        return None


def _alike(wanted: dict[int, list[str]]) -> list[list[int]]:
    """The tasks, those together that want the same nodes."""
    groups: dict[frozenset[str], list[int]] = {}
    for task, nodes in wanted.items():
        groups.setdefault(frozenset(nodes), []).append(task)
    return list(groups.values())
