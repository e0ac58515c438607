"""What workflows mean, point by point: docs/workflow-semantics.md in examples."""

import datetime
import math
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings

from frontends.workflow.errors import IterationsExceeded, NotSupported, TableMismatch
from frontends.workflow.ir.dag import Dag
from frontends.workflow.ir.reading import read
from frontends.workflow.ir.reference import evaluate
from frontends.workflow.ir.scalars.expressions import Scalar
from frontends.workflow.ir.scalars.values import computation
from frontends.workflow.ir.types import Schema, Type
from tests.support.workflow_dags import Case, assert_same_bag, assert_same_results, cases
from tests.support.workflow_samples import page_rank

INF, NAN = math.inf, math.nan
SCHEMA = Schema.of(
    n=Type.INTEGER, m=Type.INTEGER, x=Type.DOUBLE, y=Type.DOUBLE, s=Type.STRING, b=Type.BOOLEAN, c=Type.BOOLEAN,
    d=Type.DATE,
)  # fmt: skip


def day(text: str) -> datetime.date:
    return datetime.date.fromisoformat(text)


def value(text: str, **columns: Any) -> Any:
    """The scalar over a row in which the columns that are not named are null."""
    return computation(Scalar(text), SCHEMA)(tuple(columns.get(name) for name in SCHEMA.names))


def same(got: object, expected: object) -> bool:
    """Also of one type, and NaN as NaN."""
    return repr(got) == repr(expected)


@pytest.mark.parametrize(
    ("text", "columns", "expected"),
    [
        ("n / m", {"n": 7, "m": 2}, 3.5),
        ("n / m", {"n": 6, "m": 2}, 3.0),
        ("n / m", {"n": 1, "m": 0}, INF),
        ("n / m", {"n": -1, "m": 0}, -INF),
        ("n / m", {"n": 0, "m": 0}, NAN),
        ("x / y", {"x": NAN, "y": 0.0}, NAN),
        ("n / m", {"n": 1}, None),
        ("n % m", {"n": -7, "m": 3}, -1),
        ("n % m", {"n": 7, "m": -3}, 1),
        ("n % m", {"n": 7, "m": 0}, None),
        ("x % y", {"x": -7.5, "y": 2.0}, -1.5),
        ("x % y", {"x": 7.5, "y": 0.0}, None),
        ("x % y", {"x": INF, "y": 2.0}, NAN),
        ("x % y", {"x": 2.5, "y": INF}, 2.5),
        ("n + x", {"n": 1, "x": 0.5}, 1.5),
        ("n + x", {"n": 1}, None),
        ("ABS(n)", {"n": -3}, 3),
        ("COALESCE(n, x)", {"n": 1}, 1.0),
        ("CASE WHEN b THEN n ELSE 0.5 END", {"b": True, "n": 2}, 2.0),
    ],
)
def test_numbers(text: str, columns: dict[str, Any], expected: Any) -> None:
    assert same(value(text, **columns), expected)


@pytest.mark.parametrize(
    ("text", "columns", "expected"),
    [
        ("x = y", {"x": NAN, "y": NAN}, True),
        ("x > y", {"x": NAN, "y": INF}, True),
        ("x < y", {"x": NAN, "y": 1.0}, False),
        ("x = y", {"x": -0.0, "y": 0.0}, True),
        ("n = m", {"n": 1}, None),
        ("n <> m", {"n": 1}, None),
        ("n = m", {}, None),
        ("n IS NOT DISTINCT FROM m", {}, True),
        ("n IS NOT DISTINCT FROM m", {"n": 1}, False),
        ("x IS NOT DISTINCT FROM y", {"x": NAN, "y": NAN}, True),
        ("n = x", {"n": 2, "x": 2.0}, True),
        ("b < c", {"b": False, "c": True}, True),
        ("n BETWEEN 1 AND m", {"n": 0}, False),
        ("n BETWEEN 1 AND m", {"n": 2}, None),
        ("x BETWEEN 1 AND y", {"x": 2.0, "y": NAN}, True),
        ("n IN (1, 2)", {"n": 2}, True),
        ("n IN (1, 2.5)", {"n": 3}, False),
        ("n IN (1, 2)", {}, None),
        ("n NOT IN (1, 2)", {}, None),
        ("b AND c", {"b": False}, False),
        ("b AND c", {"b": True}, None),
        ("b OR c", {"c": True}, True),
        ("b OR c", {"c": False}, None),
        ("NOT b", {}, None),
        ("n IS NULL", {}, True),
        ("x IS NULL", {"x": NAN}, False),
        ("CASE WHEN b THEN 1 ELSE 2 END", {}, 2),
        ("CASE WHEN b THEN 1 END", {"b": False}, None),
        ("NULLIF(n, 3)", {"n": 3}, None),
        ("'a' < 'B'", {}, False),
        ("s < 'z'", {"s": "ä"}, False),
    ],
)
def test_comparison_and_logic(text: str, columns: dict[str, Any], expected: Any) -> None:
    assert same(value(text, **columns), expected)


