"""Which engine runs a query's fragments, and how it holds a partition: memory, and time of a fragment on one thread.

Polars is measured if it is installed; the product does not need it.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.report import Report, Row, command, progress
from frontends.sql.compiler import compile_query
from frontends.sql.dataset import Dataset
from frontends.sql.generate import generate
from frontends.sql.tpch_queries import tpch_query

SCALE = 0.3
PARTITIONS = 10
"""So that each has 180,000 rows, about as one of 30 at scale factor 1."""
QUERIES = (1, 3, 6, 12)
ROUNDS = 5
WAYS = {
    "compressed": "DuckDB, compressed",
    "native": "DuckDB, plain",
    "arrow": "DuckDB on Arrow",
    "polars": "Polars",
}
Run = Callable[[str, int], object]


def files_of(dataset: Dataset, partition: int) -> list[str]:
    """The Parquet files of a partition of the denormalised table."""
    return [str(path) for path in dataset.files("denorm", partition)]


def duckdb_run(dataset: Dataset, way: str) -> Run:
    """DuckDB with the partitions held in one of its ways."""
    import duckdb

    connection: Any = duckdb.connect(config={"threads": "1"})
    if way == "compressed":
        connection.execute("ATTACH ':memory:' AS held (COMPRESS)")
        connection.execute("USE held")
    connection.execute("SET enable_progress_bar = false")
    for partition in range(PARTITIONS):
        files = files_of(dataset, partition)
        if way == "arrow":
            strings = [field.name for field in pq.read_schema(files[0]) if "string" in str(field.type)]
            connection.register(f"denorm{partition}", pq.ParquetFile(files[0], read_dictionary=strings).read())
        else:
            table = pq.ParquetFile(files[0]).read()
            connection.register("read", table)
            connection.execute(f"CREATE TABLE denorm{partition} AS SELECT * FROM read")
            connection.unregister("read")
    if way == "compressed":
        connection.execute("CHECKPOINT held")
    return lambda sql, partition: connection.sql(sql.replace('"denorm"', f"denorm{partition}")).to_arrow_table()


def polars_run(dataset: Dataset) -> Run:
    """Polars, which needs the fragment without what only DuckDB's dialect has."""
    pl: Any = importlib.import_module("polars")
    frames = [pl.read_parquet(files_of(dataset, partition)) for partition in range(PARTITIONS)]

    def run(sql: str, partition: int) -> object:
        return pl.SQLContext(denorm=frames[partition]).execute(sql).collect().to_arrow()

    return run


def measure_here(directory: str, way: str) -> Row:
    """One way, in this process, which has done nothing else."""
    dataset = Dataset(directory)
    process = psutil.Process()
    fragments = {number: compile_query(tpch_query(number)).stages[0].sql for number in QUERIES}
    before = process.memory_info().rss
    run = polars_run(dataset) if way == "polars" else duckdb_run(dataset, way)
    row: Row = {"way": WAYS[way]}
    for number, sql in fragments.items():
        best = [min(_times(run, sql, partition)) for partition in range(PARTITIONS)]
        row[f"q{number} ms"] = statistics.median(best) * 1e3
    gc.collect()
    pa.default_memory_pool().release_unused()
    row["RSS MB"] = (process.memory_info().rss - before) / 1e6
    return row


def _times(run: Run, sql: str, partition: int) -> Iterator[float]:
    """Seconds, of each round."""
    for _ in range(ROUNDS):
        started_s = time.perf_counter()
        run(sql, partition)
        yield time.perf_counter() - started_s


def measure(repeat: int) -> Report:
    """Each way in a process of its own, `repeat` times."""
    ways = [way for way in WAYS if way != "polars" or importlib.util.find_spec("polars") is not None]
    repetitions = []
    with tempfile.TemporaryDirectory() as scratch:
        progress(f"making a dataset of scale factor {SCALE}")
        dataset = generate(Path(scratch) / "data", SCALE, partitions=PARTITIONS)
        for _ in range(repeat):
            rows = []
            for way in ways:
                progress(way)
                call = f"measure_here({str(dataset.directory)!r}, {way!r})"
                code = f"import json, benchmarks.sql_engine as here; print(json.dumps(here.{call}))"
                environment = {**os.environ, "POLARS_MAX_THREADS": "1"}
                ended = subprocess.run(
                    [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
                )
                rows.append(json.loads(ended.stdout))
            repetitions.append(rows)
    rows = repetitions[-1]
    return Report(
        "sql_engine",
        rows[0]["q3 ms"],
        "ms, the scan of query 3 over one partition",
        {f"Scan of one of {PARTITIONS} partitions of scale factor {SCALE}": rows},
        repetitions,
        [
            f"Times: the best of {ROUNDS} rounds, the median of the partitions; the first way is the executor's.",
            "RSS: what the process has grown by to hold all partitions, after the queries.",
            "DuckDB on Arrow: string columns as dictionaries. Polars: its SQL, on one thread.",
        ],
    )


main = command("sql_engine", measure, repeat=1, help="Engines for the fragments of queries.")

if __name__ == "__main__":
    main()
