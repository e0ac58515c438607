"""Lindi: workflows in Python, with the methods of the thesis's interface (§3.2.2, listing 3.3).

    lindi = Lindi()
    purchases = lindi.table("purchases", user_id=Type.INTEGER, amount=Type.INTEGER, country=Type.STRING)
    spent = purchases.where("country = 'USA'").group_by(["user_id"], "SUM", "amount")
    dag = lindi.dag(spent.where("amount > 12000", name="big_spenders"))

Columns go by their names. Conditions and computed columns are expressions of SQL, of the subset in `ir/scalars/`.
Each method makes a relation, which may be given a name. An error points at the call of the method, one of types at the
place in the expression, if that stands in the call as it is.

| method | makes |
|---|---|
| `select`, `where` | columns, perhaps computed, of the rows that meet a condition; these rows |
| `select_many` | for each row the rows of another relation for which a condition holds, beside it |
| `concat`, `union`, `intersect`, `except_`, `distinct` | of bags `concat`, the others sets |
| `group_by`, `count`, `min`, `max` | a row for each group, or one |
| `join` | columns of the left relation, then those of the right that are no keys |
| `iterate` | what a loop leaves |
"""

from __future__ import annotations

import contextlib
import linecache
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from types import FrameType

from frontends.workflow.errors import EndlessLoop, InvalidSyntax, InvalidWorkflow, NameTaken, UnknownRelation
from frontends.workflow.ir.dag import (
    ITERATIONS_MAX,
    Aggregate,
    Aggregation,
    CrossJoin,
    Dag,
    Difference,
    Distinct,
    Function,
    Input,
    Intersect,
    Join,
    LoopCondition,
    Operator,
    Output,
    Project,
    Relation,
    Scan,
    Select,
    Union,
    free_name,
    joined_columns,
)
from frontends.workflow.ir.scalars.expressions import Scalar
from frontends.workflow.ir.types import Schema, Type
from frontends.workflow.languages.scopes import Scope
from frontends.workflow.positions import Position, SourceText

ENTRY = "workflow"
"""The function of a file that makes the workflow."""

Names = str | Sequence[str]


class Lindi:
    """A workflow that is being written. tables: the columns of the tables there are, None if they are not known."""

    def __init__(self, tables: Mapping[str, Schema] | None = None) -> None:
        self._tables = tables
        self._open = [Scope()]
        self._named: dict[str, str] = {}

    def table(self, name: str, columns: Schema | None = None, **types: Type) -> Query:
        """The table of this name. columns, or types by name: which of its columns; without them all, if it is known."""
        with _pointing_here() as at:
            if self._tables is not None and name not in self._tables:
                raise UnknownRelation(name, self._tables)
            known = None if self._tables is None else self._tables[name]
            declared = columns or (Schema.of(**types) if types else known)
            if declared is known is not None:
                known.check_whole("table() without columns")
            if declared is None:
                raise InvalidWorkflow(f"nothing is known of the table {name}: state its columns")
            if known is not None:
                _check_declared(declared, known, name)
            scope = self._open[0]
            return Query(self, scope, scope.add(Scan(name=scope.fresh(name), table=name, columns=declared, at=at)))

    def dag(self, *results: Query) -> Dag:
        """The workflow that makes these relations; without them, all relations that nothing is made from."""
        with _pointing_here():
            scope = self._open[0]
            names = scope.plain_names(self._named)
            if results:
                return scope.dag_of([one._within(scope) for one in results], names)
            return scope.dag(scope.relations(), names)

    def _called(self, query: Query, name: str) -> Query:
        """Note the name that the relation is given; only those outside of loops have it to themselves."""
        if name and len(self._open) == 1:
            if name in self._named.values():
                raise NameTaken("relation", name, name)
            self._named[query._relation.name] = name
        return query


