"""What the generator of RDD code writes makes what the reference interpreter makes: on a stand-in for Spark, so it is
tried wherever the tests run. `test_spark_live.py` has the same on Spark."""

from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontends.workflow.engines import engine
from frontends.workflow.engines.base import ALL_RULES, Engine, Rules
from frontends.workflow.errors import IterationsExceeded
from frontends.workflow.ir.reading import read
from tests.support.spark_stand_in import stand_in
from tests.support.workflow_dags import Case, cases
from tests.support.workflow_engines import assert_agrees, made_by
from tests.support.workflow_points import ALL_POINTS, T
from tests.support.workflow_samples import page_rank


@pytest.fixture(scope="module")
def rdd() -> Iterator[Engine]:
    one = engine("pyspark_rdd")
    with stand_in(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(one), "check_installed", lambda self: None)
        yield one


def test_points_where_engines_differ(rdd: Engine) -> None:
    assert_agrees(rdd, Case(ALL_POINTS, {"t": T}))


@pytest.mark.rest
@pytest.mark.parametrize("rule", Rules.names())
def test_points_where_engines_differ_with_a_rule_off(rdd: Engine, rule: str) -> None:
    assert_agrees(rdd, Case(ALL_POINTS, {"t": T}), ALL_RULES.off(rule))


@pytest.mark.rest
def test_tables_without_rows(rdd: Engine) -> None:
    assert_agrees(rdd, Case(ALL_POINTS, {"t": T.slice(0, 0)}))


@given(case=cases(steps_max=2))
def test_small_random_workflows(rdd: Engine, case: Case) -> None:
    assert_agrees(rdd, case)


@pytest.mark.rest
@given(case=cases())
def test_random_workflows(rdd: Engine, case: Case) -> None:
    assert_agrees(rdd, case)


@pytest.mark.rest
@given(case=cases(), rule=st.sampled_from(Rules.names()))
def test_random_workflows_with_a_rule_off(rdd: Engine, rule: str, case: Case) -> None:
    assert_agrees(rdd, case, ALL_RULES.off(rule))


@pytest.mark.parametrize("rules", [ALL_RULES, *(ALL_RULES.off(rule) for rule in Rules.names())])
def test_page_rank(rdd: Engine, rules: Rules) -> None:
    edges = {"src": [1, 1, 2, 3], "dst": [2, 3, 3, 1]}
    tables = {"edges": pa.table(edges), "page_rank": pa.table({"id": [1, 2, 3], "rank": [1.0, 1.0, 1.0]})}
    assert_agrees(rdd, Case(page_rank(3), tables), rules)


def test_a_loop_that_does_not_end_fails(rdd: Engine) -> None:
    text = (
        "n = VALUES (n INTEGER) ROWS (({0}))\n"
        "loop = WHILE (n) CARRY (m = more) TEST FIRST m {n >= 0} AT MOST 3 DO\n"
        "  m = INPUT (n INTEGER)\n  more = ARITHMETIC m SET n = {n + 1}\n  RESULTS more\nEND\n"
        "left = LOOP RESULT loop OF m (n INTEGER)\nRESULTS left\n"
    )
    with pytest.raises(IterationsExceeded, match="the WHILE loop still holds after 3 iterations"):
        made_by(rdd, read(text), {})


@pytest.mark.rest
def test_long_chains_of_operators_are_several_passes(rdd: Engine) -> None:
    lines = ["t0 = SCAN 't' (n INTEGER)"]
    for number in range(120):
        lines.append(f"s{number} = ARITHMETIC t{number} SET n = {{n + 1}}")
        lines.append(f"t{number + 1} = SELECT s{number} WHERE {{n <> 7}}")
    dag = read("\n".join([*lines, "RESULTS t120", ""]))
    assert_agrees(rdd, Case(dag, {"t": pa.table({"n": [1, 100, None]})}))
