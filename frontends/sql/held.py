"""The tables that an executor holds, in a DuckDB database in memory.

Each partition is a schema of its own, and the tables that are held whole are another, so that a fragment's SQL says
`denorm` whichever partition it is for. Tables are compressed, as DuckDB does on disk: they take a third of the memory,
and scans are faster. A fragment runs on one thread, as a task has one slot.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from frontends.sql.dataset import Dataset
from frontends.sql.tpch import REPLICATED, STORED
from sparrow_py.errors import SparrowError

DATASETS_MAX = 16
RESULT_ROWS_MAX = 50_000_000
"""Rows of a fragment's result."""


class QueryError(SparrowError):
    """A fragment could not be answered; DuckDB's reason."""


class HeldTables:
    """Partitions held in memory. Thread-safe. `changed` is told, of each dataset, the partitions that are held."""

    def __init__(self, changed: Callable[[Mapping[str, list[int]]], object] = lambda _: None) -> None:
        # Nothing that a query says can reach a file or the network: tables come in as Arrow.
        self._database = duckdb.connect(config={"enable_external_access": "false", "threads": "1"})
        self._database.execute("ATTACH ':memory:' AS held (COMPRESS)")
        self._database.execute("SET enable_progress_bar = false")
        self._changed = changed
        self._lock = threading.Lock()
        self._datasets: dict[str, Dataset] = {}
        """By directory."""
        self._whole: set[str] = set()
        """Datasets whose whole tables are held."""
        self._partitions: dict[str, set[int]] = {}
        """Dataset to its partitions that are held."""
        self._uncompressed = False
        self._loading: dict[tuple[str, int | None], threading.Lock] = {}

    # ---- holding -----------------------------------------------------------------------------

    def load(self, directory: str, partitions: list[int]) -> dict[str, int]:
        """Hold these partitions and the whole tables; the number of partitions of each dataset that are held then.

        What is held already stays as it is. `InvalidRequest` if there is no such dataset or partition.
        """
        dataset = self._dataset(directory)
        self._hold(dataset, None)
        for partition in partitions:
            dataset.check_partition(partition)
            self._hold(dataset, partition)
        with self._lock:
            return {key: len(held) for key, held in self._partitions.items()}

    def drop(self, key: str) -> None:
        """Hold nothing of the dataset any more."""
        with self._lock:
            partitions = self._partitions.pop(key, set())
            whole = key in self._whole
            self._whole.discard(key)
            self._datasets = {path: dataset for path, dataset in self._datasets.items() if dataset.key != key}
            held = {key: sorted(held) for key, held in self._partitions.items()}
        self._changed(held)
        cursor = self._database.cursor()
        for partition in [*partitions, *([None] if whole else [])]:
            cursor.execute(f'DROP SCHEMA held."{_schema(key, partition)}" CASCADE')

    def _dataset(self, directory: str) -> Dataset:
        with self._lock:
            found = self._datasets.get(directory)
        if found is not None:
            return found
        dataset = Dataset(directory)
        with self._lock:
            if len(self._datasets) >= DATASETS_MAX:
                raise SparrowError(f"{DATASETS_MAX} datasets are held here, which is the most; drop one")
            return self._datasets.setdefault(directory, dataset)

    def _hold(self, dataset: Dataset, partition: int | None) -> None:
        key = dataset.key
        with self._lock:
            loading = self._loading.setdefault((key, partition), threading.Lock())
        with loading:
            if self._is_held(key, partition):
                return
            self._read(dataset, partition)
            with self._lock:
                if partition is None:
                    self._whole.add(key)
                else:
                    self._partitions.setdefault(key, set()).add(partition)
                held = {key: sorted(held) for key, held in self._partitions.items()}
        if partition is not None:
            self._changed(held)

    def _is_held(self, key: str, partition: int | None) -> bool:
        with self._lock:
            return key in self._whole if partition is None else partition in self._partitions.get(key, ())

    def _read(self, dataset: Dataset, partition: int | None) -> None:
        schema = _schema(dataset.key, partition)
        with self._database.cursor() as cursor:
            cursor.execute("BEGIN")  # All of it is held, or nothing.
            cursor.execute(f'CREATE SCHEMA held."{schema}"')
            for table in REPLICATED if partition is None else STORED:
                files = dataset.files(table, partition)
                read = pa.concat_tables([pq.ParquetFile(path).read() for path in files])
                cursor.register("read", read)
                cursor.execute(f'CREATE TABLE held."{schema}"."{table}" AS SELECT * FROM read')
                cursor.unregister("read")
            cursor.execute("COMMIT")
        self._uncompressed = True
        self._compress()

    def _compress(self) -> None:
        """Compress what has been loaded, unless another thread is at work: then later."""
        with self._database.cursor() as cursor, contextlib.suppress(duckdb.TransactionException):
            cursor.execute("CHECKPOINT held")
            self._uncompressed = False

    # ---- answering ---------------------------------------------------------------------------

    def prepare(self, directory: str, partition: int | None) -> str:
        """Hold what a fragment over this partition reads; returns where its SQL finds tables."""
        dataset = self._dataset(directory)
        self._hold(dataset, None)
        path = f'held."{_schema(dataset.key, None)}"'
        if partition is not None:
            dataset.check_partition(partition)
            self._hold(dataset, partition)
            path = f'held."{_schema(dataset.key, partition)}",{path}'
        return path

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """To run a fragment with; `interrupt` on it ends the fragment from another thread."""
        return self._database.cursor()

    def run(self, cursor: duckdb.DuckDBPyConnection, sql: str, path: str, inputs: Mapping[str, pa.Table]) -> pa.Table:
        """The result of a fragment; `QueryError` if DuckDB refuses it."""
        try:
            for name, table in inputs.items():
                cursor.register(name, table)
            if path:
                cursor.execute(f"SET search_path = '{path}'")
            result: Any = cursor.sql(sql)
            table = result.to_arrow_table()
        except duckdb.Error as error:
            raise QueryError(" ".join(str(error).split())) from None
        if self._uncompressed:
            self._compress()
        if table.num_rows > RESULT_ROWS_MAX:
            raise QueryError(f"the fragment has {table.num_rows} rows; at most {RESULT_ROWS_MAX} are passed on")
        return table


def _schema(key: str, partition: int | None) -> str:
    return f"{key} whole" if partition is None else f"{key} {partition}"
