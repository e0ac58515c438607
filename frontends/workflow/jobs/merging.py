"""Which operators can be one job of an engine with one shuffle: the thesis's table 3.1 and rules, as data (§3.4.1).

The table lacks operators that workflows have here; `CLASSES` states a class for each of them, too:

| operator | class | shuffle key |
|---|---|---|
| SCAN, VALUES, INPUT | map-only | – |
| SELECT, PROJECT, ARITHMETIC, UNION ALL | map-only | – |
| INTERSECT, DIFFERENCE, UNION of sets, DISTINCT | no-op-map and reduce | the entire row |
| AGGREGATE | aggregating-map and reduce | the GROUP BY columns, if present |
| TOP | aggregating-map and reduce | none: all rows meet |
| JOIN of every kind | map and reduce | the columns joined on |
| SORT | map and reduce | the columns sorted by |
| CROSS JOIN, UDF | map and reduce | none: all rows meet |
| WHILE, LOOP RESULT, BLACK BOX | alone | – |

The thesis says that operators of one job use the same key, and leaves open what that is. Here each relation that has
passed the shuffle is at the place that its key says, and an operator that shuffles it again needs that very key, traced
through projections, joins and aggregations. This is stricter than the thesis in one case: an INTERSECT whose row a
PROJECT changes is not in one job with a DIFFERENCE of the rows that the PROJECT makes.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from frontends.workflow.ir.dag import (
    Aggregate,
    Arithmetic,
    BlackBox,
    CrossJoin,
    Dag,
    Difference,
    Distinct,
    Function,
    Input,
    Intersect,
    Join,
    JoinKind,
    JoinOutput,
    LoopResult,
    Operator,
    Project,
    Scan,
    Select,
    Side,
    Sort,
    Top,
    Udf,
    Union,
    Values,
    While,
)


class JobClass(enum.Enum):
    """Which phases of a MapReduce job an operator uses."""

    MAP_ONLY = "map-only"
    NO_OP_MAP = "no-op-map and reduce"
    AGGREGATING = "aggregating-map and reduce"
    MAP_AND_REDUCE = "map and reduce"
    ALONE = "alone"
    """In no job with anything else."""

    @property
    def shuffles(self) -> bool:
        return self is not JobClass.MAP_ONLY


class Merge(enum.Enum):
    """When operators of two classes may be one job."""

    ALWAYS = "always"
    NEVER = "never"
    SAME_KEY = "if they shuffle by the same key"
    SAME_KEY_ASSOCIATIVE = "if they shuffle by the same key and are associative"


CLASSES: dict[type[Operator], JobClass] = {
    Scan: JobClass.MAP_ONLY,
    Values: JobClass.MAP_ONLY,
    Input: JobClass.MAP_ONLY,
    Select: JobClass.MAP_ONLY,
    Project: JobClass.MAP_ONLY,
    Arithmetic: JobClass.MAP_ONLY,
    Union: JobClass.MAP_ONLY,
    Intersect: JobClass.NO_OP_MAP,
    Difference: JobClass.NO_OP_MAP,
    Distinct: JobClass.NO_OP_MAP,
    Aggregate: JobClass.AGGREGATING,
    Top: JobClass.AGGREGATING,
    Join: JobClass.MAP_AND_REDUCE,
    Sort: JobClass.MAP_AND_REDUCE,
    CrossJoin: JobClass.MAP_AND_REDUCE,
    Udf: JobClass.MAP_AND_REDUCE,
    While: JobClass.ALONE,
    LoopResult: JobClass.ALONE,
    BlackBox: JobClass.ALONE,
}
"""Of each operator; a UNION of sets differs (`class_of`)."""

MERGES: dict[frozenset[JobClass], Merge] = {
    frozenset((JobClass.NO_OP_MAP,)): Merge.SAME_KEY,
    frozenset((JobClass.NO_OP_MAP, JobClass.AGGREGATING)): Merge.NEVER,
    frozenset((JobClass.NO_OP_MAP, JobClass.MAP_AND_REDUCE)): Merge.NEVER,
    frozenset((JobClass.AGGREGATING,)): Merge.SAME_KEY_ASSOCIATIVE,
    frozenset((JobClass.AGGREGATING, JobClass.MAP_AND_REDUCE)): Merge.SAME_KEY,
    frozenset((JobClass.MAP_AND_REDUCE,)): Merge.SAME_KEY,
}
"""Of each pair of classes that shuffle and are not alone (§3.4.1)."""


def class_of(operator: Operator) -> JobClass:
    """The operator's class."""
    if isinstance(operator, Union) and not operator.all_rows:
        return JobClass.NO_OP_MAP
    return CLASSES[type(operator)]


