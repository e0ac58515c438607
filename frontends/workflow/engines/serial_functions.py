"""What scripts of the engine `serial` call: values are Python's, None is null, a relation is a list of tuples."""

from __future__ import annotations

import functools
import importlib
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from frontends.workflow.ir.scalars.dates import later, parsed_date
from frontends.workflow.ir.tables import arrow_schema, conformed
from frontends.workflow.ir.types import Column, Schema, Type

NAN = math.nan
"""The one NaN that keys have: one object equals itself in tuples and dictionaries."""
INTEGER_MAX = 2**63 - 1
_INTEGER_TEXT = re.compile(r"-?[0-9]+")
_DOUBLE_TEXT = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_INTEGER_DIGITS_MAX = 100

FILES_KEPT_MAX = 32
"""Files with UDFs that a process keeps loaded."""

Columns = Mapping[str, str]
"""{name: type, as IR text has it}."""
Row = tuple[Any, ...]
Rows = Sequence[Row]

# ---- numbers and comparison, of values that are not null -------------------------------------


def quotient(left: float, right: float) -> float:
    """Of doubles, by IEEE 754."""
    if right:
        return float(left) / right
    if left == 0 or left != left:  # noqa: PLR0124 (NaN)
        return NAN
    return math.copysign(math.inf, left) * math.copysign(1, right)


def remainder(left: float, right: float) -> float | None:
    """With the sign of `left`; null of a division by zero."""
    if right == 0:
        return None
    if isinstance(left, int) and isinstance(right, int):
        return abs(left) % abs(right) if left >= 0 else -(abs(left) % abs(right))
    return NAN if math.isinf(left) else math.fmod(left, right)


def rank(number: float) -> tuple[int, float]:
    """Orders doubles: NaN equals itself and is greatest."""
    return (1, 0.0) if number != number else (0, number)  # noqa: PLR0124 (NaN)


def moved(day: Any, count: int, unit: str) -> Any:
    """The day some units, DAY or MONTH, later."""
    found = later(day, count, unit)
    if found is None:
        raise OverflowError(f"{count} {unit} after {day} is no day of the years 1 to 9999")
    return found


def like(pattern: str) -> Callable[[str], bool]:
    """Whether a text matches a pattern of LIKE."""
    parts = {"%": ".*", "_": "."}
    compiled = re.compile("".join(parts.get(one, re.escape(one)) for one in pattern), re.DOTALL)
    return lambda text: compiled.fullmatch(text) is not None


# ---- casts -----------------------------------------------------------------------------------


def double_to_integer(number: float) -> int | None:
    return _in_range(math.trunc(number)) if math.isfinite(number) else None


def text_to_integer(text: str) -> int | None:
    fits = _INTEGER_TEXT.fullmatch(text) and len(text) <= _INTEGER_DIGITS_MAX
    return _in_range(int(text)) if fits else None


def _in_range(number: int) -> int | None:
    return number if -INTEGER_MAX - 1 <= number <= INTEGER_MAX else None


def text_to_double(text: str) -> float | None:
    return float(text) if _DOUBLE_TEXT.fullmatch(text) else None


def text_to_date(text: str) -> Any:
    return parsed_date(text)


def boolean_to_text(value: bool) -> str:
    return "true" if value else "false"


# ---- nulls -----------------------------------------------------------------------------------


def of(function: Callable[..., Any], *values: Any) -> Any:
    """The function of the values, null if one of these is."""
    return None if None in values else function(*values)


def both(*values: bool | None) -> bool | None:
    """AND."""
    return False if False in values else None if None in values else True


def either(*values: bool | None) -> bool | None:
    """OR."""
    return True if True in values else None if None in values else False