class Query:
    """A relation of a workflow that is being written."""

    def __init__(self, lindi: Lindi, scope: Scope, relation: Relation) -> None:
        self._lindi, self._scope, self._relation = lindi, scope, relation

    @property
    def columns(self) -> Schema:
        return self._relation.schema

    # ---- rows

    def select(self, columns: Sequence[str] | Mapping[str, str], condition: str = "", name: str = "") -> Query:
        """These columns of the rows that meet the condition. columns: names, or {name: expression}."""
        with _pointing_here() as at:
            source = self._met(condition, at)
            values = columns if isinstance(columns, Mapping) else {_text(one): "" for one in columns}
            outputs = [
                Output(new, _scalar(value, at) if value else Scalar.column(new)) for new, value in values.items()
            ]
            return self._add(
                lambda fresh: Project(name=fresh, source=source, columns=tuple(outputs), at=at), "select", name
            )

    def where(self, condition: str, name: str = "") -> Query:
        """The rows that meet the condition."""
        with _pointing_here() as at:
            test, source = _scalar(_text(condition), at), self._here()
            return self._add(lambda fresh: Select(name=fresh, source=source, condition=test, at=at), "where", name)

    def select_many(self, other: Query, condition: str = "", name: str = "") -> Query:
        """Each row beside each row of the other relation for which the condition holds.

        A column of the other that has the name of one here has its relation's name before it.
        """
        with _pointing_here() as at:
            left, right = self._here(), self._beside(other)
            columns = joined_columns(left, right)
            pairs = self._add(
                lambda fresh: CrossJoin(name=fresh, left=left, right=right, columns=columns, at=at),
                "select_many",
                "" if condition else name,
            )
        return pairs.where(condition, name) if condition else pairs

    def _met(self, condition: str, at: Position) -> Relation:
        return self.where(condition)._relation if condition else self._here()

    # ---- two relations

    def concat(self, other: Query, name: str = "") -> Query:
        """The rows of both, with as many copies as both have."""
        with _pointing_here() as at:
            left, right = self._here(), self._beside(other)
            return self._add(
                lambda fresh: Union(name=fresh, left=left, right=right, all_rows=True, at=at), "concat", name
            )

    def union(self, other: Query, name: str = "") -> Query:
        """The rows that are in either, each once."""
        with _pointing_here() as at:
            left, right = self._here(), self._beside(other)
            return self._add(lambda fresh: Union(name=fresh, left=left, right=right, at=at), "union", name)

    def intersect(self, other: Query, name: str = "") -> Query:
        """The rows that are in both, each once."""
        with _pointing_here() as at:
            left, right = self._here(), self._beside(other)
            return self._add(lambda fresh: Intersect(name=fresh, left=left, right=right, at=at), "intersect", name)

    def except_(self, other: Query, name: str = "") -> Query:
        """The rows that the other does not have, each once."""
        with _pointing_here() as at:
            left, right = self._here(), self._beside(other)
            return self._add(lambda fresh: Difference(name=fresh, left=left, right=right, at=at), "except", name)

    def join(self, other: Query, left: Names, right: Names, name: str = "") -> Query:
        """Rows of both whose keys are equal: all columns here, then those of the other but its keys.

        A column of the other that has the name of one here has its relation's name before it.
        """
        with _pointing_here() as at:
            one, two, keys = self._here(), self._beside(other), (_names(left), _names(right))
            if len(keys[0]) != len(keys[1]):
                raise InvalidWorkflow(f"a join of {len(keys[0])} columns with {len(keys[1])}")
            columns = joined_columns(one, two, without=keys[1])
            on = tuple(zip(*keys, strict=True))
            return self._add(
                lambda fresh: Join(name=fresh, left=one, right=two, on=on, columns=columns, at=at), "join", name
            )

    # ---- all rows

    def distinct(self, name: str = "") -> Query:
        """Each row once."""
        with _pointing_here() as at:
            source = self._here()
            return self._add(lambda fresh: Distinct(name=fresh, source=source, at=at), "distinct", name)

    def group_by(self, columns: Names, reducer: Function | str, column: Names, name: str = "") -> Query:
        """A row for each combination of `columns`, then the reduced column or columns, which keep their names.

        reducer: SUM, COUNT, MIN, MAX, AVG or COUNT DISTINCT; what is counted is called `count`.
        """
        with _pointing_here() as at:
            function = _function(reducer)
            return self._aggregate(_names(columns), function, _names(column), "group_by", name, at)

    def count(self, column: str, name: str = "") -> Query:
        """One row: how many values of the column are not null, as `count`."""
        with _pointing_here() as at:
            return self._aggregate((), Function.COUNT, (_text(column),), "count", name, at)

    def min(self, group_by: Names, columns: Names, name: str = "") -> Query:
        """The least values of columns, in each combination of the columns `group_by`; one row if these are none."""
        with _pointing_here() as at:
            return self._aggregate(_names(group_by), Function.MIN, _names(columns), "min", name, at)

    def max(self, group_by: Names, columns: Names, name: str = "") -> Query:
        """The greatest values of columns, in each combination of the columns `group_by`; one row if these are none."""
        with _pointing_here() as at:
            return self._aggregate(_names(group_by), Function.MAX, _names(columns), "max", name, at)

    def _aggregate(
        self, keys: tuple[str, ...], function: Function, columns: Sequence[str], usual: str, name: str, at: Position
    ) -> Query:
        counts, taken, parts, source = function in _COUNTS, list(keys), [], self._here()
        for column in columns:
            taken.append(free_name("count" if counts else column, taken))
            parts.append(Aggregation(taken[-1], function, column))
        return self._add(
            lambda fresh: Aggregate(name=fresh, source=source, keys=keys, aggregations=tuple(parts), at=at), usual, name
        )

    # ---- loops

    def iterate(
        self,
        body: Callable[[Query], Query | tuple[Query, Query]],
        condition: str = "",
        times: int | None = None,
        name: str = "",
    ) -> Query:
        """The relation after a loop, whose body makes its next value from its present one.

        The loop goes on while the condition holds for any row of the relation, also before the first iteration. If the
        body gives a pair, the condition is tested on rows of the second, after each iteration. times: the iterations;
        with a condition the most, after which the workflow fails.
        """
        with _pointing_here() as at:
            if not condition and times is None:
                raise EndlessLoop("iterate without a condition and without times never ends")
            lindi, outside = self._lindi, self._here()
            outer = lindi._open[-1]
            inner = Scope(outer)
            inside = Query(lindi, inner, inner.imported(outside, at))
            lindi._open.append(inner)
            try:
                made = body(inside)
                following, tested = made if isinstance(made, tuple) else (made, inside)
                relations = [_query(one)._within(inner) for one in (following, tested)]
            finally:
                lindi._open.pop()
            if isinstance(inner.operator(relations[0]), Input):
                raise EndlessLoop("the body of iterate makes nothing new")
            first = not isinstance(made, tuple)
            goes_on = LoopCondition(relations[1].name, _scalar(condition, at), first) if condition else None
            left = outer.loop(inner, {outside: relations[0]}, goes_on, ITERATIONS_MAX if times is None else times, at)
            return lindi._called(Query(lindi, outer, left[outside]), name)

    # ---- where this is

    def _here(self) -> Relation:
        """The relation, in the body that is being written."""
        return self._within(self._lindi._open[-1])

    def _beside(self, other: Query) -> Relation:
        return _query(other)._within(self._lindi._open[-1])

    def _within(self, scope: Scope) -> Relation:
        if self._scope is scope:
            return self._relation
        if scope.outer is None:
            raise InvalidWorkflow(
                f"{self._relation.name} is used outside of the workflow, or of the body, that makes it"
            )
        return scope.imported(self._within(scope.outer))

    def _add(self, make: Callable[[str], Operator], usual: str, name: str) -> Query:
        scope = self._lindi._open[-1]
        made = Query(self._lindi, scope, scope.add(make(scope.fresh(name or usual))))
        return self._lindi._called(made, name)


