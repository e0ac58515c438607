"""HiveQL: a text of statements to the intermediate representation.

A statement is a query, perhaps with `CREATE TABLE name AS`, `CREATE VIEW name AS` or `INSERT OVERWRITE TABLE name`
before it, or, as the thesis writes, with `AS name` after it; or a join without SELECT. Names are bound anew in the
order of the text. Relations that no statement reads are the results; a value of a name that is bound anew, and that
nobody read, is none. docs/workflow-semantics.md says where the meaning is not Hive's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from frontends.relational import constructs
from frontends.relational.syntax_errors import SyntaxProblem
from frontends.workflow.errors import InvalidSyntax, InvalidWorkflow, NotSupported, UnknownRelation
from frontends.workflow.ir.dag import Dag, Relation, Scan, free_name
from frontends.workflow.ir.types import Schema
from frontends.workflow.languages.hive_building import Building
from frontends.workflow.languages.hive_from import BARE
from frontends.workflow.languages.hive_query import is_query, translate
from frontends.workflow.languages.hive_statements import BARE_JOIN, Statement, statements
from frontends.workflow.positions import Position, SourceText

DIALECT = "hive"
UNNAMED = "result"
"""The relation of a query that has no name; with a number after it if that is taken."""
_HARMLESS = (exp.TemporaryProperty, exp.FileFormatProperty)
"""What CREATE TABLE may say beside the query: nothing here depends on it."""


_PARTS: dict[type[exp.Expr], frozenset[str]] = {
    exp.Table: frozenset(("this", "alias", "db")),
    exp.Subquery: frozenset(("this", "alias", "with_", "order", "limit", "offset")),
    exp.Join: frozenset(("this", "side", "kind", "method", "on", "using")),
    exp.Limit: frozenset(("expression",)),
    exp.Order: frozenset(("expressions",)),
    exp.Ordered: frozenset(("this", "desc", "nulls_first")),
    exp.CTE: frozenset(("this", "alias")),
    exp.Count: frozenset(("this", "big_int", "distinct")),
    exp.Cast: frozenset(("this", "to", "safe")),
    exp.TryCast: frozenset(("this", "to", "safe", "requires_string")),
    exp.Create: frozenset(("this", "kind", "expression", "exists", "properties", "replace")),
    exp.Insert: frozenset(("this", "expression", "overwrite", "exists", "partition")),
    **dict.fromkeys(
        (exp.Union, exp.Intersect, exp.Except),
        frozenset(("this", "expression", "distinct", "with_", "order", "limit", "offset")),
    ),
}
"""What nodes may have that would otherwise be passed over."""


def parse(text: str, schemas: Mapping[str, Schema], file: str = "<hive>", strict: bool = False) -> Dag:
    """The workflow of a HiveQL text; `InvalidWorkflow` with the place if it is none.

    schemas: {table: its columns} of the tables that may be read. strict: what only the thesis writes is refused.
    """
    source = SourceText(text, file)
    try:
        return _Workflow(source, schemas, strict).dag()
    except RecursionError:
        raise InvalidWorkflow("the text is nested too deeply", source.position(0), source.line(1)) from None
    except InvalidWorkflow as error:
        error.locate(source.position(0), source)
        raise


@dataclass(slots=True)
class _Query:
    """A statement. wanted: the name that it gives its result, perhaps none; name: that of the relation in the DAG."""

    statement: Statement
    tree: exp.Query
    wanted: str
    name: str = ""


@dataclass(slots=True)
class _Bound:
    """What a name means at present. read: whether a statement has read it."""

    relation: Relation
    query: _Query | None
    read: bool = False


@dataclass(slots=True)
class _Names:
    """The relations that the names of a text mean: those of statements before those of tables."""

    scan: Callable[[str], Relation | None]
    tables: tuple[str, ...]
    bound: dict[str, _Bound] = field(default_factory=dict)

    def relation(self, name: str) -> Relation:
        folded = name.casefold()
        if folded not in self.bound:
            scanned = self.scan(folded)
            if scanned is None:
                raise UnknownRelation(name, self.known())
            self.bound[folded] = _Bound(scanned, None)
        self.bound[folded].read = True
        return self.bound[folded].relation

    def known(self) -> list[str]:
        own = [one.query.wanted for one in self.bound.values() if one.query is not None]
        return [*own, *(table for table in self.tables if table not in own)]


class _Workflow:
    """One text."""

    def __init__(self, source: SourceText, schemas: Mapping[str, Schema], strict: bool) -> None:
        self._schemas, self._strict = schemas, strict
        self._queries = [_query(statement) for statement in statements(source, strict)]
        self._building = Building(self._reserved())
        self._names = _Names(self._scan, tuple(schemas))

    def _reserved(self) -> list[str]:
        """Give each query its name; of several that bind the same, the last has the name itself."""
        last = {one.wanted.casefold(): one for one in self._queries if one.wanted}
        names = [one.wanted for one in last.values()]
        for one in self._queries:
            if one.wanted and last[one.wanted.casefold()] is one:
                one.name = one.wanted
            else:
                one.name = free_name(one.wanted or UNNAMED, names)
                names.append(one.name)
        return names

    def _scan(self, folded: str) -> Relation | None:
        table = next((one for one in self._schemas if one.casefold() == folded), None)
        if table is None:
            return None
        at = self._building.at()
        name = self._building.free_name(table)
        return self._building.append(Scan(name=name, table=table, columns=self._schemas[table], at=at))

    def dag(self) -> Dag:
        unnamed = [self._relation(one) for one in self._queries]
        bound = [one.query.name for one in self._names.bound.values() if one.query is not None and not one.read]
        wanted = {*bound, *(name for name in unnamed if name)}
        results = [one.name for one in self._queries if one.name in wanted]
        if not results:
            raise InvalidWorkflow("a workflow without results: each relation is read by a statement")
        everything = Dag(tuple(self._building.operators), tuple(results))
        needed = everything.ancestors(results) | set(results)
        return Dag(tuple(one for one in everything if one.name in needed), tuple(results))

    def _relation(self, query: _Query) -> str:
        """Build the relation of a statement; its name if nobody can read it."""
        building, statement = self._building, query.statement
        building.statement = statement
        try:
            with building.relation_named(query.name):
                made = translate(query.tree, building, self._names, not self._strict)
                made = building.finish(made, query.name, statement.position())
        except InvalidWorkflow as error:
            error.locate(statement.position())
            raise
        if not query.wanted:
            return query.name
        self._names.bound[query.wanted.casefold()] = _Bound(made, query)
        return ""


# ---- statements ------------------------------------------------------------------------------


def _query(statement: Statement) -> _Query:
    tree = _parsed(statement)
    try:
        query, name = _unwrapped(tree)
        for node in tree.walk():
            for construct in constructs.unsupported(node, DIALECT):
                raise NotSupported(construct, _place(statement, node))
            for part in node.args.keys() - _PARTS.get(type(node), node.args.keys()):
                if node.args[part]:
                    raise NotSupported(f"{part.strip('_').upper()} in {node.key.upper()}", _place(statement, node))
            if isinstance(node, exp.Select) and not node.expressions:
                raise InvalidSyntax("a SELECT without columns", _place(statement, node))
            if node.error_messages():
                raise InvalidSyntax(f"{node.key.upper()} lacks an argument, or has too many", _place(statement, node))
    except InvalidWorkflow as error:
        error.locate(_place(statement, tree))
        raise
    if statement.bare_join:
        query.meta[BARE] = True
    return _Query(statement, query, name or statement.name)


def _place(statement: Statement, node: exp.Expr) -> Position:
    starts = [one.meta["start"] for one in node.walk() if "start" in one.meta]
    return statement.position(min(starts, default=None))


def _parsed(statement: Statement) -> exp.Expr:
    try:
        trees = [tree for tree in sqlglot.parse(statement.text, dialect=DIALECT) if tree is not None]
    except SqlglotError as error:
        problem = SyntaxProblem.of(error)
        raise InvalidSyntax(problem.description, _fault(statement, problem)) from None
    if len(trees) != 1:
        raise InvalidSyntax("this is no statement", statement.position())
    return trees[0]


def _fault(statement: Statement, problem: SyntaxProblem) -> Position:
    """Where the token at fault begins."""
    if problem.line is None or problem.column is None:
        return statement.position()
    lines = statement.text.split("\n")
    offset = sum(len(line) + 1 for line in lines[: problem.line - 1]) + problem.column - len(problem.token)
    return statement.position(max(offset, len(BARE_JOIN) if statement.bare_join else 0))


def _unwrapped(tree: exp.Expr) -> tuple[exp.Query, str]:
    """The query of a statement, and the name that CREATE or INSERT gives its result."""
    if is_query(tree):
        assert isinstance(tree, exp.Query)
        return tree, ""
    if not isinstance(tree, exp.Create | exp.Insert):
        raise NotSupported(f"the statement {tree.key.upper()}")
    query = tree.expression
    what = f"{tree.key.upper()} {str(tree.args.get('kind') or 'TABLE').upper()}"
    if not is_query(query):
        raise NotSupported(f"{what} without a query")
    if isinstance(tree, exp.Create) and what not in ("CREATE TABLE", "CREATE VIEW"):
        raise NotSupported(what)
    if isinstance(tree, exp.Insert) and not tree.args.get("overwrite"):
        raise NotSupported("INSERT INTO; INSERT OVERWRITE binds the name anew, and anything else")
    if tree.args.get("partition"):
        raise NotSupported("PARTITION")
    properties = tree.args.get("properties")
    for one in properties.expressions if properties is not None else ():
        if not isinstance(one, _HARMLESS):
            raise NotSupported(f"{what} with {one.sql()}")
    if not isinstance(tree.this, exp.Table) or not isinstance(tree.this.this, exp.Identifier) or tree.this.db:
        raise NotSupported(f"{what} {tree.this.sql()}")
    return query, tree.this.name
