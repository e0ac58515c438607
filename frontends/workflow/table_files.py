"""The tables that a workflow is run on: Parquet or CSV files, Arrow tables, pandas data frames."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from frontends.workflow.errors import TableMismatch
from frontends.workflow.ir.dag import Dag, Scan
from frontends.workflow.ir.tables import conformed, type_of_field
from frontends.workflow.ir.types import Column, OtherColumn, Schema, Type
from frontends.workflow.mapping.sizes import TableSize, column_bytes

T = TypeVar("T")
CSV_SUFFIXES = (".csv", ".tsv", ".tbl")
CSV_DELIMITERS = {".csv": ",", ".tsv": "\t", ".tbl": "|"}
TABLES_MAX = 1_000
CSV_BYTES_MAX = 16 << 30
"""Of a CSV file: it is read whole here, and written as Parquet."""


@dataclass(frozen=True, slots=True)
class GivenTable:
    """A table. path: the file that was named, if one was; content: what is in memory, or was read of CSV, if anything.
    schema: its columns as workflows know them, with those of other types apart."""

    name: str
    schema: Schema
    path: Path | None = None
    content: pa.Table | None = None

    def file_in(self, directory: Path) -> Path:
        """A Parquet file of it: its own, or one that is written into the directory."""
        if self.content is None:
            assert self.path is not None
            return self.path
        made = directory / f"table-{hashlib.sha256(self.name.encode()).hexdigest()[:16]}.parquet"
        pq.write_table(self.content, made.with_suffix(".partial"))
        made.with_suffix(".partial").replace(made)
        return made

    @property
    def arrow_schema(self) -> pa.Schema:
        return self.content.schema if self.content is not None else pq.read_schema(self.path)

    @property
    def size(self) -> TableSize:
        """Rows and bytes: of a file by its footer."""
        if self.content is not None:
            stored = {name: self.content.column(name).nbytes for name in self.schema.names}
            return _size(self.content.schema, self.content.num_rows, stored)
        assert self.path is not None
        return size_of(self.path)

    @property
    def mark(self) -> str:
        """What changes when the table does: of files the path, size and time of change, else of the content."""
        if self.path is not None:
            status = self.path.stat()
            return f"{self.path.resolve()} {status.st_size} {status.st_mtime_ns}"
        assert self.content is not None
        found = hashlib.sha256(str(self.content.schema).encode())
        for batch in self.content.to_batches():
            found.update(batch.serialize())
        return found.hexdigest()


@dataclass(frozen=True, slots=True)
class Unopened:
    """A file that is opened only if a workflow scans it: it may be there for something else."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)


def given_table(name: str, what: Any) -> GivenTable:
    """The table of a path, an Arrow table or a pandas data frame; `TableMismatch` if it cannot be one.

    A `GivenTable` is itself.
    """
    if isinstance(what, GivenTable):
        return what
    if isinstance(what, str | Path):
        return _of_file(name, Path(what))
    if isinstance(what, pa.Table):
        return GivenTable(name, _schema(what.schema, name), content=what)
    if hasattr(what, "columns") and hasattr(what, "dtypes"):
        try:
            content = pa.Table.from_pandas(what, preserve_index=False)
        except (pa.ArrowException, ValueError, TypeError) as error:
            raise TableMismatch(name, f"the data frame cannot become an Arrow table: {error}") from None
        return GivenTable(name, _schema(content.schema, name), content=content)
    raise TableMismatch(name, f"{type(what).__name__}; a path, an Arrow table or a pandas data frame is needed")


class _Lazy(Mapping[str, T]):
    """Values by name, which are made when they are asked for."""

    def __init__(self, names: Collection[str], make: Callable[[str], T]) -> None:
        self._names = names
        self._make = make

    def __getitem__(self, name: str) -> T:
        return self._make(name)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class GivenTables(_Lazy[GivenTable]):
    """Tables by name. Those that are `Unopened` are opened when they are asked for, and then once."""

    def __init__(self, tables: Mapping[str, GivenTable | Unopened]) -> None:
        self._tables = dict(tables)
        super().__init__(self._tables, self._opened)

    def _opened(self, name: str) -> GivenTable:
        found = self._tables[name]
        if isinstance(found, Unopened):
            found = self._tables[name] = _of_file(name, found.path)
        return found

    @property
    def opened_paths(self) -> dict[str, Path]:
        """{table: its file} of those that are files and have been opened."""
        return {
            name: one.path for name, one in self._tables.items() if isinstance(one, GivenTable) and one.path is not None
        }

    @property
    def schemas(self) -> Mapping[str, Schema]:
        """The columns of each; a table is opened when it is asked for."""
        return _Lazy(self, lambda name: self[name].schema)

    def scanned_by(self, dag: Dag) -> dict[str, GivenTable]:
        """Those that the workflow scans."""
        return {name: self[name] for name in dict.fromkeys(scan.table for scan in dag.of_type(Scan))}