@pytest.mark.parametrize(
    ("text", "columns", "expected"),
    [
        ("s LIKE 'a%'", {"s": "abc"}, True),
        ("s LIKE 'a%'", {"s": "Abc"}, False),
        ("s LIKE '_b'", {"s": "éb"}, True),
        ("s LIKE 'a_c'", {"s": "a\nc"}, True),
        ("s LIKE 'a%'", {}, None),
        ("s LIKE 'a.c'", {"s": "abc"}, False),
        ("s LIKE '\\%'", {"s": "%"}, False),
        ("s LIKE '\\%'", {"s": "\\x"}, True),
        ("SUBSTRING(s, 2, 2)", {"s": "äöüß"}, "öü"),
        ("SUBSTRING(s, 3)", {"s": "abcd"}, "cd"),
        ("SUBSTRING(s, 9, 1)", {"s": "abcd"}, ""),
        ("s || 'x'", {"s": "a"}, "ax"),
        ("s || 'x'", {}, None),
        ("CAST(x AS BIGINT)", {"x": -1.9}, -1),
        ("CAST(x AS BIGINT)", {"x": 2.5}, 2),
        ("CAST(x AS BIGINT)", {"x": NAN}, None),
        ("CAST(x AS BIGINT)", {"x": 1e19}, None),
        ("CAST(n AS DOUBLE)", {"n": 3}, 3.0),
        ("CAST(n AS BOOLEAN)", {"n": -2}, True),
        ("CAST(n AS TEXT)", {"n": -2}, "-2"),
        ("CAST(b AS TEXT)", {"b": True}, "true"),
        ("CAST(b AS BIGINT)", {"b": True}, 1),
        ("CAST(d AS TEXT)", {"d": day("0999-01-02")}, "0999-01-02"),
        ("CAST(s AS BIGINT)", {"s": "-12"}, -12),
        ("CAST(s AS BIGINT)", {"s": "1.5"}, None),
        ("CAST(s AS BIGINT)", {"s": " 1"}, None),
        ("CAST(s AS BIGINT)", {"s": "9223372036854775808"}, None),
        ("CAST(s AS DOUBLE)", {"s": "-1.5e2"}, -150.0),
        ("CAST(s AS DOUBLE)", {"s": "NaN"}, None),
        ("CAST(s AS DATE)", {"s": "2020-02-29"}, day("2020-02-29")),
        ("CAST(s AS DATE)", {"s": "2021-02-29"}, None),
        ("CAST(s AS DATE)", {"s": "2020-2-9"}, None),
        ("d + INTERVAL '1' MONTH", {"d": day("2021-01-31")}, day("2021-02-28")),
        ("d - INTERVAL '1' YEAR", {"d": day("2020-02-29")}, day("2019-02-28")),
        ("d - INTERVAL '60' DAY", {"d": day("2020-02-29")}, day("2019-12-31")),
        ("d + INTERVAL '1' DAY", {}, None),
        ("EXTRACT(YEAR FROM d) * 100 + EXTRACT(MONTH FROM d)", {"d": day("2020-02-29")}, 202002),
        ("EXTRACT(DAY FROM d)", {"d": day("2020-02-29")}, 29),
    ],
)
def test_texts_days_and_casts(text: str, columns: dict[str, Any], expected: Any) -> None:
    assert same(value(text, **columns), expected)


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("n + 1", {"n": 2**63 - 1}),
        ("n * n", {"n": 2**32}),
        ("-n", {"n": -(2**63)}),
        ("d + INTERVAL '1' DAY", {"d": day("9999-12-31")}),
    ],
)
def test_the_undefined_is_said_to_be(text: str, columns: dict[str, Any]) -> None:
    with pytest.raises(OverflowError, match="undefined"):
        value(text, **columns)


