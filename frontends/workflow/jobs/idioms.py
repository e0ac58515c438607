"""Idiom recognition (thesis, §3.4.2): a WHILE that is a graph computation of gather, apply and scatter.

The body of such a loop joins vertices, which it carries, with edges, which it does not (scatter: each vertex sends
along its edges); aggregates what is sent by the edges' other end (gather); and computes the next vertices from each
group, perhaps beside the vertex as it was (apply). All else in the body is a row at a time. Other carried relations, as
a count of iterations, have nothing to do with the graph.

There are no false positives: a description says exactly what the loop means, for tables with duplicates and nulls, too.
A loop that is described in no such way, though it may be a graph computation, raises `NoGraphLoop` with the reason.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sqlglot import exp

from frontends.workflow.errors import InvalidWorkflow
from frontends.workflow.ir.dag import (
    Aggregate,
    Arithmetic,
    Dag,
    Function,
    Input,
    Join,
    JoinKind,
    Operator,
    Project,
    Select,
    Side,
    Sort,
    Union,
    While,
)
from frontends.workflow.ir.scalars.expressions import Scalar
from frontends.workflow.ir.types import Column, Schema, Type

VERTEX, EDGE, GATHERED = "vertex.", "edge.", "gathered."
"""Before the names of columns in the scalars of a description: of which relation they are."""

_STRICT = (
    exp.Column, exp.Identifier, exp.Literal, exp.Paren, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.Neg, exp.Abs,
)  # fmt: skip
"""Nodes of expressions that are null if any column of theirs is."""


class NoGraphLoop(Exception):
    """The loop is no graph computation that is recognised; the message says why."""


class Rows(enum.Enum):
    """Which rows a relation of the body has, before its filters."""

    VERTICES = "the vertices"
    EDGES = "the edges"
    SENT = "what vertices send along their edges"
    GATHERED = "a row for each vertex that is sent something"
    BOTH = "the vertices that are sent something, with what that is"
    ALL = "all vertices, with what they are sent, or nulls"
    OTHER = "those of a relation beside the graph"


@dataclass(frozen=True, slots=True)
class View:
    """A relation of the body, row by row. columns: {name: what it is computed from}; where: what its rows have to meet;
    own: for what is sent, if vertices send to themselves, too: their view; beside: for `OTHER`, the input."""

    rows: Rows
    columns: Mapping[str, Scalar]
    where: tuple[Scalar, ...] = ()
    own: View | None = None
    own_is_set: bool = False
    beside: str = ""

    def computed(self, columns: Mapping[str, Scalar]) -> View:
        return replace(self, columns={name: _composed(value, self.columns) for name, value in columns.items()})

    def filtered(self, condition: Scalar) -> View:
        return replace(self, where=(*self.where, _composed(condition, self.columns)))


@dataclass(frozen=True, slots=True)
class Gathered:
    """What a vertex gathers. message: what is sent along an edge, over columns of vertices and edges; own: what a
    vertex sends to itself, over its columns, None if nothing. None for both if rows are counted."""

    name: str
    function: Function
    message: Scalar | None
    own: Scalar | None


@dataclass(frozen=True, slots=True)
class GraphLoop:
    """A loop as a graph computation. Scalars name columns with `VERTEX`, `EDGE` or `GATHERED` before them.

    vertices, edges: inputs of the body. key: the column of vertices that edges name, in `source` where they begin and
    in `target` where they end; `gathered_key` is its name among what is gathered. A vertex whose key is null sends
    along no edge; edges whose end is null are gathered, too, but joined with no vertex.
    sent_where: which pairs of vertex and edge send. own_where: which vertices send to themselves; None: none does.
    following: the next vertices. others: {carried input: its next rows}, row at a time from relations beside the graph.
    tested: the loop goes on if this relation has a row; None if it has no condition. `tested_carried`: it is one that
    is carried, of which the new value is meant.
    """

    loop: While
    vertices: str
    edges: str
    key: str
    source: str
    target: str
    gathered_key: str
    sent_where: tuple[Scalar, ...]
    own_where: tuple[Scalar, ...] | None
    gathered: tuple[Gathered, ...]
    following: View
    others: Mapping[str, View]
    tested: View | None
    tested_carried: bool

    @property
    def schema(self) -> Schema:
        """The columns that scalars about the graph may name."""
        body = self.loop.body
        sides = ((VERTEX, body.operator(self.vertices).schema), (EDGE, body.operator(self.edges).schema))
        columns = [Column(prefix + column.name, column.type) for prefix, schema in sides for column in schema]
        aggregate = next(one for one in body.of_type(Aggregate))
        return Schema((*columns, *(Column(GATHERED + column.name, column.type) for column in aggregate.schema)))

    @property
    def scalars(self) -> Iterable[Scalar]:
        """All scalars about the graph."""
        yield from self.sent_where
        yield from self.own_where or ()
        for one in self.gathered:
            yield from (scalar for scalar in (one.message, one.own) if scalar is not None)
        yield from (*self.following.columns.values(), *self.following.where)


def graph_loop(loop: While) -> GraphLoop:
    """The loop as a graph computation; `NoGraphLoop` if it is none that is recognised."""
    try:
        return _Recognition(loop).described()
    except InvalidWorkflow as error:  # Composed expressions, or names with prefixes, that are too long.
        raise NoGraphLoop(error.reason) from None


def graph_loops(dag: Dag) -> dict[str, GraphLoop]:
    """The loops of the DAG, not those within loops, that are graph computations: {name: description}."""
    found = {}
    for loop in dag.of_type(While):
        try:
            found[loop.name] = graph_loop(loop)
        except NoGraphLoop:
            continue
    return found


class _Recognition:
    """One loop: its body's operators in order, each with the view of what it makes."""

    def __init__(self, loop: While) -> None:
        self._loop, self._body = loop, loop.body
        self._scatter, self._vertices, self._edges = self._roles()
        self._views: dict[str, View] = {}
        self._key = self._source = self._target = ""
        self._aggregate: tuple[Aggregate, View] | None = None

    def described(self) -> GraphLoop:
        for operator in self._body.operators:
            self._views[operator.name] = self._view(operator)
        if self._aggregate is None:
            raise NoGraphLoop("the body has no AGGREGATE of what vertices send")
        aggregate, sent = self._aggregate
        carried = {one.input: self._views[one.following] for one in self._loop.carried}
        following = carried.pop(self._vertices)
        self._check_following(following, aggregate.keys[0])
        for name, view in carried.items():
            if view.rows is not Rows.OTHER:
                raise NoGraphLoop(f"{name}, which the loop carries beside the vertices, becomes {view.rows.value}")
        described = GraphLoop(
            loop=self._loop,
            vertices=self._vertices,
            edges=self._edges,
            key=self._key,
            source=self._source,
            target=self._target,
            gathered_key=aggregate.keys[0],
            sent_where=sent.where,
            own_where=None if sent.own is None else sent.own.where,
            gathered=tuple(_gathered(aggregate, sent)),
            following=following,
            others=carried,
            tested=self._tested(),
            tested_carried=self._loop.condition is not None and self._loop.carries(self._loop.condition.relation),
        )
        _ = described.schema  # Raises if a name becomes too long with its prefix.
        return described

    # ---- roles -------------------------------------------------------------------------------

    def _roles(self) -> tuple[Join, str, str]:
        """The join of vertices with edges, and which inputs these are."""
        found = []
        for join in self._body.of_type(Join):
            sides = [self._input_of(name) for name in join.inputs]
            carried = [side for side in sides if side is not None and self._loop.carries(side)]
            fixed = [side for side in sides if side is not None and not self._loop.carries(side)]
            if len(carried) == len(fixed) == 1:
                found.append((join, carried[0], fixed[0]))
        if len(found) != 1:
            raise NoGraphLoop(f"the body has {len(found)} JOINs of a carried relation with one that stays, not one")
        if found[0][0].kind is not JoinKind.INNER:
            raise NoGraphLoop(f"the JOIN of vertices with edges is of kind {found[0][0].kind.value}, not INNER")
        return found[0]

    def _input_of(self, name: str) -> str | None:
        """The input whose rows, one at a time, the relation has."""
        operator = self._body.operator(name)
        while isinstance(operator, Select | Project | Arithmetic | Sort):
            operator = self._body.operator(operator.source.name)
        return operator.name if isinstance(operator, Input) else None

    # ---- views -------------------------------------------------------------------------------

    def _view(self, operator: Operator) -> View:
        rule = _VIEWS.get(type(operator))
        if rule is None:
            raise NoGraphLoop(f"{operator.keyword} {operator.name} is no operator of a graph computation")
        return rule(self, operator)

    def _input(self, operator: Input) -> View:
        kinds = {self._vertices: (Rows.VERTICES, VERTEX), self._edges: (Rows.EDGES, EDGE)}
        rows, prefix = kinds.get(operator.name, (Rows.OTHER, ""))
        columns = {name: Scalar.column(prefix + name) for name in operator.schema.names}
        return View(rows, columns, beside=operator.name if rows is Rows.OTHER else "")

    def _select(self, operator: Select) -> View:
        return self._row_at_a_time(operator.source.name).filtered(operator.condition)

    def _project(self, operator: Project) -> View:
        columns = {one.name: one.value for one in operator.columns}
        return self._row_at_a_time(operator.source.name).computed(columns)

    def _arithmetic(self, operator: Arithmetic) -> View:
        return self._project(operator.as_project())

    def _sort(self, operator: Sort) -> View:
        return self._views[operator.source.name]

    def _row_at_a_time(self, name: str) -> View:
        view = self._views[name]
        if view.own is not None:
            raise NoGraphLoop(f"{name}, a UNION of vertices with what they send, is not aggregated at once")
        return view

    def _join(self, join: Join) -> View:
        sides = {Side.LEFT: self._row_at_a_time(join.left.name), Side.RIGHT: self._row_at_a_time(join.right.name)}
        if len(join.on) != 1:
            raise NoGraphLoop(f"JOIN {join.name} is on {len(join.on)} columns")
        names = dict(zip(sides, join.on[0], strict=True))
        keys = {side: view.columns[names[side]].as_column for side, view in sides.items()}
        columns = {one.name: sides[one.side].columns[one.column] for one in join.columns}
        if join is self._scatter:
            return self._sent(sides, keys, columns)
        return self._updated(join, sides, keys, columns)

    def _sent(self, sides: Mapping[Side, View], keys: Mapping[Side, str | None], columns: Mapping[str, Scalar]) -> View:
        for side, view in sides.items():
            key = keys[side]
            if key is None:
                raise NoGraphLoop("vertices are joined with edges on what is computed")
            if view.rows is Rows.VERTICES:
                self._key = key.removeprefix(VERTEX)
            else:
                self._source = key.removeprefix(EDGE)
        return View(Rows.SENT, columns, where=tuple(one for view in sides.values() for one in view.where))

    def _updated(
        self,
        join: Join,
        sides: Mapping[Side, View],
        keys: Mapping[Side, str | None],
        columns: Mapping[str, Scalar],
    ) -> View:
        by_rows = {view.rows: side for side, view in sides.items()}
        if set(by_rows) != {Rows.VERTICES, Rows.GATHERED} or self._aggregate is None:
            raise NoGraphLoop(f"JOIN {join.name} brings {' and '.join(one.value for one in by_rows)} together")
        vertices, gathered = sides[by_rows[Rows.VERTICES]], sides[by_rows[Rows.GATHERED]]
        found = {keys[Side.LEFT], keys[Side.RIGHT]}
        if found != {VERTEX + self._key, GATHERED + self._aggregate[0].keys[0]}:
            raise NoGraphLoop(f"JOIN {join.name} of vertices with what they are sent is not on their key")
        left_is_vertices = by_rows[Rows.VERTICES] is Side.LEFT
        if join.kind is JoinKind.INNER or (join.kind is JoinKind.SEMI and left_is_vertices):
            return View(Rows.BOTH, columns, where=(*vertices.where, *gathered.where))
        if join.kind is not JoinKind.LEFT or not left_is_vertices:
            raise NoGraphLoop(f"JOIN {join.name} of vertices with what they are sent is of kind {join.kind.value}")
        if gathered.where:
            raise NoGraphLoop(f"JOIN {join.name} is LEFT, and what vertices are sent is filtered before")
        for one in join.columns:
            if sides[one.side] is gathered and not _strict(columns[one.name]):
                raise NoGraphLoop(f"JOIN {join.name} is LEFT, and {one.column} need not be null where nothing is sent")
        return View(Rows.ALL, columns, where=vertices.where)

    def _union(self, union: Union) -> View:
        left, right = self._row_at_a_time(union.left.name), self._row_at_a_time(union.right.name)
        right = replace(right, columns=dict(zip(left.columns, right.columns.values(), strict=True)))
        sent, own = (left, right) if left.rows is Rows.SENT else (right, left)
        if (sent.rows, own.rows) != (Rows.SENT, Rows.VERTICES):
            raise NoGraphLoop(f"UNION {union.name} of {left.rows.value} and {right.rows.value}")
        return replace(sent, own=own, own_is_set=not union.all_rows)

    def _aggregated(self, aggregate: Aggregate) -> View:
        sent = self._views[aggregate.source.name]
        if sent.rows is not Rows.SENT:
            raise NoGraphLoop(f"AGGREGATE {aggregate.name} is of {sent.rows.value}")
        if self._aggregate is not None:
            raise NoGraphLoop(f"AGGREGATE {aggregate.name} is a second one")
        if len(aggregate.keys) != 1:
            raise NoGraphLoop(f"AGGREGATE {aggregate.name} has {len(aggregate.keys)} keys, not that of a vertex")
        target = sent.columns[aggregate.keys[0]].as_column
        if target is None or not target.startswith(EDGE):
            raise NoGraphLoop(f"AGGREGATE {aggregate.name} is not by an end of the edges")
        self._target = target.removeprefix(EDGE)
        if sent.own is not None and sent.own.columns[aggregate.keys[0]].as_column != VERTEX + self._key:
            raise NoGraphLoop("what vertices send to themselves is not grouped by their key")
        for one in aggregate.aggregations:
            if one.function is Function.COUNT_DISTINCT:
                raise NoGraphLoop(f"{one.name} in AGGREGATE {aggregate.name} is a COUNT DISTINCT")
            if sent.own_is_set and one.function not in (Function.MIN, Function.MAX):
                raise NoGraphLoop(f"{one.name} in AGGREGATE {aggregate.name} is of a UNION that drops equal rows")
        self._check_types(aggregate)
        self._aggregate = (aggregate, sent)
        return View(Rows.GATHERED, {name: Scalar.column(GATHERED + name) for name in aggregate.schema.names})

    def _check_types(self, aggregate: Aggregate) -> None:
        key = self._body.operator(self._vertices).schema.column(self._key)
        if aggregate.schema.column(aggregate.keys[0]).type is not key.type:
            raise NoGraphLoop("the two ends of an edge have different types")
        if key.type is Type.DOUBLE:
            raise NoGraphLoop("vertices have a DOUBLE as their key")

    # ---- the loop ----------------------------------------------------------------------------

    def _check_following(self, following: View, gathered_key: str) -> None:
        allowed = {Rows.GATHERED, Rows.BOTH, Rows.ALL}
        if following.rows not in allowed:
            raise NoGraphLoop(f"the next vertices are {following.rows.value}")
        keys = {VERTEX + self._key} if following.rows is Rows.ALL else {VERTEX + self._key, GATHERED + gathered_key}
        if following.columns[self._key].as_column not in keys:
            raise NoGraphLoop(f"the key {self._key} of the next vertices is not that of the vertices")

    def _tested(self) -> View | None:
        condition = self._loop.condition
        if condition is None:
            return None
        view = self._views[condition.relation]
        if view.rows in (Rows.SENT, Rows.EDGES):
            raise NoGraphLoop(f"the condition is about {view.rows.value}")
        return view.filtered(condition.test)


