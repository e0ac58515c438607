"""Which column of which source a name in a block means."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from frontends.workflow.errors import InvalidWorkflow, NotSupported, UnknownColumn, UnknownRelation
from frontends.workflow.ir.dag import Relation, free_name
from frontends.workflow.ir.scalars.normal_form import cast
from frontends.workflow.ir.types import Column, Schema, Type
from frontends.workflow.languages.hive_building import Building

OUTER = " outer"
"""The table of columns, in resolved trees, that belong to the block around; no name begins with a space."""


@dataclass(slots=True)
class Source:
    """A relation in FROM.

    columns: {name in the block: name in the relation}; those of all sources of a block have different names there.
    merged: columns that USING has made one with those of an earlier source, so that only a qualifier gives them.
    """

    qualifier: str
    relation: Relation
    columns: dict[str, str]
    merged: set[str] = field(default_factory=set)

    def named(self, name: str) -> list[str]:
        """The columns, by their names in the block, that this name means."""
        folded = name.casefold()
        return [inside for inside, own in self.columns.items() if own.casefold() == folded]


def source(qualifier: str, relation: Relation, taken: Iterable[str]) -> Source:
    """A source beside others, whose columns have the names `taken` in the block."""
    names = {name.casefold() for name in taken}
    columns = {}
    for own in relation.schema.names:
        inside = own if own.casefold() not in names else free_name(f"{qualifier or relation.name}_{own}", names)
        names.add(inside.casefold())
        columns[inside] = own
    return Source(qualifier, relation, columns)


class Scope:
    """The sources whose columns a tree may name; outer: those of the block around, if there is one.

    building: knows where in the text names stand.
    """

    def __init__(self, building: Building, sources: Iterable[Source], outer: Scope | None = None) -> None:
        self._building, self.sources, self._outer = building, list(sources), outer

    def types(self) -> dict[str, Type]:
        """Types of the columns, by their names in the block."""
        return {
            inside: one.relation.schema.column(own).type for one in self.sources for inside, own in one.columns.items()
        }

    def schema(self) -> Schema:
        """All columns, by their names in the block."""
        return Schema(tuple(Column(name, type_) for name, type_ in self.types().items()))

    def resolved(self, tree: exp.Expr) -> exp.Expr:
        """A copy in which columns have their names in the block alone, those of the block around the table `OUTER`.

        Blocks within the tree stay as they are.
        """
        wrapped = exp.Paren(this=tree.copy())
        types = self.types()
        for column in [node for node in wrapped.walk(prune=is_block) if isinstance(node, exp.Column)]:
            with self._building.located(column):
                column.replace(self._resolved(column))
        for node in reversed([*wrapped.walk(prune=is_block)]):
            with self._building.located(node):
                other = _in_standard_form(node, types)
            if other is not None:
                node.replace(other)
        inner: exp.Expr = wrapped.this
        inner.pop()
        return inner

    def _resolved(self, node: exp.Column) -> exp.Column:
        if not isinstance(node.this, exp.Identifier):
            raise NotSupported("* beside anything else than columns of a SELECT")
        if node.args.get("db") is not None:
            raise NotSupported(f"a part of a column ({node.sql('hive')})")
        own = self._find(node)
        if own is not None:
            return _column(own, node)
        if self._outer is not None:
            around = self._outer._find(node)
            if around is not None:
                return _column(around, node, OUTER)
            if self._outer._outer is not None and self._outer._outer._find(node) is not None:
                raise NotSupported(f"{node.sql('hive')} of a block further out than the one around a subquery")
        raise self._unknown(node)

    def _find(self, node: exp.Column) -> str | None:
        """The name in the block of the column, None if there is none; `InvalidWorkflow` if there are several."""
        qualifier, found = node.table.casefold(), []
        for one in self.sources:
            if not qualifier or one.qualifier.casefold() == qualifier:
                names = one.named(node.name)
                found += [(one, name) for name in names if qualifier or name not in one.merged]
                one.relation.schema.check_type(node.name)
        if len(found) > 1:
            choices = " or ".join(f"{one.qualifier}.{one.columns[name]}" for one, name in found)
            raise InvalidWorkflow(f"there are several columns {node.name}: write {choices}")
        return found[0][1] if found else None

    def _unknown(self, node: exp.Column) -> InvalidWorkflow:
        scopes = [self] if self._outer is None else [self, self._outer]
        known = [one for scope in scopes for one in scope.sources]
        if node.table:
            meant = [one for one in known if one.qualifier.casefold() == node.table.casefold()]
            if not meant:
                return UnknownRelation(node.table, [one.qualifier for one in known if one.qualifier])
            known = meant
        return UnknownColumn(node.name, [own for one in known for own in one.columns.values()])

    def star(self, qualifier: str = "") -> list[str]:
        """The columns that `*` or `qualifier.*` means, by their names in the block."""
        chosen = [one for one in self.sources if not qualifier or one.qualifier.casefold() == qualifier.casefold()]
        if not chosen:
            raise UnknownRelation(qualifier, [one.qualifier for one in self.sources if one.qualifier])
        for one in chosen:
            one.relation.schema.check_whole(f"{qualifier}.*" if qualifier else "*")
        return [name for one in chosen for name in one.columns if qualifier or name not in one.merged]

    def own_name(self, inside: str) -> str:
        """The name that a column of the block has in its relation."""
        return next(one.columns[inside] for one in self.sources if inside in one.columns)


def is_block(node: exp.Expr) -> bool:
    """Whether the node is a SELECT or what combines several."""
    return isinstance(node, exp.Query)


def columns_of(tree: exp.Expr) -> set[str]:
    """The block's own columns in a resolved tree."""
    return {node.name for node in tree.find_all(exp.Column) if node.table != OUTER}


