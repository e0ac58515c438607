"""Rewrites that order joins and projections by what earlier runs have shown (§3.3.1, §3.5.1)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from frontends.workflow.ir.dag import (
    Dag,
    Join,
    JoinKind,
    JoinOutput,
    Operator,
    Output,
    Project,
    Relation,
    Side,
    free_name,
)
from frontends.workflow.rewrites.applying import Change, Step, Surroundings, cannot_overflow

KnownRows = Callable[[Dag], Mapping[str, float]]
"""How many rows relations of a DAG have had in earlier runs: {relation: rows}, without those that are not known."""
_OTHER_SIDE = {Side.LEFT: Side.RIGHT, Side.RIGHT: Side.LEFT}


def nothing_known(dag: Dag) -> Mapping[str, float]:
    """Without history."""
    return {}


# ---- joins -----------------------------------------------------------------------------------


def joins_by_history(known_rows: KnownRows) -> Step:
    """Of two joins of one relation, that comes first which has left fewer rows of each row.

    `(a JOIN b) JOIN c`, where the second join's keys are columns of a, becomes `(a JOIN c) JOIN b` if the rows of a, of
    the first and of the second join are known, and the second join has made fewer rows of each that it read.
    """

    def step(around: Surroundings, operator: Operator) -> Change | None:
        chain = _chain(around, operator)
        if chain is None:
            return None
        rows = known_rows(around.dag)
        counts = [rows.get(name) for name in (chain.first.left.name, chain.read, operator.name)]
        if None in counts:
            return None
        start, between, end = (count or 0.0 for count in counts)
        return _swapped(around, chain) if end * start < between * between else None

    return step


@dataclass(frozen=True)
class _Chain:
    """Two joins: `first`, of a and b, makes the left side of `second`, whose keys are columns of a.

    read: the relation that the first join makes.
    """

    first: Join
    second: Join

    @property
    def read(self) -> str:
        return self.first.name

    def origin(self, column: str) -> JoinOutput:
        """Which column of which side of the first join this column of it is."""
        return next(one for one in self.first.columns if one.name == column)


def _chain(around: Surroundings, operator: Operator) -> _Chain | None:
    if not isinstance(operator, Join) or operator.kind is JoinKind.LEFT:
        return None
    orders = [operator, _mirrored(operator)] if operator.kind is JoinKind.INNER else [operator]
    for second in orders:
        first = around.private(second.left.name)
        if not isinstance(first, Join) or not first.kind.pairs:
            continue
        sides = {_Chain(first, second).origin(key).side for key in second.left_keys}
        if sides == {Side.LEFT}:
            return _Chain(first, second)
        if sides == {Side.RIGHT} and first.kind is JoinKind.INNER:
            return _Chain(_mirrored(first), second)
    return None


def _mirrored(join: Join) -> Join:
    """The same inner join with its sides exchanged."""
    return dataclasses.replace(
        join,
        left=join.right,
        right=join.left,
        on=tuple((right, left) for left, right in join.on),
        columns=tuple(JoinOutput(one.name, _OTHER_SIDE[one.side], one.column) for one in join.columns),
    )


def _swapped(around: Surroundings, chain: _Chain) -> Change:
    first, second = chain.first, chain.second
    kept = dict.fromkeys(first.left_keys)
    added: dict[str, str] = {}
    columns: list[JoinOutput] = []
    for one in second.columns:
        if one.side is Side.RIGHT:
            taken = (*first.left.schema.names, *added.values())
            name = added.setdefault(one.column, free_name(one.column, taken))
            columns.append(JoinOutput(one.name, Side.LEFT, name))
            continue
        origin = chain.origin(one.column)
        columns.append(JoinOutput(one.name, origin.side, origin.column))
        if origin.side is Side.LEFT:
            kept[origin.column] = None
    earlier = Join(
        name=around.fresh(first.left.name, "joined"),
        left=first.left,
        right=second.right,
        on=tuple((chain.origin(left).column, right) for left, right in second.on),
        kind=second.kind,
        columns=(
            *(JoinOutput(name, Side.LEFT, name) for name in kept),
            *(JoinOutput(name, Side.RIGHT, column) for column, name in added.items()),
        ),
        at=second.at,
    )
    later = dataclasses.replace(first, name=second.name, left=earlier.relation, columns=tuple(columns))
    return Change((earlier, later), frozenset((first.name,)))


# ---- projections -----------------------------------------------------------------------------


def projections_by_history(known_rows: KnownRows) -> Step:
    """Columns of one side of a join are computed, and those that nobody reads are left out, before the join, if it is
    known to make more rows than either side has."""

    def step(around: Surroundings, operator: Operator) -> Change | None:
        if not isinstance(operator, Project):
            return None
        join = around.private(operator.source.name)
        if not isinstance(join, Join) or not join.kind.pairs:
            return None
        rows = known_rows(around.dag)
        counts = [rows.get(name) for name in (*join.inputs, join.name)]
        if None in counts or (counts[2] or 0.0) <= max(counts[0] or 0.0, counts[1] or 0.0):
            return None
        sides = [_side_of(one, join) for one in operator.columns]
        if None in sides:
            return None
        return _projected_earlier(around, operator, join, [side or Side.LEFT for side in sides])

    return step


def _side_of(output: Output, join: Join) -> Side | None:
    """The side of the join that the column can be computed from before it; None if there is none."""
    sides = {one.side for one in join.columns if one.name in output.value.columns} or {Side.LEFT}
    if len(sides) > 1:
        return None
    (side,) = sides
    if output.value.as_column is not None:
        return side
    null_beside_left = side is Side.RIGHT and join.kind is JoinKind.LEFT
    return None if null_beside_left or not cannot_overflow(output.value, join.schema) else side


class _SideProjection:
    """The columns that one side of a join keeps and computes."""

    def __init__(self, source: Relation, keys: tuple[str, ...]) -> None:
        self._source = source
        self._outputs: dict[str, Output] = {}
        for key in keys:
            self._outputs[key] = Output.column(key)

    def add(self, output: Output, renamed: Mapping[str, str]) -> str:
        """The name of the column in the projection. renamed: {column of the join: column of this side}."""
        value = output.value.renamed(renamed)
        column = value.as_column
        name = free_name(output.name, (*self._source.schema.names, *self._outputs)) if column is None else column
        self._outputs[name] = Output(name, value)
        return name

    def over(self, name: str) -> Project:
        return Project(name=name, source=self._source, columns=tuple(self._outputs.values()))


def _projected_earlier(around: Surroundings, project: Project, join: Join, sides: list[Side]) -> Change:
    made = {
        Side.LEFT: _SideProjection(join.left, join.left_keys),
        Side.RIGHT: _SideProjection(join.right, join.right_keys),
    }
    names = {
        side: {one.name: one.column for one in join.columns if one.side is side} for side in Side
    }  # fmt: skip
    columns = []
    for one, side in zip(project.columns, sides, strict=True):
        renamed = {name: names[side][name] for name in one.value.columns}
        columns.append(JoinOutput(one.name, side, made[side].add(one, renamed)))
    left = made[Side.LEFT].over(around.fresh(join.left.name, "projected"))
    right = made[Side.RIGHT].over(around.fresh(join.right.name, "projected"))
    later = dataclasses.replace(
        join, name=project.name, left=left.relation, right=right.relation, columns=tuple(columns)
    )
    return Change((left, right, later), frozenset((join.name,)))
