"""Which joins of a job each mapper does by itself: one side is so small that it reads that side whole.

Such a join needs no shuffle, so it may come before another operator's, several may be in one job, and the thesis's
rules take it for map-only (§3.4.1 has no such join; Hive calls it a map join, others a broadcast join).

A side is read whole only if rows of the other decide alone what becomes of them: either side of an inner and of a cross
join, the right side of a LEFT, SEMI or ANTI join. It is read from files, and operators before the join that work on a
row at a time are done in each mapper, too: that costs less than a job that keeps what they make, and makes the same
rows in each. What other operators make has to be kept by an earlier job: sums of doubles in another order differ.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from frontends.workflow.ir.dag import CrossJoin, Join, JoinKind, Leaf, Operator, Side
from frontends.workflow.jobs.classes import class_of

NONE_SMALL: frozenset[str] = frozenset()
"""No relation is known to be small."""

MapJoins = dict[str, Side]
"""Joins that mappers do, and which side of each they read whole."""


def sides_that_may_be_whole(operator: Operator) -> tuple[Side, ...]:
    """The sides of a join that each mapper may read whole, the preferred one first; none of another operator."""
    if isinstance(operator, CrossJoin) or (isinstance(operator, Join) and operator.kind is JoinKind.INNER):
        return Side.RIGHT, Side.LEFT
    return (Side.RIGHT,) if isinstance(operator, Join) else ()


def side_name(operator: Operator, side: Side) -> str:
    """The name of the relation on this side of a join."""
    return operator.inputs[0 if side is Side.LEFT else 1]


def map_joins(operators: Sequence[Operator], small: Collection[str]) -> MapJoins:
    """The joins of a job that its mappers can do: one side is small and made of files alone, and of neither side has
    anything passed the shuffle.

    operators: of the job, with sources first; what they read of others is in files. small: relations that are.
    """
    if not small:
        return {}
    inside = {operator.name for operator in operators}
    mapped: set[str] = set()
    """Relations that mappers have."""
    whole: set[str] = set()
    """Those that each mapper can have whole."""
    found: MapJoins = {}
    for operator in operators:
        files = [name for name in _files(operator) if isinstance(operator, Leaf) or name not in inside]
        mapped.update(files)
        whole.update(name for name in files if name in small)
        if isinstance(operator, Leaf) or not mapped.issuperset(operator.inputs):
            continue
        if not class_of(operator).shuffles:
            mapped.add(operator.name)
            if whole.issuperset(operator.inputs):
                whole.add(operator.name)
            continue
        for side in sides_that_may_be_whole(operator):
            name = side_name(operator, side)
            if name in small and name in whole:
                found[operator.name] = side
                mapped.add(operator.name)
                break
    return found


def _files(operator: Operator) -> Iterable[str]:
    return (operator.name,) if isinstance(operator, Leaf) else operator.inputs
