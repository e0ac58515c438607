"""A min-cost-flow problem and its solution, as plain arrays: what solvers, files and graphs have in common.

Signs are those of paper 004, §5.2.1: the reduced cost of an arc i→j with potentials π is cost − π(i) + π(j). A flow is
optimal if each arc with a negative reduced cost is full and each arc with a positive one carries its minimum.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]


class FlowError(ValueError):
    """A min-cost-flow problem that has no answer, or is none."""


class ProblemError(FlowError):
    """The problem itself is wrong: names the arc or node, the field, its value and what is allowed."""


class InfeasibleError(FlowError):
    """No flow meets all supplies and minimum flows."""


class UnmetError(InfeasibleError):
    """The supply or demand of a node that no flow meets."""

    def __init__(self, node: int, excess: int) -> None:
        super().__init__(node, excess)
        self.node = node
        self.excess = excess

    def __str__(self) -> str:
        return self.words(first_node=0)

    def words(self, first_node: int) -> str:
        """For people; nodes are numbered from `first_node`."""
        units = "1 unit finds" if abs(self.excess) == 1 else f"{abs(self.excess):,} units find"
        return f"node {self.node + first_node}: {units} no way {'from' if self.excess > 0 else 'to'} there"


class StoppedError(FlowError):
    """The solver was told to stop before it had the answer; what it left behind can be used to go on."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Nodes 0 … n−1 and arcs 0 … m−1; parallel arcs are allowed, arcs from a node to itself are not.

    An arc carries at least `minimum` and at most `capacity`; a node with a positive supply sends that much out, one
    with a negative supply takes it in. An arc of capacity 0 stands for one that was removed.
    """

    tail: Integers
    """Shape (m,): the node that the arc leaves."""
    head: Integers
    """Shape (m,): the node that the arc enters."""
    cost: Integers
    """Shape (m,): per unit of flow; may be negative."""
    capacity: Integers
    """Shape (m,), from 0."""
    minimum: Integers
    """Shape (m,), 0 … capacity."""
    supply: Integers
    """Shape (n,)."""


@dataclass(frozen=True, slots=True)
class Solution:
    """A flow that is feasible and of least cost, and the potentials that prove it."""

    flow: Integers
    """Shape (m,)."""
    potential: Integers
    """Shape (n,): with it and the flow complementary slackness holds, in the costs' own units."""
    cost: int
    """Sum of cost × flow."""
