"""The arrays of a flow network that changes, and the steps that keep them in order, as kernels.

Each node has three doubly linked lists of arcs: those that leave it, those that enter it, and those that enter it and
carry more than their minimum. The last are its residual arcs backwards: an aggregator has 100,000 arcs in of which few
carry flow, and a search looks at those few.

Whatever a change may have made wrong is noted on two stacks, which solvers work off: arcs that are out of bounds or
whose reduced cost does not fit their flow, and nodes where more comes in than goes out, or less.
"""

from __future__ import annotations

from typing import NamedTuple

from scheduler.flow.kernels import kernel
from scheduler.flow.problem import Integers

TAIL, HEAD, COST, CAPACITY, MINIMUM, FLOW, ARC_STATE, SUSPECTS = 0, 1, 2, 3, 4, 5, 6, 7
NEXT_OUT, PREVIOUS_OUT, NEXT_IN, PREVIOUS_IN, NEXT_USED, PREVIOUS_USED = 8, 9, 10, 11, 12, 13
ARC_FIELDS = 14
"""Rows of `arcs`. SUSPECTS is a stack."""

SUPPLY, POTENTIAL, EXCESS, KIND, NODE_STATE, IS_OPEN, OPEN_NODES, FRESH_NODES = 0, 1, 2, 3, 4, 5, 6, 7
FIRST_OUT, FIRST_IN, FIRST_USED = 8, 9, 10
NODE_FIELDS = 11
"""Rows of `nodes`. EXCESS is supply and inflow less outflow; IS_OPEN is 1 of nodes on the stack OPEN_NODES, whose
excess may be other than 0; FRESH_NODES is a stack, too."""

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
    """Arcs and nodes, with room for more: a row for each of the fields above, a column for each arc, or node."""

    arcs: Integers
    nodes: Integers
    path: Integers
    """Shape (DRAIN_STEPS_MAX,): room for `drain`."""
    counts: Integers


@kernel
def add_excess(network: Network, node: int, amount: int) -> None:
    """More comes to a node than before."""
    network.nodes[EXCESS, node] += amount
    if network.nodes[IS_OPEN, node] == 0:
        network.nodes[IS_OPEN, node] = 1
        network.nodes[OPEN_NODES, network.counts[NODES]] = node
        network.counts[NODES] += 1


@kernel
def suspect(network: Network, arc: int) -> None:
    """An arc's flow may not fit its bounds or its reduced cost."""
    if network.arcs[ARC_STATE, arc] & SUSPECT == 0:
        network.arcs[ARC_STATE, arc] |= SUSPECT
        network.arcs[SUSPECTS, network.counts[ARCS]] = arc
        network.counts[ARCS] += 1


@kernel
def enter(network: Network, arc: int, node: int, first: int, following: int, previous: int) -> None:
    """Put an arc in front of a list of a node: `first` is the list's row of nodes, the others are its rows of arcs."""
    second = network.nodes[first, node]
    network.arcs[following, arc] = second
    network.arcs[previous, arc] = NONE
    if second != NONE:
        network.arcs[previous, second] = arc
    network.nodes[first, node] = arc


@kernel
def leave(network: Network, arc: int, node: int, first: int, following: int, previous: int) -> None:
    """Take an arc out of such a list."""
    before, after = network.arcs[previous, arc], network.arcs[following, arc]
    if before == NONE:
        network.nodes[first, node] = after
    else:
        network.arcs[following, before] = after
    if after != NONE:
        network.arcs[previous, after] = before


@kernel
def push(network: Network, arc: int, amount: int) -> None:
    """Send more along an arc, or less. Excess is the caller's."""
    before = network.arcs[FLOW, arc] > network.arcs[MINIMUM, arc]
    network.arcs[FLOW, arc] += amount
    after = network.arcs[FLOW, arc] > network.arcs[MINIMUM, arc]
    if after and not before:
        enter(network, arc, network.arcs[HEAD, arc], FIRST_USED, NEXT_USED, PREVIOUS_USED)
    elif before and not after:
        leave(network, arc, network.arcs[HEAD, arc], FIRST_USED, NEXT_USED, PREVIOUS_USED)


@kernel
def reduced_cost(network: Network, arc: int) -> int:
    """Cost − π(tail) + π(head)."""
    return int(
        network.arcs[COST, arc]
        - network.nodes[POTENTIAL, network.arcs[TAIL, arc]]
        + network.nodes[POTENTIAL, network.arcs[HEAD, arc]]
    )


