"""The residual network as solvers hold it: arcs in the order of their tails, and for each node its used in-arcs.

A residual arc is an arc with room left, or an arc with flow, backwards. The first are found in the node's stretch of
arcs, the second in the list of the node's in-arcs that carry flow. An aggregator has 100,000 in-arcs of
which few carry flow: with such lists a step costs what is used, not what is there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scheduler.flow.kernels import kernel
from scheduler.flow.limits import check_problem
from scheduler.flow.problem import Integers, Problem, Solution
from scheduler.flow.solvers.stopping import POLL_ARCS, StopFlag, refuse_to_go_on, stop_flag

Numbers = NDArray[np.int32]
"""Of nodes or arcs."""

FLOW_BITS_MAX = 62
"""Of a cost times all flow: beyond that it is added up in Python's numbers."""


class Residual(NamedTuple):
    """A problem whose minimum flows are sent already, with a flow on top of them. Solvers change it in place."""

    first: Integers
    """Shape (n + 1,): a node's out-arcs are `first[node]` … `first[node + 1]` − 1."""
    tail: Numbers
    head: Numbers
    cost: Integers
    """In the solver's units."""
    room: Integers
    """What more an arc can carry."""
    flow: Integers
    """What an arc carries beyond its minimum."""
    excess: Integers
    """Shape (n,): what has come to a node, or is supplied there, and has not gone on."""
    used_first: Integers
    """Shape (n + 1,): where the places for a node's in-arcs begin, one for each."""
    used_end: Integers
    """Shape (n,): where those that are taken, by in-arcs with flow, end. Their order says nothing."""
    used: Numbers
    """Shape (m,): the arc at each place."""
    used_tail: Numbers
    """Its tail, and below its cost: a search reads them one after the other."""
    used_cost: Integers
    place: Numbers
    """Shape (m,): the place of an arc with flow."""


@dataclass(frozen=True, slots=True)
class Ordered:
    """The residual network of a problem, and how its arcs are numbered there."""

    problem: Problem
    network: Residual
    order: Integers | None
    """The number that each arc has in the problem; None if the problem's arcs are in the order of their tails."""

    def flow(self) -> Integers:
        """Of the problem's arcs."""
        extra = self.network.flow
        if self.order is not None:
            extra = np.empty_like(extra)
            extra[self.order] = self.network.flow
        return extra + self.problem.minimum

    def solution(self, potential: Integers) -> Solution:
        """What the network has come to, as the problem sees it."""
        flow = self.flow()
        return Solution(flow, potential, total_cost(self.problem.cost, flow))


@kernel
def sum_of_sizes(values: Integers) -> float:
    """Of the absolute values, rounded: it cannot overflow."""
    total = 0.0
    for value in values:
        total += abs(float(value))
    return total


def greatest(values: Integers) -> int:
    """The greatest absolute value, 0 if there is none."""
    return max(abs(int(values.max())), abs(int(values.min()))) if len(values) else 0


def residual_of(problem: Problem, flow: Integers | None = None, unit: int = 1, stop: StopFlag | None = None) -> Ordered:
    """The residual network of a flow, or of none, with costs times `unit`. What exceeds an arc's bounds is cut off."""
    stop = stop_flag() if stop is None else stop
    refuse_to_go_on(stop)
    check_problem(problem)
    refuse_to_go_on(stop)
    nodes = len(problem.supply)
    order, first = sorted_by_tail(problem.tail, nodes)
    refuse_to_go_on(stop)
    tail, head, cost, capacity, minimum = (
        values if order is None else values[order]
        for values in (problem.tail, problem.head, problem.cost, problem.capacity, problem.minimum)
    )
    refuse_to_go_on(stop)
    start = minimum if flow is None else flow if order is None else flow[order]
    used_first = np.zeros(nodes + 1, np.int64)
    count_by_node(head, used_first)
    network = Residual(
        first=first,
        tail=tail.astype(np.int32),
        head=head.astype(np.int32),
        cost=cost * unit,
        room=np.empty_like(cost),
        flow=np.empty_like(cost),
        excess=problem.supply.copy(),
        used_first=used_first,
        used_end=used_first[:-1].copy(),
        used=np.empty(len(tail), np.int32),
        used_tail=np.empty(len(tail), np.int32),
        used_cost=np.empty_like(cost),
        place=np.empty(len(tail), np.int32),
    )
    fill(network, start, minimum, capacity, stop)
    refuse_to_go_on(stop)
    return Ordered(problem, network, order)


def sorted_by_tail(tail: Integers, nodes: int) -> tuple[Integers | None, Integers]:
    """In which order arcs have rising tails, None if as they are; and where the stretch of each node begins."""
    first = np.zeros(nodes + 1, np.int64)
    count_by_node(tail, first)
    if is_rising(tail):
        return None, first
    order = np.empty(len(tail), np.int64)
    sort_by_tail(tail, first.copy(), order)
    return order, first


