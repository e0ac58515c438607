"""A fragment in an executor, whatever its payload: it reads the tables of its own data set, and changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from frontends.sql import engine as module
from frontends.sql.engine import FRAGMENT_CHARS_MAX, Engine, QueryError, check_select
from tests.support.suites import rest_after

WRITES_IN_A_SELECT = 'WITH x AS (INSERT INTO held."0".t VALUES (4) RETURNING a) SELECT * FROM x'
FORGED = [
    'UPDATE held."0".t SET a = 0',
    "DELETE FROM t",
    'DROP TABLE held."0".t',
    'DROP SCHEMA held."0" CASCADE',
    "INSERT INTO t VALUES (4)",
    WRITES_IN_A_SELECT,
    "MERGE INTO t USING t AS u ON t.a = u.a WHEN MATCHED THEN DELETE",
    "ALTER TABLE t ADD COLUMN b INTEGER",
    "COMMENT ON TABLE t IS 'x'",
    "TRUNCATE t",
    "CREATE TEMP TABLE x AS SELECT 1",
    "CREATE MACRO f(a) AS a",
    "CREATE VIEW v AS SELECT 1",
    "SELECT 1; DROP TABLE t",
    "SELECT 1; SELECT 2",
    "; DROP TABLE t",
    "",
    "-- nothing",
    "SET threads = 8",
    "SET GLOBAL memory_limit = '1KB'",
    "SET VARIABLE x = 1",
    "RESET search_path",
    "PRAGMA memory_limit = '1KB'",
    "USE memory",
    "DETACH held",
    "ATTACH ':memory:' AS more",
    "ATTACH '{dir}/more.db' AS more",
    "LOAD json",
    "INSTALL httpfs",
    "COPY t TO '{dir}/out.csv'",
    "COPY t FROM '{dir}/in.csv'",
    "EXPORT DATABASE '{dir}/out'",
    "IMPORT DATABASE '{dir}/out'",
    "CHECKPOINT held",
    "FORCE CHECKPOINT held",
    "CALL force_checkpoint('held')",
    "SELECT * FROM force_checkpoint('held')",
    "VACUUM",
    "PREPARE p AS SELECT 1",
    "EXECUTE p",
    "BEGIN",
    "COMMIT",
    "ROLLBACK",
    "EXPLAIN ANALYZE DELETE FROM t",
    "SELECT * FROM '{dir}/in.csv'",
    "SELECT * FROM read_csv('{dir}/in.csv')",
    "SELECT * FROM read_text('{dir}/in.csv')",
    "SELECT * FROM read_blob('{dir}/*')",
    "SELECT * FROM parquet_metadata('{dir}/in.parquet')",
    "SELECT * FROM glob('{dir}/*')",
    "SELECT (SELECT max(content) FROM read_text('{dir}/in.csv')) FROM t",
    "WITH x AS (SELECT * FROM read_text('{dir}/in.csv')) SELECT * FROM x",
    "SELECT 1 WHERE EXISTS (FROM read_text('{dir}/in.csv'))",
    "SELECT * FROM query('SELECT 1')",
    "SELECT * FROM query_table('t')",
    "SELECT * FROM duckdb_settings()",
    "SELECT * FROM enable_logging()",
    "SELECT * FROM rows_of_this_program",
]


def rows() -> dict[str, pa.Table]:
    """A table, made when a test asks: the first one that a process makes takes a third of a second."""
    return {"t": pa.table({"a": [1, 2, 3]})}


@pytest.fixture(scope="module")
def engine() -> Engine:
    """An engine for all tests, since no fragment may change it."""
    engine = Engine()
    engine.add_schema("0", rows())
    return engine


def ask(engine: Engine, sql: str, schemas: tuple[str, ...] = ("0",)) -> list[dict[str, Any]]:
    with engine.cursor() as cursor:
        rows: list[dict[str, Any]] = engine.select(cursor, sql, schemas, {}).to_pylist()
    return rows


def state(engine: Engine) -> list[Any]:
    """The database's content and settings."""
    with engine.cursor() as cursor:
        texts = (
            'SELECT * FROM held."0".t',
            "SELECT schema_name, table_name, comment FROM duckdb_tables()",
            "SELECT name, value FROM duckdb_settings() WHERE name <> 'search_path'",
            "SELECT database_name FROM duckdb_databases()",
            "SELECT function_name FROM duckdb_functions() WHERE NOT internal",
        )
        return [sorted(map(str, cursor.execute(text).fetchall())) for text in texts]