def coalesce(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


def same(left: Any, right: Any) -> bool:
    """IS NOT DISTINCT FROM."""
    return bool(left == right or (left != left and right != right))  # noqa: PLR0124 (NaN)


# ---- rows ------------------------------------------------------------------------------------


def one_nan(value: Any) -> Any:
    """The value as a part of a key."""
    return NAN if value != value else value  # noqa: PLR0124 (NaN)


def comparable(row: Row) -> Row:
    """The row, equal to all that are the same."""
    return tuple(map(one_nan, row))


def distinct(rows: Iterable[Row]) -> list[Row]:
    return list(dict.fromkeys(map(comparable, rows)))


def in_order(rows: Iterable[Row], *keys: tuple[int, bool]) -> list[Row]:
    """By the keys (place of a column, whether it descends), nulls last."""
    ordered = list(rows)
    for place, descending in reversed(keys):
        there = [row for row in ordered if row[place] is not None]
        there.sort(key=functools.partial(_rank_at, place), reverse=descending)
        ordered = there + [row for row in ordered if row[place] is None]
    return ordered


def _rank_at(place: int, row: Row) -> Any:
    value = row[place]
    return rank(value) if isinstance(value, float) else value


# ---- aggregations of a column, which may have nulls ------------------------------------------


def _there(values: Iterable[Any]) -> list[Any]:
    return [value for value in values if value is not None]


def total(values: Iterable[Any]) -> Any:
    there = _there(values)
    return sum(there) if there else None


def average(values: Iterable[Any]) -> float | None:
    there = _there(values)
    return float(sum(there)) / len(there) if there else None


def least(values: Iterable[Any]) -> Any:
    return min(_there(values), key=_rank, default=None)


def greatest(values: Iterable[Any]) -> Any:
    return max(_there(values), key=_rank, default=None)


def _rank(value: Any) -> Any:
    return rank(value) if isinstance(value, float) else value


def count(values: Iterable[Any]) -> int:
    return len(_there(values))


def count_distinct(values: Iterable[Any]) -> int:
    return len(set(map(one_nan, _there(values))))


# ---- files and users' functions --------------------------------------------------------------


def schema_of(columns: Columns) -> Schema:
    """The schema of what scripts write as {name: type}."""
    return Schema(tuple(Column(name, Type(type_)) for name, type_ in columns.items()))


def read(path: str, columns: Columns) -> list[Row]:
    """Rows of a Parquet file."""
    schema = schema_of(columns)
    return rows_of(conformed(pq.read_table(path, columns=list(schema.names)), schema, path))


def rows_of(table: pa.Table) -> list[Row]:
    """The rows of an Arrow table."""
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def table_of(rows: Iterable[Row], columns: Columns) -> pa.Table:
    """The Arrow table of the rows."""
    schema = arrow_schema(schema_of(columns))
    values = list(zip(*rows, strict=True)) or [()] * len(schema)
    return pa.table([pa.array(one, type=field.type) for one, field in zip(values, schema, strict=True)], schema=schema)


def write(rows: Iterable[Row], columns: Columns, path: str) -> None:
    """To a Parquet file: beside it, then renamed."""
    pq.write_table(table_of(rows, columns), f"{path}.partial")
    Path(f"{path}.partial").replace(path)


def called(function: str, tables: Sequence[pa.Table], columns: Columns) -> list[Row]:
    """What a user's function (`path/to/file.py:name` or `module:name`) makes of the tables."""
    schema = schema_of(columns)
    return rows_of(conformed(user_function(function)(*tables), schema, function))


def user_function(function: str) -> Callable[..., pa.Table]:
    """The function that `path/to/file.py:name` or `module:name` names; a file as it is now."""
    where, _, name = function.rpartition(":")
    if where.endswith(".py"):
        status = Path(where).stat()
        module = _module(where, (status.st_ino, status.st_size, status.st_mtime_ns))
    else:
        module = importlib.import_module(where)
    found: Callable[..., pa.Table] = getattr(module, name)
    return found


@functools.lru_cache(FILES_KEPT_MAX)
def _module(path: str, version: tuple[int, int, int]) -> ModuleType:
    """What is in the file, in this version of it. Loops call a function often, and a warm process runs many scripts.

    Python's own import would take a compiled file that is as old as the source to a second.
    """
    module = ModuleType(Path(path).stem)
    module.__file__ = path
    exec(compile(Path(path).read_bytes(), path, "exec"), module.__dict__)
    return module
