"""Messages between workers that spawn their tasks themselves, and between these and the controller.

Each has the epoch: after a failure all start again in a higher one, and what is left of lower ones is dropped. `call`
is the number of a call since the program's start, which is equal at all workers; `hash` is the rolling hash of the
stages of all blocks before `block`.
"""

from __future__ import annotations

from typing import Any

import msgspec


class Chunk(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """What a scatter's task on the partition `source` yielded for a destination."""

    epoch: int
    block: int
    hash: int
    call: int
    stage: int
    source: int
    group: int
    index: int
    version: int
    """Of the destination's entry in the sender's map."""
    hops: int
    chunks: list[Any]


class Marker(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """The source partitions that yielded nothing for a destination. Their chunks need not be waited for."""

    epoch: int
    block: int
    hash: int
    call: int
    stage: int
    sources: tuple[int, ...]
    group: int
    index: int
    version: int
    hops: int


class Replica(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """The value that a call gave a replicated dataset."""

    epoch: int
    block: int
    hash: int
    call: int
    stage: int
    copy: int
    value: Any


class Told(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """What a signal said at the end of a block, and what is to happen there."""

    epoch: int
    block: int
    hash_after: int
    call: int
    stage: int
    value: bool
    worker: int
    """The one that ran the signal."""
    flags: tuple[Flag, ...]
    previous: int = -1
    """The block of the signal before, -1 if there was none."""


class Flag(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """The controller's wish, which rides on the next signal. Flags are numbered, from 1 on."""

    epoch: int
    number: int
    snapshot: bool
    """Store all partitions as they are at the end of the signal's block."""
    joins: int
    """The worker that is one from the next block on, -1 for none."""


class MapUpdate(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """A newer entry of the partition map."""

    epoch: int
    group: int
    index: int
    worker: int
    version: int


class Move(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """The controller's order to a partition's next holder: fetch it from `source`."""

    epoch: int
    group: int
    index: int
    version: int
    source: int


class Give(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """The next holder's wish: send the partition as soon as no task of a block before `block` is left on it."""

    epoch: int
    group: int
    index: int
    version: int
    worker: int
    block: int


class Partition(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """A partition that moves: arrays, the last call on each, and chunks that have come for it."""

    epoch: int
    group: int
    index: int
    version: int
    values: dict[int, Any]
    last: dict[int, int]
    """For each dataset of the group, the last call that touched this partition."""
    arrived: list[tuple[int, int, dict[int, list[Any]], frozenset[int]]]
    """For each call of a scatter: the call, its stage, chunks by source, sources that yielded nothing."""


class Welcome(msgspec.Struct, frozen=True, array_like=True, tag=10):
    """Copies of the replicated datasets as they are at the end of a block, for a worker that joins then."""

    epoch: int
    block: int
    copies: dict[int, Any]
    workers: tuple[int, ...]
    stored_before: int
    """If there is a snapshot of the block, the first call after it; else -1."""


class Arrived(msgspec.Struct, frozen=True, array_like=True, tag=11):
    """To the controller: the partition is here."""

    epoch: int
    group: int
    index: int
    version: int


class Stored(msgspec.Struct, frozen=True, array_like=True, tag=12):
    """To the controller: partitions as they are at the end of a block, for the snapshot of that block."""

    epoch: int
    block: int
    values: dict[tuple[int, int], Any]


Message = Chunk | Marker | Replica | Told | Flag | MapUpdate | Move | Give | Partition | Welcome | Arrived | Stored
Routed = Chunk | Marker
"""Those for whoever holds a partition."""
