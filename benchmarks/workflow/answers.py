"""Whether two ways to run a workflow have made the same rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from frontends.workflow.ir.tables import arrow_schema, type_of_field
from frontends.workflow.ir.types import Column, Schema

TOLERANCE = 1e-9
"""Relative, of doubles, which are sums in another order."""


class OtherAnswerError(AssertionError):
    """Two ways to run one workflow differ in what they make: a time of such a way says nothing."""


def check_same(name: str, found: Sequence[Path], other: str, expected: Sequence[Path]) -> None:
    """`OtherAnswerError` unless the files hold the same rows, in any order."""
    for one, right in zip(found, expected, strict=True):
        difference = differing(pq.read_table(one), pq.read_table(right))
        if difference:
            raise OtherAnswerError(f"{name} and {other} differ: {difference}")


def differing(one: pa.Table, other: pa.Table) -> str:
    """What differs in the bags of rows, whatever their columns are called; empty if nothing does."""
    left, right = (_ordered(_plain(table)) for table in (one, other))
    if left.num_columns != right.num_columns or len(left) != len(right):
        return f"{len(left):,} rows of {left.num_columns} columns, and {len(right):,} of {right.num_columns}"
    for place, (column, beside) in enumerate(zip(left.columns, right.columns, strict=True)):
        if column.type != beside.type:
            return f"column {place} is {column.type}, and {beside.type}"
        if not _same(column, beside):
            return f"values of column {place}"
    return ""


def _plain(table: pa.Table) -> pa.Table:
    """In the five types of workflows."""
    types = [type_of_field(field.type) for field in table.schema]
    columns = [Column(str(place), type_) for place, type_ in enumerate(types) if type_ is not None]
    return table.rename_columns([one.name for one in columns]).cast(arrow_schema(Schema(tuple(columns))))


def _ordered(table: pa.Table) -> pa.Table:
    """By the columns that are no doubles, then by doubles, rounded: rows that are nearly equal are at one place."""
    doubles = [name for name in table.column_names if table.schema.field(name).type == pa.float64()]
    keys = [name for name in table.column_names if name not in doubles]
    sorting = table.select(keys)
    for name in doubles:
        rounded = pc.round(table[name], 6)
        sorting = sorting.append_column(f"rounded {name}", rounded)
    order = pc.sort_indices(sorting, sort_keys=[(name, "ascending") for name in sorting.column_names])
    return table.take(order)


def _same(one: pa.ChunkedArray, other: pa.ChunkedArray) -> bool:
    if one.type != pa.float64():
        return bool(one.equals(other))
    if not one.is_null().equals(other.is_null()):
        return False
    left, right = (column.fill_null(0.0).to_numpy() for column in (one, other))
    return bool(np.allclose(left, right, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True))
