"""Which worker has the latest value of what: versions of all partitions and copies, at the controller.

An object is a partition of a dataset, or a worker's copy of a replicated one. Versions are in arrays in the order of
the objects, so that a million of them are compared in place. The version of a partition rises when it is to be at
another worker, that of a replicated dataset when a task writes it; what a worker has is behind until a patch brings it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from frontends.dataflow.stages import DatasetKind, Definition

Array = np.ndarray[Any, Any]
Owners = Mapping[int, Sequence[int]]
"""For each group the worker of each of its partitions."""


class Needed(NamedTuple):
    """What has to be the latest when a block begins."""

    ranges: tuple[tuple[int, int], ...]
    """Of partitions: first object and the one after the last."""
    rows: Array
    columns: Array
    """Of copies: the numbers of replicated dataset and worker, pairwise."""


class Stale(NamedTuple):
    """What is not the latest: numbers of partitions; rows and columns of copies."""

    partitions: Array
    rows: Array
    columns: Array

    def __bool__(self) -> bool:
        return bool(len(self.partitions) or len(self.rows))

    def equals(self, other: Stale) -> bool:
        return all(map(np.array_equal, self, other))


_NOTHING = np.empty(0, np.int64)
FRESH = Stale(_NOTHING, _NOTHING, _NOTHING)


class Objects:
    """All objects of a definition, where they are, and of which version."""

    def __init__(self, definition: Definition, workers: Iterable[int], owners: Owners) -> None:
        self.definition = definition
        self.starts: dict[int, int] = {}
        """The first object of each partitioned dataset."""
        self.row: dict[int, int] = {}
        """Of each replicated dataset."""
        self.column: dict[int, int] = {}
        """Of each worker."""
        self.where = _NOTHING
        self.latest = _NOTHING
        self.have = _NOTHING
        self.copies_latest = _NOTHING
        self.copies_have = np.empty((0, 1), np.int64)
        self.source: list[int] = []
        """For each replicated dataset the worker that wrote it last, or got it then."""
        for worker in workers:
            self.join(worker)
        self.extend(owners)
        self.copies_have[:, : len(self.column)] = 1  # All have the first values.

    def extend(self, owners: Owners) -> None:
        """Take in datasets that are new in the definition: their first values are where they are to be."""
        known = self.starts.keys() | self.row.keys() | self.definition.replaced.keys()
        new = [spec for spec in self.definition.datasets if spec.id not in known]
        places: list[int] = []
        for spec in new:
            if spec.kind is DatasetKind.REPLICATED:
                self.row[spec.id] = len(self.source)
                self.source.append(min(self.column))
            else:
                self.starts[spec.id] = len(self.where) + len(places)
                places.extend(owners[self.definition.groups[spec.id]][: spec.partitions])
        self.where = np.concatenate([self.where, np.array(places, np.int64)])
        ones = np.ones(len(places), np.int64)
        self.latest, self.have = np.concatenate([self.latest, ones]), np.concatenate([self.have, ones])
        rows = len(self.source) - len(self.copies_latest)
        if rows:
            fresh = np.zeros((rows, self.copies_have.shape[1]), np.int64)
            fresh[:, list(self.column.values())] = 1
            self.copies_have = np.concatenate([self.copies_have, fresh])
            self.copies_latest = np.concatenate([self.copies_latest, np.ones(rows, np.int64)])

    # ---- workers and places -----------------------------------------------------------------------

    def join(self, worker: int) -> None:
        """A worker that has nothing yet."""
        column = self.column[worker] = max(self.column.values(), default=-1) + 1
        if column >= self.copies_have.shape[1]:
            self.copies_have = np.pad(self.copies_have, ((0, 0), (0, self.copies_have.shape[1])))
        self.copies_have[:, column] = 0

    def leave(self, worker: int) -> None:
        """A worker that has nothing that is needed."""
        del self.column[worker]

    def worker_of(self) -> dict[int, int]:
        """The worker of each column."""
        return {column: worker for worker, column in self.column.items()}

    def settle_on(self, owners: Owners) -> None:
        """Partitions are to be at these workers: those that are elsewhere are stale until they are brought."""
        wanted = np.empty_like(self.where)
        groups, datasets = self.definition.groups, self.definition.datasets
        for dataset, start in self.starts.items():
            partitions = datasets[dataset].partitions
            wanted[start : start + partitions] = owners[groups[dataset]][:partitions]
        away = wanted != self.where
        self.latest[away & (self.have == self.latest)] += 1
        self.have[~away] = self.latest[~away]

    def place(self, number: int) -> tuple[int, int]:
        """Dataset and index of a partition's number."""
        dataset = max((start, dataset) for dataset, start in self.starts.items() if start <= number)[1]
        return dataset, number - self.starts[dataset]

    # ---- what is the latest -----------------------------------------------------------------------

    def ranges(self, datasets: Iterable[int]) -> tuple[tuple[int, int], ...]:
        """The partitions of these as few ranges of objects."""
        merged: list[tuple[int, int]] = []
        for start, dataset in sorted((self.starts[dataset], dataset) for dataset in datasets):
            stop = start + self.definition.datasets[dataset].partitions
            if merged and merged[-1][1] == start:
                merged[-1] = (merged[-1][0], stop)
            else:
                merged.append((start, stop))
        return tuple(merged)

    def needed(self, datasets: Iterable[int], copies: Iterable[tuple[int, int]]) -> Needed:
        """All partitions of the datasets, and workers' copies: (dataset, worker)."""
        pairs = [(self.row[dataset], self.column[worker]) for dataset, worker in copies]
        rows, columns = (np.array([pair[side] for pair in pairs], np.int64) for side in (0, 1))
        return Needed(self.ranges(datasets), rows, columns)

    def stale(self, needed: Needed) -> Stale:
        """What is needed and is not the latest."""
        found = [
            start + np.flatnonzero(self.have[start:stop] != self.latest[start:stop]) for start, stop in needed.ranges
        ]
        partitions = found[0] if len(found) == 1 else np.concatenate([_NOTHING, *found])
        if not len(needed.rows):
            return Stale(partitions, _NOTHING, _NOTHING) if len(partitions) else FRESH
        behind = self.copies_have[needed.rows, needed.columns] != self.copies_latest[needed.rows]
        if not len(partitions) and not behind.any():
            return FRESH
        return Stale(partitions, needed.rows[behind], needed.columns[behind])

    def everywhere(self) -> Needed:
        """All partitions."""
        return Needed(((0, len(self.where)),), _NOTHING, _NOTHING)

    def is_latest(self, dataset: int, worker: int) -> bool:
        """Whether the worker's copy is."""
        row = self.row[dataset]
        return bool(self.copies_have[row, self.column[worker]] == self.copies_latest[row])

    def wrote(self, dataset: int, workers: Iterable[int], writer: int) -> None:
        """Tasks wrote a replicated dataset; these workers have the value, one of them wrote it."""
        row = self.row[dataset]
        self.copies_latest[row] += 1
        self.copies_have[row, [self.column[worker] for worker in workers]] = self.copies_latest[row]
        self.source[row] = writer

    def got(self, dataset: int, worker: int) -> None:
        """The worker's copy is the latest."""
        row = self.row[dataset]
        self.copies_have[row, self.column[worker]] = self.copies_latest[row]

    def brought(self, number: int, worker: int) -> None:
        """The partition is at the worker."""
        self.where[number] = worker
        self.have[number] = self.latest[number]

    def check_invariants(self) -> None:
        assert len(self.where) == len(self.latest) == len(self.have)
        assert (self.have <= self.latest).all() and (self.copies_have <= self.copies_latest[:, None]).all()
        columns = self.column.values()
        assert len(set(columns)) == len(columns) and max(columns, default=0) < self.copies_have.shape[1]
        assert set(self.where.tolist()) <= self.column.keys(), "a partition is where no worker is"
        for dataset, row in self.row.items():
            assert self.is_latest(dataset, self.source[row]), (dataset, self.source[row])