# ---- relations


def results(text: str, **tables: pa.Table) -> list[tuple[object, ...]]:
    """The rows of the one result of a workflow over these tables, in which a table is scanned by its name."""
    scans = "".join(f"{name} = SCAN '{name}' ({_columns(table)})\n" for name, table in tables.items())
    (table,) = evaluate(read(scans + text), tables).values()
    return rows(table)


def _columns(table: pa.Table) -> str:
    names = {pa.int64(): "INTEGER", pa.float64(): "DOUBLE", pa.string(): "STRING"}
    return ", ".join(f"{field.name} {names[field.type]}" for field in table.schema)


def rows(table: pa.Table) -> list[tuple[object, ...]]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def numbers(**columns: Sequence[int | None]) -> pa.Table:
    return pa.table({name: pa.array(values, pa.int64()) for name, values in columns.items()})


def doubles(**columns: Sequence[float | None]) -> pa.Table:
    return pa.table({name: pa.array(values, pa.float64()) for name, values in columns.items()})


def bag(found: Sequence[tuple[object, ...]]) -> list[str]:
    return sorted(map(repr, found))


def test_a_condition_that_is_null_selects_nothing() -> None:
    data = numbers(n=[1, None, 3, 4])
    assert results("r = SELECT t WHERE {n <> 3} RESULTS r", t=data) == [(1,), (4,)]
    assert results("r = SELECT t WHERE {NOT n = 3} RESULTS r", t=data) == [(1,), (4,)]


def test_groups_of_null_and_nan() -> None:
    data = pa.table({"k": pa.array([None, NAN, None, NAN, 0.0, -0.0], pa.float64()), "v": [1, 2, 3, 4, 5, None]})
    found = results("r = AGGREGATE t BY (k) TO (s = SUM v, n = COUNT, m = COUNT v) RESULTS r", t=data)
    assert bag(found) == bag([(None, 4, 2, 2), (NAN, 6, 2, 2), (0.0, 5, 2, 1)])


def test_aggregates_of_nothing() -> None:
    text = (
        "r = AGGREGATE t TO (s = SUM n, c = COUNT, d = COUNT n, u = COUNT DISTINCT n, l = MIN n, h = MAX n, a = AVG n)"
    )
    for data in (numbers(n=[]), numbers(n=[None])):
        assert results(f"{text} RESULTS r", t=data) == [(None, len(data), 0, 0, None, None, None)]
    assert results("r = AGGREGATE t BY (n) TO (c = COUNT) RESULTS r", t=numbers(n=[])) == []


def test_aggregates_of_nan() -> None:
    text = "r = AGGREGATE t TO (s = SUM x, l = MIN x, h = MAX x, a = AVG x, u = COUNT DISTINCT x) RESULTS r"
    assert bag(results(text, t=doubles(x=[NAN, 1.0, None, NAN]))) == bag([(NAN, 1.0, NAN, NAN, 2)])
    assert bag(results(text, t=doubles(x=[-0.0, 0.5, 0.0, INF]))) == bag([(INF, -0.0, INF, INF, 3)])


def test_a_mean_of_integers_is_a_double() -> None:
    assert results("r = AGGREGATE t TO (a = AVG n) RESULTS r", t=numbers(n=[1, 2])) == [(1.5,)]


LEFT = numbers(k=[1, 1, 2, None], v=[10, 11, 20, 90])
RIGHT = numbers(k=[1, 1, 3, None], w=[5, 6, 7, 8])


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("INNER", [(10, 5), (10, 6), (11, 5), (11, 6)]),
        ("LEFT", [(10, 5), (10, 6), (11, 5), (11, 6), (20, None), (90, None)]),
    ],
)
def test_joins_that_pair(kind: str, expected: list[tuple[object, ...]]) -> None:
    text = f"r = JOIN {kind} t, u ON (k = k) TO (v = LEFT v, w = RIGHT w) RESULTS r"
    assert bag(results(text, t=LEFT, u=RIGHT)) == bag(expected)


@pytest.mark.parametrize(("kind", "expected"), [("SEMI", [(10,), (11,)]), ("ANTI", [(20,), (90,)])])
def test_joins_that_choose(kind: str, expected: list[tuple[object, ...]]) -> None:
    text = f"r = JOIN {kind} t, u ON (k = k) TO (v = LEFT v) RESULTS r"
    assert bag(results(text, t=LEFT, u=RIGHT)) == bag(expected)


