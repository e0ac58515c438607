"""Queries that go through every rule of the compiler, run as plans in this process: the answers are DuckDB's."""

import pytest

from frontends.sql.tpch_queries import tpch_query
from tests.support.suites import rest_after
from tests.support.tpch import HereRunner, Reference, check_same

QUERIES = (
    "SELECT 1 AS a",
    "SELECT (SELECT max(l_tax) FROM lineitem) AS a, (SELECT count(*) FROM nation) AS b",
    (
        "SELECT count(*) AS n FROM lineitem, (SELECT max(o_totalprice) AS m FROM orders) x, orders WHERE "
        "l_orderkey=o_orderkey AND o_totalprice = m"
    ),
    "SELECT DISTINCT l_shipmode FROM lineitem ORDER BY l_shipmode",
    "SELECT DISTINCT l_shipmode, l_returnflag FROM lineitem ORDER BY 1, 2 LIMIT 3",
    (
        "SELECT l_shipmode FROM lineitem GROUP BY l_shipmode HAVING sum(l_tax) > (SELECT avg(l_tax) * 1000 FROM "
        "lineitem) ORDER BY 1"
    ),
    (
        "SELECT l_shipmode, (SELECT max(n_name) FROM nation) AS x, count(*) AS n FROM lineitem GROUP BY l_shipmode"
        " ORDER BY n DESC"
    ),
    "SELECT upper(l_shipmode) AS m, count(*) AS n FROM lineitem GROUP BY upper(l_shipmode) ORDER BY upper(l_shipmode)",
    "SELECT l_shipmode AS m, count(*) + 1 AS n FROM lineitem GROUP BY m ORDER BY count(*) * -1, m",
    "SELECT c_name FROM customer WHERE c_custkey NOT IN (SELECT o_custkey FROM orders) ORDER BY c_name LIMIT 5",
    "SELECT count(*) AS n FROM customer WHERE c_custkey IN (SELECT o_custkey FROM orders WHERE o_totalprice > 300000)",
    "SELECT o_orderkey FROM orders WHERE o_totalprice = (SELECT max(o_totalprice) FROM orders)",
    (
        "SELECT a.o_orderkey FROM orders a, orders b WHERE a.o_orderkey = b.o_orderkey AND a.o_totalprice > 400000"
        " ORDER BY 1"
    ),
    "SELECT count(*) AS n FROM orders a, orders b WHERE a.o_custkey = b.o_custkey AND a.o_orderkey < b.o_orderkey",
    (
        "SELECT n_name, count(*) AS n FROM nation LEFT JOIN customer ON c_nationkey = n_nationkey GROUP BY n_name "
        "ORDER BY n_name"
    ),
    (
        "SELECT c_name, count(o_orderkey) AS n FROM customer LEFT JOIN orders ON c_custkey = o_custkey GROUP BY "
        "c_name ORDER BY n DESC, c_name LIMIT 3"
    ),
    (
        "SELECT count(*) AS n, count(l_orderkey) AS m FROM orders LEFT JOIN lineitem ON l_orderkey = o_orderkey "
        "AND l_quantity > 45"
    ),
    (
        "SELECT o_orderpriority, count(*) AS n FROM orders WHERE NOT EXISTS (SELECT 1 FROM lineitem WHERE "
        "l_orderkey = o_orderkey AND l_quantity > 30) GROUP BY 1 ORDER BY 1"
    ),
    "SELECT max(n) AS m FROM (SELECT o_custkey, count(*) AS n FROM orders GROUP BY o_custkey)",
    "SELECT avg(n) AS m FROM (SELECT l_orderkey, count(*) AS n FROM lineitem GROUP BY l_orderkey)",
    (
        "SELECT x.k, x.n FROM (SELECT l_orderkey AS k, count(*) AS n FROM lineitem GROUP BY l_orderkey) x JOIN "
        "orders ON o_orderkey = x.k WHERE o_totalprice > 380000 ORDER BY k"
    ),
    "SELECT count(*) AS n FROM (SELECT l_orderkey AS k FROM lineitem ORDER BY l_extendedprice DESC LIMIT 10) x",
    "SELECT l_orderkey, l_linenumber FROM lineitem ORDER BY l_extendedprice DESC, 1 LIMIT 5 OFFSET 2",
    "SELECT sum(o_totalprice) AS s FROM orders WHERE o_orderkey < 0",
    (
        "SELECT count(*) AS n, avg(o_totalprice) AS a, min(o_comment) AS m, count(DISTINCT o_custkey) AS d FROM "
        "orders WHERE o_orderkey < 0"
    ),
    "SELECT o_orderstatus, count(DISTINCT o_custkey) AS d FROM orders GROUP BY o_orderstatus ORDER BY 1",
    (
        "SELECT p_brand, count(DISTINCT l_orderkey) AS d, sum(l_quantity) AS q FROM lineitem JOIN part ON "
        "p_partkey = l_partkey GROUP BY p_brand ORDER BY d DESC, p_brand LIMIT 4"
    ),
    "SELECT * FROM denorm WHERE l_orderkey = 1 ORDER BY l_linenumber",
    "SELECT * FROM orders WHERE o_orderkey IN (1, 2, 3) ORDER BY o_orderkey",
    (
        "SELECT s_name FROM supplier WHERE EXISTS (SELECT 1 FROM lineitem WHERE l_suppkey = s_suppkey AND "
        "l_quantity > 49) ORDER BY s_name LIMIT 3"
    ),
    (
        "SELECT s_name, (SELECT sum(l_quantity) FROM lineitem WHERE l_suppkey = s_suppkey) AS q FROM supplier "
        "ORDER BY s_name LIMIT 3"
    ),
    (
        "SELECT o_orderkey, (SELECT sum(l_quantity) FROM lineitem WHERE l_orderkey = o_orderkey) AS q FROM orders "
        "ORDER BY q DESC, 1 LIMIT 3"
    ),
    (
        "SELECT o_orderkey, (SELECT count(*) FROM lineitem WHERE l_orderkey = o_orderkey) AS q FROM orders ORDER "
        "BY q DESC, 1 LIMIT 3"
    ),
    "SELECT CASE WHEN l_tax > 0.05 THEN 'high' ELSE 'low' END AS t, count(*) AS n FROM lineitem GROUP BY t ORDER BY t",
    "SELECT extract(year FROM l_shipdate) AS y, sum(l_tax)/count(*) AS r FROM lineitem GROUP BY y ORDER BY y",
    (
        "WITH a AS (SELECT l_suppkey AS s, sum(l_tax) AS t FROM lineitem GROUP BY 1), b AS (SELECT max(t) AS m "
        "FROM a) SELECT s FROM a, b WHERE t = m"
    ),
    (
        "SELECT n1.n_name AS a, count(*) AS n FROM lineitem JOIN supplier ON s_suppkey = l_suppkey JOIN nation n1 "
        "ON n1.n_nationkey = s_nationkey GROUP BY 1 ORDER BY 1 LIMIT 3"
    ),
    "SELECT c_mktsegment, count(*) AS n FROM customer JOIN orders ON c_custkey = o_custkey GROUP BY 1 ORDER BY 1",
    (
        "SELECT l1.l_orderkey, l2.l_linenumber FROM lineitem l1, lineitem l2 WHERE l1.l_orderkey = l2.l_orderkey "
        "AND l1.l_linenumber = 7 AND l2.l_linenumber = 1 AND l1.l_quantity = l2.l_quantity ORDER BY 1"
    ),
    (
        "SELECT count(*) AS n FROM lineitem l1, lineitem l2, supplier WHERE l1.l_partkey = l2.l_partkey AND "
        "s_suppkey = l2.l_suppkey AND s_acctbal < 0"
    ),
    (
        "SELECT sum(l_quantity) AS q FROM lineitem WHERE l_orderkey IN (SELECT o_orderkey FROM orders WHERE "
        "o_orderpriority = '1-URGENT')"
    ),
    (
        "SELECT sum(l_quantity) AS q FROM lineitem WHERE (l_orderkey, l_linenumber) IN (SELECT l_orderkey, "
        "max(l_linenumber) FROM lineitem GROUP BY 1)"
    ),
    (
        "SELECT o_custkey FROM orders WHERE o_custkey IN (SELECT c_custkey FROM customer WHERE c_acctbal > 9900) "
        "GROUP BY o_custkey ORDER BY sum(o_totalprice) DESC LIMIT 2"
    ),
    "SELECT s, count(*) AS n FROM (SELECT DISTINCT l_orderkey, l_shipmode AS s FROM lineitem) GROUP BY s ORDER BY s",
    "SELECT s, count(*) AS n FROM (SELECT DISTINCT l_suppkey, l_shipmode AS s FROM lineitem) GROUP BY s ORDER BY s",
    "SELECT NULL AS x, [1,2] AS y, {'a': 1} AS z FROM region",
    "SELECT o_orderkey FROM orders WHERE o_orderkey = (SELECT min(l_orderkey) FROM lineitem WHERE l_quantity = 50)",
    (
        "SELECT o_orderkey FROM orders o WHERE o_totalprice > (SELECT 2 * avg(o_totalprice) FROM orders i WHERE "
        "i.o_custkey = o.o_custkey) ORDER BY 1 LIMIT 5"
    ),
    (
        "SELECT count(*) AS n FROM lineitem WHERE l_quantity > (SELECT avg(l_quantity) FROM lineitem i WHERE "
        "i.l_orderkey = lineitem.l_orderkey)"
    ),
    (
        "SELECT count(*) AS n FROM partsupp WHERE ps_supplycost < (SELECT avg(l_extendedprice)/100 FROM lineitem "
        "WHERE l_partkey = ps_partkey AND l_suppkey = ps_suppkey)"
    ),
    'SELECT "L_SHIPMODE" AS "Mode X", count(*) AS "n n" FROM LineItem GROUP BY 1 ORDER BY "Mode X"',
    "SELECT count(*) FROM lineitem",
    "SELECT max(l_tax), min(l_tax) FROM lineitem",
    (
        "SELECT c_custkey FROM customer WHERE EXISTS (SELECT 1 FROM orders WHERE o_custkey = c_custkey AND EXISTS "
        "(SELECT 1 FROM lineitem WHERE l_orderkey = o_orderkey AND l_quantity = 50)) ORDER BY 1 LIMIT 4"
    ),
    (
        "SELECT sum(x) AS s FROM (SELECT l_tax * 2 AS x, l_orderkey FROM lineitem WHERE l_quantity < 5) t JOIN "
        "orders ON t.l_orderkey = o_orderkey WHERE o_orderstatus = 'F'"
    ),
    (
        "SELECT l_orderkey FROM lineitem WHERE l_quantity = 50 AND l_tax = 0.08 ORDER BY l_extendedprice * (1 - "
        "l_discount) DESC LIMIT 3"
    ),
    (
        "SELECT count(*) AS n FROM orders, customer WHERE o_custkey = c_custkey AND c_custkey IN (SELECT c_custkey"
        " FROM customer WHERE c_mktsegment = 'BUILDING')"
    ),
    "SELECT sum(1) AS s, count(1) AS c, sum(l_linenumber) AS i FROM lineitem",
    "SELECT o_orderdate - DATE '1992-01-01' AS d, count(*) AS n FROM orders GROUP BY d ORDER BY n DESC, d LIMIT 3",
)


