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

from frontends.sql.blocks import add_conjuncts, conjuncts, conjuncts_of, rename_source, selects, sources
from frontends.sql.errors import InvalidQuery, NotSupported
from frontends.sql.plan import Outputs
from frontends.sql.tpch import TABLES

DIALECT = "duckdb"
SQL_CHARS_MAX = 100_000
"""Characters of a query."""
AGGREGATES = (exp.Sum, exp.Count, exp.Avg, exp.Min, exp.Max)
UNTYPED = '"NULL"'
"""DuckDB's name for the type of a column that is always NULL; nothing can be cast to it."""
CLAUSES = frozenset(
    ("with_", "expressions", "distinct", "from_", "joins", "where", "group", "having", "order", "limit", "offset")
)
"""The clauses of a SELECT that are supported."""


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
        raise InvalidQuery(_one_line(error)) from None
    if len(statements) != 1:
        raise InvalidQuery(f"{len(statements)} statements; one SELECT is needed")
    tree = statements[0]
    _check_supported(tree)
    outputs = _output_types(sql)
    try:
        tree = qualify(tree, schema={table: dict(columns) for table, columns in TABLES.items()}, dialect=DIALECT)
    except (SqlglotError, RecursionError) as error:
        raise InvalidQuery(_one_line(error)) from None
    assert isinstance(tree, exp.Select)
    for node in tree.walk():
        node.comments = None
    _inline_ctes(tree)
    _name_sources_apart(tree)
    for select in selects(tree):
        _move_conditions(select)
    return tree, outputs


def _one_line(error: Exception) -> str:
    """The error without terminal colours and line breaks."""
    text = getattr(error, "errors", None)
    if text and isinstance(text[0], dict):
        first = text[0]
        return f"line {first.get('line')}, column {first.get('col')}: {first.get('description')}"
    return " ".join(str(error).split())


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
    if isinstance(node, exp.SetOperation | exp.Lateral | exp.Pivot | exp.TableSample | exp.Values):
        yield node.key.upper()
    elif isinstance(node, exp.Rollup | exp.Cube | exp.GroupingSets):
        yield f"GROUP BY {node.sql(DIALECT).partition('(')[0].strip()}"
    elif isinstance(node, exp.Window):
        yield "a window function (OVER)"
    elif isinstance(node, exp.Filter):
        yield "FILTER after an aggregate"
    elif isinstance(node, exp.Placeholder | exp.Parameter):
        yield "a parameter"
    elif isinstance(node, exp.Select):
        yield from (
            f"{name.strip('_').upper()} in a SELECT" for name in node.args if node.args[name] and name not in CLAUSES
        )
        if node.args.get("distinct") and node.args["distinct"].args.get("on"):
            yield "DISTINCT ON"
    elif isinstance(node, exp.With) and node.args.get("recursive"):
        yield "WITH RECURSIVE"
    elif isinstance(node, exp.Group):
        yield from (f"GROUP BY {name.upper()}" for name in node.args if name != "expressions" and node.args[name])
    elif isinstance(node, exp.Join):
        yield from _unsupported_join(node)
    elif isinstance(node, exp.Table) and not isinstance(node.this, exp.Identifier):
        yield f"a table function ({node.this.sql(DIALECT)})"
    elif isinstance(node, exp.Func):
        name = node.sql(DIALECT).partition("(")[0].lower()
        if name in _aggregate_names() and not isinstance(node, AGGREGATES):
            yield f"the aggregate {name}"
        elif isinstance(node, exp.Sum | exp.Avg) and isinstance(node.this, exp.Distinct):
            yield f"{name}(DISTINCT …)"
        elif isinstance(node, exp.Count) and isinstance(node.this, exp.Distinct) and len(node.this.expressions) != 1:
            yield "count(DISTINCT …) of several columns"


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
        raise InvalidQuery(_one_line(error).partition(" LINE 1:")[0]) from None
    outputs = tuple((str(name), "" if type_ == UNTYPED else str(type_)) for name, type_, *_ in rows)
    if len({name.lower() for name, _ in outputs}) < len(outputs):
        raise InvalidQuery("two output columns have the same name; give one another name with AS")
    return outputs


# ---- one shape for all queries ---------------------------------------------------------------


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


def _add_common_conditions(select: exp.Select) -> None:
    """Add `a` beside `(a AND b) OR (a AND c)`: it may be the condition of a join."""
    for condition in conjuncts(select):
        if isinstance(condition, exp.Or):
            first, *others = [conjuncts_of(branch) for branch in condition.flatten()]
            add_conjuncts(select, [one for one in first if all(one in other for other in others)])


def _move_conditions(select: exp.Select) -> None:
    for join in select.args.get("joins") or ():
        if join.side:
            continue
        on = join.args.get("on")
        if on is not None:
            on.pop()
            add_conjuncts(select, conjuncts_of(on))
        join.set("kind", "CROSS")
    _add_common_conditions(select)
    for exists in select.find_all(exp.Exists):
        inner = exists.this
        if isinstance(inner, exp.Select) and not inner.args.get("group") and not inner.find(exp.AggFunc):
            inner.set("expressions", [exp.alias_(exp.Literal.number(1), "found", quoted=True)])
