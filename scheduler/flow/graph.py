"""A flow network that changes: nodes and arcs come and go, and what is known of the best flow is kept.

The arrays are those of `network`; here are the numbers of nodes and arcs that are free, growth, and what is refused.
Many changes at a time cost little each; `changes` gathers them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from scheduler.flow import network
from scheduler.flow.limits import (
    check_arrays,
    check_bounds,
    check_cost,
    check_costs,
    check_ends,
    check_number,
    check_supplies,
    largest,
)
from scheduler.flow.network import (
    ABSENT,
    ARC_FIELDS,
    ARC_STATE,
    ARCS,
    CAPACITY,
    COST,
    FIRST_IN,
    FIRST_OUT,
    FIRST_USED,
    FLOW,
    HEAD,
    KIND,
    MINIMUM,
    NEXT_IN,
    NEXT_OUT,
    NEXT_USED,
    NODE_FIELDS,
    NONE,
    POTENTIAL,
    SUPPLY,
    TAIL,
    THERE,
    Network,
)
from scheduler.flow.problem import Integers, Problem, ProblemError, Solution


class Kind(IntEnum):
    """What a node stands for. Solvers do not care; placements are found by it."""

    OTHER = 0
    TASK = 1
    MACHINE = 2
    SINK = 3
    UNSCHEDULED = 4
    """An aggregator of tasks that wait."""


@dataclass(frozen=True, slots=True)
class Compact:
    """A problem without gaps, and the numbers that its nodes and arcs have in the graph."""

    problem: Problem
    nodes: Integers
    arcs: Integers


class Room:
    """The numbers of nodes or arcs: those in use, and those that are free again."""

    def __init__(self, noun: str) -> None:
        self.noun = noun
        self.limit = 0
        """All numbers in use are below."""
        self._free: list[int] = []

    def take(self) -> int:
        """A number that is in no use."""
        if self._free:
            return self._free.pop()
        check_number(self.noun, self.limit + 1)
        self.limit += 1
        return self.limit - 1

    def take_new(self, count: int) -> Integers:
        """Numbers that never were in use, one after the other: so their fields lie side by side."""
        check_number(self.noun, self.limit + count)
        self.limit += count
        return np.arange(self.limit - count, self.limit, dtype=np.int64)

    def take_many(self, count: int) -> Integers:
        """Numbers that are in no use."""
        old = [self._free.pop() for _ in range(min(count, len(self._free)))]
        return np.concatenate([np.array(old, np.int64), self.take_new(count - len(old))])

    def give_back(self, numbers: Sequence[int] | Integers) -> None:
        """Numbers that are in use no longer."""
        self._free.extend(numbers.tolist() if isinstance(numbers, np.ndarray) else numbers)

    @property
    def used(self) -> int:
        """How many are in use."""
        return self.limit - len(self._free)


class FlowGraph:
    """Numbers of nodes and arcs stay the same as long as these are there; those of removed ones are used again.

    `reserve_node` and `reserve_arc` give numbers at once; `changes.Changes` fills in what they stand for. The arrays
    (`graph.flow` …) are views, good until the graph grows.
    """

    def __init__(self, nodes: int = 64, arcs: int = 256) -> None:
        self.node_room = Room("node")
        self.arc_room = Room("arc")
        self.network = _network(max(1, nodes), max(1, arcs))
        self.cost_max = 0
        """The largest cost that an arc ever had, as an absolute value."""

    @classmethod
    def of(cls, problem: Problem, kinds: Integers | None = None) -> FlowGraph:
        """A graph with the nodes and arcs of a problem, by the same numbers, and no flow."""
        check_arrays(problem)
        graph = cls(len(problem.supply), len(problem.tail))
        graph.add_nodes(problem.supply, np.zeros(len(problem.supply), np.int64) if kinds is None else kinds)
        graph.add_arcs(problem.tail, problem.head, problem.cost, problem.capacity, problem.minimum)
        return graph

    # ---- what is there

    @property
    def nodes(self) -> int:
        """How many nodes there are, reserved ones included."""
        return self.node_room.used

    @property
    def arcs(self) -> int:
        """How many arcs there are, reserved ones included."""
        return self.arc_room.used

    @property
    def tail(self) -> Integers:
        """By arc; removed arcs have a capacity of 0."""
        return self.network.arcs[TAIL, : self.arc_room.limit]

    @property
    def head(self) -> Integers:
        """By arc."""
        return self.network.arcs[HEAD, : self.arc_room.limit]

    @property
    def cost(self) -> Integers:
        """By arc."""
        return self.network.arcs[COST, : self.arc_room.limit]

    @property
    def capacity(self) -> Integers:
        """By arc."""
        return self.network.arcs[CAPACITY, : self.arc_room.limit]

    @property
    def minimum(self) -> Integers:
        """By arc."""
        return self.network.arcs[MINIMUM, : self.arc_room.limit]

    @property
    def flow(self) -> Integers:
        """By arc."""
        return self.network.arcs[FLOW, : self.arc_room.limit]

    @property
    def supply(self) -> Integers:
        """By node."""
        return self.network.nodes[SUPPLY, : self.node_room.limit]

    @property
    def potential(self) -> Integers:
        """By node."""
        return self.network.nodes[POTENTIAL, : self.node_room.limit]

    @property
    def kind(self) -> Integers:
        """By node: a `Kind`, or -1 of nodes that are not there."""
        return self.network.nodes[KIND, : self.node_room.limit]

    def has_node(self, node: int) -> bool:
        """Whether there is such a node, not only its number."""
        return 0 <= node < len(self.network.nodes[KIND]) and self.network.nodes[KIND, node] != ABSENT

    def has_arc(self, arc: int) -> bool:
        """Whether there is such an arc, not only its number."""
        return 0 <= arc < len(self.network.arcs[TAIL]) and bool(self.network.arcs[ARC_STATE, arc] & THERE)

    def known_arcs(self, arcs: Integers) -> None:
        """`ProblemError` that names the first arc that is not there."""
        unknown = (arcs < 0) | (arcs >= len(self.network.arcs[TAIL]))
        unknown[~unknown] = self.network.arcs[ARC_STATE, arcs[~unknown]] & THERE == 0
        if unknown.any():
            raise ProblemError(f"arc {arcs[unknown][0]}: there is none of that number")

    def out_arcs(self, node: int) -> list[int]:
        """The arcs that leave a node, the newest ones first."""
        self._known_node(node)
        return _listed(self.network.nodes[FIRST_OUT, node], self.network.arcs[NEXT_OUT])

    def in_arcs(self, node: int) -> list[int]:
        """The arcs that enter a node, the newest ones first."""
        self._known_node(node)
        return _listed(self.network.nodes[FIRST_IN, node], self.network.arcs[NEXT_IN])

    def used_in_arcs(self, node: int) -> list[int]:
        """Those that enter a node and carry more than their minimum."""
        self._known_node(node)
        return _listed(self.network.nodes[FIRST_USED, node], self.network.arcs[NEXT_USED])

    # ---- one change at a time

    def add_node(self, supply: int = 0, kind: Kind = Kind.OTHER) -> int:
        """The node's number."""
        return int(self.add_nodes(np.array([supply], np.int64), np.array([kind], np.int64))[0])

    def remove_node(self, node: int, *, drains: bool = True) -> None:
        """With its arcs."""
        self.remove_nodes(np.array([node], np.int64), drains=drains)

    def add_arc(self, tail: int, head: int, cost: int, capacity: int, minimum: int = 0) -> int:
        """The arc's number."""
        row = (np.array([value], np.int64) for value in (tail, head, cost, capacity, minimum))
        return int(self.add_arcs(*row)[0])

    def remove_arc(self, arc: int, *, drains: bool = True) -> None:
        """What it carried is to find another way from its tail."""
        self.remove_arcs(np.array([arc], np.int64), drains=drains)

    def set_cost(self, arc: int, cost: int) -> int:
        """1 if the arc's flow may have to change, else 0."""
        return self.set_costs(np.array([arc], np.int64), np.array([cost], np.int64))

    def set_capacity(self, arc: int, capacity: int) -> int:
        """1 if the arc's flow may have to change, else 0."""
        self._known_arc(arc)
        one = np.array([arc], np.int64)
        return self.set_bounds(one, np.array([capacity], np.int64), self.network.arcs[MINIMUM, one])

    def set_minimum(self, arc: int, minimum: int) -> int:
        """1 if the arc's flow may have to change, else 0."""
        self._known_arc(arc)
        one = np.array([arc], np.int64)
        return self.set_bounds(one, self.network.arcs[CAPACITY, one], np.array([minimum], np.int64))

    def set_supply(self, node: int, supply: int) -> None:
        """Positive: sent out. Negative: taken in."""
        self.set_supplies(np.array([node], np.int64), np.array([supply], np.int64))

    # ---- many at a time

    def add_nodes(self, supplies: Integers, kinds: Integers, numbers: Integers | None = None) -> Integers:
        """The numbers of the new nodes: `numbers`, if they were reserved."""
        check_supplies(supplies)
        check_cost(self.cost_max, self.nodes + (len(supplies) if numbers is None else 0))
        if numbers is None:
            numbers = self.node_room.take_many(len(supplies))
        self._grow()
        network.add_nodes(self.network, numbers, kinds.astype(np.int64), np.ascontiguousarray(supplies, np.int64))
        return numbers

    def add_arcs(
        self,
        tails: Integers,
        heads: Integers,
        costs: Integers,
        capacities: Integers,
        minimums: Integers,
        numbers: Integers | None = None,
    ) -> Integers:
        """The numbers of the new arcs: `numbers`, if they were reserved."""
        check_bounds(capacities, minimums)
        check_ends(tails, heads, self.network.nodes[KIND] != ABSENT)
        check_costs(costs, self.nodes)
        if numbers is None:
            numbers = self.arc_room.take_many(len(tails))
        self._grow()
        columns = (np.ascontiguousarray(column, np.int64) for column in (tails, heads, costs, capacities, minimums))
        network.add_arcs(self.network, numbers, *columns)
        self.cost_max = max(self.cost_max, largest(costs))
        return numbers

    def remove_nodes(self, nodes: Integers, *, drains: bool = True) -> Integers:
        """With their arcs, whose numbers are returned. `drains`: what came from them is taken back from the sinks."""
        self._known_nodes(nodes)
        arcs = np.empty(network.arcs_of(self.network, nodes), np.int64)
        removed = arcs[: network.remove_nodes(self.network, nodes, drains, arcs)]
        self.node_room.give_back(nodes)
        self.arc_room.give_back(removed)
        return removed

    def remove_arcs(self, arcs: Integers, *, drains: bool = True) -> None:
        """What they carried is to find another way from their tails."""
        self.known_arcs(arcs)
        network.remove_arcs(self.network, arcs, drains)
        self.arc_room.give_back(arcs)

    def set_costs(self, arcs: Integers, costs: Integers) -> int:
        """How many of the changes may change the flow."""
        self.known_arcs(arcs)
        check_costs(costs, self.nodes)
        self.cost_max = max(self.cost_max, largest(costs))
        return network.set_costs(self.network, arcs, costs)

    def set_bounds(self, arcs: Integers, capacities: Integers, minimums: Integers) -> int:
        """How many of the changes may change the flow."""
        self.known_arcs(arcs)
        check_bounds(capacities, minimums)
        return network.set_bounds(self.network, arcs, capacities, minimums)

    def set_supplies(self, nodes: Integers, supplies: Integers) -> None:
        """Positive: sent out. Negative: taken in."""
        self._known_nodes(nodes)
        check_supplies(supplies)
        network.set_supplies(self.network, nodes, supplies)

    # ---- what solvers exchange

    def is_settled(self) -> bool:
        """Whether the flow is of least cost as it stands: no change since the last solve has broken anything."""
        return bool(self.network.counts[ARCS] == 0 and network.excesses(self.network) == 0)

    def problem(self) -> Problem:
        """A copy for other solvers: nodes and arcs have their own numbers, removed arcs a capacity of 0."""
        return Problem(
            self.tail.copy(),
            self.head.copy(),
            self.cost.copy(),
            self.capacity.copy(),
            self.minimum.copy(),
            self.supply.copy(),
        )

    def compact(self) -> Compact:
        """A copy for files: nodes and arcs that are there, numbered anew in the same order."""
        nodes = np.flatnonzero(self.kind != ABSENT)
        arcs = np.flatnonzero(self.network.arcs[ARC_STATE, : self.arc_room.limit] & THERE)
        renumbered = np.full(self.node_room.limit, NONE, np.int64)
        renumbered[nodes] = np.arange(len(nodes))
        problem = Problem(
            renumbered[self.tail[arcs]],
            renumbered[self.head[arcs]],
            self.cost[arcs],
            self.capacity[arcs],
            self.minimum[arcs],
            self.supply[nodes],
        )
        return Compact(problem, nodes, arcs)

    def solution(self) -> Solution:
        """A copy of the flow and potentials as they stand."""
        return Solution(self.flow.copy(), self.potential.copy(), total_cost(self.cost, self.flow))

    def adopt(self, solution: Solution) -> int:
        """Take over what another solver found for `problem()`; how many arcs it does not fit: 0 if it is right."""
        sizes = (len(solution.flow), len(solution.potential))
        if sizes != (self.arc_room.limit, self.node_room.limit):
            raise ProblemError(
                f"the solution is for {sizes[1]} nodes and {sizes[0]} arcs: "
                f"the graph has {self.node_room.limit} and {self.arc_room.limit}"
            )
        return network.adopt(
            self.network, sizes[0], np.ascontiguousarray(solution.flow), sizes[1], solution.potential.copy()
        )

    def forget(self) -> None:
        """Start anew: no flow beyond minimums, and no potentials."""
        potential = np.zeros(self.node_room.limit, np.int64)
        self.adopt(Solution(self.minimum.copy(), potential, total_cost(self.cost, self.minimum)))

    # ---- inside

    def _grow(self) -> None:
        """Room for all numbers that were given."""
        nodes, arcs = self.network.nodes.shape[1], self.network.arcs.shape[1]
        if self.node_room.limit > nodes or self.arc_room.limit > arcs:
            larger = _network(_doubled(nodes, self.node_room.limit), _doubled(arcs, self.arc_room.limit))
            larger.nodes[:, :nodes] = self.network.nodes
            larger.arcs[:, :arcs] = self.network.arcs
            larger.counts[:] = self.network.counts
            self.network = larger

    def _known_node(self, node: int) -> None:
        if not self.has_node(node):
            raise ProblemError(f"node {node}: there is none of that number")

    def _known_nodes(self, nodes: Integers) -> None:
        unknown = (nodes < 0) | (nodes >= len(self.network.nodes[KIND]))
        unknown[~unknown] = self.network.nodes[KIND, nodes[~unknown]] == ABSENT
        if unknown.any():
            raise ProblemError(f"node {nodes[unknown][0]}: there is none of that number")
        if len(np.unique(nodes)) < len(nodes):
            raise ProblemError("nodes: the same one is named twice")

    def _known_arc(self, arc: int) -> None:
        self.known_arcs(np.array([arc], np.int64))


def total_cost(cost: Integers, flow: Integers) -> int:
    """Sum of cost × flow, exact."""
    if len(cost) == 0:
        return 0
    if float(largest(cost)) * float(np.abs(flow).astype(np.float64).sum()) < 2.0**62:
        return int(cost @ flow)
    used = np.flatnonzero(flow)
    return sum(int(one) * int(amount) for one, amount in zip(cost[used], flow[used], strict=True))


def _network(nodes: int, arcs: int) -> Network:
    """Arrays of nodes and arcs that are not there yet."""
    arc_fields = np.zeros((ARC_FIELDS, arcs), np.int64)
    arc_fields[HEAD] = 1  # Any other node than the tail: arcs that are not there are arcs of a problem, too.
    node_fields = np.zeros((NODE_FIELDS, nodes), np.int64)
    node_fields[KIND] = ABSENT
    return Network(arc_fields, node_fields, np.zeros(network.DRAIN_STEPS_MAX, np.int64), np.zeros(3, np.int64))


def _doubled(size: int, needed: int) -> int:
    while size < needed:
        size *= 2
    return size


def _listed(first: int, following: Integers) -> list[int]:
    found, arc = [], int(first)
    while arc != NONE:
        found.append(arc)
        arc = int(following[arc])
    return found
