"""Which operators can be one job of an engine with one shuffle (§3.4.1): by their classes, and by their keys.

`classes` has the thesis's table 3.1 and its rules; `shuffling` says what the same key is, which the thesis leaves open;
`map_joins` which joins need no shuffle.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import combinations

from frontends.workflow.ir.dag import Dag, Operator, Union
from frontends.workflow.jobs.classes import JobClass, Merge, associative, class_of, merge_rule
from frontends.workflow.jobs.map_joins import NONE_SMALL, MapJoins, map_joins
from frontends.workflow.jobs.shuffling import Shuffle


def unmergeable(
    dag: Dag, names: Sequence[str] | None = None, *, part_keys: bool = True, small: Collection[str] = NONE_SMALL
) -> str | None:
    """Why these operators (all, without `names`) cannot be one job of an engine with one shuffle; None if they can.

    names: with sources first. part_keys: whether a part of its key may serve an operator (`shuffling`). small:
    relations that each mapper may read whole (`map_joins`).
    Whether the engine can run each of them by itself, loops above all, is another question.
    """
    operators = dag.operators if names is None else [dag.operator(name) for name in names]
    joins = map_joins(operators, small)
    found = _conflict(dag, operators, part_keys, joins)
    if found is None or not joins or not any(isinstance(one, Union) for one in operators):
        return found
    # What mappers have joined is at no place, and a UNION ALL of it and of what is at one goes to no reducer.
    return None if _conflict(dag, operators, part_keys, {}) is None else found


def done_by_mappers(job: Dag, *, part_keys: bool, small: Collection[str]) -> MapJoins:
    """The joins that the mappers of this job do: none where it is a job only if all of them are shuffled."""
    joins = map_joins(job.operators, small)
    return joins if joins and _conflict(job, job.operators, part_keys, joins) is None else {}


def _conflict(dag: Dag, operators: Sequence[Operator], part_keys: bool, joins: Collection[str]) -> str | None:
    """joins: those that mappers do."""
    by_class: dict[JobClass, list[Operator]] = {}
    for operator in operators:
        if operator.name not in joins:
            by_class.setdefault(class_of(operator), []).append(operator)
    if JobClass.ALONE in by_class:
        return _not_alone(dag, by_class[JobClass.ALONE][0], operators)
    by_class.pop(JobClass.MAP_ONLY, None)
    return (
        _classes_conflict(by_class)
        or _parts_conflict(by_class.get(JobClass.AGGREGATING, []))
        or (_keys_conflict(operators, part_keys, joins) if sum(map(len, by_class.values())) > 1 else None)
    )


def _not_alone(dag: Dag, alone: Operator, operators: Iterable[Operator]) -> str | None:
    others = (one for one in operators if one.inputs and one.name not in dag.inseparable(alone.name))
    other = next(others, None)
    return None if other is None else _together(alone, other, f"{alone.keyword} is in no job with another operator")


def _classes_conflict(by_class: Mapping[JobClass, list[Operator]]) -> str | None:
    for one, other in combinations(by_class, 2):
        if merge_rule(one, other) is Merge.NEVER:
            return _together(by_class[one][0], by_class[other][0], f"they are {one.value} and {other.value}")
    return None


def _parts_conflict(aggregating: list[Operator]) -> str | None:
    if len(aggregating) < 2:
        return None
    whole = next((one for one in aggregating if not associative(one)), None)
    if whole is None or merge_rule(JobClass.AGGREGATING, JobClass.AGGREGATING) is not Merge.SAME_KEY_ASSOCIATIVE:
        return None
    other = next(one for one in aggregating if one is not whole)
    return _together(whole, other, "a distinct count cannot be put together from parts")


def _keys_conflict(operators: Sequence[Operator], part_keys: bool, joins: Collection[str]) -> str | None:
    found = Shuffle(operators, part_keys, joins).conflict
    return None if found is None else _together(found.one, found.other, found.why)


def _together(one: Operator, other: Operator, why: str) -> str:
    return f"{one.keyword} {one.name} and {other.keyword} {other.name} cannot be one job of one shuffle: {why}"