def given_tables(tables: Mapping[str, Any]) -> GivenTables:
    """Each as `given_table`; what is `Unopened` stays so. `GivenTables` are themselves."""
    if isinstance(tables, GivenTables):
        return tables
    if len(tables) > TABLES_MAX:
        raise TableMismatch("…", f"{len(tables):,} tables; at most {TABLES_MAX:,} are allowed")
    return GivenTables(
        {name: what if isinstance(what, Unopened) else given_table(name, what) for name, what in tables.items()}
    )


def check_scans(dag: Dag, tables: Mapping[str, GivenTable]) -> None:
    """`TableMismatch` unless each table that the workflow scans is given, with the columns that it declares."""
    for scan in dag.of_type(Scan):
        if scan.table not in tables:
            known = ", ".join(sorted(tables)) or "none"
            raise TableMismatch(scan.table, f"no data is given for it (given: {known}); name its file, NAME=PATH")
        check_columns(tables[scan.table].arrow_schema, scan.schema, scan.table)


def check_columns(found: pa.Schema, schema: Schema, table: str) -> None:
    """`TableMismatch` unless a table with the columns found has the declared ones, and none that engines which ignore
    case would read instead."""
    conformed(found.empty_table(), schema, table)
    declared = {name.casefold(): name for name in schema.names}
    for name in found.names:
        other = declared.get(name.casefold(), name)
        if other != name:
            raise TableMismatch(table, f"columns {other} and {name} differ only in case; rename one of them")


def size_of(path: Path) -> TableSize:
    """The size of what a Parquet file holds, once that is in memory, by its footer."""
    metadata = pq.read_metadata(path)
    stored: dict[str, int] = {}
    for group in range(metadata.num_row_groups):
        for number in range(metadata.num_columns):
            column = metadata.row_group(group).column(number)
            name = column.path_in_schema
            stored[name] = stored.get(name, 0) + column.total_uncompressed_size
    return _size(metadata.schema.to_arrow_schema(), metadata.num_rows, stored)


def _size(schema: pa.Schema, rows: int, stored: Mapping[str, int]) -> TableSize:
    """stored: the bytes that columns take as they are stored, and parts of nested ones, which stay as they are."""
    found = dict(stored)
    for name in {*stored} & {*schema.names}:
        type_ = type_of_field(schema.field(name).type)
        if type_ is not None:
            found[name] = column_bytes(type_, rows, stored[name])
    return TableSize(rows, sum(found.values()), found)


def _of_file(name: str, path: Path) -> GivenTable:
    try:
        if path.suffix.lower() in CSV_SUFFIXES:
            content = _read_csv(name, path)
            return GivenTable(name, _schema(content.schema, name), path, content)
        return GivenTable(name, _schema(pq.read_schema(path), name), path)
    except (OSError, pa.ArrowException) as error:
        raise TableMismatch(name, f"{path} cannot be read as {_format(path)}: {error}") from None


def _read_csv(name: str, path: Path) -> pa.Table:
    size = path.stat().st_size
    if size > CSV_BYTES_MAX:
        raise TableMismatch(name, f"{path} has {size:,} bytes; at most {CSV_BYTES_MAX:,} of CSV are allowed")
    delimiter = CSV_DELIMITERS[path.suffix.lower()]
    return pyarrow.csv.read_csv(path, parse_options=pyarrow.csv.ParseOptions(delimiter=delimiter))


def _format(path: Path) -> str:
    return "CSV" if path.suffix.lower() in CSV_SUFFIXES else "Parquet"


def _schema(found: pa.Schema, table: str) -> Schema:
    """The columns of types that workflows know, and the others apart."""
    columns, others = [], []
    for place, one in enumerate(found):
        type_ = type_of_field(one.type)
        if type_ is None:
            others.append(OtherColumn(one.name, str(one.type), place))
        else:
            columns.append(Column(one.name, type_))
    if not columns:
        has = ", ".join(f"{one.name} {one.type}" for one in others) or "no column"
        raise TableMismatch(table, f"no column is {', '.join(one.value for one in Type)}; it has {has}")
    return Schema(tuple(columns), tuple(others))
