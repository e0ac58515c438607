"""Subqueries in conditions and expressions become joins: the IR has no correlation.

| subquery | becomes |
|---|---|
| `x IN (…)`, `EXISTS (… WHERE inner = outer)` | SEMI JOIN; with other correlated comparisons, on pairs that meet them |
| `NOT EXISTS (…)` | ANTI JOIN, likewise |
| `x NOT IN (…)` | ANTI JOIN, and counts: a null in the list lets no row pass, nor does a null `x` unless it is empty |
| `EXISTS (…)` of nothing outside | a count, joined to each row |
| `(SELECT aggregate …)` | CROSS JOIN with its one row |
| `(SELECT aggregate … WHERE inner = outer)` | groups by the inner columns, LEFT JOIN; JOIN where null would not pass |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeGuard

from sqlglot import exp

from frontends.relational import blocks
from frontends.workflow.errors import InvalidWorkflow, NotSupported
from frontends.workflow.ir.dag import (
    Aggregate,
    Aggregation,
    CrossJoin,
    Distinct,
    Function,
    Join,
    JoinKind,
    JoinOutput,
    Output,
    Project,
    Relation,
    Side,
    free_name,
)
from frontends.workflow.languages.hive_building import Building
from frontends.workflow.languages.hive_frame import Frame, Pair
from frontends.workflow.languages.hive_grouping import Grouping
from frontends.workflow.languages.hive_scope import (
    OUTER,
    Scope,
    block_column,
    columns_of,
    is_block,
    outer_columns_of,
    replaced_columns,
)

_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Like)
_STRICT = (
    exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Between, exp.Like, exp.Column, exp.Identifier, exp.Literal,
    exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.Neg, exp.Abs, exp.Paren, exp.Cast, exp.TryCast, exp.DataType,
    exp.DataTypeParam, exp.Interval, exp.Var, exp.Substring,
)  # fmt: skip
"""Nodes that are null, or not true, if any column below them is null."""


@dataclass(frozen=True, slots=True)
class OpenBlock:
    """A block after FROM and those conditions of WHERE that only have to do with itself. tied: the others."""

    scope: Scope
    frame: Frame
    tied: tuple[exp.Expr, ...]


class Subqueries:
    """Turns the subqueries of a workflow into joins.

    open_block: of a block within a scope. whole: the relation that a query makes, which the scope only serves to tell
    that the query reads columns of it.
    """

    def __init__(
        self,
        building: Building,
        open_block: Callable[[exp.Select, Scope | None], OpenBlock],
        whole: Callable[[exp.Expr, Scope | None], Relation],
    ) -> None:
        self._building, self._open, self._whole = building, open_block, whole

    def filter(self, frame: Frame, scope: Scope | None, conditions: Sequence[exp.Expr]) -> None:
        """Keep the rows of the frame that meet these resolved conditions, which may have subqueries."""
        frame.select([one for one in conditions if one.find(exp.Query) is None])
        for one in conditions:
            if one.find(exp.Query) is not None:
                with self._building.located(one):
                    self._keep(frame, scope, one)

    def _keep(self, frame: Frame, scope: Scope | None, condition: exp.Expr) -> None:
        negated, inner = False, condition.unnest()
        while isinstance(inner, exp.Not):
            negated, inner = not negated, inner.this.unnest()
        if isinstance(inner, exp.Exists):
            self._exists(frame, scope, inner, negated)
        elif isinstance(inner, exp.In) and inner.args.get("query") is not None:
            self._in(frame, scope, inner, negated)
        else:
            frame.select([self.replaced(frame, scope, condition)])

    # ---- values

    def replaced(self, frame: Frame, scope: Scope | None, tree: exp.Expr) -> exp.Expr:
        """The resolved tree with columns in the place of subqueries, which the frame then has."""
        wrapped = exp.Paren(this=tree.copy())
        strict = _strict(tree)
        nodes = list(wrapped.walk(prune=is_block))
        for node in nodes:
            if isinstance(node, exp.Exists | exp.All | exp.Any) or node.args.get("query") is not None:
                raise NotSupported(f"{node.key.upper()} of a subquery that is not a condition by itself")
        for node in nodes:
            if is_block(node):
                node.replace(exp.Paren(this=self._value(frame, scope, node, strict)))
        inner: exp.Expr = wrapped.this
        inner.pop()
        return inner

    def _value(self, frame: Frame, scope: Scope | None, query: exp.Expr, strict: bool) -> exp.Expr:
        """The resolved tree that is the value of the subquery. strict: a row for which it is null is not kept."""
        select = _bare(query)
        if not _one_aggregate(select):
            raise NotSupported(
                "a subquery as a value that is not one aggregate without GROUP BY", self._building.at(select)
            )
        block = self._open(select, scope)
        item = select.expressions[0].unalias()
        value = self._own(block, item)
        pairs, rest = _ties(block)
        if rest:
            raise NotSupported(
                "a subquery as a value with another correlated condition than equality", self._building.at(rest[0])
            )
        grouping = Grouping(block.frame, [(inner, "key") for _, inner in pairs])
        value = grouping.rewritten(value, "value")
        keys = [grouping.rewritten(inner) for _, inner in pairs]
        other = Frame(self._building, grouping.relation(item))
        if not pairs:
            column = other.column_of(value)
            name = free_name(column, frame.columns)
            frame.join(Frame(self._building, other.relation, {name: column}), [])
            return block_column(name)
        needed = strict and not grouping.counts and _strict(value, comparison=False)
        names: dict[str, str] = {}
        for one in sorted(columns_of(value)):
            names[one] = free_name(one, [*frame.columns, *other.columns, *names.values()])
        joined = Frame(self._building, other.relation, {name: one for one, name in names.items()})
        on = [(outer, key) for (outer, _), key in zip(pairs, keys, strict=True)]
        frame.join(joined, on, JoinKind.INNER if needed else JoinKind.LEFT)
        return _counting(replaced_columns(value, names), {names[one] for one in grouping.counts if one in names})

    def _own(self, block: OpenBlock, tree: exp.Expr) -> exp.Expr:
        """An expression of the block's SELECT, which may have to do with nothing outside it."""
        with self._building.located(tree):
            resolved = block.scope.resolved(tree)
            if outer_columns_of(resolved) or resolved.find(exp.Query) is not None:
                raise NotSupported("a subquery that is correlated elsewhere than in its WHERE")
        return resolved

    # ---- EXISTS and IN

    def _exists(self, frame: Frame, scope: Scope | None, node: exp.Exists, negated: bool) -> None:
        select = _bare(node.this)
        if _plain(select):
            block = self._open(select, scope)
            pairs, rest = _ties(block)
            if pairs or rest:
                self._partners(frame, block.frame, pairs, rest, negated)
                return
            relation = block.frame.relation
        else:
            relation = self._whole(select, scope)
        counted = self._building.add(
            Aggregate,
            self._building.at(select),
            source=relation,
            keys=(),
            aggregations=(Aggregation("count", Function.COUNT),),
        )
        name = free_name("count", frame.columns)
        frame.join(Frame(self._building, counted, {name: "count"}), [])
        compare = exp.EQ if negated else exp.GT
        frame.select([compare(this=block_column(name), expression=exp.Literal.number(0))])

    def _in(self, frame: Frame, scope: Scope | None, node: exp.In, negated: bool) -> None:
        select, value = _bare(node.args["query"]), node.this
        if value.find(exp.Query) is not None:
            raise NotSupported("a subquery before IN")
        if _plain(select):
            if len(select.expressions) != 1 or select.expressions[0].is_star:
                raise InvalidWorkflow("a subquery after IN has one column", self._building.at(select))
            block = self._open(select, scope)
            listed = self._own(block, select.expressions[0].unalias())
            inner = block.frame
            pairs, rest = _ties(block)
        else:
            inner = Frame(self._building, self._whole(select, scope))
            if len(inner.columns) != 1:
                raise InvalidWorkflow("a subquery after IN has one column", self._building.at(select))
            listed, pairs, rest = block_column(*inner.columns), [], []
        if negated:
            if rest:
                raise NotSupported("NOT IN with another correlated condition than equality", self._building.at(rest[0]))
            self._without_nulls(frame, inner, value, listed, pairs)
        self._partners(frame, inner, [(value, listed), *pairs], rest, negated)

    def _partners(
        self, frame: Frame, inner: Frame, pairs: Sequence[Pair], rest: Sequence[exp.Expr], negated: bool
    ) -> None:
        """Keep the rows of the frame with a partner among those of the inner one; negated: without."""
        if rest:
            inner, pairs = self._candidates(frame, inner, pairs, rest)
        frame.join(inner, pairs, JoinKind.ANTI if negated else JoinKind.SEMI)

    def _candidates(
        self, frame: Frame, inner: Frame, pairs: Sequence[Pair], rest: Sequence[exp.Expr]
    ) -> tuple[Frame, list[Pair]]:
        """The values of the frame's columns, as the conditions `rest` read them, that have a partner.

        A null among them has none: each of the conditions compares.
        """
        for one in rest:
            if not _strict(one):
                raise NotSupported("a correlated condition that is no comparison", self._building.at(one))
        on = frame.keys(inner, pairs)
        outer = sorted({name for one in rest for name in outer_columns_of(one)})
        needed = list(dict.fromkeys([*(left for left, _ in on), *(frame.columns[name] for name in outer)]))
        at = self._building.at(rest[0])
        values = self._building.add(Project, at, source=frame.relation, columns=tuple(map(Output.column, needed)))
        values = self._building.add(Distinct, at, source=values)
        names: dict[str, str] = {}
        for column in sorted({name for condition in rest for name in columns_of(condition)}):
            names[column] = free_name(column, [*needed, *names.values()])
        columns = (
            *(JoinOutput(name, Side.LEFT, name) for name in needed),
            *(JoinOutput(name, Side.RIGHT, inner.columns[column]) for column, name in names.items()),
        )
        sides = {"left": values, "right": inner.relation, "columns": columns}
        joined = self._building.add(Join, at, on=on, **sides) if on else self._building.add(CrossJoin, at, **sides)
        found = Frame(self._building, joined)
        found.select([replaced_columns(one, names, {name: frame.columns[name] for name in outer}) for one in rest])
        return Frame(self._building, found.relation), [(block_column(name), block_column(name)) for name in needed]

    def _without_nulls(
        self, frame: Frame, inner: Frame, value: exp.Expr, listed: exp.Expr, pairs: Sequence[Pair]
    ) -> None:
        """Drop the rows for which NOT IN is null: nulls are among what is listed, or the value is null and anything
        is listed."""
        column, on = inner.column_of(listed), frame.keys(inner, pairs)
        at = self._building.at(value)
        taken = [*frame.relation.schema.names, *inner.relation.schema.names]
        rows = free_name("listed", taken)
        known = free_name("listed_known", [*taken, rows])
        counted: Relation = self._building.add(
            Aggregate,
            at,
            source=inner.relation,
            keys=tuple(dict.fromkeys(right for _, right in on)),
            aggregations=(Aggregation(rows, Function.COUNT), Aggregation(known, Function.COUNT, column)),
        )
        sides = [(block_column(left), block_column(right)) for left, right in on]
        frame.join(
            Frame(self._building, counted, {rows: rows, known: known}), sides, JoinKind.LEFT if on else JoinKind.INNER
        )
        count = _or_zero(block_column(rows)) if on else block_column(rows)
        none = exp.EQ(this=count, expression=exp.Literal.number(0))
        there = exp.Not(this=exp.Is(this=value.copy(), expression=exp.Null()))
        all_known = exp.EQ(this=block_column(rows), expression=block_column(known))
        frame.select([exp.Or(this=none, expression=exp.And(this=there, expression=all_known))])


