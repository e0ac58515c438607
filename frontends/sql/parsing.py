"""From SQL text to a tree that the compiler can work on, or an error that says what is wrong or not supported.

In the tree every column names its source, every source of the whole query has a name of its own, WITH is gone
(each use has a copy), and all inner joins are cross joins whose conditions are in WHERE.
"""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Iterator

import duckdb
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.qualify import qualify

from frontends.relational.blocks import (
    add_conjuncts,
    common_conditions,
    conjuncts,
    conjuncts_of,
    rename_source,
    selects,
    sources,
)
from frontends.relational.constructs import CLAUSES, unsupported
from frontends.relational.syntax_errors import SyntaxProblem
from frontends.sql.errors import InvalidQuery, NotSupported
from frontends.sql.plan import Outputs
from frontends.sql.tpch import TABLES

DIALECT = "duckdb"
SQL_CHARS_MAX = 100_000
"""Characters of a query."""
UNTYPED = '"NULL"'
"""DuckDB's name for the type of a column that is always NULL; nothing can be cast to it."""


def parse(sql: str) -> tuple[exp.Select, Outputs]:
    """The tree of a query, and its output columns as DuckDB calls them.

    `InvalidQuery` if the text is not a query over the dataset's tables, `NotSupported` if the query has a construct
    that is not supported, which the message names.
    """
    if len(sql) > SQL_CHARS_MAX:
        raise InvalidQuery(f"{len(sql)} characters; at most {SQL_CHARS_MAX} are allowed")
    try:
        statements = [statement for statement in sqlglot.parse(sql, dialect=DIALECT) if statement is not None]
    except (SqlglotError, RecursionError) as error:
        raise InvalidQuery(str(SyntaxProblem.of(error))) from None
    if len(statements) != 1:
        raise InvalidQuery(f"{len(statements)} statements; one SELECT is needed")
    tree = statements[0]
    _check_supported(tree)
    outputs = _output_types(sql)
    _name_subqueries(tree)
    try:
        tree = qualify(tree, schema={table: dict(columns) for table, columns in TABLES.items()}, dialect=DIALECT)
    except (SqlglotError, RecursionError) as error:
        raise InvalidQuery(str(SyntaxProblem.of(error))) from None
    assert isinstance(tree, exp.Select)
    if len(tree.expressions) != len(outputs):  # `* LIKE 'r_%'`, or unnest of a struct.
        raise NotSupported("an expression that is several output columns")
    for node in tree.walk():
        node.comments = None
    _inline_ctes(tree)
    _name_sources_apart(tree)
    for select in selects(tree):
        _move_conditions(select)
    return tree, outputs


# ---- what is supported -----------------------------------------------------------------------


def _check_supported(tree: exp.Expr) -> None:
    if isinstance(tree, exp.SetOperation):
        raise NotSupported(tree.key.upper())
    if not isinstance(tree, exp.Select):
        raise NotSupported(f"a statement other than SELECT ({tree.key.upper()})")
    for node in tree.walk():
        for construct in _unsupported(node):
            raise NotSupported(construct)


def _unsupported(node: exp.Expr) -> Iterator[str]:
    """The constructs at this node that are not supported."""
    if isinstance(node, exp.SetOperation):
        yield node.key.upper()
    elif isinstance(node, exp.Join):
        yield from _unsupported_join(node)
    else:
        yield from unsupported(node, DIALECT, CLAUSES | {"offset"}, _aggregate_names())


def _unsupported_join(join: exp.Join) -> Iterator[str]:
    side, kind, method = join.side.upper(), join.kind.upper(), join.method.upper()
    if side not in ("", "LEFT"):
        yield f"{side} JOIN"
    elif kind not in ("", "INNER", "CROSS", "OUTER"):
        yield f"{kind} JOIN"
    elif method:
        yield f"{method} JOIN"


# ---- checks by DuckDB ------------------------------------------------------------------------


@functools.cache
def _empty_tables() -> duckdb.DuckDBPyConnection:
    """A database with the tables and no rows, which knows names, types and functions, and can reach no file."""
    connection = duckdb.connect(config={"enable_external_access": "false"})
    for table, columns in TABLES.items():
        connection.execute(f"CREATE TABLE {table} ({', '.join(map(' '.join, columns.items()))})")
    return connection


@functools.cache
def _aggregate_names() -> frozenset[str]:
    names = _empty_tables().execute(
        "SELECT DISTINCT function_name FROM duckdb_functions() WHERE function_type = 'aggregate'"
    )
    return frozenset(str(name) for (name,) in names.fetchall())


def _output_types(sql: str) -> Outputs:
    try:
        rows = _empty_tables().cursor().execute(f"DESCRIBE {sql.strip().rstrip(';')}").fetchall()
    except duckdb.Error as error:
        raise InvalidQuery(str(SyntaxProblem.of(error)).partition(" LINE 1:")[0]) from None
    outputs = tuple((str(name), "" if type_ == UNTYPED else str(type_)) for name, type_, *_ in rows)
    if len({name.lower() for name, _ in outputs}) < len(outputs):
        raise InvalidQuery("two output columns have the same name; give one another name with AS")
    return outputs


# ---- one shape for all queries ---------------------------------------------------------------


def _name_subqueries(tree: exp.Expr) -> None:
    """Name scalar subqueries that are output columns: qualifying names other columns, but takes these for tables."""
    for select in list(tree.find_all(exp.Select)):
        for number, output in enumerate(select.expressions):
            if isinstance(output, exp.Subquery) and not output.alias:
                named = exp.Alias(alias=exp.to_identifier(f"_subquery_{number}", quoted=True))
                output.replace(named)
                named.set("this", output)


def _inline_ctes(tree: exp.Select) -> None:
    for select in selects(tree):  # Inner blocks first.
        with_ = select.args.get("with_")
        if with_ is None:
            continue
        with_.pop()
        tables = with_.expressions
        for index, cte in enumerate(tables):
            for place in (select, *(later.this for later in tables[index + 1 :])):
                for table in list(place.find_all(exp.Table)):
                    if table.name == cte.alias and not table.db:
                        table.replace(
                            exp.Subquery(
                                this=cte.this.copy(),
                                alias=exp.TableAlias(this=exp.to_identifier(table.alias_or_name, quoted=True)),
                            )
                        )


def _name_sources_apart(tree: exp.Select) -> None:
    """Rename sources so that no two of the query have the same name: then a reference to a column names one source."""
    given = Counter(source.alias for select in selects(tree) for source in sources(select))
    numbers = itertools.count(1)
    for select in selects(tree):  # Inner blocks first: what still has the old name in them refers to a block around.
        for source in sources(select):
            if given[source.alias] > 1:
                name = next(name for number in numbers if (name := f"{source.alias}_{number}") not in given)
                rename_source(select, source, name)


def _move_conditions(select: exp.Select) -> None:
    for join in select.args.get("joins") or ():
        if join.side:
            continue
        on = join.args.get("on")
        if on is not None:
            on.pop()
            add_conjuncts(select, conjuncts_of(on))
        join.set("kind", "CROSS")
    # They may be the conditions of joins.
    for condition in conjuncts(select):
        add_conjuncts(select, common_conditions(condition))
    for exists in select.find_all(exp.Exists):
        inner = exists.this
        if isinstance(inner, exp.Select) and not inner.args.get("group") and not inner.find(exp.AggFunc):
            inner.set("expressions", [exp.alias_(exp.Literal.number(1), "found", quoted=True)])
