"""Where tasks go, read from a flow: units of flow are followed from machines back to tasks (paper 004, §5.2.7).

A node's units are known once those of all nodes that it sends flow to are: in reverse topological order each node is
looked at once. (Listing 5.1 visits some again and again, and counts the wrong variable in its inner loop.)

A unit that went by way of aggregators could have gone to any of several machines of equal cost, and the next flow may
send it to another: `settle` gives a placed task an arc to its machine, the running arc, and moves its unit there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scheduler.flow.graph import FlowGraph, Kind
from scheduler.flow.kernels import kernel
from scheduler.flow.network import (
    FIRST_OUT,
    FLOW,
    HEAD,
    KIND,
    NEXT_OUT,
    NONE,
    Network,
    check,
    push,
)
from scheduler.flow.problem import FlowError, Integers

TASK, MACHINE, SINK = int(Kind.TASK), int(Kind.MACHINE), int(Kind.SINK)
UNSEEN, ENTERED, LEFT = 0, 1, 2
NO_CIRCLE = -1


class Units(NamedTuple):
    """Units of flow beyond tasks' own arcs: a list for each node, and for each unit the arcs that it takes then."""

    first: Integers
    """By node: the first of its units."""
    following: Integers
    """By unit: the next one of the same node."""
    machine: Integers
    """By unit: where it ends; NONE if at a sink."""
    path: Integers
    """By unit: the first step of its path."""
    step_arc: Integers
    step_next: Integers
    made: Integers
    """Shape (2,): how many units and steps there are."""


@dataclass(frozen=True, slots=True)
class Placements:
    """Where the tasks of a graph go."""

    machine: Integers
    """By node: a task's machine; -1 of a task that waits, and of nodes that are no tasks."""
    arc: Integers
    """By node: on which arc a task's unit leaves it; -1 if on none."""
    step: Integers
    """By node: the first step of the unit's path beyond that arc."""
    units: Units


@kernel
def sent(network: Network, nodes: int) -> int:
    """How many units leave nodes that are neither tasks nor machines: room for their steps."""
    found = 0
    for node in range(nodes):
        kind = network.nodes[KIND, node]
        if kind >= 0 and kind not in (TASK, MACHINE, SINK):
            arc = network.nodes[FIRST_OUT, node]
            while arc != NONE:
                found += network.arcs[FLOW, arc]
                arc = network.arcs[NEXT_OUT, arc]
    return found


@kernel
def new_unit(units: Units, node: int, machine: int, arc: int) -> None:
    """A unit that goes from a node to where it ends."""
    unit, step = units.made[0], units.made[1]
    units.made[0] += 1
    units.made[1] += 1
    units.machine[unit] = machine
    units.path[unit] = step
    units.step_arc[step] = arc
    units.step_next[step] = NONE
    units.following[unit] = units.first[node]
    units.first[node] = unit


@kernel
def gather(network: Network, units: Units, node: int) -> None:
    """Fetch a node's units from the nodes that it sends flow to, which have theirs."""
    arc = network.nodes[FIRST_OUT, node]
    while arc != NONE:
        head = network.arcs[HEAD, arc]
        kind = network.nodes[KIND, head]
        for _ in range(network.arcs[FLOW, arc]):
            if kind == MACHINE:
                new_unit(units, node, head, arc)
            elif kind == SINK:
                new_unit(units, node, NONE, arc)
            else:
                unit = units.first[head]
                if unit == NONE:
                    break
                units.first[head] = units.following[unit]
                units.following[unit] = units.first[node]
                units.first[node] = unit
                step = units.made[1]
                units.made[1] += 1
                units.step_arc[step] = arc
                units.step_next[step] = units.path[unit]
                units.path[unit] = step
        arc = network.arcs[NEXT_OUT, arc]


