"""Which joins of a job each mapper does by itself: one side is so small that it reads that side whole.

Such a join needs no shuffle, so it may come before another operator's, several may be in one job, and the thesis's
rules take it for map-only (§3.4.1 has no such join; Hive calls it a map join, others a broadcast join).

A side is read whole only if rows of the other decide alone what becomes of them: either side of an inner and of a cross
join, the right side of a LEFT, SEMI or ANTI join. It is read from files, and operators before the join that work on a
row at a time are done in each mapper, too: that costs less than a job that keeps what they make, and makes the same
rows in each. What other operators make has to be kept by an earlier job: sums of doubles in another order differ.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from frontends.workflow.ir.dag import CrossJoin, Join, JoinKind, Operator, Side
from frontends.workflow.jobs.classes import class_of

NONE_SMALL: frozenset[str] = frozenset()
"""No relation is known to be small."""

MapJoins = dict[str, Side]
"""Joins that mappers do, and which side of each they read whole."""


def sides_that_may_be_whole(operator: Operator) -> tuple[Side, ...]:
    """The sides of a join that each mapper may read whole, the preferred one first; none of another operator."""
    if isinstance(operator, Join) and operator.kind is not JoinKind.INNER:
        return (Side.RIGHT,)
    return (Side.RIGHT, Side.LEFT) if isinstance(operator, Join | CrossJoin) else ()


def side_name(operator: Operator, side: Side) -> str:
    """The name of the relation on this side of a join."""
    return operator.inputs[0 if side is Side.LEFT else 1]


def map_joins(operators: Sequence[Operator], small: Collection[str]) -> MapJoins:
    """The joins of a job that its mappers can do: one side is small and made of files alone, and of neither side has
    anything passed the shuffle.

    operators: of the job, with sources first; what they read of others is in files. small: relations that are.
    """
    if not small or not any(_small_sides(operator, small) for operator in operators):
        return {}
    inside = {operator.name for operator in operators}
    mapped: set[str] = set()
    """Relations that mappers have."""
    whole: set[str] = set()
    """Those that each mapper can have whole."""
    found: MapJoins = {}
    for operator in operators:
        read = operator.inputs
        files = [name for name in read if name not in inside] if read else [operator.name]
        mapped.update(files)
        whole.update(name for name in files if name in small)
        if not read or not mapped.issuperset(read):
            continue
        if not class_of(operator).shuffles:
            mapped.add(operator.name)
            if whole.issuperset(read):
                whole.add(operator.name)
            continue
        side = next((one for one in _small_sides(operator, small) if side_name(operator, one) in whole), None)
        if side is not None:
            found[operator.name] = side
            mapped.add(operator.name)
    return found


def _small_sides(operator: Operator, small: Collection[str]) -> list[Side]:
    return [side for side in sides_that_may_be_whole(operator) if side_name(operator, side) in small]
