"""The compiler: the stages of queries, and the queries that it refuses."""

import pytest
import sqlglot
from sqlglot import exp

from frontends.sql.compiler import Statistics, compile_query
from frontends.sql.errors import InvalidQuery, NotSupported
from frontends.sql.plan import Plan
from frontends.sql.tpch_queries import tpch_query

GROUPED = ["scan", "group-by", "order-by"]
STAGES = {
    1: GROUPED,
    2: ["compute"],
    3: GROUPED,
    4: GROUPED,
    5: GROUPED,
    6: ["scan", "group-by"],
    7: GROUPED,
    8: GROUPED,
    9: GROUPED,
    10: GROUPED,
    11: ["compute"],
    12: GROUPED,
    13: ["subquery-1.scan", "compute"],
    14: ["scan", "group-by"],
    15: ["subquery-1.scan", "subquery-1.group-by", "compute"],
    16: ["compute"],
    17: ["subquery-1.scan", "subquery-1.group-by", "scan", "group-by"],
    18: GROUPED,
    19: ["scan", "group-by"],
    20: ["subquery-1.scan", "subquery-1.group-by", "compute"],
    21: GROUPED,
    22: ["subquery-1.scan", "subquery-1.group-by", "compute"],
}
"""Query of TPC-H to the names of its stages."""
ON_DENORM_ALONE = (1, 3, 4, 5, 6, 7, 8, 9, 12, 14, 18, 19, 21)
"""Queries that read the denormalised table alone."""


def tables_read(sql: str) -> set[str]:
    return {table.name for table in sqlglot.parse_one(sql, dialect="duckdb").find_all(exp.Table)}


def scan_of(sql: str) -> exp.Expr:
    return sqlglot.parse_one(compile_query(sql).stages[0].sql, dialect="duckdb")


def names(plan: Plan) -> list[str]:
    return [stage.name for stage in plan.stages]


@pytest.mark.parametrize("number", STAGES)
def test_the_stages_of_a_query_of_tpch(number: int) -> None:
    assert names(compile_query(tpch_query(number))) == STAGES[number]


@pytest.mark.parametrize("number", STAGES)
def test_scans_alone_are_spread_over_partitions_and_the_last_stage_has_one_task(number: int) -> None:
    plan = compile_query(tpch_query(number))
    assert all(stage.partitioned == stage.name.endswith("scan") for stage in plan.stages)
    assert plan.stages[-1].tasks == 1
    assert not plan.stages[-1].partitioned
    before: set[str] = set()
    for stage in plan.stages:
        assert before.issuperset(stage.after)
        before.add(stage.name)


@pytest.mark.parametrize("number", ON_DENORM_ALONE)
def test_columns_reached_by_keys_of_lineitem_are_read_from_the_denormalised_table(number: int) -> None:
    plan = compile_query(tpch_query(number))
    assert tables_read(plan.stages[0].sql) == {"denorm"}
    assert not any(stage.reads_tables for stage in plan.stages[1:])


def test_a_column_that_the_denormalised_table_lacks_keeps_the_join() -> None:
    joined = "lineitem JOIN orders ON l_orderkey = o_orderkey JOIN customer ON o_custkey = c_custkey"
    scan = compile_query(f"SELECT c_phone, sum(l_tax) FROM {joined} GROUP BY c_phone").stages[0]
    assert tables_read(scan.sql) == {"denorm", "customer"}


def test_a_join_by_another_column_than_the_key_is_kept() -> None:
    scan = compile_query("SELECT count(*) FROM lineitem JOIN part ON l_quantity = p_size").stages[0]
    assert tables_read(scan.sql) == {"denorm", "part"}


def test_a_join_by_half_of_a_key_is_kept() -> None:
    scan = compile_query("SELECT count(*) FROM lineitem JOIN partsupp ON l_partkey = ps_partkey").stages[0]
    assert tables_read(scan.sql) == {"denorm", "partsupp"}


def test_two_nations_of_a_row_are_told_apart() -> None:
    where = scan_of(tpch_query(7)).find(exp.Where)
    assert where is not None
    assert {column.name for column in where.find_all(exp.Column)} >= {"sn_name", "cn_name"}


def test_tables_joined_by_another_column_than_the_order_key_are_not_joined_in_a_partition() -> None:
    plan = compile_query("SELECT count(*) FROM lineitem JOIN orders ON l_suppkey = o_custkey")
    assert names(plan) == ["subquery-1.scan", "scan", "group-by"]
    assert tables_read(plan.stages[0].sql) == {"orders"}
    assert tables_read(plan.stages[1].sql) == {"denorm", "stage subquery-1.scan"}


def test_tables_joined_by_the_order_key_are_joined_in_a_partition() -> None:
    plan = compile_query("SELECT o_clerk, count(*) FROM lineitem JOIN orders ON l_orderkey = o_orderkey GROUP BY 1")
    assert names(plan) == ["scan", "group-by"]
    assert tables_read(plan.stages[0].sql) == {"denorm", "orders"}


def test_a_subquery_grouped_by_the_order_key_stays_in_its_partition() -> None:
    plan = compile_query("SELECT max(s) FROM (SELECT l_orderkey, sum(l_tax) AS s FROM lineitem GROUP BY l_orderkey)")
    assert names(plan) == ["scan", "group-by"]


def test_a_subquery_grouped_by_another_column_gets_stages_of_its_own() -> None:
    plan = compile_query("SELECT max(s) FROM (SELECT l_partkey, sum(l_tax) AS s FROM lineitem GROUP BY l_partkey)")
    assert names(plan) == ["subquery-1.scan", "subquery-1.group-by", "compute"]


def test_a_subquery_that_occurs_twice_is_computed_once() -> None:
    plan = compile_query(tpch_query(15))
    assert plan.stage("compute").sql.count('"stage subquery-1.group-by"') == 2


