"""A relaxation-type solver: it keeps each arc's flow right for its reduced cost, and repairs the balance of nodes.

From a node to which too much comes it grows a tree of arcs of reduced cost 0; when the tree can grow no more, the
potentials of its nodes rise until one more arc has reduced cost 0 (dual ascent); when it reaches a node that lacks
something, that much flows along the tree (paper 004, §5.2.1, "Relaxation"; a tree here is a search for the shortest
path by reduced costs that ends as soon as no shorter one can be left). From a node that lacks something a tree grows
against the arcs.

On a graph that has changed only what a change has broken is repaired (§5.2.4, table 5.3): an arc whose flow no longer
fits is emptied or filled, and what that leaves at its ends flows round in a search that is no longer than the arc's
own reduced cost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from scheduler.flow.graph import FlowGraph
from scheduler.flow.kernels import kernel
from scheduler.flow.limits import check_problem
from scheduler.flow.network import (
    ARC_STATE,
    ARCS,
    CAPACITY,
    COST,
    EXCESS,
    FIRST_IN,
    FIRST_OUT,
    FIRST_USED,
    FLOW,
    FRESH,
    FRESH_NODES,
    HEAD,
    MINIMUM,
    NEW,
    NEXT_IN,
    NEXT_OUT,
    NEXT_USED,
    NODE_STATE,
    NODES,
    NONE,
    OPEN_NODES,
    PLAIN,
    POTENTIAL,
    SUPPLY,
    SUSPECT,
    SUSPECTS,
    TAIL,
    Network,
    add_excess,
    drain,
    excesses,
    is_broken,
    push,
    reduced_cost,
)
from scheduler.flow.problem import Integers, Problem, Solution, StoppedError, UnmetError
from scheduler.flow.solvers.heap import DISTANCE, HEAP, PLACE, insert, remove
from scheduler.flow.solvers.stopping import POLL_ARCS, POLL_STEPS, TOLD, StopFlag, refuse_to_go_on, stop_flag

FAR = 2**63 - 1
WAY, SEEN = 3, 4
"""Rows beyond those of the heap: twice the arc on which a node was reached, and 1 if against the arc; the nodes that
were reached."""
TABLE_ROWS = 5
TOLD_TO_STOP = -2
"""What a search finds that was told to stop."""

POTENTIAL_MAX = 2**61
"""As an absolute value, when a solve begins: potentials that have drifted further are forgotten, and the flow."""

DONE, STOPPED, INFEASIBLE = 0, 1, 2
SEARCHES, VISITS, STEPS, MOVES, WHERE = 0, 1, 2, 3, 4
"""Places in `tally`: searches, nodes they looked at, arcs they looked at, paths that flow was sent along; the node for
which there is no path."""


class Search(NamedTuple):
    """What one search knows; empty between searches."""

    table: Integers
    """A row for each field of `heap` and those above, a column for each node."""
    near: Integers
    """Nodes at the present distance, of which the one that is first is looked at next."""
    tally: Integers


class Options(NamedTuple):
    """What can be switched off to see what it is worth."""

    prioritised: bool = True
    """Arcs towards the sinks are followed first, depth first (paper 004, §5.2.5.1)."""


@dataclass(frozen=True, slots=True)
class Round:
    """What a solve has done; nothing if what had changed broke nothing."""

    searches: int
    visits: int
    steps: int
    moves: int


# ---- searches --------------------------------------------------------------------------------------------------------


@kernel
def find(
    network: Network, search: Search, source: int, target: int, forward: bool, stop: StopFlag, options: Options
) -> int:
    """The nearest node of the other sign, or `target`, from `source`; potentials are raised so that the path is flat.

    Forward from where too much comes, else backward from where something lacks. NONE if there is none, TOLD_TO_STOP if
    so; nothing has changed then.
    """
    table, near = search.table, search.near
    arcs, nodes = network.arcs, network.nodes
    sign = 1 if forward else -1
    table[DISTANCE, source] = 0
    table[WAY, source] = NONE
    table[SEEN, 0] = source
    seen_count, heap_size, steps = 1, 0, search.tally[STEPS]
    # Near nodes: those put in front lie below the middle, those put behind above.
    middle = len(near) // 2
    front, back = middle, middle + 1
    near[front] = source
    level, best, best_distance = 0, NONE, FAR
    while best_distance > level:
        if front < back:
            node = near[front]
            front += 1
        elif heap_size > 0:
            node = table[HEAP, 0]
            if table[DISTANCE, node] >= best_distance:
                break
            level = table[DISTANCE, node]
            heap_size = remove(table, 0, heap_size)
            front, back = middle, middle
        else:
            break
        # Residual arcs of both kinds: those that lead on in the direction of the search, and those against it.
        for kind in range(2):
            with_arc = kind == 0
            if forward:
                arc = nodes[FIRST_OUT, node] if with_arc else nodes[FIRST_USED, node]
            else:
                arc = nodes[FIRST_IN, node] if with_arc else nodes[FIRST_OUT, node]
            while arc != NONE:
                this = arc
                steps += 1
                if steps % POLL_STEPS == 0 and (stop[0] != 0 or (len(stop) > 1 and steps >= stop[1])):
                    best, best_distance = TOLD_TO_STOP, level
                    break
                if forward:
                    if with_arc:
                        arc = arcs[NEXT_OUT, this]
                        if arcs[FLOW, this] >= arcs[CAPACITY, this]:
                            continue
                        other = arcs[HEAD, this]
                        reduced = arcs[COST, this] - nodes[POTENTIAL, node] + nodes[POTENTIAL, other]
                    else:
                        arc = arcs[NEXT_USED, this]
                        other = arcs[TAIL, this]
                        reduced = -arcs[COST, this] + nodes[POTENTIAL, other] - nodes[POTENTIAL, node]
                elif with_arc:
                    arc = arcs[NEXT_IN, this]
                    other = arcs[TAIL, this]
                    reduced = arcs[COST, this] - nodes[POTENTIAL, other] + nodes[POTENTIAL, node]
                    if level + reduced >= best_distance or arcs[FLOW, this] >= arcs[CAPACITY, this]:
                        continue
                else:
                    arc = arcs[NEXT_OUT, this]
                    if arcs[FLOW, this] <= arcs[MINIMUM, this]:
                        continue
                    other = arcs[HEAD, this]
                    reduced = -arcs[COST, this] + nodes[POTENTIAL, node] - nodes[POTENTIAL, other]
                reached = level + reduced
                before = table[DISTANCE, other]
                if reached >= before or reached >= best_distance:
                    continue
                if before == FAR:
                    table[SEEN, seen_count] = other
                    seen_count += 1
                table[DISTANCE, other] = reached
                table[WAY, other] = 2 * this + (0 if with_arc else 1)
                if other == target or sign * nodes[EXCESS, other] < 0:
                    best, best_distance = other, reached
                    if table[PLACE, other] != NONE:
                        heap_size = remove(table, table[PLACE, other], heap_size)
                    if reached == level:
                        arc = NONE
                elif reached == level:
                    if table[PLACE, other] != NONE:
                        heap_size = remove(table, table[PLACE, other], heap_size)
                    if with_arc and options.prioritised:
                        front -= 1
                        near[front] = other
                    else:
                        near[back] = other
                        back += 1
                else:
                    heap_size = insert(table, other, heap_size)
            if best_distance == level:
                break
    for place in range(heap_size):
        table[PLACE, table[HEAP, place]] = NONE
    for place in range(seen_count):
        node = table[SEEN, place]
        if best >= 0 and table[DISTANCE, node] < best_distance:
            nodes[POTENTIAL, node] += sign * (best_distance - table[DISTANCE, node])
        table[DISTANCE, node] = FAR
    search.tally[SEARCHES] += 1
    search.tally[VISITS] += seen_count
    search.tally[STEPS] = steps
    return int(best)


@kernel
def send(network: Network, search: Search, source: int, end: int, amount: int, forward: bool) -> int:
    """Send up to so much along the path that a search has found. How much it was."""
    node = end
    while node != source:
        arc = search.table[WAY, node] >> 1
        if search.table[WAY, node] & 1 == 0:
            amount = min(amount, network.arcs[CAPACITY, arc] - network.arcs[FLOW, arc])
        else:
            amount = min(amount, network.arcs[FLOW, arc] - network.arcs[MINIMUM, arc])
        along = (search.table[WAY, node] & 1 == 0) == forward
        node = network.arcs[TAIL, arc] if along else network.arcs[HEAD, arc]
    node = end
    while node != source:
        arc = search.table[WAY, node] >> 1
        against = search.table[WAY, node] & 1
        push(network, arc, -amount if against else amount)
        along = (against == 0) == forward
        node = network.arcs[TAIL, arc] if along else network.arcs[HEAD, arc]
    sign = 1 if forward else -1
    add_excess(network, source, -sign * amount)
    add_excess(network, end, sign * amount)
    search.tally[MOVES] += 1
    return amount


# ---- what changes have broken ----------------------------------------------------------------------------------------


@kernel
def price(network: Network, node: int, alone: bool) -> None:
    """Give a new node a potential that fits its arcs as well as may be, where the other ends have theirs.

    A node with ways in keeps all of these right, so that at most its arcs out are wrong: a machine that joins is one
    arc to repair, not one for each task that likes it.
    """
    best = FAR
    arc = network.nodes[FIRST_OUT, node]
    while arc != NONE:
        head = network.arcs[HEAD, arc]
        if network.arcs[CAPACITY, arc] > network.arcs[FLOW, arc] and network.nodes[NODE_STATE, head] == PLAIN:
            best = min(best, network.arcs[COST, arc] + network.nodes[POTENTIAL, head])
        arc = network.arcs[NEXT_OUT, arc]
    arc = NONE if alone else network.nodes[FIRST_IN, node]
    while arc != NONE:
        tail = network.arcs[TAIL, arc]
        if network.arcs[CAPACITY, arc] > network.arcs[FLOW, arc] and network.nodes[NODE_STATE, tail] == PLAIN:
            least = network.nodes[POTENTIAL, tail] - network.arcs[COST, arc]
            best = least if best == FAR else max(best, least)
        arc = network.arcs[NEXT_IN, arc]
    network.nodes[POTENTIAL, node] = 0 if best == FAR else best
    network.nodes[NODE_STATE, node] = PLAIN


@kernel
def price_fresh(network: Network, search: Search, alone: bool, stop: StopFlag) -> None:
    """Give new nodes potentials, each after those that it has arcs to; `alone`: there are no other nodes.

    Their arcs are suspects already: those in a circle of new nodes may not fit. If the flag is set some are left.
    """
    table = search.table
    for step in range(network.counts[NEW]):
        if step % POLL_STEPS == 0 and stop[0] != 0:
            return
        root = network.nodes[FRESH_NODES, step]
        if network.nodes[NODE_STATE, root] != FRESH:
            continue
        depth = 0
        table[HEAP, 0] = root
        table[PLACE, root] = 0
        table[WAY, root] = network.nodes[FIRST_OUT, root]
        while depth >= 0:
            node = table[HEAP, depth]
            arc = table[WAY, node]
            if arc == NONE:
                price(network, node, alone)
                table[PLACE, node] = NONE
                depth -= 1
                continue
            table[WAY, node] = network.arcs[NEXT_OUT, arc]
            head = network.arcs[HEAD, arc]
            if network.nodes[NODE_STATE, head] == FRESH and table[PLACE, head] == NONE:
                depth += 1
                table[HEAP, depth] = head
                table[PLACE, head] = 0
                table[WAY, head] = network.nodes[FIRST_OUT, head]
    for step in range(network.counts[NEW]):
        network.nodes[NODE_STATE, network.nodes[FRESH_NODES, step]] = PLAIN
    network.counts[NEW] = 0


@kernel
def fit_source(network: Network, node: int) -> bool:
    """Have the arcs of a node that sends one unit, and has no arcs in, fit. False: it is no such node.

    If the unit's way is still the best, only the node's potential changes: an offset on all its arcs moves nothing.
    Else the unit is taken back down to the sink, and sent anew later.
    """
    if network.nodes[FIRST_IN, node] != NONE or network.nodes[SUPPLY, node] != 1:
        return False
    best, best_other, used = FAR, FAR, NONE
    arc = network.nodes[FIRST_OUT, node]
    while arc != NONE:
        if network.arcs[MINIMUM, arc] > 0 or network.arcs[FLOW, arc] > 1:
            return False
        cost = network.arcs[COST, arc] + network.nodes[POTENTIAL, network.arcs[HEAD, arc]]
        if network.arcs[CAPACITY, arc] > 0:
            best = min(best, cost)
        if network.arcs[FLOW, arc] < network.arcs[CAPACITY, arc]:
            best_other = min(best_other, cost)
        if network.arcs[FLOW, arc] > 0:
            used = arc
        arc = network.arcs[NEXT_OUT, arc]
    if used != NONE and network.nodes[EXCESS, node] == 0 and network.arcs[CAPACITY, used] > 0:
        cost = network.arcs[COST, used] + network.nodes[POTENTIAL, network.arcs[HEAD, used]]
        if cost <= best_other:
            network.nodes[POTENTIAL, node] = cost
            return True
    arc = network.nodes[FIRST_OUT, node]
    while arc != NONE:
        if network.arcs[FLOW, arc] > 0:
            push(network, arc, -1)
            add_excess(network, node, 1)
            drain(network, network.arcs[HEAD, arc], 1)
        arc = network.arcs[NEXT_OUT, arc]
    if best != FAR:
        network.nodes[POTENTIAL, node] = best
    return True


@kernel
def settle_arcs(network: Network, repairs: Integers, drains: bool, stop: StopFlag) -> int:
    """Make the flow of all suspects fit, until the flag is set. How many repairs.

    Two numbers for each, the arc that was filled or emptied, twice, and 1 if emptied, and how much it was: this much
    should flow round, if there is a short way.
    """
    found = 0
    while network.counts[ARCS] > 0:
        if network.counts[ARCS] % POLL_STEPS == 0 and stop[0] != 0:
            break
        network.counts[ARCS] -= 1
        arc = network.arcs[SUSPECTS, network.counts[ARCS]]
        network.arcs[ARC_STATE, arc] &= ~SUSPECT
        if not is_broken(network, arc):
            continue
        tail, head = network.arcs[TAIL, arc], network.arcs[HEAD, arc]
        if drains and fit_source(network, tail):
            continue
        flow = network.arcs[FLOW, arc]
        legal = min(max(flow, network.arcs[MINIMUM, arc]), network.arcs[CAPACITY, arc])
        if legal != flow:
            push(network, arc, legal - flow)
            add_excess(network, tail, flow - legal)
            add_excess(network, head, legal - flow)
        reduced = reduced_cost(network, arc)
        right = network.arcs[CAPACITY, arc] if reduced < 0 else network.arcs[MINIMUM, arc] if reduced > 0 else legal
        if right != legal:
            push(network, arc, right - legal)
            add_excess(network, tail, legal - right)
            add_excess(network, head, right - legal)
            if found < len(repairs) // 2:
                repairs[2 * found] = 2 * arc + (1 if right < legal else 0)
                repairs[2 * found + 1] = abs(right - legal)
                found += 1
    return found


# ---- the solver ------------------------------------------------------------------------------------------------------


@kernel
def repair(
    network: Network, search: Search, repairs: Integers, alone: bool, drains: bool, stop: StopFlag, options: Options
) -> int:
    """Make the flow one of least cost. DONE, STOPPED or INFEASIBLE; all arcs' flows fit their reduced costs then."""
    if stop[0] == 0:
        price_fresh(network, search, alone, stop)
    found = 0
    if stop[0] == 0:
        found = settle_arcs(network, repairs, drains, stop)
    if stop[0] != 0:
        return STOPPED
    forward = bool(found < 0)  # False, but no constant: so one compiled search serves both directions.
    for number in range(found):
        arc, emptied = repairs[2 * number] >> 1, repairs[2 * number] & 1
        left = repairs[2 * number + 1]
        lacking = network.arcs[HEAD, arc] if emptied else network.arcs[TAIL, arc]
        full = network.arcs[TAIL, arc] if emptied else network.arcs[HEAD, arc]
        while left > 0 and network.nodes[EXCESS, lacking] < 0:
            end = find(network, search, lacking, full, forward, stop, options)
            if end == TOLD_TO_STOP:
                return STOPPED
            if end == NONE:
                break
            amount = min(left, -network.nodes[EXCESS, lacking])
            if end != full:
                amount = min(amount, network.nodes[EXCESS, end])
            left -= send(network, search, lacking, end, amount, forward)
    # What lacks elsewhere than at sinks: from there backward, as sinks have far more arcs in.
    for forward in (False, True):
        sign = 1 if forward else -1
        place = 0
        while place < network.counts[NODES]:
            node = network.nodes[OPEN_NODES, place]
            place += 1
            if not forward and network.nodes[SUPPLY, node] < 0:
                continue
            while sign * network.nodes[EXCESS, node] > 0:
                end = find(network, search, node, NONE, forward, stop, options)
                if end == TOLD_TO_STOP:
                    return STOPPED
                if end == NONE:
                    search.tally[WHERE] = node
                    return INFEASIBLE
                amount = min(sign * network.nodes[EXCESS, node], -sign * network.nodes[EXCESS, end])
                send(network, search, node, end, amount, forward)
        excesses(network)
    search.tally[WHERE] = network.nodes[OPEN_NODES, 0]
    return DONE if network.counts[NODES] == 0 else INFEASIBLE


