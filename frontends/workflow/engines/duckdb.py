"""DuckDB: SQL in this process, in memory, on all cores; what is too large for memory goes to a temporary directory.

The code of a black box is a query in DuckDB's SQL over the relations that it reads.
"""

from __future__ import annotations

from typing import ClassVar

from sqlglot import exp

from frontends.workflow.engines.scripts import THREADS
from frontends.workflow.engines.sql import NAN_HIDDEN, SqlEngine
from frontends.workflow.engines.sql_queries import SqlQueries
from frontends.workflow.engines.sql_scalars import SqlScalars, call, string

DATABASE = '''\
class Database:
    """DuckDB, in memory."""

    def __init__(self) -> None:
        self.spill = tempfile.TemporaryDirectory(prefix="workflow-duckdb-")
        self.connection = duckdb.connect(config={"threads": THREADS, "temp_directory": self.spill.name})

    def __enter__(self) -> "Database":
        return self

    def __exit__(self, *error: object) -> None:
        self.connection.close()
        self.spill.cleanup()

    def view(self, name: str, query: str) -> None:
        self.connection.execute(f"CREATE OR REPLACE TEMP VIEW {name} AS {query}")

    def table(self, name: str, query: str) -> None:
        self.connection.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS {query}")

    def rename(self, name: str, new_name: str) -> None:
        self.connection.execute(f"DROP TABLE {new_name}")
        self.connection.execute(f"ALTER TABLE {name} RENAME TO {new_name}")

    def scan(self, path: str, columns: dict[str, str]) -> str:
        return f"SELECT {scanned(path, columns)} FROM read_parquet({quoted(path)})"

    def any_row(self, query: str) -> bool:
        return self.connection.execute(query).fetchone() is not None

    def write(self, query: str, path: str) -> None:
        partial = f"{path}.partial"
        self.connection.execute(f"COPY ({query}) TO {quoted(partial)} (FORMAT parquet)")
        os.replace(partial, path)
'''
QUOTED = """\
def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
"""


class _Scalars(SqlScalars):
    def matches(self, value: exp.Expr, pattern: str) -> exp.Expr:
        return call("REGEXP_FULL_MATCH", value, string(pattern[1:-1]))


class DuckDb(SqlEngine):
    """DuckDB."""

    name = "duckdb"
    packages = ("duckdb",)
    dialect = "duckdb"
    evaluates_once = True
    queries: ClassVar[SqlQueries] = SqlQueries(_Scalars(), "duckdb")
    standard = ("os", "tempfile")
    imports = ("import duckdb", "import pyarrow as pa", "import pyarrow.parquet as pq")
    definitions = (THREADS, QUOTED, NAN_HIDDEN, DATABASE)


ENGINE = DuckDb()
