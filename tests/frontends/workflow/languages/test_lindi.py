"""Lindi: its methods, loops, and errors that point at the line which calls."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from frontends.workflow.errors import (
    EndlessLoop,
    InvalidSyntax,
    InvalidWorkflow,
    NameTaken,
    NotSupported,
    TypeMismatch,
    UnknownColumn,
    UnknownRelation,
)
from frontends.workflow.ir.dag import Function, Scan, Union, While
from frontends.workflow.ir.reference import evaluate
from frontends.workflow.ir.types import Schema, Type
from frontends.workflow.languages.lindi import Lindi, Query, parse
from frontends.workflow.positions import Position

DATA = {
    "a": pa.table({"key": [1, 2, 2, None], "text": ["x", "y", "y", "z"]}),
    "b": pa.table({"key": [2, 3, 2], "value": [0.5, 1.5, 2.5]}),
}
TABLES = {"a": Schema.of(key=Type.INTEGER, text=Type.STRING), "b": Schema.of(key=Type.INTEGER, value=Type.DOUBLE)}
Rows = list[tuple[object, ...]]


def answer(make: Callable[[Query, Query], Query]) -> tuple[tuple[str, ...], Rows]:
    """Names of columns, and rows."""
    lindi = Lindi(TABLES)
    dag = lindi.dag(make(lindi.table("a"), lindi.table("b")))
    ((_, table),) = evaluate(dag, DATA).items()
    rows = list(zip(*(column.to_pylist() for column in table.columns), strict=True))
    return tuple(table.column_names), sorted(rows, key=repr)


@pytest.mark.parametrize(
    ("make", "names", "rows"),
    [
        (lambda a, b: a.select(["text"]), ["text"], [("x",), ("y",), ("y",), ("z",)]),
        (lambda a, b: a.select({"more": "key + 1"}, "text <> 'z'"), ["more"], [(2,), (3,), (3,)]),
        (lambda a, b: a.where("key IS NULL"), ["key", "text"], [(None, "z")]),
        (lambda a, b: b.where("key = 3").select_many(b), ["key", "value", "b_key", "b_value"],
         [(3, 1.5, 2, 0.5), (3, 1.5, 2, 2.5), (3, 1.5, 3, 1.5)]),
        (lambda a, b: b.select_many(b, "value > b_value").select(["value", "b_value"]), ["value", "b_value"],
         [(1.5, 0.5), (2.5, 0.5), (2.5, 1.5)]),
        (lambda a, b: a.select(["key"]).concat(b.select(["key"])).where("key = 2"), ["key"], [(2,)] * 4),
        (lambda a, b: a.select(["key"]).union(b.select(["key"])), ["key"], [(1,), (2,), (3,), (None,)]),
        (lambda a, b: a.select(["key"]).intersect(b.select(["key"])), ["key"], [(2,)]),
        (lambda a, b: a.select(["key"]).except_(b.select(["key"])), ["key"], [(1,), (None,)]),
        (lambda a, b: a.distinct(), ["key", "text"], [(1, "x"), (2, "y"), (None, "z")]),
        (lambda a, b: a.join(b, "key", "key"), ["key", "text", "value"],
         [(2, "y", 0.5), (2, "y", 0.5), (2, "y", 2.5), (2, "y", 2.5)]),
        (lambda a, b: b.join(b, ["key", "value"], ["key", "value"]), ["key", "value"], [(2, 0.5), (2, 2.5), (3, 1.5)]),
        (lambda a, b: b.group_by("key", "SUM", "value"), ["key", "value"], [(2, 3.0), (3, 1.5)]),
        (lambda a, b: b.group_by(["key"], Function.AVG, ["value"]), ["key", "value"], [(2, 1.5), (3, 1.5)]),
        (lambda a, b: a.group_by("text", "COUNT DISTINCT", "key"), ["text", "count"], [("x", 1), ("y", 1), ("z", 0)]),
        (lambda a, b: b.group_by([], "MAX", ["value", "key"]), ["value", "key"], [(2.5, 3)]),
        (lambda a, b: a.count("key"), ["count"], [(3,)]),
        (lambda a, b: b.min("key", "value"), ["key", "value"], [(2, 0.5), (3, 1.5)]),
        (lambda a, b: b.max((), ["value"]), ["value"], [(2.5,)]),
        (lambda a, b: b.iterate(lambda now: now.select({"key": "key", "value": "value * 2"}), times=2),
         ["key", "value"], [(2, 10.0), (2, 2.0), (3, 6.0)]),
        (lambda a, b: b.iterate(lambda now: now.select({"key": "key", "value": "value * 2"}), "value < 10"),
         ["key", "value"], [(2, 16.0), (2, 80.0), (3, 48.0)]),
    ],
)  # fmt: skip
def test_a_method_makes(make: Callable[[Query, Query], Query], names: list[str], rows: Rows) -> None:
    assert answer(make) == (tuple(names), rows)


def test_the_interface_has_the_fourteen_methods_of_the_listing() -> None:
    listed = "select where select_many concat group_by join distinct union intersect except_ count min max iterate"
    assert len(listed.split()) == 14
    assert all(callable(getattr(Query, name)) for name in listed.split())


def test_a_body_may_read_what_stands_around_it_and_be_tested_on_what_it_makes() -> None:
    lindi = Lindi(TABLES)
    a, b = lindi.table("a"), lindi.table("b")
    numbers = b.select(["key"])

    def body(now: Query) -> tuple[Query, Query]:
        following = now.select({"key": "key - 1"}).distinct()
        return following, following.join(a, "key", "key").where("text = 'y'")

    dag = lindi.dag(numbers.iterate(body, "key > 0", name="left"))
    (loop,) = dag.of_type(While)
    assert loop.condition is not None
    assert not loop.condition.tested_first
    assert loop.inputs == ("select", "a")
    assert sorted(evaluate(dag, DATA)["left"].column("key").to_pylist()) == [0, 1]


def test_loops_stand_within_loops() -> None:
    lindi = Lindi(TABLES)

    def outer(now: Query) -> Query:
        return now.iterate(lambda inner: inner.select({"key": "key + 1", "value": "value"}), times=2)

    dag = lindi.dag(lindi.table("b").iterate(outer, times=3))
    (table,) = evaluate(dag, DATA).values()
    assert table.column("key").to_pylist() == [8, 9, 8]


def test_results_are_those_asked_for_or_those_that_nobody_reads() -> None:
    lindi = Lindi()
    table = lindi.table("t", key=Type.INTEGER)
    first = table.where("key > 1", name="t")
    second = first.distinct(name="second")
    assert lindi.dag().results == ("second",)
    assert lindi.dag(first, second).results == ("t", "second")
    assert lindi.dag(first).of_type(Scan)[0].table == "t"
    assert len(lindi.dag(first)) == 2


def test_columns_are_stated_or_known() -> None:
    with pytest.raises(InvalidWorkflow, match="nothing is known of the table t"):
        Lindi().table("t")
    with pytest.raises(UnknownRelation, match="is a meant"):
        Lindi(TABLES).table("aa")
    with pytest.raises(UnknownColumn, match="is key meant"):
        Lindi(TABLES).table("a", kez=Type.INTEGER)
    with pytest.raises(InvalidWorkflow, match="value of the table b is DOUBLE, not INTEGER"):
        Lindi(TABLES).table("b", Schema.of(value=Type.INTEGER))
    assert Lindi(TABLES).table("b", key=Type.DOUBLE).columns == Schema.of(key=Type.DOUBLE)


@pytest.mark.parametrize(
    ("make", "kind", "reason"),
    [
        (lambda a, b: a.where("kez = 1"), UnknownColumn, "there is no column kez; is key meant?"),
        (lambda a, b: a.where("key ="), InvalidSyntax, "does not parse"),
        (lambda a, b: a.where("SUM(key) > 1"), NotSupported, "SUM in an expression"),
        (lambda a, b: a.where(3), InvalidWorkflow, "3 is no text"),
        (lambda a, b: a.select({"n": "text + 1"}), TypeMismatch, "needs numbers"),
        (lambda a, b: a.select(["key", "key"]).select([]), InvalidWorkflow, "at least one column"),
        (lambda a, b: a.union(b), TypeMismatch, "whose columns differ"),
        (lambda a, b: a.join(b, ["key", "text"], ["key"]), InvalidWorkflow, "a join of 2 columns with 1"),
        (lambda a, b: a.group_by("key", "MEDIAN", "text"), InvalidWorkflow, "'MEDIAN' is no reducer; SUM, COUNT"),
        (lambda a, b: a.iterate(lambda now: now.distinct()), EndlessLoop, "without a condition and without times"),
        (lambda a, b: a.iterate(lambda now: now, times=2), EndlessLoop, "makes nothing new"),
        (lambda a, b: a.iterate(lambda now: b, times=2), EndlessLoop, "makes nothing new"),
        (lambda a, b: a.iterate(lambda now: now.select(["key"]), times=2), TypeMismatch, "change in the loop"),
        (lambda a, b: a.iterate(lambda now: 3, times=2), InvalidWorkflow, "3 is no relation of this workflow"),
        (lambda a, b: a.iterate(lambda now: now.distinct(), times=0), InvalidWorkflow, "0 iterations at most"),
        (lambda a, b: a.distinct(name="r").distinct(name="r"), NameTaken, "there is a relation r already"),
        (lambda a, b: Lindi(TABLES).table("a").union(a), InvalidWorkflow, "is used outside of the workflow"),
    ],
)
def test_is_refused_with_the_line_that_calls(
    make: Callable[[Query, Query], Query], kind: type[InvalidWorkflow], reason: str
) -> None:
    lindi = Lindi(TABLES)
    with pytest.raises(InvalidWorkflow) as refused:
        make(lindi.table("a"), lindi.table("b"))
    error = refused.value
    assert type(error) is kind
    assert reason in error.reason
    assert error.at is not None
    assert error.at.file == __file__
    assert "lambda a, b: " in error.source_line
    assert str(error).endswith("^")


def test_a_relation_of_a_body_is_of_no_use_after_the_loop() -> None:
    kept: list[Query] = []
    lindi = Lindi(TABLES)

    def body(now: Query) -> Query:
        kept.append(now.distinct())
        return kept[0]

    lindi.table("a").iterate(body, times=2)
    with pytest.raises(InvalidWorkflow, match="is used outside of the workflow, or of the body"):
        kept[0].distinct()


# ---- files


def test_a_program_makes_a_workflow() -> None:
    text = (
        "def workflow(lindi):\n    a = lindi.table('a')\n    return a.distinct(name='one'), a.concat(a, name='two')\n"
    )
    dag = parse(text, TABLES)
    assert dag.results == ("one", "two")
    (union,) = dag.of_type(Union)
    assert union.at == Position(3, 36, "<lindi>")
    assert parse("def workflow(lindi):\n    lindi.table('a').distinct(name='r')\n", TABLES).results == ("r",)


@pytest.mark.parametrize(
    ("text", "place", "reason"),
    [
        ("def workflow(lindi)\n    pass", "1:20", "expected ':'"),
        ("def flow(lindi):\n    pass", "1:1", "there is no function workflow(lindi)"),
        ("def workflow(lindi):\n    return lindi.table('c')\n", "2:12", "there is no relation c"),
        ("def workflow(lindi):\n    return lindi.table('a').where('k = 1')\n", "2:12", "there is no column k"),
        ("def workflow(lindi):\n    return lindi.table('a').whera('k = 1')\n", "2:12", "has no attribute 'whera'"),
        ("def workflow(lindi):\n    return 1 / 0\n", "2:12", "ZeroDivisionError: division by zero"),
        ("def workflow(lindi):\n    return lindi.table('a')\n    \n", "1:1", ""),
    ],
)
def test_a_program_that_makes_none_is_refused(text: str, place: str, reason: str) -> None:
    if not reason:
        assert len(parse(text, TABLES)) == 1
        return
    with pytest.raises(InvalidWorkflow) as refused:
        parse(text, TABLES, "w.py")
    assert str(refused.value.at) == f"w.py:{place}"
    assert reason in refused.value.reason
    assert str(refused.value).endswith("^")
