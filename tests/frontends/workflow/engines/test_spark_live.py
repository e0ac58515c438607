"""On Spark, where it is installed: the engines make what the reference interpreter makes.

Each job takes Spark a second or so, so many points are one job, and random workflows are few.
"""

import math
from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frontends.workflow.engines.base import ALL_RULES, Rules
from frontends.workflow.errors import IterationsExceeded, JobFailed
from frontends.workflow.ir.dag import BlackBox, Dag
from frontends.workflow.ir.reading import read
from frontends.workflow.ir.reference import evaluate
from frontends.workflow.ir.types import Schema, Type
from tests.support.workflow_dags import Case, assert_same_results, cases
from tests.support.workflow_engines import assert_agrees, installed_engine, made_by
from tests.support.workflow_samples import max_property_price, page_rank

pytestmark = [pytest.mark.rest, pytest.mark.processes, pytest.mark.usefixtures("spark")]
SPARK = ("pyspark", "pyspark_rdd")
EXAMPLES = 12
on_both = pytest.mark.parametrize("name", SPARK)
NAN = math.nan
T = pa.table(
    {
        "n": pa.array([3, None, 1, 2, 2], pa.int32()),
        "x": pa.array([NAN, -1.5, None, 2.0, -0.0], pa.float64()),
        "s": pa.array(["a\\b", 'quo"te', "it's\n", None, "12\n"]).dictionary_encode(),
        "d": pa.array([0, 18292, None, 18293, -700_000], pa.date32()),
        "small": pa.array([1, 2, 255, None, 0], pa.uint8()),
        "wide": pa.array([1, 2, 3, None, 2**63 - 1], pa.uint64()),
        "unread": pa.array([1, 2, 3, 4, None], pa.timestamp("ns")),
    }
)
SCAN = "t = SCAN 't' (x DOUBLE, n INTEGER, s STRING, d DATE, small INTEGER, wide INTEGER)\n"
POINTS = (
    "SELECT t WHERE {x > 5}",  # NaN is no part of a file's statistics, and greatest.
    "SELECT t WHERE {x <> 2}",
    r"SELECT t WHERE {s LIKE 'a\b'}",
    "AGGREGATE t TO (most = MAX x, least = MIN x, sum = SUM x, n = AVG n, c = COUNT, k = COUNT DISTINCT x)",
    "AGGREGATE t BY (x) TO (n = SUM n, m = MIN n, a = AVG x, c = COUNT s)",
    "AGGREGATE none BY (s) TO (c = COUNT)",
    "AGGREGATE none TO (c = COUNT, n = SUM n, a = AVG n, d = COUNT DISTINCT s)",
    "JOIN INNER t, t ON (x = x) TO (n = LEFT n, m = RIGHT n, x = LEFT x, y = RIGHT x)",
    "JOIN LEFT t, v ON (n = n) TO (n = LEFT n, m = RIGHT n, x = RIGHT x)",
    "JOIN LEFT t, v ON (n = n) TO (n = LEFT n, x = RIGHT x)",
    "JOIN LEFT t, v ON (n = n, x = x) TO (n = LEFT n)",
    "JOIN SEMI t, v ON (n = n) TO (s = LEFT s)",
    "JOIN ANTI t, v ON (n = n) TO (n = LEFT n, s = LEFT s)",
    "CROSS JOIN t, v TO (n = LEFT n)",
    "SORT t BY (x DESC, n)",
    "SORT t BY (d)",
    "TOP 2 t BY (n DESC)",
    "UNION t, t",
    "INTERSECT t, t",
    "DIFFERENCE t, none",
    "DISTINCT t",
    "PROJECT t TO (r = {s || 'line\nbreak' || '\"\"\"' || '\\' || '${a}'}, c = {SUBSTRING(s, 2, 2)})",
    "PROJECT t TO (a = {0.06 + 0.01}, q = {n / 0}, m = {n % 0}, f = {7 / 2}, y = {x / (n - 2)}, z = {x % (n - 2)})",
    "PROJECT t TO (big = {CASE WHEN n > 1 THEN 2000000000 ELSE 0 END * 3}, i = {CAST(x AS BIGINT)})",
    "PROJECT t TO (i = {CAST(x * 1e300 AS BIGINT)}, j = {CAST(9223372036854775808.0 + x * 0 AS BIGINT)})",
    "PROJECT t TO (i = {CAST(s AS BIGINT)}, j = {CAST(s AS DOUBLE)}, k = {CAST(s AS DATE)}, t = {CAST(d AS VARCHAR)})",
    "PROJECT t TO (y = {EXTRACT(YEAR FROM d)}, m = {d + INTERVAL '1' MONTH}, e = {d + INTERVAL '10' DAY})",
    "PROJECT t TO (i = {x IN (0, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5, 8.5, 9.5, 10.5)}, e = {n IS NOT DISTINCT FROM 2})",
    "VALUES (n INTEGER, s STRING) ROWS ()",
    "VALUES (n INTEGER, x DOUBLE) ROWS (({1}, {0.5}), ({CAST(NULL AS BIGINT)}, {-0.5}))",
)
ALL_POINTS = read(
    f"{SCAN}none = SELECT t WHERE {{n > 9}}\nv = SELECT t WHERE {{n > 1}}\n"
    + "".join(f"r{number} = {text}\n" for number, text in enumerate(POINTS))
    + f"RESULTS t, {', '.join(f'r{number}' for number in range(len(POINTS)))}\n"
)


