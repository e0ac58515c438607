"""DuckDB as executors use it: one database in memory, in which a fragment is one SELECT and nothing else.

A fragment is whatever a task's payload says, which need not be what our compiler makes. What it may do is bounded
three times:

- Its tree, as DuckDB itself parses it, is one SELECT whose table functions are of `TABLE_FUNCTIONS`. Others read files,
  run SQL that stands in a text, or end other users' transactions (`force_checkpoint`).
- It runs in a transaction that may not write: that DuckDB has SELECTs which write (WITH … AS (INSERT …)) is no matter.
- The database may not reach files, networks or extensions, and its settings are locked.

There is a database for each data set: what it has of others has no name in it.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import duckdb
import msgspec
import pyarrow as pa

from sparrow_py.errors import SparrowError

FRAGMENT_CHARS_MAX = 1 << 20
"""Characters of a fragment's SQL; our compiler's have thousands."""
RESULT_ROWS_MAX = 50_000_000
"""Rows of a fragment's result."""
CHECKED_MAX = 256
"""Fragments that are remembered to be in order: those of a stage differ only in their partitions."""
TABLE_FUNCTIONS = frozenset(("generate_series", "range", "unnest"))
"""Those that make rows of their arguments, and of nothing else."""
QUERY_NODES = frozenset(("SELECT_NODE", "SET_OPERATION_NODE", "CTE_NODE", "RECURSIVE_CTE_NODE"))
"""What DuckDB calls queries that only read."""
NODE_SUFFIX = "_NODE"
CONFIG: dict[str, Any] = {
    "threads": "1",
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "allow_persistent_secrets": "false",
    "python_enable_replacements": "false",  # No name of a table is one of this program's variables.
    "temp_directory": "",  # What does not fit memory fails, rather than being written to a file.
}


class QueryError(SparrowError):
    """A fragment could not be answered; DuckDB's reason."""


class Engine:
    """A database. Thread-safe: each thread takes a cursor of its own."""

    def __init__(self) -> None:
        self._database = duckdb.connect(config=CONFIG)
        self._database.execute("ATTACH ':memory:' AS held (COMPRESS)")
        self._database.execute("SET enable_progress_bar = false")
        self._database.execute("SET lock_configuration = true")
        self._uncompressed = False

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """To run a fragment with; `interrupt` on it ends the fragment from another thread."""
        return self._database.cursor()

    def hold(self, schema: str, tables: Mapping[str, pa.Table]) -> None:
        """Have a schema of these tables."""
        with self._database.cursor() as cursor:
            cursor.execute("BEGIN")  # All of it is held, or nothing.
            cursor.execute(f'CREATE SCHEMA held."{schema}"')
            for name, table in tables.items():
                cursor.register("read", table)
                cursor.execute(f'CREATE TABLE held."{schema}"."{name}" AS SELECT * FROM read')
                cursor.unregister("read")
            cursor.execute("COMMIT")
        self._uncompressed = True
        self._compress()

    def _compress(self) -> None:
        """Compress what has been loaded, unless another thread is at work: then later."""
        with self._database.cursor() as cursor:
            try:
                cursor.execute("CHECKPOINT held")
            except duckdb.TransactionException:
                return
            self._uncompressed = False

    def select(
        self, cursor: duckdb.DuckDBPyConnection, sql: str, schemas: Sequence[str], inputs: Mapping[str, pa.Table]
    ) -> pa.Table:
        """The result of a fragment over the tables of these schemas, and inputs; `QueryError` if it may not be run, or
        DuckDB refuses it. The cursor must be new, and of no use afterwards."""
        try:
            check_select(sql)
            for name, table in inputs.items():
                cursor.register(name, table)
            if schemas:
                path = ",".join(f'held."{schema}"' for schema in schemas)
                cursor.execute(f"SET search_path = '{path}'")
            cursor.execute("BEGIN TRANSACTION READ ONLY")
            result: Any = cursor.sql(sql)
            table = result.to_arrow_table()
            cursor.execute("ROLLBACK")
        except duckdb.Error as error:
            raise QueryError(" ".join(str(error).split())) from None
        if self._uncompressed:
            self._compress()
        if table.num_rows > RESULT_ROWS_MAX:
            raise QueryError(f"the fragment has {table.num_rows} rows; at most {RESULT_ROWS_MAX} are passed on")
        return table


# ---- what a fragment may be --------------------------------------------------------------------


@functools.cache
def _parser() -> duckdb.DuckDBPyConnection:
    return duckdb.connect(config=CONFIG)


@functools.lru_cache(CHECKED_MAX)
def check_select(sql: str) -> None:
    """`QueryError` unless the text is one SELECT that only reads tables; `duckdb.Error` if it cannot be parsed."""
    if len(sql) > FRAGMENT_CHARS_MAX:
        raise QueryError(f"the fragment has {len(sql)} characters; at most {FRAGMENT_CHARS_MAX} are allowed")
    with _parser().cursor() as cursor:
        row = cursor.execute("SELECT json_serialize_sql(?::VARCHAR)", [sql]).fetchone()
    assert row is not None
    parsed = msgspec.json.decode(row[0])
    if parsed["error"]:
        raise QueryError(f"a fragment must be one SELECT: {parsed.get('error_message')}")
    if len(parsed["statements"]) != 1:
        raise QueryError(f"a fragment must be one SELECT, and not {len(parsed['statements'])} statements")
    left: list[Any] = [parsed["statements"]]
    while left:
        node = left.pop()
        if isinstance(node, list):
            left += node
        elif isinstance(node, dict):
            _check_node(node)
            left += node.values()


def _check_node(node: dict[str, Any]) -> None:
    kind = node.get("type")
    if not isinstance(kind, str):
        return
    if kind.endswith(NODE_SUFFIX) and kind not in QUERY_NODES:
        raise QueryError(f"a fragment must be one SELECT, and may not have {kind.removesuffix(NODE_SUFFIX)} in it")
    if kind == "TABLE_FUNCTION":
        name = node["function"].get("function_name")
        if name not in TABLE_FUNCTIONS:
            raise QueryError(
                f"a fragment may not use the table function {name}; allowed: {', '.join(sorted(TABLE_FUNCTIONS))}"
            )
