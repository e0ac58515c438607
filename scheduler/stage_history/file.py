"""The file itself, which blocks: a row for each stage, and for what its runs have shown.

What is written survives the process however that ends (write-ahead log). Several schedulers may have the same file:
each adds what it has seen to what is there. A file that cannot be used is refused when it is opened, with what to do,
and never changed or moved away: it may be worth mending, or be another program's.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable
from pathlib import Path

import msgspec
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_random

from scheduler.altruistic.durations import DURATION_S_MAX, DURATION_S_MIN
from scheduler.altruistic.known_stages import STAGES_MAX, STAGES_PER_USER_MAX, StageKey
from scheduler.altruistic.runs import AMOUNT_MAX, DURATION, RESOURCES_MAX, SAMPLES_MAX, Figure, Figures, followed
from sparrow_py.errors import InvalidOption

FIELD = "stage_history"
"""The option that names the file."""
LOCK_TIMEOUT_S = 2.0
"""For which another program's lock is waited for."""
APPLICATION_ID = 0x53505348
"""By which SQLite's files say whose they are."""
VERSION = 1
"""Of what is in the file."""

_BEGIN = "BEGIN IMMEDIATE"
_CREATE = """CREATE TABLE stages (
    user TEXT NOT NULL, app TEXT NOT NULL, job TEXT NOT NULL, stage TEXT NOT NULL,
    figures TEXT NOT NULL,  -- JSON: by name, in how many runs it was measured, and the figure
    turn INTEGER NOT NULL,  -- the higher, the later the stage has run
    PRIMARY KEY (user, app, job, stage)
)"""
_READ = "SELECT figures FROM stages WHERE user = ? AND app = ? AND job = ? AND stage = ?"
_READ_ALL = "SELECT user, app, job, stage, figures FROM stages ORDER BY turn DESC, rowid DESC LIMIT ?"
_NEXT_TURN = "SELECT coalesce(max(turn), 0) + 1 FROM stages"
_WRITE = """INSERT INTO stages VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT DO UPDATE SET figures = excluded.figures, turn = excluded.turn"""
_FORGET = """DELETE FROM stages WHERE rowid IN (
    SELECT id FROM (
        SELECT rowid AS id, row_number() OVER (PARTITION BY user ORDER BY turn DESC, rowid DESC) AS place FROM stages
    ) WHERE place > :per_user
    UNION ALL
    SELECT id FROM (
        SELECT rowid AS id, turn, row_number() OVER (PARTITION BY user ORDER BY turn DESC, rowid DESC) AS place
        FROM stages ORDER BY place, turn DESC, rowid DESC LIMIT -1 OFFSET :most
    )
)"""
"""What `KnownStages` forgets: of each user beyond so many, then of those who have most, those that ran first."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, Figure]).decode


class DamagedFileError(ValueError):
    """A row has what no scheduler writes."""


class StageHistoryFile:
    """The file, open; of one thread at a time. `InvalidOption` if it cannot be used."""

    def __init__(
        self, path: str, stages_max: int = STAGES_MAX, per_user_max: int = STAGES_PER_USER_MAX,
        lock_timeout_s: float = LOCK_TIMEOUT_S,
    ) -> None:  # fmt: skip
        self.path = path
        self._stages_max = stages_max
        self._per_user_max = per_user_max
        self._lock_timeout_s = lock_timeout_s
        try:
            # By SQLite alone, a file that cannot be made and one that is no file would have the same error.
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640))
            self._database = sqlite3.connect(
                path, timeout=lock_timeout_s, isolation_level=None, check_same_thread=False
            )
        except (OSError, sqlite3.Error) as error:
            raise self._unusable(error) from None
        try:
            self._begin()
        except BaseException as error:
            self._database.close()
            if isinstance(error, sqlite3.Error | DamagedFileError):
                raise self._unusable(error) from None
            raise

    def _begin(self) -> None:
        """Find out whether the file is ours, sound and to be written; make the table in a new one."""
        database = self._database
        database.execute(_BEGIN)
        (tables,) = database.execute("SELECT count(*) FROM sqlite_master").fetchone()
        (application,) = database.execute("PRAGMA application_id").fetchone()
        (version,) = database.execute("PRAGMA user_version").fetchone()
        if not (tables or application or version):
            database.execute(_CREATE)
            database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            database.execute(f"PRAGMA user_version = {VERSION}")
        elif application != APPLICATION_ID:
            raise InvalidOption(FIELD, self.path, "a file that a scheduler made; this one is another program's")
        elif version != VERSION:
            allowed = f"a file of version {VERSION}; this one is of version {version}, of another scheduler's"
            raise InvalidOption(FIELD, self.path, allowed)
        (found,) = database.execute("PRAGMA quick_check(1)").fetchone()
        if found != "ok":
            raise DamagedFileError(" ".join(found.split()))
        database.execute("COMMIT")
        self._use_wal()

    def _use_wal(self) -> None:
        """Have a write-ahead log. SQLite waits for no lock here: schedulers that find the file new at the same time
        would refuse it."""
        for attempt in Retrying(
            stop=stop_after_delay(self._lock_timeout_s),
            wait=wait_random(0.001, 0.01),
            retry=retry_if_exception_type(sqlite3.OperationalError),
            reraise=True,
        ):
            with attempt:
                self._database.execute("PRAGMA journal_mode = WAL").fetchall()

    def _unusable(self, error: Exception) -> InvalidOption:
        """What is wrong with the file, and what to do."""
        if isinstance(error, OSError):
            reason = error.strerror
        elif is_locked(error):
            return InvalidOption(FIELD, self.path, f"a file that no other program keeps locked ({error})")
        elif is_damaged(error):
            name = Path(self.path).name
            return InvalidOption(
                FIELD, self.path,
                f"a file that is not damaged ({error}). Move it away, with {name}-wal and {name}-shm if they are "
                "there: a new one is made",
            )  # fmt: skip
        else:
            reason = str(error)
        allowed = f"a file that can be read and written, in a directory that is there and can be written ({reason})"
        return InvalidOption(FIELD, self.path, allowed)

    def read(self) -> list[tuple[StageKey, Figures]]:
        """All stages, those that ran last coming last; `InvalidOption` if a row cannot be."""
        try:
            rows = self._database.execute(_READ_ALL, (self._stages_max,)).fetchall()
            return [(_key(key), _figures(figures)) for *key, figures in reversed(rows)]
        except (sqlite3.Error, DamagedFileError) as error:
            raise self._unusable(error) from None

    def add(self, news: Iterable[tuple[StageKey, Figures]]) -> None:
        """Stages have run, and have shown this: all of it is written, or nothing and `sqlite3.Error` or
        `DamagedFileError` raised."""
        database = self._database
        database.execute(_BEGIN)
        try:
            (turn,) = database.execute(_NEXT_TURN).fetchone()
            is_new = False
            for key, later in news:  # The order in which stages ran, of each user.
                row = database.execute(_READ, key).fetchone()
                is_new = is_new or row is None
                figures = later if row is None else followed(_figures(row[0]), later)
                database.execute(_WRITE, (*key, _encode(figures).decode(), turn))
                turn += 1
            if is_new:
                database.execute(_FORGET, {"per_user": self._per_user_max, "most": self._stages_max})
            database.execute("COMMIT")
        except BaseException:
            if database.in_transaction:
                database.execute("ROLLBACK")
            raise

    def close(self) -> None:
        """Nothing is waited for."""
        self._database.close()


def is_locked(error: Exception) -> bool:
    """Whether another program has locked the file, for now."""
    return _code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def is_damaged(error: Exception) -> bool:
    """Whether what is in the file cannot be."""
    return isinstance(error, DamagedFileError) or _code(error) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _code(error: Exception) -> int:
    """SQLite's, without what it says besides."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _key(names: list[object]) -> StageKey:
    if not all(isinstance(name, str) for name in names):
        raise DamagedFileError(f"a stage is called {names}")
    return StageKey(*map(str, names))


def _figures(text: object) -> Figures:
    """`DamagedFileError` if no scheduler has written them."""
    try:
        figures = _decode(text) if isinstance(text, str) else {}
    except msgspec.MsgspecError as error:
        raise DamagedFileError(f"figures of a stage: {error}") from None
    duration_s = figures.get(DURATION)
    if duration_s is None or not DURATION_S_MIN <= duration_s.value <= DURATION_S_MAX:
        raise DamagedFileError(f"{DURATION} of a stage: {duration_s}")
    for name, (samples, value) in figures.items():
        if not 1 <= samples <= SAMPLES_MAX or not 0 <= value <= AMOUNT_MAX:
            raise DamagedFileError(f"{name} of a stage: {value}, of {samples} runs")
    if len(figures) > RESOURCES_MAX + 1:
        raise DamagedFileError(f"a stage has {len(figures)} figures")
    return figures
