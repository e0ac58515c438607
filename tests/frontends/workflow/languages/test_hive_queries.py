"""Queries of HiveQL have the answers that DuckDB gives, nulls and duplicates among the data."""

from collections.abc import Iterator
from datetime import date

import duckdb
import pyarrow as pa
import pytest

from frontends.workflow.ir.reference import evaluate
from frontends.workflow.ir.tables import arrow_schema
from frontends.workflow.ir.types import Schema, Type
from frontends.workflow.languages.hive import parse
from tests.support.workflow_dags import assert_same_bag

SCHEMAS = {
    "t": Schema.of(a=Type.INTEGER, b=Type.INTEGER, s=Type.STRING, x=Type.DOUBLE, d=Type.DATE),
    "u": Schema.of(a=Type.INTEGER, c=Type.INTEGER, s=Type.STRING),
    "nothing": Schema.of(a=Type.INTEGER, c=Type.INTEGER),
}
ROWS = {
    "t": [
        (1, 10, "ab", 0.5, date(2020, 1, 31)),
        (1, 10, "ab", 0.5, date(2020, 1, 31)),
        (2, None, "b", 1.5, date(2020, 2, 29)),
        (3, 30, None, None, date(1999, 12, 31)),
        (None, 40, "abc", -2.0, None),
        (5, 20, "", 8.0, date(2021, 6, 1)),
    ],
    "u": [(1, 10, "ab"), (1, 11, "b"), (2, None, "b"), (None, 40, "abc"), (7, 70, None), (3, 30, "q")],
    "nothing": [],
}
TABLES = {
    name: pa.table(
        [pa.array(values) for values in zip(*rows, strict=True)] or [[], []], names=list(SCHEMAS[name].names)
    )
    for name, rows in ROWS.items()
    if rows
}
TABLES["nothing"] = arrow_schema(SCHEMAS["nothing"]).empty_table()

