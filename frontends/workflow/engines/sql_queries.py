"""Operators as queries of an SQL engine: a tree each, over the relations that they read, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import sqlglot
from sqlglot import exp

from frontends.workflow.engines.sql_scalars import (
    DATA_TYPES,
    DOUBLE,
    INTEGER,
    SqlScalars,
    cast,
    column,
    identifier,
    string,
)
from frontends.workflow.ir.dag import (
    Aggregate,
    Aggregation,
    Arithmetic,
    BlackBox,
    CrossJoin,
    Difference,
    Distinct,
    Function,
    Intersect,
    Join,
    JoinKind,
    Operator,
    Project,
    Select,
    Side,
    Sort,
    SortKey,
    Top,
    Union,
    Values,
)
from frontends.workflow.ir.scalars.expressions import Scalar
from frontends.workflow.ir.types import Schema

LEFT, RIGHT = "left_side", "right_side"
"""What the two sides of a join of a relation with itself are called."""


class SqlQueries:
    """Makes queries of one engine. dialect: sqlglot's name of its SQL, in which black boxes are written."""

    def __init__(self, scalars: SqlScalars, dialect: str) -> None:
        self._scalars, self._dialect = scalars, dialect

    def query(self, operator: Operator, read: Sequence[str]) -> exp.Query:
        """The query that makes the operator's relation; read: the catalog's names of what it reads, in its order."""
        return _RULES[type(operator)](self, operator, *read)

    def whole(self, read: str) -> exp.Select:
        """All rows and columns."""
        return exp.Select(expressions=[exp.Star()]).from_(table(read))

    def some(self, read: str, test: Scalar, schema: Schema) -> exp.Select:
        """A row if any meets the test, else none."""
        one = exp.Select(expressions=[exp.Literal.number(1)]).from_(table(read))
        return one.where(self._scalars.tree(test, schema)).limit(1)

    def ordered(self, read: str, keys: Iterable[SortKey]) -> exp.Select:
        """All rows in this order."""
        return self.whole(read).order_by(*map(_ordered, keys))

    # ---- rules -------------------------------------------------------------------------------

    def values(self, one: Values) -> exp.Query:
        if not one.rows:
            nothing = [_named(cast(exp.Null(), DATA_TYPES[c.type]), c.name) for c in one.schema]
            return exp.Select(expressions=nothing).where(exp.Boolean(this=False))
        if len(one.rows) == 1:
            return exp.Select(expressions=self._constants(one, 0))
        rows = [exp.Tuple(expressions=[self._constant(one, row, place) for place in range(len(one.schema))])
                for row in range(len(one.rows))]  # fmt: skip
        names = [identifier(name) for name in one.schema.names]
        alias = exp.TableAlias(this=identifier("listed"), columns=names)
        typed = [_named(cast(column(c.name), DATA_TYPES[c.type]), c.name) for c in one.schema]
        return exp.Select(expressions=typed).from_(exp.Values(expressions=rows, alias=alias))

    def _constants(self, one: Values, row: int) -> list[exp.Expr]:
        return [_named(self._constant(one, row, place), name) for place, name in enumerate(one.schema.names)]

    def _constant(self, one: Values, row: int, place: int) -> exp.Expr:
        return self._scalars.tree(one.rows[row][place], one.schema)

    def select(self, one: Select, read: str) -> exp.Query:
        return self.whole(read).where(self._scalars.tree(one.condition, one.source.schema))

    def project(self, one: Project, read: str) -> exp.Query:
        schema = one.source.schema
        return exp.Select(
            expressions=[_named(self._scalars.tree(output.value, schema), output.name) for output in one.columns]
        ).from_(table(read))

    def arithmetic(self, one: Arithmetic, read: str) -> exp.Query:
        return self.project(one.as_project(), read)

    def join(self, one: Join, left: str, right: str) -> exp.Query:
        left_name, right_name = (LEFT, RIGHT) if left == right else (left, right)
        on = [exp.EQ(this=column(mine, left_name), expression=column(other, right_name)) for mine, other in one.on]
        if one.kind.pairs:
            kind = "left" if one.kind is JoinKind.LEFT else "inner"
            return (
                self._sides(one, left_name, right_name)
                .from_(table(left, left_name))
                .join(table(right, right_name), on=exp.and_(*on, copy=False), join_type=kind)
            )
        partner = exp.Select(expressions=[exp.Literal.number(1)]).from_(table(right, right_name)).where(*on)
        found: exp.Expr = exp.Exists(this=partner)
        if one.kind is JoinKind.ANTI:
            found = exp.Not(this=found)
        return self._sides(one, left_name, right_name).from_(table(left, left_name)).where(found)

    def cross_join(self, one: CrossJoin, left: str, right: str) -> exp.Query:
        left_name, right_name = (LEFT, RIGHT) if left == right else (left, right)
        made = self._sides(one, left_name, right_name).from_(table(left, left_name))
        return made.join(table(right, right_name), join_type="cross")

    def _sides(self, one: Join | CrossJoin, left: str, right: str) -> exp.Select:
        return exp.Select(
            expressions=[
                _named(column(output.column, left if output.side is Side.LEFT else right), output.name)
                for output in one.columns
            ]
        )

    def union(self, one: Union, left: str, right: str) -> exp.Query:
        return exp.Union(this=self.whole(left), expression=self.whole(right), distinct=not one.all_rows)

    def intersect(self, one: Intersect, left: str, right: str) -> exp.Query:
        return exp.Intersect(this=self.whole(left), expression=self.whole(right), distinct=True)

    def difference(self, one: Difference, left: str, right: str) -> exp.Query:
        return exp.Except(this=self.whole(left), expression=self.whole(right), distinct=True)

    def distinct(self, one: Distinct, read: str) -> exp.Query:
        return self.whole(read).distinct()

    def aggregate(self, one: Aggregate, read: str) -> exp.Query:
        keys: list[exp.Expr] = [column(key) for key in one.keys]
        computed = [_named(self.aggregation(column_, one.source.schema), column_.name) for column_ in one.aggregations]
        made = exp.Select(expressions=[*keys, *computed]).from_(table(read))
        return made.group_by(*(column(key) for key in one.keys)) if keys else made

    def aggregation(self, one: Aggregation, schema: Schema) -> exp.Expr:
        if one.column is None:
            return exp.Count(this=exp.Star())
        value = column(one.column)
        if one.function is Function.COUNT_DISTINCT:
            return exp.Count(this=exp.Distinct(expressions=[value]))
        if one.function is Function.SUM:
            type_ = DATA_TYPES[schema.column(one.column).type]
            total = exp.Sum(this=value)
            return cast(total, INTEGER) if type_ is INTEGER else self._scalars.one_nan(total)
        if one.function is Function.AVG:
            type_ = DATA_TYPES[schema.column(one.column).type]
            return self._scalars.one_nan(exp.Avg(this=value if type_ is DOUBLE else cast(value, DOUBLE)))
        return {Function.COUNT: exp.Count, Function.MIN: exp.Min, Function.MAX: exp.Max}[one.function](this=value)

    def sort(self, one: Sort, read: str) -> exp.Query:
        """Without an order: the statement that writes a result has it."""
        return self.whole(read)

    def top(self, one: Top, read: str) -> exp.Query:
        return self.ordered(read, one.all_keys()).limit(one.count)

    def black_box(self, one: BlackBox, *read: str) -> exp.Query:
        """The code is a query over the relations by the names that the workflow has for them."""
        code = sqlglot.parse_one(one.code, dialect=self._dialect)
        for literal in code.find_all(exp.Literal):
            if literal.is_string:
                literal.replace(string(literal.name))
        box = exp.Subquery(this=code, alias=exp.TableAlias(this=identifier("box")))
        columns = [_named(cast(column(c.name), DATA_TYPES[c.type]), c.name) for c in one.schema]
        made = exp.Select(expressions=columns).from_(box)
        for relation, name in zip(one.read, read, strict=True):
            if relation.name != name:
                made = made.with_(identifier(relation.name), as_=self.whole(name))
        return made


