"""What fails when: drawn from a seed before the soak begins, so that two runs with one seed meet the same faults.

Kinds of faults come as cards of a shuffled deck, so that each comes up about as often as it is in the deck even in a
short run. Whom a fault meets is a number from 0 to 1, which chooses among those that are up when its time comes.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

DECK = {
    "kill-node": 4,
    "kill-executor": 3,
    "kill-client": 1,
    "kill-scheduler": 1,
    "move-scheduler": 1,
    "stop-node-briefly": 2,
    "stop-node": 1,
    "stop-executor": 2,
    "stop-scheduler-briefly": 1,
    "stop-scheduler": 1,
    "stall-wire-briefly": 2,
    "stall-wire": 1,
    "drop-wire": 2,
    "isolate-node": 1,
    "isolate-scheduler": 1,
    "isolate-client": 1,
    "cordon-node": 1,
}
"""Kinds of faults, and how many of each are in the deck. What they do is in `faults.py`."""
DEAD_AFTER = 1.5
"""A peer that is silent for so many heartbeats is taken for dead."""


@dataclass(frozen=True)
class Fault:
    """Something that fails. at_s: since the start. pick: whom it meets, from 0 to 1. lasts_s: until it is mended."""

    at_s: float
    kind: str
    pick: float
    lasts_s: float


def draw(seed: int, seconds: float, gap_s: float, heartbeat_s: float) -> list[Fault]:
    """The faults of so many seconds, one each `gap_s` on average."""
    rng = random.Random(f"soak {seed}")
    faults: list[Fault] = []
    deck: list[str] = []
    at_s = gap_s * rng.random()
    while at_s < seconds:
        if not deck:
            deck = [kind for kind, count in DECK.items() for _ in range(count)]
            rng.shuffle(deck)
        kind = deck.pop()
        faults.append(Fault(at_s, kind, rng.random(), _lasts_s(rng, kind, heartbeat_s)))
        at_s += gap_s * (0.5 + rng.random())
    return faults


def _lasts_s(rng: random.Random, kind: str, heartbeat_s: float) -> float:
    if kind.endswith("-briefly"):
        return heartbeat_s * rng.uniform(0.1, 0.5)
    if kind.startswith(("stop-", "stall-", "isolate-")):
        return DEAD_AFTER * heartbeat_s * rng.uniform(1.2, 2.0)
    return rng.uniform(0.0, heartbeat_s)
