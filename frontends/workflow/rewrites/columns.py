"""The rewrite that leaves out columns which nobody reads (§3.3.1)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable

from frontends.workflow.ir.dag import (
    Aggregate,
    Arithmetic,
    CrossJoin,
    Dag,
    Join,
    Operator,
    Output,
    Project,
    Relation,
    Scan,
    Select,
    Side,
    Sort,
    Union,
    Values,
)
from frontends.workflow.ir.types import Schema
from frontends.workflow.rewrites.applying import Surroundings, in_bodies

Needs = list[set[str]]
"""Of each relation that an operator reads, the columns that it needs."""


def columns_pruned(dag: Dag) -> Dag:
    """The DAG without columns that are in no result and that nothing is computed from.

    Relations whose rows are compared as wholes (sets, DISTINCT, TOP), and those that loops and users' functions read,
    keep all.
    """
    dag = in_bodies(dag, columns_pruned)
    needed: dict[str, set[str]] = {name: set(dag.operator(name).schema.names) for name in dag.results}
    narrowed: list[Operator] = []
    for operator in reversed(dag.operators):
        wanted = needed.get(operator.name) or {operator.schema.names[0]}
        if not needed.get(operator.name) and not dag.consumers(operator.name):
            wanted = set(operator.schema.names)
        kept, needs = _narrowed(operator, wanted)
        narrowed.append(kept)
        for source, columns in zip(operator.sources, needs, strict=True):
            needed.setdefault(source.name, set()).update(columns)
    return _relinked(dag, list(reversed(narrowed)), needed)


def _relinked(dag: Dag, narrowed: list[Operator], needed: dict[str, set[str]]) -> Dag:
    around = Surroundings(dag)
    made: dict[str, Operator] = {}
    for operator in narrowed:
        sources = [made[name].relation for name in operator.inputs]
        if isinstance(operator, Union) and operator.all_rows:
            wanted = needed.get(operator.name) or {operator.schema.names[0]}
            exact = _exact_sides(around, operator, wanted, sources)
            made |= {one.name: one for one in exact if one is not None}
            sources = [new.relation if new else old for new, old in zip(exact, sources, strict=True)]
        made[operator.name] = operator.over(*sources)
    return Dag(tuple(made.values()), dag.results)


def _exact_sides(around: Surroundings, union: Union, wanted: set[str], sources: list[Relation]) -> list[Project | None]:
    """For each side a projection to the columns that are wanted, None if it has these and no others."""
    places = [place for place, name in enumerate(union.schema.names) if name in wanted]
    exact: list[Project | None] = []
    for before, now in zip(union.sources, sources, strict=True):
        names = tuple(before.schema.names[place] for place in places)
        if now.schema.names == names:
            exact.append(None)
            continue
        columns = tuple(map(Output.column, names))
        exact.append(Project(name=around.fresh(now.name, "narrowed"), source=now, columns=columns, at=union.at))
    return exact


# ---- operators -------------------------------------------------------------------------------


def _narrowed(operator: Operator, wanted: set[str]) -> tuple[Operator, Needs]:
    """The operator without columns that are not wanted, as far as it can be, and what it needs of its sources."""
    rule = _RULES.get(type(operator))
    if rule is None:
        return operator, [set(source.schema.names) for source in operator.sources]
    found: tuple[Operator, Needs] = rule(operator, wanted)
    return found


def _only(schema: Schema, wanted: Iterable[str]) -> Schema:
    return Schema(tuple(column for column in schema if column.name in set(wanted)))


def _scan(one: Scan, wanted: set[str]) -> tuple[Operator, Needs]:
    return dataclasses.replace(one, columns=_only(one.columns, wanted)), []


def _values(one: Values, wanted: set[str]) -> tuple[Operator, Needs]:
    places = [place for place, column in enumerate(one.columns) if column.name in wanted]
    rows = tuple(tuple(row[place] for place in places) for row in one.rows)
    return dataclasses.replace(one, columns=_only(one.columns, wanted), rows=rows), []


def _select(one: Select, wanted: set[str]) -> tuple[Operator, Needs]:
    return one, [wanted | one.condition.columns]


def _sort(one: Sort, wanted: set[str]) -> tuple[Operator, Needs]:
    return one, [wanted | {key.column for key in one.keys}]


def _project(one: Project, wanted: set[str]) -> tuple[Operator, Needs]:
    columns = tuple(column for column in one.columns if column.name in wanted)
    read: set[str] = set()
    return dataclasses.replace(one, columns=columns), [read.union(*(column.value.columns for column in columns))]


def _arithmetic(one: Arithmetic, wanted: set[str]) -> tuple[Operator, Needs]:
    """One whose column nobody wants computes nothing."""
    if one.column not in wanted:
        columns = tuple(Output.column(name) for name in one.schema.names if name in wanted)
        return Project(name=one.name, source=one.source, columns=columns, at=one.at), [wanted]
    replaced = {one.column} & set(one.source.schema.names)  # It keeps its place among the columns.
    return one, [(wanted - {one.column}) | replaced | one.value.columns]


def _join(one: Join, wanted: set[str]) -> tuple[Operator, Needs]:
    columns = tuple(column for column in one.columns if column.name in wanted)
    left = {column.column for column in columns if column.side is Side.LEFT}
    right = {column.column for column in columns if column.side is Side.RIGHT}
    return dataclasses.replace(one, columns=columns), [left | set(one.left_keys), right | set(one.right_keys)]


def _cross_join(one: CrossJoin, wanted: set[str]) -> tuple[Operator, Needs]:
    columns = tuple(column for column in one.columns if column.name in wanted)
    sides = (Side.LEFT, Side.RIGHT)
    needs = [{column.column for column in columns if column.side is side} for side in sides]
    return dataclasses.replace(one, columns=columns), needs


def _union(one: Union, wanted: set[str]) -> tuple[Operator, Needs]:
    if not one.all_rows:
        return one, [set(source.schema.names) for source in one.sources]
    names = dict(zip(one.left.schema.names, one.right.schema.names, strict=True))
    return one, [set(wanted), {names[name] for name in wanted}]


def _aggregate(one: Aggregate, wanted: set[str]) -> tuple[Operator, Needs]:
    aggregations = tuple(column for column in one.aggregations if column.name in wanted) or one.aggregations[:1]
    read = {column.column for column in aggregations if column.column is not None}
    return dataclasses.replace(one, aggregations=aggregations), [read | set(one.keys)]


_RULES: dict[type[Operator], Callable[..., tuple[Operator, Needs]]] = {
    Scan: _scan,
    Values: _values,
    Select: _select,
    Sort: _sort,
    Project: _project,
    Arithmetic: _arithmetic,
    Join: _join,
    CrossJoin: _cross_join,
    Union: _union,
    Aggregate: _aggregate,
}
