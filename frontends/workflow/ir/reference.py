"""The meaning of workflows: an interpreter over plain Python rows, as slow as it is simple.

Engines are held against this. A relation is a list of rows, which stands for a bag: the order counts only where a
`Sort` is a result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product

import pyarrow as pa

from frontends.workflow.errors import IterationsExceeded, NotSupported, TableMismatch
from frontends.workflow.ir.dag import (
    Aggregate,
    Aggregation,
    Arithmetic,
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
    LoopCondition,
    LoopResult,
    Operator,
    Project,
    Scan,
    Select,
    Side,
    Sort,
    SortKey,
    Top,
    Udf,
    Union,
    Values,
    While,
)
from frontends.workflow.ir.scalars.values import Row, Value, computation, in_range, rank
from frontends.workflow.ir.tables import arrow_schema, conformed
from frontends.workflow.ir.types import Schema

Rows = list[Row]
UserFunction = Callable[..., pa.Table]
"""Takes an Arrow table for each relation that its UDF reads."""


def evaluate(
    dag: Dag,
    tables: Mapping[str, pa.Table],
    inputs: Mapping[str, pa.Table] | None = None,
    functions: Mapping[str, UserFunction] | None = None,
) -> dict[str, pa.Table]:
    """The results of the DAG: {relation: table}.

    tables: by the names that `Scan`s have. inputs: by those of `Input`s. functions: by the `function` of UDFs, which
    nothing else runs here; black boxes are not supported. `OverflowError` where the meaning is undefined.
    """
    given = {one.name: _rows(_given(inputs or {}, one.name), one.schema, one.name) for one in dag.of_type(Input)}
    relations = _Evaluation(tables, functions or {}).relations(dag, given)
    return {name: _table(relations[name], dag.operator(name).schema) for name in dag.results}


def _given(tables: Mapping[str, pa.Table], name: str) -> pa.Table:
    if name not in tables:
        raise TableMismatch(name, "it is not among the tables that are given")
    return tables[name]


def _rows(table: pa.Table, schema: Schema, name: str) -> Rows:
    columns = conformed(table, schema, name).columns
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


def _table(rows: Sequence[Row], schema: Schema) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrow = arrow_schema(schema)
    arrays = [pa.array(values, type=field.type) for values, field in zip(columns, arrow, strict=True)]
    return pa.table(arrays, schema=arrow)


class _Evaluation:
    """One evaluation: the tables and functions that it may use."""

    def __init__(self, tables: Mapping[str, pa.Table], functions: Mapping[str, UserFunction]) -> None:
        self._tables, self._functions = tables, functions

    def relations(self, dag: Dag, given: Mapping[str, Rows]) -> dict[str, Rows]:
        """The rows of every relation of the DAG; given: of its `Input`s. Each is computed once."""
        found: dict[str, Rows] = {}
        left_by_loops: dict[str, dict[str, Rows]] = {}
        for operator in dag.operators:
            read = [found[name] for name in operator.inputs]
            if isinstance(operator, Input):
                found[operator.name] = given[operator.name]
            elif isinstance(operator, Scan):
                table = _given(self._tables, operator.table)
                found[operator.name] = _rows(table, operator.schema, operator.table)
            elif isinstance(operator, While):
                count, left_by_loops[operator.name] = self._loop(operator, read)
                found[operator.name] = [(count,)]
            elif isinstance(operator, LoopResult):
                found[operator.name] = left_by_loops[operator.source.name][operator.carried]
            elif isinstance(operator, Udf):
                found[operator.name] = self._called(operator, read)
            elif type(operator) in _RULES:
                found[operator.name] = _RULES[type(operator)](operator, *read)
            else:
                raise NotSupported(f"{operator.keyword} in the reference interpreter", operator.at)
        return found

    def _called(self, udf: Udf, read: Sequence[Rows]) -> Rows:
        if udf.function not in self._functions:
            raise NotSupported(f"the UDF {udf.function}, which is not among the functions that are given,", udf.at)
        tables = [_table(rows, source.schema) for rows, source in zip(read, udf.sources, strict=True)]
        return _rows(self._functions[udf.function](*tables), udf.schema, udf.name)

    def _loop(self, loop: While, read: Sequence[Rows]) -> tuple[int, dict[str, Rows]]:
        """How many iterations it made, and what it leaves: {carried input: rows}."""
        current = dict(zip(loop.body.input_names, read, strict=True))
        condition = loop.condition
        goes_on = condition is None or not condition.tested_first or _holds(loop, condition, current)
        count = 0
        while goes_on:
            if count == loop.iterations_max:
                if condition is not None:
                    raise IterationsExceeded(loop.name, count)
                break
            made = self.relations(loop.body, current)
            current.update({one.input: made[one.following] for one in loop.carried})
            count += 1
            goes_on = condition is None or _holds(loop, condition, made | current)
        return count, {one.input: current[one.input] for one in loop.carried}


def _holds(loop: While, condition: LoopCondition, relations: Mapping[str, Rows]) -> bool:
    """Whether any row meets the condition."""
    test = computation(condition.test, loop.body.operator(condition.relation).schema)
    return any(test(row) is True for row in relations[condition.relation])


# ---- a row at a time -------------------------------------------------------------------------


def _values(one: Values) -> Rows:
    return [tuple(computation(scalar, one.schema)(()) for scalar in row) for row in one.rows]


def _select(one: Select, rows: Rows) -> Rows:
    test = computation(one.condition, one.source.schema)
    return [row for row in rows if test(row) is True]


def _project(one: Project, rows: Rows) -> Rows:
    compute = [computation(column.value, one.source.schema) for column in one.columns]
    return [tuple(value(row) for value in compute) for row in rows]


def _arithmetic(one: Arithmetic, rows: Rows) -> Rows:
    return _project(one.as_project(), rows)


# ---- rows as wholes --------------------------------------------------------------------------


def _identity(row: Iterable[Value]) -> tuple[tuple[int, Value], ...]:
    """What equal rows have alike: nulls are equal, as are NaNs, and both zeros."""
    return tuple(rank(value) for value in row)


def _distinct_rows(rows: Iterable[Row]) -> Rows:
    return list({_identity(row): row for row in rows}.values())


def _union(one: Union, left: Rows, right: Rows) -> Rows:
    return left + right if one.all_rows else _distinct_rows(left + right)


def _intersect(one: Intersect, left: Rows, right: Rows) -> Rows:
    there = set(map(_identity, right))
    return [row for row in _distinct_rows(left) if _identity(row) in there]


def _difference(one: Difference, left: Rows, right: Rows) -> Rows:
    there = set(map(_identity, right))
    return [row for row in _distinct_rows(left) if _identity(row) not in there]


def _distinct(one: Distinct, rows: Rows) -> Rows:
    return _distinct_rows(rows)


# ---- joins -----------------------------------------------------------------------------------


def _keys(rows: Rows, schema: Schema, names: Iterable[str]) -> list[tuple[tuple[int, Value], ...] | None]:
    """The key of each row; None where a part of it is null, which equals nothing."""
    places = [schema.index(name) for name in names]
    parts = [[row[place] for place in places] for row in rows]
    return [None if None in values else _identity(values) for values in parts]


def _join(one: Join, left: Rows, right: Rows) -> Rows:
    partners: dict[tuple[tuple[int, Value], ...], Rows] = {}
    for key, row in zip(_keys(right, one.right.schema, one.right_keys), right, strict=True):
        if key is not None:
            partners.setdefault(key, []).append(row)
    nothing: Row = (None,) * len(one.right.schema)
    pairs: list[tuple[Row, Row]] = []
    for key, row in zip(_keys(left, one.left.schema, one.left_keys), left, strict=True):
        found = [] if key is None else partners.get(key, [])
        if one.kind.pairs:
            found = found or ([nothing] if one.kind is JoinKind.LEFT else [])
            pairs += [(row, partner) for partner in found]
        elif bool(found) is (one.kind is JoinKind.SEMI):
            pairs.append((row, nothing))
    return _joined(pairs, one, one.columns)


def _cross_join(one: CrossJoin, left: Rows, right: Rows) -> Rows:
    return _joined(product(left, right), one, one.columns)


def _joined(pairs: Iterable[tuple[Row, Row]], one: Join | CrossJoin, columns: Sequence[JoinOutput]) -> Rows:
    sides = {Side.LEFT: (0, one.left.schema), Side.RIGHT: (1, one.right.schema)}
    places = [(sides[column.side][0], sides[column.side][1].index(column.column)) for column in columns]
    return [tuple(pair[side][place] for side, place in places) for pair in pairs]


# ---- all rows --------------------------------------------------------------------------------


def _aggregate(one: Aggregate, rows: Rows) -> Rows:
    schema = one.source.schema
    places = [schema.index(key) for key in one.keys]
    groups: dict[tuple[tuple[int, Value], ...], Rows] = {} if one.keys else {(): []}
    for row in rows:
        groups.setdefault(_identity(row[place] for place in places), []).append(row)
    return [
        (
            *(members[0][place] for place in places),
            *(_aggregated(column, schema, members) for column in one.aggregations),
        )
        for members in groups.values()
    ]


def _aggregated(column: Aggregation, schema: Schema, rows: Rows) -> Value:
    if column.column is None:
        return len(rows)
    place = schema.index(column.column)
    values = [row[place] for row in rows if row[place] is not None]
    if column.function is Function.COUNT:
        return len(values)
    if column.function is Function.COUNT_DISTINCT:
        return len(set(map(rank, values)))
    if not values:
        return None
    if column.function is Function.MIN:
        return min(values, key=rank)
    if column.function is Function.MAX:
        return max(values, key=rank)
    total = sum(value for value in values if isinstance(value, int | float))
    if column.function is Function.AVG:
        return float(total) / len(values)
    return in_range(total) if isinstance(total, int) else total


def _in_order(rows: Rows, schema: Schema, keys: Sequence[SortKey]) -> Rows:
    """The rows in the order of the keys, nulls last in both directions; rows with equal keys as they were."""
    ordered = list(rows)
    for key in reversed(keys):
        place = schema.index(key.column)
        there = [row for row in ordered if row[place] is not None]
        there.sort(key=lambda row: rank(row[place]), reverse=key.descending)
        ordered = there + [row for row in ordered if row[place] is None]
    return ordered


def _sort(one: Sort, rows: Rows) -> Rows:
    return _in_order(rows, one.schema, one.keys)


def _top(one: Top, rows: Rows) -> Rows:
    return _in_order(rows, one.schema, one.all_keys())[: one.count]


_RULES: dict[type[Operator], Callable[..., Rows]] = {
    Values: _values,
    Select: _select,
    Project: _project,
    Arithmetic: _arithmetic,
    Join: _join,
    CrossJoin: _cross_join,
    Union: _union,
    Intersect: _intersect,
    Difference: _difference,
    Distinct: _distinct,
    Aggregate: _aggregate,
    Sort: _sort,
    Top: _top,
}
