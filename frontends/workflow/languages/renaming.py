"""Other names for the columns of a relation, without an operator more: who makes the columns names them otherwise."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from frontends.workflow.ir.dag import (
    Aggregate,
    Arithmetic,
    CrossJoin,
    Difference,
    Distinct,
    Intersect,
    Join,
    JoinOutput,
    Operator,
    Output,
    Project,
    Select,
    Sort,
    SortKey,
    Top,
    Union,
    free_name,
)

Names = tuple[str, ...]
Step = tuple[dict[str, Any], Names | None]
"""The fields of an operator that change, and the names that its only or left source then has to have; None: any."""


def with_columns_named(
    operators: Mapping[str, Operator], relation: str, columns: Sequence[str], fixed: Collection[str] = ()
) -> dict[str, Operator] | None:
    """All operators, changed so that the columns of `relation` have these names; None if that is not possible.

    operators: by name, in order. Names are set where columns are made, and handed down from there: nobody may read
    `relation`, nor more than one operator each relation on the way; those of `fixed` keep their names.
    """
    readers = Counter(name for operator in operators.values() for name in operator.inputs)
    changes: dict[str, dict[str, Any]] = {}
    name, wanted = relation, tuple(columns)
    while wanted != operators[name].schema.names:
        step = _STEPS.get(type(operators[name]))
        if step is None or name in fixed or readers[name] > bool(changes):
            return None
        changes[name], above = step(operators[name], wanted)
        if above is None:
            break
        name, wanted = operators[name].inputs[0], above
    return _changed(operators, changes)


def _changed(operators: Mapping[str, Operator], changes: Mapping[str, dict[str, Any]]) -> dict[str, Operator]:
    made: dict[str, Operator] = {}
    for name, operator in operators.items():
        made[name] = operator
        if name in changes:
            side = "left" if hasattr(operator, "left") else "source"
            fields: dict[str, Any] = {side: made[operator.inputs[0]].relation, **changes[name]}
            made[name] = dataclasses.replace(operator, **fields)
    return made


def _outputs(one: Project | Join | CrossJoin, wanted: Names) -> Step:
    columns: tuple[Output | JoinOutput, ...] = one.columns
    return {
        "columns": tuple(dataclasses.replace(part, name=name) for part, name in zip(columns, wanted, strict=True))
    }, None


def _select(one: Select, wanted: Names) -> Step:
    return {"condition": one.condition.renamed(_mapping(one, wanted))}, wanted


def _arithmetic(one: Arithmetic, wanted: Names) -> Step:
    names = _mapping(one, wanted)
    source = wanted if one.column in one.source.schema else wanted[:-1]
    return {"column": names[one.column], "value": one.value.renamed(names)}, source


def _as_it_is(one: Operator, wanted: Names) -> Step:
    return {}, wanted


def _ordered(one: Sort | Top, wanted: Names) -> Step:
    names = _mapping(one, wanted)
    return {"keys": tuple(SortKey(names[key.column], key.descending) for key in one.keys)}, wanted


def _aggregate(one: Aggregate, wanted: Names) -> Step:
    """The keys have their names from the source; its other columns make room."""
    keys, named = wanted[: len(one.keys)], wanted[len(one.keys) :]
    names = dict(zip(one.keys, keys, strict=True))
    taken = list(keys)
    for name in one.source.schema.names:
        if name not in names:
            names[name] = free_name(name, taken)
            taken.append(names[name])
    aggregations = [
        dataclasses.replace(part, name=name, column=None if part.column is None else names[part.column])
        for part, name in zip(one.aggregations, named, strict=True)
    ]
    above = tuple(names[name] for name in one.source.schema.names)
    return {"keys": keys, "aggregations": tuple(aggregations)}, above


def _mapping(one: Operator, wanted: Names) -> dict[str, str]:
    return dict(zip(one.schema.names, wanted, strict=True))


_STEPS: dict[type[Operator], Callable[[Any, Names], Step]] = {
    Project: _outputs,
    Join: _outputs,
    CrossJoin: _outputs,
    Select: _select,
    Arithmetic: _arithmetic,
    Distinct: _as_it_is,
    Sort: _ordered,
    Top: _ordered,
    Union: _as_it_is,
    Intersect: _as_it_is,
    Difference: _as_it_is,
    Aggregate: _aggregate,
}
