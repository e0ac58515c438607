"""Aggregates in two steps: partial results of each partition, and the result for all rows that follows from them.

| aggregate | of a partition | of all |
|---|---|---|
| `sum(x)` | `sum(x)` | the sum of the sums |
| `count(x)` | `count(x)` | the sum of the counts |
| `min(x)`, `max(x)` | the same | the least of the least, the greatest of the greatest |
| `avg(x)` | `sum(x)` and `count(x)` | the sum of the sums over that of the counts |
| `count(DISTINCT x)` | a list of the different values | how many are different in all lists |
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlglot import exp, parse_one

from frontends.relational.blocks import own_aggregates
from frontends.sql.errors import NotSupported

PARTIAL = "partial"
"""What the second step calls the result of the first."""


@dataclass(slots=True)
class Split:
    """A block in two steps. partial: the first, over its own FROM and WHERE. final: the second, over `PARTIAL`.

    final has a column for each output, and then one for each term of `order` that is not an output. groups: the columns
    of the first step by which rows of the second are grouped.
    """

    partial: exp.Select
    final: exp.Select
    groups: list[str]
    outputs: list[str]
    order: list[exp.Ordered] = field(default_factory=list)


def split(select: exp.Select) -> Split:
    """The two steps of a block that aggregates; `NotSupported` if two steps cannot compute the block."""
    group = select.args.get("group")
    grouped = list(group.expressions) if group is not None else []
    if select.args.get("distinct"):
        if grouped or any(own_aggregates(one) for one in select.expressions):
            raise NotSupported("DISTINCT beside GROUP BY or aggregates")
        grouped = [one.unalias() for one in select.expressions]
    steps = _Steps(grouped)
    outputs = [one.alias_or_name for one in select.expressions]
    final = exp.Select(
        expressions=[
            exp.alias_(steps.final(one.unalias()), name, quoted=True)
            for one, name in zip(select.expressions, outputs, strict=True)
        ]
    )
    order = _order_terms(select, steps, final, set(outputs))
    having = select.args.get("having")
    if having is not None:
        final.set("having", exp.Having(this=steps.final(having.this)))
    final.set("from_", exp.From(this=exp.to_table(PARTIAL)))
    final.set(
        "group", exp.Group(expressions=[_partial_column(name) for name in steps.groups]) if steps.groups else None
    )
    partial = exp.Select(expressions=steps.parts)
    for clause in ("from_", "joins", "where"):
        partial.set(clause, select.args.get(clause))
    partial.set("group", exp.Group(expressions=[one.copy() for one in grouped]) if grouped else None)
    return Split(partial, final, steps.groups, outputs, order)


def _order_terms(select: exp.Select, steps: _Steps, final: exp.Select, outputs: set[str]) -> list[exp.Ordered]:
    """The terms of ORDER BY over the columns of the second step, which gets a column for each term that has none."""
    order = select.args.get("order")
    terms = []
    for number, given in enumerate(order.expressions if order is not None else ()):
        term = given.copy()
        if not (isinstance(term.this, exp.Column) and not term.this.table and term.this.name in outputs):
            name = f"__order{number}"
            final.append("expressions", exp.alias_(steps.final(_unaliased(term.this, select)), name, quoted=True))
            term.set("this", exp.column(exp.to_identifier(name, quoted=True)))
        terms.append(term)
    return terms


def _unaliased(term: exp.Expr, select: exp.Select) -> exp.Expr:
    """The term with its aliases replaced by the expressions that they stand for."""
    meant = {one.alias_or_name: one.unalias() for one in select.expressions}

    def replace(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Column) and not node.table and node.name in meant:
            return exp.paren(meant[node.name].copy())
        return node

    return term.copy().transform(replace)


def _partial_column(name: str) -> exp.Column:
    return exp.column(exp.to_identifier(name, quoted=True))


class _Steps:
    """Collects the columns of the first step while expressions of the second are made."""

    def __init__(self, grouped: list[exp.Expr]) -> None:
        self._grouped = grouped
        self.groups = [f"g{number}" for number in range(len(grouped))]
        self.parts: list[exp.Expr] = [
            exp.alias_(one.copy(), name, quoted=True) for one, name in zip(grouped, self.groups, strict=True)
        ]
        self._names: dict[str, str] = {}

    def final(self, expression: exp.Expr) -> exp.Expr:
        """The expression of the second step that stands for this one of the block."""
        made = self._final(expression.copy())
        for column in made.walk(prune=lambda node: isinstance(node, exp.Select)):
            if isinstance(column, exp.Column) and column.table:
                raise NotSupported(
                    f"{column.name}, which is neither grouped by nor aggregated, in the result of GROUP BY"
                )
        return made

    def _final(self, node: exp.Expr) -> exp.Expr:
        for one, name in zip(self._grouped, self.groups, strict=True):
            if node == one:
                return _partial_column(name)
        if isinstance(node, exp.AggFunc):
            return self._aggregate(node)
        if isinstance(node, exp.Select):
            return node
        for key, value in list(node.args.items()):
            if isinstance(value, exp.Expr):
                node.set(key, self._final(value))
            elif isinstance(value, list):
                node.set(key, [self._final(item) if isinstance(item, exp.Expr) else item for item in value])
        return node

    def _partial(self, expression: exp.Expr) -> str:
        """The column of the first step with this expression."""
        text = expression.sql("duckdb")
        name = self._names.get(text)
        if name is None:
            name = self._names[text] = f"a{len(self._names)}"
            self.parts.append(exp.alias_(expression, name, quoted=True))
        return name

    def _aggregate(self, node: exp.AggFunc) -> exp.Expr:
        distinct = isinstance(node.this, exp.Distinct)
        if isinstance(node, exp.Count) and distinct:
            return self._count_distinct(node.this.expressions[0])
        if isinstance(node, exp.Count):
            # The sum of counts has a wider type than a count, and over no rows it is NULL.
            return _parsed(f"CAST(coalesce(sum({self._partial(node.copy())}), 0) AS BIGINT)")
        if isinstance(node, exp.Avg):
            total = self._partial(exp.Sum(this=node.this.copy()))
            count = self._partial(exp.Count(this=node.this.copy()))
            return _parsed(f"CAST(sum({total}) AS DOUBLE) / nullif(sum({count}), 0)")
        for kind, name in _SAME_IN_BOTH.items():
            if isinstance(node, kind):
                return _parsed(f"{name}({self._partial(node.copy())})")
        raise NotSupported(f"the aggregate {node.key}")

    def _count_distinct(self, value: exp.Expr) -> exp.Expr:
        text = value.sql("duckdb")
        part = self._partial(_parsed(f"list(DISTINCT {text}) FILTER (WHERE {text} IS NOT NULL)"))
        return _parsed(
            f"CAST(coalesce(len(list_distinct(flatten(list({part}) FILTER (WHERE {part} IS NOT NULL)))), 0) AS BIGINT)"
        )


_SAME_IN_BOTH: dict[type[exp.AggFunc], str] = {exp.Sum: "sum", exp.Min: "min", exp.Max: "max"}


def _parsed(text: str) -> exp.Expr:
    return exp.paren(parse_one(text, dialect="duckdb"), copy=False)