def outer_columns_of(tree: exp.Expr) -> set[str]:
    """The columns of the block around in a resolved tree."""
    return {node.name for node in tree.find_all(exp.Column) if node.table == OUTER}


def replaced_columns(
    tree: exp.Expr, names: Mapping[str, str] | None = None, outer: Mapping[str, str] | None = None
) -> exp.Expr:
    """A copy of a resolved tree with other names for its own columns, and for those of the block around, which become
    its own; a column that no mapping has stays as it is."""

    def replaced(node: exp.Expr) -> exp.Expr:
        mapping = (outer if isinstance(node, exp.Column) and node.table == OUTER else names) or {}
        if isinstance(node, exp.Column) and node.name in mapping:
            return _column(mapping[node.name], node)
        return node

    return tree.copy().transform(replaced, copy=False)


def _column(name: str, like: exp.Column, table: str = "") -> exp.Column:
    """The column of this name at the place of another."""
    found = exp.Column(this=exp.Identifier(this=name, quoted=True))
    if table:
        found.set("table", exp.Identifier(this=table, quoted=True))
    first = like.args.get("table") or like.this
    found.this.meta.update(first.meta)
    return found


def block_column(name: str) -> exp.Column:
    """A column in a resolved tree."""
    return exp.Column(this=exp.Identifier(this=name, quoted=True))


def _in_standard_form(node: exp.Expr, types: Mapping[str, Type]) -> exp.Expr | None:
    """What a function of Hive is in the subset of scalars; None for what stays as it is."""
    if isinstance(node, exp.Anonymous):
        raise NotSupported(f"the function {node.name}")
    if isinstance(node, exp.IntDiv):
        raise NotSupported("DIV, the division of whole numbers,")
    if isinstance(node, exp.TsOrDsToDate):
        if node.args.get("format") is not None:
            raise NotSupported("a format of dates")
        return _as_date(node.this, types)
    if isinstance(node, exp.TsOrDsAdd | exp.AddMonths):
        unit = node.args.get("unit") or exp.Var(this="MONTH")
        interval = exp.Interval(this=_number(node.args["expression"]), unit=unit.copy())
        return exp.Add(this=_as_date(node.this, types), expression=interval)
    return None


def _as_date(value: exp.Expr, types: Mapping[str, Type]) -> exp.Expr:
    if isinstance(value, exp.Column) and not value.table and types.get(value.name) is Type.DATE:
        return value.copy()
    return cast(value.copy(), Type.DATE)


def _number(value: exp.Expr) -> exp.Expr:
    """The literal number, perhaps negative, of which sqlglot makes `n * -1` for date_sub."""
    value = value.unnest()
    if isinstance(value, exp.Mul) and isinstance(value.args["expression"].unnest(), exp.Neg):
        inner = value.this.unnest()
        return inner.this.copy() if isinstance(inner, exp.Neg) else exp.Neg(this=inner.copy())
    return value.copy()