def test_nan_joins_nan_and_zero_minus_zero() -> None:
    text = "r = JOIN INNER t, t ON (x = x) TO (x = LEFT x) RESULTS r"
    assert bag(results(text, t=doubles(x=[NAN, 0.0, -0.0, None]))) == bag([(NAN,), (0.0,), (0.0,), (-0.0,), (-0.0,)])


def test_all_pairs() -> None:
    text = "r = CROSS JOIN t, u TO (w = RIGHT w, v = LEFT v) RESULTS r"
    assert len(results(text, t=LEFT, u=RIGHT)) == 16
    assert results(text, t=LEFT, u=RIGHT)[0] == (5, 10)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("UNION ALL t, u", [1, 1, None, None, 2, 1, None, 3, 3]),
        ("UNION t, u", [1, None, 2, 3]),
        ("INTERSECT t, u", [1, None]),
        ("DIFFERENCE t, u", [2]),
        ("DIFFERENCE u, t", [3]),
        ("DISTINCT t", [1, None, 2]),
    ],
)
def test_bags_and_sets(text: str, expected: list[object]) -> None:
    data = {"t": numbers(n=[1, 1, None, None, 2]), "u": numbers(m=[1, None, 3, 3])}
    assert bag(results(f"r = {text} RESULTS r", **data)) == bag([(one,) for one in expected])


def test_nulls_are_last_in_both_directions_and_nan_is_the_greatest() -> None:
    data = doubles(x=[None, 1.0, NAN, -INF, INF])
    assert bag(results("r = SORT t BY (x) RESULTS r", t=data)) == bag([(-INF,), (1.0,), (INF,), (NAN,), (None,)])
    ordered = [repr(row) for row in results("r = SORT t BY (x) RESULTS r", t=data)]
    assert ordered == ["(-inf,)", "(1.0,)", "(inf,)", "(nan,)", "(None,)"]
    descending = [repr(row) for row in results("r = SORT t BY (x DESC) RESULTS r", t=data)]
    assert descending == ["(nan,)", "(inf,)", "(1.0,)", "(-inf,)", "(None,)"]


def test_which_rows_top_keeps_is_decided_by_all_columns() -> None:
    data = numbers(k=[1, 1, 1, 0], v=[7, None, 5, 9])
    assert bag(results("r = TOP 2 t BY (k DESC) RESULTS r", t=data)) == bag([(1, 5), (1, 7)])
    assert bag(results("r = TOP 2 t RESULTS r", t=data)) == bag([(0, 9), (1, 5)])
    assert results("r = TOP 0 t RESULTS r", t=data) == []


def test_arithmetic_overwrites_in_place() -> None:
    data = numbers(a=[1, 2], b=[3, 4])
    assert results("r = ARITHMETIC t SET a = {a + b} RESULTS r", t=data) == [(4, 3), (6, 4)]
    assert results("r = ARITHMETIC t SET c = {a * b} RESULTS r", t=data) == [(1, 3, 3), (2, 4, 8)]


# ---- loops

COUNTING = """
l = WHILE (t) CARRY (now = later) {test} AT MOST {most} DO
  now = INPUT (n INTEGER)
  later = ARITHMETIC now SET n = {{n + 1}}
  RESULTS later
END
r = LOOP RESULT l OF now (n INTEGER)
RESULTS l, r
"""


@pytest.mark.parametrize(
    ("test", "most", "iterations", "left"),
    [
        ("TEST FIRST now {n < 3}", 10, 3, 3),
        ("TEST FIRST now {n < 0}", 10, 0, 0),
        ("TEST now {n < 0}", 10, 1, 1),
        ("TEST later {n < 3}", 10, 3, 3),
        ("TEST FIRST now {n < 3}", 3, 3, 3),
        ("TEST FIRST now {NULL > n}", 3, 0, 0),
        ("", 4, 4, 4),
    ],
)
def test_when_loops_end(test: str, most: int, iterations: int, left: int) -> None:
    dag = read("t = SCAN 't' (n INTEGER)" + COUNTING.format(test=test, most=most))
    found = evaluate(dag, {"t": numbers(n=[0])})
    assert (rows(found["l"]), rows(found["r"])) == ([(iterations,)], [(left,)])


