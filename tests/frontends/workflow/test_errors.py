"""Errors of workflows say where, show the line, offer the nearest name, and survive pickling."""

import builtins
import pickle
from typing import Any

import pytest

from frontends.workflow import errors
from frontends.workflow.errors import (
    ExtraMissing,
    InvalidWorkflow,
    IterationsExceeded,
    JobFailed,
    NameTaken,
    NotSupported,
    TableMismatch,
    TooLarge,
    UndecidableType,
    UnknownColumn,
    UnknownRelation,
)
from frontends.workflow.extra import needs_extra
from frontends.workflow.positions import Position, SourceText
from frontends.workflow.running.errors import WorkflowFailed
from sparrow_py.errors import InvalidRequest, SparrowError

TEXT = SourceText("a\n\tSELECT prize FROM homes\nc", "w.hql")
AT = Position(2, 9, "w.hql")
EXAMPLES = [
    InvalidWorkflow("no", AT, "a line"),
    NotSupported("a window function", AT),
    UnknownRelation("hoems", ["homes"]),
    UnknownColumn("x", [], AT),
    NameTaken("column", "a", "A"),
    UndecidableType("NULL"),
    TooLarge("rows", 5, 4),
    IterationsExceeded("loop", 3),
    TableMismatch("t", "is strange"),
    ExtraMissing("sqlglot"),
    JobFailed("duckdb", "MemoryError", ""),
    WorkflowFailed("no engine", ["job 1 on duckdb: MemoryError"], resumable=True),
]


def test_an_error_shows_the_line_and_a_caret() -> None:
    error = UnknownColumn("prize", ["id", "price"])
    assert str(error) == "workflow: there is no column prize; is price meant?"
    error.locate(AT, TEXT)
    assert str(error).split("\n") == [
        "w.hql:2:9: there is no column prize; is price meant?",
        "    SELECT prize FROM homes",
        "           ^",
    ]
    error.locate(Position(1, 1), TEXT)
    assert error.at == AT


@pytest.mark.parametrize(
    ("line", "column", "shown"),
    [
        ("a\tb x", 5, ("a   b x", "      ^")),
        ("'表' x", 5, ("'表' x", "     ^")),
        ("e\u0301 x", 4, ("e\u0301 x", "  ^")),
        ("\x1b[2J x", 6, ("\\x1b[2J x", "        ^")),
        ("x", 2, ("x", " ^")),
        ("x", 1, ("x", "^")),
    ],
    ids=["tab", "wide", "combining", "escape", "end", "start"],
)
def test_a_caret_stands_below_its_character(line: str, column: int, shown: tuple[str, str]) -> None:
    assert InvalidWorkflow("no\nmore", Position(1, column, "w"), line).lines == (f"w:1:{column}: no\nmore", *shown)


def test_a_line_of_another_file_is_not_shown() -> None:
    error = InvalidWorkflow("no", AT)
    error.locate(None, SourceText("x\ny", "other.hql"))
    assert str(error) == "w.hql:2:9: no"


@pytest.mark.parametrize(("offset", "place"), [(0, (1, 1)), (2, (2, 1)), (10, (2, 9)), (99, (3, 2)), (-1, (1, 1))])
def test_offsets_as_positions(offset: int, place: tuple[int, int]) -> None:
    found = TEXT.position(offset)
    assert (found.line, found.column) == place
    assert str(found) == f"w.hql:{place[0]}:{place[1]}"


def test_lines_that_are_not_there_are_empty() -> None:
    assert [SourceText("a\r\nb").line(number) for number in (0, 1, 2, 3)] == ["", "a", "b", ""]


@pytest.mark.parametrize(
    ("name", "known", "offer"),
    [
        ("usa_spenders", ["usa_shoppers", "top"], "is usa_shoppers meant?"),
        ("PRICE", ["Price"], "is Price meant?"),
        ("x", ["price", "town"], "relations: price, town"),
        ("x", [f"relation{n}" for n in range(20)], "relation7, … (20 in all)"),
        ("x", [], "there are no relations"),
    ],
)
def test_the_nearest_name_is_offered(name: str, known: list[str], offer: str) -> None:
    assert str(UnknownRelation(name, known)).endswith(offer)


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_errors_survive_pickling(error: SparrowError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)


def test_the_tree_of_the_docstring_is_that_of_the_code() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, SparrowError)]
    ours = [kind for kind in kinds if kind.__module__ == errors.__name__]
    assert errors.__doc__ is not None
    for kind in ours:
        (line,) = (line for line in errors.__doc__.split("\n") if f"── {kind.__name__} " in line)
        depth = line.index("──") // 4
        assert len([base for base in kind.__mro__ if issubclass(base, SparrowError)]) - 1 >= depth, kind
    assert issubclass(InvalidWorkflow, InvalidRequest)


def test_a_missing_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def missing(name: str, *rest: Any) -> Any:
        if name == "sqlglot":
            raise ModuleNotFoundError("no", name="sqlglot")
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(ExtraMissing, match=r"sqlglot is not installed.*workflow"), needs_extra():
        import sqlglot  # noqa: F401
    with pytest.raises(ModuleNotFoundError), needs_extra():
        import no_such_package  # noqa: F401


def test_an_engine_that_there_is_not_is_named() -> None:
    error = errors.UnknownEngine("nosuch", ["duckdb", "serial"])
    assert str(error).startswith("there is no engine 'nosuch'")
    assert "duckdb, serial" in str(error)


def test_an_exception_without_a_message_is_its_name_alone() -> None:
    assert str(JobFailed("duckdb", "MemoryError", "")) == "the engine duckdb failed: MemoryError"
    assert str(JobFailed("duckdb", "ValueError", "so")) == "the engine duckdb failed: ValueError: so"