_COUNTS = (Function.COUNT, Function.COUNT_DISTINCT)


_PARSED: ContextVar[SourceText | None] = ContextVar("_PARSED", default=None)
"""The text of the program that is run, which need not be in a file."""
CALL_LINES_MAX = 20
"""Lines of a call in which its texts are looked for."""


def parse(text: str, tables: Mapping[str, Schema] | None = None, file: str = "<lindi>") -> Dag:
    """The workflow that the function `workflow(lindi)` of this Python program makes; the program is run.

    It may return relations, or a tuple of them, which are the results then.
    """
    source = SourceText(text, file)
    parsed = _PARSED.set(source)
    try:
        namespace: dict[str, object] = {"__name__": "lindi_workflow", "__file__": file}
        exec(compile(text, file, "exec"), namespace)
        entry = namespace.get(ENTRY)
        if not callable(entry):
            raise InvalidSyntax(f"there is no function {ENTRY}(lindi)", Position(1, 1, file))
        lindi = Lindi(tables)
        made = entry(lindi)
        return lindi.dag(*(() if made is None else made if isinstance(made, tuple) else (made,)))
    except InvalidWorkflow as error:
        error.locate(Position(1, 1, file), source)
        raise
    except SyntaxError as error:
        raise _located(InvalidSyntax(str(error.msg)), error.lineno, error.offset, source) from None
    except Exception as error:
        lines = [one for one in traceback.extract_tb(error.__traceback__) if one.filename == file]
        line, column = (lines[-1].lineno, (lines[-1].colno or 0) + 1) if lines else (1, 1)
        raise _located(InvalidWorkflow(f"{type(error).__name__}: {error}"), line, column, source) from error
    finally:
        _PARSED.reset(parsed)


