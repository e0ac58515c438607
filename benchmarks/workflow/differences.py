"""How engines differ where workflows have one meaning: `python -m benchmarks.workflow differences` asks each of them.

It prints the table of docs/workflow-semantics.md. Each point is a query over the table `t`, or its kin in pandas; the
last column is what the reference interpreter answers to the workflow beside it.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import click
import pyarrow as pa

from frontends.workflow.ir.reading import read
from frontends.workflow.ir.reference import evaluate

TABLE = pa.table(
    {
        "n": pa.array([3, None, 1, None], pa.int64()),
        "x": pa.array([math.nan, 1.0, None, 2.0], pa.float64()),
        "seven": pa.array([7, 7, 7, 7], pa.int64()),
        "zero": pa.array([0, 0, 0, 0], pa.int64()),
        "text": pa.array(["1.5"] * 4),
        "day": pa.array([18292] * 4, pa.date32()),  # 2020-01-31
    }
)
SCAN = "t = SCAN 't' (n INTEGER, x DOUBLE, seven INTEGER, zero INTEGER, text STRING, day DATE)\n"
ENGINES = ("duckdb", "datafusion", "polars", "pandas")


@dataclass(frozen=True)
class Point:
    """A point on which engines differ. sql, pandas, workflow: three ways to ask; workflow: what makes `r`."""

    title: str
    sql: str
    pandas: Callable[[Any, Any], Any]
    workflow: str
    rows: int = 1
    """How many of the answer's rows are shown."""


def _scalar(title: str, text: str, pandas: Callable[[Any, Any], Any], workflow: str = "") -> Point:
    return Point(title, f"SELECT {text} AS r FROM t", pandas, f"PROJECT t TO (r = {{{workflow or text}}})")


POINTS = (
    _scalar("7 / 2", "seven / 2", lambda pd, t: t.seven / 2),
    _scalar("-7 % 3", "(-seven) % 3", lambda pd, t: -t.seven % 3),
    _scalar("7 % 0", "seven % zero", lambda pd, t: t.seven % t.zero),
    _scalar("7 / 0, INTEGERs", "seven / zero", lambda pd, t: t.seven / t.zero),
    _scalar("NaN = NaN", "x = x", lambda pd, t: t.x.eq(t.x)),
    _scalar("NaN > 1e308", "x > 1e308", lambda pd, t: t.x > 1e308),
    Point(
        "groups of n: 3, null, 1, null",
        "SELECT count(*) AS r FROM (SELECT n FROM t GROUP BY n) AS g",
        lambda pd, t: pd.Series([t.groupby("n").ngroups]),
        "DISTINCT n",
    ),
    Point(
        "rows of a join of n with itself",
        "SELECT count(*) AS r FROM t JOIN t AS u ON t.n = u.n",
        lambda pd, t: pd.Series([len(t.merge(t, on="n"))]),
        "JOIN INNER t, t ON (n = n) TO (n = LEFT n)",
    ),
    Point(
        "sum of nothing",
        "SELECT sum(n) AS r FROM t WHERE n > 9",
        lambda pd, t: pd.Series([t.n[t.n > 9].sum()]),
        "AGGREGATE none TO (r = SUM n)",
    ),
    Point(
        "max of NaN, 1, null, 2",
        "SELECT max(x) AS r FROM t",
        lambda pd, t: pd.Series([t.x.max()]),
        "AGGREGATE t TO (r = MAX x)",
    ),
    Point(
        "the same of a group",
        "SELECT max(x) AS r FROM t GROUP BY seven",
        lambda pd, t: t.groupby("seven").x.max(),
        "AGGREGATE t BY (seven) TO (r = MAX x)",
    ),
    Point(
        "min of infinity, of a group",
        "SELECT min(seven / CAST(zero AS DOUBLE)) AS r FROM t GROUP BY seven",
        lambda pd, t: (t.seven / t.zero).groupby(t.seven).min(),
        "AGGREGATE infinite BY (seven) TO (r = MIN x)",
    ),
    Point(
        "rows where n <> 3",
        "SELECT count(*) AS r FROM t WHERE n <> 3",
        lambda pd, t: pd.Series([int((t.n != 3).sum())]),
        "SELECT n WHERE {n <> 3}",
    ),
    Point("n, ascending", "SELECT n AS r FROM t ORDER BY n", lambda pd, t: t.n.sort_values(), "SORT n BY (n)", 4),
    Point(
        "n, descending",
        "SELECT n AS r FROM t ORDER BY n DESC",
        lambda pd, t: t.n.sort_values(ascending=False),
        "SORT n BY (n DESC)",
        4,
    ),
    _scalar("1.5 to INTEGER", "CAST(1.5 + zero AS BIGINT)", lambda pd, t: (1.5 + t.zero).astype("int64")),
    _scalar("'1.5' to INTEGER", "CAST(text AS BIGINT)", lambda pd, t: t.text.astype("int64")),
    _scalar("one month after 31 January", "day + INTERVAL '1' MONTH", lambda pd, t: t.day + pd.DateOffset(months=1)),
    _scalar("2^63 - 1 + 7", "9223372036854775807 + seven", lambda pd, t: t.seven + 9223372036854775807),
)
COUNTED = ("groups", "rows ")
"""Points whose workflow makes the rows that the queries count."""


