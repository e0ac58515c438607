"""Arcs of a graph that lasts, also convex ones, of which the graph sees the units in use and one more (§5.3.1).

A unit that is there and not used has a reduced cost from 0, and so have all that come after it: the flow is of least
cost for the whole convex arc as soon as its last unit in the graph is empty, or there are no more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from scheduler.flow.changes import Changes
from scheduler.flow.policies.policy import UnitCost
from scheduler.flow.problem import ProblemError

FORESEEN_MIN = 256
"""Tasks of a round for which more of pipes is shown beforehand: fewer are solved as quickly without."""


@dataclass(slots=True, eq=False)
class Pipe:
    """One arc, or unit arcs that are together one convex arc."""

    tail: int
    head: int
    cost: UnitCost
    capacity: int
    arcs: list[int] = field(default_factory=list)
    """Of a convex one those of the first units, cheapest first."""


class Pipes:
    """All pipes of a graph."""

    def __init__(self, changes: Changes) -> None:
        self.changes = changes
        self._open: dict[int, Pipe] = {}
        """Convex pipes that the graph sees only part of, by the last arc that it sees."""

    def add(self, tail: int, head: int, cost: UnitCost, capacity: int) -> Pipe:
        """A new one, from node to node."""
        pipe = Pipe(tail, head, cost, capacity)
        self._fill(pipe)
        return pipe

    def change(self, pipe: Pipe, cost: UnitCost, capacity: int) -> None:
        """Another cost or capacity."""
        if isinstance(cost, int) and isinstance(pipe.cost, int):
            (arc,) = pipe.arcs
            if cost != pipe.cost:
                self.changes.set_cost(arc, cost)
            if capacity != pipe.capacity:
                self.changes.set_capacity(arc, capacity)
            pipe.cost, pipe.capacity = cost, capacity
        elif callable(cost) and callable(pipe.cost):
            self._close(pipe)
            while len(pipe.arcs) > capacity:
                self.changes.remove_arc(pipe.arcs.pop())
            pipe.cost, pipe.capacity = cost, capacity
            for arc, unit in zip(pipe.arcs, self._units(pipe, 0, len(pipe.arcs)), strict=True):
                self.changes.set_cost(arc, unit)
            self._fill(pipe)
        else:
            self.remove(pipe)
            pipe.cost, pipe.capacity = cost, capacity
            self._fill(pipe)

    def remove(self, pipe: Pipe) -> None:
        """Its arcs go."""
        self._close(pipe)
        while pipe.arcs:
            self.changes.remove_arc(pipe.arcs.pop())

    def forget(self, pipe: Pipe) -> None:
        """Its arcs go with their node."""
        self._close(pipe)
        pipe.arcs.clear()

    def expose(self) -> bool:
        """After a solve: show more of the pipes that carry all that the graph sees of them. False if there are none."""
        if not self._open:
            return False
        graph = self.changes.graph
        last = np.fromiter(self._open, np.int64, len(self._open))
        rows: list[tuple[Pipe, int]] = []
        for arc in last[graph.flow[last] > 0].tolist():
            pipe = self._open.pop(arc)
            begin = len(pipe.arcs)
            rows += [(pipe, unit) for unit in self._units(pipe, begin, min(2 * begin, pipe.capacity))]
        self._show(rows)
        return bool(rows)

    def foresee(self, tasks: int) -> None:
        """Before a solve, with all changes made: so many tasks have come. Where they are more than there are pipes,
        each pipe is going to carry several units, which are shown at once instead of after several solves."""
        units = -(-tasks // len(self._open)) + 1 if self._open else 0
        if units <= 2 or tasks < FORESEEN_MIN:
            return
        rows: list[tuple[Pipe, int]] = []
        for arc, pipe in list(self._open.items()):
            begin, end = len(pipe.arcs), min(units, pipe.capacity)
            if begin < end:
                del self._open[arc]
                rows += [(pipe, unit) for unit in self._units(pipe, begin, end)]
        self._show(rows)

    def _show(self, rows: Sequence[tuple[Pipe, int]]) -> None:
        """Add the next arcs of pipes, at these costs."""
        if not rows:
            return
        ones = np.ones(len(rows), np.int64)
        tails, heads, costs = (
            np.array(column, np.int64) for column in zip(*((p.tail, p.head, unit) for p, unit in rows), strict=True)
        )
        numbers = self.changes.graph.add_arcs(tails, heads, costs, ones, 0 * ones)
        for (pipe, _), arc in zip(rows, numbers.tolist(), strict=True):
            pipe.arcs.append(arc)
        for pipe in {id(pipe): pipe for pipe, _ in rows}.values():
            self._reopen(pipe)

    def _fill(self, pipe: Pipe) -> None:
        """The first arcs of a pipe that may have none."""
        add, cost = self.changes.add_arc, pipe.cost
        if isinstance(cost, int):
            pipe.arcs.append(add(pipe.tail, pipe.head, cost, pipe.capacity))
            return
        if not pipe.arcs:
            pipe.arcs += [add(pipe.tail, pipe.head, unit, 1) for unit in self._units(pipe, 0, min(1, pipe.capacity))]
        self._reopen(pipe)

    def _units(self, pipe: Pipe, begin: int, end: int) -> list[int]:
        """What units of a convex pipe cost; `ProblemError` if they get cheaper."""
        assert callable(pipe.cost)
        costs = [pipe.cost(unit) for unit in range(max(begin - 1, 0), end)]
        for before, after in pairwise(costs):
            if after < before:
                raise ProblemError(
                    f"a unit of a convex arc costs {after:,}; allowed are costs from {before:,}, the one before"
                )
        return costs[1:] if begin > 0 else costs

    def _reopen(self, pipe: Pipe) -> None:
        if 0 < len(pipe.arcs) < pipe.capacity:
            self._open[pipe.arcs[-1]] = pipe

    def _close(self, pipe: Pipe) -> None:
        if pipe.arcs:
            self._open.pop(pipe.arcs[-1], None)
