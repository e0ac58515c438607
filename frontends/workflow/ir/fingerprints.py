"""What makes relations of different workflows, or of rewritten ones, the same to history: fingerprints (§3.5.1).

A relation's *rows* have a fingerprint of the operators that decide how many there are: which tables are read, by name,
which conditions, keys and literals. Names of relations and of columns do not count, nor do columns that are left out,
so that a workflow is known again after rewrites. A *column* has one of what it is computed from.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from frontends.workflow.ir.dag import (
    Aggregate,
    Arithmetic,
    CrossJoin,
    Dag,
    Input,
    Join,
    LoopResult,
    Operator,
    Output,
    Project,
    Relation,
    Scan,
    Select,
    Side,
    Sort,
    Union,
)
from frontends.workflow.ir.printing import printed_operator
from frontends.workflow.ir.scalars.expressions import Scalar

DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Of a relation: of its rows, and of each of its columns, in order."""

    rows: str
    columns: Mapping[str, str]

    @property
    def table(self) -> str:
        """Of rows and columns."""
        return _digest("table", self.rows, *self.columns.values())


def fingerprints(dag: Dag) -> dict[str, Fingerprint]:
    """Of each relation of the DAG."""
    found: dict[str, Fingerprint] = {}
    for operator in dag.operators:
        read = [found[name] for name in operator.inputs]
        rule = _RULES.get(type(operator), _of_whole_rows)
        found[operator.name] = rule(operator, *read)
    return found


def operator_fingerprints(dag: Dag) -> dict[str, str]:
    """Of each operator: what it makes of what."""
    tables = {name: one.table for name, one in fingerprints(dag).items()}
    return {
        one.name: _digest(one.keyword, tables[one.name], *(tables[name] for name in one.inputs))
        for one in dag.operators
    }  # fmt: skip


def _digest(*parts: str) -> str:
    text = "\0".join(parts)
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=DIGEST_BYTES).hexdigest()


def _text(scalar: Scalar, columns: Mapping[str, str]) -> str:
    """The expression with fingerprints in the place of columns."""
    return scalar.renamed({name: columns[name] for name in scalar.columns}).text


def _value(scalar: Scalar, columns: Mapping[str, str]) -> str:
    name = scalar.as_column
    return _digest("value", _text(scalar, columns)) if name is None else columns[name]


# ---- operators -------------------------------------------------------------------------------


def _scan(one: Scan) -> Fingerprint:
    rows = _digest("scan", one.table)
    return Fingerprint(rows, {name: _digest(rows, name) for name in one.schema.names})


def _input(one: Input) -> Fingerprint:
    rows = _digest("input", one.name)
    return Fingerprint(rows, {name: _digest(rows, name) for name in one.schema.names})


def _select(one: Select, read: Fingerprint) -> Fingerprint:
    return Fingerprint(_digest("select", read.rows, _text(one.condition, read.columns)), read.columns)


def _project(one: Project, read: Fingerprint) -> Fingerprint:
    return Fingerprint(read.rows, {column.name: _value(column.value, read.columns) for column in one.columns})


def _arithmetic(one: Arithmetic, read: Fingerprint) -> Fingerprint:
    outputs = (Output(name, one.value) if name == one.column else Output.column(name) for name in one.schema.names)
    return Fingerprint(read.rows, {column.name: _value(column.value, read.columns) for column in outputs})


def _sort(one: Sort, read: Fingerprint) -> Fingerprint:
    return read


def _join(one: Join, left: Fingerprint, right: Fingerprint) -> Fingerprint:
    on = sorted(left.columns[mine] + right.columns[theirs] for mine, theirs in one.on)
    return _pairs(one, left, right, _digest("join", one.kind.value, left.rows, right.rows, *on))


def _cross_join(one: CrossJoin, left: Fingerprint, right: Fingerprint) -> Fingerprint:
    return _pairs(one, left, right, _digest("cross join", left.rows, right.rows))


def _pairs(one: Join | CrossJoin, left: Fingerprint, right: Fingerprint, rows: str) -> Fingerprint:
    """A column keeps its fingerprint, with the side, since both sides may be the same relation."""
    sides = {Side.LEFT: left.columns, Side.RIGHT: right.columns}
    columns = {column.name: _digest(column.side.value, sides[column.side][column.column]) for column in one.columns}
    return Fingerprint(rows, columns)


def _union(one: Union, left: Fingerprint, right: Fingerprint) -> Fingerprint:
    if not one.all_rows:
        return _of_whole_rows(one, left, right)
    rows = _digest("union all", left.rows, right.rows)
    pairs = zip(left.columns.items(), right.columns.values(), strict=True)
    return Fingerprint(rows, {name: _digest("either", mine, theirs) for (name, mine), theirs in pairs})


def _aggregate(one: Aggregate, read: Fingerprint) -> Fingerprint:
    rows = _digest("aggregate", read.rows, *sorted(read.columns[key] for key in one.keys))
    columns = {key: read.columns[key] for key in one.keys}
    for column in one.aggregations:
        of = "" if column.column is None else read.columns[column.column]
        columns[column.name] = _digest(column.function.value, rows, of)
    return Fingerprint(rows, columns)


def _of_whole_rows(one: Operator, *read: Fingerprint) -> Fingerprint:
    """Of operators whose rows depend on all columns of what they read, and of those that nobody looks into."""
    names = [f"r{place}" for place in range(len(read))]
    sources = [Relation(name, source.schema) for name, source in zip(names, one.sources, strict=True)]
    text = printed_operator((one.over(*sources) if sources else one).named("r"))
    rows = _digest(text, *(source.table for source in read))
    return Fingerprint(rows, {name: _digest(rows, str(place)) for place, name in enumerate(one.schema.names)})


def _loop_result(one: LoopResult, loop: Fingerprint) -> Fingerprint:
    rows = _digest("loop result", loop.rows, one.carried)
    return Fingerprint(rows, {name: _digest(rows, name) for name in one.schema.names})


_RULES: dict[type[Operator], Callable[..., Fingerprint]] = {
    Scan: _scan,
    Input: _input,
    Select: _select,
    Project: _project,
    Arithmetic: _arithmetic,
    Sort: _sort,
    Join: _join,
    CrossJoin: _cross_join,
    Union: _union,
    Aggregate: _aggregate,
    LoopResult: _loop_result,
}
