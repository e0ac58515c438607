"""What scripts of the engine `pyspark_rdd` call beside `serial_functions`: rows are tuples, None is null.

Keys meet in another process than the one that made them, so a NaN in a key is one that equals itself there, too.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow.parquet as pq

from frontends.workflow.engines.serial_functions import Columns, Row, in_order, rank, rows_of, schema_of
from frontends.workflow.ir.tables import conformed

PARTS_PER_CPU_MAX = 4
"""Parts of a relation that is kept, for each CPU: unions and cross joins have those of both sides."""


class KeyNan(float):
    """A NaN that equals all of its kind. It differs from itself, too, as NaN does: so `x != x` tells it."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KeyNan)

    def __ne__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0

    def __reduce__(self) -> tuple[type, tuple[str]]:
        return type(self), ("nan",)


NAN = KeyNan("nan")


def as_key(value: float | None) -> float | None:
    """A DOUBLE as a part of a key."""
    return NAN if value != value else value  # noqa: PLR0124 (NaN)


# ---- two values of an aggregation ------------------------------------------------------------


def plus(left: Any, right: Any) -> Any:
    """The sum of what is not null."""
    return right if left is None else left if right is None else left + right


def lesser(left: Any, right: Any) -> Any:
    """The least of what is not null."""
    if left is None or right is None:
        return right if left is None else left
    return min(left, right, key=rank) if isinstance(left, float) else min(left, right)


def greater(left: Any, right: Any) -> Any:
    """The greatest of what is not null."""
    if left is None or right is None:
        return right if left is None else left
    return max(left, right, key=rank) if isinstance(left, float) else max(left, right)


def average_of(total: float | None, count: int) -> float | None:
    return None if total is None else float(total) / count


def value_set(value: Any) -> frozenset[Any]:
    """The value, unless it is null, as a set to count."""
    return frozenset() if value is None else frozenset((as_key(value) if isinstance(value, float) else value,))


# ---- relations -------------------------------------------------------------------------------


def read_rows(context: Any, path: str, columns: Columns) -> Any:
    """The rows of a Parquet file, in as many parts as it has groups of rows."""
    groups = pq.read_metadata(path).num_row_groups
    return context.parallelize(range(groups), max(1, groups)).flatMap(
        functools.partial(_rows_of_group, path, dict(columns))
    )


def _rows_of_group(path: str, columns: Columns, group: int) -> list[Row]:
    schema = schema_of(columns)
    with pq.ParquetFile(path) as file:
        return rows_of(conformed(file.read_row_group(group, columns=list(schema.names)), schema, path))


def kept(relation: Any) -> Any:
    """The relation, evaluated now and once; what it was made from is forgotten."""
    if relation.is_cached:
        return relation
    most = PARTS_PER_CPU_MAX * relation.context.defaultParallelism
    made = relation.coalesce(most) if relation.getNumPartitions() > most else relation
    made.persist()
    made.localCheckpoint()
    made.count()
    return made


def first_rows(relation: Any, count: int, *keys: tuple[int, bool]) -> list[Row]:
    """The first rows by these keys: of each part, then of them all."""

    def of_part(rows: Iterable[Row]) -> Iterator[Row]:
        return iter(in_order(rows, *keys)[:count])

    return in_order(relation.mapPartitions(of_part).collect(), *keys)[:count]
