"""Successive shortest paths: from each source in turn, the cheapest way to a node that lacks something (§5.2.1).

As in textbooks, to compare others with: Dijkstra's algorithm on reduced costs over the residual network, until the
nearest such node is reached. Negative costs get their first potentials from Bellman and Ford; arcs of negative cycles
are filled first.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from scheduler.flow.graph import total_cost
from scheduler.flow.kernels import kernel
from scheduler.flow.limits import check_problem
from scheduler.flow.network import NONE
from scheduler.flow.problem import Integers, Problem, Solution, StoppedError, UnmetError
from scheduler.flow.solvers.heap import DISTANCE, HEAP, PLACE, insert, remove
from scheduler.flow.solvers.stopping import POLL_ARCS, POLL_STEPS, TOLD, StopFlag, stop_flag

FAR = 2**63 - 1
WAY, REACHED = 3, 4
"""Rows beyond those of the heap: twice the arc on which a node was reached, and 1 if against the arc; the nodes that
were reached."""
TABLE_ROWS = 5
DONE, STOPPED = -1, -2
"""What `route` returns; else the node that finds no way, or is found by none."""


class Arrays(NamedTuple):
    """A problem, its arcs in the order of their tails and of their heads, and what is known of the answer."""

    tail: Integers
    head: Integers
    cost: Integers
    capacity: Integers
    minimum: Integers
    first_out: Integers
    """Shape (n + 1,): the arcs that leave a node are at `first_out[node]` … `first_out[node + 1]` − 1 of `out`."""
    out: Integers
    first_in: Integers
    into: Integers
    flow: Integers
    excess: Integers
    potential: Integers
    table: Integers
    """A row for each field of `heap`, and for WAY and REACHED; a column for each node."""


@kernel
def price(arrays: Arrays, stop: StopFlag) -> None:
    """Potentials with which no residual arc has a negative reduced cost, if no cycle is negative (Bellman, Ford).

    Not all of them if the flag is set.
    """
    nodes = len(arrays.potential)
    for _ in range(nodes):
        changed = False
        for arc in range(len(arrays.tail)):
            if arc % POLL_ARCS == 0 and stop[0] != 0:
                return
            tail, head = arrays.tail[arc], arrays.head[arc]
            reduced = arrays.cost[arc] - arrays.potential[tail] + arrays.potential[head]
            if reduced < 0 and arrays.flow[arc] < arrays.capacity[arc]:
                arrays.potential[tail] += reduced
                changed = True
            elif reduced > 0 and arrays.flow[arc] > arrays.minimum[arc]:
                arrays.potential[head] -= reduced
                changed = True
        if not changed:
            return


@kernel
def fit(arrays: Arrays) -> None:
    """Fill arcs whose reduced cost is negative, empty those whose is positive."""
    for arc in range(len(arrays.tail)):
        tail, head = arrays.tail[arc], arrays.head[arc]
        reduced = arrays.cost[arc] - arrays.potential[tail] + arrays.potential[head]
        right = arrays.flow[arc]
        if reduced < 0:
            right = arrays.capacity[arc]
        elif reduced > 0:
            right = arrays.minimum[arc]
        arrays.excess[tail] -= right - arrays.flow[arc]
        arrays.excess[head] += right - arrays.flow[arc]
        arrays.flow[arc] = right


@kernel
def nearest(arrays: Arrays, source: int, steps: int, stop: StopFlag) -> tuple[int, int]:
    """The nearest node that lacks something, NONE or STOPPED, and the steps till then; potentials rise by the way."""
    table = arrays.table
    flow, cost, potential = arrays.flow, arrays.cost, arrays.potential
    table[DISTANCE, source] = 0
    table[REACHED, 0] = source
    count, end = 1, NONE
    size = insert(table, source, 0)
    while size > 0:
        node = table[HEAP, 0]
        here = table[DISTANCE, node]
        if arrays.excess[node] < 0:
            end = node
            break
        size = remove(table, 0, size)
        for against in range(2):
            first = arrays.first_in if against else arrays.first_out
            arcs = arrays.into if against else arrays.out
            for place in range(first[node], first[node + 1]):
                arc = arcs[place]
                steps += 1
                if steps % POLL_STEPS == 0 and stop[0] != 0:
                    end = STOPPED
                if against:
                    if flow[arc] <= arrays.minimum[arc]:
                        continue
                    other = arrays.tail[arc]
                    there = here - cost[arc] + potential[other] - potential[node]
                else:
                    if flow[arc] >= arrays.capacity[arc]:
                        continue
                    other = arrays.head[arc]
                    there = here + cost[arc] - potential[node] + potential[other]
                if there < table[DISTANCE, other]:
                    if table[DISTANCE, other] == FAR:
                        table[REACHED, count] = other
                        count += 1
                    table[DISTANCE, other] = there
                    table[WAY, other] = 2 * arc + against
                    size = insert(table, other, size)
        if end == STOPPED:
            break
    for place in range(size):
        table[PLACE, table[HEAP, place]] = NONE
    length = table[DISTANCE, end] if end >= 0 else 0
    for place in range(count):
        node = table[REACHED, place]
        if table[DISTANCE, node] < length:
            potential[node] += length - table[DISTANCE, node]
        table[DISTANCE, node] = FAR
    return end, steps


@kernel
def send(arrays: Arrays, source: int, end: int) -> None:
    """As much as can be along the path that was found."""
    amount = min(arrays.excess[source], -arrays.excess[end])
    node = end
    while node != source:
        arc, against = arrays.table[WAY, node] >> 1, arrays.table[WAY, node] & 1
        room = arrays.flow[arc] - arrays.minimum[arc] if against else arrays.capacity[arc] - arrays.flow[arc]
        amount = min(amount, room)
        node = arrays.head[arc] if against else arrays.tail[arc]
    node = end
    while node != source:
        arc, against = arrays.table[WAY, node] >> 1, arrays.table[WAY, node] & 1
        arrays.flow[arc] += -amount if against else amount
        node = arrays.head[arc] if against else arrays.tail[arc]
    arrays.excess[source] -= amount
    arrays.excess[end] += amount


@kernel
def route(arrays: Arrays, stop: StopFlag) -> int:
    """Send all that is supplied to where it lacks."""
    price(arrays, stop)
    if stop[0] != 0:
        return STOPPED
    fit(arrays)
    steps = 0
    for source in range(len(arrays.excess)):
        while arrays.excess[source] > 0:
            end, steps = nearest(arrays, source, steps, stop)
            if end == STOPPED:
                return STOPPED
            if end == NONE:
                return source
            send(arrays, source, end)
    for node in range(len(arrays.excess)):
        if arrays.excess[node] != 0:
            return node
    return DONE


def solve(problem: Problem, start: Solution | None = None, stop: StopFlag | None = None) -> Solution:
    """A flow of least cost, from nothing or from a solution of a similar problem of the same size."""
    check_problem(problem)
    nodes = len(problem.supply)
    flow = problem.minimum if start is None else np.clip(start.flow, problem.minimum, problem.capacity)
    excess = problem.supply.copy()
    np.subtract.at(excess, problem.tail, flow)
    np.add.at(excess, problem.head, flow)
    first_out, out = _by(problem.tail, nodes)
    first_in, into = _by(problem.head, nodes)
    table = np.full((TABLE_ROWS, nodes), NONE, np.int64)
    table[DISTANCE] = FAR
    arrays = Arrays(
        tail=np.ascontiguousarray(problem.tail),
        head=np.ascontiguousarray(problem.head),
        cost=np.ascontiguousarray(problem.cost),
        capacity=np.ascontiguousarray(problem.capacity),
        minimum=np.ascontiguousarray(problem.minimum),
        first_out=first_out,
        out=out,
        first_in=first_in,
        into=into,
        flow=flow.astype(np.int64),
        excess=excess,
        potential=np.zeros(nodes, np.int64) if start is None else start.potential.astype(np.int64),
        table=table,
    )
    outcome = route(arrays, stop_flag() if stop is None else stop)
    if outcome == STOPPED:
        raise StoppedError(TOLD)
    if outcome != DONE:
        raise UnmetError(outcome, int(arrays.excess[outcome]))
    return Solution(arrays.flow, arrays.potential, total_cost(problem.cost, arrays.flow))


def _by(ends: Integers, nodes: int) -> tuple[Integers, Integers]:
    """Arcs in the order of their tails, or heads, and where those of each node begin."""
    first = np.zeros(nodes + 1, np.int64)
    np.cumsum(np.bincount(ends, minlength=nodes), out=first[1:])
    return first, np.argsort(ends, kind="stable").astype(np.int64)
