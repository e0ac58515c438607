"""Nodes with a free slot, by their load: the tasks of this scheduler there, over slots."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from sparrow_py.wire.messages import READY

if TYPE_CHECKING:
    import random

    from scheduler.book.nodes import Node

ROUNDING = 1e-9
"""What is free is a sum of many fractions: so much of a resource may seem to be missing and is not."""


def load_of(node: Node) -> float | None:
    """Tasks at the node over slots; None if it takes none now."""
    slots = node.info.slots
    return len(node.attempts) / slots if node.state == READY and len(node.attempts) < slots else None


def fits(node: Node, demand: tuple[tuple[str, float], ...]) -> bool:
    """Whether so much is free at the node, as far as this scheduler's tasks take it."""
    resources = node.info.resources
    for name, amount in demand:
        offered = resources.get(name, 0.0)
        taken = sum(taken for attempt in node.attempts for other, taken in attempt.stage.kind.demand if other == name)
        if offered - taken < amount - ROUNDING * offered:
            return False
    return True


class FreeNodes:
    """Nodes are filed by the load that they had last (`file`), in levels of equal load. A load may have risen since,
    which is seen when the node is found; when it falls, or what the node offers changes, it is to be filed again."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._loads: list[float] = []
        """In order, those that some node has."""
        self._levels: dict[float, list[Node]] = {}
        self._filed: dict[str, tuple[float, int]] = {}
        """Node to its load and its index in that level."""

    def __bool__(self) -> bool:
        return bool(self._filed)

    def file(self, node: Node) -> None:
        """Where it belongs now, if anywhere."""
        self.drop(node.id)
        load = load_of(node)
        if load is None:
            return
        level = self._levels.get(load)
        if level is None:
            level = self._levels[load] = []
            insort(self._loads, load)
        self._filed[node.id] = load, len(level)
        level.append(node)

    def drop(self, node_id: str) -> None:
        """The node is gone, or is filed anew."""
        place = self._filed.pop(node_id, None)
        if place is None:
            return
        load, index = place
        level = self._levels[load]
        last = level.pop()
        if last.id != node_id:
            level[index] = last
            self._filed[last.id] = place
        if not level:
            del self._levels[load]
            del self._loads[bisect_left(self._loads, load)]

    def least_loaded(self, may_take: Callable[[Node], bool], among: Collection[str]) -> Node | None:
        """The node with the least load that may take a task, of those among; of equal ones any."""
        while True:
            few = len(among) < len(self._filed)
            node = self._of_few(may_take, among) if few else self._of_all(may_take)
            if node is None or load_of(node) == self._filed[node.id][0]:
                return node
            self.file(node)

    def _of_all(self, may_take: Callable[[Node], bool]) -> Node | None:
        for load in self._loads:
            level = self._levels[load]
            first = int(self._rng.random() * len(level))
            for index in range(first, first + len(level)):
                node = level[index % len(level)]
                if may_take(node):
                    return node
        return None

    def _of_few(self, may_take: Callable[[Node], bool], among: Collection[str]) -> Node | None:
        best: Node | None = None
        least = (0.0, 0.0)
        for node_id in among:
            place = self._filed.get(node_id)
            if place is None:
                continue
            load, index = place
            rank = load, self._rng.random()
            node = self._levels[load][index]
            if (best is None or rank < least) and may_take(node):
                best, least = node, rank
        return best

    def problem(self, nodes: Collection[Node], changed: Collection[str]) -> str | None:
        """What is wrong with these books, `changed` being the nodes that are to be filed again."""
        for node in nodes:
            load, place = load_of(node), self._filed.get(node.id)
            if node.id in changed or (load is None and place is not None):
                continue  # It is full, which is seen when it is found.
            if (place is None) != (load is None) or (place is not None and load is not None and place[0] > load):
                return f"node {node.id} has load {load} and is filed at {place}"
        for node_id, (load, index) in self._filed.items():
            if self._levels[load][index].id != node_id:
                return f"node {node_id} is not where it is filed"
        return None
