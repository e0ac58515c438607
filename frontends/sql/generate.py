"""Makes a TPC-H dataset: generates the base tables, joins, partitions, describes."""

from __future__ import annotations

import contextlib
import math
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb

from frontends.sql.dataset import FORMAT, NAME, PARTITIONS_MAX, Dataset, Manifest, write_manifest
from frontends.sql.errors import DoesNotFit, ExtraMissing
from frontends.sql.tpch import BASE_TABLES, DENORM, LINEITEM, ORDERS, PARTITIONS, REPLICATED, TABLES, denorm_select
from sparrow_py.errors import InvalidRequest, SparrowError
from sparrow_py.job import check_whole

SCALE_MIN, SCALE_MAX = 0.01, 1000.0
"""Below, TPC-H has so few suppliers that its pairs of part and supplier are no key any more."""
DISK_BYTES_PER_SCALE = 2_300_000_000
"""On disk while a dataset of scale factor 1 is made: base tables, the joined table, and the dataset itself."""
HELD_BYTES_PER_SCALE = 900_000_000
"""In memory, for one copy of all partitions of scale factor 1."""
WHOLE_BYTES_PER_SCALE = 250_000_000
"""In memory, for the tables that every node holds whole."""
BUILD_BYTES = 500_000_000
"""In memory while a dataset is made, at least; it takes up to half of what is available, and the rest goes to disk."""
GENERATOR = "tpchgen-cli"


def generate(
    directory: str | Path,
    scale: float,
    *,
    name: str = "tpch",
    partitions: int = PARTITIONS,
    threads: int | None = None,
    say: Callable[[str], object] = lambda _: None,
) -> Dataset:
    """Make a dataset in a directory that is empty or not there.

    scale: TPC-H's scale factor; 1 is 6 million items. `DoesNotFit` if disk or memory are too small for it.
    say: called with a text at each step.
    """
    target = Path(directory).absolute()
    _check_arguments(target, scale, name, partitions)
    check_fits(target, scale)
    target.mkdir(parents=True, exist_ok=True)
    with _emptied_on_failure(target), tempfile.TemporaryDirectory(prefix=".making-", dir=target) as scratch:
        say(f"generating the base tables at scale factor {scale:g}")
        generate_base_tables(Path(scratch), scale)
        manifest = _build(target, Path(scratch), scale, name, partitions, threads or os.cpu_count() or 1, say)
        write_manifest(target, manifest)
    return Dataset(target)


def _check_arguments(target: Path, scale: float, name: str, partitions: int) -> None:
    if not isinstance(scale, int | float) or not SCALE_MIN <= scale <= SCALE_MAX:
        raise InvalidRequest("scale", scale, f"a number from {SCALE_MIN:g} to {SCALE_MAX:g}")
    if not NAME.fullmatch(name):
        raise InvalidRequest("name", name, f"a name that matches {NAME.pattern}")
    check_whole("partitions", partitions, 1, PARTITIONS_MAX)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise InvalidRequest("dir", str(target), "a directory that is empty or not there")


@contextlib.contextmanager
def _emptied_on_failure(target: Path) -> Iterator[None]:
    """Empty the directory if the `with` block fails."""
    try:
        yield
    except BaseException:
        for path in target.iterdir():
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
        raise


# ---- memory and disk ---------------------------------------------------------------------------


def check_fits(target: Path, scale: float) -> None:
    """Raise `DoesNotFit`, with the numbers, if this machine has too little disk or memory for the scale factor."""
    home = next(parent for parent in (target, *target.parents) if parent.exists())
    needed, free = math.ceil(DISK_BYTES_PER_SCALE * scale), shutil.disk_usage(home).free
    if needed > free:
        raise _does_not_fit(scale, needed, "on disk while it is made", free, f"are free at {home}")
    needed = math.ceil((HELD_BYTES_PER_SCALE + WHOLE_BYTES_PER_SCALE) * scale) + BUILD_BYTES
    available = memory_available_bytes()
    if needed > available:
        raise _does_not_fit(scale, needed, "of memory for one copy", available, "are available")


def _does_not_fit(scale: float, needed: int, what: str, there: int, where: str) -> DoesNotFit:
    message = (
        f"scale: {scale:g} does not fit: it needs about {gigabytes(needed)} {what}, and {gigabytes(there)} {where}"
    )
    return DoesNotFit("scale", scale, "", message)


def gigabytes(count: int) -> str:
    """A number of bytes for people."""
    return f"{count / 1e9:.2f} GB"


def memory_available_bytes() -> int:
    """The memory that is still available to programs on this machine, or in this process's control group."""
    available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        available = 1024 * int(next(line for line in lines if line.startswith("MemAvailable:")).split()[1])
    with contextlib.suppress(OSError, ValueError):
        group = Path("/sys/fs/cgroup")
        limit = int((group / "memory.max").read_text())
        available = min(available, limit - int((group / "memory.current").read_text()))
    return available