def test_a_loop_goes_on_while_any_row_meets_the_condition() -> None:
    dag = read("t = SCAN 't' (n INTEGER)" + COUNTING.format(test="TEST FIRST now {n < 3}", most=10))
    found = evaluate(dag, {"t": numbers(n=[2, 0, None])})
    assert rows(found["r"]) == [(5,), (3,), (None,)]
    assert rows(evaluate(dag, {"t": numbers(n=[])})["l"]) == [(0,)]


def test_a_loop_that_does_not_end_fails() -> None:
    dag = read("t = SCAN 't' (n INTEGER)" + COUNTING.format(test="TEST FIRST now {n < 3}", most=2))
    with pytest.raises(IterationsExceeded, match="2 iterations"):
        evaluate(dag, {"t": numbers(n=[0])})


def test_page_rank_drops_vertices_without_in_links() -> None:
    tables = {
        "edges": numbers(src=[1, 2, 2, 3], dst=[2, 1, 3, 1]),
        "page_rank": pa.table({"id": [1, 2, 3], "rank": [1.0, 1.0, 1.0]}),
    }
    found = dict(rows(evaluate(page_rank(1), tables)["ranks"]))
    assert found == pytest.approx({1: 0.15 + 0.85 * 1.5, 2: 0.15 + 0.85, 3: 0.15 + 0.85 * 0.5})
    without = {**tables, "edges": numbers(src=[1, 2], dst=[2, 3])}
    assert dict(rows(evaluate(page_rank(2), without)["ranks"])) == {3: 0.15 + 0.85}
    assert rows(evaluate(page_rank(3), without)["ranks"]) == []


# ---- what is given


def test_a_udf_is_called_with_tables() -> None:
    dag = read("t = SCAN 't' (n INTEGER) u = UDF 'f.py:twice' (t) TO (m DOUBLE) RESULTS u")
    data = {"t": numbers(n=[1, 2])}

    def twice(table: pa.Table) -> pa.Table:
        return pa.table({"m": [2 * n for n in table["n"].to_pylist()]})

    assert rows(evaluate(dag, data, functions={"f.py:twice": twice})["u"]) == [(2.0,), (4.0,)]
    with pytest.raises(NotSupported, match="twice"):
        evaluate(dag, data)
    with pytest.raises(TableMismatch, match="called m"):
        evaluate(dag, data, functions={"f.py:twice": lambda table: table})


def test_inputs_are_given_by_name() -> None:
    dag = read("x = INPUT (n INTEGER) r = SELECT x WHERE {n > 1} RESULTS r")
    assert rows(evaluate(dag, {}, {"x": numbers(n=[1, 2])})["r"]) == [(2,)]
    with pytest.raises(TableMismatch, match="not among"):
        evaluate(dag, {})


# ---- random workflows


@settings(max_examples=50)
@given(cases())
def test_random_workflows_have_results_of_their_schemas(case: Case) -> None:
    found = evaluate(case.dag, case.tables)
    assert list(found) == list(case.dag.results)
    for name, table in found.items():
        assert table.schema.names == list(case.dag.operator(name).schema.names)
    shuffled = {
        name: table.take(pa.array(range(len(table) - 1, -1, -1), pa.int64())) for name, table in case.tables.items()
    }
    again = evaluate(case.dag, shuffled)
    assert_same_results(case.dag, again, found)


@settings(max_examples=50)
@given(cases())
def test_jobs_one_after_the_other_give_what_the_whole_gives(case: Case) -> None:
    dag = case.dag
    half = {name for one in dag.names[: len(dag) // 2] for name in dag.inseparable(one)}
    half |= {leaf.name for leaf in dag.leaves}
    made: dict[str, pa.Table] = {}
    for names in (half, set(dag.names) - half):
        job = _job(dag, names)
        if job is not None:
            made |= evaluate(job, case.tables, made)
    for name, expected in evaluate(dag, case.tables).items():
        if name in made:
            assert_same_bag(made[name], expected)
        else:
            assert name in {leaf.name for leaf in dag.leaves}


def _job(dag: Dag, names: set[str]) -> Dag | None:
    """None for one that makes nothing."""
    leaves = {leaf.name for leaf in dag.leaves}
    return dag.subset(names) if names - leaves else None
