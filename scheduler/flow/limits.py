"""What a flow network may hold: `ProblemError` names what is beyond that, its value and what is allowed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from scheduler.flow.problem import Integers, Problem, ProblemError

COST_BITS_MAX = 62
"""Of the largest cost × the nodes, with its sign: what searches add up then stays within 64 bits."""
FLOW_MAX = 2**40
"""Of an arc's capacity and a node's supply: what comes together at a node then stays within 64 bits."""
NUMBERS_MAX = 2**30
"""Of nodes, and of arcs."""


def check_problem(problem: Problem) -> None:
    """All of a problem."""
    for field in ("head", "cost", "capacity", "minimum"):
        column: Integers = getattr(problem, field)
        if column.shape != problem.tail.shape:
            raise ProblemError(f"{field} has shape {column.shape}: that of tail, {problem.tail.shape}, is allowed")
    check_supplies(problem.supply)
    there = np.ones(len(problem.supply), np.bool_)
    check_ends(problem.tail, problem.head, there)
    check_bounds(problem.capacity, problem.minimum)
    check_product(largest(problem.cost), len(problem.supply))


def check_supplies(supplies: Integers) -> None:
    """Of nodes."""
    refuse("node", "supply", supplies, (supplies > FLOW_MAX) | (supplies < -FLOW_MAX), f"-{FLOW_MAX} to {FLOW_MAX}")


def check_ends(tails: Integers, heads: Integers, there: NDArray[np.bool_]) -> None:
    """Of arcs; `there` says of each number whether a node has it."""
    for field, ends in (("tail", tails), ("head", heads)):
        absent = (ends < 0) | (ends >= len(there))
        absent[~absent] = ~there[ends[~absent]]
        refuse("arc", field, ends, absent, "the number of a node that is there")
    refuse("arc", "head", heads, heads == tails, "another node than its tail")


def check_bounds(capacities: Integers, minimums: Integers) -> None:
    """Of arcs."""
    refuse("arc", "capacity", capacities, (capacities < 0) | (capacities > FLOW_MAX), f"0 to {FLOW_MAX}")
    refuse("arc", "minimum", minimums, (minimums < 0) | (minimums > capacities), "0 to the arc's capacity")


def check_arc_bounds(capacity: int, minimum: int) -> None:
    """Of one arc, without arrays: they take longer than what they hold."""
    if not 0 <= capacity <= FLOW_MAX:
        raise ProblemError(f"arc: capacity {capacity}: 0 to {FLOW_MAX} is allowed")
    if not 0 <= minimum <= capacity:
        raise ProblemError(f"arc: minimum {minimum}: 0 to the arc's capacity, {capacity}, is allowed")


def check_supply(supply: int) -> None:
    """Of one node."""
    if not -FLOW_MAX <= supply <= FLOW_MAX:
        raise ProblemError(f"node: supply {supply}: -{FLOW_MAX} to {FLOW_MAX} is allowed")


def check_product(cost_max: int, nodes: int) -> None:
    """Of the largest cost and the nodes."""
    if cost_max * max(1, nodes) >= 2 ** (COST_BITS_MAX - 1):
        raise ProblemError(
            f"cost: the largest, {cost_max}, times {nodes} nodes needs more than {COST_BITS_MAX} bits; "
            f"at most {(2 ** (COST_BITS_MAX - 1) - 1) // max(1, nodes)} is allowed"
        )


def largest(costs: Integers) -> int:
    """Of the costs' absolute values."""
    return max(abs(int(costs.min())), abs(int(costs.max()))) if len(costs) else 0


def refuse(noun: str, field: str, values: Integers, wrong: NDArray[np.bool_], allowed: str) -> None:
    """`ProblemError` that names the first wrong value."""
    if wrong.any():
        place = int(np.argmax(wrong))
        raise ProblemError(f"{noun} {place} of {len(values)}: {field} {values[place]}: {allowed} is allowed")
