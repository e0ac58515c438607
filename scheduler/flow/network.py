"""The arrays of a flow network that changes, and the steps that keep them in order, as kernels.

Each node has three doubly linked lists of arcs: those that leave it, those that enter it, and those that enter it and
carry more than their minimum. The last are its residual arcs backwards: an aggregator has 100,000 arcs in of which few
carry flow, and a search looks at those few.

Whatever a change may have made wrong is noted on two stacks, which solvers work off: arcs that are out of bounds or
whose reduced cost does not fit their flow, and nodes where more comes in than goes out, or less.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scheduler.flow.kernels import kernel
from scheduler.flow.problem import Integers

Numbers = NDArray[np.int64]
"""Of nodes or arcs."""
Marks = NDArray[np.int8]

NONE = -1
ABSENT = -1
"""Kind of a node that is not there."""

SUSPECT, THERE = 1, 2
"""Bits of the state of an arc: it is on the stack of suspects; it is part of the network."""
PLAIN, FRESH, GONE = 0, 1, 2
"""State of a node: its potential means something; it does not yet; the node went before it did."""
ARCS, NODES, NEW = 0, 1, 2
"""Places in `counts`: how many arcs are suspect, how many nodes are open, how many are fresh."""

DRAIN_STEPS_MAX = 64
"""Of a unit on its way to the sink: longer ones stay where they are, and the solver finds them another way."""


class Network(NamedTuple):
    """Arcs and nodes as arrays, with room for more."""

    tail: Integers
    head: Integers
    cost: Integers
    capacity: Integers
    minimum: Integers
    flow: Integers
    next_out: Numbers
    previous_out: Numbers
    next_in: Numbers
    previous_in: Numbers
    next_used: Numbers
    previous_used: Numbers
    arc_state: Marks
    suspects: Numbers
    supply: Integers
    potential: Integers
    excess: Integers
    """Supply and inflow less outflow."""
    kind: Marks
    state: Marks
    first_out: Numbers
    first_in: Numbers
    first_used: Numbers
    is_open: Marks
    """1: on the stack of nodes whose excess may be other than 0."""
    open_nodes: Numbers
    fresh_nodes: Numbers
    path: Numbers
    """Shape (DRAIN_STEPS_MAX,): room for `drain`."""
    counts: Integers
    """Shape (3,): how much the three stacks hold."""


@kernel
def add_excess(network: Network, node: int, amount: int) -> None:
    """More comes to a node than before."""
    network.excess[node] += amount
    if network.is_open[node] == 0:
        network.is_open[node] = 1
        network.open_nodes[network.counts[NODES]] = node
        network.counts[NODES] += 1


@kernel
def suspect(network: Network, arc: int) -> None:
    """An arc's flow may not fit its bounds or its reduced cost."""
    if network.arc_state[arc] & SUSPECT == 0:
        network.arc_state[arc] |= SUSPECT
        network.suspects[network.counts[ARCS]] = arc
        network.counts[ARCS] += 1


@kernel
def list_used(network: Network, arc: int) -> None:
    """The arc carries more than its minimum now."""
    node = network.head[arc]
    first = network.first_used[node]
    network.next_used[arc] = first
    network.previous_used[arc] = NONE
    if first != NONE:
        network.previous_used[first] = arc
    network.first_used[node] = arc


@kernel
def unlist_used(network: Network, arc: int) -> None:
    """The arc carries its minimum now."""
    before, after = network.previous_used[arc], network.next_used[arc]
    if before == NONE:
        network.first_used[network.head[arc]] = after
    else:
        network.next_used[before] = after
    if after != NONE:
        network.previous_used[after] = before


@kernel
def push(network: Network, arc: int, amount: int) -> None:
    """Send more along an arc, or less. Excess is the caller's."""
    before = network.flow[arc] > network.minimum[arc]
    network.flow[arc] += amount
    after = network.flow[arc] > network.minimum[arc]
    if after and not before:
        list_used(network, arc)
    elif before and not after:
        unlist_used(network, arc)


@kernel
def reduced_cost(network: Network, arc: int) -> int:
    """Cost − π(tail) + π(head)."""
    return int(network.cost[arc] - network.potential[network.tail[arc]] + network.potential[network.head[arc]])


@kernel
def is_broken(network: Network, arc: int) -> bool:
    """Whether an arc is out of bounds, or its reduced cost does not fit its flow (paper 004, table 5.3)."""
    flow = network.flow[arc]
    if flow > network.capacity[arc] or flow < network.minimum[arc]:
        return True
    reduced = reduced_cost(network, arc)
    return (reduced < 0 and flow < network.capacity[arc]) or (reduced > 0 and flow > network.minimum[arc])