_VIEWS: dict[type[Operator], Callable[[_Recognition, Any], View]] = {
    Input: _Recognition._input,
    Select: _Recognition._select,
    Project: _Recognition._project,
    Arithmetic: _Recognition._arithmetic,
    Sort: _Recognition._sort,
    Join: _Recognition._join,
    Union: _Recognition._union,
    Aggregate: _Recognition._aggregated,
}


def _composed(value: Scalar, columns: Mapping[str, Scalar]) -> Scalar:
    """The scalar over what its columns are computed from.

    Constants fold exactly where they stand in one expression, and not over several operators: a loop where the two may
    differ is refused.
    """
    if value.as_column is not None:
        return columns[value.as_column]
    for name in value.columns:
        if columns[name].constant and not (_whole(value) and _whole(columns[name])):
            raise NoGraphLoop(f"{value} computes with {name}, a constant of an operator before")
    return value.substituted({name: columns[name] for name in value.columns})


def _whole(value: Scalar) -> bool:
    """Whether the arithmetic of the scalar is that of whole numbers, if its columns are INTEGERs."""
    return not any(
        isinstance(node, exp.Div | exp.Cast) or (isinstance(node, exp.Literal) and not str(node.this).isdigit())
        for node in value.walk()
    )


def _strict(value: Scalar) -> bool:
    """Whether the scalar is null where nothing is gathered."""
    return not value.constant and all(isinstance(node, _STRICT) for node in value.walk())


def _gathered(aggregate: Aggregate, sent: View) -> Iterable[Gathered]:
    for one in aggregate.aggregations:
        if one.column is None:
            yield Gathered(one.name, one.function, None, None)
        else:
            own = None if sent.own is None else sent.own.columns[one.column]
            yield Gathered(one.name, one.function, sent.columns[one.column], own)
