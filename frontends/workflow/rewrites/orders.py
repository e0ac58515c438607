"""Rewrites that bring sorts and unions closer to the results (§3.3.1)."""

from __future__ import annotations

import dataclasses

from frontends.workflow.ir.dag import Arithmetic, Opaque, Operator, Output, Project, Select, Sort, SortKey, Union
from frontends.workflow.rewrites.applying import Change, Surroundings


def sorts_towards_results(around: Surroundings, operator: Operator) -> Change | None:
    """A sort comes after an operator that works row by row, and is left out before one whose rows have no order.

    Users' functions and engines' code keep the sorts before them, though no order is promised to them.
    """
    if isinstance(operator, Opaque):
        return None
    for place, name in enumerate(operator.inputs):
        below = around.private(name)
        if isinstance(below, Sort):
            return _sorted_later(around, operator, below, place)
    return None


def _sorted_later(around: Surroundings, operator: Operator, below: Sort, place: int) -> Change:
    sources = [below.source if number == place else one for number, one in enumerate(operator.sources)]
    keys = _keys_after(operator, below)
    if keys is None:
        return Change((operator.over(*sources),), frozenset((below.name,)))
    earlier = operator.over(*sources).named(around.fresh(operator.name, "unsorted"))
    later = dataclasses.replace(below, name=operator.name, source=earlier.relation, keys=keys)
    return Change((earlier, later), frozenset((below.name,)))


def _keys_after(operator: Operator, below: Sort) -> tuple[SortKey, ...] | None:
    """The sort's keys as columns of what a row by row operator makes; None if it has another order, or none."""
    if isinstance(operator, Select):
        return below.keys
    if isinstance(operator, Arithmetic):
        return None if any(key.column == operator.column for key in below.keys) else below.keys
    if isinstance(operator, Project):
        names = {one.value.as_column: one.name for one in reversed(operator.columns)}
        keys = [SortKey(names[key.column], key.descending) for key in below.keys if key.column in names]
        return tuple(keys) if len(keys) == len(below.keys) else None
    return None


def unions_towards_results(around: Surroundings, operator: Operator) -> Change | None:
    """Columns are computed before the rows of two relations are put together."""
    if not isinstance(operator, Project | Arithmetic):
        return None
    below = around.private(operator.source.name)
    if not isinstance(below, Union) or not below.all_rows:
        return None
    project = operator.as_project() if isinstance(operator, Arithmetic) else operator
    names = dict(zip(below.left.schema.names, below.right.schema.names, strict=True))
    renamed = tuple(Output(one.name, one.value.renamed(names)) for one in project.columns)
    left = operator.over(below.left).named(around.fresh(below.left.name, "projected"))
    right = Project(
        name=around.fresh(below.right.name, "projected"), source=below.right, columns=renamed, at=operator.at
    )
    union = dataclasses.replace(below, name=operator.name, left=left.relation, right=right.relation)
    return Change((left, right, union), frozenset((below.name,)))
