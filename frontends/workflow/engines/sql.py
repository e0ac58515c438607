"""Scripts of SQL engines: a statement for each operator, which makes a view, or a table where a relation is kept.

A view costs nothing: the engine plans what reads it as one query. A relation is kept as a table if it is read more
than once, if a loop reads it, or if too many views would stand on each other. The loop itself is Python: each iteration
makes the body's views anew, then the carried relations' next values, and tests the condition on data.

An engine gives a class `Database` for its scripts, with these methods (texts are names and queries of its SQL):

- `Database()`, a context manager;
- `view(name, query)`, `table(name, query)`: make or replace one;
- `rename(name, new_name)`: a table takes the place of another;
- `scan(path, columns)`: a query that reads these columns ({name: type}) of a Parquet file. Its statistics say nothing
  about NaN, which engines believe, so that `x > 5` loses it: columns of floats are hidden from them (`NAN_HIDDEN`);
- `any_row(query)`: whether the query has a row;
- `write(query, path)`: to a Parquet file, beside it first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from textwrap import indent
from typing import ClassVar

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from frontends.workflow.engines.base import Engine, Rules, all_operators, beyond, described, shared_relations
from frontends.workflow.engines.scripts import (
    INDENT,
    ITERATIONS_EXCEEDED,
    comment,
    python_names,
    script,
    string_text,
)
from frontends.workflow.engines.sql_queries import SqlQueries
from frontends.workflow.engines.sql_scalars import DATA_TYPES, HIDDEN, identifier
from frontends.workflow.ir.dag import (
    BlackBox,
    Dag,
    Input,
    LoopCondition,
    LoopResult,
    Operator,
    Scan,
    Sort,
    Udf,
    While,
    free_name,
)
from frontends.workflow.ir.types import Schema

VIEWS_MAX = 40
"""Views upon views; then a table."""
NAN_HIDDEN = '''\
def scanned(path: str, columns: dict[str, str]) -> str:
    """The columns of a Parquet file as a list of SELECT. Statistics of floats leave NaN out, and filters believe them:
    a condition hides these columns from the statistics, and makes one NaN of all."""
    schema = pq.read_schema(path)
    parts = []
    for name, type_ in columns.items():
        field = schema.field(name[1:-1].replace('""', '"') if name.startswith('"') else name)
        part = f"CAST({name} AS {type_})"
        if pa.types.is_floating(field.type):
            part = f"CASE WHEN ISNAN({name}) THEN CAST('NaN' AS {type_}) ELSE {part} END"
        parts.append(f"{part} AS {name}")
    return ", ".join(parts)
'''
"""Defines `scanned`; needs `pyarrow as pa` and `pyarrow.parquet as pq`."""
SHORT_QUERY_CHARS = 90
"""A query of at most so many characters stands on one line."""


class SqlEngine(Engine):
    """An engine whose scripts are made of SQL."""

    unheeded: ClassVar[Mapping[str, str]] = {
        **Engine.unheeded,
        "share_scans": "it decides by itself how often it passes over data",
        "infer_types": "it decides by itself which form rows have between operators",
    }
    dialect: ClassVar[str]
    """sqlglot's name of its SQL."""
    queries: ClassVar[SqlQueries]
    standard: ClassVar[tuple[str, ...]] = ("os",)
    """Modules of the standard library that the definitions need."""
    imports: ClassVar[tuple[str, ...]]
    """Statements that import what else they need."""
    definitions: ClassVar[tuple[str, ...]]
    """What a script defines: the class `Database`, and what it needs."""

    merges_all = True

    def inexpressible(self, job: Dag) -> str | None:
        return beyond(self.name, job, without=(Udf,)) or self._unreadable_code(job)

    def _unreadable_code(self, job: Dag) -> str | None:
        for operator in all_operators(job):
            if isinstance(operator, BlackBox):
                try:
                    code = sqlglot.parse_one(operator.code, dialect=self.dialect)
                except SqlglotError as error:
                    return f"the code of {described(operator)} does not parse: {str(error).partition(chr(10))[0]}"
                if not isinstance(code, exp.Query):
                    return f"the code of {described(operator)} is not one query"
        return None

    def script(self, job: Dag, rules: Rules) -> str:
        loops = (ITERATIONS_EXCEEDED,) if any(one.condition is not None for one in _loops(job)) else ()
        return script(
            self.name,
            job,
            _Writer(self, job, rules).job(),
            standard=self.standard,
            imports=self.imports,
            definitions=(*self.definitions, *loops),
        )


