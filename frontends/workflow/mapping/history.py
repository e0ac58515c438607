"""What earlier runs of workflows have shown, in a file: the sizes of relations, and how long jobs took (§3.5.1).

What is written survives the process however that ends (write-ahead log). Several processes may use the file at once.
It keeps the newest `RELATIONS_MAX` relations and `RUNS_MAX` runs. A file that cannot be used is an error that names it,
and is never changed.
"""

from __future__ import annotations

import json
import math
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from frontends.workflow.ir.dag import Dag
from frontends.workflow.ir.fingerprints import fingerprints, operator_fingerprints
from frontends.workflow.mapping.costs import JobRun, Runs
from frontends.workflow.mapping.sizes import TableSize
from sparrow_py.errors import InvalidOption

FIELD = "history"
"""What errors call the file."""
LOCK_TIMEOUT_S = 5.0
"""For which another process's lock is waited for."""
RELATIONS_MAX = 100_000
"""Relations whose sizes are kept."""
RUNS_MAX = 20_000
"""Runs of jobs that are kept; of the same job on the same engine the last one."""
APPLICATION_ID = 0x53505746
"""By which SQLite's files say whose they are."""
VERSION = 1
_ASKED_AT_ONCE = 500
"""Fingerprints in a query; SQLite has a limit."""

_CREATE = (
    """CREATE TABLE relations (
        rows_of TEXT PRIMARY KEY,  -- fingerprint of the rows
        columns_of TEXT NOT NULL,  -- and of rows and columns: the bytes are of these
        row_count INTEGER NOT NULL, byte_count INTEGER, turn INTEGER NOT NULL
    ) WITHOUT ROWID""",
    """CREATE TABLE runs (
        found_by TEXT NOT NULL,  -- fingerprint of one of the job's operators
        operators TEXT NOT NULL,  -- JSON: the fingerprints of all
        engine TEXT NOT NULL, seconds REAL NOT NULL, cpu_seconds REAL NOT NULL, bytes_in REAL NOT NULL,
        turn INTEGER NOT NULL, PRIMARY KEY (found_by, operators, engine)
    ) WITHOUT ROWID""",
    "CREATE INDEX relations_by_turn ON relations (turn)",
    "CREATE INDEX runs_by_turn ON runs (turn)",
)
_WRITE_RELATION = """INSERT INTO relations VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET
    columns_of = excluded.columns_of, row_count = excluded.row_count, byte_count = excluded.byte_count,
    turn = excluded.turn"""
_WRITE_RUN = """INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET
    seconds = excluded.seconds, cpu_seconds = excluded.cpu_seconds, bytes_in = excluded.bytes_in,
    turn = excluded.turn"""


class _DamagedRowError(ValueError):
    """A row has what nobody writes."""


