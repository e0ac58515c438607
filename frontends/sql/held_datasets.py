"""The data sets that an executor holds, and the users who may read them.

Each data set has a database of its own (`Engine`). In it each partition is a schema, and the tables that are held whole
are another, so that a fragment's SQL says `denorm` whichever partition it is for. Tables are compressed, as DuckDB does
on disk: they take a third of the memory, and scans are faster. A fragment runs on one thread, as a task has one slot.

A data set is known by its directory, and not by its manifest, which anybody may have written.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from frontends.sql.access import DataAccess, Readers, check_reader
from frontends.sql.dataset import Dataset
from frontends.sql.engine import Engine
from frontends.sql.tpch import REPLICATED, STORED
from sparrow_py.errors import SparrowError

DATASETS_MAX = 16
DATASETS_OF_USER_MAX = 4
"""Limit per user on data sets that only some users may read."""
WHOLE = "whole"


@dataclass(frozen=True, slots=True)
class FragmentTables:
    """The database and the schemas in which a fragment finds its tables."""

    engine: Engine
    schemas: tuple[str, ...] = ()


class HeldDataset:
    """A data set that is held, or about to be. `loading`: how many tasks use or load it now."""

    def __init__(self, directory: Path, readers: Readers) -> None:
        self.dataset = Dataset(directory, confined=True)
        self.readers = readers
        self.engine = Engine()
        self.schemas: set[str] = set()
        """The schemas that are held: `WHOLE`, and the numbers of partitions."""
        self.loading = 0
        self._locks: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()

    @property
    def partitions(self) -> list[int]:
        """The numbers of the partitions that are held."""
        return sorted(int(schema) for schema in self.schemas - {WHOLE})

    def load(self, partition: int | None) -> bool:
        """Load the partition, or (None) the whole tables; returns False if they were held already."""
        schema = schema_of(partition)
        with self._lock:
            lock = self._locks.setdefault(schema, threading.Lock())
        with lock:
            if schema in self.schemas:
                return False
            tables = REPLICATED if partition is None else STORED
            self.engine.add_schema(schema, {table: self._read(table, partition) for table in tables})
            with self._lock:
                self.schemas = self.schemas | {schema}
        return True

    def _read(self, table: str, partition: int | None) -> pa.Table:
        parts = []
        for path in self.dataset.files(table, partition):
            with self.dataset.open(path) as file:
                parts.append(pq.ParquetFile(file).read())
        return pa.concat_tables(parts)


class HeldDatasets:
    """Data sets held in memory. Thread-safe. `changed` is called with the held partitions of each data set."""

    def __init__(
        self, access: DataAccess, changed: Callable[[Mapping[str, list[int]]], object] = lambda _: None
    ) -> None:
        self._access = access
        self._changed = changed
        self._lock = threading.Lock()
        self._datasets: dict[Path, HeldDataset] = {}
        self._empty_engine = Engine()
        """For fragments that read no data set."""

    # ---- loading -----------------------------------------------------------------------------

    def load(self, user: str, directory: str, partitions: list[int]) -> dict[str, int]:
        """Load these partitions and the whole tables; returns the number of the data set's partitions held then.

        Partitions that are held already stay. `InvalidRequest` if there is no such data set or partition, `NotYours` if
        the user may not have it.
        """
        held = self._load(user, directory, partitions)
        return {held.dataset.key: len(held.partitions)}

    def drop(self, user: str, key: str) -> None:
        """Drop the user's data sets of this key; those that other users may read, too, stay."""
        with self._lock:
            own = frozenset((user,))
            dropped = [path for path, held in self._datasets.items() if held.dataset.key == key and held.readers == own]
            for path in dropped:
                del self._datasets[path]  # A fragment that reads it now has it to its end.
        if dropped:
            self._report_partitions()

    def _load(self, user: str, directory: str, partitions: list[int]) -> HeldDataset:
        held = self._begin_loading(user, directory)
        try:
            held.load(None)
            for partition in partitions:
                held.dataset.check_partition(partition)
                if held.load(partition):
                    self._report_partitions()
        finally:
            self._end_loading(held)
        return held

    def _begin_loading(self, user: str, directory: str) -> HeldDataset:
        """The data set in this directory, which is about to be loaded if it is not held."""
        path = Path(directory).resolve()
        with self._lock:
            held = self._datasets.get(path)
            if held is None:
                readers = self._access.readers(path, user)
                self._check_room(user, readers)
                held = self._datasets[path] = HeldDataset(path, readers)
            else:
                check_reader(held.readers, path, user)
            held.loading += 1
            return held

    def _check_room(self, user: str, readers: Readers) -> None:
        if len(self._datasets) >= DATASETS_MAX:
            raise SparrowError(f"{DATASETS_MAX} data sets are held here, which is the most; drop one")
        own = sum(held.readers is not None and user in held.readers for held in self._datasets.values())
        if readers is not None and own >= DATASETS_OF_USER_MAX:
            raise SparrowError(f"{own} data sets of user {user} are held here, which is the most; drop one")

    def _end_loading(self, held: HeldDataset) -> None:
        """End one load. A data set of which nothing could be loaded is forgotten, so that no user owns it."""
        with self._lock:
            held.loading -= 1
            path = held.dataset.directory
            if not held.loading and not held.schemas and self._datasets.get(path) is held:
                del self._datasets[path]

    def _report_partitions(self) -> None:
        with self._lock:
            held: dict[str, list[int]] = {}
            for one in self._datasets.values():
                if one.partitions:  # Two data sets may have the same key, in different directories.
                    held[one.dataset.key] = sorted({*held.get(one.dataset.key, ()), *one.partitions})
        self._changed(held)

    # ---- use by fragments --------------------------------------------------------------------

    def tables_for(self, user: str, directory: str, partition: int | None) -> FragmentTables:
        """The tables for a fragment of this user: those of the partition, and those that are held whole.

        Tables that are not held yet are loaded first. Without a directory there are no tables.
        """
        if not directory:
            return FragmentTables(self._empty_engine)
        partitions = [] if partition is None else [partition]
        held = self._load(user, directory, partitions)
        return FragmentTables(held.engine, tuple(map(schema_of, [*partitions, None])))


def schema_of(partition: int | None) -> str:
    """The name of a partition's schema, or (None) of the schema of the whole tables."""
    return WHOLE if partition is None else str(partition)
