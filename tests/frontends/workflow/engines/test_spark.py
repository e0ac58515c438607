"""The engines on Spark: what their scripts say, without Spark; and what a machine without it is told."""

import pickle
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frontends.workflow.engines import engine
from frontends.workflow.engines.base import ALL_RULES, Rules
from frontends.workflow.engines.pyspark_rdd_functions import NAN, as_key, greater, lesser, plus, value_set
from frontends.workflow.engines.spark import JAVA_MISSING
from frontends.workflow.errors import EngineMissing
from frontends.workflow.ir.reading import read
from tests.support.workflow_dags import Case, cases

SPARK = ("pyspark", "pyspark_rdd")
SCAN = "t = SCAN 't' (n INTEGER, x DOUBLE, s STRING)\n"


def generated(name: str, text: str) -> str:
    return engine(name).generate(read(f"{SCAN}{text}\nRESULTS r\n"))


@pytest.mark.parametrize("name", SPARK)
def test_a_missing_java_says_what_to_install(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    one = engine(name)
    assert one.version() is None and one.missing_program() == JAVA_MISSING
    with pytest.raises(EngineMissing, match=re.escape(JAVA_MISSING)):
        one.check_installed()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/java").touch(mode=0o755)
    assert one.missing_program() is None


def test_a_missing_package_and_program_are_told_in_one_sentence() -> None:
    error = EngineMissing("pyspark", ["pyspark"], "workflow-spark", JAVA_MISSING)
    assert "needs pyspark; the extra workflow-spark brings them" in str(error) and JAVA_MISSING in str(error)


@pytest.mark.parametrize(
    ("text", "sql"),
    [
        ("r = PROJECT t TO (r = {n / x})", "WHEN x = 0.0e0"),  # Spark's quotient by zero is null.
        ("r = PROJECT t TO (r = {n / 2})", "CAST(n AS DOUBLE) / 2.0e0"),
        ("r = PROJECT t TO (r = {CAST(x AS BIGINT)})", "x < 9.223372036854775808e18"),
        ("r = PROJECT t TO (r = {CAST(s AS BIGINT)})", r"'^-?[0-9]+\\\\z'"),
        ("r = SORT t BY (n)", "ORDER BY n ASC NULLS LAST"),
        (r"r = SELECT t WHERE {s LIKE 'a\b'}", r"LIKE 'a\\\\\\\\b'"),
    ],
)
def test_points_where_sparks_sql_differs(text: str, sql: str) -> None:
    assert sql in generated("pyspark", text)


@pytest.mark.rest
@settings(max_examples=30)
@given(case=cases(), rule=st.sampled_from(Rules.names()))
@pytest.mark.parametrize("name", SPARK)
def test_scripts_of_random_workflows_are_python(name: str, case: Case, rule: str) -> None:
    compile(engine(name).generate(case.dag, ALL_RULES.off(rule)), "<job>", "exec")


def test_a_nan_of_a_key_equals_itself_in_another_process_and_is_still_nan() -> None:
    nan = pickle.loads(pickle.dumps(as_key(float("nan"))))
    assert nan == NAN and hash(nan) == hash(NAN) and (nan != NAN) and (1, nan) == (1, NAN)
    assert {nan: 1}[NAN] == 1 and as_key(2.5) == 2.5 and as_key(None) is None


def test_aggregations_of_two_values() -> None:
    nan = float("nan")
    assert plus(None, 2) == 2 and plus(1, None) == 1 and plus(1, 2) == 3 and plus(None, None) is None
    assert greater(1.0, nan) != greater(1.0, nan) and lesser(nan, 1.0) == 1.0
    assert greater(None, "b") == "b" and lesser("a", "b") == "a" and greater(None, None) is None
    assert value_set(None) == frozenset() and value_set(nan) == value_set(nan) and len(value_set(3)) == 1
