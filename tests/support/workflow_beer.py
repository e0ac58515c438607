"""Random workflows that BEER can say, and their text in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pyarrow as pa
from hypothesis import strategies as st
from sqlglot import exp

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
    LoopCondition,
    LoopResult,
    Operator,
    Output,
    Project,
    Relation,
    Scan,
    Select,
    Sort,
    SortKey,
    Top,
    Union,
    While,
    free_name,
    joined_columns,
    loop_result,
)
from frontends.workflow.ir.scalars.expressions import Scalar
from frontends.workflow.ir.scalars.normal_form import column as column_tree
from frontends.workflow.ir.types import Column, Schema, Type
from tests.support.workflow_dags import CONSTANTS, PRODUCT_ROWS_MAX, Case, schemas, tables

COUNTER = Schema((Column("n", Type.INTEGER),))
SIGNS: dict[type[exp.Expr], str] = {
    exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=",
    exp.Add: "SUM", exp.Sub: "SUB", exp.Mul: "MUL", exp.Div: "DIV",
}  # fmt: skip
FUNCTIONS = (Function.SUM, Function.COUNT, Function.MIN, Function.MAX)


# ---- workflows -------------------------------------------------------------------------------


class _Drawing:
    """Operators drawn so far; rows_max: for each relation how many rows it may have."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.operators: list[Operator] = []
        self.rows_max: dict[str, int] = {}

    def add(self, operator: Operator, rows_max: int) -> Relation:
        self.operators.append(operator)
        self.rows_max[operator.name] = rows_max
        return operator.relation

    def name(self) -> str:
        return f"r{len(self.operators)}"

    def pick(self) -> Relation:
        return self.draw(st.sampled_from([one for one in self.operators if not isinstance(one, While)])).relation

    def some(self, names: Iterable[str], least: int = 1) -> list[str]:
        return self.draw(st.lists(st.sampled_from(list(names)), min_size=least, max_size=3, unique=True))

    def condition(self, schema: Schema, levels: int = 2) -> str:
        shape = self.draw(st.integers(0, 4)) if levels else 0
        if shape in (1, 2):
            sign = "AND" if shape == 1 else "OR"
            return f"({self.condition(schema, levels - 1)} {sign} {self.condition(schema, levels - 1)})"
        if shape == 3:
            return f"(NOT {self.condition(schema, levels - 1)})"
        column = self.draw(st.sampled_from(schema.columns))
        text = column_tree(column.name).sql()
        if shape == 4:
            return f"({text} IS NULL)"
        others = [column_tree(one.name).sql() for one in schema if one.type is column.type]
        other = self.draw(st.sampled_from([*others, *CONSTANTS[column.type]]))
        return f"({text} {self.draw(st.sampled_from(('=', '<>', '<', '<=', '>', '>=')))} {other})"

    def unary(self) -> Operator:
        source = self.pick()
        kind = self.draw(st.integers(0, 6))
        head = {"name": self.name(), "source": source}
        columns = source.schema.names
        if kind == 0:
            return Select(**head, condition=Scalar(self.condition(source.schema)))
        if kind == 1:
            return self.arithmetic(source)
        if kind == 2:
            keys = tuple(SortKey(one, False) for one in self.some(columns))
            return Sort(**head, keys=keys)
        if kind == 3:
            descending = self.draw(st.booleans())
            keys = tuple(SortKey(one, descending) for one in self.some(columns, 0))
            return Top(**head, count=self.draw(st.integers(0, 5)), keys=keys)
        if kind == 4:
            return Distinct(**head)
        if kind == 5:
            outputs: list[Output] = []
            for one in self.draw(st.lists(st.sampled_from(columns), min_size=1, max_size=4)):
                outputs.append(Output.column(one, free_name(one, [made.name for made in outputs])))
            return Project(**head, columns=tuple(outputs))
        return self.aggregate(source)

    def arithmetic(self, source: Relation) -> Operator:
        fitting = [one.name for one in source.schema if one.type.numeric]
        if not fitting:
            return Distinct(name=self.name(), source=source)
        column = self.draw(st.sampled_from(fitting))
        text = column_tree(column).sql()
        value = self.draw(
            st.sampled_from((f"{text} + 1", f"0.5 - {text}", f"{text} * -2", f"{text} / 4", f"2 * {text}"))
        )
        return Arithmetic(name=self.name(), source=source, column=column, value=Scalar(value))

    def aggregate(self, source: Relation) -> Operator:
        function = self.draw(st.sampled_from(FUNCTIONS))
        fitting = [one.name for one in source.schema if one.type.numeric or function is not Function.SUM]
        if not fitting:
            return Distinct(name=self.name(), source=source)
        chosen = self.some(fitting)[: 1 if function is Function.COUNT else 3]
        keys = tuple(self.some(source.schema.names, 0))
        taken, parts = list(keys), []
        for column in chosen:
            taken.append(free_name(column, taken))
            parts.append(Aggregation(taken[-1], function, column))
        return Aggregate(name=self.name(), source=source, keys=keys, aggregations=tuple(parts))

    def binary(self) -> tuple[Operator, int] | None:
        left, right = self.pick(), self.pick()
        sides = {"name": self.name(), "left": left, "right": right}
        most = (self.rows_max[left.name], self.rows_max[right.name])
        kind = self.draw(st.integers(0, 4))
        if kind < 2:
            if most[0] * most[1] > PRODUCT_ROWS_MAX:
                return None
            pairs = [(a.name, b.name) for a in left.schema for b in right.schema if a.type is b.type]
            if kind == 0 or not pairs:
                return CrossJoin(**sides, columns=joined_columns(left, right)), most[0] * most[1]
            on = self.draw(st.lists(st.sampled_from(pairs), min_size=1, max_size=2, unique_by=lambda pair: pair[1]))
            columns = joined_columns(left, right, without=[pair[1] for pair in on])
            return Join(**sides, on=tuple(on), columns=columns), most[0] * most[1]
        if left.schema.types != right.schema.types:
            sides["right"] = left
        if kind == 2:
            return Union(**sides, all_rows=self.draw(st.booleans())), sum(most)
        return (Intersect if kind == 3 else Difference)(**sides), most[0]

    def loop(self, count: Relation) -> None:
        """A loop that changes a relation and counts."""
        changed = self.pick()
        body = _Drawing(self.draw)
        inside = body.add(Input(name="now", columns=changed.schema), 1)
        number = body.add(Input(name="number", columns=count.schema), 1)
        following = body.arithmetic(inside)
        if following.schema != changed.schema:
            following = Distinct(name=following.name, source=inside)
        body.add(following, 1)
        more = Arithmetic(name="more", source=number, column="n", value=Scalar("n + 1"))
        body.add(more, 1)
        most = self.draw(st.integers(0, 3))
        made = While(
            name=self.name(),
            read=(changed, count),
            body=Dag(tuple(body.operators), (following.name, "more")),
            carried=(Carried("now", following.name), Carried("number", "more")),
            condition=LoopCondition("number", Scalar(f"n < {most}")),
        )
        self.add(made, 1)
        self.add(loop_result(self.name(), made, "now"), self.rows_max[changed.name])


