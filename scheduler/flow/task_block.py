"""Tasks that come into a graph at once: their nodes and arcs are gathered, and added by arrays."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from scheduler.flow.ageing import Ageing
from scheduler.flow.changes import Changes
from scheduler.flow.graph import Kind
from scheduler.flow.problem import Integers


class Aged:
    """Arcs whose costs change with time: one for each of some tasks."""

    def __init__(self) -> None:
        self.nodes: list[int] = []
        self._places: list[int] = []
        """Of the arcs among all of the block."""
        self._costs: list[int] = []
        self._rates: list[float] = []
        self._since_s: list[float] = []

    def append(self, node: int, place: int, cost: int, rate: float, since_s: float) -> None:
        """The arc of a task, which costs so much now."""
        self.nodes.append(node)
        self._places.append(place)
        self._costs.append(cost)
        self._rates.append(rate)
        self._since_s.append(since_s)

    def write(self, ageing: Ageing, arcs: Integers, now_s: float) -> Integers:
        """Have the arcs age from now on; their numbers."""
        found = arcs[np.array(self._places, np.int64)]
        ageing.add_many(
            np.array(self.nodes, np.int64), found, np.array(self._costs, np.int64),
            np.array(self._rates, np.float64), np.array(self._since_s, np.float64), now_s,
        )  # fmt: skip
        return found


class TaskBlock:
    """Nodes of tasks, and arcs that carry one unit each."""

    def __init__(self) -> None:
        self._nodes: list[int] = []
        self._supplies: list[int] = []
        self._tails: list[int] = []
        self._heads: list[int] = []
        self._costs: list[int] = []

    def add_node(self, node: int, supply: int) -> None:
        """A task's node, whose number has been taken."""
        self._nodes.append(node)
        self._supplies.append(supply)

    def add_arc(self, tail: int, head: int, cost: int) -> int:
        """The arc's place among all of the block."""
        self._tails.append(tail)
        self._heads.append(head)
        self._costs.append(cost)
        return len(self._costs) - 1

    def write(self, changes: Changes, sink: int) -> Integers:
        """Add everything to the graph, and before that what is to change there, as arcs may lead to new nodes. The
        arcs' numbers, by their places."""
        changes.apply()
        graph = changes.graph
        supplies = np.array(self._supplies, np.int64)
        graph.add_nodes(supplies, np.full(len(supplies), int(Kind.TASK), np.int64), np.array(self._nodes, np.int64))
        tails, heads, costs = (np.array(column, np.int64) for column in (self._tails, self._heads, self._costs))
        ones = np.ones(len(tails), np.int64)
        arcs = graph.add_arcs(tails, heads, costs, ones, 0 * ones)
        graph.set_supply(sink, int(graph.supply[sink]) - int(supplies.sum()))
        return arcs


def grown(array: Integers, size: int, fill: int) -> Integers:
    """With room for so many nodes."""
    if size <= len(array):
        return array
    more: NDArray[np.int64] = np.full(max(size, 2 * len(array)) - len(array), fill, np.int64)
    return np.append(array, more)
