"""Intermediate representation as text, which `reading.py` reads: an operator a line, names of its parts in capitals.

    edges = SCAN 'edges' (src INTEGER, dst INTEGER)
    degrees = AGGREGATE edges BY (src) TO (degree = COUNT dst)
    busy = SELECT degrees WHERE {degree > 100}
    RESULTS busy

A name that is not of small letters, digits and `_` stands in double quotes, a text in single ones, a scalar in braces.
The body of a WHILE is indented, between DO and END. Positions are left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from frontends.workflow.ir.dag import (
    Aggregate,
    Aggregation,
    Arithmetic,
    BlackBox,
    CrossJoin,
    Dag,
    Difference,
    Distinct,
    Input,
    Intersect,
    Join,
    JoinOutput,
    LoopResult,
    Operator,
    Project,
    Scan,
    Select,
    Sort,
    SortKey,
    Top,
    Udf,
    Union,
    Values,
    While,
)
from frontends.workflow.ir.types import Schema

INDENT = "  "
_BARE_NAME = re.compile(r"[a-z_][a-z0-9_]*")


def printed(dag: Dag) -> str:
    """The text of the DAG, with a line break at its end."""
    return "\n".join(_lines(dag, "")) + "\n"


def printed_operator(operator: Operator, indent: str = "") -> str:
    """The text of one operator; of a WHILE several lines."""
    made = _while(operator, indent) if isinstance(operator, While) else _WRITERS[type(operator)](operator)
    return f"{indent}{name_text(operator.name)} = {made}"


def name_text(name: str) -> str:
    """A name as the text has it."""
    return name if _BARE_NAME.fullmatch(name) else '"' + name.replace('"', '""') + '"'


def _lines(dag: Dag, indent: str) -> list[str]:
    """Texts hold line breaks of their own, so that lines are indented as they are made, not afterwards."""
    operators = (printed_operator(operator, indent) for operator in dag.operators)
    return [*operators, f"{indent}RESULTS {_names(dag.results)}"]


def _names(names: Iterable[str]) -> str:
    return ", ".join(map(name_text, names))


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _list(items: Iterable[str]) -> str:
    return f"({', '.join(items)})"


def _schema(schema: Schema) -> str:
    return _list(f"{name_text(column.name)} {column.type.value}" for column in schema)


def _keys(keys: Iterable[SortKey]) -> str:
    return _list(name_text(key.column) + (" DESC" if key.descending else "") for key in keys)


def _joined(columns: Iterable[JoinOutput]) -> str:
    return _list(f"{name_text(one.name)} = {one.side.value} {name_text(one.column)}" for one in columns)


def _aggregation(one: Aggregation) -> str:
    column = "" if one.column is None else f" {name_text(one.column)}"
    return f"{name_text(one.name)} = {one.function.value}{column}"


def _scan(one: Scan) -> str:
    return f"SCAN {_text(one.table)} {_schema(one.columns)}"


def _values(one: Values) -> str:
    rows = _list(_list(f"{{{value}}}" for value in row) for row in one.rows)
    return f"VALUES {_schema(one.columns)} ROWS {rows}"


def _input(one: Input) -> str:
    return f"INPUT {_schema(one.columns)}"


def _select(one: Select) -> str:
    return f"SELECT {_names(one.inputs)} WHERE {{{one.condition}}}"


def _project(one: Project) -> str:
    columns = _list(f"{name_text(column.name)} = {{{column.value}}}" for column in one.columns)
    return f"PROJECT {_names(one.inputs)} TO {columns}"


def _arithmetic(one: Arithmetic) -> str:
    return f"ARITHMETIC {_names(one.inputs)} SET {name_text(one.column)} = {{{one.value}}}"


def _join(one: Join) -> str:
    on = _list(f"{name_text(left)} = {name_text(right)}" for left, right in one.on)
    return f"JOIN {one.kind.value} {_names(one.inputs)} ON {on} TO {_joined(one.columns)}"


def _cross_join(one: CrossJoin) -> str:
    return f"CROSS JOIN {_names(one.inputs)} TO {_joined(one.columns)}"


def _union(one: Union) -> str:
    return f"UNION {'ALL ' if one.all_rows else ''}{_names(one.inputs)}"


def _plain(one: Operator) -> str:
    return f"{one.keyword} {_names(one.inputs)}"


def _aggregate(one: Aggregate) -> str:
    by = f" BY {_list(map(name_text, one.keys))}" if one.keys else ""
    return f"AGGREGATE {_names(one.inputs)}{by} TO {_list(map(_aggregation, one.aggregations))}"


def _sort(one: Sort) -> str:
    return f"SORT {_names(one.inputs)} BY {_keys(one.keys)}"


def _top(one: Top) -> str:
    return f"TOP {one.count} {_names(one.inputs)}" + (f" BY {_keys(one.keys)}" if one.keys else "")


def _udf(one: Udf) -> str:
    return f"UDF {_text(one.function)} {_list(map(name_text, one.inputs))} TO {_schema(one.columns)}"


def _black_box(one: BlackBox) -> str:
    return (
        f"BLACK BOX {_text(one.engine)} {_text(one.code)} {_list(map(name_text, one.inputs))} TO {_schema(one.columns)}"
    )


def _loop_result(one: LoopResult) -> str:
    return f"LOOP RESULT {_names(one.inputs)} OF {name_text(one.carried)} {_schema(one.columns)}"


def _while(one: While, indent: str) -> str:
    head = f"WHILE {_list(map(name_text, one.inputs))} CARRY "
    head += _list(f"{name_text(carried.input)} = {name_text(carried.following)}" for carried in one.carried)
    if one.condition is not None:
        when = "TEST FIRST" if one.condition.tested_first else "TEST"
        head += f" {when} {name_text(one.condition.relation)} {{{one.condition.test}}}"
    body = _lines(one.body, indent + INDENT)
    return "\n".join([f"{head} AT MOST {one.iterations_max} DO", *body, f"{indent}END"])


_WRITERS: dict[type[Operator], Callable[..., str]] = {
    Scan: _scan,
    Values: _values,
    Input: _input,
    Select: _select,
    Project: _project,
    Arithmetic: _arithmetic,
    Join: _join,
    CrossJoin: _cross_join,
    Union: _union,
    Intersect: _plain,
    Difference: _plain,
    Distinct: _plain,
    Aggregate: _aggregate,
    Sort: _sort,
    Top: _top,
    Udf: _udf,
    BlackBox: _black_box,
    LoopResult: _loop_result,
}
