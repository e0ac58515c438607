"""What a block has made of its sources so far: one relation, to which conditions, columns and joins are added."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from sqlglot import exp

from frontends.workflow.errors import TypeMismatch
from frontends.workflow.ir.dag import (
    Arithmetic,
    CrossJoin,
    Join,
    JoinKind,
    JoinOutput,
    Relation,
    Select,
    Side,
    free_name,
)
from frontends.workflow.ir.scalars.expressions import all_of
from frontends.workflow.ir.scalars.normal_form import cast
from frontends.workflow.ir.types import Type
from frontends.workflow.languages.hive_building import Building
from frontends.workflow.languages.hive_scope import replaced_columns

Pair = tuple[exp.Expr, exp.Expr]
"""Resolved trees that a join compares: over its left side, and over its right side."""


class Frame:
    """A relation under way. columns: {name in the block: name in the relation}."""

    def __init__(self, building: Building, relation: Relation, columns: Mapping[str, str] | None = None) -> None:
        self.building = building
        self.relation = relation
        self.columns = dict(columns) if columns is not None else {name: name for name in relation.schema.names}

    def tree(self, resolved: exp.Expr) -> exp.Expr:
        """A resolved tree with the relation's own names for columns."""
        return replaced_columns(resolved, self.columns)

    def select(self, conditions: Sequence[exp.Expr]) -> None:
        """Keep the rows that meet all of these resolved conditions."""
        if conditions:
            scalars = [self.building.scalar(self.tree(one)) for one in conditions]
            for one, scalar in zip(conditions, scalars, strict=True):
                with self.building.located(one):
                    scalar.type_in(self.relation.schema)
            condition = scalars[0] if len(scalars) == 1 else all_of(*scalars)
            self.relation = self.building.add(
                Select, self.building.at(conditions[0]), source=self.relation, condition=condition
            )

    def type_of(self, resolved: exp.Expr) -> Type:
        with self.building.located(resolved):
            return self.building.scalar(self.tree(resolved)).type_in(self.relation.schema)

    def column_of(self, resolved: exp.Expr, type_: Type | None = None) -> str:
        """The relation's column that a resolved tree is, added if it is none; cast to this type if one is given."""
        tree = self.tree(resolved)
        if type_ is not None and self.type_of(resolved) is not type_:
            tree = cast(tree, type_)
        scalar = self.building.scalar(tree)
        if scalar.as_column is not None:
            return self.relation.schema.column(scalar.as_column).name
        name = free_name("key", self.relation.schema.names)
        at = self.building.at(resolved)
        self.relation = self.building.add(Arithmetic, at, source=self.relation, column=name, value=scalar)
        return name

    # ---- joins

    def keys(self, other: Frame, pairs: Iterable[Pair]) -> tuple[tuple[str, str], ...]:
        """The columns that a join on these pairs compares; those that are no columns yet are added to both frames."""
        on: dict[tuple[str, str], None] = {}
        for left, right in pairs:
            types = self.type_of(left), other.type_of(right)
            wanted = Type.DOUBLE if set(types) == {Type.INTEGER, Type.DOUBLE} else None
            if types[0] is not types[1] and wanted is None:
                raise TypeMismatch(
                    f"{self.building.scalar(left)}, {types[0].value}, is compared with "
                    f"{self.building.scalar(right)}, {types[1].value}: cast one of them",
                    self.building.at(left, right),
                )
            on[self.column_of(left, wanted), other.column_of(right, wanted)] = None
        return tuple(on)

    def join(self, other: Frame, pairs: Sequence[Pair], kind: JoinKind = JoinKind.INNER) -> None:
        """Bring in the other frame's columns, by their names in the block; none if the join has no pairs of rows."""
        at = self.building.at(*(tree for pair in pairs for tree in pair))
        on = self.keys(other, pairs)
        columns = self._outputs(other if kind.pairs else None)
        sides = {"left": self.relation, "right": other.relation, "columns": columns}
        if on:
            self.relation = self.building.add(Join, at, on=on, kind=kind, **sides)
        else:
            self.relation = self.building.add(CrossJoin, at, **sides)
        self.columns = {one.name: one.name for one in columns}

    def narrow(self, columns: Mapping[str, str]) -> bool:
        """Have the join that made the relation make these columns alone, {name: present name}, if it was one."""
        last = self.building.operators[-1]
        if last.name != self.relation.name or not isinstance(last, Join | CrossJoin):
            return False
        made = {one.name: one for one in last.columns}
        kept = tuple(dataclasses.replace(made[old], name=new) for new, old in columns.items())
        self.building.operators[-1] = dataclasses.replace(last, columns=kept)
        self.relation = self.building.operators[-1].relation
        self.columns = {name: name for name in columns}
        return True

    def join_from_right(self, other: Frame, pairs: Sequence[Pair]) -> None:
        """RIGHT JOIN: all rows of the other frame, with this one's beside them where there are such."""
        on = other.keys(self, [(right, left) for left, right in pairs])
        columns = tuple(
            JoinOutput(one.name, Side.LEFT if one.side is Side.RIGHT else Side.RIGHT, one.column)
            for one in self._outputs(other)
        )
        at = self.building.at(*(tree for pair in pairs for tree in pair))
        self.relation = self.building.add(
            Join, at, left=other.relation, right=self.relation, on=on, kind=JoinKind.LEFT, columns=columns
        )
        self.columns = {one.name: one.name for one in columns}

    def _outputs(self, other: Frame | None) -> tuple[JoinOutput, ...]:
        columns = [JoinOutput(name, Side.LEFT, own) for name, own in self.columns.items()]
        if other is not None:
            columns += [JoinOutput(name, Side.RIGHT, own) for name, own in other.columns.items()]
        return tuple(columns)
