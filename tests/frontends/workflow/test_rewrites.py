"""Rewrites change DAGs and no answers."""

from collections.abc import Mapping

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frontends.workflow.ir.dag import (
    Aggregate,
    Arithmetic,
    Dag,
    Difference,
    Distinct,
    Intersect,
    Join,
    Operator,
    Project,
    Select,
    Sort,
    Union,
    While,
)
from frontends.workflow.ir.printing import printed
from frontends.workflow.ir.reading import read
from frontends.workflow.ir.reference import evaluate
from frontends.workflow.rewrites.joins import KnownRows
from frontends.workflow.rewrites.rules import ALL, Rewrite, optimised, rewrite, variants
from tests.support.workflow_dags import KINDS, Case, assert_same_results, cases

TABLES = """
a = SCAN 'a' (k INTEGER, x DOUBLE, s STRING)
b = SCAN 'b' (k INTEGER, y DOUBLE, t STRING)
c = SCAN 'c' (k INTEGER, z DOUBLE, s STRING)
"""


def dag(text: str) -> Dag:
    return read(TABLES + text)


def known(rows: Mapping[str, float]) -> KnownRows:
    return lambda dag: {name: rows[name] for name in dag.names if name in rows}


def lines(found: Dag) -> list[str]:
    """The operators' texts but for the scans, and the results."""
    return [line for line in printed(found).splitlines() if " SCAN " not in line]


@pytest.mark.parametrize(
    ("rule", "before", "after"),
    [
        (
            Rewrite.FILTERS_MERGED,
            ["f = SELECT a WHERE {k > 1}", "r = SELECT f WHERE {x < 2}", "RESULTS r"],
            ["r = SELECT a WHERE {k > 1 AND x < 2}", "RESULTS r"],
        ),
        (
            Rewrite.FILTERS_TOWARDS_SOURCES,
            [
                "j = JOIN INNER a, b ON (k = k) TO (k = LEFT k, x = LEFT x, amount = RIGHT y)",
                "r = SELECT j WHERE {x > 1 AND amount > 2 AND x > amount}",
                "RESULTS r",
            ],
            [
                "a_filtered = SELECT a WHERE {x > 1}",
                "b_filtered = SELECT b WHERE {y > 2}",
                "j_of_filtered = JOIN INNER a_filtered, b_filtered ON (k = k) "
                "TO (k = LEFT k, x = LEFT x, amount = RIGHT y)",
                "r = SELECT j_of_filtered WHERE {x > amount}",
                "RESULTS r",
            ],
        ),
        (
            Rewrite.FILTERS_TOWARDS_SOURCES,
            ["u = UNION ALL a, c", "r = SELECT u WHERE {x > 1}", "RESULTS r"],
            [
                "a_filtered = SELECT a WHERE {x > 1}",
                "c_filtered = SELECT c WHERE {z > 1}",
                "r = UNION ALL a_filtered, c_filtered",
                "RESULTS r",
            ],
        ),
        (
            Rewrite.INTERSECTIONS_TOWARDS_SOURCES,
            ["o = SORT a BY (k)", "d = DISTINCT c", "r = INTERSECT o, d", "RESULTS r"],
            ["r_unsorted = INTERSECT a, c", "r = SORT r_unsorted BY (k)", "RESULTS r"],
        ),
        (
            Rewrite.DIFFERENCES_TOWARDS_SOURCES,
            ["o = SORT a BY (k)", "d = SORT c BY (z)", "r = DIFFERENCE o, d", "RESULTS r"],
            ["r_unsorted = DIFFERENCE a, c", "r = SORT r_unsorted BY (k)", "RESULTS r"],
        ),
        (
            Rewrite.SORTS_TOWARDS_RESULTS,
            ["o = SORT a BY (k DESC)", "f = SELECT o WHERE {x > 1}", "r = PROJECT f TO (key = {k})", "RESULTS r"],
            [
                "f_unsorted = SELECT a WHERE {x > 1}",
                "r_unsorted = PROJECT f_unsorted TO (key = {k})",
                "r = SORT r_unsorted BY (key DESC)",
                "RESULTS r",
            ],
        ),
        (
            Rewrite.SORTS_TOWARDS_RESULTS,
            ["o = SORT a BY (k)", "r = AGGREGATE o BY (k) TO (n = COUNT)", "RESULTS r"],
            ["r = AGGREGATE a BY (k) TO (n = COUNT)", "RESULTS r"],
        ),
        (
            Rewrite.UNIONS_TOWARDS_RESULTS,
            ["u = UNION ALL a, c", "r = ARITHMETIC u SET x = {x * 2}", "RESULTS r"],
            [
                "a_projected = ARITHMETIC a SET x = {x * 2}",
                "c_projected = PROJECT c TO (k = {k}, x = {z * 2}, s = {s})",
                "r = UNION ALL a_projected, c_projected",
                "RESULTS r",
            ],
        ),
        (
            Rewrite.COLUMNS_PRUNED,
            [
                "j = JOIN INNER a, b ON (k = k) TO (k = LEFT k, x = LEFT x, y = RIGHT y, t = RIGHT t)",
                "m = ARITHMETIC j SET more = {y + 1}",
                "r = AGGREGATE m BY (k) TO (total = SUM x)",
                "RESULTS r",
            ],
            [
                "j = JOIN INNER a, b ON (k = k) TO (k = LEFT k, x = LEFT x)",
                "m = PROJECT j TO (k = {k}, x = {x})",
                "r = AGGREGATE m BY (k) TO (total = SUM x)",
                "RESULTS r",
            ],
        ),
    ],
)
def test_what_a_rewrite_makes(rule: Rewrite, before: list[str], after: list[str]) -> None:
    assert lines(rewrite(dag("\n".join(before)), rule)) == after