@pytest.mark.parametrize("sql", rest_after(30, *QUERIES))
def test_a_plan_has_the_answer_that_duckdb_gives(
    sql: str, runner_hundredth: HereRunner, reference_hundredth: Reference
) -> None:
    ordered = "ORDER BY" in sql.rpartition(")")[2]
    check_same(runner_hundredth.query(sql), reference_hundredth.query(sql), ordered=ordered)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT (SELECT max(r_name) FROM region) FROM nation",
        "SELECT n_name, (SELECT r_name FROM region WHERE r_regionkey = n_regionkey) FROM nation ORDER BY 1",
        "SELECT ((SELECT max(l_tax) FROM lineitem)), count(*) FROM lineitem",
        "SELECT (SELECT max(l_tax) FROM lineitem) AS a, count(*) FROM lineitem",
        "SELECT l_shipmode, (SELECT max(r_name) FROM region) FROM lineitem GROUP BY 1 ORDER BY 1",
        "SELECT (SELECT max(r_name) FROM region), count(*) FROM lineitem GROUP BY 1",
        "SELECT DISTINCT (SELECT max(r_name) FROM region), l_shipmode FROM lineitem ORDER BY 2",
        "SELECT region.*, 1 + 1, r_name || 'x', (SELECT 3), (SELECT 4) FROM region ORDER BY 1",
        "SELECT (SELECT NULL), l_orderkey FROM lineitem ORDER BY 2 LIMIT 3",
        "SELECT * FROM (SELECT DISTINCT (SELECT (SELECT max(r_name) FROM region)) FROM nation)",
    ],
)
def test_a_scalar_subquery_is_an_output_column(
    sql: str, runner_hundredth: HereRunner, reference_hundredth: Reference
) -> None:
    """Called as DuckDB calls it, where it has no other name."""
    got, expected = runner_hundredth.query(sql), reference_hundredth.query(sql)
    assert got.column_names == expected.column_names
    check_same(got, expected, ordered="ORDER BY" in sql)


@pytest.mark.parametrize("number", [3, 10, 17, 18, 20])
def test_groups_are_merged_by_several_tasks(
    number: int, runner_hundredth: HereRunner, reference_hundredth: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("frontends.sql.compiler.GROUPS_PER_TASK", 500)
    plan = runner_hundredth.compile(tpch_query(number))
    assert max(stage.tasks for stage in plan.stages) > 1
    check_same(runner_hundredth.run(plan), reference_hundredth.query(tpch_query(number)), ordered=False)
