"""Rewrites that bring selective operators closer to the sources: filters, intersections and differences (§3.3.1)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from frontends.workflow.ir.dag import (
    Aggregate,
    Arithmetic,
    CrossJoin,
    Difference,
    Distinct,
    Intersect,
    Join,
    JoinKind,
    Operator,
    Project,
    Relation,
    Select,
    Side,
    Sort,
    Union,
)
from frontends.workflow.ir.scalars.expressions import Scalar, all_of
from frontends.workflow.rewrites.applying import Change, Surroundings, cannot_overflow

PerSource = tuple[Scalar | None, ...]
"""A condition as the columns of each source have it; None for a source that it says nothing about."""


def filters_merged(around: Surroundings, operator: Operator) -> Change | None:
    """Two filters, one after the other, are one of both conditions."""
    if not isinstance(operator, Select):
        return None
    below = around.private(operator.source.name)
    if not isinstance(below, Select) or not cannot_overflow(operator.condition, operator.source.schema):
        return None
    both = all_of(below.condition, operator.condition)
    return Change((dataclasses.replace(operator, source=below.source, condition=both),), frozenset((below.name,)))


def filters_towards_sources(around: Surroundings, operator: Operator) -> Change | None:
    """Each part of a condition is tested before the operator that is below it, where that changes no result."""
    if not isinstance(operator, Select):
        return None
    below = around.private(operator.source.name)
    if below is None or type(below) not in _THROUGH:
        return None
    moved: list[list[Scalar]] = [[] for _ in below.sources]
    staying: list[Scalar] = []
    for part in operator.condition.conjuncts():
        per_source = _THROUGH[type(below)](below, part)
        if per_source is None:
            staying.append(part)
            continue
        for there, scalar in zip(moved, per_source, strict=True):
            there.extend(() if scalar is None else (scalar,))
    if not any(moved):
        return None
    return _with_filters_below(around, operator, below, moved, staying)


def _with_filters_below(
    around: Surroundings, filtered: Select, below: Operator, moved: Sequence[list[Scalar]], staying: list[Scalar]
) -> Change:
    made: list[Operator] = []
    sources: list[Relation] = []
    for source, conditions in zip(below.sources, moved, strict=True):
        if conditions:
            name = around.fresh(source.name, "filtered")
            made.append(Select(name=name, source=source, condition=all_of(*conditions), at=filtered.at))
            source = made[-1].relation  # noqa: PLW2901
        sources.append(source)
    above = below.over(*sources).named(around.fresh(below.name, "of_filtered") if staying else filtered.name)
    made.append(above)
    if staying:
        made.append(dataclasses.replace(filtered, source=above.relation, condition=all_of(*staying)))
    return Change(tuple(made), frozenset((below.name,)))


# ---- a condition on an operator's result, as one on what it reads ----------------------------


def _through_all(below: Operator, condition: Scalar) -> PerSource | None:
    return (condition,)


def _through_project(below: Project, condition: Scalar) -> PerSource | None:
    """Only columns that are taken over: a computed one would be computed twice, and constants would fold anew."""
    taken_over = {one.name: one.value.as_column for one in below.columns}
    names = {name: taken_over[name] for name in condition.columns}
    renamed = {name: old for name, old in names.items() if old is not None}
    return (condition.renamed(renamed),) if len(renamed) == len(names) else None


def _through_arithmetic(below: Arithmetic, condition: Scalar) -> PerSource | None:
    return None if below.column in condition.columns else (condition,)


def _through_aggregate(below: Aggregate, condition: Scalar) -> PerSource | None:
    return (condition,) if below.keys and condition.columns <= set(below.keys) else None


def _through_pairs(below: Join | CrossJoin, condition: Scalar) -> PerSource | None:
    """A condition on one side, which may be the right one unless rows without a partner stay."""
    if not cannot_overflow(condition, below.schema):
        return None
    read = [one for one in below.columns if one.name in condition.columns]
    sides = {one.side for one in read} or {Side.LEFT}
    renamed = condition.renamed({one.name: one.column for one in read})
    if sides == {Side.LEFT}:
        return renamed, None
    both_needed = isinstance(below, CrossJoin) or below.kind is JoinKind.INNER
    return (None, renamed) if sides == {Side.RIGHT} and both_needed else None


def _through_union(below: Union, condition: Scalar) -> PerSource | None:
    names = dict(zip(below.left.schema.names, below.right.schema.names, strict=True))
    return condition, condition.renamed({name: names[name] for name in condition.columns})


def _through_set(below: Intersect | Difference, condition: Scalar) -> PerSource | None:
    if not cannot_overflow(condition, below.schema):
        return None
    names = dict(zip(below.left.schema.names, below.right.schema.names, strict=True))
    return condition, condition.renamed({name: names[name] for name in condition.columns})


_THROUGH: dict[type[Operator], Callable[..., PerSource | None]] = {
    Project: _through_project,
    Arithmetic: _through_arithmetic,
    Sort: _through_all,
    Distinct: _through_all,
    Aggregate: _through_aggregate,
    Join: _through_pairs,
    CrossJoin: _through_pairs,
    Union: _through_union,
    Intersect: _through_set,
    Difference: _through_set,
}


# ---- intersections and differences -----------------------------------------------------------


def intersections_towards_sources(around: Surroundings, operator: Operator) -> Change | None:
    """An intersection comes before a sort of what it reads (figure 3.9), and needs no rows made distinct."""
    return _set_towards_sources(around, operator) if isinstance(operator, Intersect) else None


def differences_towards_sources(around: Surroundings, operator: Operator) -> Change | None:
    """A difference comes before a sort of what it reads, and needs no rows made distinct."""
    return _set_towards_sources(around, operator) if isinstance(operator, Difference) else None


def _set_towards_sources(around: Surroundings, operator: Intersect | Difference) -> Change | None:
    left, right = (around.private(name) for name in operator.inputs)
    if isinstance(left, Sort):
        earlier = operator.over(left.source, operator.right).named(around.fresh(operator.name, "unsorted"))
        later = dataclasses.replace(left, name=operator.name, source=earlier.relation)
        return Change((earlier, later), frozenset((left.name,)))
    if isinstance(left, Distinct):
        return Change((operator.over(left.source, operator.right),), frozenset((left.name,)))
    if isinstance(right, Sort | Distinct):
        return Change((operator.over(operator.left, right.source),), frozenset((right.name,)))
    return None
