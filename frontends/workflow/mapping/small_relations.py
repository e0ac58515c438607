"""Which relations are surely so small that each mapper of a job may read them whole (`jobs.map_joins`).

Surely: by the sizes of tables, and of relations that jobs of this run have made, not by what is likely, nor by what
earlier runs have shown, whose data may have been other. A relation that is not made yet has at most as many rows as
`sizes` says. Its texts take no more bytes than those of the column from which they are, if rows are only left out; what
other texts take is not known, and a relation that has one is not small before it is made.

Bytes are those in memory (`sizes.COLUMN_BYTES`); texts of a file count as the file encodes them, and 24 bytes at least.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from frontends.workflow.ir.dag import Aggregate, Arithmetic, Dag, Operator, Project, Scan, Unary, Values
from frontends.workflow.ir.types import Type
from frontends.workflow.mapping.sizes import COLUMN_BYTES, TableSize, relation_sizes

BROADCAST_BYTES_MAX = 4 << 20
"""Of a relation that each mapper reads whole: some ten milliseconds, where a shuffle takes some hundred."""

_Texts = dict[str, float]
"""The bytes of a relation's columns of texts, at most."""


def small_relations(
    dag: Dag,
    tables: Mapping[str, TableSize],
    known: Mapping[str, TableSize],
    bytes_max: float = BROADCAST_BYTES_MAX,
) -> frozenset[str]:
    """The relations of the DAG that have at most so many bytes.

    tables: true sizes of those that it scans, by their names. known: true sizes of relations, by their names.
    """
    sizes = relation_sizes(dag, tables, known)
    texts: dict[str, _Texts] = {}
    small: set[str] = set()
    for operator in dag.operators:
        name = operator.name
        given = known.get(name) or (tables.get(operator.table) if isinstance(operator, Scan) else None)
        texts[name] = _texts(operator, texts) if given is None else _texts_of_file(operator, given)
        fixed = sum(COLUMN_BYTES[column.type] for column in operator.schema if column.type is not Type.STRING)
        rows = sizes[name].rows.most
        if (rows * fixed if rows else 0.0) + sum(texts[name].values()) <= bytes_max:
            small.add(name)
    return frozenset(small)


def _text_columns(operator: Operator) -> list[str]:
    return [column.name for column in operator.schema if column.type is Type.STRING]


def _texts_of_file(operator: Operator, given: TableSize) -> _Texts:
    whole = 0.0 if not given.rows else math.inf if given.bytes is None else float(given.bytes)
    return {name: float(given.column_bytes.get(name, whole)) for name in _text_columns(operator)}


def _texts(operator: Operator, before: Mapping[str, _Texts]) -> _Texts:
    """Of a relation that is not made yet."""
    columns = _text_columns(operator)
    if not columns:
        return {}
    if isinstance(operator, Values):
        return dict.fromkeys(columns, float(sum(len(value.text) for row in operator.rows for value in row)))
    if not isinstance(operator, Unary):
        return dict.fromkeys(columns, math.inf)
    read, source = before[operator.source.name], _sources(operator)
    return {name: read.get(source.get(name, ""), math.inf) for name in columns}


def _sources(operator: Unary) -> dict[str, str]:
    """Of the columns whose texts are among those of a column that is read: {name: that column}."""
    if isinstance(operator, Project):
        return {one.name: name for one in operator.columns if (name := one.value.as_column) is not None}
    if isinstance(operator, Aggregate):
        computed = {one.name: one.column for one in operator.aggregations if one.column is not None}
        return {**computed, **{name: name for name in operator.keys}}
    changed = operator.column if isinstance(operator, Arithmetic) else None
    return {name: name for name in operator.schema.names if name != changed}
