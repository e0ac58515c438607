"""Price refine (paper 004, §5.2.4 and §5.2.6.1): potentials that prove a flow optimal, from others that do not.

Cost scaling starts with the smallest ε if the potentials that it is given fit the flow. Those of another solver, or
those from before arcs were added, may not: refine changes them, and not the flow. It raises the potential of each node
to which a residual arc of negative reduced cost leads, just as much as it takes, and looks at that node's own arcs
next (Bellman, Ford). If that goes round in a circle, that is a cycle of negative cost: the flow is not optimal.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scheduler.flow.kernels import kernel
from scheduler.flow.problem import FlowError, Integers, Problem, Solution, StoppedError
from scheduler.flow.solvers.residual import Numbers, Residual, residual_of
from scheduler.flow.solvers.stopping import POLL_STEPS, TOLD, StopFlag, stop_flag

FITTING, STOPPED = -1, -2
"""What a search finds other than a node of a cycle."""
NOBODY = -1


class NotOptimalError(FlowError):
    """The flow has no potentials that prove it optimal: it is not feasible, or there is a cheaper one."""


class Raised(NamedTuple):
    """What a search keeps for each node."""

    by: Integers
    """The arc that its potential fits: the arc's number, or −2 − number if the arc is used backwards."""
    queue: Numbers
    queued: NDArray[np.bool_]
    seen: Numbers
    """In which walk along `by` it was seen last."""


def refine(
    problem: Problem, flow: Integers, potential: Integers | None = None, stop: StopFlag | None = None
) -> Solution:
    """The flow with potentials that prove it optimal, close to the given ones; `NotOptimalError` if it is not."""
    ordered = residual_of(problem, flow, stop=stop)
    if ordered.network.excess.any():
        raise NotOptimalError(
            "the flow is not feasible: at a node it does not balance, or an arc's bounds are exceeded"
        )
    found = np.zeros(len(problem.supply), np.int64) if potential is None else potential.copy()
    node = raise_potentials(ordered.network, found, search_for(found), stop_flag() if stop is None else stop, 1)
    if node == STOPPED:
        raise StoppedError(TOLD)
    if node != FITTING:
        raise NotOptimalError(f"the flow is not of least cost: node {node} is on a residual cycle of negative cost")
    return ordered.solution(found)


def search_for(potential: Integers) -> Raised:
    """Room for a search."""
    nodes = len(potential)
    return Raised(
        np.empty(nodes, np.int64), np.empty(nodes, np.int32), np.empty(nodes, np.bool_), np.empty(nodes, np.int32)
    )


@kernel
def raise_potentials(network: Residual, potential: Integers, raised: Raised, stop: StopFlag, least: int) -> int:
    """Raise potentials until all residual arcs that can carry `least` have reduced costs of 0 or more: FITTING. Else a
    node on a cycle of negative cost of such arcs, which `raised.by` describes, or STOPPED."""
    nodes = len(potential)
    for node in range(nodes):
        raised.by[node] = NOBODY
        raised.queue[node] = node
        raised.queued[node] = True
    begin, count = 0, nodes
    steps = POLL_STEPS  # It looks at the flag at once.
    since_check = 0
    while count > 0:
        node = raised.queue[begin]
        begin = begin + 1 if begin + 1 < nodes else 0
        count -= 1
        raised.queued[node] = False
        own = potential[node]
        for arc in range(network.first[node], network.first[node + 1]):
            if network.room[arc] >= least and potential[network.head[arc]] < own - network.cost[arc]:
                count = raise_to(potential, raised, network.head[arc], own - network.cost[arc], arc, begin, count)
                since_check += 1
        for at in range(network.used_first[node], network.used_end[node]):
            tail = network.used_tail[at]
            if potential[tail] < own + network.used_cost[at] and network.flow[network.used[at]] >= least:
                reach = own + network.used_cost[at]
                count = raise_to(potential, raised, tail, reach, -2 - network.used[at], begin, count)
                since_check += 1
        steps += 1
        if steps >= POLL_STEPS:
            steps = 0
            if stop[0] != 0:
                return STOPPED
        if since_check >= nodes:
            since_check = 0
            found = node_on_cycle(network, raised)
            if found >= 0:
                return found
    return FITTING


@kernel
def raise_to(potential: Integers, raised: Raised, node: int, reach: int, by: int, begin: int, count: int) -> int:
    """Raise one potential; returns how many nodes are in the queue then."""
    potential[node] = reach
    raised.by[node] = by
    if raised.queued[node]:
        return count
    raised.queued[node] = True
    at = begin + count
    raised.queue[at if at < len(potential) else at - len(potential)] = node
    return count + 1


@kernel
def source_of(network: Residual, raised: Raised, node: int) -> int:
    """The node from which a residual arc leads to this one, the arc that its potential fits; or NOBODY."""
    by = raised.by[node]
    if by == NOBODY:
        return NOBODY
    return int(network.tail[by]) if by >= 0 else int(network.head[-2 - by])


@kernel
def node_on_cycle(network: Residual, raised: Raised) -> int:
    """A node from which the way back along `by` leads to itself, or NOBODY. Such a cycle has a negative cost."""
    for node in range(len(raised.seen)):
        raised.seen[node] = NOBODY
    for start in range(len(raised.seen)):
        node = start
        while node != NOBODY and raised.seen[node] == NOBODY:
            raised.seen[node] = start
            node = source_of(network, raised, node)
        if node != NOBODY and raised.seen[node] == start:
            return node
    return NOBODY