QUERIES = [
    "SELECT a, b FROM t WHERE a > 1 OR s LIKE 'a%'",
    "SELECT b + a AS n, x * 2 AS y, s AS name FROM t",
    "SELECT DISTINCT a, s FROM t",
    "SELECT * FROM t WHERE s NOT LIKE 'a%' AND x IS NOT NULL",
    "SELECT year(d) AS y, count(*) AS n FROM t GROUP BY year(d)",
    "SELECT d + INTERVAL '1' MONTH AS later FROM t WHERE d < DATE '2020-12-31'",
    "SELECT CASE WHEN a = 1 THEN 'one' ELSE s END AS z, coalesce(b, 0) AS b FROM t",
    "SELECT substr(s, 1, 1) AS first, max(x) AS most FROM t GROUP BY substr(s, 1, 1)",
    # Groups
    "SELECT a, sum(b) AS n FROM t GROUP BY a",
    "SELECT sum(b) AS n, a FROM t GROUP BY a",
    "SELECT a AS key, sum(b) + count(*) AS n, avg(x) AS mean FROM t GROUP BY a",
    "SELECT count(*) AS n, count(b) AS m, count(DISTINCT a) AS k, min(s) AS s FROM t",
    "SELECT count(*) AS n, sum(a) AS m FROM nothing",
    "SELECT a FROM t GROUP BY a",
    "SELECT a FROM t GROUP BY a, s",
    "SELECT a, count(*) AS n FROM t GROUP BY a HAVING count(*) > 1",
    "SELECT a, sum(b) AS n FROM t GROUP BY a HAVING n > 15 AND a IS NOT NULL",
    "SELECT a + 1 AS a, sum(b * 2) AS n FROM t GROUP BY a + 1 HAVING max(b) < 40",
    "SELECT sum(b) AS b FROM t HAVING sum(b) > 3",
    "SELECT 1 AS n FROM t HAVING sum(b) > 3",
    "SELECT sum(b) AS one, sum(b) AS two, sum(b) - sum(b) AS zero FROM t",
    # Joins
    "SELECT t.a, t.s, u.s AS other FROM t JOIN u ON t.a = u.a",
    "SELECT t.a, c FROM t, u WHERE t.a = u.a AND t.b < u.c",
    "SELECT t.a, c FROM t CROSS JOIN u WHERE c > 30",
    "SELECT one.a, two.a AS other FROM t one, t two WHERE one.b = two.b AND one.s = two.s",
    "SELECT t.a, u.c FROM t LEFT JOIN u ON t.a = u.a AND u.c > 10",
    "SELECT t.a, u.c FROM t RIGHT JOIN u ON t.a = u.a AND t.b > 5",
    "SELECT t.a, u.c, n.c AS e FROM t JOIN u ON t.a = u.a LEFT OUTER JOIN nothing n ON u.c = n.c",
    "SELECT t.b, u.c, v.c AS e FROM t LEFT JOIN u ON t.a = u.a JOIN u v ON u.c = v.c",
    "SELECT t.b, u.c, v.c AS e FROM t JOIN u ON t.a = u.a RIGHT JOIN u v ON u.c = v.c WHERE v.a < 5",
    "SELECT * FROM t JOIN u USING (a, s)",
    "SELECT a, c, b FROM t JOIN u USING (a)",
    "SELECT t.a FROM t JOIN u ON t.a + 1 = u.a",
    "SELECT t.a FROM t JOIN u ON t.x * 2 = u.a",
    "SELECT t.a, c FROM t, u WHERE (t.a = u.a AND c > 10) OR (t.a = u.a AND b > 5)",
    "SELECT p.a, q.c FROM (SELECT a, b FROM t WHERE b > 10) p JOIN (SELECT a, c FROM u) q ON p.a = q.a",
    # Sets
    "SELECT a, b FROM t UNION ALL SELECT a, c FROM u",
    "SELECT a, b FROM t UNION SELECT a, c FROM u",
    "SELECT a FROM t INTERSECT SELECT a FROM u",
    "(SELECT a FROM t) EXCEPT SELECT a FROM u",
    # Subqueries
    "SELECT a, b FROM t WHERE a IN (SELECT a FROM u)",
    "SELECT a, b FROM t WHERE a IN (SELECT a FROM u WHERE u.c = t.b)",
    "SELECT a, b FROM t WHERE a IN (SELECT a FROM u GROUP BY a HAVING count(*) > 1)",
    "SELECT a, b FROM t WHERE a IN ((SELECT a FROM u ORDER BY a DESC LIMIT 1))",
    "SELECT a, b FROM t WHERE b + 1 IN (SELECT c FROM u)",
    "SELECT a, b FROM t WHERE a NOT IN (SELECT a FROM u)",
    "SELECT a, b FROM t WHERE a NOT IN (SELECT a FROM u WHERE a IS NOT NULL)",
    "SELECT a, b FROM t WHERE a NOT IN (SELECT a FROM nothing)",
    "SELECT a, b FROM t WHERE a NOT IN (SELECT u.a FROM u WHERE u.s = t.s)",
    "SELECT a, b FROM t WHERE b NOT IN (SELECT c FROM u WHERE u.a = t.a)",
    "SELECT a, b FROM t WHERE NOT a IN (SELECT c FROM u WHERE c IS NOT NULL)",
    "SELECT a, b FROM t WHERE EXISTS (SELECT * FROM u WHERE u.a = t.a)",
    "SELECT a, b FROM t WHERE NOT EXISTS (SELECT * FROM u WHERE u.a = t.a AND u.c > 10)",
    "SELECT a, b FROM t WHERE EXISTS (SELECT * FROM u WHERE u.a = t.a AND u.c <> t.b)",
    "SELECT a, b FROM t WHERE NOT EXISTS (SELECT * FROM u WHERE u.a = t.a AND u.c <> t.b)",
    "SELECT a, b FROM t WHERE EXISTS (SELECT * FROM u WHERE u.c < t.b)",
    "SELECT a, b FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.c > t.b)",
    "SELECT a, b FROM t WHERE EXISTS (SELECT * FROM u WHERE c > 60)",
    "SELECT a, b FROM t WHERE NOT EXISTS (SELECT * FROM nothing)",
    "SELECT a, b FROM t WHERE EXISTS (SELECT a FROM u GROUP BY a HAVING count(*) > 5)",
    "SELECT a, b FROM t WHERE b = (SELECT max(c) FROM u)",
    "SELECT a, b FROM t WHERE b < (SELECT sum(c) - 1 FROM u WHERE u.a = t.a)",
    "SELECT a, b FROM t WHERE 1 > (SELECT count(*) FROM u WHERE u.a = t.a)",
    "SELECT a, b FROM t WHERE 5 = (SELECT coalesce(max(c), 5) FROM u WHERE u.a = t.a)",
    "SELECT a, b FROM t WHERE b > 15 OR (SELECT max(c) FROM u WHERE u.a = t.a) > 10",
    "SELECT a, (SELECT count(*) FROM u WHERE u.a = t.a) AS n FROM t",
    "SELECT a, b - (SELECT min(c) FROM u) AS n FROM t",
    "SELECT a, sum(b) AS n FROM t GROUP BY a HAVING sum(b) > (SELECT avg(c) FROM u)",
    "SELECT a, b FROM t WHERE a IN (SELECT a FROM u WHERE c > (SELECT avg(b) FROM t one WHERE one.s = u.s))",
    "SELECT sum(b) - (SELECT count(*) FROM u) AS n FROM t",
    "WITH r AS (SELECT a, sum(b) AS n FROM t GROUP BY a), q AS (SELECT n FROM r) "
    "SELECT * FROM r WHERE n = (SELECT max(n) FROM q)",
]


