"""What a flow network may hold: `ProblemError` names what is beyond that, its value and what is allowed.

One set of limits for files, graphs and all solvers.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from scheduler.flow.problem import Integers, Problem, ProblemError

NODES_MAX = 1 << 22
ARCS_MAX = 1 << 25
"""Of a problem: 27 times the machines' graph that the thesis solves."""
CAPACITY_MAX = (1 << 32) - 1
"""Of an arc, and of a node's supply and demand: sums over all arcs stay within 62 bits."""
PRODUCT_MAX = (1 << 62) - 1
"""Of the largest cost, the nodes, and the nodes plus one: cost scaling and distances compute with such numbers."""


def cost_max(nodes: int) -> int:
    """The largest cost, up or down, that an arc of a problem with so many nodes may have."""
    return PRODUCT_MAX // (max(nodes, 1) * (nodes + 1))


def allowed(lowest: int, highest: int) -> str:
    """What numbers a field may have, in words."""
    if highest < lowest:
        return "none is allowed"
    return f"allowed are {lowest:,} to {highest:,}"


# ---- problems ------------------------------------------------------------------------------------------------------


def check_problem(problem: Problem) -> None:
    """All that solvers ask of a problem."""
    check_arrays(problem)
    check_balance(problem)


def check_arrays(problem: Problem) -> None:
    """All but that supplies and demands are equal: so much has to hold of a graph that is being made, too."""
    _check_shapes(problem)
    check_supplies(problem.supply)
    check_ends(problem.tail, problem.head, np.ones(len(problem.supply), np.bool_))
    check_bounds(problem.capacity, problem.minimum)
    check_costs(problem.cost, len(problem.supply))


def check_balance(problem: Problem) -> None:
    """Supplies and demands are equal."""
    total = int(problem.supply.sum())
    if total:
        raise ProblemError(f"supplies add up to {total:,}; they must add up to 0")


def _check_shapes(problem: Problem) -> None:
    arcs, nodes = problem.tail.shape, problem.supply.shape
    for field in ("tail", "head", "cost", "capacity", "minimum", "supply"):
        values = getattr(problem, field)
        if values.dtype != np.int64 or values.ndim != 1:
            raise ProblemError(f"{field} is an array of {values.dtype} of shape {values.shape}; it must be int64, flat")
        if field != "supply" and values.shape != arcs:
            raise ProblemError(f"{field} has {len(values):,} entries; there are {arcs[0]:,} arcs")
    check_number("node", nodes[0])
    check_number("arc", arcs[0])


# ---- many at a time ------------------------------------------------------------------------------------------------


def check_number(noun: str, count: int) -> None:
    """Of nodes, or of arcs."""
    most = NODES_MAX if noun == "node" else ARCS_MAX
    if count > most:
        raise ProblemError(f"there are {count:,} {noun}s; {allowed(0, most)}")


def check_supplies(supplies: Integers) -> None:
    """Of nodes."""
    wrong = (supplies > CAPACITY_MAX) | (supplies < -CAPACITY_MAX)
    refuse("node", "supply", supplies, wrong, allowed(-CAPACITY_MAX, CAPACITY_MAX))


def check_ends(tails: Integers, heads: Integers, there: NDArray[np.bool_]) -> None:
    """Of arcs; `there` says of each number whether a node has it."""
    for field, ends in (("tail", tails), ("head", heads)):
        absent = (ends < 0) | (ends >= len(there))
        absent[~absent] = ~there[ends[~absent]]
        refuse("arc", field, ends, absent, "there is no such node")
    refuse("arc", "head", heads, heads == tails, "that is its tail; it must be another node")


def check_bounds(capacities: Integers, minimums: Integers) -> None:
    """Of arcs."""
    refuse("arc", "capacity", capacities, (capacities < 0) | (capacities > CAPACITY_MAX), allowed(0, CAPACITY_MAX))
    wrong = (minimums < 0) | (minimums > capacities)
    if wrong.any():
        refuse("arc", "minimum", minimums, wrong, allowed(0, int(capacities[np.argmax(wrong)])))


def check_costs(costs: Integers, nodes: int) -> None:
    """Of arcs of a problem with so many nodes."""
    most = cost_max(nodes)
    refuse("arc", "cost", costs, (costs > most) | (costs < -most), f"with {nodes:,} nodes {allowed(-most, most)}")


# ---- one at a time: arrays take longer than what they hold -----------------------------------------------------------


def check_arc_bounds(capacity: int, minimum: int) -> None:
    """Of one arc."""
    if not 0 <= capacity <= CAPACITY_MAX:
        raise ProblemError(f"capacity of the arc is {capacity:,}; {allowed(0, CAPACITY_MAX)}")
    if not 0 <= minimum <= capacity:
        raise ProblemError(f"minimum of the arc is {minimum:,}; {allowed(0, capacity)}")


def check_supply(supply: int) -> None:
    """Of one node."""
    if not -CAPACITY_MAX <= supply <= CAPACITY_MAX:
        raise ProblemError(f"supply of the node is {supply:,}; {allowed(-CAPACITY_MAX, CAPACITY_MAX)}")


def check_cost(largest_cost: int, nodes: int) -> None:
    """Of the largest cost, as an absolute value, and the nodes."""
    if largest_cost * max(nodes, 1) * (nodes + 1) > PRODUCT_MAX:
        most = cost_max(nodes)
        raise ProblemError(f"the largest cost is {largest_cost:,}; with {nodes:,} nodes {allowed(-most, most)}")


def largest(costs: Integers) -> int:
    """Of the costs' absolute values."""
    return max(abs(int(costs.min())), abs(int(costs.max()))) if len(costs) else 0


def refuse(noun: str, field: str, values: Integers, wrong: NDArray[np.bool_], words: str) -> None:
    """`ProblemError` that names the first wrong value."""
    if wrong.any():
        place = int(np.argmax(wrong))
        raise ProblemError(f"{field} of {noun} {place} is {values[place]:,}; {words}")
