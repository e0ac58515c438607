"""TPC-H datasets for tests: the same queries answered by DuckDB alone, and plans run in this process."""

from __future__ import annotations

import math
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from frontends.sql import tpch
from frontends.sql.access import DataAccess
from frontends.sql.compiler import compile_query
from frontends.sql.dataset import Dataset
from frontends.sql.held_datasets import HeldDatasets
from frontends.sql.plan import Plan, input_table
from frontends.sql.results import decode_tables, encode_table

TOLERANCE = 1e-9
"""Relative, of floating-point results, which are sums in another order."""
USER = "anna"
Row = tuple[Any, ...]


class Reference:
    """DuckDB on the whole tables of a dataset."""

    def __init__(self, directory: Path) -> None:
        self._connection = duckdb.connect()
        for table in tpch.REPLICATED:
            self._view(table, f"SELECT * FROM '{directory / table}.parquet'")
        for table in tpch.STORED:
            self._view(
                table, f"SELECT * FROM read_parquet('{directory / table}/*/*.parquet', hive_partitioning = false)"
            )
        self._view("lineitem", f"SELECT {', '.join(tpch.BASE_TABLES['lineitem'])} FROM denorm")

    def _view(self, name: str, select: str) -> None:
        self._connection.execute(f"CREATE VIEW {name} AS {select}")

    def query(self, sql: str) -> pa.Table:
        result: Any = self._connection.sql(sql)
        return result.to_arrow_table()


class HereRunner:
    """Runs plans in this process, stage after stage, through the code that executors use."""

    def __init__(self, directory: Path) -> None:
        self.dataset = Dataset(directory)
        self._directory = str(self.dataset.directory)
        self._held = HeldDatasets(DataAccess(None))
        self._held.load(USER, self._directory, list(range(self.dataset.manifest.partitions)))

    def compile(self, sql: str) -> Plan:
        return compile_query(sql, self.dataset.statistics)

    def query(self, sql: str) -> pa.Table:
        return self.run(self.compile(sql))

    def run(self, plan: Plan) -> pa.Table:
        results: dict[str, list[bytes]] = {}
        for stage in plan.stages:
            count = self.dataset.manifest.partitions if stage.partitioned else stage.tasks
            results[stage.name] = []
            for number in range(count):
                bucket = number if stage.tasks > 1 else None
                inputs = {input_table(name): decode_tables(results[name], bucket) for name in stage.after}
                partition = number if stage.partitioned else None
                source = self._held.tables_for(USER, self._directory if stage.reads_tables else "", partition)
                with source.engine.cursor() as cursor:
                    table = source.engine.select(cursor, stage.sql, source.schemas, inputs)
                results[stage.name].append(encode_table(table, stage.buckets))
        return decode_tables(results[plan.stages[-1].name])


def rows_of(table: pa.Table) -> list[Row]:
    return [
        tuple(float(value) if isinstance(value, Decimal) else value for value in row)
        for row in zip(*(column.to_pylist() for column in table.columns), strict=True)
    ]


def same_rows(one: Iterable[Row], other: Iterable[Row]) -> bool:
    """Whether the rows are the same, floats within `TOLERANCE`."""
    left, right = list(one), list(other)
    return len(left) == len(right) and all(
        len(a) == len(b) and all(map(_same_value, a, b)) for a, b in zip(left, right, strict=True)
    )


def _same_value(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=TOLERANCE, abs_tol=1e-12)
    return bool(one == other)


def check_same(got: pa.Table, expected: pa.Table, *, ordered: bool) -> None:
    """Assert that the tables have the same columns, types and rows, in the same order if that is determined."""
    assert got.schema == expected.schema
    left, right = rows_of(got), rows_of(expected)
    if not ordered:
        left, right = sorted(left, key=repr), sorted(right, key=repr)
    assert same_rows(left, right), f"{left[:3]} … of {len(left)} are not {right[:3]} … of {len(right)}"
