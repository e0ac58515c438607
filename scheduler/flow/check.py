"""Is this a problem, and is this its answer? In numpy alone, for files, tests and the command.

Complementary slackness (theorem 5.2.3 of paper 004): an arc whose reduced cost is positive carries its minimum, one
whose reduced cost is negative is full, and so an arc with minimum < flow < capacity has a reduced cost of 0 (equation
5.6b prints ≤ in place of <; then no arc at a bound could have another reduced cost than 0).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from scheduler.flow import limits
from scheduler.flow.problem import Integers, Problem, ProblemError, Solution

# ---- problems ------------------------------------------------------------------------------------------------------


def check_problem(problem: Problem) -> None:
    """`ProblemError` if solvers cannot take it, or a cycle costs less than nothing: names what is at fault."""
    limits.check_problem(problem)
    cycle = negative_cycle(problem)
    if cycle:
        raise ProblemError(words_of_cycle(problem, cycle, first_node=0))


def words_of_cycle(problem: Problem, cycle: list[int], first_node: int) -> str:
    """A negative cycle, for people; nodes are numbered from `first_node`."""
    cost = int(problem.cost[cycle].sum())
    shown = [*problem.tail[cycle[:CYCLE_SHOWN_MAX]], problem.head[cycle[:CYCLE_SHOWN_MAX][-1]]]
    way = " → ".join(str(int(node) + first_node) for node in shown) + (" → …" if len(cycle) > CYCLE_SHOWN_MAX else "")
    return f"the costs of the cycle {way} add up to {cost:,}; they must add up to 0 or more"


CYCLE_SHOWN_MAX = 10
"""Arcs of a cycle that an error names."""


def negative_cycle(problem: Problem) -> list[int]:
    """Arcs that close a cycle of negative cost, in order; none if there is no such cycle.

    Arcs of capacity 0 do not count. By Bellman and Ford, all arcs at a time: as many rounds as the longest of the
    shortest paths has arcs; a cycle shows as one of the arcs by which nodes were reached last.
    """
    if not len(problem.cost) or problem.cost.min() >= 0:
        return []
    arcs = np.flatnonzero(problem.capacity > 0)
    tail, head, cost = problem.tail[arcs], problem.head[arcs], problem.cost[arcs]
    distance = np.zeros(len(problem.supply), np.int64)
    reached_by = np.full(len(problem.supply), -1, np.int64)
    rounds = 0
    while True:
        reach = distance[tail] + cost
        better = np.flatnonzero(reach < distance[head])
        if not len(better):
            return []
        after = distance.copy()
        np.minimum.at(after, head[better], reach[better])
        best = better[reach[better] == after[head[better]]]
        reached_by[head[best]] = best
        distance = after
        rounds += 1
        if rounds & (rounds - 1) == 0 or rounds >= len(distance):
            cycle = _cycle_of(reached_by, tail, cost)
            if cycle:
                return [int(arcs[arc]) for arc in cycle]


def _cycle_of(reached_by: Integers, tail: Integers, cost: Integers) -> list[int]:
    """A cycle of the arcs by which nodes were reached, if its costs add up to less than 0."""
    nodes = np.arange(len(reached_by))
    before = np.where(reached_by >= 0, tail[reached_by], nodes)
    far = before
    for _ in range(len(nodes).bit_length()):
        far = far[far]
    for start in np.unique(far[reached_by[far] >= 0]):
        cycle: list[int] = []
        node = int(start)
        while not cycle or node != start:
            cycle.append(int(reached_by[node]))
            node = int(before[node])
        if cost[cycle].sum() < 0:
            return cycle[::-1]
    return []


# ---- flows and potentials ------------------------------------------------------------------------------------------


def cost_of(problem: Problem, flow: Integers) -> int:
    """Sum of cost × flow."""
    largest = float(np.abs(problem.cost).max(initial=0)) * float(np.abs(flow).sum())
    if largest < limits.PRODUCT_MAX:
        return int(problem.cost @ flow)
    used = np.flatnonzero(flow)
    return sum(cost * units for cost, units in zip(problem.cost[used].tolist(), flow[used].tolist(), strict=True))


def fault_of_flow(problem: Problem, flow: Integers) -> str:
    """Why the flow is not feasible: the first arc out of its bounds, else the first node out of balance. "" if it is.

    Equations 5.2 and 5.3.
    """
    if flow.shape != problem.tail.shape:
        return f"the flow has {len(flow):,} entries; there are {len(problem.tail):,} arcs"
    arc = _first((flow < problem.minimum) | (flow > problem.capacity))
    if arc is not None:
        bounds = limits.allowed(int(problem.minimum[arc]), int(problem.capacity[arc]))
        return f"arc {arc} ({problem.tail[arc]} → {problem.head[arc]}) carries {flow[arc]:,}; {bounds}"
    sent = np.zeros(len(problem.supply), np.int64)
    np.add.at(sent, problem.tail, flow)
    np.subtract.at(sent, problem.head, flow)
    node = _first(sent != problem.supply)
    if node is not None:
        return f"node {node} sends out {sent[node]:,} more than it takes in; its supply is {problem.supply[node]:,}"
    return ""


def fault_of_potentials(problem: Problem, flow: Integers, potential: Integers) -> str:
    """Why the potentials do not prove that the flow is of least cost: the first arc without complementary slackness.
    "" if they do."""
    if potential.shape != problem.supply.shape:
        return f"there are {len(potential):,} potentials; there are {len(problem.supply):,} nodes"
    reduced = problem.cost - potential[problem.tail] + potential[problem.head]
    arc = _first(((reduced > 0) & (flow > problem.minimum)) | ((reduced < 0) & (flow < problem.capacity)))
    if arc is None:
        return ""
    due = "its minimum" if reduced[arc] > 0 else "its capacity"
    bound = (problem.minimum if reduced[arc] > 0 else problem.capacity)[arc]
    return (
        f"arc {arc} ({problem.tail[arc]} → {problem.head[arc]}) of reduced cost {reduced[arc]:,} carries"
        f" {flow[arc]:,}; it must carry {due}, {bound:,}"
    )


def fault_of_solution(problem: Problem, solution: Solution) -> str:
    """Why the solution is none, or not of least cost, or says another cost than it has. "" if it is right."""
    fault = fault_of_flow(problem, solution.flow) or fault_of_potentials(problem, solution.flow, solution.potential)
    cost = 0 if fault else cost_of(problem, solution.flow)
    return fault or ("" if cost == solution.cost else f"the cost is {cost:,}, not {solution.cost:,}")


def _first(wrong: NDArray[np.bool_]) -> int | None:
    """The first that is True."""
    index = int(wrong.argmax()) if len(wrong) else 0
    return index if len(wrong) and wrong[index] else None
