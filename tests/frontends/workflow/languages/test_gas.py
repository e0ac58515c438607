"""GAS: its sections and steps as relational operators, and what is refused with the place."""

from __future__ import annotations

import pyarrow as pa
import pytest

from frontends.workflow.errors import (
    EndlessLoop,
    InvalidSyntax,
    InvalidWorkflow,
    NotSupported,
    TypeMismatch,
    UnknownColumn,
    UnknownRelation,
)
from frontends.workflow.ir.dag import Udf, While
from frontends.workflow.ir.reference import evaluate
from frontends.workflow.ir.types import Schema, Type
from frontends.workflow.languages.gas import parse

TEXT = """\
GATHER = { SUM (vertex_value) }
APPLY = { MUL [vertex_value, 0.5] }
SCATTER = { DIV [vertex_value, vertex_degree] }
ITERATION_STOP = (iteration < 1)
ITERATION = { SUM [iteration, 1] }
"""
DATA = {
    "edges": pa.table({"src": [1, 1, 2], "dst": [2, 3, 3], "value": [0.5, 4.0, 1.0]}),
    "vertices": pa.table({"id": [1, 2], "value": [8.0, 2.0]}),
}


def vertices(text: str) -> dict[int, float]:
    (table,) = evaluate(parse(text), DATA).values()
    return dict(zip(*(column.to_pylist() for column in table.columns), strict=True))


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("", "", {2: 2.0, 3: 3.0}),
        ("SUM (", "MIN (", {2: 2.0, 3: 1.0}),
        ("SUM (", "MAXIMUM (", {2: 2.0, 3: 2.0}),
        ("DIV [vertex_value, vertex_degree]", "", {2: 4.0, 3: 5.0}),
        ("DIV [vertex_value, vertex_degree]", "SUM [vertex_value, edge_value]", {2: 4.25, 3: 7.5}),
        ("DIV [vertex_value, vertex_degree]", "SELECT WHERE [edge_value < 2 AND vertex_value > 2]", {2: 4.0}),
        ("MUL [vertex_value, 0.5]", "SELECT WHERE [(vertex_value > 5)] SUB [1, vertex_value]", {3: -5.0}),
        ("(iteration < 1)", "(iteration < 2)", {3: 1.0}),
        ("(iteration < 1)", "(iteration < 0)", {1: 8.0, 2: 2.0}),
        ("(iteration < 1)", "(vertex_value > 2.5)", {3: 1.0}),
        (
            "ITERATION = { SUM [iteration, 1] }",
            "ITERATION = { SUM [iteration, 1] MUL [iteration, 2] }",
            {2: 2.0, 3: 3.0},
        ),
        ("SCATTER = { DIV [vertex_value, vertex_degree] }", "", {2: 4.0, 3: 5.0}),
        ("APPLY = { MUL [vertex_value, 0.5] }", "", {2: 4.0, 3: 6.0}),
    ],
)
def test_vertices_after_the_iterations(old: str, new: str, expected: dict[int, float]) -> None:
    assert vertices(TEXT.replace(old, new)) == expected


def test_sections_stand_in_any_order() -> None:
    assert parse("".join(reversed(TEXT.splitlines(keepends=True)))) == parse(TEXT)


def test_columns_are_the_first_ones_of_the_tables() -> None:
    tables = {
        "edges": Schema.of(value=Type.INTEGER, degree=Type.INTEGER, weight=Type.DOUBLE, more=Type.STRING),
        "vertices": Schema.of(degree=Type.INTEGER, value=Type.DOUBLE),
    }
    dag = parse(TEXT.replace("APPLY = {", "APPLY = { SUM [vertex_value, 0]"), tables)
    assert dag.operator("vertices").schema == tables["vertices"]
    given = {
        "edges": pa.table({"value": [1], "degree": [2], "weight": [0.5], "more": ["x"]}),
        "vertices": pa.table({"degree": [1], "value": [8.0]}),
    }
    assert evaluate(dag, given)["vertices"].to_pydict() == {"degree": [2], "value": [4.0]}


def test_a_udf_is_a_step_of_apply() -> None:
    dag = parse(TEXT.replace("MUL [vertex_value, 0.5]", "UDF ./code.py squash MUL [vertex_value, 0.5]"))
    (loop,) = dag.of_type(While)
    (udf,) = loop.body.of_type(Udf)
    assert (udf.function, udf.schema) == ("./code.py:squash", dag.operator("vertices").schema)


@pytest.mark.parametrize(
    ("old", "new", "kind", "place", "reason"),
    [
        ("[iteration, 1]", "[iteration, 1])", InvalidSyntax, "5:33", ") stands where"),
        ("SUM (vertex_value)", "", InvalidSyntax, "1:13", "} stands where SUM, MIN, MAX, COUNT is expected"),
        ("iteration < 1", "iteration > 5", EndlessLoop, "4:1", "makes iteration never less"),
        ("ITERATION = { SUM [iteration, 1] }", "", InvalidSyntax, "1:1", "there is no ITERATION"),
        ("ITERATION = {", "APPLY = {", InvalidSyntax, "5:1", "APPLY is there already"),
        ("vertex_degree", "vertex_degre", UnknownColumn, "3:32", "there is no column vertex_degre; is vertex_value"),
        ("MUL [vertex_value", "MUL [vertex_degree", UnknownColumn, "2:16", "there is no column vertex_degree"),
        ("SUM (vertex_value", "SUM (iteration", UnknownColumn, "1:17", "there is no column iteration"),
        ("iteration < 1", "iterations < 1", UnknownColumn, "4:19", "is iteration meant?"),
        ("iteration < 1", "iteration < vertex_value", NotSupported, "4:31", "on both"),
        ("iteration < 1", "iteration = 'x'", TypeMismatch, "4:31", "do not fit"),
        ("iteration < 1", "1 < 2", EndlessLoop, "4:18", "names no column"),
        ("SUM [iteration, 1]", "", EndlessLoop, "4:1", "which ITERATION does not change"),
        ("SUM [iteration, 1]", "SUB [iteration, 1]", EndlessLoop, "4:1", "makes iteration never greater"),
        ("SUM [iteration, 1]", "SUM [1, 1]", InvalidWorkflow, "5:15", "SUM of two numbers"),
        ("SUM [iteration, 1]", "DIV [iteration, 2]", TypeMismatch, "4:1", "change in the loop"),
        ("DIV [vertex_value, vertex_degree]", "UDF /a.py f", NotSupported, "3:13", "UDF outside APPLY"),
    ],
)
def test_is_refused_with_the_place(old: str, new: str, kind: type[InvalidWorkflow], place: str, reason: str) -> None:
    with pytest.raises(InvalidWorkflow) as refused:
        parse(TEXT.replace(old, new), file="w.gas")
    error = refused.value
    assert (type(error), str(error.at)) == (kind, f"w.gas:{place}")
    assert reason in error.reason
    assert str(error).endswith("^")


def test_tables_that_are_known_must_be_there_and_wide_enough() -> None:
    edges, ranks = Schema.of(src=Type.INTEGER, dst=Type.INTEGER), Schema.of(id=Type.INTEGER, value=Type.DOUBLE)
    with pytest.raises(UnknownRelation, match="there is no relation vertices; is vertexes meant"):
        parse(TEXT, {"edges": edges, "vertexes": ranks})
    with pytest.raises(TypeMismatch, match="the table edges has 2 columns, and 3 are needed"):
        parse(TEXT.replace("vertex_degree", "edge_value"), {"edges": edges, "vertices": ranks})