@kernel
def is_rising(values: Integers) -> bool:
    """Whether no value is below the one before."""
    for at in range(1, len(values)):  # noqa: SIM110 (numba compiles no generators)
        if values[at - 1] > values[at]:
            return False
    return True


@kernel
def count_by_node(ends: Integers, first: Integers) -> None:
    """Fill in where the stretch of each node begins, as long as the node is among the ends of arcs."""
    for arc in range(len(ends)):
        first[ends[arc] + 1] += 1
    for node in range(len(first) - 1):
        first[node + 1] += first[node]


@kernel
def sort_by_tail(tail: Integers, free: Integers, order: Integers) -> None:
    """Write down the arcs in the order of their tails; `free` is where the next of each node comes."""
    for arc in range(len(tail)):
        order[free[tail[arc]]] = arc
        free[tail[arc]] += 1


@kernel
def fill(network: Residual, start: Integers, minimum: Integers, capacity: Integers, stop: StopFlag) -> None:
    """Put the flow to start from on the arcs, as far as they allow. Not on all of them if the flag is set."""
    for arc in range(len(network.tail)):
        if arc % POLL_ARCS == 0 and stop[0] != 0:
            return
        sent = min(max(start[arc], minimum[arc]), capacity[arc])
        network.flow[arc] = 0
        network.room[arc] = capacity[arc] - minimum[arc]
        network.excess[network.tail[arc]] -= minimum[arc]
        network.excess[network.head[arc]] += minimum[arc]
        if sent > minimum[arc]:
            push(network, arc, sent - minimum[arc])


@kernel
def enlist(network: Residual, arc: int) -> None:
    """The arc carries flow from now on."""
    head = network.head[arc]
    at = network.used_end[head]
    network.used_end[head] = at + 1
    network.used[at] = arc
    network.used_tail[at] = network.tail[arc]
    network.used_cost[at] = network.cost[arc]
    network.place[arc] = at


@kernel
def delist(network: Residual, arc: int) -> None:
    """The arc carries no flow any more: the last of its head's places is moved to its own."""
    head = network.head[arc]
    at = network.place[arc]
    last = network.used_end[head] - 1
    network.used_end[head] = last
    if at != last:
        moved = network.used[last]
        network.used[at] = moved
        network.used_tail[at] = network.used_tail[last]
        network.used_cost[at] = network.used_cost[last]
        network.place[moved] = at


@kernel
def push(network: Residual, arc: int, amount: int) -> None:
    """Send so much along an arc that has room for it."""
    if network.flow[arc] == 0:
        enlist(network, arc)
    network.flow[arc] += amount
    network.room[arc] -= amount
    network.excess[network.tail[arc]] -= amount
    network.excess[network.head[arc]] += amount


@kernel
def pull(network: Residual, arc: int, amount: int) -> None:
    """Take so much back from an arc that carries as much."""
    network.flow[arc] -= amount
    network.room[arc] += amount
    network.excess[network.tail[arc]] += amount
    network.excess[network.head[arc]] -= amount
    if network.flow[arc] == 0:
        delist(network, arc)


def total_cost(cost: Integers, flow: Integers) -> int:
    """Sum of cost × flow, with as many bits as it takes."""
    if greatest(cost) * sum_of_sizes(flow) < 2.0**FLOW_BITS_MAX:
        return int(cost @ flow)
    return sum(int(each) * int(units) for each, units in zip(cost, flow, strict=True))


def all_reach_demand(network: Residual, stop: StopFlag | None = None) -> bool:
    """Whether a residual path leads from each node with excess to one that lacks something.

    If not, what the one without such a path reaches sends out all it can, and yet has too much: no flow is feasible.
    """
    reaches = network.excess < 0
    unknown = network.excess > 0
    while (unknown & ~reaches).any():
        refuse_to_go_on(stop)
        if not spread_backwards(network, reaches):
            return False
    return True


@kernel
def spread_backwards(network: Residual, reaches: NDArray[np.bool_]) -> bool:
    """Mark nodes from which residual arcs lead to marked ones, in one sweep to and fro; False if there are none."""
    arcs = len(network.tail)
    found = False
    for step in range(2 * arcs):
        arc = step if step < arcs else 2 * arcs - 1 - step
        tail, head = network.tail[arc], network.head[arc]
        if reaches[head] != reaches[tail]:
            if reaches[head]:
                if network.room[arc] > 0:
                    reaches[tail] = found = True
            elif network.flow[arc] > 0:
                reaches[head] = found = True
    return found
