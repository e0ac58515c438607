"""Batch sampling: which nodes get a job's reservations (Sparrow §3.1)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

POOL_MAX, FEW = 21, 5
"""Of so many nodes, or a few more for each that is drawn above `FEW`, `sample` copies the list; of more it remembers
which it has drawn. (As the library does.)"""
DRAWS_PER_NODE_MAX = 60
"""Where nodes are drawn by the room that they have, and so many draws for each that is wanted have not found enough,
most have little or none: then those that have some are listed."""


def reservations_wanted(probe_ratio: float, tasks: int) -> int:
    """ceil(d·m): how many reservations `tasks` unplaced tasks want at probe ratio d."""
    # The product is rounded first: 1.1 · 10 is a little over 11 in binary floating point.
    return math.ceil(round(probe_ratio * tasks, 9))


def sample(nodes: Sequence[str], count: int, rng: random.Random) -> list[str]:
    """So many distinct nodes, at most all: the same as `rng.sample(nodes, count)` draws, in a third of the time."""
    size, draw = len(nodes), rng.getrandbits
    found: list[str] = []
    pool_max = POOL_MAX + (4 ** math.ceil(math.log(count * 3, 4)) if count > FEW else 0)
    if size <= pool_max:
        pool = list(nodes)
        for left in range(size, size - count, -1):
            bits = left.bit_length()
            drawn = draw(bits)
            while drawn >= left:
                drawn = draw(bits)
            found.append(pool[drawn])
            pool[drawn] = pool[left - 1]
        return found
    bits, taken = size.bit_length(), set[int]()
    for _ in range(count):
        drawn = draw(bits)
        while drawn >= size or drawn in taken:
            drawn = draw(bits)
        taken.add(drawn)
        found.append(nodes[drawn])
    return found


def spread(nodes: Sequence[str], count: int, rng: random.Random) -> list[tuple[str, int]]:
    """Spread `count` reservations over `nodes`: distinct random nodes while there are enough.

    When there are more reservations than nodes every node gets the same number, and the
    remainder goes to distinct random nodes. Returns (node, reservations) pairs, each node once.
    """
    each, remainder = divmod(count, len(nodes))
    if not remainder:
        return [(node, each) for node in nodes] if each else []
    chosen = sample(nodes, remainder, rng)
    if not each:
        return [(node, 1) for node in chosen]
    extra = set(chosen)
    return [(node, each + (node in extra)) for node in nodes]


def spread_beside(
    chosen: Mapping[str, int], nodes: Sequence[str], count: int, rng: random.Random
) -> list[tuple[str, int]]:
    """`spread` for a job that has some reservations already, on the nodes of `chosen`: `count` more, on distinct
    random nodes that are not among those while there are enough, and on all nodes alike beyond that.

    Returns all of them, those of `chosen` first. Each other node is as likely as another: one that is drawn again or
    is chosen is drawn for nothing, and what is left of a random order without some nodes is one of the others.
    """
    if 2 * (len(chosen) + count) <= len(nodes):  # Then a draw is for nothing half of the time at most.
        found, wanted, size = dict(chosen), len(chosen) + count, len(nodes)
        while len(found) < wanted:
            found.setdefault(nodes[int(rng.random() * size)], 1)
        return list(found.items())
    drawn = sample(nodes, min(len(nodes), len(chosen) + count), rng)
    others = [node for node in drawn if node not in chosen][:count]
    found = dict(chosen) | dict.fromkeys(others, 1)
    for node, more in spread(nodes, count - len(others), rng) if len(others) < count else ():
        found[node] = found.get(node, 0) + more
    return list(found.items())


def spread_by_room(
    nodes: Sequence[str], count: int, rng: random.Random, room: Callable[[str], float]
) -> list[tuple[str, int]]:
    """`spread` over nodes that have not all the same room, from 0 to 1: one with half the room is half as likely to be
    drawn. One without any is left out, unless none has any.

    When there are more reservations than nodes with room, each gets a number in proportion to that.
    """
    if 2 * count <= len(nodes):
        found: dict[str, int] = {}
        size, draw = len(nodes), rng.random
        for _ in range(DRAWS_PER_NODE_MAX * count):
            node = nodes[int(draw() * size)]
            if node not in found and draw() < room(node):
                found[node] = 1
                if len(found) == count:
                    return list(found.items())
    rooms = {node: there for node in nodes if (there := room(node)) > 0}
    if not rooms:
        return spread(nodes, count, rng)
    scale = count / sum(rooms.values()) if count > len(rooms) else 0.0
    counts = {node: int(there * scale) for node, there in rooms.items()}
    left = count - sum(counts.values())
    # The nodes in an order in which each comes before another with a chance in proportion to its room.
    keys = {node: rng.random() ** (1 / there) for node, there in rooms.items()}
    for node in sorted(keys, key=keys.__getitem__, reverse=True)[:left]:
        counts[node] += 1
    return [(node, wanted) for node, wanted in counts.items() if wanted]