@pytest.fixture(scope="module")
def spark() -> Iterator[None]:
    """Spark in this process; it ends with the last test of this file."""
    installed_engine("pyspark").warm_up()
    yield
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    SparkSession.builder.getOrCreate().stop()
    gateway = SparkContext._gateway
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(10)
        SparkContext._gateway = SparkContext._jvm = None


@on_both
def test_points_where_engines_differ(name: str) -> None:
    assert_agrees(installed_engine(name), Case(ALL_POINTS, {"t": T}))


@on_both
def test_tables_without_rows(name: str) -> None:
    assert_agrees(installed_engine(name), Case(ALL_POINTS, {"t": T.slice(0, 0)}))


@on_both
def test_a_number_of_more_than_64_bits_is_refused(name: str) -> None:
    table = T.set_column(5, "wide", pa.array([2**63] * 5, pa.uint64()))
    with pytest.raises(JobFailed, match=r"64 bits|not in range"):
        made_by(installed_engine(name), read(f"{SCAN}RESULTS t\n"), {"t": table})


@pytest.mark.parametrize(
    ("name", "off"),
    [
        ("pyspark", ()),
        ("pyspark", ("merge",)),
        ("pyspark_rdd", ()),
        *(("pyspark_rdd", (rule,)) for rule in Rules.names()),
    ],
)
def test_a_loop(name: str, off: tuple[str, ...]) -> None:
    tables = {
        "edges": pa.table({"src": [1, 1, 2, 3], "dst": [2, 3, 3, 1]}),
        "page_rank": pa.table({"id": [1, 2, 3], "rank": [1.0, 1.0, 1.0]}),
    }
    got = made_by(installed_engine(name), page_rank(3), tables, ALL_RULES.off(*off))
    assert_same_results(page_rank(3), got, evaluate(page_rank(3), tables))


@pytest.mark.parametrize("off", [("share_scans", "infer_types"), ("merge",)])
def test_the_thesiss_workflow_without_rules(off: tuple[str, ...]) -> None:
    tables = {
        "properties": pa.table({"id": [1, 2, None], "street": ["Elm", "Elm", "Oak"], "town": ["A", "A", None]}),
        "prices": pa.table({"id": [1, 2, None], "price": [10.0, None, 5.0]}),
    }
    assert_agrees(installed_engine("pyspark_rdd"), Case(max_property_price(), tables), ALL_RULES.off(*off))


@on_both
def test_a_loop_that_does_not_end_fails(name: str) -> None:
    text = (
        "n = VALUES (n INTEGER) ROWS (({0}))\n"
        "loop = WHILE (n) CARRY (m = more) TEST FIRST m {n >= 0} AT MOST 2 DO\n"
        "  m = INPUT (n INTEGER)\n  more = ARITHMETIC m SET n = {n + 1}\n  RESULTS more\nEND\n"
        "left = LOOP RESULT loop OF m (n INTEGER)\nRESULTS left\n"
    )
    with pytest.raises(IterationsExceeded, match="the WHILE loop still holds after 2 iterations"):
        made_by(installed_engine(name), read(text), {})


@on_both
def test_loops_within_loops(name: str) -> None:
    text = (
        "n = VALUES (n INTEGER) ROWS (({0}), ({5}))\n"
        "outer = WHILE (n) CARRY (n = left) AT MOST 2 DO\n"
        "  n = INPUT (n INTEGER)\n"
        "  inner = WHILE (n) CARRY (n = more) TEST n {n < 2} AT MOST 9 DO\n"
        "    n = INPUT (n INTEGER)\n    more = ARITHMETIC n SET n = {n + 1}\n    RESULTS more\n  END\n"
        "  left = LOOP RESULT inner OF n (n INTEGER)\n  RESULTS left\nEND\n"
        "left = LOOP RESULT outer OF n (n INTEGER)\nRESULTS left, outer\n"
    )
    assert_agrees(installed_engine(name), Case(read(text), {}))


@on_both
@settings(max_examples=EXAMPLES)
@given(case=cases(steps_max=3))
def test_random_workflows(name: str, case: Case) -> None:
    assert_agrees(installed_engine(name), case)


@settings(max_examples=EXAMPLES)
@given(case=cases(steps_max=3), rule=st.sampled_from(["merge", "share_scans", "infer_types"]))
def test_random_workflows_with_a_rule_off(rule: str, case: Case) -> None:
    assert_agrees(installed_engine("pyspark_rdd"), case, ALL_RULES.off(rule))


def test_a_black_box_is_a_query_in_sparks_sql() -> None:
    scan = read(f"{SCAN}RESULTS t\n").operators[0]
    box = BlackBox(
        name="b", read=(scan.relation,), columns=Schema.of(n=Type.INTEGER), engine="pyspark",
        code="SELECT SUM(n) AS n FROM t WHERE s <=> 'it\\'s\n' OR s IS NULL",
    )  # fmt: skip
    made = made_by(installed_engine("pyspark"), Dag((scan, box), ("b",)), {"t": T})
    assert made["b"].to_pydict() == {"n": [3]}
