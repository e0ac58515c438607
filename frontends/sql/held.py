"""The data sets that an executor holds, and whose they are.

Each has a database of its own (`Engine`). In it each partition is a schema, and the tables that are held whole are
another, so that a fragment's SQL says `denorm` whichever partition it is for. Tables are compressed, as DuckDB does on
disk: they take a third of the memory, and scans are faster. A fragment runs on one thread, as a task has one slot.

A data set is known by its directory, and not by what its manifest says of it, which anybody may write.
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
"""Data sets that are not everybody's, for each user."""
WHOLE = "whole"


@dataclass(frozen=True, slots=True)
class Source:
    """Where a fragment's tables are."""

    engine: Engine
    schemas: tuple[str, ...] = ()


class HeldSet:
    """A data set that is held, or about to be. `loading`: how many are at it now."""

    def __init__(self, directory: Path, readers: Readers) -> None:
        self.dataset = Dataset(directory, confined=True)
        self.readers = readers
        self.engine = Engine()
        self.schemas: set[str] = set()
        """Those that are held: `WHOLE`, and the numbers of partitions."""
        self.loading = 0
        self._locks: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()

    @property
    def partitions(self) -> list[int]:
        """Those that are held."""
        return sorted(int(schema) for schema in self.schemas - {WHOLE})

    def hold(self, partition: int | None) -> bool:
        """Hold the partition, or (None) the whole tables; whether that is new."""
        schema = schema_of(partition)
        with self._lock:
            lock = self._locks.setdefault(schema, threading.Lock())
        with lock:
            if schema in self.schemas:
                return False
            tables = REPLICATED if partition is None else STORED
            self.engine.hold(schema, {table: self._read(table, partition) for table in tables})
            with self._lock:
                self.schemas = self.schemas | {schema}
        return True

    def _read(self, table: str, partition: int | None) -> pa.Table:
        parts = []
        for path in self.dataset.files(table, partition):
            with self.dataset.open(path) as file:
                parts.append(pq.ParquetFile(file).read())
        return pa.concat_tables(parts)


class HeldTables:
    """Data sets held in memory. Thread-safe. `changed` is told, of each data set, the partitions that are held."""

    def __init__(
        self, access: DataAccess, changed: Callable[[Mapping[str, list[int]]], object] = lambda _: None
    ) -> None:
        self._access = access
        self._changed = changed
        self._lock = threading.Lock()
        self._sets: dict[Path, HeldSet] = {}
        self._nothing = Engine()
        """For fragments that read no data set."""

    # ---- holding -----------------------------------------------------------------------------

    def load(self, user: str, directory: str, partitions: list[int]) -> dict[str, int]:
        """Hold these partitions and the whole tables; of the data set the number of partitions that are held then.

        What is held already stays as it is. `InvalidRequest` if there is no such data set or partition, `NotYours` if
        the user may not have it.
        """
        held = self._hold(user, directory, partitions)
        return {held.dataset.key: len(held.partitions)}

    def drop(self, user: str, key: str) -> None:
        """Hold nothing of the user's data sets of this key any more; those that others may read, too, stay."""
        with self._lock:
            own = frozenset((user,))
            dropped = [path for path, held in self._sets.items() if held.dataset.key == key and held.readers == own]
            for path in dropped:
                del self._sets[path]  # What reads it now has it to the end.
        if dropped:
            self._tell()

    def _hold(self, user: str, directory: str, partitions: list[int]) -> HeldSet:
        held = self._enter(user, directory)
        try:
            held.hold(None)
            for partition in partitions:
                held.dataset.check_partition(partition)
                if held.hold(partition):
                    self._tell()
        finally:
            self._leave(held)
        return held

    def _enter(self, user: str, directory: str) -> HeldSet:
        """The data set in this directory, which is about to be loaded if it is not held."""
        path = Path(directory).resolve()
        with self._lock:
            held = self._sets.get(path)
            if held is None:
                readers = self._access.readers(path, user)
                self._check_room(user, readers)
                held = self._sets[path] = HeldSet(path, readers)
            else:
                check_reader(held.readers, path, user)
            held.loading += 1
            return held

    def _check_room(self, user: str, readers: Readers) -> None:
        if len(self._sets) >= DATASETS_MAX:
            raise SparrowError(f"{DATASETS_MAX} data sets are held here, which is the most; drop one")
        own = sum(held.readers is not None and user in held.readers for held in self._sets.values())
        if readers is not None and own >= DATASETS_OF_USER_MAX:
            raise SparrowError(f"{own} data sets of user {user} are held here, which is the most; drop one")

    def _leave(self, held: HeldSet) -> None:
        """One that could not be loaded belongs to nobody."""
        with self._lock:
            held.loading -= 1
            path = held.dataset.directory
            if not held.loading and not held.schemas and self._sets.get(path) is held:
                del self._sets[path]

    def _tell(self) -> None:
        with self._lock:
            held: dict[str, list[int]] = {}
            for one in self._sets.values():
                if one.partitions:  # Of two of one key, both.
                    held[one.dataset.key] = sorted({*held.get(one.dataset.key, ()), *one.partitions})
        self._changed(held)

    # ---- answering ---------------------------------------------------------------------------

    def source(self, user: str, directory: str, partition: int | None) -> Source:
        """Where a fragment of this user finds its tables: those of the partition, and those that are held whole, which
        are held from now on. Without a directory there are none."""
        if not directory:
            return Source(self._nothing)
        partitions = [] if partition is None else [partition]
        held = self._hold(user, directory, partitions)
        return Source(held.engine, tuple(map(schema_of, [*partitions, None])))


def schema_of(partition: int | None) -> str:
    """What a partition's schema is called, or that of the whole tables."""
    return WHOLE if partition is None else str(partition)
