"""The thesis's language for graphs (§3.2.3): gather, apply and scatter for each vertex. `gas.lark` has its grammar.

    GATHER = { SUM (vertex_value) }
    APPLY = { MUL [vertex_value, 0.85] SUM [vertex_value, 0.15] }
    SCATTER = { DIV [vertex_value, vertex_degree] }
    ITERATION_STOP = (iteration < 20)
    ITERATION = { SUM [iteration, 1] }

It reads the tables `edges` (source, destination and, if `edge_value` is used, a value) and `vertices` (vertex, value),
of each the first columns, and gives the new `vertices`. In each iteration

1. each edge meets its source vertex; SCATTER computes what it hands on, from `vertex_value`, `vertex_degree` (how many
   edges leave the vertex) and `edge_value`;
2. GATHER, one of SUM, MIN, MAX and COUNT, brings together what reaches a vertex. A vertex that nothing reaches is gone,
   as in the relational program of listing 3.2; one that keeps its value has an edge to itself;
3. APPLY computes the new `vertex_value`.

Steps are SUM, SUB, MUL and DIV, which overwrite their first column, `SELECT WHERE [condition]`, which leaves out rows,
and in APPLY `UDF path name`, a function of the vertices. `iteration` begins at 0, and the loop goes on while the
condition of ITERATION_STOP holds, on `iteration` or on `vertex_value` of any vertex.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from frontends.workflow.errors import (
    EndlessLoop,
    InvalidSyntax,
    InvalidWorkflow,
    NotSupported,
    TypeMismatch,
    UnknownColumn,
    UnknownRelation,
)
from frontends.workflow.ir.dag import (
    Aggregate,
    Aggregation,
    Arithmetic,
    Dag,
    Function,
    Join,
    LoopCondition,
    Output,
    Project,
    Relation,
    Scan,
    Select,
    Udf,
    Values,
    free_name,
    joined_columns,
)
from frontends.workflow.ir.scalars.expressions import Scalar
from frontends.workflow.ir.types import Column, Schema, Type
from frontends.workflow.languages.conditions import ARITHMETIC, columns_named, condition, name_in, term, text_in
from frontends.workflow.languages.parsing import Grammar, Node, Token, Tree, part, parts, position, tokens
from frontends.workflow.languages.scopes import Scope
from frontends.workflow.positions import Position, SourceText

VALUE, DEGREE, EDGE_VALUE, ITERATION = "vertex_value", "vertex_degree", "edge_value", "iteration"
"""The columns that a text can name."""
EDGES = Schema.of(src=Type.INTEGER, dst=Type.INTEGER, value=Type.DOUBLE)
"""Columns of the table `edges` if nothing else is known of it; the last if the text needs it."""
VERTICES = Schema.of(id=Type.INTEGER, value=Type.DOUBLE)

_GRAMMAR = Grammar("gas.lark")


def parse(text: str, tables: Mapping[str, Schema] | None = None, file: str = "<gas>") -> Dag:
    """The workflow; `InvalidWorkflow` with file, line, column and a caret if there is none.

    tables: the columns of the tables there are. Without them those of `edges` are src, dst and value, of `vertices` id
    and value.
    """
    source = SourceText(text, file)
    try:
        return _Compiler(_GRAMMAR.parse(source), tables, file).dag()
    except InvalidWorkflow as error:
        error.locate(Position(1, 1, file), source)
        raise


@dataclass(frozen=True, slots=True)
class _Now:
    """A relation that steps change, and which of its columns the names of the text are."""

    relation: Relation
    columns: Mapping[str, str]


class _Compiler:
    def __init__(self, tree: Node, tables: Mapping[str, Schema] | None, file: str) -> None:
        self._tables, self._file = tables, file
        self._sections: dict[str, Node] = {}
        for section in tree.children:
            assert isinstance(section, Tree)
            if section.data in self._sections:
                raise InvalidSyntax(f"{_TITLES[section.data]} is there already", self._at(section))
            self._sections[section.data] = section
        for name in ("gather", "stop", "iteration"):
            if name not in self._sections:
                raise InvalidSyntax(f"there is no {_TITLES[name]}")
        scatter = self._sections.get("scatter")
        used = {name_in(token) for token in columns_named(scatter)} if scatter else set()
        self._with_degree, self._with_value = DEGREE in used, EDGE_VALUE in used

    def _at(self, node: Node | Token) -> Position:
        return position(node, self._file)

    def dag(self) -> Dag:
        scope, stop = Scope(), self._sections["stop"]
        edges = scope.add(Scan(name="edges", table="edges", columns=self._table("edges", 3 if self._with_value else 2)))
        vertices = scope.add(Scan(name="vertices", table="vertices", columns=self._table("vertices", 2)))
        start = Values(
            name=ITERATION,
            columns=Schema((Column(ITERATION, Type.INTEGER),)),
            rows=((Scalar("0"),),),
            at=self._at(stop),
        )
        count = scope.add(start)
        if self._with_degree:
            edges = self._with_degrees(scope, edges)
        body = Scope(scope)
        following = self._vertices_after(body, body.imported(edges), body.imported(vertices))
        inside = body.imported(count)
        counted = self._steps("iteration", body, _Now(inside, {ITERATION: ITERATION})).relation
        carried = {vertices: following}
        if counted != inside:
            carried[count] = counted
        goes_on = self._goes_on(stop, body.imported(vertices), inside, counted != inside)
        try:
            left = scope.loop(body, carried, goes_on, at=self._at(stop))
        except InvalidWorkflow as error:
            error.locate(self._at(stop))
            raise
        result = left[vertices]
        return scope.dag([result], scope.plain_names({result.name: "vertices"}))

    def _table(self, name: str, columns: int) -> Schema:
        """The first columns of the table."""
        if self._tables is None:
            return Schema((EDGES if name == "edges" else VERTICES).columns[:columns])
        if name not in self._tables:
            raise UnknownRelation(name, self._tables)
        schema = self._tables[name]
        schema.check_whole(f"the table {name}", columns)
        if len(schema) < columns:
            raise TypeMismatch(f"the table {name} has {len(schema)} columns, and {columns} are needed")
        return Schema(schema.columns[:columns])

    def _with_degrees(self, scope: Scope, edges: Relation) -> Relation:
        """The edges with the degree of their source."""
        source, destination = edges.schema.names[:2]
        name = free_name("degree", edges.schema.names)
        degrees = scope.add(
            Aggregate(
                name="degrees",
                source=edges,
                keys=(source,),
                aggregations=(Aggregation(name, Function.COUNT, destination),),
                at=self._at(self._sections["scatter"]),
            )
        )
        return scope.add(
            Join(
                name="edges_with_degrees",
                left=edges,
                right=degrees,
                on=((source, source),),
                columns=joined_columns(edges, degrees, without=[source]),
                at=self._at(self._sections["scatter"]),
            )
        )

    # ---- an iteration

    def _vertices_after(self, body: Scope, edges: Relation, vertices: Relation) -> Relation:
        """The vertices after an iteration."""
        vertex, value = vertices.schema.names
        gather = self._sections["gather"]
        at = self._at(gather)
        source, destination = edges.schema.names[:2]
        carrying = free_name(value, edges.schema.names)
        sent = body.add(
            Join(
                name=body.fresh("sent"),
                left=edges,
                right=vertices,
                on=((source, vertex),),
                columns=joined_columns(edges, vertices, without=[vertex], renamed={value: carrying}),
                at=self._at(self._sections.get("scatter", gather)),
            )
        )
        named = {VALUE: carrying}
        if self._with_degree:
            named[DEGREE] = edges.schema.names[-1]
        if self._with_value:
            named[EDGE_VALUE] = edges.schema.names[2]
        scattered = self._steps("scatter", body, _Now(sent, named))
        messages = body.add(
            Project(
                name=body.fresh("messages"),
                source=scattered.relation,
                columns=(Output.column(destination, vertex), Output.column(carrying, value)),
                at=at,
            )
        )
        (token,) = tokens(gather, "GATHERED")
        named_token = tokens(parts(gather, "column")[0], "NAME")[0]
        self._column(named_token, _Now(messages, {VALUE: value}))
        aggregation = Aggregation(value, _FUNCTIONS[str(token)[:3]], value)
        try:
            aggregation.type_in(messages.schema)
        except InvalidWorkflow as error:
            error.locate(self._at(named_token))
            raise
        gathered = Aggregate(
            name=body.fresh("gathered"),
            source=messages,
            keys=(vertex,),
            aggregations=(aggregation,),
            at=at,
        )
        return self._steps("apply", body, _Now(body.add(gathered), {VALUE: value})).relation

    def _steps(self, section: str, scope: Scope, now: _Now) -> _Now:
        """What the steps of a section make of a relation."""
        node = self._sections.get(section)
        for step in node.children if node is not None else ():
            assert isinstance(step, Tree)
            if step.data == "udf" and section != "apply":
                raise NotSupported("UDF outside APPLY", self._at(step))
            try:
                now = _Now(scope.add(_STEPS[step.data](self, step, now, scope.fresh(section))), now.columns)
            except InvalidWorkflow as error:
                error.locate(self._at(step))
                raise
        return now

    def _column(self, token: Token, now: _Now) -> str:
        name = name_in(token)
        if name not in now.columns:
            raise UnknownColumn(name, now.columns, self._at(token))
        return now.columns[name]

    def _column_of(self, now: _Now) -> Callable[[Token], str]:
        return lambda token: self._column(token, now)

    def arithmetic(self, node: Node, now: _Now, name: str) -> Arithmetic:
        (token,) = tokens(node, "ARITHMETIC")
        operands = [one for one in node.children if isinstance(one, Tree)]
        first = part(node, "column")
        if first is None:
            raise InvalidWorkflow(
                f"{token} of two numbers; one of them is a column, which it overwrites", self._at(token)
            )
        left, right = (term(one, self._column_of(now), self._file) for one in operands)
        return Arithmetic(
            name=name,
            source=now.relation,
            column=self._column(tokens(first, "NAME")[0], now),
            value=Scalar(ARITHMETIC[str(token)](this=left, expression=right)),
            at=self._at(node),
        )

    def select(self, node: Node, now: _Now, name: str) -> Select:
        (test,) = parts(node, "condition")
        scalar = condition(test, self._column_of(now), now.relation.schema, self._file)
        return Select(name=name, source=now.relation, condition=scalar, at=self._at(node))

    def udf(self, node: Node, now: _Now, name: str) -> Udf:
        (code,), (function,) = tokens(node, "PATH", "STRING"), tokens(node, "NAME")
        path = str(code) if code.type == "PATH" else text_in(code)
        return Udf(
            name=name,
            read=(now.relation,),
            columns=now.relation.schema,
            function=f"{path}:{name_in(function)}",
            at=self._at(node),
        )

    # ---- the end

    def _goes_on(self, stop: Node, vertices: Relation, count: Relation, counts: bool) -> LoopCondition:
        (test,) = parts(stop, "condition")
        named = columns_named(test)
        if not named:
            raise EndlessLoop("ITERATION_STOP names no column, so nothing changes it", self._at(test))
        of_count = name_in(named[0]) == ITERATION
        now = _Now(count, {ITERATION: ITERATION}) if of_count else _Now(vertices, {VALUE: vertices.schema.names[1]})
        for token in named:
            if name_in(token) not in now.columns and name_in(token) in (ITERATION, VALUE):
                raise NotSupported(f"ITERATION_STOP on both {ITERATION} and {VALUE}", self._at(token))
        for token in named:
            if name_in(token) not in (ITERATION, VALUE):
                raise UnknownColumn(name_in(token), (ITERATION, VALUE), self._at(token))
        if of_count and not counts:
            raise EndlessLoop("ITERATION_STOP tests the iteration, which ITERATION does not change", self._at(stop))
        scalar = condition(test, self._column_of(now), now.relation.schema, self._file)
        return LoopCondition(now.relation.name, scalar)


_TITLES = {
    "gather": "GATHER",
    "apply": "APPLY",
    "scatter": "SCATTER",
    "stop": "ITERATION_STOP",
    "iteration": "ITERATION",
}
_FUNCTIONS = {"SUM": Function.SUM, "MIN": Function.MIN, "MAX": Function.MAX, "COU": Function.COUNT}
"""By the first letters of the words."""
_STEPS: dict[str, Callable[[_Compiler, Node, _Now, str], Arithmetic | Select | Udf]] = {
    "arithmetic": _Compiler.arithmetic,
    "select": _Compiler.select,
    "udf": _Compiler.udf,
}