# ---- making it ---------------------------------------------------------------------------------


def generate_base_tables(scratch: Path, scale: float) -> None:
    """Write the base tables of TPC-H into a directory, each a Parquet file; `ExtraMissing` without the generator."""
    beside = Path(sys.executable).parent / GENERATOR
    program = str(beside) if beside.exists() else shutil.which(GENERATOR)
    if program is None:
        raise ExtraMissing(GENERATOR)
    command = [program, "parquet", "-s", f"{scale:g}", "--output-dir", str(scratch)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if ended.returncode:
        raise SparrowError(f"{GENERATOR} ended with code {ended.returncode}: {' '.join(ended.stderr.split())[-500:]}")


def _build(
    target: Path, scratch: Path, scale: float, name: str, partitions: int, threads: int, say: Callable[[str], object]
) -> Manifest:
    connection = duckdb.connect(str(scratch / "build.db"))
    try:
        memory = max(BUILD_BYTES, memory_available_bytes() // 2)
        connection.execute(f"SET threads = {threads}; SET memory_limit = '{memory}B'")
        connection.execute("SET preserve_insertion_order = false")
        for table in BASE_TABLES:
            columns = ", ".join(
                f"CAST({column} AS {type_}) AS {column}" for column, type_ in BASE_TABLES[table].items()
            )
            connection.execute(f"CREATE VIEW {table} AS SELECT {columns} FROM '{scratch / table}.parquet'")
        partition_rows = {}
        for table, select, key in (
            (DENORM, denorm_select(), "l_orderkey"),
            (ORDERS, "SELECT * FROM orders", "o_orderkey"),
        ):
            say(f"partitioning {table}")
            partition_rows[table] = _write_partitions(connection, target, table, select, key, partitions)
        for table in REPLICATED:
            connection.execute(f"COPY {table} TO '{target / table}.parquet' (FORMAT parquet)")
        say("counting")
        return Manifest(
            FORMAT,
            name,
            secrets.token_hex(4),
            scale,
            partitions,
            _row_counts(connection, target),
            partition_rows,
            _distinct_counts(connection, target),
            math.ceil(HELD_BYTES_PER_SCALE * scale / partitions),
            math.ceil(WHOLE_BYTES_PER_SCALE * scale),
        )
    finally:
        connection.close()


def _write_partitions(
    connection: duckdb.DuckDBPyConnection, target: Path, table: str, select: str, key: str, partitions: int
) -> list[int]:
    """Write a table by partition; returns the rows of each. A key is in the same partition of all tables."""
    connection.execute(
        f"COPY (SELECT *, CAST(hash({key}) % {partitions} AS INTEGER) AS part FROM ({select})) "
        f"TO '{target / table}' (FORMAT parquet, PARTITION_BY (part))"
    )
    # A partition without rows, which there may be at a very small scale, has a file as well.
    for part in range(partitions):
        directory = target / table / f"part={part}"
        if not directory.exists():
            directory.mkdir()
            connection.execute(
                f"COPY (SELECT * FROM ({select}) LIMIT 0) TO '{directory / 'empty.parquet'}' (FORMAT parquet)"
            )
    files = f"read_parquet('{target / table}/*/*.parquet', hive_partitioning = true)"
    rows = connection.execute(f"SELECT part, count(*) FROM {files} GROUP BY part").fetchall()
    counted = dict(rows)
    return [int(counted.get(part, 0)) for part in range(partitions)]


def _row_counts(connection: duckdb.DuckDBPyConnection, target: Path) -> dict[str, int]:
    counts = {}
    for table in TABLES:
        row = connection.execute(f"SELECT count(*) FROM {_table_sql(target, table)}").fetchone()
        assert row is not None
        counts[table] = int(row[0])
    return counts


def _distinct_counts(connection: duckdb.DuckDBPyConnection, target: Path) -> dict[str, int]:
    counts: dict[str, int] = {}
    for table in (DENORM, ORDERS, *REPLICATED):
        columns = list(TABLES[table])
        selected = ", ".join(f"approx_count_distinct({column})" for column in columns)
        row = connection.execute(f"SELECT {selected} FROM {_table_sql(target, table)}").fetchone()
        assert row is not None
        for column, count in zip(columns, row, strict=True):
            counts[column] = max(counts.get(column, 0), int(count))
    return counts


def _table_sql(target: Path, table: str) -> str:
    """The SQL that reads a table of the dataset that is being made."""
    if table in (DENORM, LINEITEM):
        return f"'{target / DENORM}/*/*.parquet'"
    return f"'{target / table}/*/*.parquet'" if table == ORDERS else f"'{target / table}.parquet'"