CHAIN = """
ab = JOIN INNER a, b ON (k = k) TO (key = LEFT k, x = LEFT x, s = LEFT s, t = RIGHT t)
r = JOIN {kind} {sides} ON {on} TO ({columns})
RESULTS r
"""


def test_the_join_that_keeps_fewer_rows_comes_first() -> None:
    chain = CHAIN.format(kind="INNER", sides="ab, c", on="(s = s)", columns="key = LEFT key, t = LEFT t, z = RIGHT z")
    fewer = known({"a": 10, "ab": 100, "r": 50})
    assert lines(rewrite(dag(chain), Rewrite.JOINS_BY_HISTORY, fewer)) == [
        "a_joined = JOIN INNER a, c ON (s = s) TO (k = LEFT k, z = RIGHT z)",
        "r = JOIN INNER a_joined, b ON (k = k) TO (key = LEFT k, t = RIGHT t, z = LEFT z)",
        "RESULTS r",
    ]
    assert rewrite(dag(chain), Rewrite.JOINS_BY_HISTORY, known({"a": 10, "ab": 20, "r": 100})) == dag(chain)
    assert rewrite(dag(chain), Rewrite.JOINS_BY_HISTORY, known({"a": 10, "r": 50})) == dag(chain)


@pytest.mark.parametrize(
    ("kind", "sides", "on", "columns"),
    [
        ("INNER", "c, ab", "(s = t)", "key = RIGHT key, z = LEFT z"),
        ("SEMI", "ab, c", "(s = s)", "key = LEFT key"),
        ("ANTI", "ab, c", "(t = s)", "key = LEFT key"),
    ],
)
def test_joins_of_other_kinds_and_sides_are_ordered(kind: str, sides: str, on: str, columns: str) -> None:
    chain = dag(CHAIN.format(kind=kind, sides=sides, on=on, columns=columns))
    changed = rewrite(chain, Rewrite.JOINS_BY_HISTORY, known({"a": 10, "b": 10, "ab": 100, "r": 50}))
    first, second = changed.of_type(Join)
    assert set(first.inputs) in ({"a", "c"}, {"b", "c"})
    assert first.name in second.inputs