def test_many_groups_are_merged_by_several_tasks() -> None:
    statistics = Statistics({"l_orderkey": 120_000})
    plan = compile_query(tpch_query(3), statistics)
    assert plan.stage("scan").buckets == plan.stage("group-by").tasks == 3
    assert plan.stage("order-by").tasks == 1
    few = compile_query(tpch_query(3), Statistics({"l_orderkey": 1000}))
    assert few.stage("scan").buckets == few.stage("group-by").tasks == 1
    assert compile_query(tpch_query(6), statistics).stage("group-by").tasks == 1


def test_a_limit_is_applied_in_each_partition_and_then_to_the_whole() -> None:
    plan = compile_query("SELECT o_orderkey FROM orders ORDER BY o_totalprice DESC LIMIT 5")
    assert names(plan) == ["scan", "order-by"]
    assert "LIMIT 5" in plan.stage("scan").sql
    skipping = compile_query("SELECT o_orderkey FROM orders ORDER BY o_totalprice DESC LIMIT 5 OFFSET 3")
    assert "LIMIT" not in skipping.stage("scan").sql
    assert "OFFSET 3" in skipping.stage("order-by").sql


@pytest.mark.parametrize(
    ("sql", "construct"),
    [
        ("SELECT 1 UNION ALL SELECT 2", "UNION"),
        ("SELECT n_name FROM nation WHERE n_nationkey IN (SELECT 1 INTERSECT SELECT 2)", "INTERSECT"),
        ("SELECT rank() OVER (ORDER BY l_tax) FROM lineitem", "a window function (OVER)"),
        ("SELECT median(l_tax) FROM lineitem", "the aggregate median"),
        ("SELECT product(l_tax) FROM lineitem", "the aggregate product"),
        ("SELECT list(l_tax) FROM lineitem", "the aggregate array_agg"),
        ("SELECT sum(DISTINCT l_tax) FROM lineitem", "sum(DISTINCT …)"),
        ("SELECT count(*) FILTER (WHERE l_tax > 0) FROM lineitem", "FILTER after an aggregate"),
        ("SELECT l_tax, count(*) FROM lineitem GROUP BY ROLLUP (l_tax)", "GROUP BY ROLLUP"),
        ("SELECT DISTINCT ON (l_tax) l_tax FROM lineitem", "DISTINCT ON"),
        ("SELECT * FROM orders FULL JOIN customer ON o_custkey = c_custkey", "FULL JOIN"),
        ("SELECT * FROM orders RIGHT JOIN customer ON o_custkey = c_custkey", "RIGHT JOIN"),
        ("SELECT c_name FROM customer SEMI JOIN orders ON o_custkey = c_custkey", "SEMI JOIN"),
        ("SELECT * FROM range(3)", "a table function (RANGE(0, 3))"),
        ("SELECT * FROM read_parquet('/etc/passwd')", "a table function"),
        ("SELECT * FROM orders TABLESAMPLE 10%", "TABLESAMPLE"),
        ("WITH RECURSIVE r AS (SELECT 1 AS a) SELECT a FROM r", "WITH RECURSIVE"),
        ("SELECT ? FROM nation", "a parameter"),
        ("SELECT columns('r_.*') FROM region", "COLUMNS (several columns by one expression)"),
        ("SELECT max(columns(*)) FROM region", "COLUMNS (several columns by one expression)"),
        ("SELECT r_name FROM (SELECT columns('r_.*') FROM region)", "COLUMNS (several columns by one expression)"),
        ("SELECT * LIKE 'r_%' FROM region", "an expression that is several output columns"),
        ("SELECT unnest({'a': 1, 'b': 2}) FROM region", "an expression that is several output columns"),
        ("CREATE TABLE t (a INTEGER)", "a statement other than SELECT (CREATE)"),
        ("DROP TABLE orders", "a statement other than SELECT (DROP)"),
        (
            "SELECT c_name FROM customer WHERE c_custkey < (SELECT count(*) FROM orders WHERE o_custkey = c_custkey)",
            "count in a correlated subquery",
        ),
        (
            "SELECT 1 FROM customer WHERE c_acctbal < (SELECT max(o_totalprice) FROM orders WHERE o_clerk < c_name)",
            "a correlated subquery whose condition is not an equality of columns",
        ),
        (
            "SELECT 1 FROM customer WHERE c_custkey NOT IN (SELECT o_custkey FROM orders WHERE o_clerk = c_name)",
            "IN (a subquery that is correlated, but not by the order key)",
        ),
    ],
)  # fmt: skip
def test_a_construct_that_is_not_supported_is_named(sql: str, construct: str) -> None:
    with pytest.raises(NotSupported) as caught:
        compile_query(sql)
    assert caught.value.construct.startswith(construct)
    assert str(caught.value).endswith("is not supported")


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELEC 1", "line 1, column 7"),
        ("", "0 statements; one SELECT is needed"),
        ("SELECT 1; SELECT 2", "2 statements; one SELECT is needed"),
        ("SELECT l_tx FROM lineitem", 'Referenced column "l_tx" not found'),
        ("SELECT a FROM nowhere", "Table with name nowhere does not exist"),
        ("SELECT l_tax, count(*) FROM lineitem", 'column "l_tax" must appear in the GROUP BY clause'),
        ("SELECT 1 AS a, 2 AS a", "two output columns have the same name"),
        ("SELECT '" + "a" * 100_000 + "'", "100009 characters; at most 100000 are allowed"),
    ],
)
def test_a_text_that_is_not_a_query_is_refused_with_the_reason(sql: str, reason: str) -> None:
    with pytest.raises(InvalidQuery) as caught:
        compile_query(sql)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.field == "sql"