class Relaxation:
    """The solver of one graph: `solve` after each batch of changes. What it was stopped in, the next one continues."""

    def __init__(self, graph: FlowGraph, *, prioritised: bool = True, drains: bool = True) -> None:
        self.graph = graph
        self.options = Options(prioritised)
        self.drains = drains
        """Efficient task removal (paper 004, §5.2.5.2), for tasks that change their place."""
        self._search = _search(0)
        self._repairs = np.empty(0, np.int64)

    def solve(self, stop: StopFlag | None = None) -> Round:
        """Make the graph's flow one of least cost. `InfeasibleError`; `StoppedError`: call it again to go on.

        Steps, of which a flag may allow so many, are arcs that searches look at.
        """
        graph = self.graph
        if graph.is_settled():
            return Round(0, 0, 0, 0)
        if np.abs(graph.potential).max() > POTENTIAL_MAX:
            graph.forget()
        network = graph.network
        if self._search.table.shape[1] < network.nodes.shape[1]:
            self._search = _search(network.nodes.shape[1])
        if len(self._repairs) < 2 * network.arcs.shape[1]:
            self._repairs = np.empty(2 * network.arcs.shape[1], np.int64)
        tally = self._search.tally
        tally[:] = 0
        flag = stop_flag() if stop is None else stop
        alone = bool(network.counts[NEW] == graph.nodes)
        outcome = repair(network, self._search, self._repairs, alone, self.drains, flag, self.options)
        if outcome == STOPPED:
            raise StoppedError(TOLD)
        if outcome == INFEASIBLE:
            node = int(tally[WHERE])
            raise UnmetError(node, int(network.nodes[EXCESS, node]))
        return Round(*(int(tally[place]) for place in (SEARCHES, VISITS, STEPS, MOVES)))