# ---- shapes of subqueries --------------------------------------------------------------------


def _ties(block: OpenBlock) -> tuple[list[Pair], list[exp.Expr]]:
    """The equalities of a column outside with one of the block, and the correlated conditions that are none."""
    pairs, rest = [], []
    for condition in block.tied:
        pair = _tie(condition.unnest())
        if pair is None:
            rest.append(condition)
        else:
            pairs.append(pair)
    return pairs, rest


def _tie(condition: exp.Expr) -> Pair | None:
    if not isinstance(condition, exp.EQ):
        return None
    for one, other in ((condition.this, condition.expression), (condition.expression, condition.this)):
        outer = outer_columns_of(one)
        if outer and not columns_of(one) and columns_of(other) and not outer_columns_of(other):
            return replaced_columns(one, outer={name: name for name in outer}), other
    return None


def _bare(query: exp.Expr) -> exp.Expr:
    """The query without parentheses, but for such that have clauses of their own."""
    while isinstance(query, exp.Subquery) and not any(query.args.get(one) for one in ("with_", "order", "limit")):
        query = query.this
    return query


def _plain(select: exp.Expr) -> TypeGuard[exp.Select]:
    """Whether the rows are those that FROM and WHERE give, however often."""
    return isinstance(select, exp.Select) and not (
        any(select.args.get(clause) for clause in ("group", "having", "limit", "with_"))
        or any(blocks.own_aggregates(one) for one in select.expressions)
    )


