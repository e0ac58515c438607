"""Where partitions are at first, and which one moves next."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from frontends.dataflow.blocks import Slot

IMBALANCE = 0.15
"""The busiest worker's load above the mean, as a share of the mean, from which partitions move.

Not more, as a load that is left as it is has to be within 15 % of the best.
"""
EVEN_ENOUGH = 0.05
"""The share from which on no more of them move, once they have begun to."""
GAIN_OF_COST = 0.25
"""A move has to lower the busiest worker's load by this share of what the moving partition costs, or by `EVEN_ENOUGH`
of the mean load: with less, noise alone would move a partition there and back for ever."""
TIMES_RUNNING = 2
"""How often in a row the load has to be seen as uneven before a partition moves."""


def initial(groups: Mapping[int, int], workers: Sequence[int]) -> dict[Slot, int]:
    """As many partitions of each group on each worker, neighbours together; those of one partition by turns.

    `groups` has the number of partitions of each.
    """
    placed: dict[Slot, int] = {}
    turn = 0
    for group, partitions in sorted(groups.items()):
        if partitions == 1:
            placed[group, 0] = workers[turn % len(workers)]
            turn += 1
            continue
        for index in range(partitions):
            placed[group, index] = workers[index * len(workers) // partitions]
    return placed


def newcomers_share(placed: Mapping[Slot, int], newcomer: int, workers: Sequence[int]) -> list[Slot]:
    """The partitions that a worker takes over which has none: as many of each group as evens them out.

    They are taken one by one from whoever has most of the group.
    """
    by_group: dict[int, dict[int, list[Slot]]] = {}
    for slot, worker in sorted(placed.items()):
        by_group.setdefault(slot[0], {}).setdefault(worker, []).append(slot)
    taken: list[Slot] = []
    for held in by_group.values():
        share = sum(map(len, held.values())) // len(workers) - len(held.pop(newcomer, []))
        for _ in range(share):
            fullest = max(held.values(), key=len)
            taken.append(fullest.pop())
    return taken


class Move(NamedTuple):
    slot: Slot
    source: int
    destination: int


def loads(used: Mapping[Slot, float], placed: Mapping[Slot, int], workers: Sequence[int]) -> dict[int, float]:
    """The CPU time of each worker's partitions."""
    load = dict.fromkeys(workers, 0.0)
    for slot, worker in placed.items():
        load[worker] += used.get(slot, 0.0)
    return load


def evening_move(
    used: Mapping[Slot, float], placed: Mapping[Slot, int], workers: Sequence[int], moving: Collection[Slot] = ()
) -> Move | None:
    """The partition whose move from the busiest worker to the least busy evens the load most; None if none does so by
    more than noise would."""
    load = loads(used, placed, workers)
    busiest = max(workers, key=lambda worker: (load[worker], -worker))
    idlest = min(workers, key=lambda worker: (load[worker], worker))
    enough = EVEN_ENOUGH * sum(load.values()) / len(load)
    best: tuple[float, float, Slot] | None = None
    for slot, worker in sorted(placed.items()):
        cost = used.get(slot, 0.0)
        if worker != busiest or slot in moving or cost <= 0:
            continue
        higher = max(load[busiest] - cost, load[idlest] + cost)
        gain = load[busiest] - higher
        if gain > 0 and gain >= min(GAIN_OF_COST * cost, enough) and (best is None or (higher, cost) < best[:2]):
            best = (higher, cost, slot)
    return None if best is None else Move(best[2], busiest, idlest)


class Balancer:
    """Looks at the CPU time of partitions again and again, and says which moves next.

    Moves begin when the load was uneven `TIMES_RUNNING` times in a row, and go on, one a look, until it is
    `EVEN_ENOUGH` or no move evens it more: noise moves nothing, and what began is finished.
    """

    def __init__(self) -> None:
        self.uneven = 0
        """How often in a row the load was uneven."""

    def observe(
        self,
        used: Mapping[Slot, float],
        placed: Mapping[Slot, int],
        workers: Sequence[int],
        moving: Collection[Slot] = (),
    ) -> Move | None:
        """`used` is the CPU time of each partition since the last look. One that is on its way is `moving`."""
        load = loads(used, placed, workers)
        mean = sum(load.values()) / len(workers)
        is_evening = self.uneven >= TIMES_RUNNING
        if mean <= 0 or max(load.values()) <= mean * (1 + (EVEN_ENOUGH if is_evening else IMBALANCE)):
            self.uneven = 0
            return None
        self.uneven = min(self.uneven + 1, TIMES_RUNNING)
        if self.uneven < TIMES_RUNNING:
            return None
        move = evening_move(used, placed, workers, moving)
        if move is None and not moving:
            self.uneven = 0
        return move

    def check_invariants(self) -> None:
        assert 0 <= self.uneven <= TIMES_RUNNING