@st.composite
def beer_cases(draw: st.DrawFn) -> Case:
    """Workflows that BEER can say, and data."""
    drawing = _Drawing(draw)
    data = {}
    for number in range(draw(st.integers(1, 2))):
        schema = draw(schemas())
        name = f"table {number}"
        data[name] = draw(tables(schema))
        drawing.add(Scan(name=name, table=name, columns=schema), data[name].num_rows)
    data["count"] = pa.table({"n": pa.array([0], pa.int64())})
    count = drawing.add(Scan(name="count", table="count", columns=COUNTER), 1)
    for _ in range(draw(st.integers(1, 6))):
        kind = draw(st.integers(0, 7))
        if kind == 7:
            drawing.loop(count)
        elif kind < 3:
            made = drawing.binary()
            if made is not None:
                drawing.add(*made)
        else:
            operator = drawing.unary()
            drawing.add(operator, drawing.rows_max[operator.inputs[0]] + 1)
    return Case(Dag.of_unread(drawing.operators), data)


# ---- text ------------------------------------------------------------------------------------


def as_beer(dag: Dag) -> str:
    """The text in BEER of a DAG that `beer_cases` draws."""
    return ",\n".join(_statements(dag, {}, {})) + "\n"


def _statements(dag: Dag, names: dict[str, str], made: dict[str, str]) -> list[str]:
    """names: what the text calls relations so far; made: what it is to call some that are made here."""
    lines = []
    for one in dag:
        if isinstance(one, Input):
            continue
        if isinstance(one, While):
            lines += _loop(one, names)
            continue
        if isinstance(one, LoopResult):
            names[one.name] = f"{one.source.name}_{one.carried}"
            continue
        new = made.get(one.name, one.name)
        lines.append(
            _SAID[type(one)](one, [_Named(names.get(source.name, source.name), source) for source in one.sources], new)
        )
        names[one.name] = new
    return lines


