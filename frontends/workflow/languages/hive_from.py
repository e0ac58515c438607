"""FROM: sources, and the joins that bring them together.

Sources of inner joins, whether written with JOIN or with commas, are joined in the order of FROM, but each when an
equality ties it to those before it; a cross join is made of what nothing ties. Conditions that join nothing stay for
one SELECT after the joins: moving them towards the sources is a rewrite of the DAG.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from sqlglot import exp

from frontends.relational import blocks
from frontends.workflow.errors import NameTaken, NotSupported, UnknownColumn
from frontends.workflow.ir.dag import JoinKind, Relation
from frontends.workflow.languages.hive_building import Building
from frontends.workflow.languages.hive_frame import Frame, Pair
from frontends.workflow.languages.hive_scope import (
    Scope,
    Source,
    block_column,
    columns_of,
    outer_columns_of,
    source,
)

BARE = "bare join"
"""Key in the `meta` of a SELECT that was a join without SELECT."""
_KINDS = {
    ("", ""): JoinKind.INNER,
    ("", "INNER"): JoinKind.INNER,
    ("", "CROSS"): JoinKind.INNER,
    ("LEFT", ""): JoinKind.LEFT,
    ("LEFT", "OUTER"): JoinKind.LEFT,
    ("LEFT", "SEMI"): JoinKind.SEMI,
    ("LEFT", "ANTI"): JoinKind.ANTI,
}


class From:
    """The sources of a block. open_source: makes the relation of a table or subquery; outer: the scope around."""

    def __init__(
        self, building: Building, select: exp.Select, open_source: Callable[[exp.Expr], Relation], outer: Scope | None
    ) -> None:
        self._building, self._outer = building, outer
        self._bare = BARE in select.meta
        self._clauses: list[tuple[Source, exp.Join | None]] = []
        taken: set[str] = set()
        for one in blocks.sources(select):
            with building.located(one.node):
                if any(made.qualifier.casefold() == one.alias.casefold() != "" for made, _ in self._clauses):
                    raise NameTaken("relation", one.alias, one.alias)
                made = source(one.alias, open_source(one.node), taken)
                taken.update(made.columns)
                self._clauses.append((made, one.join))
        self._kinds = [None if join is None else self._kind(join) for _, join in self._clauses]
        self._ons = [self._on(number) for number in range(len(self._clauses))]
        visible = [
            one for (one, _), kind in zip(self._clauses, self._kinds, strict=True)
            if kind not in (JoinKind.SEMI, JoinKind.ANTI)
        ]  # fmt: skip
        self.scope = Scope(building, visible, outer)

    def _kind(self, join: exp.Join) -> JoinKind | str:
        """How the source is joined; "RIGHT" has no kind of its own."""
        side, kind, method = join.side.upper(), join.kind.upper(), join.method.upper()
        if method or (side, kind) not in {*_KINDS, ("RIGHT", ""), ("RIGHT", "OUTER")}:
            raise NotSupported(f"{' '.join(filter(None, (method, side, kind)))} JOIN", self._building.at(join.this))
        return "RIGHT" if side == "RIGHT" else _KINDS[side, kind]

    def _on(self, number: int) -> list[exp.Expr]:
        """The resolved conditions of the join that brings in this source."""
        made, join = self._clauses[number]
        if join is None:
            return []
        before = [
            one for (one, _), kind in zip(self._clauses[:number], self._kinds, strict=False)
            if kind not in (JoinKind.SEMI, JoinKind.ANTI)
        ]  # fmt: skip
        scope, found = Scope(self._building, [*before, made], self._outer), []
        for using in join.args.get("using") or ():
            with self._building.located(using):
                found.append(self._using(number, Scope(self._building, before), exp.column(using.copy())))
        for condition in blocks.conjuncts_of(join.args.get("on")):
            with self._building.located(condition, join.this):
                if condition.find(exp.Query) is not None:
                    raise NotSupported("a subquery in ON")
                resolved = scope.resolved(condition)
                if outer_columns_of(resolved):
                    raise NotSupported("a column of the block around a subquery in ON")
                found.append(resolved)
                if self._bare:
                    self._merge_keys(number, Scope(self._building, before), resolved)
        return found

    def _using(self, number: int, before: Scope, column: exp.Column) -> exp.Expr:
        """The condition that USING says; one of its two columns is hidden from now on."""
        made, _ = self._clauses[number]
        names = made.named(column.name)
        if not names:
            made.relation.schema.check_type(column.name)
            raise UnknownColumn(column.name, made.columns.values())
        condition = exp.EQ(this=before.resolved(column), expression=block_column(names[0]))
        self._merge_keys(number, before, condition)
        return condition

    def _merge_keys(self, number: int, before: Scope, condition: exp.Expr) -> None:
        """Hide one of two columns of the same name that an equality has: that of the side that may lack rows."""
        made, _ = self._clauses[number]
        pair = equality(condition, before.types(), made.columns)
        if pair is None or not all(isinstance(side, exp.Column) for side in pair):
            return
        left, right = (side.name for side in pair)
        if before.own_name(left).casefold() == made.columns[right].casefold():
            hidden = left if self._kinds[number] == "RIGHT" else right
            for one in (*before.sources, made):
                one.merged |= {hidden} & one.columns.keys()

    # ---- joins

    def joined(self, where: Sequence[exp.Expr]) -> tuple[Frame, list[exp.Expr]]:
        """All sources joined, and the conditions of `where`, which are resolved, and of joins that remain."""
        if not self._clauses:
            raise NotSupported("a SELECT without FROM", self._building.at())
        last_right = max((place for place, kind in enumerate(self._kinds) if kind == "RIGHT"), default=-1)
        pool = list(where) if last_right < 0 else []
        frame: Frame | None = None
        waiting: list[Frame] = []
        for place, ((made, _), kind) in enumerate(zip(self._clauses, self._kinds, strict=True)):
            other = Frame(self._building, made.relation, made.columns)
            if kind in (None, JoinKind.INNER):
                waiting.append(other)
                pool += self._ons[place]
                continue
            frame, waiting = self._all(frame, waiting, pool), []
            if kind == "RIGHT":
                frame.select(pool)
                pool = []
            self._outer_join(frame, other, self._ons[place], kind)
            if place == last_right:
                pool = list(where)
        return self._all(frame, waiting, pool), pool

    def _all(self, frame: Frame | None, waiting: list[Frame], pool: list[exp.Expr]) -> Frame:
        """The frames joined; conditions that join them are taken out of the pool."""
        left = list(waiting)
        frame = frame or left.pop(0)
        while left:
            tied = next((one for one in left if _pairs(frame, one, pool)), left[0])
            left.remove(tied)
            pairs = _pairs(frame, tied, pool)
            pool[:] = [one for one in pool if all(one is not condition for condition, _ in pairs)]
            frame.join(tied, [pair for _, pair in pairs])
        return frame

    def _outer_join(self, frame: Frame, other: Frame, conditions: list[exp.Expr], kind: JoinKind | str | None) -> None:
        """Conditions of a join other than INNER: equalities of both sides, and any of the side that may lack rows."""
        pairs = _pairs(frame, other, conditions)
        rest = [one for one in conditions if all(one is not condition for condition, _ in pairs)]
        optional, name = (frame, "left") if kind == "RIGHT" else (other, "right")
        for one in rest:
            if not columns_of(one) <= optional.columns.keys():
                raise NotSupported(
                    f"a condition of an outer join that is no equality of its sides, nor of its {name} side alone,",
                    self._building.at(one),
                )
        if not pairs:
            raise NotSupported("an outer join without an equality of its sides", self._building.at(*conditions))
        optional.select(rest)
        if isinstance(kind, JoinKind):
            frame.join(other, [pair for _, pair in pairs], kind)
        else:
            frame.join_from_right(other, [pair for _, pair in pairs])


def _pairs(left: Frame, right: Frame, conditions: Sequence[exp.Expr]) -> list[tuple[exp.Expr, Pair]]:
    """The equalities between the two, each with the condition that it is.

    One that all branches of an OR have comes with itself: the OR stays.
    """
    found = []
    for condition in conditions:
        for one in (condition, *blocks.common_conditions(condition)):
            pair = equality(one, left.columns.keys(), right.columns.keys())
            if pair is not None:
                found.append((one, pair))
    return found


def equality(condition: exp.Expr, left: Collection[str], right: Collection[str]) -> Pair | None:
    """The two sides of an equality between columns of two sets, that of the left set first."""
    condition = condition.unnest()
    if not isinstance(condition, exp.EQ) or condition.find(exp.Query) is not None or outer_columns_of(condition):
        return None
    sides = condition.this.unnest(), condition.expression.unnest()
    used = [columns_of(side) for side in sides]
    if not all(used):
        return None
    for place in (0, 1):
        if used[place] <= set(left) and used[1 - place] <= set(right):
            return sides[place], sides[1 - place]
    return None