def _one_aggregate(select: exp.Expr) -> TypeGuard[exp.Select]:
    """Whether the block has one row of one column, whatever it reads."""
    return (
        isinstance(select, exp.Select)
        and len(select.expressions) == 1
        and bool(blocks.own_aggregates(select.expressions[0]))
        and not any(select.args.get(clause) for clause in ("group", "having", "limit", "with_"))
    )


def _strict(tree: exp.Expr, comparison: bool = True) -> bool:
    """Whether the tree is not true, or if it is no comparison, null, for a row in which a column of it is null."""
    tree = tree.unnest()
    negated = isinstance(tree, exp.Not)
    inner = tree.this.unnest() if negated else tree
    if comparison and not isinstance(inner, _COMPARISONS) and (negated or not isinstance(inner, exp.Between)):
        return False
    if not comparison and inner.find(exp.Predicate) is not None:
        return False
    return all(isinstance(node, (*_STRICT, exp.AggFunc)) or is_block(node) for node in inner.walk(prune=is_block))


def _counting(tree: exp.Expr, counts: set[str]) -> exp.Expr:
    """The tree with 0 for counts that are null."""

    def counted(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Column) and node.table != OUTER and node.name in counts:
            return _or_zero(node.copy())
        return node

    return tree.copy().transform(counted, copy=False)


def _or_zero(column: exp.Expr) -> exp.Expr:
    return exp.Coalesce(this=column, expressions=[exp.Literal.number(0)])