def _loops(job: Dag) -> list[While]:
    return [one for one in all_operators(job) if isinstance(one, While)]


class _Writer:
    """Writes one script."""

    def __init__(self, engine: SqlEngine, job: Dag, rules: Rules) -> None:
        self._queries, self._dialect = engine.queries, engine.dialect
        self._job, self._merge = job, rules.merge
        self._taken = {name.casefold() for name in job.names}
        self._carried: dict[tuple[str, str], str] = {}
        self._variables = {"db", "goes_on"}

    def job(self) -> list[str]:
        names = {name: name for name in self._job.names}
        body = self._statements(self._job, names, self._kept(self._job, set()))
        for name in self._job.results:
            body += ["", self._result(self._job.operator(name))]
        return ["with Database() as db:", *in_block(body)]

    def _kept(self, dag: Dag, more: set[str]) -> frozenset[str]:
        """The relations that are kept as tables. more: what is, too."""
        if not self._merge:
            return frozenset(dag.names)
        kept = more | {name for loop in dag.of_type(While) for name in loop.inputs}
        kept |= {name for name in shared_relations(dag) if not isinstance(dag.operator(name), Scan | Input)}
        depth: dict[str, int] = {}
        for operator in dag.operators:
            depth[operator.name] = 1 + max((depth[name] for name in operator.inputs), default=0)
            if depth[operator.name] > VIEWS_MAX:
                kept.add(operator.name)
            if operator.name in kept:
                depth[operator.name] = 0
        return frozenset(kept)

    # ---- statements --------------------------------------------------------------------------

    def _statements(self, dag: Dag, names: Mapping[str, str], kept: frozenset[str]) -> list[str]:
        """What makes the relations of a DAG. names: what the catalog calls them."""
        lines: list[str] = []
        for operator in dag.operators:
            if dag is self._job or not isinstance(operator, Input):
                lines += ["", comment(operator), *self._made(operator, names, operator.name in kept)]
        return lines[1:]

    def _made(self, operator: Operator, names: Mapping[str, str], keep: bool) -> list[str]:
        if isinstance(operator, Scan | Input):
            return self._scanned(operator, names[operator.name], keep)
        if isinstance(operator, While):
            return self._loop(operator, names)
        if isinstance(operator, LoopResult):
            query: exp.Query = self._queries.whole(self._carried[operator.source.name, operator.carried])
        else:
            query = self._queries.query(operator, [names[read] for read in operator.inputs])
        return [self._stored(names[operator.name], query, keep)]

    def _scanned(self, operator: Scan | Input, name: str, keep: bool) -> list[str]:
        columns = columns_text(operator.schema, self._dialect)
        scan = f"db.scan(inputs[{string_text(operator.name)}], {columns})"
        return [f"db.{'table' if keep else 'view'}({self._name(name)}, {scan})"]

    def _stored(self, name: str, query: exp.Query, keep: bool) -> str:
        return f"db.{'table' if keep else 'view'}({self._name(name)}, {python_text(self._text(query))})"

    def _result(self, operator: Operator) -> str:
        query = (
            self._queries.ordered(operator.name, operator.keys)
            if isinstance(operator, Sort)
            else self._queries.whole(operator.name)
        )
        return f"db.write({python_text(self._text(query))}, outputs[{string_text(operator.name)}])"

    # ---- loops -------------------------------------------------------------------------------

    def _loop(self, loop: While, outer: Mapping[str, str]) -> list[str]:
        names = self._body_names(loop, outer)
        (count,) = python_names([f"{loop.name}_iterations"], taken=self._variables).values()
        self._variables.add(count)
        lines = [
            self._stored(names[one.input], self._queries.whole(outer[loop.first_value(one.input).name]), keep=True)
            for one in loop.carried
        ]
        lines += self._rounds(loop, names, count)
        counted = f'f"SELECT CAST({{{count}}} AS BIGINT) AS iterations"'
        return [*lines, f"db.table({self._name(outer[loop.name])}, {counted})"]

    def _body_names(self, loop: While, outer: Mapping[str, str]) -> dict[str, str]:
        """What the catalog calls the body's relations: their names if these are free, else with the loop's before."""
        names = {}
        for operator in loop.body.operators:
            if isinstance(operator, Input) and not loop.carries(operator.name):
                names[operator.name] = outer[loop.first_value(operator.name).name]
            else:
                names[operator.name] = self._free(operator.name, f"{loop.name}_{operator.name}")
        self._carried.update({(loop.name, one.input): names[one.input] for one in loop.carried})
        return names

    def _free(self, name: str, otherwise: str) -> str:
        """`name`, if the catalog has no such relation yet, else nearly `otherwise`; taken from then on."""
        found = name if name.casefold() not in self._taken else free_name(otherwise, self._taken)
        self._taken.add(found.casefold())
        return found

    def _rounds(self, loop: While, names: Mapping[str, str], count: str) -> list[str]:
        if loop.condition is None:
            head = f"for {count} in range(1, {loop.iterations_max} + 1):"
            return [f"{count} = 0", head, *in_block(self._iteration(loop, names))]
        first = self._holds(loop.condition, loop, names[loop.condition.relation]) if loop.condition.tested_first else ""
        too_many = [
            f"if {count} == {loop.iterations_max}:",
            f"{INDENT}raise IterationsExceeded({string_text(loop.name)}, {count})",
        ]
        body = [*too_many, *self._iteration(loop, names), f"{count} += 1"]
        return [f"{count} = 0", f"goes_on = {first or 'True'}", "while goes_on:", *in_block(body)]

    def _iteration(self, loop: While, names: Mapping[str, str]) -> list[str]:
        """The body, the next values, the condition, and then the change, which is all at once."""
        condition = loop.condition
        used = [one.following for one in loop.carried]
        if condition is not None:
            used.append(condition.relation)
        twice = {name for name in used if used.count(name) > 1 and not isinstance(loop.body.operator(name), Input)}
        lines = self._statements(loop.body, names, self._kept(loop.body, twice))
        following = {}
        for one in loop.carried:
            following[one.input] = self._free(f"next_{names[one.input]}", f"next_{names[one.input]}")
            query = self._queries.whole(names[one.following])
            lines.append(self._stored(following[one.input], query, keep=True))
        if condition is not None:
            tested = following.get(condition.relation, names[condition.relation])
            lines.append(f"goes_on = {self._holds(condition, loop, tested)}")
        for one in loop.carried:
            lines.append(f"db.rename({self._name(following[one.input])}, {self._name(names[one.input])})")
        return lines

    def _holds(self, condition: LoopCondition, loop: While, relation: str) -> str:
        schema = loop.body.operator(condition.relation).schema
        return f"db.any_row({python_text(self._text(self._queries.some(relation, condition.test, schema)))})"

    # ---- texts -------------------------------------------------------------------------------

    def _text(self, query: exp.Expr) -> str:
        return sql_text(query, self._dialect)

    def _name(self, name: str) -> str:
        return name_text(name, self._dialect)