def merge_rule(one: JobClass, other: JobClass) -> Merge:
    """When operators of these two classes may be one job."""
    if JobClass.ALONE in (one, other):
        return Merge.NEVER
    if JobClass.MAP_ONLY in (one, other):
        return Merge.ALWAYS
    return MERGES[frozenset((one, other))]


def associative(operator: Operator) -> bool:
    """Whether parts of the rows can be aggregated apart, and the results put together: a distinct count cannot."""
    if not isinstance(operator, Aggregate):
        return True
    return all(one.function is not Function.COUNT_DISTINCT for one in operator.aggregations)


def shuffle_keys(operator: Operator) -> tuple[tuple[str, ...], ...]:
    """By which columns of each relation that is read the operator shuffles; nothing for one that does not shuffle.

    The keys of two relations correspond place by place. No columns: all rows meet.
    """
    if not class_of(operator).shuffles:
        return ()
    if isinstance(operator, Join):
        return operator.left_keys, operator.right_keys
    if isinstance(operator, Aggregate):
        return (operator.keys,)
    if isinstance(operator, Sort):
        return (tuple(key.column for key in operator.keys),)
    if isinstance(operator, Top | CrossJoin | Udf):
        return tuple(() for _ in operator.sources)
    return tuple(source.schema.names for source in operator.sources)


