"""Runs the stages of TPC-H's queries, one after the other, and measures each: rows, bytes, CPU time, memory.

The data are generated here, by `tpchgen-cli`, and read as Parquet files; DuckDB computes each stage with one thread,
into a table of its own, which the stages after it read. All is recorded at two scales, so that what grows with the data
can be told from what does not: a statement has its cost without any rows, too.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import msgspec

from frontends.sql.generate import generate_base_tables
from frontends.sql.tpch import BASE_TABLES
from frontends.sql.tpch_queries import QUERIES, tpch_query
from loadgen.dags.operators import SCAN
from loadgen.dags.tpch_profile import MeasuredQuery, MeasuredStage, TpchDags
from loadgen.dags.tpch_stages import PlanStage, stages_of
from sparrow_py.errors import InvalidOption

SCALE_MIN, SCALE_MAX = 0.01, 30.0
MEMORY_LIMIT = "6GB"
FIXED_BYTES = {"BOOLEAN": 1, "TINYINT": 1, "SMALLINT": 2, "INTEGER": 4, "DATE": 4, "FLOAT": 4, "HUGEINT": 16}
"""Of a value, by its type; of all other types but texts and lists, 8."""
LIST_VALUE_BYTES = 8


def record(
    scales: tuple[float, float],
    *,
    queries: Sequence[int] = tuple(range(1, QUERIES + 1)),
    runs: int = 3,
    note: str = "",
    say: Callable[[str], object] = lambda _: None,
) -> TpchDags:
    """Run the queries at both scales. CPU time is the least of `runs`: what else the machine does only adds to it. By
    the larger scale a stage should read some hundred megabytes, as a task does."""
    small, large = scales
    for scale in scales:
        if not SCALE_MIN <= scale <= SCALE_MAX:
            raise InvalidOption("scale", scale, f"numbers from {SCALE_MIN:g} to {SCALE_MAX:g}")
    if not small < large:
        raise InvalidOption("scale", f"{small:g},{large:g}", "a number, and a larger one")
    plans = {f"q{number}": stages_of(tpch_query(number)) for number in queries}
    found: dict[str, list[list[_Measured]]] = {name: [] for name in plans}
    for scale in scales:
        with tempfile.TemporaryDirectory(prefix="tpch-") as directory:
            say(f"generating the tables at scale factor {scale:g}")
            generate_base_tables(Path(directory), scale)
            for name, stages in plans.items():
                say(f"{name} at scale factor {scale:g}")
                found[name].append(measure(stages, Path(directory), runs))
    source = {
        "benchmark": "TPC-H",
        "scales": list(scales),
        "runs": runs,
        "engine": f"DuckDB {duckdb.__version__}, one thread, tables in Parquet",
        "note": note,
    }
    return TpchDags(source, {name: MeasuredQuery(tuple(map(_joined, *both))) for name, both in found.items()})


@dataclass(frozen=True, slots=True)
class _Sizes:
    rows_out: int
    bytes_in: int
    bytes_out: int


@dataclass(slots=True)
class _Measured:
    """A stage at one scale. cpu_s, memory_bytes: the least of all runs."""

    stage: PlanStage
    sizes: _Sizes
    cpu_s: float = math.inf
    memory_bytes: int = 2**62


def measure(stages: Sequence[PlanStage], directory: Path, runs: int = 1) -> list[_Measured]:
    """The stages of a query over the Parquet files of a directory."""
    found: dict[str, _Measured] = {}
    for _ in range(runs):
        with duckdb.connect() as connection, tempfile.TemporaryDirectory(prefix="spilled-") as spilled:
            connection.execute(f"SET threads = 1; SET memory_limit = '{MEMORY_LIMIT}'")
            connection.execute(f"SET temp_directory = '{spilled}'; SET enable_profiling = 'no_output'")
            for table, columns in BASE_TABLES.items():
                selected = ", ".join(f"CAST({column} AS {type_}) AS {column}" for column, type_ in columns.items())
                connection.execute(f"CREATE VIEW {table} AS SELECT {selected} FROM '{directory / table}.parquet'")
            _run(connection, stages, found)
    return list(found.values())


def _run(connection: duckdb.DuckDBPyConnection, stages: Sequence[PlanStage], found: dict[str, _Measured]) -> None:
    """Run the stages once; rows and bytes are counted the first time."""
    for number, stage in enumerate(stages):
        held_bytes = _held_bytes(connection)
        before_s = time.process_time()
        connection.execute(f'CREATE TEMP TABLE "{stage.name}" AS {stage.sql}')
        cpu_s = time.process_time() - before_s
        peak_bytes = _peak_bytes(connection)
        if stage.name not in found:
            found[stage.name] = _Measured(stage, _sizes(connection, stage, found))
        measured = found[stage.name]
        measured.cpu_s = min(measured.cpu_s, cpu_s)
        measured.memory_bytes = min(measured.memory_bytes, max(0, peak_bytes - held_bytes))
        for name in stage.after:
            if not any(name in later.after for later in stages[number + 1 :]):
                connection.execute(f'DROP TABLE "{name}"')


def _sizes(connection: duckdb.DuckDBPyConnection, stage: PlanStage, found: Mapping[str, _Measured]) -> _Sizes:
    rows_out, bytes_out = _size(connection, f'"{stage.name}"')
    if stage.kind == SCAN:
        return _Sizes(rows_out, _size(connection, _columns_read(stage))[1], bytes_out)
    return _Sizes(rows_out, sum(found[name].sizes.bytes_out for name in stage.after), bytes_out)


def _columns_read(stage: PlanStage) -> str:
    """A scan reads whole columns, of which its conditions then leave rows out."""
    names = [name for name in BASE_TABLES[stage.table] if name in stage.sql]
    return f"(SELECT {', '.join(names) or '1'} FROM {stage.table})"


def _size(connection: duckdb.DuckDBPyConnection, table: str) -> tuple[int, int]:
    """Rows of a table, and the bytes that their values take."""
    columns = [(name, type_) for name, type_, *_ in connection.execute(f"DESCRIBE SELECT * FROM {table}").fetchall()]
    widths = ", ".join(_width(f'"{name}"', type_) for name, type_ in columns)
    row: Any = connection.execute(f"SELECT count(*), {widths} FROM {table}").fetchone()
    return int(row[0]), sum(int(value or 0) for value in row[1:])


def _width(column: str, type_: str) -> str:
    if type_ == "VARCHAR":
        return f"sum(strlen({column}))"
    if type_.endswith("[]"):
        return f"{LIST_VALUE_BYTES} * sum(len({column}))"
    return f"{FIXED_BYTES.get(type_, 8)} * count(*)"


def _held_bytes(connection: duckdb.DuckDBPyConnection) -> int:
    row: Any = connection.execute("SELECT sum(memory_usage_bytes) FROM duckdb_memory()").fetchone()
    return int(row[0] or 0)


def _peak_bytes(connection: duckdb.DuckDBPyConnection) -> int:
    """The most memory that the last statement had, with that of all tables."""
    said = msgspec.json.decode(connection.get_profiling_information(format="json"))
    return int(said["system"]["peak_buffer_memory"])


def _joined(small: _Measured, large: _Measured) -> MeasuredStage:
    stage = large.stage
    return MeasuredStage(
        stage.name,
        stage.kind,
        stage.after,
        (small.sizes.rows_out, large.sizes.rows_out),
        (small.sizes.bytes_in, large.sizes.bytes_in),
        (small.sizes.bytes_out, large.sizes.bytes_out),
        (round(small.cpu_s, 5), round(large.cpu_s, 5)),
        (small.memory_bytes, large.memory_bytes),
    )