def table(name: str, alias: str | None = None) -> exp.Table:
    """A relation of the catalog, perhaps with another name in the query."""
    other = alias is not None and alias != name
    return exp.Table(
        this=identifier(name), alias=exp.TableAlias(this=identifier(alias)) if alias is not None and other else None
    )


def _named(value: exp.Expr, name: str) -> exp.Expr:
    if isinstance(value, exp.Column) and value.name == name and not value.args.get("table"):
        return value
    return exp.Alias(this=value, alias=identifier(name))


def _ordered(key: SortKey) -> exp.Expr:
    return exp.Ordered(this=column(key.column), desc=key.descending, nulls_first=False)


_RULES: dict[type[Operator], Callable[..., exp.Query]] = {
    Values: SqlQueries.values,
    Select: SqlQueries.select,
    Project: SqlQueries.project,
    Arithmetic: SqlQueries.arithmetic,
    Join: SqlQueries.join,
    CrossJoin: SqlQueries.cross_join,
    Union: SqlQueries.union,
    Intersect: SqlQueries.intersect,
    Difference: SqlQueries.difference,
    Distinct: SqlQueries.distinct,
    Aggregate: SqlQueries.aggregate,
    Sort: SqlQueries.sort,
    Top: SqlQueries.top,
    BlackBox: SqlQueries.black_box,
}
