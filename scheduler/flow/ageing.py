"""Costs that change with time by themselves, of many arcs at once: waiting gets dearer, to stay gets cheaper."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from scheduler.flow.policies.policy import AGE_S_MAX
from scheduler.flow.problem import Integers

NO_ARC = -1


class Ageing:
    """An arc for each of some nodes: it costs `cost + ⌊rate · age⌋`, the age being at most AGE_S_MAX."""

    def __init__(self) -> None:
        self._arc: Integers = np.full(64, NO_ARC, np.int64)
        self._cost: Integers = np.zeros(64, np.int64)
        self._set: Integers = np.zeros(64, np.int64)
        """What the arc costs in the network."""
        self._rate: NDArray[np.float64] = np.zeros(64)
        self._since_s: NDArray[np.float64] = np.zeros(64)

    def add(self, node: int, arc: int, cost: int, rate: float, since_s: float, now_s: float) -> None:
        """The arc of a node, which costs so much now: that is what the network has."""
        if node >= len(self._arc):
            self._grow(node + 1)
        self._arc[node] = arc
        self._cost[node] = cost - aged(rate, since_s, now_s)
        self._set[node] = cost
        self._rate[node] = rate
        self._since_s[node] = since_s

    def add_many(
        self,
        nodes: Integers,
        arcs: Integers,
        costs: Integers,
        rates: NDArray[np.float64],
        since_s: NDArray[np.float64],
        now_s: float,
    ) -> None:
        """As `add`, of many nodes at once."""
        if not len(nodes):
            return
        if (last := int(nodes.max())) >= len(self._arc):
            self._grow(last + 1)
        ages = np.clip(now_s - since_s, 0, AGE_S_MAX)
        self._arc[nodes] = arcs
        self._cost[nodes] = costs - np.floor(rates * ages).astype(np.int64)
        self._set[nodes] = costs
        self._rate[nodes] = rates
        self._since_s[nodes] = since_s

    def drop(self, node: int) -> None:
        """The node has no such arc any more."""
        if node < len(self._arc):
            self._arc[node] = NO_ARC

    def arc(self, node: int) -> int:
        """The node's arc, or NO_ARC."""
        return int(self._arc[node]) if node < len(self._arc) else NO_ARC

    def cost(self, node: int) -> int:
        """What the node's arc costs, as the network was told last."""
        return int(self._set[node])

    def raise_all(self, by: int) -> None:
        """All arcs cost so much more, from the next `costs` on."""
        self._cost += by

    def costs(self, now_s: float) -> tuple[Integers, Integers]:
        """The arcs whose costs are others now than they were, and these."""
        ages = np.clip(now_s - self._since_s, 0, AGE_S_MAX)
        costs = self._cost + np.floor(self._rate * ages).astype(np.int64)
        changed = np.flatnonzero((costs != self._set) & (self._arc != NO_ARC))
        self._set[changed] = costs[changed]
        return self._arc[changed], costs[changed]

    def _grow(self, needed: int) -> None:
        more = max(needed, 2 * len(self._arc)) - len(self._arc)
        self._arc = np.append(self._arc, np.full(more, NO_ARC, np.int64))
        self._cost, self._set = (np.append(each, np.zeros(more, np.int64)) for each in (self._cost, self._set))
        self._rate, self._since_s = (np.append(each, np.zeros(more)) for each in (self._rate, self._since_s))


def aged(rate: float, since_s: float, now_s: float) -> int:
    """By how much a cost has changed."""
    return int(np.floor(rate * min(max(now_s - since_s, 0.0), AGE_S_MAX)))
