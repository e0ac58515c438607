"""DuckDB as executors use it: one database in memory, in which a fragment is one SELECT and nothing else.

A fragment is SQL from a task's payload, which need not come from our compiler. Three things limit what it may do:

- Its tree, as DuckDB itself parses it, is one SELECT whose table functions are of `TABLE_FUNCTIONS`. Others read files,
  run SQL that stands in a text, or end other users' transactions (`force_checkpoint`).
- It runs in a read-only transaction, so that SELECTs that write (WITH … AS (INSERT …)) fail.
- The database may not reach files, networks or extensions, and its settings are locked.

Each data set has a database of its own, so that a fragment cannot name the tables of another.
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
"""Valid fragments that are remembered: all tasks of a stage have the same one."""
TABLE_FUNCTIONS = frozenset(("generate_series", "range", "unnest"))
"""Table functions that make rows from their arguments alone."""
QUERY_NODES = frozenset(("SELECT_NODE", "SET_OPERATION_NODE", "CTE_NODE", "RECURSIVE_CTE_NODE"))
"""DuckDB's names for queries that only read."""
NODE_SUFFIX = "_NODE"
CONFIG: dict[str, Any] = {
    "threads": "1",
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "allow_persistent_secrets": "false",
    "python_enable_replacements": "false",  # Names of tables must not refer to variables of this program.
    "temp_directory": "",  # A query that does not fit memory fails, rather than writing to files.
}


class QueryError(SparrowError):
    """A fragment may not be run, or DuckDB cannot run it; the message says why."""


class Engine:
    """A database. Thread-safe: each thread takes a cursor of its own."""

    def __init__(self) -> None:
        self._database = duckdb.connect(config=CONFIG)
        self._database.execute("ATTACH ':memory:' AS held (COMPRESS)")
        self._database.execute("SET enable_progress_bar = false")
        self._database.execute("SET lock_configuration = true")
        self._uncompressed = False

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """A new cursor for one fragment; `interrupt` on it ends the fragment from another thread."""
        return self._database.cursor()

    def add_schema(self, schema: str, tables: Mapping[str, pa.Table]) -> None:
        """Add a schema with these tables to the database."""
        with self._database.cursor() as cursor:
            cursor.execute("BEGIN")  # All tables are added, or none.
            cursor.execute(f'CREATE SCHEMA held."{schema}"')
            for name, table in tables.items():
                cursor.register("read", table)
                cursor.execute(f'CREATE TABLE held."{schema}"."{name}" AS SELECT * FROM read')
                cursor.unregister("read")
            cursor.execute("COMMIT")
        self._uncompressed = True
        self._compress()

    def _compress(self) -> None:
        """Compress the tables that are not compressed yet; while another thread uses the database, put it off."""
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
        DuckDB refuses it. The cursor must be new, and must not be used again."""
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


# ---- checks of fragments -----------------------------------------------------------------------


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
