"""Cycle cancelling (Klein; paper 004, §5.2.1): a feasible flow by maximum flow, made cheaper cycle by cycle.

Cycles that carry much come first (capacity scaling): those of arcs that can all carry `least`, which is halved until it
is 1. Taken as they come, there may be as many as the largest capacity is high, each carrying 1. Now those of one
`least` are fewer than twice the product of arcs, nodes and the largest cost.

For small graphs and for comparison (figure 5.5): with thousands of machines it takes minutes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from scheduler.flow.kernels import kernel
from scheduler.flow.problem import InfeasibleError, Integers, Problem, Solution
from scheduler.flow.solvers.refine import FITTING, Raised, raise_potentials, search_for, source_of
from scheduler.flow.solvers.residual import Numbers, Residual, greatest, pull, push, residual_of
from scheduler.flow.solvers.stopping import POLL_STEPS, StopFlag, refuse_to_go_on, stop_flag


class Search(NamedTuple):
    """What the search for a maximum flow (Dinic) keeps for each node."""

    level: Numbers
    """Arcs from the nearest node with excess, or −1."""
    next_out: Integers
    next_used: Integers
    queue: Numbers
    path: Integers
    """Arcs to the node where the search is, −2 − number if backwards."""


def solve(problem: Problem, start: Solution | None = None, stop: StopFlag | None = None) -> Solution:
    """A flow of least cost. From the flow of `start` few cycles may be left to cancel."""
    stop = stop_flag() if stop is None else stop
    ordered = residual_of(problem, None if start is None else start.flow, stop=stop)
    network = ordered.network
    make_feasible(network, stop)
    potential = np.zeros(len(problem.supply), np.int64)
    raised = search_for(potential)
    for bit in reversed(range(max(greatest(problem.capacity).bit_length(), 1))):
        potential[:] = 0
        while (node := raise_potentials(network, potential, raised, stop, 1 << bit)) != FITTING:
            refuse_to_go_on(stop)
            cancel(network, raised, node)
            potential[:] = 0
    return ordered.solution(potential)


def make_feasible(network: Residual, stop: StopFlag) -> None:
    """Send all excess to where it lacks; `InfeasibleError` if that cannot be."""
    nodes = len(network.excess)
    search = Search(
        np.empty(nodes, np.int32),
        np.empty(nodes, np.int64),
        np.empty(nodes, np.int64),
        np.empty(nodes, np.int32),
        np.empty(nodes + 1, np.int64),
    )
    while network.excess.any():
        refuse_to_go_on(stop)
        search.next_out[:] = network.first[:-1]
        search.next_used[:] = network.used_first[:-1]
        found = find_levels(network, search, stop)
        refuse_to_go_on(stop)
        if not found:
            raise InfeasibleError("supply that reaches no demand")
        fill_levels(network, search, stop)
        refuse_to_go_on(stop)


@kernel
def find_levels(network: Residual, search: Search, stop: StopFlag) -> bool:
    """How far each node is from those with excess; False if no node that lacks something is reached, or the flag is
    set."""
    count = 0
    for node in range(len(network.excess)):
        search.level[node] = 0 if network.excess[node] > 0 else -1
        if network.excess[node] > 0:
            search.queue[count] = node
            count += 1
    done = 0
    found = False
    while done < count:
        node = search.queue[done]
        if done % POLL_STEPS == 0 and stop[0] != 0:
            return False
        done += 1
        found |= network.excess[node] < 0
        for arc in range(network.first[node], network.first[node + 1]):
            if network.room[arc] > 0:
                count = put_on_level(search, network.head[arc], search.level[node] + 1, count)
        for at in range(network.used_first[node], network.used_end[node]):
            count = put_on_level(search, network.used_tail[at], search.level[node] + 1, count)
    return found


@kernel
def put_on_level(search: Search, node: int, level: int, count: int) -> int:
    """If a node is found for the first time, write down where; returns how many are found."""
    if search.level[node] >= 0:
        return count
    search.level[node] = level
    search.queue[count] = node
    return count + 1


@kernel
def fill_levels(network: Residual, search: Search, stop: StopFlag) -> None:
    """Send as much as paths that go up a level with each arc can carry, until the flag is set."""
    steps = 0
    for start in range(len(network.excess)):
        node = start
        length = 0
        while network.excess[start] > 0:
            steps += 1
            if steps % POLL_STEPS == 0 and stop[0] != 0:
                return
            if network.excess[node] < 0:
                send_along(network, search, length, min(network.excess[start], -network.excess[node]))
                node, length = start, 0
            elif advance(network, search, node, length):
                node = end_of(network, search.path[length])
                length += 1
            elif length == 0:
                break
            else:
                search.level[node] = -1  # Nothing goes on from here.
                length -= 1
                node = start if length == 0 else end_of(network, search.path[length - 1])


@kernel
def end_of(network: Residual, way: int) -> int:
    """The node to which a residual arc leads."""
    return int(network.head[way]) if way >= 0 else int(network.tail[-2 - way])


@kernel
def advance(network: Residual, search: Search, node: int, length: int) -> bool:
    """Find the node's next residual arc that goes up a level, and put it on the path; False if there is none left."""
    up = search.level[node] + 1
    for arc in range(search.next_out[node], network.first[node + 1]):
        if network.room[arc] > 0 and search.level[network.head[arc]] == up:
            search.next_out[node] = arc
            search.path[length] = arc
            return True
    search.next_out[node] = network.first[node + 1]
    for at in range(search.next_used[node], network.used_end[node]):
        if search.level[network.used_tail[at]] == up:
            search.next_used[node] = at
            search.path[length] = -2 - network.used[at]
            return True
    search.next_used[node] = network.used_end[node]
    return False


@kernel
def room_of(network: Residual, way: int) -> int:
    """What a residual arc can carry."""
    return int(network.room[way]) if way >= 0 else int(network.flow[-2 - way])


@kernel
def send(network: Residual, way: int, amount: int) -> None:
    """Send something along a residual arc."""
    if way >= 0:
        push(network, way, amount)
    else:
        pull(network, -2 - way, amount)


@kernel
def send_along(network: Residual, search: Search, length: int, amount_max: int) -> None:
    """Send as much along the path as all of its arcs can carry."""
    amount = amount_max
    for at in range(length):
        amount = min(amount, room_of(network, search.path[at]))
    for at in range(length):
        send(network, search.path[at], amount)


@kernel
def cancel(network: Residual, raised: Raised, node: int) -> None:
    """Send as much round a cycle as all of its arcs can carry."""
    amount = room_of(network, raised.by[node])
    at = source_of(network, raised, node)
    while at != node:
        amount = min(amount, room_of(network, raised.by[at]))
        at = source_of(network, raised, at)
    way = raised.by[node]
    at = source_of(network, raised, node)
    send(network, way, amount)
    while at != node:
        way = raised.by[at]
        at = source_of(network, raised, at)
        send(network, way, amount)