@kernel
def is_broken(network: Network, arc: int) -> bool:
    """Whether an arc is out of bounds, or its reduced cost does not fit its flow (paper 004, table 5.3)."""
    flow = network.arcs[FLOW, arc]
    if flow > network.arcs[CAPACITY, arc] or flow < network.arcs[MINIMUM, arc]:
        return True
    reduced = reduced_cost(network, arc)
    return (reduced < 0 and flow < network.arcs[CAPACITY, arc]) or (reduced > 0 and flow > network.arcs[MINIMUM, arc])


@kernel
def check(network: Network, arc: int) -> int:
    """Note an arc if a change of it, or of its flow, has made it wrong. How many were noted."""
    fresh = (
        network.nodes[NODE_STATE, network.arcs[TAIL, arc]] == FRESH
        or network.nodes[NODE_STATE, network.arcs[HEAD, arc]] == FRESH
    )
    if fresh or is_broken(network, arc):
        suspect(network, arc)
        return 1
    return 0


@kernel
def link(network: Network, arc: int) -> None:
    """Enter an arc, whose fields are set and whose flow is 0, in the lists of its two nodes."""
    enter(network, arc, network.arcs[TAIL, arc], FIRST_OUT, NEXT_OUT, PREVIOUS_OUT)
    enter(network, arc, network.arcs[HEAD, arc], FIRST_IN, NEXT_IN, PREVIOUS_IN)


@kernel
def unlink(network: Network, arc: int) -> None:
    """Take an arc that carries nothing beyond its minimum out of the lists of its two nodes."""
    leave(network, arc, network.arcs[TAIL, arc], FIRST_OUT, NEXT_OUT, PREVIOUS_OUT)
    leave(network, arc, network.arcs[HEAD, arc], FIRST_IN, NEXT_IN, PREVIOUS_IN)


@kernel
def way_on(network: Network, node: int) -> int:
    """An arc on which something flows on from a node, of reduced cost 0 if there is one; NONE if nothing does."""
    best = NONE
    best_reduced = 0
    arc = network.nodes[FIRST_OUT, node]
    while arc != NONE:
        if network.arcs[FLOW, arc] > network.arcs[MINIMUM, arc]:
            reduced = abs(reduced_cost(network, arc))
            if best == NONE or reduced < best_reduced:
                best, best_reduced = arc, reduced
                if reduced == 0:
                    break
        arc = network.arcs[NEXT_OUT, arc]
    return int(best)


@kernel
def drain(network: Network, node: int, amount: int) -> None:
    """Less comes to a node: take the same from what flows on, down to the sinks, so that only these lack anything.

    This is efficient task removal (paper 004, §5.2.5.2). What finds no way to a sink stays as a lack at the node.
    """
    path = network.path
    while amount > 0:
        steps, share, here = 0, amount, node
        while network.nodes[SUPPLY, here] >= 0 and steps < DRAIN_STEPS_MAX:
            arc = way_on(network, here)
            if arc == NONE:
                break
            path[steps] = arc
            steps += 1
            share = min(share, network.arcs[FLOW, arc] - network.arcs[MINIMUM, arc])
            here = network.arcs[HEAD, arc]
        if network.nodes[SUPPLY, here] >= 0:
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
    flow = network.arcs[FLOW, arc]
    if flow != 0:
        push(network, arc, network.arcs[MINIMUM, arc] - flow)
        add_excess(network, network.arcs[TAIL, arc], flow)
    unlink(network, arc)
    network.arcs[ARC_STATE, arc] &= ~THERE
    network.arcs[FLOW, arc] = 0
    network.arcs[MINIMUM, arc] = 0
    network.arcs[CAPACITY, arc] = 0
    network.arcs[COST, arc] = 0
    if flow > 0:
        if drains:
            drain(network, network.arcs[HEAD, arc], flow)
        else:
            add_excess(network, network.arcs[HEAD, arc], -flow)


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
        arc = network.nodes[FIRST_OUT, nodes[place]]
        while arc != NONE:
            found += 1
            arc = network.arcs[NEXT_OUT, arc]
        arc = network.nodes[FIRST_IN, nodes[place]]
        while arc != NONE:
            found += 1
            arc = network.arcs[NEXT_IN, arc]
    return found


