"""Scripts of SQL engines: a statement for each relation that is kept as a table, and one for each result.

A relation is kept if it is read more than once, if each iteration of a loop reads it, or if too many queries would
stand on each other. All others are in the WITH of the statement that reads them, which the engine plans as one query:
a view for each would be parsed and planned by itself. So are those that are read more than once, but by one statement,
if the engine can be told to evaluate them once (`evaluates_once`). Files are views. The loop itself is Python: each
iteration makes the carried relations' next values, and tests the condition on data.

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
from dataclasses import dataclass
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

QUERIES_MAX = 40
"""Queries upon queries in one statement; then a table."""
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

    evaluates_once: ClassVar[bool] = False
    """Whether a part of a WITH may say `AS MATERIALIZED`."""

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


def _read_in_each(loop: While) -> list[str]:
    """What each iteration reads anew; the first value of what is carried is read once."""
    pairs = zip(loop.inputs, loop.body.input_names, strict=True)
    return [given for given, name in pairs if not loop.carries(name)]


def _read_by_one_statement(job: Dag) -> frozenset[str]:
    """Relations that are read more than once, by one statement that is none of a loop's."""
    if len(job.operators) > QUERIES_MAX:
        return frozenset()
    loops = {one.name for one in job.of_type(While)}
    shared = shared_relations(job)
    made_apart = shared | loops
    """What has a statement of its own, unless it is found to be read by one alone."""
    statements: dict[str, set[str]] = {}
    """By relation those that read it, each by the name of what it makes. (A loop stands for all of its own.)"""
    found = set[str]()
    for operator in reversed(job.operators):
        name = operator.name
        reads = {name} if name in job.results else set()
        for reader in job.consumers(name):
            reads |= {reader.name} if reader.name in made_apart - found else statements[reader.name]
        statements[name] = reads
        if name in shared - loops and len(reads) == 1 and reads.isdisjoint(loops):
            found.add(name)
    return frozenset(one for one in found if not isinstance(job.operator(one), Scan | Input))


@dataclass(frozen=True, slots=True)
class _Part:
    """A relation that is made within the statement that reads it. reads: the catalog's names. once: it is read more
    than once there, and evaluated once."""

    query: exp.Query
    reads: tuple[str, ...]
    comment: str = ""
    once: bool = False

    @property
    def comments(self) -> list[str]:
        return [self.comment] if self.comment else []


