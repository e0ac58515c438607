"""On Spark, where it is installed: the engines make what the reference interpreter makes.

Each job takes Spark a second or so, so many points are one job, and random workflows are few.
"""

from collections.abc import Iterator
from pathlib import Path

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
from tests.support.workflow_by_hand import SCRIPTS_BY_HAND, check_by_hand
from tests.support.workflow_dags import Case, assert_same_results, cases
from tests.support.workflow_engines import assert_agrees, installed_engine, made_by
from tests.support.workflow_points import ALL_POINTS, SCAN, T
from tests.support.workflow_samples import max_property_price, page_rank

pytestmark = [pytest.mark.timeout(600), pytest.mark.rest, pytest.mark.processes, pytest.mark.usefixtures("spark")]
SPARK = ("pyspark", "pyspark_rdd")
EXAMPLES = 5
on_both = pytest.mark.parametrize("name", SPARK)


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


@pytest.mark.parametrize("script", [stem for stem in SCRIPTS_BY_HAND if "pyspark" in stem])
def test_scripts_by_hand_make_what_the_workflow_means(script: str, tmp_path: Path) -> None:
    check_by_hand(script, tmp_path)
