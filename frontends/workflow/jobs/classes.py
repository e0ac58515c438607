"""Which phases of a MapReduce job an operator uses, and what may go together: the thesis's table 3.1, as data (§3.4.1).

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
"""

from __future__ import annotations

import enum

from frontends.workflow.ir.dag import (
    Aggregate,
    Arithmetic,
    BlackBox,
    CrossJoin,
    Difference,
    Distinct,
    Function,
    Input,
    Intersect,
    Join,
    LoopResult,
    Operator,
    Project,
    Scan,
    Select,
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
