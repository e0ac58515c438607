"""Constructs of SQL that no reader here supports, by the names that errors give them."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from sqlglot import exp

AGGREGATES = (exp.Sum, exp.Count, exp.Avg, exp.Min, exp.Max)
CLAUSES = frozenset(
    ("with_", "expressions", "distinct", "from_", "joins", "where", "group", "having", "order", "limit")
)
"""The clauses of a SELECT that every reader supports."""


def unsupported(
    node: exp.Expr, dialect: str, clauses: Collection[str] = CLAUSES, aggregates: Collection[str] = ()
) -> Iterator[str]:
    """The constructs at this node, not in those below it, that are not supported.

    clauses: of a SELECT that are supported. aggregates: names of functions that are aggregates, beside those that
    sqlglot knows.
    """
    if isinstance(node, exp.Lateral | exp.Pivot | exp.TableSample | exp.Values):
        yield node.key.upper()
    elif isinstance(node, exp.Rollup | exp.Cube | exp.GroupingSets):
        yield f"GROUP BY {node.sql(dialect).partition('(')[0].strip()}"
    elif isinstance(node, exp.Window):
        yield "a window function (OVER)"
    elif isinstance(node, exp.Columns):
        yield "COLUMNS (several columns by one expression)"
    elif isinstance(node, exp.Filter):
        yield "FILTER after an aggregate"
    elif isinstance(node, exp.Placeholder | exp.Parameter):
        yield "a parameter"
    elif isinstance(node, exp.Select):
        yield from (
            f"{name.strip('_').upper()} in a SELECT" for name in node.args if node.args[name] and name not in clauses
        )
        if node.args.get("distinct") and node.args["distinct"].args.get("on"):
            yield "DISTINCT ON"
    elif isinstance(node, exp.With) and node.args.get("recursive"):
        yield "WITH RECURSIVE"
    elif isinstance(node, exp.Group):
        yield from (f"GROUP BY {name.upper()}" for name in node.args if name != "expressions" and node.args[name])
    elif isinstance(node, exp.Table) and not isinstance(node.this, exp.Identifier):
        yield f"a table function ({node.this.sql(dialect)})"
    elif isinstance(node, exp.Func):
        yield from _unsupported_function(node, dialect, aggregates)


def _unsupported_function(node: exp.Func, dialect: str, aggregates: Collection[str]) -> Iterator[str]:
    if not isinstance(node, exp.AggFunc) and not aggregates:
        return
    name = (node.sql(dialect).partition("(")[0] if aggregates else node.sql_name()).lower()
    if (name in aggregates or isinstance(node, exp.AggFunc)) and not isinstance(node, AGGREGATES):
        yield f"the aggregate {name}"
    elif isinstance(node, exp.Sum | exp.Avg) and isinstance(node.this, exp.Distinct):
        yield f"{name}(DISTINCT …)"
    elif isinstance(node, exp.Count) and isinstance(node.this, exp.Distinct) and len(node.this.expressions) != 1:
        yield "count(DISTINCT …) of several columns"