@pytest.fixture(scope="module")
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        for name, table in TABLES.items():
            connection.register(name, table)
        yield connection


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_has_the_answer_that_duckdb_gives(query: str, database: duckdb.DuckDBPyConnection) -> None:
    dag = parse(query, SCHEMAS)
    (name,) = dag.results
    got = evaluate(dag, TABLES)[name]
    expected = database.sql(query).to_arrow_table()
    assert got.column_names == expected.column_names
    assert_same_bag(got, expected.cast(got.schema))  # DuckDB's sums are wider, and its dates have times.


@pytest.mark.parametrize(
    ("query", "order"),
    [
        ("SELECT a, b FROM t ORDER BY b DESC", [40, 30, 20, 10, 10, None]),
        ("SELECT a, b FROM t ORDER BY 2, a", [10, 10, 20, 30, 40, None]),
        ("SELECT a, t.b FROM t ORDER BY t.b DESC LIMIT 2", [40, 30]),
        ("SELECT a, b + 1 AS b FROM t ORDER BY b + 1 DESC LIMIT 1", [41]),
        ("SELECT s, sum(b) AS b FROM t GROUP BY s ORDER BY sum(b) LIMIT 2", [20, 20]),
        ("SELECT a, b FROM t UNION SELECT a, c FROM u ORDER BY b DESC, a LIMIT 3", [70, 40, 30]),
        ("SELECT a, b FROM (SELECT a, b FROM t ORDER BY a LIMIT 3) r ORDER BY b", [10, 10, None]),
    ],
)
def test_order_and_limit(query: str, order: list[int | None]) -> None:
    (table,) = evaluate(parse(query, SCHEMAS), TABLES).values()
    assert table["b"].to_pylist() == order


def test_limit_without_order_takes_the_least_rows() -> None:
    (table,) = evaluate(parse("SELECT b FROM t LIMIT 3", SCHEMAS), TABLES).values()
    assert sorted(table["b"].to_pylist()) == [10, 10, 20]


@pytest.mark.parametrize(("kind", "expected"), [("SEMI", [1, 1, 2, 3]), ("ANTI", [5, None])])
def test_semi_and_anti_joins(kind: str, expected: list[int | None]) -> None:
    (table,) = evaluate(parse(f"SELECT t.a FROM t LEFT {kind} JOIN u ON t.a = u.a", SCHEMAS), TABLES).values()
    assert sorted(table["a"].to_pylist(), key=str) == expected


def test_columns_without_a_name_are_called_as_hive_calls_them() -> None:
    dag = parse("SELECT a, max(b), t.s, 1 FROM t GROUP BY a, t.s", SCHEMAS)
    assert dag.operator("result").schema.names == ("a", "_c1", "s", "_c3")


def test_functions_of_hive_for_dates() -> None:
    query = (
        "SELECT date_add(d, 1) AS later, date_sub(d, 31) AS before, add_months(d, 1) AS next, "
        "to_date('2020-03-04') AS day FROM t WHERE a = 1 LIMIT 1"
    )
    (table,) = evaluate(parse(query, SCHEMAS), TABLES).values()
    assert list(table.to_pylist()[0].values()) == [
        date(2020, 2, 1), date(2019, 12, 31), date(2020, 2, 29), date(2020, 3, 4)
    ]  # fmt: skip