def solve(problem: Problem, start: Solution | None = None, stop: StopFlag | None = None) -> Solution:
    """A flow of least cost, from nothing or from a solution of a similar problem of the same size."""
    check_problem(problem)
    graph = _graph_of(problem, stop)
    if start is not None:
        graph.adopt(start)
    Relaxation(graph).solve(stop)
    return graph.solution()


def _graph_of(problem: Problem, stop: StopFlag | None) -> FlowGraph:
    """`FlowGraph.of`, so many arcs at a time, the last ones first, as each comes first in the lists of its nodes."""
    graph = FlowGraph(len(problem.supply), len(problem.tail))
    graph.add_nodes(problem.supply, np.zeros(len(problem.supply), np.int64))
    numbers = graph.arc_room.take_new(len(problem.tail))
    for end in range(len(numbers), 0, -POLL_ARCS):
        refuse_to_go_on(stop)
        part = slice(max(0, end - POLL_ARCS), end)
        graph.add_arcs(
            problem.tail[part],
            problem.head[part],
            problem.cost[part],
            problem.capacity[part],
            problem.minimum[part],
            numbers[part],
        )
    return graph


def _search(nodes: int) -> Search:
    table = np.full((TABLE_ROWS, nodes), NONE, np.int64)
    table[DISTANCE] = FAR
    return Search(table, np.full(2 * nodes + 2, NONE, np.int64), np.zeros(5, np.int64))
