"""Queries made up at random: as plans over partitions they have the answers that DuckDB gives over whole tables."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.tpch import HereRunner, Reference, check_same

ITEM_GROUPS = ("l_returnflag", "l_shipmode", "l_linenumber", "extract(year FROM l_shipdate)", "l_suppkey % 7")
ORDER_GROUPS = ("o_orderpriority", "o_orderstatus", "extract(month FROM o_orderdate)")
CUSTOMER_GROUPS = ("c_mktsegment", "c_nationkey", "left(c_phone, 2)")
VALUES = ("l_quantity", "l_extendedprice * (1 - l_discount)", "l_linenumber", "l_shipdate", "l_suppkey")
SUMMED = ("l_quantity", "l_extendedprice * (1 - l_discount)", "l_linenumber", "length(l_shipmode)")
FILTERS = (
    "l_quantity < 10",
    "l_shipdate >= DATE '1998-11-20'",
    "l_shipmode IN ('AIR', 'RAIL')",
    "l_quantity < 0",
    "l_commitdate < l_receiptdate AND l_discount > 0.05",
    "l_partkey IN (SELECT p_partkey FROM part WHERE p_size < 10)",
    "l_orderkey IN (SELECT l_orderkey FROM lineitem GROUP BY l_orderkey HAVING count(*) > 5)",
    "l_quantity > (SELECT avg(l_quantity) FROM lineitem)",
    "l_quantity < (SELECT avg(x.l_quantity) FROM lineitem x WHERE x.l_suppkey = lineitem.l_suppkey)",
    "EXISTS (SELECT 1 FROM lineitem x WHERE x.l_orderkey = lineitem.l_orderkey AND x.l_tax > lineitem.l_tax)",
    "NOT EXISTS (SELECT 1 FROM lineitem x WHERE x.l_partkey = lineitem.l_partkey AND x.l_tax > lineitem.l_tax)",
)
FROM = {
    "lineitem": ITEM_GROUPS,
    "lineitem JOIN orders ON l_orderkey = o_orderkey": ITEM_GROUPS + ORDER_GROUPS,
    "lineitem JOIN orders ON l_orderkey = o_orderkey JOIN customer ON o_custkey = c_custkey": (
        ITEM_GROUPS + ORDER_GROUPS + CUSTOMER_GROUPS
    ),
    "orders JOIN lineitem ON l_orderkey = o_orderkey LEFT JOIN customer ON o_custkey = c_custkey AND c_acctbal > 0": (
        ORDER_GROUPS + CUSTOMER_GROUPS
    ),
}
aggregates = st.one_of(
    st.just("count(*)"),
    st.builds("count(DISTINCT {})".format, st.sampled_from(VALUES)),
    st.builds("{}({})".format, st.sampled_from(("min", "max", "count")), st.sampled_from(VALUES)),
    st.builds("{}({})".format, st.sampled_from(("sum", "avg")), st.sampled_from(SUMMED)),
    st.builds("sum({}) / nullif(count({}), 0)".format, st.sampled_from(SUMMED), st.sampled_from(VALUES)),
)


@st.composite
def queries(draw: st.DrawFn) -> str:
    source = draw(st.sampled_from(sorted(FROM)))
    groups = draw(st.lists(st.sampled_from(FROM[source]), max_size=2, unique=True))
    outputs = [*groups, *draw(st.lists(aggregates, min_size=1, max_size=3))]
    columns = ", ".join(f"{output} AS c{number}" for number, output in enumerate(outputs))
    filters = draw(st.lists(st.sampled_from(FILTERS), max_size=2, unique=True))
    where = f" WHERE {' AND '.join(filters)}" if filters else ""
    group = f" GROUP BY {', '.join(groups)}" if groups else ""
    having = " HAVING count(*) > 3" if groups and draw(st.booleans()) else ""
    order = f" ORDER BY {', '.join(groups)}" if groups and draw(st.booleans()) else ""
    limit = f" LIMIT {draw(st.integers(0, 5))}" if order and draw(st.booleans()) else ""
    return f"SELECT {columns} FROM {source}{where}{group}{having}{order}{limit}"


@given(sql=queries())
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
def test_a_plan_has_the_answer_of_the_whole(
    sql: str, runner_hundredth: HereRunner, reference_hundredth: Reference
) -> None:
    check_same(runner_hundredth.query(sql), reference_hundredth.query(sql), ordered="ORDER BY" in sql)