@pytest.mark.parametrize("sql", rest_after(25, *FORGED))
def test_a_fragment_is_one_select_that_reads_tables(engine: Engine, sql: str, tmp_path: Path) -> None:
    rows_of_this_program = rows()["t"]
    (tmp_path / "in.csv").write_text("a\n7\n")
    before = state(engine)
    with pytest.raises(QueryError):
        ask(engine, sql.replace("{dir}", str(tmp_path)))
    assert state(engine) == before and rows_of_this_program.num_rows == 3
    assert [path.name for path in tmp_path.iterdir()] == ["in.csv"]
    assert ask(engine, "SELECT sum(a)::INT AS s FROM t") == [{"s": 6}]


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        (WRITES_IN_A_SELECT, "read-only mode"),
        ('DELETE FROM held."0".t', "read-only mode"),
        ('DROP TABLE held."0".t', "read-only mode"),
        ("SET threads = 8", "configuration has been locked"),
        ("SET lock_configuration = false", "configuration has been locked"),
        ("SELECT * FROM enable_logging()", "configuration has been locked"),
        ("SELECT * FROM read_text('/etc/passwd')", "file system operations are disabled"),
        ("COPY (SELECT 1) TO '{dir}/out.csv'", "file system operations are disabled"),
        ("ATTACH '{dir}/more.db' AS more", "file system operations are disabled"),
        ("INSTALL httpfs", "file system operations are disabled"),
    ],
)
def test_the_transaction_and_the_settings_stop_what_the_parser_lets_pass(
    engine: Engine, sql: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "check_select", lambda _: None)
    before = state(engine)
    with pytest.raises(QueryError, match=why):
        ask(engine, sql.replace("{dir}", str(tmp_path)))
    assert state(engine) == before and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT a FROM t WHERE a IN (SELECT max(a) FROM t) ORDER BY 1 LIMIT 3",
        "WITH x AS (SELECT a FROM t) SELECT count(*) FROM x, (SELECT 1 AS b) AS y WHERE a = b",
        "SELECT a FROM t UNION ALL SELECT a + 1 FROM t",
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 5) SELECT sum(n) FROM r",
        "SELECT sum(range) FROM range(10)",
        "SELECT unnest([1, 2])",
        "VALUES (1)",
        "FROM t;",
        "SELECT CAST('1' AS DECIMAL(10, 2)), struct_pack(type := 'CATALOG_NODE'), 'DROP TABLE t; READ_TEXT(x)'",
    ],
)
def test_fragments_that_only_read_are_run(engine: Engine, sql: str) -> None:
    assert ask(engine, sql)


def test_a_fragment_cannot_name_tables_of_another_database(engine: Engine) -> None:
    other = Engine()
    other.add_schema("1", {"secret": pa.table({"a": [1]})})
    for name in ("secret", 'held."1".secret', 'memory."1".secret', '"1".secret'):
        with pytest.raises(QueryError, match="does not exist"):
            ask(engine, f"SELECT * FROM {name}")
    assert ask(other, "SELECT * FROM secret", ("1",)) == [{"a": 1}]


def test_inputs_of_one_fragment_are_not_seen_by_another(engine: Engine) -> None:
    with engine.cursor() as cursor, engine.cursor() as other:
        engine.select(cursor, 'SELECT * FROM "stage a"', (), {"stage a": rows()["t"]})
        with pytest.raises(QueryError, match="does not exist"):
            engine.select(other, 'SELECT * FROM "stage a"', (), {})


def test_the_error_of_a_fragment_is_one_line(engine: Engine) -> None:
    for sql, why in (
        ("DELETE FROM t", "a fragment must be one SELECT: Only SELECT statements"),
        ("SELECT 1; SELECT 2", "one SELECT, and not 2 statements"),
        (WRITES_IN_A_SELECT, "may not have INSERT_QUERY in it"),
        ("FROM glob('/*')", "table function glob; allowed: generate_series, range, unnest"),
        ("SELECT " + "1" * FRAGMENT_CHARS_MAX, "characters; at most 1048576 are allowed"),
    ):
        with pytest.raises(QueryError, match=why) as raised:
            ask(engine, sql)
        assert "\n" not in str(raised.value)


def test_a_fragment_is_parsed_once_for_all_partitions() -> None:
    check_select.cache_clear()
    for _ in range(5):
        check_select("SELECT 12345")
    assert check_select.cache_info().misses == 1


def test_loading_goes_on_beside_fragments() -> None:
    """Compression needs a moment without fragments; if there is none, a later fragment compresses."""
    engine = Engine()
    engine.add_schema("0", rows())
    with engine.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute('SELECT * FROM held."0".t')
        engine.add_schema("1", rows())
        cursor.execute("ROLLBACK")
    assert ask(engine, "SELECT count(*) AS n FROM t", ("1",)) == [{"n": 3}]