class _Writer:
    """Writes one script."""

    def __init__(self, engine: SqlEngine, job: Dag, rules: Rules) -> None:
        self._queries, self._dialect = engine.queries, engine.dialect
        self._job, self._merge = job, rules.merge
        self._once = _read_by_one_statement(job) if engine.evaluates_once and rules.merge else frozenset()
        self._taken = {name.casefold() for name in job.names}
        self._carried: dict[tuple[str, str], str] = {}
        self._counts: dict[str, str] = {}
        self._variables = {"db", "goes_on"}
        self._parts: dict[str, _Part] = {}
        """Relations that are parts of statements, by the names that the catalog would have; sources first."""

    def job(self) -> list[str]:
        names = {name: name for name in self._job.names}
        body = self._statements(self._job, names, self._kept(self._job, set()))
        for name in self._job.results:
            body += ["", *self._result(self._job.operator(name))]
        return ["with Database() as db:", *in_block(body)]

    def _kept(self, dag: Dag, more: set[str]) -> frozenset[str]:
        """The relations that are kept as tables. more: what is, too."""
        if not self._merge:
            return frozenset(dag.names)
        kept = more | {name for loop in dag.of_type(While) for name in _read_in_each(loop)}
        kept |= {name for name in shared_relations(dag) if not isinstance(dag.operator(name), Scan | Input)}
        if dag is self._job:
            kept -= self._once
        depth: dict[str, int] = {}
        for operator in dag.operators:
            depth[operator.name] = 1 + max((depth[name] for name in operator.inputs), default=0)
            if depth[operator.name] > QUERIES_MAX:
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
                made = self._made(operator, dag, names, operator.name in kept)
                lines += ["", *made] if made else []
        return lines[1:]

    def _made(self, operator: Operator, dag: Dag, names: Mapping[str, str], keep: bool) -> list[str]:
        """Lines that make the relation; none if it is a part of what reads it."""
        name = names[operator.name]
        if isinstance(operator, Scan | Input):
            return [comment(operator), *self._scanned(operator, name, keep)]
        if isinstance(operator, While):
            return [comment(operator), *self._loop(operator, names), *self._counted(operator, dag, name)]
        if isinstance(operator, LoopResult):
            reads = [self._carried[operator.source.name, operator.carried]]
            query: exp.Query = self._queries.whole(*reads)
        else:
            reads = [names[read] for read in operator.inputs]
            query = self._queries.query(operator, reads)
        once = dag is self._job and operator.name in self._once
        self._parts[name] = _Part(query, tuple(reads), comment(operator), once)
        return self._table(name, name) if keep else []

    def _scanned(self, operator: Scan | Input, name: str, keep: bool) -> list[str]:
        columns = columns_text(operator.schema, self._dialect)
        scan = f"db.scan(inputs[{string_text(operator.name)}], {columns})"
        return [f"db.{'table' if keep else 'view'}({self._name(name)}, {scan})"]

    def _table(self, name: str, of: str) -> list[str]:
        """Lines that make a table of a relation."""
        part = self._parts.pop(of, None) or _Part(self._queries.whole(of), (of,))
        if part.query.ctes:  # Those of a black box, which are not to be among ours.
            self._parts[of] = part
            part = _Part(self._queries.whole(of), (of,))
        text, comments = self._statement(part.query, part.reads)
        return [*comments, *part.comments, f"db.table({self._name(name)}, {text})"]

    def _result(self, operator: Operator) -> list[str]:
        query = (
            self._queries.ordered(operator.name, operator.keys)
            if isinstance(operator, Sort)
            else self._queries.whole(operator.name)
        )
        text, comments = self._statement(query, [operator.name])
        return [*comments, f"db.write({text}, outputs[{string_text(operator.name)}])"]

    def _statement(self, query: exp.Query, reads: Iterable[str]) -> tuple[str, list[str]]:
        """The Python text of a query with all parts that it reads, directly or not, and the comments of these."""
        wanted, found = list(reads), set[str]()
        while wanted:
            name = wanted.pop()
            if name in self._parts and name not in found:
                found.add(name)
                wanted += self._parts[name].reads
        parts = {name: part for name, part in self._parts.items() if name in found}
        for name, part in parts.items():
            query = query.with_(identifier(name), as_=part.query.copy(), materialized=part.once or None, copy=False)
        return python_text(self._text(query)), [one for part in parts.values() for one in part.comments]

    # ---- loops -------------------------------------------------------------------------------

    def _loop(self, loop: While, outer: Mapping[str, str]) -> list[str]:
        names = self._body_names(loop, outer)
        (count,) = python_names([f"{loop.name}_iterations"], taken=self._variables).values()
        self._variables.add(count)
        self._counts[loop.name] = count
        lines = []
        for one in loop.carried:
            first = outer[loop.first_value(one.input).name]
            lines += self._table(names[one.input], first)
        return [*lines, *self._rounds(loop, names, count)]

    def _counted(self, loop: While, dag: Dag, name: str) -> list[str]:
        """The loop's own relation, if anybody reads it."""
        if loop.name not in dag.results and all(isinstance(one, LoopResult) for one in dag.consumers(loop.name)):
            return []
        counted = f'f"SELECT CAST({{{self._counts[loop.name]}}} AS BIGINT) AS iterations"'
        return [f"db.table({self._name(name)}, {counted})"]

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
            head = f"for {count} in range(1, {loop.iterations_max + 1}):"
            return [head, *in_block(self._iteration(loop, names))]
        first = ["goes_on = True"]
        if loop.condition.tested_first:
            first = self._goes_on(loop.condition, loop, names[loop.condition.relation])
        too_many = [
            f"if {count} == {loop.iterations_max}:",
            f"{INDENT}raise IterationsExceeded({string_text(loop.name)}, {count})",
        ]
        body = [*too_many, *self._iteration(loop, names), f"{count} += 1"]
        return [f"{count} = 0", *first, "while goes_on:", *in_block(body)]

    def _iteration(self, loop: While, names: Mapping[str, str]) -> list[str]:
        """The body, the next values, the condition, and then the change, which is all at once."""
        condition = loop.condition
        used = [one.following for one in loop.carried]
        if condition is not None:
            used.append(condition.relation)
        twice = {name for name in used if used.count(name) > 1 and not isinstance(loop.body.operator(name), Input)}
        lines = self._statements(loop.body, names, self._kept(loop.body, twice))
        tests = condition is not None and not loop.carries(condition.relation)
        following = {one.input: names[one.input] for one in loop.carried}
        if len(loop.carried) > 1 or tests:  # Else nothing reads the present value when it has changed.
            following = {one: self._free(f"next_{name}", f"next_{name}") for one, name in following.items()}
        for one in loop.carried:
            lines += self._table(following[one.input], names[one.following])
        if condition is not None:
            tested = following.get(condition.relation, names[condition.relation])
            lines += self._goes_on(condition, loop, tested)
        for one in loop.carried:
            if following[one.input] != names[one.input]:
                lines.append(f"db.rename({self._name(following[one.input])}, {self._name(names[one.input])})")
        return lines

    def _goes_on(self, condition: LoopCondition, loop: While, relation: str) -> list[str]:
        schema = loop.body.operator(condition.relation).schema
        text, comments = self._statement(self._queries.some(relation, condition.test, schema), [relation])
        return [*comments, f"goes_on = db.any_row({text})"]

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
