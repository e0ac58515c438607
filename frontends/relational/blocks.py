"""A block is one SELECT without the SELECTs inside it: its sources, conditions, and columns that must be equal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sqlglot import exp

ColumnName = tuple[str, str]
"""(name of the source, column)."""


@dataclass(frozen=True, slots=True)
class Source:
    """A table or a subquery in a block's FROM. join: None for the first source."""

    alias: str
    node: exp.Table | exp.Subquery
    join: exp.Join | None

    @property
    def table(self) -> str:
        """The table's name; empty for a subquery."""
        return self.node.name if isinstance(self.node, exp.Table) else ""

    @property
    def optional(self) -> bool:
        """Whether it is the right side of a LEFT JOIN: its rows may be missing."""
        return self.join is not None and bool(self.join.side)


def selects(tree: exp.Expr) -> Iterator[exp.Select]:
    """All blocks, inner ones before those around them."""
    yield from reversed([node for node in tree.walk(bfs=True) if isinstance(node, exp.Select)])


def sources(select: exp.Select) -> list[Source]:
    """The sources in the block's FROM."""
    from_ = select.args.get("from_")
    if from_ is None:
        return []
    found = [Source(from_.this.alias_or_name, from_.this, None)]
    return found + [Source(join.this.alias_or_name, join.this, join) for join in select.args.get("joins") or ()]


def remove_source(select: exp.Select, source: Source) -> None:
    """Take a source that is joined by a cross join out of FROM; there must be another."""
    if source.join is not None:
        source.join.pop()
        return
    first = next(join for join in select.args["joins"] if not join.side)
    first.pop()
    select.args["from_"].set("this", first.this)


def rename_source(select: exp.Select, source: Source, name: str) -> None:
    """Give the source another name, which no other of the query has."""
    for found in columns_of(select, source.alias):
        found.set("table", exp.to_identifier(name, quoted=True))
    source.node.set("alias", exp.TableAlias(this=exp.to_identifier(name, quoted=True)))


# ---- conditions ------------------------------------------------------------------------------


def conjuncts_of(condition: exp.Expr | None) -> list[exp.Expr]:
    """The conditions that AND combines to this one."""
    if condition is None:
        return []
    if isinstance(condition, exp.Paren):
        return conjuncts_of(condition.this)
    return list(condition.flatten()) if isinstance(condition, exp.And) else [condition]


def conjuncts(select: exp.Select) -> list[exp.Expr]:
    """The conditions that AND combines in the block's WHERE."""
    where = select.args.get("where")
    return conjuncts_of(where.this) if where is not None else []


def common_conditions(condition: exp.Expr) -> list[exp.Expr]:
    """The conditions that all branches of an OR have: `a` of `(a AND b) OR (a AND c)`, which may join two sources."""
    condition = condition.unnest()
    if not isinstance(condition, exp.Or):
        return []
    first, *others = [conjuncts_of(branch) for branch in condition.flatten()]
    return [one for one in first if all(one in other for other in others)]


def set_conjuncts(select: exp.Select, conditions: Iterable[exp.Expr]) -> None:
    """Replace the block's WHERE by these conditions."""
    listed = [condition.copy() for condition in conditions]
    select.set("where", exp.Where(this=exp.and_(*listed, copy=False)) if listed else None)


def add_conjuncts(select: exp.Select, conditions: Iterable[exp.Expr]) -> None:
    """Add these conditions to the block's WHERE."""
    set_conjuncts(select, [*conjuncts(select), *conditions])


# ---- aggregates ------------------------------------------------------------------------------


def own_aggregates(expression: exp.Expr) -> list[exp.AggFunc]:
    """The aggregates of this expression, without those of blocks inside it."""
    return [
        node
        for node in expression.walk(prune=lambda node: isinstance(node, exp.Select))
        if isinstance(node, exp.AggFunc)
    ]


def aggregates(select: exp.Select) -> bool:
    """Whether the block's rows are groups of rows."""
    if select.args.get("group") or select.args.get("distinct") or select.args.get("having"):
        return True
    return any(own_aggregates(expression) for expression in select.expressions)


# ---- columns ---------------------------------------------------------------------------------


def name_of(column: exp.Column) -> ColumnName:
    """The name of the column's source, and the column's own."""
    return column.table, column.name


def column(source: str, name: str) -> exp.Column:
    """A reference to a column."""
    return exp.column(exp.to_identifier(name, quoted=True), table=exp.to_identifier(source, quoted=True))


def columns_of(node: exp.Expr, source: str | None = None) -> list[exp.Column]:
    """The references to columns in the tree, of one source only if a source is named."""
    return [found for found in node.find_all(exp.Column) if found.table and source in (None, found.table)]


def free_columns(select: exp.Select) -> set[ColumnName]:
    """Columns of surrounding blocks that the block, or one inside it, uses: they correlate it with those blocks."""
    own = {source.alias for inner in selects(select) for source in sources(inner)}
    return {name_of(found) for found in columns_of(select) if found.table not in own}


def rename_columns(node: exp.Expr, names: dict[ColumnName, ColumnName]) -> None:
    """Replace columns in the tree: old name to new one."""
    for found in columns_of(node):
        other = names.get(name_of(found))
        if other is not None:
            found.replace(column(*other))


class Equalities:
    """Classes of columns that are equal in every row that a block's conditions let pass."""

    def __init__(self, conditions: Iterable[exp.Expr]) -> None:
        self._parent: dict[ColumnName, ColumnName] = {}
        for condition in conditions:
            pair = equal_columns(condition)
            if pair is not None:
                self._parent[self._root(pair[0])] = self._root(pair[1])

    def _root(self, name: ColumnName) -> ColumnName:
        while name in self._parent and self._parent[name] != name:
            name = self._parent[name]
        return name

    def same(self, one: ColumnName, other: ColumnName) -> bool:
        """Whether the two are equal."""
        return self._root(one) == self._root(other)

    def same_as_any(self, one: ColumnName, others: Iterable[ColumnName]) -> bool:
        """Whether the column is equal to one of the others."""
        return any(self.same(one, other) for other in others)


def equal_columns(condition: exp.Expr) -> tuple[ColumnName, ColumnName] | None:
    """The two columns, if the condition says that two columns are equal."""
    if not isinstance(condition, exp.EQ):
        return None
    left, right = condition.this.unnest(), condition.expression.unnest()
    if isinstance(left, exp.Column) and isinstance(right, exp.Column):
        return name_of(left), name_of(right)
    return None