def _located(error: InvalidWorkflow, line: int | None, column: int | None, source: SourceText) -> InvalidWorkflow:
    error.locate(Position(line or 1, max(1, column or 1), source.file), source)
    return error


@contextlib.contextmanager
def _pointing_here() -> Iterator[Position]:
    """The place of the call of this module; errors that have no place get it."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and (
        frame.f_code.co_filename == __file__ or frame.f_globals.get("__name__") == "contextlib"
    ):
        frame = frame.f_back
    assert frame is not None
    file, line = frame.f_code.co_filename, frame.f_lineno
    column = [one[2] for one in frame.f_code.co_positions()][frame.f_lasti // 2]
    at = Position(line, (column or 0) + 1, file)
    try:
        yield at
    except InvalidWorkflow as error:
        error.locate(at, _source(file))
        raise


def _scalar(text: str, at: Position) -> Scalar:
    """The scalar of a text that stands in the call at this place, so that errors of its types say where in it."""
    return Scalar(text, at, _in_quotes(text, at))


def _in_quotes(text: str, at: Position) -> Position | None:
    """Where the text begins, if it stands in quotes as it is, on one of the lines from there on; else None."""
    source = _source(at.file)
    quoted = re.compile(rf"""(?<![\w"'])(["']){re.escape(text)}\1""")
    for number in range(at.line, at.line + CALL_LINES_MAX):
        found = quoted.search(source.line(number), at.column - 1 if number == at.line else 0)
        if found is not None and "\\" not in text:
            return Position(number, found.start() + 2, at.file)
    return None


def _source(file: str) -> SourceText:
    """The program that is parsed, or what else is in the file; empty if nobody knows."""
    parsed = _PARSED.get()
    return parsed if parsed is not None and parsed.file == file else SourceText("".join(linecache.getlines(file)), file)


def _check_declared(declared: Schema, known: Schema, table: str) -> None:
    for column in declared:
        there = known.column(column.name).type
        if there is not column.type and not (there is Type.INTEGER and column.type is Type.DOUBLE):
            raise InvalidWorkflow(f"{column.name} of the table {table} is {there.value}, not {column.type.value}")


def _names(names: Names) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(_text(one) for one in names)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise InvalidWorkflow(f"{value!r} is no text")
    return value


def _query(value: object) -> Query:
    if not isinstance(value, Query):
        raise InvalidWorkflow(f"{value!r} is no relation of this workflow")
    return value


def _function(reducer: Function | str) -> Function:
    if isinstance(reducer, Function):
        return reducer
    known = {one.value: one for one in Function}
    if reducer not in known:
        raise InvalidWorkflow(f"{reducer!r} is no reducer; {', '.join(known)} are")
    return known[reducer]