@kernel
def check(network: Network, arc: int) -> int:
    """Note an arc if a change of it, or of its flow, has made it wrong. How many were noted."""
    fresh = network.state[network.tail[arc]] == FRESH or network.state[network.head[arc]] == FRESH
    if fresh or is_broken(network, arc):
        suspect(network, arc)
        return 1
    return 0


@kernel
def link(network: Network, arc: int) -> None:
    """Enter an arc, whose fields are set and whose flow is 0, in the lists of its two nodes."""
    tail, head = network.tail[arc], network.head[arc]
    first = network.first_out[tail]
    network.next_out[arc] = first
    network.previous_out[arc] = NONE
    if first != NONE:
        network.previous_out[first] = arc
    network.first_out[tail] = arc
    first = network.first_in[head]
    network.next_in[arc] = first
    network.previous_in[arc] = NONE
    if first != NONE:
        network.previous_in[first] = arc
    network.first_in[head] = arc


@kernel
def unlink(network: Network, arc: int) -> None:
    """Take an arc that carries nothing beyond its minimum out of the lists of its two nodes."""
    before, after = network.previous_out[arc], network.next_out[arc]
    if before == NONE:
        network.first_out[network.tail[arc]] = after
    else:
        network.next_out[before] = after
    if after != NONE:
        network.previous_out[after] = before
    before, after = network.previous_in[arc], network.next_in[arc]
    if before == NONE:
        network.first_in[network.head[arc]] = after
    else:
        network.next_in[before] = after
    if after != NONE:
        network.previous_in[after] = before


@kernel
def way_on(network: Network, node: int) -> int:
    """An arc on which something flows on from a node, of reduced cost 0 if there is one; NONE if nothing does."""
    best = NONE
    best_reduced = 0
    arc = network.first_out[node]
    while arc != NONE:
        if network.flow[arc] > network.minimum[arc]:
            reduced = abs(reduced_cost(network, arc))
            if best == NONE or reduced < best_reduced:
                best, best_reduced = arc, reduced
                if reduced == 0:
                    break
        arc = network.next_out[arc]
    return int(best)


@kernel
def drain(network: Network, node: int, amount: int) -> None:
    """Less comes to a node: take the same from what flows on, down to the sinks, so that only these lack anything.

    This is efficient task removal (paper 004, §5.2.5.2). What finds no way to a sink stays as a lack at the node.
    """
    path = network.path
    while amount > 0:
        steps, share, here = 0, amount, node
        while network.supply[here] >= 0 and steps < DRAIN_STEPS_MAX:
            arc = way_on(network, here)
            if arc == NONE:
                break
            path[steps] = arc
            steps += 1
            share = min(share, network.flow[arc] - network.minimum[arc])
            here = network.head[arc]
        if network.supply[here] >= 0:
            add_excess(network, node, -amount)
            return
        for step in range(steps):
            push(network, path[step], -share)
            check(network, path[step])
        add_excess(network, here, -share)
        amount -= share


@kernel
def remove_arc(network: Network, arc: int, drains: bool) -> None:
    """Take an arc out. What it carried stays at its tail, and is missing at its head, or further down."""
    flow = network.flow[arc]
    if flow != 0:
        push(network, arc, network.minimum[arc] - flow)
        add_excess(network, network.tail[arc], flow)
    unlink(network, arc)
    network.arc_state[arc] &= ~THERE
    network.flow[arc] = 0
    network.minimum[arc] = 0
    network.capacity[arc] = 0
    network.cost[arc] = 0
    if flow > 0:
        if drains:
            drain(network, network.head[arc], flow)
        else:
            add_excess(network, network.head[arc], -flow)


@kernel
def remove_arcs(network: Network, arcs: Integers, drains: bool) -> None:
    """Take arcs out, each of which is there."""
    for place in range(len(arcs)):
        remove_arc(network, arcs[place], drains)


@kernel
def arcs_of(network: Network, nodes: Integers) -> int:
    """How many arcs the nodes have; one between two of them counts twice."""
    found = 0
    for place in range(len(nodes)):
        arc = network.first_out[nodes[place]]
        while arc != NONE:
            found += 1
            arc = network.next_out[arc]
        arc = network.first_in[nodes[place]]
        while arc != NONE:
            found += 1
            arc = network.next_in[arc]
    return found


