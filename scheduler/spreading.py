"""Batch sampling: which nodes get a job's reservations (Sparrow §3.1)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random


def reservations_wanted(probe_ratio: float, tasks: int) -> int:
    """ceil(d·m): how many reservations `tasks` unplaced tasks want at probe ratio d."""
    # The product is rounded first: 1.1 · 10 is a little over 11 in binary floating point.
    return math.ceil(round(probe_ratio * tasks, 9))


def spread(nodes: Sequence[str], count: int, rng: random.Random) -> list[tuple[str, int]]:
    """Spread `count` reservations over `nodes`: distinct random nodes while there are enough.

    When there are more reservations than nodes every node gets the same number, and the
    remainder goes to distinct random nodes. Returns (node, reservations) pairs, each node once.
    """
    each, remainder = divmod(count, len(nodes))
    chosen = rng.sample(nodes, remainder)
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
    drawn = rng.sample(nodes, min(len(nodes), len(chosen) + count))
    others = [node for node in drawn if node not in chosen][:count]
    found = dict(chosen) | dict.fromkeys(others, 1)
    for node, more in spread(nodes, count - len(others), rng) if len(others) < count else ():
        found[node] = found.get(node, 0) + more
    return list(found.items())