def test_columns_are_computed_before_a_join_that_makes_many_rows() -> None:
    text = dag(
        "j = JOIN INNER a, b ON (k = k) TO (k = LEFT k, x = LEFT x, y = RIGHT y)\n"
        "r = PROJECT j TO (twice = {x * 2}, y = {y})\nRESULTS r"
    )
    assert lines(rewrite(text, Rewrite.PROJECTIONS_BY_HISTORY, known({"a": 5, "b": 5, "j": 20}))) == [
        "a_projected = PROJECT a TO (k = {k}, twice = {x * 2})",
        "b_projected = PROJECT b TO (k = {k}, y = {y})",
        "r = JOIN INNER a_projected, b_projected ON (k = k) TO (twice = LEFT twice, y = RIGHT y)",
        "RESULTS r",
    ]
    assert rewrite(text, Rewrite.PROJECTIONS_BY_HISTORY, known({"a": 5, "b": 5, "j": 5})) == text


@pytest.mark.parametrize(
    "text",
    [
        # The filter's column is computed; the relation is read twice, or a result; the first rows depend on all rows.
        "p = PROJECT a TO (v = {x * 2})\nr = SELECT p WHERE {v > 1}\nRESULTS r",
        "d = DISTINCT a\nr = SELECT d WHERE {x > 1}\nRESULTS r, d",
        "d = DISTINCT a\nr = SELECT d WHERE {x > 1}\nq = SELECT d WHERE {x < 1}\nRESULTS r, q",
        "d = TOP 3 a BY (k)\nr = SELECT d WHERE {x > 1}\nRESULTS r",
        # Without a partner y is null, which the filter lets pass; k + 1 may overflow in rows without a partner.
        "j = JOIN LEFT a, b ON (k = k) TO (k = LEFT k, y = RIGHT y)\nr = SELECT j WHERE {y IS NULL}\nRESULTS r",
        "j = JOIN INNER a, b ON (k = k) TO (k = LEFT k)\nr = SELECT j WHERE {k + 1 > 2}\nRESULTS r",
        # Without keys there is a row even of no rows.
        "g = AGGREGATE a TO (n = COUNT)\nr = SELECT g WHERE {FALSE}\nRESULTS r",
        "g = AGGREGATE a BY (k) TO (n = COUNT)\nr = SELECT g WHERE {n > 1}\nRESULTS r",
        # Rows of a set that differ may be alike afterwards.
        "u = UNION a, c\nr = PROJECT u TO (k = {k})\nRESULTS r",
    ],
)
def test_what_is_left_as_it_is(text: str) -> None:
    assert optimised(dag(text), ALL - {Rewrite.COLUMNS_PRUNED}) == dag(text)


COUNTING = """
i0 = VALUES (n INTEGER) ROWS (({0}))
l = WHILE (a, i0) CARRY (v = w, i = j) TEST FIRST i {n < 10} AT MOST 9 DO
  v = INPUT (k INTEGER, x DOUBLE, s STRING)
  i = INPUT (n INTEGER)
  w = ARITHMETIC v SET x = {x * 2}
  j = ARITHMETIC i SET n = {n + 3}
  RESULTS w, j
END
r = LOOP RESULT l OF v (k INTEGER, x DOUBLE, s STRING)
RESULTS r, l"""
COUNTER_LEFT = ("RESULTS r, l", "e = LOOP RESULT l OF i (n INTEGER)\nRESULTS r, e")
COUNTER_READ = (
    "w = ARITHMETIC v SET x = {x * 2}",
    "b = CROSS JOIN v, i TO (k = LEFT k, x = LEFT x, s = LEFT s, n = RIGHT n)\n"
    "  w = PROJECT b TO (k = {k}, x = {x * n}, s = {s})",
)


def counting(*changes: tuple[str, str]) -> Dag:
    text = COUNTING
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    return read(TABLES.strip().splitlines()[0] + text)


@pytest.mark.parametrize(
    ("changes", "iterations", "is_carried"),
    [
        ([], 4, False),
        ([("TEST FIRST i {n < 10}", "TEST i {9 >= n}")], 4, False),
        ([("TEST FIRST i {n < 10}", "TEST i {n < 0}")], 1, False),
        ([COUNTER_LEFT], 4, True),
        ([COUNTER_READ], 4, True),
    ],
)
def test_loops_that_count(changes: list[tuple[str, str]], iterations: int, is_carried: bool) -> None:
    before = counting(*changes)
    after = rewrite(before, Rewrite.LOOPS_COUNTED)
    (loop,) = after.of_type(While)
    assert loop.condition is None
    assert loop.iterations_max == iterations
    assert loop.carries("i") == is_carried == ("i0" in after.names)
    tables = {"a": pa.table({"k": [1, 2, None], "x": [1.0, None, float("nan")], "s": ["a", None, "c"]})}
    assert_same_results(before, evaluate(after, tables), evaluate(before, tables))