def unmergeable(dag: Dag, names: Sequence[str] | None = None) -> str | None:
    """Why these operators (all, without `names`) cannot be one job of an engine with one shuffle; None if they can.

    names: with sources first. Whether the engine can run each of them by itself, loops above all, is another question.
    """
    operators = dag.operators if names is None else [dag.operator(name) for name in names]
    by_class: dict[JobClass, list[Operator]] = {}
    for operator in operators:
        by_class.setdefault(class_of(operator), []).append(operator)
    if JobClass.ALONE in by_class:
        return _not_alone(dag, by_class[JobClass.ALONE][0], operators)
    by_class.pop(JobClass.MAP_ONLY, None)
    return (
        _classes_conflict(by_class)
        or _parts_conflict(by_class.get(JobClass.AGGREGATING, []))
        or (_Shuffle().conflict(operators) if sum(map(len, by_class.values())) > 1 else None)
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


def _together(one: Operator, other: Operator, why: str) -> str:
    return f"{one.keyword} {one.name} and {other.keyword} {other.name} cannot be one job of one shuffle: {why}"


# ---- the same key ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Mapped:
    """A relation before the shuffle. origins: of each column, the relation and column from which it is unchanged."""

    origins: Mapping[str, tuple[str, str]]


@dataclass(frozen=True, slots=True)
class _Placed:
    """A relation after the shuffle. parts: for each part of the key that says where a row is, the columns that are
    equal to it; key: the number of the key, None if the rows are at places of several keys, or of none."""

    parts: tuple[frozenset[str], ...]
    key: int | None

    def order(self, columns: tuple[str, ...]) -> tuple[int, ...] | None:
        """For each of the columns, which part of the key it is; None unless they are the whole key."""
        if self.key is None or len(columns) != len(self.parts):
            return None
        places = tuple(
            next((place for place, part in enumerate(self.parts) if column in part), -1) for column in columns
        )
        return places if sorted(places) == list(range(len(places))) else None


class _Shuffle:
    """Follows relations through a job, and finds out whether all its operators shuffle by one key."""

    def __init__(self) -> None:
        self._relations: dict[str, _Mapped | _Placed] = {}
        self._keys: dict[frozenset[tuple[str, str]], int] = {}
        """Numbers of keys, by the columns of relations before the shuffle."""
        self._same: list[int] = []
        """Of each number, one that stands for the same key."""

    def conflict(self, operators: Iterable[Operator]) -> str | None:
        """Why they do not shuffle by one key; None if they do."""
        first: Operator | None = None
        users: list[tuple[Operator, int]] = []
        for operator in operators:
            for source in operator.sources:
                if source.name not in self._relations:
                    self._relations[source.name] = _unchanged(source.name, source.schema.names)
            if not class_of(operator).shuffles:
                self._relations[operator.name] = self._mapped(operator)
                continue
            placed = self._shuffled(operator)
            if placed is None or placed.key is None:
                before = next((one for one, _ in users if one.name != operator.name), first)
                return _together(operator, before or operator, "they shuffle by different keys")
            self._relations[operator.name] = placed
            users.append((operator, placed.key))
            first = first or operator
        for operator, key in users[1:]:
            if self._number(key) != self._number(users[0][1]):
                return _together(users[0][0], operator, "they shuffle by different keys")
        return None

    def _number(self, key: int) -> int:
        while self._same[key] != key:
            key = self._same[key]
        return key

    def _unite(self, one: int, other: int) -> None:
        self._same[self._number(other)] = self._number(one)

    def _key(self, origins: frozenset[tuple[str, str]]) -> int:
        """The number of the key of these columns."""
        if origins not in self._keys:
            self._keys[origins] = len(self._same)
            self._same.append(len(self._same))
        return self._keys[origins]

    def _shuffled(self, operator: Operator) -> _Placed | None:
        """Where the operator's rows are; None if a relation that it reads is placed by another key."""
        keys = shuffle_keys(operator)
        relations = [self._relations[name] for name in operator.inputs]
        orders = {
            one.order(columns)
            for one, columns in zip(relations, keys, strict=True)
            if isinstance(one, _Placed)
        }  # fmt: skip
        if None in orders or len(orders) > 1:
            return None
        order = next(iter(orders), None) or tuple(range(len(keys[0]) if keys else 0))
        number: int | None = None
        for one, columns in zip(relations, keys, strict=True):
            found = one.key if isinstance(one, _Placed) else self._key(frozenset(one.origins[name] for name in columns))
            if found is None:
                return None
            if number is not None:
                self._unite(number, found)
            number = found
        if number is None:
            number = self._key(frozenset())
        return _Placed(_parts(operator, keys, order), number)

    def _mapped(self, operator: Operator) -> _Mapped | _Placed:
        """What an operator without a shuffle makes of what it reads."""
        if isinstance(operator, Union):
            left, right = (self._relations[name] for name in operator.inputs)
            return self._united(operator, left, right)
        if not operator.inputs:
            return _unchanged(operator.name, operator.schema.names)
        kept = _kept_columns(operator)
        source = self._relations[operator.inputs[0]]
        if isinstance(source, _Mapped):
            own = ((name, (operator.name, name)) for name in operator.schema.names)
            return _Mapped({name: source.origins[kept[name]] if name in kept else new for name, new in own})
        parts = tuple(frozenset(name for name, old in kept.items() if old in part) for part in source.parts)
        return _Placed(parts, source.key)

    def _united(self, operator: Union, left: _Mapped | _Placed, right: _Mapped | _Placed) -> _Mapped | _Placed:
        if isinstance(left, _Mapped) and isinstance(right, _Mapped):
            return left if left == right else _unchanged(operator.name, operator.schema.names)
        if isinstance(left, _Mapped) or isinstance(right, _Mapped) or left.key is None or right.key is None:
            return _Placed((), None)
        names = dict(zip(operator.right.schema.names, operator.left.schema.names, strict=True))
        if self._number(left.key) != self._number(right.key) or len(left.parts) != len(right.parts):
            return _Placed((), None)
        pairs = zip(left.parts, right.parts, strict=True)
        return _Placed(tuple(one & frozenset(names[name] for name in other) for one, other in pairs), left.key)


def _unchanged(relation: str, columns: Iterable[str]) -> _Mapped:
    return _Mapped({name: (relation, name) for name in columns})


def _kept_columns(operator: Operator) -> dict[str, str]:
    """Of the columns that are taken over as they are: {name: name in the source}."""
    if isinstance(operator, Project):
        return {one.name: name for one in operator.columns if (name := one.value.as_column) is not None}
    names = operator.schema.names
    return {name: name for name in names if not (isinstance(operator, Arithmetic) and name == operator.column)}


def _parts(operator: Operator, keys: tuple[tuple[str, ...], ...], order: tuple[int, ...]) -> tuple[frozenset[str], ...]:
    """For each part of the key, in the order in which rows are placed, the operator's columns that are equal to it."""
    if isinstance(operator, Join):
        columns = [_join_names(operator, left, right) for left, right in operator.on]
    elif isinstance(operator, Aggregate | Sort):
        columns = [frozenset((name,)) for name in keys[0]]
    elif class_of(operator) is JobClass.NO_OP_MAP:
        columns = [frozenset((name,)) for name in operator.schema.names]
    else:
        columns = []
    placed = sorted(zip(order, columns, strict=True), key=lambda pair: pair[0])
    return tuple(part for _, part in placed)


def _join_names(operator: Join, left: str, right: str) -> frozenset[str]:
    """The join's columns that are this key in each row; right ones are null where a left row has no partner."""

    def is_key(one: JoinOutput) -> bool:
        if one.side is Side.LEFT:
            return one.column == left
        return one.column == right and operator.kind is JoinKind.INNER

    return frozenset(one.name for one in operator.columns if is_key(one))
