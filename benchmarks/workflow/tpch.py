"""All 22 queries of TPC-H in HiveQL (examples/workflow/tpch) on every engine that takes them, beside DuckDB's answers.

DuckDB is asked in its own SQL, over the same files. Each engine has the whole query, in as many jobs as it needs.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.flow.outcome import Row, Target, at_least
from benchmarks.report import progress
from benchmarks.workflow.answers import differing
from benchmarks.workflow.bench import Bench, WayFailedError
from benchmarks.workflow.beside import LIMIT_S, engine_names, singles
from benchmarks.workflow.parts import Parts
from benchmarks.workflow.ways import Way
from benchmarks.workflow.workloads import Workload
from benchmarks.workflow.workloads import tpch_query as workload_of
from frontends.sql.tpch_queries import QUERIES, tpch_query
from frontends.workflow.mapping.calibration import Calibration

ENGINES_AIM = 5
NOT_TAKEN, FAILED, DIFFERS = "not taken", "failed", "differs"
WHOLE = "all"
"""In the place of a query's number: the rows of engines."""


def queries(
    parts: Parts, repeat: int = 3, scale: float = 0.1, numbers: Sequence[int] = tuple(range(1, QUERIES + 1))
) -> list[Row]:
    """A row for each engine, then one for each query. repeat: runs of each, in turn, after one that does not count."""
    with Bench() as bench:
        rows = parts.of_each(
            f"scale {scale}, {repeat} runs, {engine_names()}",
            numbers,
            lambda number: [_query(bench, number, workload_of(number, scale), repeat)],
        )
    return [*by_engine(rows), *rows]


def _query(bench: Bench, number: int, one: Workload, repeat: int) -> Row:
    progress(f"{one.name} on all engines")
    ways = {way.name: way for way in singles(one, Calibration(), bench.directory / one.name)}
    expected = answer_of_duckdb(number, one.files)
    found: dict[str, str | list[float]] = {name: _first(bench, way, expected) for name, way in ways.items()}
    for place in range(repeat):
        names = [name for name, seconds in found.items() if isinstance(seconds, list)]
        turn = place % max(1, len(names))
        for name in (*names[turn:], *names[:turn]):
            seconds = found[name]
            assert isinstance(seconds, list)
            seconds.append(bench.run(ways[name]).wall_s)
    cells = {name: found.get(name, NOT_TAKEN) for name in sorted(engine_names())}
    return {
        "query": number,
        "rows": expected.num_rows,
        **{f"{name}_s": statistics.median(cell) if isinstance(cell, list) else cell for name, cell in cells.items()},
    }


def _first(bench: Bench, way: Way, expected: pa.Table) -> str | list[float]:
    """A list for the times, if the engine runs the query to the right end; else what is wrong."""
    try:
        bench.run(way, limit_s=LIMIT_S)
    except WayFailedError as error:
        progress(str(error))
        return FAILED
    difference = compared(pq.read_table(way.results[0]), expected)
    if difference:
        progress(f"{way.name} differs from DuckDB: {difference}")
    return DIFFERS if difference else []


def compared(got: pa.Table, expected: pa.Table) -> str:
    """What differs from DuckDB's answer, of which decimals and wide integers are cast to the workflow's types."""
    try:
        return differing(got, expected.rename_columns(got.column_names).cast(got.schema))
    except pa.ArrowInvalid as error:
        return str(error)


def answer_of_duckdb(number: int, files: Mapping[str, Path]) -> pa.Table:
    """To the query in SQL."""
    with duckdb.connect() as connection:
        for name, path in files.items():
            connection.execute(f"CREATE VIEW {name} AS SELECT * FROM '{path}'")
        return connection.sql(tpch_query(number)).to_arrow_table()


def by_engine(rows: Sequence[Row]) -> list[Row]:
    """For each engine how many of the queries it takes, and how long all of those take that every such engine takes."""
    names = [column.removesuffix("_s") for column in rows[0] if column.endswith("_s")] if rows else []
    cells = {name: [row[f"{name}_s"] for row in rows] for name in names}
    whole = {name for name in names if all(isinstance(cell, float) for cell in cells[name])}
    return [
        {
            "query": WHOLE,
            "engine": name,
            "queries": len(rows),
            "answered as DuckDB": sum(isinstance(cell, float) for cell in cells[name]),
            "differs": cells[name].count(DIFFERS),
            "failed": cells[name].count(FAILED),
            "not taken": cells[name].count(NOT_TAKEN),
            "all of them, s": sum(cells[name]) if name in whole else None,
        }
        for name in names
    ]


def targets(rows: Sequence[Row]) -> list[Target]:
    """Every answer is DuckDB's, and enough engines take all."""
    engines = [row for row in rows if row["query"] == WHOLE]
    wrong = sum(row["differs"] for row in engines)
    whole = [row["engine"] for row in engines if row["answered as DuckDB"] == row["queries"]]
    return [
        Target("answers that differ from DuckDB's", str(wrong), wrong == 0),
        at_least(f"engines that take all queries ({', '.join(whole)}): 5", float(len(whole)), ENGINES_AIM),
    ]