@kernel
def remove_nodes(network: Network, nodes: Integers, drains: bool, removed: Integers) -> int:
    """Take nodes out, with their arcs, which are told in `removed`. How many arcs these are."""
    found = 0
    for place in range(len(nodes)):
        node = nodes[place]
        while network.nodes[FIRST_OUT, node] != NONE:
            removed[found] = network.nodes[FIRST_OUT, node]
            remove_arc(network, removed[found], drains)
            found += 1
        while network.nodes[FIRST_IN, node] != NONE:
            removed[found] = network.nodes[FIRST_IN, node]
            # What the node sent on has been taken back already: what came in stays at the other end, no more.
            remove_arc(network, removed[found], False)
            found += 1
        network.nodes[SUPPLY, node] = 0
        network.nodes[EXCESS, node] = 0
        network.nodes[KIND, node] = ABSENT
        network.nodes[NODE_STATE, node] = PLAIN if network.nodes[NODE_STATE, node] == PLAIN else GONE
        network.nodes[POTENTIAL, node] = 0
    return found


@kernel
def add_nodes(network: Network, nodes: Integers, kinds: Integers, supplies: Integers) -> None:
    """Nodes without arcs yet."""
    for place in range(len(nodes)):
        node = nodes[place]
        network.nodes[KIND, node] = kinds[place]
        network.nodes[SUPPLY, node] = supplies[place]
        network.nodes[POTENTIAL, node] = 0
        network.nodes[FIRST_OUT, node] = NONE
        network.nodes[FIRST_IN, node] = NONE
        network.nodes[FIRST_USED, node] = NONE
        if network.nodes[NODE_STATE, node] == PLAIN:
            network.nodes[FRESH_NODES, network.counts[NEW]] = node
            network.counts[NEW] += 1
        network.nodes[NODE_STATE, node] = FRESH
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
        network.arcs[TAIL, arc] = tails[place]
        network.arcs[HEAD, arc] = heads[place]
        network.arcs[COST, arc] = costs[place]
        network.arcs[CAPACITY, arc] = capacities[place]
        network.arcs[MINIMUM, arc] = minimums[place]
        network.arcs[FLOW, arc] = 0
        network.arcs[ARC_STATE, arc] |= THERE
        link(network, arc)
        broken += check(network, arc)
    return broken


@kernel
def set_costs(network: Network, arcs: Integers, costs: Integers) -> int:
    """How many of the arcs are suspect by that."""
    broken = 0
    for place in range(len(arcs)):
        arc = arcs[place]
        if network.arcs[COST, arc] != costs[place]:
            network.arcs[COST, arc] = costs[place]
            broken += check(network, arc)
    return broken


@kernel
def set_bounds(network: Network, arcs: Integers, capacities: Integers, minimums: Integers) -> int:
    """How many of the arcs are suspect by that."""
    broken = 0
    for place in range(len(arcs)):
        arc = arcs[place]
        used = network.arcs[FLOW, arc] > network.arcs[MINIMUM, arc]
        network.arcs[CAPACITY, arc] = capacities[place]
        network.arcs[MINIMUM, arc] = minimums[place]
        if used and network.arcs[FLOW, arc] <= network.arcs[MINIMUM, arc]:
            leave(network, arc, network.arcs[HEAD, arc], FIRST_USED, NEXT_USED, PREVIOUS_USED)
        elif not used and network.arcs[FLOW, arc] > network.arcs[MINIMUM, arc]:
            enter(network, arc, network.arcs[HEAD, arc], FIRST_USED, NEXT_USED, PREVIOUS_USED)
        broken += check(network, arc)
    return broken


@kernel
def set_supplies(network: Network, nodes: Integers, supplies: Integers) -> None:
    """What nodes send out or take in from now on."""
    for place in range(len(nodes)):
        node = nodes[place]
        change = supplies[place] - network.nodes[SUPPLY, node]
        network.nodes[SUPPLY, node] = supplies[place]
        if change != 0:
            add_excess(network, node, change)


@kernel
def adopt(network: Network, arcs: int, flow: Integers, nodes: int, potential: Integers) -> int:
    """Take over a flow and potentials from elsewhere. How many arcs they do not fit."""
    for arc in range(arcs):
        change = flow[arc] - network.arcs[FLOW, arc]
        if change != 0:
            push(network, arc, change)
            add_excess(network, network.arcs[TAIL, arc], -change)
            add_excess(network, network.arcs[HEAD, arc], change)
    for node in range(nodes):
        network.nodes[POTENTIAL, node] = potential[node]
        network.nodes[NODE_STATE, node] = PLAIN
    network.counts[NEW] = 0
    for place in range(network.counts[ARCS]):
        network.arcs[ARC_STATE, network.arcs[SUSPECTS, place]] &= ~SUSPECT
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
        node = network.nodes[OPEN_NODES, place]
        if network.nodes[EXCESS, node] != 0:
            network.nodes[OPEN_NODES, left] = node
            left += 1
        else:
            network.nodes[IS_OPEN, node] = 0
    network.counts[NODES] = left
    return left
