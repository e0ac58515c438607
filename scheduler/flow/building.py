"""How networks are made: what constructs and policies need of it."""

from __future__ import annotations

from array import array
from typing import Protocol

import numpy as np

from scheduler.flow.problem import Problem


class Building(Protocol):
    """A network that is being made: a new one, or a `FlowGraph` that changes."""

    def add_node(self, supply: int = 0) -> int:
        """The node's number."""
        ...

    def add_arc(self, tail: int, head: int, cost: int, capacity: int, minimum: int = 0) -> int:
        """The arc's number."""
        ...

    def set_supply(self, node: int, supply: int) -> None:
        """What the node sends out, or takes in."""
        ...


class NewNetwork:
    """A network that is made for the first time, node by node and arc by arc."""

    def __init__(self) -> None:
        self._supply = array("q")
        self._arcs = array("q")

    def add_node(self, supply: int = 0) -> int:
        """The node's number."""
        self._supply.append(supply)
        return len(self._supply) - 1

    def add_arc(self, tail: int, head: int, cost: int, capacity: int, minimum: int = 0) -> int:
        """The arc's number."""
        self._arcs.extend((tail, head, cost, capacity, minimum))
        return len(self._arcs) // 5 - 1

    def set_supply(self, node: int, supply: int) -> None:
        """What the node sends out, or takes in."""
        self._supply[node] = supply

    def problem(self) -> Problem:
        """What has been made so far."""
        tail, head, cost, capacity, minimum = np.array(self._arcs, np.int64).reshape(-1, 5).T.copy()
        return Problem(tail, head, cost, capacity, minimum, np.array(self._supply, np.int64))
