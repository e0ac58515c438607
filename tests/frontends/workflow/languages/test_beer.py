"""BEER: what each operator makes, names, loops, and what is refused with the place."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from frontends.workflow.errors import (
    EndlessLoop,
    InvalidSyntax,
    InvalidWorkflow,
    NameTaken,
    NotSupported,
    TooLarge,
    TypeMismatch,
    UnknownColumn,
    UnknownRelation,
)
from frontends.workflow.ir.dag import BlackBox, Dag, Scan, Sort, Udf, While
from frontends.workflow.ir.reference import evaluate
from frontends.workflow.ir.types import Schema, Type
from frontends.workflow.languages import scopes
from frontends.workflow.languages.beer import parse
from frontends.workflow.positions import Position

TABLES = """\
CREATE RELATION a WITH COLUMNS (INTEGER, STRING),
CREATE RELATION b WITH COLUMNS (INTEGER, DOUBLE),
CREATE RELATION n WITH COLUMNS (INTEGER),
"""
DATA = {
    "a": pa.table({"a_0": [1, 2, 2, None], "a_1": ["x", "y", "y", "z"]}),
    "b": pa.table({"b_0": [2, 3, 2], "b_1": [0.5, 1.5, 2.5]}),
    "n": pa.table({"n_0": [0]}),
}
PAGE_RANK = Path(__file__).parents[4] / "examples" / "workflow" / "pagerank.beer"
LINE = TABLES.count("\n") + 1
"""Of the texts after `TABLES` the first."""


def answer(statement: str) -> list[tuple[object, ...]]:
    """The rows of the only result, as they are if the workflow sorts them, else in an order of their own."""
    dag = parse(TABLES + statement)
    ((name, table),) = evaluate(dag, DATA).items()
    found = list(zip(*(column.to_pylist() for column in table.columns), strict=True))
    return found if isinstance(dag.operator(name), Sort) else sorted(found, key=repr)


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("SELECT [a_0, a_1] FROM (a) WHERE [(a_0 > 1)] AS r", [(2, "y"), (2, "y")]),
        ("SELECT [a_1] FROM (a) WHERE [(a_0 IS NULL)] AS r", [("z",)]),
        ("SELECT [a_0] FROM (a) WHERE [NOT (a_0 = 2) AND a_1 <> 'x' OR (a_0 == 1)] AS r", [(1,)]),
        ('SELECT [a_0] FROM (a) WHERE [a_1 = "x" OR a_0 IS NOT NULL AND a_0 >= 2] AS r', [(1,), (2,), (2,)]),
        ("SELECT [a_1] FROM (a) AS r", [("x",), ("y",), ("y",), ("z",)]),
        ("PROJECT [a_1, a_0, a_1] FROM (a) WHERE [a_0 != 2] AS r", [("x", 1, "x")]),
        ("SUM [b_1, b_0] FROM (b) AS r", [(2, 2.5), (2, 4.5), (3, 4.5)]),
        ("SUB [10, b_0] FROM (b) AS r", [(7, 1.5), (8, 0.5), (8, 2.5)]),
        ("MUL [b_1, -2] FROM (b) WHERE [b_0 < 3] AS r", [(2, -1.0), (2, -5.0)]),
        ("DIV [b_0, 4] FROM (b) AS r", [(0.5, 0.5), (0.5, 2.5), (0.75, 1.5)]),
        ("AGG [b_1, +] FROM (b) GROUP BY [b_0] AS r", [(2, 3.0), (3, 1.5)]),
        ("AGG [b_1, b_0, +] FROM (b) WHERE [b_0 = 2] AS r", [(3.0, 4)]),
        ("COUNT [a_0] FROM (a) GROUP BY [a_1] AS r", [("x", 1), ("y", 2), ("z", 0)]),
        ("MIN [b_1] FROM (b) GROUP BY [b_0] AS r", [(2, 0.5), (3, 1.5)]),
        ("MINIMUM [b_1, b_0] FROM (b) AS r", [(0.5, 2)]),
        ("MAX [b_1] FROM (b) GROUP BY [b_0] AS r", [(2, 2.5), (3, 1.5)]),
        ("MAXIMUM [b_1] FROM (b) WHERE [b_1 < 2.0] AS r", [(1.5,)]),
        ("(a) JOIN (b) ON a_0 AND b_0 AS r", [(2, "y", 0.5), (2, "y", 0.5), (2, "y", 2.5), (2, "y", 2.5)]),
        ("(b) JOIN (b) ON b_0, b_1 AND b_0, b_1 AS r", [(2, 0.5), (2, 2.5), (3, 1.5)]),
        ("(n) CROSS JOIN (b) AS r", [(0, 2, 0.5), (0, 2, 2.5), (0, 3, 1.5)]),
        ("(a) UNION (a) AS r", [(1, "x"), (2, "y"), (None, "z")]),
        ("(n) UNION ALL (n) AS r", [(0,), (0,)]),
        ("(a) INTERSECT (a) AS r", [(1, "x"), (2, "y"), (None, "z")]),
        ("(a) DIFFERENCE (SELECT [a_0, a_1] FROM (a) WHERE [a_0 = 2] AS s) AS r", [(1, "x"), (None, "z")]),
        ("DISTINCT FROM (a) WHERE [a_0 > 0] AS r", [(1, "x"), (2, "y")]),
        ("SORT INC ON [b_1] FROM (b) AS r", [(2, 0.5), (3, 1.5), (2, 2.5)]),
        ("SORT DEC ON [b_0, b_1] FROM (b) WHERE [b_1 > 1.0] AS r", [(3, 1.5), (2, 2.5)]),
        ("TOP [1] FROM (b) AS r", [(2, 0.5)]),
        ("TOP [2] DEC ON [b_1] FROM (b) AS r", [(2, 2.5), (3, 1.5)]),
        ("TOP [1] INC ON [b_1] FROM (b) WHERE [b_0 = 3] AS r", [(3, 1.5)]),
        ("WHILE [(n_0 < 5)] DO (SUM [n_0, 1] FROM (n) WHERE [(n_0 >= 0)] AS n)", [(5,)]),
        ("WHILE [(n_0 < 5)] (SUM [n_0, 2] FROM (n) AS n)", [(6,)]),
        ("PROJECT [s_0] FROM (PROJECT [t_1] FROM (DISTINCT FROM (a) AS t) AS s) AS r", [("x",), ("y",), ("z",)]),
        ("DISTINCT FROM (a) AS `two words`, PROJECT [`two words_1`] FROM (`two words`) AS r", [("x",), ("y",), ("z",)]),
        ("// a comment\nDISTINCT FROM (n) // another\n AS r", [(0,)]),
    ],
)
def test_an_operator_makes(statement: str, expected: list[tuple[object, ...]]) -> None:
    assert answer(statement) == expected


def test_days_and_truths_are_constants() -> None:
    text = """CREATE RELATION t WITH COLUMNS (DATE, BOOLEAN),
        SELECT [t_0] FROM (t) WHERE [t_0 >= DATE '2020-02-29' AND t_1 = TRUE] AS r"""
    days = pa.array([18_320, 18_321, 18_322], pa.int32()).cast(pa.date32())
    table = pa.table({"t_0": days, "t_1": [True, True, False]})
    assert evaluate(parse(text), {"t": table})["r"].column(0).to_pylist() == [days[1].as_py()]


def test_udfs_and_black_boxes_state_their_columns() -> None:
    dag = parse(
        TABLES + "UDF /home/me/code.py nearest ON a, b AS u WITH COLUMNS (INTEGER, name STRING),\n"
        "UDF 'my.module' f ON u AS v WITH COLUMNS (DOUBLE),\n"
        "BLACK BOX duckdb 'SELECT 1' ON v AS x WITH COLUMNS (INTEGER),\n"
        "BLACK BOX spark /code/job.jar AS y WITH COLUMNS (INTEGER)"
    )
    u, v = dag.of_type(Udf)
    assert (u.function, u.inputs, u.schema.names) == ("/home/me/code.py:nearest", ("a", "b"), ("u_0", "name"))
    assert (v.function, v.inputs, v.schema.types) == ("my.module:f", ("u",), (Type.DOUBLE,))
    x, y = dag.of_type(BlackBox)
    assert (x.engine, x.code, x.inputs) == ("duckdb", "SELECT 1", ("v",))
    assert (y.engine, y.code, y.inputs) == ("spark", "/code/job.jar", ())
    assert dag.results == ("x", "y")


# ---- tables and names


def test_columns_have_the_names_of_the_table_if_it_is_known() -> None:
    tables = {"t": Schema.of(key=Type.INTEGER, value=Type.INTEGER)}
    dag = parse("CREATE RELATION t WITH COLUMNS (INTEGER, DOUBLE), DISTINCT FROM (t) AS r", tables)
    assert dag.operator("r").schema == Schema.of(key=Type.INTEGER, value=Type.DOUBLE)
    some = parse("CREATE RELATION t WITH COLUMNS (value INTEGER), DISTINCT FROM (t) AS r", tables)
    assert some.operator("r").schema == Schema.of(value=Type.INTEGER)


@pytest.mark.parametrize(
    ("declared", "kind", "reason"),
    [
        ("t WITH COLUMNS (INTEGER)", TypeMismatch, "1 columns are declared, and the table t has 2: key INTEGER"),
        ("t WITH COLUMNS (INTEGER, STRING)", TypeMismatch, "value of the table t is INTEGER, not STRING"),
        ("t WITH COLUMNS (vale INTEGER)", UnknownColumn, "is value meant?"),
        ("tt WITH COLUMNS (INTEGER)", UnknownRelation, "is t meant?"),
        ("t WITH COLUMNS (key INTEGER, Key INTEGER)", InvalidWorkflow, "Key"),
    ],
)
def test_declared_columns_must_be_those_of_the_table(declared: str, kind: type[InvalidWorkflow], reason: str) -> None:
    tables = {"t": Schema.of(key=Type.INTEGER, value=Type.INTEGER)}
    with pytest.raises(kind) as refused:
        parse(f"CREATE RELATION {declared},\nDISTINCT FROM (t) AS r", tables, "w.beer")
    assert reason in str(refused.value)
    assert refused.value.at is not None
    assert refused.value.at.line == 1
    assert "CREATE RELATION" in refused.value.source_line


def test_a_name_that_is_given_again_means_the_newer_relation_which_has_it_in_the_result() -> None:
    dag = parse(TABLES + "SUM [n_0, 1] FROM (n) AS n, SUM [n_0, 2] FROM (n) AS n")
    assert dag.results == ("n",)
    assert dag.of_type(Scan)[0].table == "n"
    assert evaluate(dag, DATA)["n"].to_pydict() == {"n_0": [3]}


def test_what_nobody_needs_is_left_out() -> None:
    dag = parse(TABLES + "DISTINCT FROM (a) AS r, DISTINCT FROM (b) AS r")
    assert dag.names == ("b", "r")


def test_each_operator_knows_its_place() -> None:
    dag = parse(TABLES + "DISTINCT FROM (a)\n  AS r,\n  SORT INC ON [r_0] FROM (r) WHERE [r_0 > 1] AS s", file="w.beer")
    places = {one.name: one.at for one in dag}
    assert places["a"] == Position(1, 1, "w.beer")
    assert places["r"] == Position(LINE, 1, "w.beer")
    assert places["s"] == Position(LINE + 2, 3, "w.beer")
    assert places["s_where"] == Position(LINE + 2, 30, "w.beer")


# ---- loops


def loop_of(dag: Dag) -> While:
    (found,) = dag.of_type(While)
    return found


def test_names_bound_again_are_carried_and_the_others_end_with_the_loop() -> None:
    dag = parse(
        TABLES
        + """WHILE [(n_0 < 3)] DO (
            SUM [n_0, 1] FROM (n) AS next,
            DISTINCT FROM (next) AS n,
            MUL [b_1, 2] FROM (b) AS b)"""
    )
    assert {one.input for one in loop_of(dag).carried} == {"n", "b"}
    assert dag.results == ("b",)  # The counter is read by the condition.
    assert evaluate(dag, DATA)["b"].column("b_1").to_pylist() == [4.0, 12.0, 20.0]
    with pytest.raises(InvalidWorkflow, match="next is made in line 1, in a WHILE, with which it ends"):
        parse(
            "CREATE RELATION n WITH COLUMNS (INTEGER), WHILE [(n_0 < 3)] (SUM [n_0, 1] FROM (n) AS next,"
            " DISTINCT FROM (next) AS n),\nDISTINCT FROM (next) AS r"
        )


def test_a_loop_renames_columns_where_they_are_made_and_adds_no_operator() -> None:
    dag = parse(PAGE_RANK.read_text())
    body = [type(one).__name__ for one in loop_of(dag).body]
    assert sorted(body) == sorted(
        [
            "Input",
            "Input",
            "Input",
            "Join",
            "Arithmetic",
            "Project",
            "Aggregate",
            "Arithmetic",
            "Arithmetic",
            "Arithmetic",
        ]
    )
    assert dag.operator("page_rank").schema.names == ("page_rank_0", "page_rank_1")


def test_a_relation_whose_columns_others_read_is_renamed_by_an_operator_of_its_own() -> None:
    dag = parse(
        TABLES
        + """WHILE [(n_0 < 2)] DO (
            PROJECT [b_1] FROM (b) AS c,
            (n) CROSS JOIN (c) AS d,
            COUNT [d_1] FROM (d) AS count,
            SUM [n_0, 1] FROM (n) AS n,
            (b) CROSS JOIN (count) AS wide,
            PROJECT [wide_2, wide_1] FROM (wide) AS b)"""
    )
    assert evaluate(dag, DATA)["b"].to_pydict() == {"b_0": [3, 3, 3], "b_1": [0.5, 1.5, 2.5]}


def test_a_condition_on_what_only_the_body_makes_is_tested_after_each_iteration() -> None:
    dag = parse(
        TABLES + "WHILE [(left_0 > 0)] (SUM [n_0, 1] FROM (n) AS n, SUB [3, m_0] FROM (DISTINCT FROM (n) AS m) AS left)"
    )
    condition = loop_of(dag).condition
    assert condition is not None
    assert not condition.tested_first
    assert evaluate(dag, DATA)["n"].to_pydict() == {"n_0": [3]}


def test_loops_stand_within_loops() -> None:
    dag = parse(
        TABLES
        + """CREATE RELATION total WITH COLUMNS (INTEGER),
        WHILE [(n_0 < 3)] DO (
            SUM [n_0, 1] FROM (n) AS n,
            DISTINCT FROM (n) AS m,
            WHILE [(m_0 > 0)] DO (SUB [m_0, 1] FROM (m) AS m, SUM [total_0, 1] FROM (total) AS total))"""
    )
    assert evaluate(dag, DATA | {"total": pa.table({"total_0": [0]})})["total"].to_pydict() == {"total_0": [6]}


# ---- what is refused


@pytest.mark.parametrize(
    ("statement", "kind", "column", "reason"),
    [
        ("SELECT [a_0 FROM (a) AS r", InvalidSyntax, 13, "FROM stands where , or ] is expected"),
        ("DISTINCT FROM (a AS r", InvalidSyntax, 18, "AS stands where ) is expected"),
        ("DISTINCT FROM (a) AS r,", InvalidSyntax, 24, "the text ends where"),
        ("SELECT [a_0] FROM (a) WHERE [a_1 = 'x] AS r", InvalidSyntax, 36, "begins nothing that may stand here"),
        ("DISTINCT FROM (aa) AS r", UnknownRelation, 16, "there is no relation aa; is a meant?"),
        ("DISTINCT FROM (r) AS r", InvalidWorkflow, 16, "r would be made from itself"),
        ("DISTINCT FROM (s) AS r, DISTINCT FROM (r) AS s", InvalidWorkflow, 16, "s is made only in line 4"),
        ("PROJECT [a_2] FROM (a) AS r", UnknownColumn, 10, "there is no column a_2; is a_1 meant?"),
        ("PROJECT [b_0] FROM (a) AS r", UnknownColumn, 10, "there is no column b_0; is a_0 meant?"),
        ("PROJECT [a_01] FROM (a) AS r", UnknownColumn, 10, "there is no column a_01"),
        ("PROJECT [a] FROM (a) AS r", UnknownColumn, 10, "there is no column a;"),
        ("SELECT [a_0] FROM (a) WHERE [a_0 = 'x'] AS r", TypeMismatch, 36, "do not fit"),
        ("SELECT [a_0] FROM (a) WHERE [a_0 = 1e999] AS r", InvalidWorkflow, 30, "too large for a DOUBLE"),
        ("SELECT [a_0] FROM (a) WHERE [a_0 = DATE '1'] AS r", InvalidWorkflow, 30, "is no day"),
        ("MUL [a_1, 2] FROM (a) AS r", TypeMismatch, 6, "needs numbers"),
        ("MUL [3, 2] FROM (a) AS r", InvalidWorkflow, 1, "MUL of two numbers"),
        ("AGG [b_1, *] FROM (b) AS r", NotSupported, 11, "AGG with * is not supported"),
        ("AGG [a_1, +] FROM (a) AS r", TypeMismatch, 6, "SUM needs numbers"),
        ("(a) JOIN (b) ON a_0, a_1 AND b_0 AS r", InvalidWorkflow, 17, "a JOIN of 2 columns with 1"),
        ("(a) JOIN (b) ON a_1 AND b_0 AS r", TypeMismatch, 25, "cast one of them"),
        ("(a) UNION (b) AS r", TypeMismatch, 1, "whose columns differ"),
        ("TOP [1.5] FROM (a) AS r", InvalidWorkflow, 6, "a whole number of rows is expected"),
        ("UDF x f ON a AS r WITH COLUMNS (INTEGER)", InvalidSyntax, 5, "x stands where a path or a text in quotes"),
        ("DISTINCT FROM (a) AS R, DISTINCT FROM (a) AS r", NameTaken, 46, "differ only in case"),
        ("CREATE RELATION a WITH COLUMNS (INTEGER)", NameTaken, 17, "there is a relation a already"),
        ("WHILE [(n_0 < 2)] (CREATE RELATION c WITH COLUMNS (INTEGER))", NotSupported, 20, "CREATE RELATION in"),
        ("WHILE [(1 < 2)] (SUM [n_0, 1] FROM (n) AS n)", EndlessLoop, 8, "names no column"),
        ("WHILE [(a_0 < 2)] (SUM [n_0, 1] FROM (n) AS n)", EndlessLoop, 9, "which its body does not change"),
        ("WHILE [(n_0 < 2)] (SUM [n_0, 1] FROM (n) AS m)", EndlessLoop, 1, "no relation from before it a new value"),
        ("WHILE [(n_0 < 2)] (SUB [n_0, 1] FROM (n) AS n)", EndlessLoop, 1, "makes n_0 never greater"),
        ("WHILE [(2 >= n_0)] (SUM [n_0, 0] FROM (n) AS n)", EndlessLoop, 1, "makes n_0 never greater"),
        ("WHILE [(b_1 > 0.5)] (SUM [b_0, 1] FROM (b) AS b)", EndlessLoop, 1, "changes b_0 alone"),
        ("WHILE [(n_0 < b_0)] (SUM [n_0, 1] FROM (n) AS n)", NotSupported, 15, "on two relations, n and b,"),
        ("WHILE [(m_0 < 2)] (SUM [n_0, 1] FROM (n) AS n)", UnknownRelation, 9, "there is no relation m"),
        ("WHILE [(n_0 < 2)] (DIV [n_0, 2] FROM (n) AS n)", TypeMismatch, 1, "the columns of n change in the loop"),
        ("WHILE [(n_0 < 2)] (" * 4 + "SUM [n_0, 1] FROM (n) AS n" + ")" * 4, TooLarge, 58, "4 loops within each other"),
    ],
)  # fmt: skip
def test_is_refused_with_the_place(statement: str, kind: type[InvalidWorkflow], column: int, reason: str) -> None:
    with pytest.raises(InvalidWorkflow) as refused:
        parse(TABLES + statement, file="w.beer")
    error = refused.value
    assert (type(error), error.at) == (kind, Position(LINE, column, "w.beer"))
    place, shown, caret = str(error).split("\n")
    assert place.startswith(f"w.beer:{LINE}:{column}: ")
    assert reason in place
    assert (shown, caret) == (statement, " " * (column - 1) + "^")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (" \n", "the text is empty"),
        (TABLES.rstrip(",\n"), "computes nothing"),
        (TABLES + "DISTINCT FROM (" * 200 + "a" + ") AS r" * 200, "operators within each other"),
        (TABLES + f"DISTINCT FROM (a) WHERE [{'NOT ' * 500}(a_0 = 1)] AS r", "levels"),
        (TABLES + f"DISTINCT FROM (a) WHERE [{'(a_0 = 1 AND ' * 60}a_0 = 1{')' * 60}] AS r", "levels"),
        ("/" * 200_001, "200,001 characters"),
    ],
    ids=lambda value: str(value)[:12],
)
def test_too_much_or_too_little_is_refused(text: str, reason: str) -> None:
    with pytest.raises(InvalidWorkflow, match=reason):
        parse(text)


def test_too_many_operators_are_refused_where_the_first_of_them_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scopes, "OPERATORS_MAX", 5)
    with pytest.raises(TooLarge) as refused:
        parse(TABLES + "SUM [n_0, 1] FROM (n) AS n,\n" * 3 + "DISTINCT FROM (n) AS n")
    assert str(refused.value).startswith(f"<beer>:{LINE + 2}:1: 6 operators; at most 5 are allowed")


def test_parentheses_are_no_levels() -> None:
    assert answer(f"SELECT [a_1] FROM (a) WHERE [{'(' * 300}a_0 = 1{')' * 300}] AS r") == [("x",)]


def test_a_long_chain_of_conditions_is_one_level() -> None:
    assert answer(f"SELECT [a_1] FROM (a) WHERE [{' OR '.join(['a_0 = 1'] * 100)}] AS r") == [("x",)]