@kernel
def remove_nodes(network: Network, nodes: Integers, drains: bool, removed: Integers) -> int:
    """Take nodes out, with their arcs, which are told in `removed`. How many arcs these are."""
    found = 0
    for place in range(len(nodes)):
        node = nodes[place]
        while network.first_out[node] != NONE:
            removed[found] = network.first_out[node]
            remove_arc(network, removed[found], drains)
            found += 1
        while network.first_in[node] != NONE:
            removed[found] = network.first_in[node]
            # What the node sent on has been taken back already: what came in stays at the other end, no more.
            remove_arc(network, removed[found], False)
            found += 1
        network.supply[node] = 0
        network.excess[node] = 0
        network.kind[node] = ABSENT
        network.state[node] = PLAIN if network.state[node] == PLAIN else GONE
        network.potential[node] = 0
    return found


@kernel
def add_nodes(network: Network, nodes: Integers, kinds: Integers, supplies: Integers) -> None:
    """Nodes without arcs yet."""
    for place in range(len(nodes)):
        node = nodes[place]
        network.kind[node] = kinds[place]
        network.supply[node] = supplies[place]
        network.potential[node] = 0
        network.first_out[node] = NONE
        network.first_in[node] = NONE
        network.first_used[node] = NONE
        if network.state[node] == PLAIN:
            network.fresh_nodes[network.counts[NEW]] = node
            network.counts[NEW] += 1
        network.state[node] = FRESH
        if supplies[place] != 0:
            add_excess(network, node, supplies[place])


@kernel
def add_arcs(
    network: Network,
    arcs: Integers,
    tails: Integers,
    heads: Integers,
    costs: Integers,
    capacities: Integers,
    minimums: Integers,
) -> int:
    """Arcs that carry nothing yet; the first of them come first in their nodes' lists. How many are suspect."""
    broken = 0
    for place in range(len(arcs) - 1, -1, -1):
        arc = arcs[place]
        network.tail[arc] = tails[place]
        network.head[arc] = heads[place]
        network.cost[arc] = costs[place]
        network.capacity[arc] = capacities[place]
        network.minimum[arc] = minimums[place]
        network.flow[arc] = 0
        network.arc_state[arc] |= THERE
        link(network, arc)
        broken += check(network, arc)
    return broken


@kernel
def set_costs(network: Network, arcs: Integers, costs: Integers) -> int:
    """How many of the arcs are suspect by that."""
    broken = 0
    for place in range(len(arcs)):
        arc = arcs[place]
        if network.cost[arc] != costs[place]:
            network.cost[arc] = costs[place]
            broken += check(network, arc)
    return broken


@kernel
def set_bounds(network: Network, arcs: Integers, capacities: Integers, minimums: Integers) -> int:
    """How many of the arcs are suspect by that."""
    broken = 0
    for place in range(len(arcs)):
        arc = arcs[place]
        used = network.flow[arc] > network.minimum[arc]
        network.capacity[arc] = capacities[place]
        network.minimum[arc] = minimums[place]
        if used and network.flow[arc] <= network.minimum[arc]:
            unlist_used(network, arc)
        elif not used and network.flow[arc] > network.minimum[arc]:
            list_used(network, arc)
        broken += check(network, arc)
    return broken


@kernel
def set_supplies(network: Network, nodes: Integers, supplies: Integers) -> None:
    """What nodes send out or take in from now on."""
    for place in range(len(nodes)):
        node = nodes[place]
        change = supplies[place] - network.supply[node]
        network.supply[node] = supplies[place]
        if change != 0:
            add_excess(network, node, change)


@kernel
def adopt(network: Network, arcs: int, flow: Integers, nodes: int, potential: Integers) -> int:
    """Take over a flow and potentials from elsewhere. How many arcs they do not fit."""
    for arc in range(arcs):
        change = flow[arc] - network.flow[arc]
        if change != 0:
            push(network, arc, change)
            add_excess(network, network.tail[arc], -change)
            add_excess(network, network.head[arc], change)
    for node in range(nodes):
        network.potential[node] = potential[node]
        network.state[node] = PLAIN
    network.counts[NEW] = 0
    for place in range(network.counts[ARCS]):
        network.arc_state[network.suspects[place]] &= ~SUSPECT
    network.counts[ARCS] = 0
    broken = 0
    for arc in range(arcs):
        if is_broken(network, arc):
            suspect(network, arc)
            broken += 1
    return broken


@kernel
def excesses(network: Network) -> int:
    """Forget the open nodes where as much goes out as comes in. How many are left."""
    left = 0
    for place in range(network.counts[NODES]):
        node = network.open_nodes[place]
        if network.excess[node] != 0:
            network.open_nodes[left] = node
            left += 1
        else:
            network.is_open[node] = 0
    network.counts[NODES] = left
    return left