def _loop(loop: While, names: dict[str, str]) -> list[str]:
    """What is carried is copied first: its name means another relation afterwards."""
    carried = {one: f"{loop.name}_{one}" for one in loop.body.input_names}
    copies = []
    for inside, source in zip(carried.values(), loop.read, strict=True):
        read = _Named(names.get(source.name, source.name), source)
        copies.append(f"PROJECT {read.columns(source.schema.names)} FROM {read} AS {inside}")
    following = {one.following: carried[one.input] for one in loop.carried}
    assert loop.condition is not None
    tested = _Named(carried[loop.condition.relation], loop.body.operator(loop.condition.relation).relation)
    body = _statements(loop.body, dict(carried), following)
    test = _condition(loop.condition.test.tree(), tested)
    return [*copies, f"WHILE [{test}] DO (\n" + ",\n".join(body) + ")"]


@dataclass(frozen=True, slots=True)
class _Named:
    """A relation and what the text calls it."""

    name: str
    relation: Relation

    def column(self, name: str) -> str:
        return f"`{self.name}_{self.relation.schema.index(name)}`"

    def columns(self, names: Iterable[str]) -> str:
        return f"[{', '.join(map(self.column, names))}]"

    def __str__(self) -> str:
        return f"(`{self.name}`)"


def _condition(node: exp.Expr, read: _Named) -> str:
    if isinstance(node, exp.Column):
        return read.column(node.name)
    if isinstance(node, exp.Paren):
        return f"({_condition(node.this, read)})"
    if isinstance(node, exp.Not):
        return f"NOT ({_condition(node.this, read)})"
    if isinstance(node, exp.Is):
        return f"{_condition(node.this, read)} IS NULL"
    if isinstance(node, exp.Cast):
        return f"DATE '{node.this.name}'"
    if isinstance(node, exp.Neg | exp.Literal | exp.Boolean):
        return node.sql()
    sign = "AND" if isinstance(node, exp.And) else "OR" if isinstance(node, exp.Or) else SIGNS[type(node)]
    return f"{_condition(node.this, read)} {sign} {_condition(node.args['expression'], read)}"


def _scan(one: Scan, read: list[_Named], name: str) -> str:
    return f"CREATE RELATION `{name}` WITH COLUMNS ({', '.join(column.type.value for column in one.schema)})"


def _select(one: Select, read: list[_Named], name: str) -> str:
    columns = read[0].columns(one.schema.names)
    return f"SELECT {columns} FROM {read[0]} WHERE [{_condition(one.condition.tree(), read[0])}] AS `{name}`"


def _project(one: Project, read: list[_Named], name: str) -> str:
    return f"PROJECT {read[0].columns(str(part.value.as_column) for part in one.columns)} FROM {read[0]} AS `{name}`"


def _arithmetic(one: Arithmetic, read: list[_Named], name: str) -> str:
    tree = one.value.tree()
    operands = [_condition(part, read[0]) for part in (tree.this, tree.args["expression"])]
    return f"{SIGNS[type(tree)]} [{', '.join(operands)}] FROM {read[0]} AS `{name}`"


def _aggregate(one: Aggregate, read: list[_Named], name: str) -> str:
    columns = [read[0].column(str(part.column)) for part in one.aggregations]
    function = one.aggregations[0].function
    word = "AGG" if function is Function.SUM else function.value
    listed = ", ".join([*columns, "+"] if word == "AGG" else columns)
    group = f" GROUP BY {read[0].columns(one.keys)}" if one.keys else ""
    return f"{word} [{listed}] FROM {read[0]}{group} AS `{name}`"


def _ordered(keys: tuple[SortKey, ...], read: _Named) -> str:
    if not keys:
        return ""
    return f" {'DEC' if keys[0].descending else 'INC'} ON {read.columns(key.column for key in keys)}"


def _join(one: Join, read: list[_Named], name: str) -> str:
    left, right = (
        ", ".join(map(side.column, keys)) for side, keys in zip(read, (one.left_keys, one.right_keys), strict=True)
    )
    return f"{read[0]} JOIN {read[1]} ON {left} AND {right} AS `{name}`"


def _pair(one: Operator, read: list[_Named], name: str) -> str:
    every = " ALL" if isinstance(one, Union) and one.all_rows else ""
    return f"{read[0]} {one.keyword}{every} {read[1]} AS `{name}`"


_SAID: dict[type[Operator], Callable[..., str]] = {
    Scan: _scan,
    Select: _select,
    Project: _project,
    Arithmetic: _arithmetic,
    Aggregate: _aggregate,
    Distinct: lambda one, read, name: f"DISTINCT FROM {read[0]} AS `{name}`",
    Sort: lambda one, read, name: f"SORT{_ordered(one.keys, read[0])} FROM {read[0]} AS `{name}`",
    Top: lambda one, read, name: f"TOP [{one.count}]{_ordered(one.keys, read[0])} FROM {read[0]} AS `{name}`",
    Join: _join,
    CrossJoin: _pair,
    Union: _pair,
    Intersect: _pair,
    Difference: _pair,
}
