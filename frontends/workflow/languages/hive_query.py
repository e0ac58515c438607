"""One query of HiveQL to operators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from sqlglot import exp

from frontends.relational import blocks
from frontends.workflow.errors import InvalidWorkflow, NotSupported
from frontends.workflow.ir.dag import (
    Difference,
    Distinct,
    Intersect,
    Operator,
    Output,
    Project,
    Relation,
    Sort,
    SortKey,
    Top,
    Union,
)
from frontends.workflow.languages.hive_building import Building
from frontends.workflow.languages.hive_frame import Frame
from frontends.workflow.languages.hive_from import BARE, From
from frontends.workflow.languages.hive_grouping import Grouping
from frontends.workflow.languages.hive_scope import Scope, block_column, outer_columns_of
from frontends.workflow.languages.hive_subqueries import OpenBlock, Subqueries


class Relations(Protocol):
    """The relations that names mean outside a query."""

    def relation(self, name: str) -> Relation:
        """`UnknownRelation` if there is none."""


@dataclass(frozen=True, slots=True)
class _WithNames:
    """The relations of a WITH before those outside it."""

    named: Mapping[str, Relation]
    outside: Relations

    def relation(self, name: str) -> Relation:
        return self.named.get(name.casefold()) or self.outside.relation(name)


@dataclass(frozen=True, slots=True)
class _Item:
    """A column of a SELECT. tree: resolved."""

    name: str
    tree: exp.Expr


def translate(query: exp.Query, building: Building, relations: Relations, thesis_and: bool) -> Relation:
    """The relation that the query makes. thesis_and: `GROUP BY x AND y` groups by both."""
    return _Translation(building, relations, thesis_and).query(query, None)


class _Translation:
    """One query, or a part of it that sees the same relations."""

    def __init__(self, building: Building, relations: Relations, thesis_and: bool) -> None:
        self._building, self._relations, self._thesis_and = building, relations, thesis_and
        self._subqueries = Subqueries(building, self._open, self.query)

    def query(self, query: exp.Expr, outer: Scope | None) -> Relation:
        """The relation that a query makes; outer: a scope that it must not read."""
        with_ = query.args.get("with_")
        if with_ is not None:
            return self._within(with_).query(_without(query, "with_"), outer)
        if isinstance(query, exp.Subquery):
            return self._wrapped(query, outer)
        if isinstance(query, exp.SetOperation):
            return self._set_operation(query, outer)
        if not isinstance(query, exp.Select):
            raise NotSupported(f"{query.key.upper()} as a query", self._building.at(query))
        return _Select(self._building, self._subqueries, self._open(query, outer), query, self._thesis_and).relation()

    def _within(self, with_: exp.With) -> _Translation:
        """A translation that knows the relations of WITH, each evaluated once."""
        inside: _Translation = self
        for one in with_.expressions:
            with self._building.located(one.args.get("alias"), one):
                if one.args["alias"].args.get("columns"):
                    raise NotSupported("names of columns in WITH")
                name = self._building.free_name(one.alias)
                with self._building.relation_named(name):
                    made = self._building.finish(inside.query(one.this, None), name, self._building.at(one))
            names = _WithNames({one.alias.casefold(): made}, inside._relations)
            inside = _Translation(self._building, names, self._thesis_and)
        return inside

    def _wrapped(self, query: exp.Subquery, outer: Scope | None) -> Relation:
        """A query in parentheses, perhaps with ORDER BY and LIMIT after them."""
        if not is_query(query.this):
            raise NotSupported("a join in parentheses", self._building.at(query))
        return self._ordered(query, self.query(query.this, outer))

    def _set_operation(self, query: exp.SetOperation, outer: Scope | None) -> Relation:
        left, right = self.query(query.this, outer), self.query(query.expression, outer)
        at = self._building.at(query.expression)
        all_rows = not query.args.get("distinct")
        if isinstance(query, exp.Union):
            made = self._building.add(Union, at, left=left, right=right, all_rows=all_rows)
        elif all_rows:
            raise NotSupported(f"{query.key.upper()} ALL", at)
        else:
            kind: type[Operator] = Intersect if isinstance(query, exp.Intersect) else Difference
            made = self._building.add(kind, at, left=left, right=right)
        return self._ordered(query, made)

    def _ordered(self, query: exp.Expr, made: Relation) -> Relation:
        items = [_Item(name, block_column(name)) for name in made.schema.names]
        return _in_order(self._building, query, made, items, None)

    # ---- blocks

    def _open(self, select: exp.Select, outer: Scope | None) -> OpenBlock:
        """The block after FROM and WHERE."""
        from_ = From(self._building, select, self._source, outer)
        resolved = []
        for condition in blocks.conjuncts(select):
            with self._building.located(condition):
                resolved.append(from_.scope.resolved(condition))
        tied = tuple(one for one in resolved if outer_columns_of(one))
        for one in tied:
            if one.find(exp.Query) is not None:
                raise NotSupported("a subquery in a condition that is correlated itself", self._building.at(one))
        frame, conditions = from_.joined([one for one in resolved if all(one is not other for other in tied)])
        self._subqueries.filter(frame, from_.scope, conditions)
        return OpenBlock(from_.scope, frame, tied)

    def _source(self, node: exp.Expr) -> Relation:
        """The relation of a table or subquery in FROM."""
        alias = node.args.get("alias")
        if alias is not None and alias.args.get("columns"):
            raise NotSupported("names of columns after a source")
        if isinstance(node, exp.Subquery):
            if isinstance(node.this, exp.Table):
                raise NotSupported("a join in parentheses")
            return self.query(_without(node, "alias"), None)
        if not isinstance(node, exp.Table):
            raise NotSupported(f"{node.key.upper()} in FROM")
        if node.args.get("db") is not None:
            raise NotSupported(f"a table of a database ({node.sql('hive')})")
        return self._relations.relation(node.name)


def is_query(node: object) -> bool:
    """Whether this is a SELECT, or combines several, perhaps in parentheses."""
    return isinstance(node, exp.Select | exp.SetOperation | exp.Subquery)


def _without(query: exp.Expr, clause: str) -> exp.Expr:
    other = query.copy()
    other.set(clause, None)
    return other


class _Select:
    """A SELECT whose FROM and WHERE are done."""

    def __init__(
        self, building: Building, subqueries: Subqueries, block: OpenBlock, select: exp.Select, thesis_and: bool
    ) -> None:
        self._building, self._subqueries, self._select = building, subqueries, select
        self._scope, self._frame, self._thesis_and = block.scope, block.frame, thesis_and
        if block.tied:
            raise _correlated(block.tied[0], building)

    def relation(self) -> Relation:
        items = self._items()
        if self._grouped(items):
            outputs = self._aggregated(items)
        else:
            outputs = [_Item(one.name, self._subqueries.replaced(self._frame, self._scope, one.tree)) for one in items]
        made = self._projected(outputs)
        distinct = self._select.args.get("distinct")
        if distinct is not None:
            made = self._building.add(Distinct, self._building.at(*self._select.expressions), source=made)
        return _in_order(self._building, self._select, made, items, self._scope)

    # ---- columns

    def _items(self) -> list[_Item]:
        found: list[_Item] = []
        for one in self._select.expressions:
            with self._building.located(one):
                star = one.this if isinstance(one, exp.Column) else one
                if isinstance(star, exp.Star):
                    if any(star.args.values()):
                        raise NotSupported("* EXCEPT, REPLACE or RENAME")
                    qualifier = one.table if isinstance(one, exp.Column) else ""
                    names = self._scope.star(qualifier)
                    bare = BARE in self._select.meta
                    found += [_Item(name if bare else self._scope.own_name(name), block_column(name)) for name in names]
                else:
                    found.append(self._item(one, len(found)))
        return found

    def _item(self, one: exp.Expr, place: int) -> _Item:
        """A column without a name is called as Hive calls it."""
        tree = self._resolved(one.unalias())
        if isinstance(one, exp.Alias):
            return _Item(one.alias, tree)
        plain = tree.unnest()
        if isinstance(plain, exp.Column):
            return _Item(self._scope.own_name(plain.name), tree)
        return _Item(f"_c{place}", tree)

    def _resolved(self, tree: exp.Expr) -> exp.Expr:
        with self._building.located(tree):
            resolved = self._scope.resolved(tree)
            if outer_columns_of(resolved):
                raise _correlated(tree, self._building)
        return resolved

    def _projected(self, outputs: list[_Item]) -> Relation:
        """The columns as they are named; no operator if the frame has just these."""
        scalars = [(one.name, self._building.scalar(self._frame.tree(one.tree)), one.tree) for one in outputs]
        source = self._frame.relation
        names = [name for name, _, _ in scalars]
        if [scalar.as_column for _, scalar, _ in scalars] == names == [
            *source.schema.names
        ] and not source.schema.others:
            return source
        for _, scalar, tree in scalars:
            with self._building.located(tree):
                scalar.type_in(source.schema)
        if BARE in self._select.meta and self._frame.narrow(
            {name: scalar.as_column or "" for name, scalar, _ in scalars}
        ):
            return self._frame.relation
        columns = tuple(Output(name, scalar) for name, scalar, _ in scalars)
        return self._building.add(Project, self._building.at(*self._select.expressions), source=source, columns=columns)

    # ---- groups

    def _grouped(self, items: list[_Item]) -> bool:
        grouped = any(self._select.args.get(clause) for clause in ("group", "having"))
        return grouped or any(blocks.own_aggregates(one.tree) for one in items)

    def _aggregated(self, items: list[_Item]) -> list[_Item]:
        """Make the groups the frame, keep those that HAVING says, and return the columns over them."""
        names = {_text(one.tree): one.name for one in reversed(items)}
        keys = [(tree, names.get(_text(tree), "key")) for tree in self._keys()]
        grouping = Grouping(self._frame, keys, [one.name for one in items])
        outputs = [_Item(one.name, grouping.rewritten(one.tree, one.name)) for one in items]
        conditions = [grouping.rewritten(one) for one in self._having(keys)]
        if not keys and not grouping.aggregates:
            raise NotSupported("HAVING without GROUP BY or aggregates", self._building.at(self._select.args["having"]))
        group = self._select.args.get("group")
        relation = grouping.relation(group, *self._select.expressions)
        self._frame = Frame(self._building, relation)
        self._subqueries.filter(self._frame, None, conditions)
        return [_Item(one.name, self._subqueries.replaced(self._frame, None, one.tree)) for one in outputs]

    def _keys(self) -> list[exp.Expr]:
        group = self._select.args.get("group")
        found: list[exp.Expr] = []
        for one in group.expressions if group is not None else ():
            parts = list(one.flatten()) if isinstance(one, exp.And) and self._thesis_and else [one]
            if len(parts) > 1 and not all(isinstance(part.unnest(), exp.Column) for part in parts):
                parts = [one]
            for part in parts:
                resolved = self._resolved(part)
                with self._building.located(part):
                    if resolved.find(exp.Column) is None:
                        raise NotSupported(f"GROUP BY a constant ({part.sql('hive')})")
                    if resolved.find(exp.AggFunc, exp.Query) is not None:
                        raise InvalidWorkflow("GROUP BY an aggregate or a subquery")
                found.append(resolved)
        return found

    def _having(self, keys: list[tuple[exp.Expr, str]]) -> list[exp.Expr]:
        """The conditions, resolved; a name that is no key may be that of a column of SELECT."""
        having = self._select.args.get("having")
        named = {one.alias.casefold(): one.unalias() for one in self._select.expressions if one.alias}
        found = []
        for condition in blocks.conjuncts_of(having.this if having is not None else None):
            wrapped = exp.Paren(this=condition.copy())
            for node in list(wrapped.walk(prune=lambda node: isinstance(node, exp.Query | exp.AggFunc))):
                meant = named.get(node.name.casefold()) if isinstance(node, exp.Column) and not node.table else None
                if meant is not None and not self._is_key(node, keys):
                    node.replace(exp.Paren(this=meant.copy()))
            found.append(self._resolved(wrapped.this))
        return found

    def _is_key(self, node: exp.Expr, keys: list[tuple[exp.Expr, str]]) -> bool:
        try:
            resolved = self._scope.resolved(node)
        except InvalidWorkflow:
            return False
        return any(_text(resolved) == _text(key) for key, _ in keys)


def _text(tree: exp.Expr) -> str:
    return tree.unnest().sql(comments=False)


def _correlated(tree: exp.Expr, building: Building) -> InvalidWorkflow:
    names = ", ".join(sorted(outer_columns_of(tree))) or tree.sql()
    return NotSupported(
        f"a subquery that reads columns of the block around ({names}) elsewhere than in a WHERE, or that has GROUP BY, "
        "aggregates, DISTINCT or LIMIT,",
        building.at(tree),
    )


# ---- ORDER BY and LIMIT ----------------------------------------------------------------------


def _in_order(building: Building, query: exp.Expr, made: Relation, items: list[_Item], scope: Scope | None) -> Relation:
    """The first rows, or all, in order. items: the columns of `made`, before they were grouped."""
    order, limit = query.args.get("order"), query.args.get("limit")
    if query.args.get("offset") is not None:
        raise NotSupported("OFFSET", building.at(query.args["offset"]))
    keys: dict[str, SortKey] = {}
    for term in order.expressions if order is not None else ():
        with building.located(term):
            column = _ordering(term, items, scope)
            keys.setdefault(column, SortKey(column, bool(term.args.get("desc"))))
    at = building.at(order, limit)
    if limit is not None:
        made = building.add(Top, at, source=made, count=_count(limit, building), keys=tuple(keys.values()))
    if keys:
        made = building.add(Sort, at, source=made, keys=tuple(keys.values()))
    return made


def _ordering(term: exp.Expr, items: list[_Item], scope: Scope | None) -> str:
    """The column that a term of ORDER BY means: by name, by place, or by the expression that it is."""
    tree = term.this.unnest()
    if term.args.get("desc") and term.args.get("nulls_first"):
        raise NotSupported("NULLS FIRST")
    if isinstance(tree, exp.Column) and not tree.table:
        for one in items:
            if one.name.casefold() == tree.name.casefold():
                return one.name
    if isinstance(tree, exp.Literal) and not tree.is_string and tree.name.isdecimal():
        place = int(tree.name) if len(tree.name) < 6 else 0
        if not 1 <= place <= len(items):
            raise InvalidWorkflow(f"ORDER BY {tree.name}; the SELECT has the columns 1 to {len(items)}")
        return items[place - 1].name
    if scope is not None:
        text = _text(scope.resolved(tree))
        for one in items:
            if _text(one.tree) == text:
                return one.name
    raise NotSupported(f"ORDER BY {tree.sql('hive')}, which is no column of the SELECT,")


def _count(limit: exp.Expr, building: Building) -> int:
    value = limit.expression
    if not isinstance(value, exp.Literal) or value.is_string or not value.name.isdecimal() or len(value.name) > 18:
        raise NotSupported(f"LIMIT {value.sql('hive')}: anything but a whole number", building.at(value))
    return int(value.name)
