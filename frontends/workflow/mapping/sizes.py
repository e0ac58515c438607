"""How large relations are: bounds of each operator's output, from the sizes of tables and what is known (§3.5.1).

| operator | rows at least | likely | at most |
|---|---|---|---|
| SELECT | 0 | as many as it reads | as many as it reads |
| PROJECT, ARITHMETIC, SORT | as many as it reads | | |
| JOIN INNER | 0 | as many as the larger side has | all pairs |
| JOIN LEFT | as the left side | as the larger side | all pairs, or as the left side |
| JOIN SEMI, ANTI | 0 | as the left side | as the left side |
| CROSS JOIN | all pairs | | |
| UNION ALL | the sum | | |
| UNION, DISTINCT, AGGREGATE by keys | 1, unless it reads nothing | as many as it reads | as many as it reads |
| AGGREGATE without keys, WHILE | 1 | | |
| INTERSECT | 0 | as the smaller side | as the smaller side |
| DIFFERENCE | 0 | as the left side | as the left side |
| TOP n | as many as it reads, up to n | | |
| LOOP RESULT | 0 | as before the loop | unknown |
| UDF, BLACK BOX | 0 | the sum of what it reads | unknown |

The likely number is the worst case where the operator is selective, as the thesis has it; of a join the worst case, all
pairs, would make every plan look alike, so each row is assumed to have one partner.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from frontends.workflow.ir.dag import (
    Aggregate,
    Arithmetic,
    CrossJoin,
    Dag,
    Difference,
    Distinct,
    Input,
    Intersect,
    Join,
    JoinKind,
    LoopResult,
    Opaque,
    Operator,
    Project,
    Scan,
    Select,
    Side,
    Sort,
    Top,
    Unary,
    Union,
    Values,
    While,
)
from frontends.workflow.ir.types import Schema, Type

ROWS_UNKNOWN = 100_000.0
"""Rows that a table is assumed to have if nobody knows."""
COLUMN_BYTES: dict[Type, float] = {
    Type.INTEGER: 8.0,
    Type.DOUBLE: 8.0,
    Type.STRING: 24.0,
    Type.BOOLEAN: 1.0,
    Type.DATE: 4.0,
}
"""Bytes of a value in memory; of a string at least, and as many as are assumed if the table does not say."""


def column_bytes(type_: Type, rows: int, stored_bytes: int) -> int:
    """The bytes in memory of a column that takes so many in a file: encodings make it small there, not for engines."""
    fixed = int(rows * COLUMN_BYTES[type_])
    return max(fixed, stored_bytes) if type_ is Type.STRING else fixed


@dataclass(frozen=True, slots=True)
class TableSize:
    """A table's rows and bytes, and the bytes of columns, as far as they are known."""

    rows: int
    bytes: int | None = None
    column_bytes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Bounds:
    """A number that is not known: least <= likely <= most, which may be infinite."""

    least: float
    likely: float
    most: float

    @classmethod
    def exactly(cls, number: float) -> Bounds:
        return cls(number, number, number)

    def times(self, factor: float) -> Bounds:
        return Bounds(_product(self.least, factor), _product(self.likely, factor), _product(self.most, factor))


UNKNOWN = Bounds(0.0, ROWS_UNKNOWN, float("inf"))


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a relation. column_bytes: of a value of each column, on average."""

    rows: Bounds
    column_bytes: Mapping[str, float]

    @property
    def bytes(self) -> Bounds:
        return self.rows.times(sum(self.column_bytes.values()))


def relation_sizes(
    dag: Dag, tables: Mapping[str, TableSize], known: Mapping[str, TableSize] | None = None
) -> dict[str, Size]:
    """The size of each relation of the DAG.

    tables: of those that it scans, by their names. known: of relations, by their names, from earlier runs or jobs.
    """
    sizes: dict[str, Size] = {}
    for operator in dag.operators:
        size = _estimated(operator, dag, tables, sizes)
        if known and operator.name in known:
            size = _as_known(size, known[operator.name])
        sizes[operator.name] = size
    return sizes


def read_bytes(job: Dag, tables: Mapping[str, TableSize], known: Mapping[str, TableSize]) -> float:
    """The bytes that a job reads, a DAG by itself: of each table and each relation once."""
    sizes = relation_sizes(job, tables, known)
    first: dict[str, str] = {}
    for scan in job.of_type(Scan):
        first.setdefault(scan.table, scan.name)
    return sum(sizes[name].bytes.likely for name in (*first.values(), *job.input_names))


def body_sizes(loop: While, sizes: Mapping[str, Size]) -> dict[str, Size]:
    """The sizes of relations of the loop's body in its first iteration. sizes: of what the loop reads."""
    found: dict[str, Size] = {}
    for operator in loop.body.operators:
        if isinstance(operator, Input):
            before = sizes[loop.first_value(operator.name).name]
            found[operator.name] = Size(before.rows, _renamed(before, loop.first_value(operator.name).schema, operator))
        else:
            found[operator.name] = _estimated(operator, loop.body, {}, found)
    return found


def _as_known(size: Size, known: TableSize) -> Size:
    width = sum(size.column_bytes.values())
    factor = known.bytes / (known.rows * width) if known.bytes is not None and known.rows and width else 1.0
    columns = {name: one * factor for name, one in size.column_bytes.items()}
    return Size(Bounds.exactly(float(known.rows)), columns)


