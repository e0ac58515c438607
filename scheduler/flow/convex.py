"""Convex arcs: each further unit costs as much as the one before, or more (paper 004, §5.3.1).

`ConvexArc` says what the next unit costs; `expand` makes unit arcs of all of it; `solve_convex` only of as much as a
solver needs, since those of a large job are many: 10,000 tasks before 12,500 machines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from scheduler.flow.building import Building
from scheduler.flow.problem import InfeasibleError, Integers, Problem, ProblemError, Solution
from scheduler.flow.solvers.solver import Solve

UNITS_MAX = 1 << 20
"""Of a convex arc."""


@dataclass(frozen=True)
class ConvexArc:
    """An arc on which the unit after k others costs `cost(k)`: no less than the one before it."""

    tail: int
    head: int
    capacity: int
    cost: Callable[[int], int]

    def __post_init__(self) -> None:
        if not 0 <= self.capacity <= UNITS_MAX:
            raise ProblemError(f"capacity of a convex arc is {self.capacity:,}; allowed are 0 to {UNITS_MAX:,}")

    def next_cost(self, flow: int) -> int | None:
        """What one unit more costs; None if the arc is full."""
        return self.cost(flow) if flow < self.capacity else None

    def last_cost(self, flow: int) -> int | None:
        """What the last unit costs, and what one less would save; None if there is none."""
        return self.cost(flow - 1) if flow > 0 else None

    def unit_costs(self, count: int) -> list[int]:
        """Of so many units, or of as many as there are; `ProblemError` if they get cheaper."""
        costs = [self.cost(unit) for unit in range(min(count, self.capacity))]
        for unit in range(1, len(costs)):
            if costs[unit] < costs[unit - 1]:
                raise ProblemError(
                    f"unit {unit} of the convex arc {self.tail} → {self.head} costs {costs[unit]:,}; it must cost"
                    f" {costs[unit - 1]:,} or more, as the one before it does"
                )
        return costs


def rising(first: int, step: int) -> Callable[[int], int]:
    """Costs that rise by the same from unit to unit: what load spreading and bandwidth need."""
    return lambda unit: first + step * unit


def stepped(costs: Sequence[int]) -> Callable[[int], int]:
    """Costs unit by unit, as figure 5.16b has them."""
    return lambda unit: costs[unit]


def expand(network: Building, arc: ConvexArc) -> list[int]:
    """The numbers of unit arcs that are together what the convex arc is; alike ones are one arc."""
    numbers = []
    costs, counts = np.unique(np.array(arc.unit_costs(arc.capacity), np.int64), return_counts=True)
    for cost, count in zip(costs.tolist(), counts.tolist(), strict=True):
        numbers.append(network.add_arc(arc.tail, arc.head, cost, count))
    return numbers


@dataclass(frozen=True, slots=True)
class ConvexSolution:
    """The answer of a problem with convex arcs."""

    solution: Solution
    """Of the problem's own arcs, then of the units that were exposed. Its cost is that of all."""
    flow: Integers
    """Shape (convex arcs,)."""
    exposed: int
    """How many units the solver has seen."""


def solve_convex(problem: Problem, arcs: Sequence[ConvexArc], solve: Solve) -> ConvexSolution:
    """Solve a problem with convex arcs beside its own, showing of each of these one unit more than is used.

    A unit that is shown and not used has a reduced cost from 0, and so have all that come after it. So the flow is of
    least cost for the whole arcs as soon as each has such a unit, or is shown in full. How many are shown doubles
    where all are used, so a large job takes a few solves.
    """
    shown = [min(1, arc.capacity) for arc in arcs]
    while True:
        costs = [arc.unit_costs(count) for arc, count in zip(arcs, shown, strict=True)]
        whole = _with_units(problem, arcs, costs)
        try:
            solution = solve(whole)
        except InfeasibleError:
            if all(count == arc.capacity for arc, count in zip(arcs, shown, strict=True)):
                raise
            shown = [min(2 * count, arc.capacity) for arc, count in zip(arcs, shown, strict=True)]
            continue
        ends = np.cumsum([0, *shown])
        units = solution.flow[len(problem.tail) :]
        flow = np.array([units[ends[at] : ends[at + 1]].sum() for at in range(len(arcs))], np.int64)
        full = [used == count < arc.capacity for used, count, arc in zip(flow.tolist(), shown, arcs, strict=True)]
        if not any(full):
            return ConvexSolution(solution, flow, sum(shown))
        shown = [
            min(2 * count, arc.capacity) if more else count for more, count, arc in zip(full, shown, arcs, strict=True)
        ]


def _with_units(problem: Problem, arcs: Sequence[ConvexArc], costs: Sequence[Sequence[int]]) -> Problem:
    counts = [len(units) for units in costs]
    ones = np.ones(sum(counts), np.int64)
    return replace(
        problem,
        tail=np.append(problem.tail, np.repeat(np.array([arc.tail for arc in arcs], np.int64), counts)),
        head=np.append(problem.head, np.repeat(np.array([arc.head for arc in arcs], np.int64), counts)),
        cost=np.append(problem.cost, np.array([cost for units in costs for cost in units], np.int64)),
        capacity=np.append(problem.capacity, ones),
        minimum=np.append(problem.minimum, 0 * ones),
    )