@pytest.mark.parametrize(
    "changes",
    [
        [("AT MOST 9", "AT MOST 3")],  # It exceeds them, and fails.
        [("n < 10", "n < 0")],  # It makes none.
        [("n INTEGER", "n DOUBLE"), ("{0}", "{0.0}"), ("n + 3", "n + 0.1")],  # Sums of doubles are rounded.
        [("({0})", "({0}), ({1})")],
        [("n + 3", "n * 3 + 1")],
    ],
)
def test_loops_that_do_more_than_count(changes: list[tuple[str, str]]) -> None:
    before = counting(*changes)
    assert rewrite(before, Rewrite.LOOPS_COUNTED) == before


def test_variants_are_different_dags_with_the_same_results() -> None:
    text = dag("o = SORT a BY (k)\nr = INTERSECT o, c\nRESULTS r")
    found = variants(text)
    assert found[0] == optimised(text)
    assert text in found
    assert len(found) == 3  # Without the intersection's rewrite the sort is left out.
    assert len(set(map(printed, found))) == len(found)
    assert all(one.results == text.results for one in found)


# ---- random workflows ------------------------------------------------------------------------

FIRST = (Select, Select, Project, Arithmetic, Sort, Distinct, Union, Join)
KINDS_FOR: dict[Rewrite, tuple[type[Operator], ...]] = {
    Rewrite.LOOPS_COUNTED: (While, While, Select, Project),
    Rewrite.FILTERS_MERGED: (Select, Select, Project),
    Rewrite.FILTERS_TOWARDS_SOURCES: (*FIRST, Aggregate, Intersect, Difference),
    Rewrite.INTERSECTIONS_TOWARDS_SOURCES: (Sort, Distinct, Intersect, Select),
    Rewrite.DIFFERENCES_TOWARDS_SOURCES: (Sort, Distinct, Difference, Select),
    Rewrite.SORTS_TOWARDS_RESULTS: (Sort, Sort, Select, Project, Arithmetic, Distinct, Join),
    Rewrite.UNIONS_TOWARDS_RESULTS: (Union, Union, Project, Arithmetic, Select),
    Rewrite.JOINS_BY_HISTORY: (Join,),
    Rewrite.PROJECTIONS_BY_HISTORY: (Join, Join, Project, Project),
    Rewrite.COLUMNS_PRUNED: KINDS,
}


def assert_same_answers(case: Case, changed: Dag) -> None:
    assert changed.results == case.dag.results
    for name in changed.results:
        assert changed.operator(name).schema == case.dag.operator(name).schema
    assert_same_results(case.dag, evaluate(changed, case.tables), evaluate(case.dag, case.tables))


def some_history(data: st.DataObject, case: Case) -> KnownRows:
    """Numbers that may not be true: answers never depend on them."""
    return known({name: data.draw(st.sampled_from((1, 10, 100))) for name in case.dag.names})


@pytest.mark.parametrize("rule", Rewrite)
@settings(max_examples=60)
@given(data=st.data())
def test_a_rewrite_changes_no_answer(rule: Rewrite, data: st.DataObject) -> None:
    case = data.draw(cases(KINDS_FOR[rule], steps_max=6))
    assert_same_answers(case, rewrite(case.dag, rule, some_history(data, case)))


@settings(max_examples=150)
@given(data=st.data())
def test_all_rewrites_together_change_no_answer(data: st.DataObject) -> None:
    case = data.draw(cases(KINDS, steps_max=8))
    assert_same_answers(case, optimised(case.dag, known_rows=some_history(data, case)))


@settings(max_examples=40)
@given(data=st.data())
def test_any_of_the_rewrites_may_be_off(data: st.DataObject) -> None:
    case = data.draw(cases(KINDS, steps_max=6))
    rules = data.draw(st.frozensets(st.sampled_from(Rewrite)))
    assert_same_answers(case, optimised(case.dag, rules, some_history(data, case)))