def _answers(engine: str) -> list[str]:
    try:
        module: Any = importlib.import_module(engine)
    except ModuleNotFoundError:
        return [engine, *["not installed"] * len(POINTS)]
    ask = {"duckdb": _duckdb, "datafusion": _datafusion, "polars": _polars, "pandas": _pandas}[engine]
    return [f"{engine} {module.__version__}", *(_answer(partial(ask, module, point), point) for point in POINTS)]


def _answer(ask: Callable[[], list[object]], point: Point) -> str:
    """What it says; an exception, of which DataFusion's panics are none of `Exception`, is an answer, too."""
    try:
        return ", ".join(_shown(value) for value in ask()[: point.rows])
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException:
        return "error"


def _shown(value: object) -> str:
    if value is None or str(value) in ("<NA>", "NaT"):
        return "null"
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else f"{value:g}"
    return str(value).removesuffix(" 00:00:00")


def _duckdb(duckdb: Any, point: Point) -> list[object]:
    connection = duckdb.connect()
    connection.register("t", TABLE)
    return [row[0] for row in connection.execute(point.sql).fetchall()]


def _datafusion(datafusion: Any, point: Point) -> list[object]:
    context = datafusion.SessionContext()
    context.register_record_batches("t", [TABLE.to_batches()])
    return list(pa.Table.from_batches(context.sql(point.sql).collect())["r"].to_pylist())


def _polars(polars: Any, point: Point) -> list[object]:
    return [row[0] for row in polars.SQLContext(t=polars.from_arrow(TABLE)).execute(point.sql, eager=True).rows()]


def _pandas(pandas: Any, point: Point) -> list[object]:
    """In its usual types, where a column of numbers with nulls is one of floats."""
    return list(point.pandas(pandas, TABLE.to_pandas()).tolist())


def reference(point: Point) -> str:
    helpers = (
        "n = PROJECT t TO (n = {n})\nnone = SELECT n WHERE {n > 9}\n"
        "infinite = PROJECT t TO (seven = {seven}, x = {seven / zero})\n"
    )
    dag = read(f"{SCAN}{helpers}r = {point.workflow}\nRESULTS r")
    try:
        (table,) = evaluate(dag, {"t": TABLE}).values()
    except OverflowError:
        return "undefined"
    if point.title.startswith(COUNTED):
        return str(len(table))
    return ", ".join(_shown(value) for value in table.column(-1).to_pylist()[: point.rows])


@click.command("differences", help=__doc__)
def main() -> None:
    """Print the table."""
    columns = [["", *(point.title for point in POINTS)], *map(_answers, ENGINES)]
    columns.append(["workflows", *map(reference, POINTS)])
    rows = [f"| {' | '.join(row)} |" for row in zip(*columns, strict=True)]
    print("\n".join([rows[0], "|---" * len(columns) + "|", *rows[1:]]))