def _estimated(operator: Operator, dag: Dag, tables: Mapping[str, TableSize], sizes: Mapping[str, Size]) -> Size:
    read = [sizes[name] for name in operator.inputs]
    if isinstance(operator, Scan):
        table = tables.get(operator.table)
        return Size(UNKNOWN, _widths(operator.schema)) if table is None else _scanned(operator, table)
    if isinstance(operator, LoopResult):
        loop = dag.operator(operator.source.name)
        first = loop.first_value(operator.carried) if isinstance(loop, While) else None
        before = sizes[first.name].rows if first is not None else UNKNOWN
        return Size(Bounds(0.0, before.likely, float("inf")), _widths(operator.schema))
    return Size(_rows(operator, [size.rows for size in read]), _column_bytes(operator, read))


def _scanned(scan: Scan, table: TableSize) -> Size:
    rows = Bounds.exactly(float(table.rows))
    assumed = _widths(scan.schema)
    if not table.rows:
        return Size(rows, assumed)
    if table.column_bytes:
        known = {name: count / table.rows for name, count in table.column_bytes.items()}
        return Size(rows, {name: known.get(name, width) for name, width in assumed.items()})
    factor = 1.0 if table.bytes is None else table.bytes / table.rows / sum(assumed.values())
    return Size(rows, {name: width * factor for name, width in assumed.items()})


# ---- rows ------------------------------------------------------------------------------------


def _product(one: float, other: float) -> float:
    """Nothing times infinity is nothing."""
    return one * other if one and other else 0.0


def _pairs(left: Bounds, right: Bounds) -> Bounds:
    least, likely = _product(left.least, right.least), _product(left.likely, right.likely)
    return Bounds(least, likely, _product(left.most, right.most))


def _sum(read: Sequence[Bounds]) -> Bounds:
    return Bounds(sum(one.least for one in read), sum(one.likely for one in read), sum(one.most for one in read))


def _selected(read: Bounds) -> Bounds:
    return Bounds(0.0, read.likely, read.most)


def _grouped(read: Bounds) -> Bounds:
    return Bounds(min(1.0, read.least), read.likely, read.most)


def _join_rows(join: Join, left: Bounds, right: Bounds) -> Bounds:
    if not join.kind.pairs:
        return _selected(left)
    larger, most = max(left.likely, right.likely), _product(left.most, right.most)
    if join.kind is JoinKind.LEFT:
        return Bounds(left.least, larger, max(left.most, most))
    return Bounds(0.0, min(larger, most), most)


def _top_rows(top: Top, read: Bounds) -> Bounds:
    return Bounds(min(top.count, read.least), min(top.count, read.likely), min(top.count, read.most))


def _intersection(one: Intersect, left: Bounds, right: Bounds) -> Bounds:
    return Bounds(0.0, min(left.likely, right.likely), min(left.most, right.most))


_ROWS: dict[type[Operator], Callable[..., Bounds]] = {
    Select: lambda one, read: _selected(read),
    Project: lambda one, read: read,
    Arithmetic: lambda one, read: read,
    Sort: lambda one, read: read,
    Join: _join_rows,
    CrossJoin: lambda one, left, right: _pairs(left, right),
    Union: lambda one, left, right: _sum((left, right)) if one.all_rows else _grouped(_sum((left, right))),
    Intersect: _intersection,
    Difference: lambda one, left, right: _selected(left),
    Distinct: lambda one, read: _grouped(read),
    Aggregate: lambda one, read: _grouped(read) if one.keys else Bounds.exactly(1.0),
    Top: _top_rows,
    While: lambda one, *read: Bounds.exactly(1.0),
}


def _rows(operator: Operator, read: Sequence[Bounds]) -> Bounds:
    if isinstance(operator, Values):
        return Bounds.exactly(float(len(operator.rows)))
    rule = _ROWS.get(type(operator))
    if rule is not None:
        return rule(operator, *read)
    return Bounds(0.0, _sum(read).likely, float("inf")) if read else UNKNOWN


# ---- bytes -----------------------------------------------------------------------------------


def _widths(schema: Schema) -> dict[str, float]:
    return {column.name: COLUMN_BYTES[column.type] for column in schema}


def _renamed(size: Size, before: Schema, operator: Operator) -> dict[str, float]:
    """The columns' bytes by the names that the operator has at these places."""
    return {
        new: size.column_bytes[old] for old, new in zip(before.names, operator.schema.names, strict=True)
    }  # fmt: skip


def _column_bytes(operator: Operator, read: Sequence[Size]) -> dict[str, float]:
    """Of columns that are taken over as they are those of the source, of others what the type says."""
    widths = _widths(operator.schema)
    if isinstance(operator, Join | CrossJoin):
        sides = dict(zip(Side, read, strict=True))
        return {one.name: sides[one.side].column_bytes[one.column] for one in operator.columns}
    if isinstance(operator, Project):
        taken = {one.name: one.value.as_column for one in operator.columns}
        return {name: read[0].column_bytes[old] if (old := taken[name]) else width for name, width in widths.items()}
    if isinstance(operator, Union | Intersect | Difference):
        return _renamed(read[0], operator.left.schema, operator)
    if isinstance(operator, Unary):
        computed = {operator.column} if isinstance(operator, Arithmetic) else set()
        if isinstance(operator, Aggregate):
            computed = {one.name for one in operator.aggregations}
        before = read[0].column_bytes
        return {name: width if name in computed else before.get(name, width) for name, width in widths.items()}
    return widths if isinstance(operator, Opaque | Values | Input) else {}