class History:
    """The file, open; of one thread at a time. `InvalidOption` if it cannot be used, also later."""

    def __init__(
        self, path: str, *, relations_max: int = RELATIONS_MAX, runs_max: int = RUNS_MAX,
        lock_timeout_s: float = LOCK_TIMEOUT_S,
    ) -> None:  # fmt: skip
        self.path = path
        self._most = {"relations": relations_max, "runs": runs_max}
        with self._errors_named():
            # By SQLite alone, a file that cannot be made and one that is no file would have the same error.
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640))
            self._database = sqlite3.connect(
                path, timeout=lock_timeout_s, isolation_level=None, check_same_thread=False
            )
        try:
            with self._errors_named():
                self._begin()
        except BaseException:
            self._database.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._database.close()

    # ---- what happened -----------------------------------------------------------------------

    def add_sizes(self, dag: Dag, sizes: Mapping[str, TableSize]) -> None:
        """Relations of the DAG had these sizes. All are written, or none."""
        found = fingerprints(dag)
        rows = [(found[name].rows, found[name].table, size.rows, size.bytes) for name, size in sizes.items()]
        self._add("relations", _WRITE_RELATION, rows)

    def add_run(self, dag: Dag, operators: Iterable[str], engine: str, run: JobRun) -> None:
        """A job of these operators of the DAG ran on the engine."""
        found_by, text = _job_key(operator_fingerprints(dag), operators)
        self._add("runs", _WRITE_RUN, [(found_by, text, engine, run.seconds, run.cpu_seconds, run.bytes_in)])

    def clear(self) -> None:
        """Forget everything."""
        with self._errors_named(), self._transaction():
            self._database.execute("DELETE FROM relations")
            self._database.execute("DELETE FROM runs")

    # ---- what is known -----------------------------------------------------------------------

    def known_sizes(self, dag: Dag) -> dict[str, TableSize]:
        """The sizes of those relations of the DAG that are known, without their bytes if they had other columns."""
        found = fingerprints(dag)
        names: dict[str, list[str]] = {}
        for name, one in found.items():
            names.setdefault(one.rows, []).append(name)
        sizes: dict[str, TableSize] = {}
        query = "SELECT rows_of, columns_of, row_count, byte_count FROM relations WHERE rows_of IN"
        with self._errors_named():
            for rows_of, columns_of, row_count, byte_count in self._asked(query, names):
                if not _is_count(row_count) or not (byte_count is None or _is_count(byte_count)):
                    raise _DamagedRowError(f"a relation of {row_count!r} rows and {byte_count!r} bytes")
                for name in names[rows_of]:
                    same = found[name].table == columns_of
                    sizes[name] = TableSize(row_count, byte_count if same else None)
        return {name: sizes[name] for name in dag.names if name in sizes}

    def known_rows(self, dag: Dag) -> dict[str, float]:
        """How many rows those relations of the DAG had that are known: for rewrites that go by history."""
        return {name: float(size.rows) for name, size in self.known_sizes(dag).items()}

    def runs(self, dag: Dag) -> Runs:
        """The last run, on each engine, of jobs that the DAG may be divided into."""
        names: dict[str, list[str]] = {}
        for name, one in operator_fingerprints(dag).items():
            names.setdefault(one, []).append(name)
        found: dict[frozenset[str], dict[str, JobRun]] = {}
        query = "SELECT operators, engine, seconds, cpu_seconds, bytes_in FROM runs WHERE found_by IN"
        with self._errors_named():
            for operators, engine, *numbers in self._asked(query, names):
                if not all(isinstance(number, float) and 0 <= number < math.inf for number in numbers):
                    raise _DamagedRowError(f"a run of {numbers}")
                job = [names.get(one, []) for one in _operators(operators)]
                if all(len(one) == 1 for one in job):
                    found.setdefault(frozenset(one[0] for one in job), {})[str(engine)] = JobRun(*numbers)
        return found

    def counts(self) -> dict[str, int]:
        """How many relations and runs are kept."""
        with self._errors_named():
            return {
                table: self._database.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in self._most
            }

    # ---- the file ----------------------------------------------------------------------------

    def _begin(self) -> None:
        """Find out whether the file is ours and sound; make the tables in a new one."""
        database = self._database
        with self._transaction():
            (tables,) = database.execute("SELECT count(*) FROM sqlite_master").fetchone()
            (application,) = database.execute("PRAGMA application_id").fetchone()
            (version,) = database.execute("PRAGMA user_version").fetchone()
            if not (tables or application or version):
                for statement in _CREATE:
                    database.execute(statement)
                database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                database.execute(f"PRAGMA user_version = {VERSION}")
            elif application != APPLICATION_ID:
                raise InvalidOption(FIELD, self.path, "a history of workflows; this file is another program's")
            elif version != VERSION:
                raise InvalidOption(FIELD, self.path, f"a file of version {VERSION}; this one is of version {version}")
            (found,) = database.execute("PRAGMA quick_check(1)").fetchone()
            if found != "ok":
                raise _DamagedRowError(" ".join(found.split()))
        database.execute("PRAGMA journal_mode = WAL").fetchall()

    def _add(self, table: str, statement: str, rows: Iterable[tuple[object, ...]]) -> None:
        with self._errors_named(), self._transaction():
            (turn,) = self._database.execute(f"SELECT coalesce(max(turn), 0) + 1 FROM {table}").fetchone()
            self._database.executemany(statement, ((*row, turn + place) for place, row in enumerate(rows)))
            (count,) = self._database.execute(f"SELECT count(*) FROM {table}").fetchone()
            if count > self._most[table]:
                oldest = f"SELECT turn FROM {table} ORDER BY turn LIMIT ?"
                self._database.execute(f"DELETE FROM {table} WHERE turn IN ({oldest})", (count - self._most[table],))

    def _asked(self, query: str, keys: Iterable[str]) -> Iterator[tuple[Any, ...]]:
        """The rows for these keys."""
        listed = list(keys)
        for start in range(0, len(listed), _ASKED_AT_ONCE):
            some = listed[start : start + _ASKED_AT_ONCE]
            yield from self._database.execute(f"{query} ({', '.join('?' * len(some))})", some).fetchall()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._database.execute("COMMIT")
        except BaseException:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            raise

    @contextmanager
    def _errors_named(self) -> Iterator[None]:
        try:
            yield
        except (OSError, sqlite3.Error, _DamagedRowError) as error:
            raise InvalidOption(FIELD, self.path, self._allowed(error)) from None

    def _allowed(self, error: Exception) -> str:
        """What the file should be, and what is wrong with it."""
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return f"a file that no other program keeps locked ({error})"
        if isinstance(error, _DamagedRowError) or code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            name = Path(self.path).name
            return (
                f"a file that is not damaged ({error}). Move it away, with {name}-wal and {name}-shm if they are "
                "there: a new one is made"
            )
        reason = error.strerror if isinstance(error, OSError) else str(error)
        return f"a file that can be read and written, in a directory that is there and can be written ({reason})"


def _job_key(found: Mapping[str, str], operators: Iterable[str]) -> tuple[str, str]:
    """By which a job is found: one of its operators, and all of them."""
    listed = sorted(found[name] for name in operators)
    return listed[-1], json.dumps(listed)


def _operators(text: object) -> list[str]:
    try:
        found = json.loads(text) if isinstance(text, str) else None
    except json.JSONDecodeError:
        found = None
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise _DamagedRowError(f"a run of the operators {text!r}")
    return found


def _is_count(value: object) -> bool:
    return isinstance(value, int) and value >= 0
