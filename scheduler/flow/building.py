"""What constructs and policies need to make a network, and to have it solved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from scheduler.flow.problem import Problem, Solution

Solve = Callable[[Problem], Solution]
"""A solver, by whatever name, and whatever it starts from."""


class Building(Protocol):
    """A network that is being made, as a `FlowGraph` is."""

    def add_node(self, supply: int = 0) -> int:
        """The node's number."""
        ...

    def add_arc(self, tail: int, head: int, cost: int, capacity: int, minimum: int = 0) -> int:
        """The arc's number."""
        ...