@kernel
def gather_below(
    network: Network, units: Units, root: int, seen: NDArray[np.int8], stack: Integers, cursor: Integers
) -> int:
    """Gather the units of a node, those of all below it first. A node that gets flow from itself, or NO_CIRCLE."""
    depth = 0
    stack[0] = root
    seen[root] = ENTERED
    cursor[root] = network.nodes[FIRST_OUT, root]
    while depth >= 0:
        node = stack[depth]
        arc = cursor[node]
        if arc == NONE:
            gather(network, units, node)
            seen[node] = LEFT
            depth -= 1
            continue
        cursor[node] = network.arcs[NEXT_OUT, arc]
        head = network.arcs[HEAD, arc]
        if network.arcs[FLOW, arc] > 0 and network.nodes[KIND, head] != MACHINE and network.nodes[KIND, head] != SINK:
            if seen[head] == ENTERED:
                return int(head)
            if seen[head] == UNSEEN:
                depth += 1
                stack[depth] = head
                seen[head] = ENTERED
                cursor[head] = network.nodes[FIRST_OUT, head]
    return NO_CIRCLE


@kernel
def place_tasks(
    network: Network,
    units: Units,
    nodes: int,
    seen: NDArray[np.int8],
    stack: Integers,
    cursor: Integers,
    machine: Integers,
    by_arc: Integers,
    by_step: Integers,
) -> int:
    """Find each task's machine. A node that gets flow from itself, or NO_CIRCLE."""
    for node in range(nodes):
        if network.nodes[KIND, node] != TASK:
            continue
        arc = network.nodes[FIRST_OUT, node]
        while arc != NONE and network.arcs[FLOW, arc] == 0:
            arc = network.arcs[NEXT_OUT, arc]
        if arc == NONE:
            continue
        by_arc[node] = arc
        head = network.arcs[HEAD, arc]
        if network.nodes[KIND, head] == MACHINE:
            machine[node] = head
        elif network.nodes[KIND, head] != SINK:
            if seen[head] == UNSEEN:
                circle = gather_below(network, units, head, seen, stack, cursor)
                if circle != NO_CIRCLE:
                    return circle
            unit = units.first[head]
            if unit != NONE:
                units.first[head] = units.following[unit]
                machine[node] = units.machine[unit]
                by_step[node] = units.path[unit]
    return NO_CIRCLE


@kernel
def move(network: Network, by_arc: Integers, by_step: Integers, units: Units, tasks: Integers, arcs: Integers) -> None:
    """Send the unit of each task along its new arc, no longer along its old path."""
    for place in range(len(tasks)):
        task = tasks[place]
        old = by_arc[task]
        push(network, old, -1)
        check(network, old)
        step = by_step[task]
        while step != NONE:
            push(network, units.step_arc[step], -1)
            check(network, units.step_arc[step])
            step = units.step_next[step]
        push(network, arcs[place], 1)
        check(network, arcs[place])
        by_arc[task] = arcs[place]
        by_step[task] = NONE


def extract(graph: FlowGraph) -> Placements:
    """Where each node of kind TASK goes: to a node of kind MACHINE, or nowhere."""
    nodes = graph.node_room.limit
    room = sent(graph.network, nodes)

    def numbers(count: int) -> Integers:
        return np.full(count, NONE, np.int64)

    units = Units(
        first=numbers(nodes),
        following=numbers(room),
        machine=numbers(room),
        path=numbers(room),
        step_arc=numbers(room),
        step_next=numbers(room),
        made=np.zeros(2, np.int64),
    )
    machine, by_arc, by_step = numbers(nodes), numbers(nodes), numbers(nodes)
    stack, cursor = np.empty(nodes, np.int64), np.empty(nodes, np.int64)
    seen = np.zeros(nodes, np.int8)
    circle = place_tasks(graph.network, units, nodes, seen, stack, cursor, machine, by_arc, by_step)
    if circle != NO_CIRCLE:
        raise FlowError(f"node {circle} gets flow from itself: placements need a graph without circles")
    return Placements(machine, by_arc, by_step, units)


def settle(graph: FlowGraph, placements: Placements, tasks: Integers, costs: Integers) -> Integers:
    """Give tasks running arcs to the machines where they were placed, and move their units there: the arcs.

    Only at once after `extract`. Where a running arc costs no more than the way that the unit took, the flow stays one
    of least cost, but for room that it leaves in full arcs: the next solve sees to that.
    """
    machines = placements.machine[tasks].astype(np.int64)
    if (machines == NONE).any():
        raise FlowError(f"node {tasks[machines == NONE][0]} is no task that has a machine")
    ones = np.ones(len(tasks), np.int64)
    arcs = graph.add_arcs(tasks, machines, costs, ones, np.zeros(len(tasks), np.int64))
    move(graph.network, placements.arc, placements.step, placements.units, tasks, arcs)
    return arcs
