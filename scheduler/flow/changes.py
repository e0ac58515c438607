"""Changes of a flow network between two solves: gathered, merged, and made all at once (paper 004, §5.2.7).

Several changes of one arc become one, those that set what is set already go, and so do all of arcs whose node is
removed: a task that came and went in between costs nothing. Numbers of nodes and arcs are given at once; the graph is
touched by `apply` alone, so a solver may run meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from scheduler.flow.graph import FlowGraph, Kind
from scheduler.flow.limits import CAPACITY_MAX, check_arc_bounds, check_cost, check_supply
from scheduler.flow.problem import Integers, ProblemError


class Effect(Enum):
    """What a change of an arc does to a flow of least cost (paper 004, table 5.3)."""

    NONE = "the flow stays feasible and of least cost"
    OPTIMALITY = "the flow may not be of least cost any more"
    FEASIBILITY = "the flow is out of the arc's bounds"


@dataclass(frozen=True, slots=True)
class Applied:
    """What was made of the changes."""

    nodes_added: int = 0
    nodes_removed: int = 0
    arcs_added: int = 0
    arcs_removed: int = 0
    """Without those of removed nodes."""
    arcs_changed: int = 0
    supplies_changed: int = 0

    @property
    def made(self) -> int:
        """How many changes of the graph these are."""
        return (
            self.nodes_added
            + self.nodes_removed
            + self.arcs_added
            + self.arcs_removed
            + self.arcs_changed
            + self.supplies_changed
        )


@dataclass(slots=True)
class _Arc:
    """An arc that is to be added, or what is to change of one: None stays as it is."""

    cost: int | None = None
    capacity: int | None = None
    minimum: int | None = None
    tail: int = -1
    head: int = -1


class Changes:
    """What is to change in one graph. `balance` names a node that takes in whatever the others send out: the sink."""

    def __init__(self, graph: FlowGraph, balance: int | None = None) -> None:
        self.graph = graph
        self.balance = balance
        self.recorded = 0
        """How many changes were named since the last `apply`."""
        self._new_nodes: dict[int, tuple[int, int]] = {}
        self._new_arcs: dict[int, _Arc] = {}
        self._new_arcs_of: dict[int, set[int]] = {}
        self._gone_nodes: set[int] = set()
        self._gone_arcs: set[int] = set()
        self._changed: dict[int, _Arc] = {}
        self._costs: list[tuple[Integers, Integers]] = []
        self._supplies: dict[int, int] = {}
        self._cost_max = 0

    # ---- nodes

    def add_node(self, supply: int = 0, kind: Kind = Kind.OTHER) -> int:
        """The new node's number."""
        check_supply(supply)
        check_cost(max(self._cost_max, self.graph.cost_max), self.graph.nodes + 1)
        node = self.graph.node_room.take()
        self._new_nodes[node] = (supply, kind)
        self.recorded += 1
        return node

    def remove_node(self, node: int) -> None:
        """With all its arcs."""
        self._known_node(node)
        if node == self.balance:
            raise ProblemError(f"node {node} balances the others: it cannot be removed")
        self.recorded += 1
        for arc in self._new_arcs_of.pop(node, ()):
            self._forget_new(arc)
        self._supplies.pop(node, None)
        if self._new_nodes.pop(node, None) is None:
            self._gone_nodes.add(node)
        else:
            self.graph.node_room.give_back([node])

    def set_supply(self, node: int, supply: int) -> None:
        """Positive: sent out. Negative: taken in."""
        self._known_node(node)
        check_supply(supply)
        if node == self.balance:
            raise ProblemError(f"node {node} balances the others: its supply follows from theirs")
        self.recorded += 1
        if node in self._new_nodes:
            self._new_nodes[node] = (supply, self._new_nodes[node][1])
        else:
            self._supplies[node] = supply

    # ---- arcs

    def add_arc(self, tail: int, head: int, cost: int, capacity: int, minimum: int = 0) -> int:
        """The new arc's number."""
        self._known_node(tail)
        self._known_node(head)
        if tail == head:
            raise ProblemError(f"arc: head {head}: another node than its tail is allowed")
        check_arc_bounds(capacity, minimum)
        self._check_cost(cost)
        arc = self.graph.arc_room.take()
        self._new_arcs[arc] = _Arc(cost, capacity, minimum, tail, head)
        for node in (tail, head):
            self._new_arcs_of.setdefault(node, set()).add(arc)
        self.recorded += 1
        return arc

    def add_unit_arcs(self, tail: int, heads: Sequence[tuple[int, int]]) -> list[int]:
        """Arcs of capacity 1 from one node, as a task has; `heads`: nodes and costs. The new arcs' numbers."""
        self._known_node(tail)
        if not heads:
            return []
        self._check_cost(max(abs(cost) for _, cost in heads))
        new = self._new_nodes
        for head, _ in heads:
            if head == tail or head in self._gone_nodes or not (head in new or self.graph.has_node(head)):
                raise ProblemError(f"arc: head {head}: there is no other node of that number")
        arcs = [self.graph.arc_room.take() for _ in heads]
        own = self._new_arcs_of.setdefault(tail, set())
        for arc, (head, cost) in zip(arcs, heads, strict=True):
            self._new_arcs[arc] = _Arc(cost, 1, 0, tail, head)
            self._new_arcs_of.setdefault(head, set()).add(arc)
        own.update(arcs)
        self.recorded += len(arcs)
        return arcs

    def remove_arc(self, arc: int) -> None:
        """What it carried is to find another way."""
        self._known_arc(arc)
        self.recorded += 1
        if arc in self._new_arcs:
            self._forget_new(arc)
        else:
            self._changed.pop(arc, None)
            self._gone_arcs.add(arc)

    def set_cost(self, arc: int, cost: int) -> None:
        """Per unit of flow."""
        self._check_cost(cost)
        self._arc(arc).cost = cost

    def set_capacity(self, arc: int, capacity: int) -> None:
        """At least the arc's minimum, or this is to change, too."""
        check_arc_bounds(capacity, 0)
        self._arc(arc).capacity = capacity

    def set_minimum(self, arc: int, minimum: int) -> None:
        """At most the arc's capacity, or this is to change, too."""
        check_arc_bounds(CAPACITY_MAX, minimum)
        self._arc(arc).minimum = minimum

    def set_costs(self, arcs: Integers, costs: Integers) -> None:
        """Of many arcs, as fast as arrays are: those that age with time."""
        if arcs.shape != costs.shape:
            raise ProblemError(f"costs have shape {costs.shape}: that of arcs, {arcs.shape}, is allowed")
        if len(arcs) == 0:
            return
        for cost in (int(costs.min()), int(costs.max())):
            self._check_cost(cost)
        if self._new_arcs or self._gone_arcs or self._changed:
            single = self._new_arcs.keys() | self._gone_arcs | self._changed.keys()
            among = np.isin(arcs, np.fromiter(single, np.int64, len(single)))
            for arc, cost in zip(arcs[among].tolist(), costs[among].tolist(), strict=True):
                self.set_cost(arc, cost)
            arcs, costs = arcs[~among], costs[~among]
        self.graph.known_arcs(arcs)
        self.recorded += len(arcs)
        self._costs.append((arcs.astype(np.int64), costs.astype(np.int64)))

    def has_arc(self, arc: int) -> bool:
        """Whether the arc is there, or will be; one of a node that is to go still is."""
        return arc not in self._gone_arcs and (arc in self._new_arcs or self.graph.has_arc(arc))

    # ---- all at once

    def apply(self, *, drains: bool = True) -> Applied:
        """Make the changes; `drains`: what removed tasks sent is taken back from the sinks (§5.2.5.2)."""
        gone_nodes = _array(self._gone_nodes)
        is_gone = np.zeros(self.graph.node_room.limit, np.bool_)
        is_gone[gone_nodes] = True
        self._check_all_bounds()
        added = self._supply_added()
        changed = self._change_arcs(is_gone)
        gone_arcs = self._of_nodes_that_stay(_array(self._gone_arcs), is_gone)
        self.graph.remove_arcs(gone_arcs, drains=drains)
        self.graph.remove_nodes(gone_nodes, drains=drains)
        self._add()
        supplies = self._set_supplies(added)
        applied = Applied(len(self._new_nodes), len(gone_nodes), len(self._new_arcs), len(gone_arcs), changed, supplies)
        self._clear()
        return applied

    def _check_all_bounds(self) -> None:
        """Before anything is changed."""
        for arc, change in self._changed.items():
            capacity = self.graph.capacity[arc] if change.capacity is None else change.capacity
            minimum = self.graph.minimum[arc] if change.minimum is None else change.minimum
            if minimum > capacity:
                raise ProblemError(f"arc {arc}: minimum {minimum}: 0 to the arc's capacity, {capacity}, is allowed")
        for arc, change in self._new_arcs.items():
            if (change.minimum or 0) > (change.capacity or 0):
                raise ProblemError(
                    f"arc {arc}: minimum {change.minimum}: 0 to the arc's capacity, {change.capacity}, is allowed"
                )

    def _supply_added(self) -> int:
        """How much more all nodes but the one that balances will send out."""
        supply = self.graph.supply
        added = sum(new for new, _ in self._new_nodes.values())
        added += sum(new - int(supply[node]) for node, new in self._supplies.items())
        return added - sum(int(supply[node]) for node in self._gone_nodes)

    def _of_nodes_that_stay(self, arcs: Integers, is_gone: NDArray[np.bool_]) -> Integers:
        gone = is_gone[self.graph.tail[arcs]] | is_gone[self.graph.head[arcs]]
        return arcs[~gone]

    def _change_arcs(self, is_gone: NDArray[np.bool_]) -> int:
        """Change costs and bounds of the arcs that stay; how many."""
        graph, changed = self.graph, 0
        rows = [(arc, change.cost) for arc, change in self._changed.items() if change.cost is not None]
        chunks = [*self._costs, (_array([arc for arc, _ in rows]), _array([cost for _, cost in rows]))]
        arcs, costs = (np.concatenate(column) for column in zip(*chunks, strict=True))
        if len(self._costs) > 1:  # The last of several changes counts.
            arcs, last = np.unique(arcs[::-1], return_index=True)
            costs = costs[::-1][last]
        if len(arcs):
            kept = (graph.cost[arcs] != costs) & ~is_gone[graph.tail[arcs]] & ~is_gone[graph.head[arcs]]
            if self._gone_arcs:
                kept &= ~np.isin(arcs, _array(self._gone_arcs))
            changed += int(kept.sum())
            graph.set_costs(arcs[kept], costs[kept])
        bounds = {
            arc: change
            for arc, change in self._changed.items()
            if (change.capacity not in (None, graph.capacity[arc]) or change.minimum not in (None, graph.minimum[arc]))
        }
        arcs = self._of_nodes_that_stay(_array(bounds), is_gone)
        capacities, minimums = graph.capacity[arcs], graph.minimum[arcs]
        for place, arc in enumerate(arcs.tolist()):
            change = bounds[arc]
            capacities[place] = capacities[place] if change.capacity is None else change.capacity
            minimums[place] = minimums[place] if change.minimum is None else change.minimum
        graph.set_bounds(arcs, capacities, minimums)
        return changed + len(arcs)

    def _add(self) -> None:
        """Add the nodes and arcs that are still wanted, by the numbers that they have."""
        rows = list(self._new_nodes.values())
        supplies, kinds = (_array([row[column] for row in rows]) for column in range(2))
        self.graph.add_nodes(supplies, kinds, _array(self._new_nodes))
        arcs = list(self._new_arcs.values())
        self.graph.add_arcs(
            _array([arc.tail for arc in arcs]),
            _array([arc.head for arc in arcs]),
            _array([arc.cost or 0 for arc in arcs]),
            _array([arc.capacity or 0 for arc in arcs]),
            _array([arc.minimum or 0 for arc in arcs]),
            _array(self._new_arcs),
        )

    def _set_supplies(self, added: int) -> int:
        """Change supplies, also of the node that balances; how many."""
        supplies = {node: new for node, new in self._supplies.items() if self.graph.supply[node] != new}
        if self.balance is not None and added != 0:
            supplies[self.balance] = int(self.graph.supply[self.balance]) - added
        self.graph.set_supplies(_array(supplies), _array(supplies.values()))
        return len(supplies)

    def _clear(self) -> None:
        self._new_nodes.clear()
        self._new_arcs.clear()
        self._new_arcs_of.clear()
        self._gone_nodes.clear()
        self._gone_arcs.clear()
        self._changed.clear()
        self._costs.clear()
        self._supplies.clear()
        self.recorded = 0

    # ---- what is known

    def _arc(self, arc: int) -> _Arc:
        """What is to become of an arc, to be filled in."""
        self._known_arc(arc)
        self.recorded += 1
        new = self._new_arcs.get(arc)
        return self._changed.setdefault(arc, _Arc()) if new is None else new

    def _forget_new(self, arc: int) -> None:
        """Never add it."""
        gone = self._new_arcs.pop(arc)
        for node in (gone.tail, gone.head):
            self._new_arcs_of.get(node, set()).discard(arc)
        self.graph.arc_room.give_back([arc])

    def _known_node(self, node: int) -> None:
        if node in self._gone_nodes or not (node in self._new_nodes or self.graph.has_node(node)):
            raise ProblemError(f"node {node}: there is none of that number")

    def _known_arc(self, arc: int) -> None:
        if not self.has_arc(arc):
            raise ProblemError(f"arc {arc}: there is none of that number")

    def _check_cost(self, cost: int) -> None:
        check_cost(abs(cost), self.graph.nodes)
        self._cost_max = max(self._cost_max, abs(cost))


def effect(
    graph: FlowGraph, arc: int, *, cost: int | None = None, capacity: int | None = None, minimum: int | None = None
) -> Effect:
    """What a change of an arc does to the graph's flow, if this is of least cost now."""
    graph.known_arcs(_array([arc]))
    flow = int(graph.flow[arc])
    new_cost = int(graph.cost[arc]) if cost is None else cost
    most = int(graph.capacity[arc]) if capacity is None else capacity
    least = int(graph.minimum[arc]) if minimum is None else minimum
    if not least <= flow <= most:
        return Effect.FEASIBILITY
    reduced = new_cost - int(graph.potential[graph.tail[arc]]) + int(graph.potential[graph.head[arc]])
    broken = (reduced < 0 and flow < most) or (reduced > 0 and flow > least)
    return Effect.OPTIMALITY if broken else Effect.NONE


def _array(values: Iterable[int]) -> Integers:
    """Of any numbers that can be counted."""
    return np.array(list(values), np.int64)