def columns_text(schema: Schema, dialect: str) -> str:
    """The Python text of {column: type}, both as SQL writes them."""
    items = [
        f"{name_text(column.name, dialect)}: {string_text(exp.DataType(this=DATA_TYPES[column.type]).sql(dialect))}"
        for column in schema
    ]
    one_line = f"{{{', '.join(items)}}}"
    if len(one_line) <= SHORT_QUERY_CHARS:
        return one_line
    return "{\n" + "".join(f"{INDENT}{item},\n" for item in items) + "}"


def name_text(name: str, dialect: str) -> str:
    """The Python text of a name as SQL writes it."""
    return string_text(identifier(name).sql(dialect))


def sql_text(query: exp.Expr, dialect: str) -> str:
    """The query, on one line if it is short."""
    line = query.sql(dialect)
    return line if len(line) <= SHORT_QUERY_CHARS else query.sql(dialect, pretty=True)


def in_block(lines: Iterable[str]) -> list[str]:
    """The lines, further in."""
    return [indent(line, INDENT) for line in lines]


def python_text(sql: str) -> str:
    """The Python text of SQL: in triple quotes if it has several lines, which are indented."""
    escaped = "".join(map(_escaped, sql)).replace('"""', '\\"\\"\\"')
    if "\n" in sql:
        return f'"""\n{indent(escaped, INDENT)}\n"""'
    if '"' not in sql:
        return f'"{escaped}"'
    return f"'{escaped}'" if "'" not in sql else f'"""{escaped} """'


def _escaped(character: str) -> str:
    if character == "\\":
        return "\\\\"
    if ord(character) < HIDDEN:
        return character
    return repr(chr(ord(character) - HIDDEN))[1:-1]
