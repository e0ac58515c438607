"""Batch sampling: which nodes get a job's reservations (Sparrow §3.1)."""

from __future__ import annotations

import math
from collections.abc import Sequence
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
