"""Random workflows and data, to hold engines, rewrites and printers against the reference interpreter.

What is random stays clear of what is undefined, and of what differs between engines only in the last bits: doubles are
multiples of 1/8, which sums in any order give exactly, products have a constant on one side, divisors are powers of two
or zero, and averages are handed on but not computed with. No INTEGER comes near 64 bits.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from hypothesis import strategies as st

from frontends.workflow.ir.dag import (
    Aggregate,
    Aggregation,
    Arithmetic,
    Carried,
    CrossJoin,
    Dag,
    Difference,
    Distinct,
    Function,
    Input,
    Intersect,
    Join,
    JoinKind,
    JoinOutput,
    LoopCondition,
    Operator,
    Output,
    Project,
    Relation,
    Scan,
    Select,
    Side,
    Sort,
    SortKey,
    Top,
    Union,
    Values,
    While,
    free_name,
    loop_result,
)
from frontends.workflow.ir.scalars.expressions import Scalar
from frontends.workflow.ir.scalars.normal_form import column as column_tree
from frontends.workflow.ir.tables import arrow_schema
from frontends.workflow.ir.types import Column, Schema, Type

TOLERANCE = 1e-9
"""Relative, of doubles."""
ROWS_MAX = 8
"""Rows of a random table."""
PRODUCT_ROWS_MAX = 400
"""Rows that a random join may have at most: others are not made."""

KINDS: tuple[type[Operator], ...] = (
    Select, Project, Arithmetic, Join, CrossJoin, Union, Intersect, Difference, Distinct, Aggregate, Sort, Top, While,
    Values,
)  # fmt: skip
"""Operators that random workflows have beside scans, unless fewer are asked for."""

COLUMN_NAMES = (
    "a",
    "b",
    "c",
    "key",
    "Value",
    "order",
    "group",
    "select",
    "two words",
    "naïve",
    "x1",
    "end",
    'a "quote"',
)
CONSTANTS: dict[Type, tuple[str, ...]] = {
    Type.INTEGER: ("0", "1", "-1", "2", "7", "-3"),
    Type.DOUBLE: ("0.0", "0.5", "-1.25", "3.0", "0.125"),
    Type.STRING: ("''", "'a'", "'ab'", "'it''s'", "'12'", "'ü'"),
    Type.BOOLEAN: ("TRUE", "FALSE"),
    Type.DATE: ("DATE '2020-02-29'", "DATE '1999-12-31'", "DATE '2020-01-31'"),
}
NUMBERS = st.integers(-16, 16)
POOLS: dict[Type, st.SearchStrategy[object]] = {
    Type.INTEGER: st.integers(-4, 4),
    Type.DOUBLE: NUMBERS.map(lambda eighths: eighths / 8) | st.just(math.nan),
    Type.STRING: st.sampled_from(
        ("", "a", "A", "ab", "a_b", "a%", "it's", "ü", "12", "-3", "1.5", " 1", "2020-02-29", "é\n")
    ),
    Type.BOOLEAN: st.booleans(),
    Type.DATE: st.sampled_from([datetime.date(2020, 1, 31), datetime.date(2020, 2, 29), datetime.date(1999, 12, 31)]),
}
Draw = Callable[[st.SearchStrategy[object]], object]


@dataclass(frozen=True, slots=True)
class Case:
    """A workflow and the tables that it scans."""

    dag: Dag
    tables: dict[str, pa.Table]


# ---- data ------------------------------------------------------------------------------------


def schemas(columns_max: int = 4) -> st.SearchStrategy[Schema]:
    """Schemas of any types, with names that are keywords, have spaces, quotes and capitals."""
    names = st.lists(st.sampled_from(COLUMN_NAMES), min_size=1, max_size=columns_max, unique_by=str.casefold)
    return names.flatmap(
        lambda chosen: st.tuples(*(st.sampled_from(Type) for _ in chosen)).map(
            lambda types: Schema(tuple(map(Column, chosen, types)))
        )
    )


def tables(schema: Schema, rows_max: int = ROWS_MAX) -> st.SearchStrategy[pa.Table]:
    """Tables of few different values, so that rows have duplicates and partners, of which some are null or NaN."""
    row = st.tuples(*(st.none() | POOLS[type_] for type_ in schema.types))
    rows = st.lists(row, min_size=rows_max // 2, max_size=rows_max) | st.lists(row, max_size=rows_max)
    return rows.map(lambda rows: _table(schema, rows))


def _table(schema: Schema, rows: Sequence[tuple[object, ...]]) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else [()] * len(schema)
    arrow = arrow_schema(schema)
    return pa.table([pa.array(list(one), type=field.type) for one, field in zip(columns, arrow, strict=True)], arrow)


# ---- scalars ---------------------------------------------------------------------------------


@st.composite
def scalars(
    draw: st.DrawFn, schema: Schema, type_: Type, levels: int = 2, without: frozenset[str] = frozenset()
) -> Scalar:
    """Scalars of this type that do not read the columns `without`."""
    columns: dict[Type, list[str]] = {one: [] for one in Type}
    for column in schema:
        if column.name not in without:
            columns[column.type].append(column_tree(column.name).sql())
    return Scalar(_Texts(draw, columns).of(type_, levels))


class _Texts:
    """Draws expressions as texts."""

    def __init__(self, draw: st.DrawFn, columns: dict[Type, list[str]]) -> None:
        self._draw, self._columns = draw, columns

    def _one_of(self, *choices: str) -> str:
        return self._draw(st.sampled_from(choices))

    def constant(self, type_: Type) -> str:
        return self._one_of(*CONSTANTS[type_])

    def of(self, type_: Type, levels: int) -> str:
        if levels == 0 or self._draw(st.integers(0, 3)) == 0:
            columns = self._columns[type_]
            return self._one_of(*columns) if columns and self._draw(st.integers(0, 3)) else self.constant(type_)
        shapes = [*_SHAPES[type_], *_ANY_SHAPES]
        return self._draw(st.sampled_from(shapes))(self, type_, levels - 1)

    def number(self, levels: int) -> str:
        return self.of(self._draw(st.sampled_from((Type.INTEGER, Type.DOUBLE))), levels)

    def choice(self, type_: Type, levels: int) -> str:
        test, value = self.of(Type.BOOLEAN, levels), self.of(type_, levels)
        otherwise = self._draw(st.sampled_from((" ELSE NULL", "", f" ELSE {self.of(type_, levels)}")))
        return f"CASE WHEN {test} THEN {value}{otherwise} END"

    def coalesce(self, type_: Type, levels: int) -> str:
        return f"COALESCE({self.of(type_, levels)}, {self.of(type_, levels)})"

    def nullif(self, type_: Type, levels: int) -> str:
        return f"NULLIF({self.of(type_, levels)}, {self.constant(type_)})"

    def null(self, type_: Type, levels: int) -> str:
        return f"CAST(NULL AS {'BIGINT' if type_ is Type.INTEGER else type_.value})"

    def sum(self, type_: Type, levels: int) -> str:
        other = self.number(levels) if type_ is Type.DOUBLE else self.of(type_, levels)
        return f"({self.of(type_, levels)} {self._one_of('+', '-')} {other})"

    def product(self, type_: Type, levels: int) -> str:
        return f"({self.of(type_, levels)} * {self._one_of('2', '-1', '3', '0')})"

    def quotient(self, type_: Type, levels: int) -> str:
        """A power of two, zero, or what is -1, 0 or 1."""
        divisor = self._one_of("2", "-4", "0.5", "0", f"({self.of(Type.INTEGER, levels)} % 2)")
        return f"({self.number(levels)} / {divisor})"

    def remainder(self, type_: Type, levels: int) -> str:
        return f"({self.of(type_, levels)} % {self.of(type_, levels)})"

    def opposite(self, type_: Type, levels: int) -> str:
        return f"{self._one_of('-', 'ABS')}({self.of(type_, levels)})"

    def to_integer(self, type_: Type, levels: int) -> str:
        return (
            f"CAST({self.of(self._draw(st.sampled_from((Type.DOUBLE, Type.STRING, Type.BOOLEAN))), levels)} AS BIGINT)"
        )

    def part(self, type_: Type, levels: int) -> str:
        return f"EXTRACT({self._one_of('YEAR', 'MONTH', 'DAY')} FROM {self.of(Type.DATE, levels)})"

    def to_double(self, type_: Type, levels: int) -> str:
        return f"CAST({self.of(Type.INTEGER, levels)} AS DOUBLE)"

    def substring(self, type_: Type, levels: int) -> str:
        return f"SUBSTRING({self.of(type_, levels)}, {self._one_of('1', '2')}, {self._one_of('0', '1', '2')})"

    def joined(self, type_: Type, levels: int) -> str:
        return f"({self.of(type_, levels)} || {self.of(type_, levels)})"

    def to_string(self, type_: Type, levels: int) -> str:
        return f"CAST({self.of(self._draw(st.sampled_from((Type.INTEGER, Type.BOOLEAN, Type.DATE))), levels)} AS TEXT)"

    def comparison(self, type_: Type, levels: int) -> str:
        of = self._draw(st.sampled_from(Type))
        sign = self._one_of("=", "<>", "<", "<=", ">", ">=", "IS NOT DISTINCT FROM", "IS DISTINCT FROM")
        left, right = (self.number(levels) if of.numeric else self.of(of, levels) for _ in range(2))
        return f"(({left}) {sign} ({right}))"

    def between(self, type_: Type, levels: int) -> str:
        of = self._draw(st.sampled_from(Type))
        return f"(({self.of(of, levels)}) BETWEEN ({self.of(of, levels)}) AND ({self.of(of, levels)}))"

    def membership(self, type_: Type, levels: int) -> str:
        of = self._draw(st.sampled_from(Type))
        return f"(({self.of(of, levels)}) IN ({self.constant(of)}, {self.constant(of)}))"

    def like(self, type_: Type, levels: int) -> str:
        pattern = self._one_of("a%", "%", "_", "%b", "a_b", "", "%.%", "é%")
        return f"(({self.of(Type.STRING, levels)}) LIKE '{pattern}')"

    def is_null(self, type_: Type, levels: int) -> str:
        return f"(({self.of(self._draw(st.sampled_from(Type)), levels)}) IS {self._one_of('', 'NOT ')}NULL)"

    def connected(self, type_: Type, levels: int) -> str:
        return f"({self.of(type_, levels)} {self._one_of('AND', 'OR')} {self.of(type_, levels)})"

    def negated(self, type_: Type, levels: int) -> str:
        return f"(NOT ({self.of(type_, levels)}))"

    def to_boolean(self, type_: Type, levels: int) -> str:
        return f"CAST({self.of(Type.INTEGER, levels)} AS BOOLEAN)"

    def moved(self, type_: Type, levels: int) -> str:
        unit = self._one_of("DAY", "WEEK", "MONTH", "YEAR")
        sign, count = self._one_of("+", "-"), self._one_of("0", "1", "13")
        return f"(({self.of(type_, levels)}) {sign} INTERVAL '{count}' {unit})"

    def to_date(self, type_: Type, levels: int) -> str:
        return f"CAST(({self.of(Type.STRING, levels)} || '') AS DATE)"


_ANY_SHAPES = (_Texts.choice, _Texts.coalesce, _Texts.nullif, _Texts.null)
_ARITHMETIC = (_Texts.sum, _Texts.sum, _Texts.product, _Texts.remainder, _Texts.opposite)
_SHAPES: dict[Type, tuple[Callable[[_Texts, Type, int], str], ...]] = {
    Type.INTEGER: (*_ARITHMETIC, _Texts.to_integer, _Texts.part),
    Type.DOUBLE: (*_ARITHMETIC, _Texts.quotient, _Texts.quotient, _Texts.to_double),
    Type.STRING: (_Texts.substring, _Texts.joined, _Texts.to_string),
    Type.BOOLEAN: (
        _Texts.comparison,
        _Texts.comparison,
        _Texts.between,
        _Texts.membership,
        _Texts.like,
        _Texts.is_null,
        _Texts.connected,
        _Texts.negated,
        _Texts.to_boolean,
    ),
    Type.DATE: (_Texts.moved, _Texts.to_date),
}

# ---- workflows -------------------------------------------------------------------------------


@dataclass(slots=True)
class _Made:
    """A relation of a workflow that is being drawn. rows_max: how many rows it has at most; averages: its columns that
    are such, which nothing is computed from."""

    operator: Operator
    rows_max: int
    averages: frozenset[str] = frozenset()

    @property
    def relation(self) -> Relation:
        return self.operator.relation

    @property
    def schema(self) -> Schema:
        return self.operator.schema


@dataclass
class _Drawing:
    """A workflow that is being drawn."""

    draw: st.DrawFn
    made: list[_Made] = field(default_factory=list)
    operators: list[Operator] = field(default_factory=list)

    def name(self) -> str:
        stem = self.draw(st.sampled_from(("r", "Rel", "select", "two words", "group")))
        return free_name(stem, (operator.name for operator in self.operators))

    def add(self, operator: Operator, rows_max: int, averages: Iterable[str] = ()) -> None:
        self.operators.append(operator)
        self.made.append(_Made(operator, rows_max, frozenset(averages) & set(operator.schema.names)))

    def pick(self) -> _Made:
        """Any relation, more often one of the last."""
        place = self.draw(st.integers(0, len(self.made) - 1))
        return self.made[len(self.made) - 1 - place]

    def pick_pair(self) -> tuple[_Made, _Made] | None:
        left, right = self.pick(), self.pick()
        return (left, right) if left.rows_max * right.rows_max <= PRODUCT_ROWS_MAX else None

    def scalar(self, source: _Made, type_: Type | None = None) -> Scalar:
        type_ = type_ or self.draw(st.sampled_from(Type))
        return self.draw(scalars(source.schema, type_, without=source.averages))

    def keys(self, schema: Schema, least: int = 0) -> list[str]:
        return self.draw(st.lists(st.sampled_from(schema.names), min_size=least, max_size=3, unique=True))

    # ---- an operator each

    def select(self) -> None:
        source = self.pick()
        condition = self.scalar(source, Type.BOOLEAN)
        made = Select(name=self.name(), source=source.relation, condition=condition)
        self.add(made, source.rows_max, source.averages)

    def project(self) -> None:
        source = self.pick()
        names = self.draw(st.lists(st.sampled_from(COLUMN_NAMES), min_size=1, max_size=4, unique_by=str.casefold))
        outputs, averages = [], []
        for name in names:
            if self.draw(st.booleans()):
                column = self.draw(st.sampled_from(source.schema.names))
                outputs.append(Output.column(column, name))
                averages += [name] if column in source.averages else []
            else:
                outputs.append(Output(name, self.scalar(source)))
        made = Project(name=self.name(), source=source.relation, columns=tuple(outputs))
        self.add(made, source.rows_max, averages)

    def arithmetic(self) -> None:
        source = self.pick()
        new = free_name(self.draw(st.sampled_from(COLUMN_NAMES)), source.schema.names)
        column = self.draw(st.sampled_from((*source.schema.names, new)))
        made = Arithmetic(name=self.name(), source=source.relation, column=column, value=self.scalar(source))
        self.add(made, source.rows_max, source.averages - {column})

    def outputs(self, left: _Made, right: _Made | None) -> tuple[tuple[JoinOutput, ...], list[str]]:
        """Some columns of the two sides, and the names of those that are averages."""
        there = [(Side.LEFT, name, name in left.averages) for name in left.schema.names]
        if right is not None:
            there += [(Side.RIGHT, name, name in right.averages) for name in right.schema.names]
        chosen = self.draw(st.lists(st.sampled_from(there), min_size=1, max_size=5, unique=True))
        outputs: list[JoinOutput] = []
        averages = []
        for side, column, average in chosen:
            name = free_name(column, (one.name for one in outputs))
            outputs.append(JoinOutput(name, side, column))
            averages += [name] if average else []
        return tuple(outputs), averages

    def join(self) -> None:
        pair = self.pick_pair()
        if pair is None:
            return
        left, right = pair
        fitting = [(one.name, other.name) for one in left.schema for other in right.schema if one.type is other.type]
        if not fitting:
            return
        on = self.draw(st.lists(st.sampled_from(fitting), min_size=1, max_size=2, unique=True))
        kind = self.draw(st.sampled_from(JoinKind))
        columns, averages = self.outputs(left, right if kind.pairs else None)
        made = Join(
            name=self.name(), left=left.relation, right=right.relation, on=tuple(on), kind=kind, columns=columns
        )
        self.add(made, left.rows_max * max(1, right.rows_max) if kind.pairs else left.rows_max, averages)

    def cross_join(self) -> None:
        pair = self.pick_pair()
        if pair is None:
            return
        columns, averages = self.outputs(*pair)
        made = CrossJoin(name=self.name(), left=pair[0].relation, right=pair[1].relation, columns=columns)
        self.add(made, pair[0].rows_max * pair[1].rows_max, averages)

    def two_alike(self, kind: type[Union] | type[Intersect] | type[Difference]) -> None:
        """Of the second relation a projection to the types of the first, if there is none that fits."""
        left, right = self.pick(), self.pick()
        if left.rows_max + right.rows_max > PRODUCT_ROWS_MAX:
            return
        if left.schema.types != right.schema.types:
            columns = tuple(
                Output(one.name, self.draw(scalars(right.schema, one.type, 1, without=right.averages)))
                for one in left.schema
            )
            self.add(Project(name=self.name(), source=right.relation, columns=columns), right.rows_max)
            right = self.made[-1]
        averages = {
            one for one, other in zip(left.schema.names, right.schema.names, strict=True)
            if one in left.averages or other in right.averages
        }  # fmt: skip
        sides = {"name": self.name(), "left": left.relation, "right": right.relation}
        if kind is Union:
            self.add(Union(**sides, all_rows=self.draw(st.booleans())), left.rows_max + right.rows_max, averages)
        else:
            self.add(kind(**sides), left.rows_max, averages)

    def distinct(self) -> None:
        source = self.pick()
        self.add(Distinct(name=self.name(), source=source.relation), source.rows_max, source.averages)

    def aggregate(self) -> None:
        source = self.pick()
        keys = self.keys(source.schema)
        functions = self.draw(st.lists(st.sampled_from(Function), min_size=1, max_size=3))
        aggregations: list[Aggregation] = []
        averages = [key for key in keys if key in source.averages]
        for function in functions:
            name = free_name(function.name.lower(), [*keys, *(one.name for one in aggregations)])
            column, average = self.argument(source, function)
            if column is None and function is not Function.COUNT:
                continue
            aggregations.append(Aggregation(name, function, column))
            averages += [name] if average else []
        if aggregations:
            made = Aggregate(
                name=self.name(), source=source.relation, keys=tuple(keys), aggregations=tuple(aggregations)
            )
            self.add(made, max(1, source.rows_max), averages)

    def argument(self, source: _Made, function: Function) -> tuple[str | None, bool]:
        """A column for the function, None if there is none; and whether the result is an average."""
        fitting = [column.name for column in source.schema]
        if function in (Function.SUM, Function.AVG):
            fitting = [one.name for one in source.schema if one.type.numeric and one.name not in source.averages]
        if not fitting or (function is Function.COUNT and self.draw(st.booleans())):
            return None, False
        column = self.draw(st.sampled_from(fitting))
        handed_on = function in (Function.MIN, Function.MAX) and column in source.averages
        return column, function is Function.AVG or handed_on

    def order(self, schema: Schema, least: int) -> tuple[SortKey, ...]:
        return tuple(SortKey(name, self.draw(st.booleans())) for name in self.keys(schema, least))

    def sort(self) -> None:
        source = self.pick()
        made = Sort(name=self.name(), source=source.relation, keys=self.order(source.schema, 1))
        self.add(made, source.rows_max, source.averages)

    def top(self) -> None:
        source = self.pick()
        count = self.draw(st.integers(0, 5))
        made = Top(name=self.name(), source=source.relation, count=count, keys=self.order(source.schema, 0))
        self.add(made, min(count, source.rows_max), source.averages)

    def values(self) -> None:
        schema = self.draw(schemas(2))
        constant = {one.type: st.sampled_from(CONSTANTS[one.type]).map(Scalar) for one in schema}
        rows = self.draw(st.lists(st.tuples(*(constant[one.type] for one in schema)), max_size=3))
        self.add(Values(name=self.name(), columns=schema, rows=tuple(rows)), len(rows))

    def loop(self) -> None:
        """A loop that changes a relation and counts, beside one that stays as it is."""
        changed, fixed = self.pick(), self.pick()
        if changed.averages or changed.rows_max * max(1, fixed.rows_max) > PRODUCT_ROWS_MAX:
            return
        start = Values(name=self.name(), columns=Schema((Column("n", Type.INTEGER),)), rows=((Scalar("0"),),))
        self.add(start, 1)
        body, following = _body(self.draw, changed.schema, fixed, changed.rows_max)
        most = self.draw(st.integers(1, 3))
        made = While(
            name=self.name(),
            read=(changed.relation, fixed.relation, start.relation),
            body=body,
            carried=(Carried("changed", following), Carried("count", "next count")),
            condition=self.draw(st.sampled_from((None, *_conditions(most)))),
            iterations_max=most,
        )
        self.add(made, 1)
        for carried, rows_max in (("changed", changed.rows_max), ("count", 1)):
            self.add(loop_result(self.name(), made, carried), rows_max)


def _conditions(most: int) -> tuple[LoopCondition, ...]:
    """Conditions that end the loop in time, of each kind there is."""
    return (
        LoopCondition("count", Scalar(f"n < {most}")),
        LoopCondition("count", Scalar(f"n < {most - 1}")),
        LoopCondition("count", Scalar(f"n < {most}"), tested_first=False),
        LoopCondition("still", Scalar(f"n < {most}"), tested_first=False),
    )


def _body(draw: st.DrawFn, schema: Schema, fixed: _Made, rows_max: int) -> tuple[Dag, str]:
    """A body with the inputs `changed`, `fixed` and `count`, and the name of what follows `changed`."""
    inside = _Drawing(draw)
    inside.add(Input(name="changed", columns=schema), rows_max)
    inside.add(Input(name="fixed", columns=fixed.schema), fixed.rows_max, fixed.averages)
    count = Input(name="count", columns=Schema((Column("n", Type.INTEGER),)))
    more = Arithmetic(name="next count", source=count.relation, column="n", value=Scalar("n + 1"))
    still = Select(name="still", source=more.relation, condition=Scalar("n >= 0"))
    inside.operators += [count, more, still]
    for _ in range(draw(st.integers(0, 2))):
        draw(st.sampled_from((inside.select, inside.project, inside.join, inside.aggregate, inside.distinct)))()
    source = inside.pick()
    if source.rows_max > rows_max:
        source = inside.made[0]
    columns = tuple(
        Output(one.name, draw(scalars(source.schema, one.type, 1, without=source.averages))) for one in schema
    )
    last = Project(name="following", source=source.relation, columns=columns)
    return Dag((*inside.operators, last), ("following", "next count", "still")), "following"


_STEPS: dict[type[Operator], Callable[[_Drawing], None]] = {
    Select: _Drawing.select,
    Project: _Drawing.project,
    Arithmetic: _Drawing.arithmetic,
    Join: _Drawing.join,
    CrossJoin: _Drawing.cross_join,
    Union: lambda drawing: drawing.two_alike(Union),
    Intersect: lambda drawing: drawing.two_alike(Intersect),
    Difference: lambda drawing: drawing.two_alike(Difference),
    Distinct: _Drawing.distinct,
    Aggregate: _Drawing.aggregate,
    Sort: _Drawing.sort,
    Top: _Drawing.top,
    While: _Drawing.loop,
    Values: _Drawing.values,
}


@st.composite
def cases(draw: st.DrawFn, kinds: Sequence[type[Operator]] = KINDS, steps_max: int = 5) -> Case:
    """Workflows of one or two tables and of operators of these kinds (`LoopResult` comes with `While`), and data."""
    drawing = _Drawing(draw)
    data = {}
    for number in range(draw(st.integers(1, 2))):
        schema = draw(schemas())
        table = f"table {number}"
        data[table] = draw(tables(schema))
        drawing.add(Scan(name=drawing.name(), table=table, columns=schema), data[table].num_rows)
    for _ in range(draw(st.integers(1, steps_max))):
        _STEPS[draw(st.sampled_from(list(kinds)))](drawing)
    return Case(Dag.of_unread(drawing.operators), data)


# ---- comparison ------------------------------------------------------------------------------


def assert_same_results(dag: Dag, got: dict[str, pa.Table], expected: dict[str, pa.Table]) -> None:
    """Each result has the same columns and bag of rows, and that of a `Sort` its order."""
    assert list(got) == list(expected)
    for name, table in got.items():
        assert_same_bag(table, expected[name])
        operator = dag.operator(name)
        if isinstance(operator, Sort):
            keys = [key.column for key in operator.keys]
            ordered, right = (_rows(one.select(keys)) for one in (table, expected[name]))
            assert all(map(_alike, ordered, right)), f"the rows of {name} are in another order: {ordered}, not {right}"


def assert_same_bag(got: pa.Table, expected: pa.Table) -> None:
    """The same columns, and the same rows in any order; doubles but for `TOLERANCE`."""
    assert got.schema.names == expected.schema.names
    assert got.schema.types == expected.schema.types
    rows, right = (sorted(_rows(table), key=_order(expected.schema.types)) for table in (got, expected))
    assert len(rows) == len(right), f"{len(rows)} rows, not {len(right)}: {rows}, not {right}"
    for row, other in zip(rows, right, strict=True):
        assert _alike(row, other), f"{row}, not {other}"


def _rows(table: pa.Table) -> list[tuple[object, ...]]:
    columns = (column.to_pylist() for column in table.columns)
    return list(zip(*columns, strict=True))


def _order(types: Sequence[pa.DataType]) -> Callable[[tuple[object, ...]], tuple[str, ...]]:
    """Orders rows by the columns that are no doubles, then by doubles, rounded: rows that are nearly equal are then at
    the same place of both tables."""
    places = sorted(range(len(types)), key=lambda place: types[place] == pa.float64())

    def key(row: tuple[object, ...]) -> tuple[str, ...]:
        return tuple(_rounded(row[place]) for place in places)

    return key


def _rounded(value: object) -> str:
    """Zero is written without a sign."""
    return f"{value + 0.0:.6g}" if isinstance(value, float) else repr(value)


def _alike(row: tuple[object, ...], other: tuple[object, ...]) -> bool:
    return all(map(_near, row, other))


def _near(value: object, other: object) -> bool:
    if isinstance(value, float) and isinstance(other, float):
        if math.isnan(value) or math.isnan(other):
            return math.isnan(value) and math.isnan(other)
        return value == other or math.isclose(value, other, rel_tol=TOLERANCE)
    return value == other and type(value) is type(other)
