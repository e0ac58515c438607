"""A dataset on disk: Parquet files and a manifest that describes them.

manifest.json
denorm/part=7/*.parquet     partition 7 of the denormalised table; the same for orders
customer.parquet, …         the tables that every node holds whole
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import msgspec

from frontends.sql.compiler import Statistics
from frontends.sql.tpch import PARTITION_KEYS, REPLICATED, STORED
from sparrow_py.errors import InvalidRequest

MANIFEST = "manifest.json"
FORMAT = 1
NAME = re.compile("[a-z][a-z0-9_]{0,31}")
"""Names of datasets: they become part of nodes' attributes and of schemas."""
MANIFEST_BYTES_MAX = 1 << 20
PARTITIONS_MAX = 1000
DIRECTORY = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
ATTRIBUTE_PREFIX = "sql."


class Manifest(msgspec.Struct, forbid_unknown_fields=True):
    """A dataset's description. rows: table to rows. partition_rows: partitioned table to rows of each partition.

    id: two datasets never have the same. distinct: column to the approximate number of its different values.
    held_bytes: roughly the memory that a partition takes at a node. whole_bytes: roughly the memory of the tables
    that every node holds.
    """

    format: int
    name: str
    id: str
    scale: float
    partitions: int
    rows: dict[str, int]
    partition_rows: dict[str, list[int]]
    distinct: dict[str, int]
    held_bytes: int
    whole_bytes: int


class Dataset:
    """A dataset in a directory; `InvalidRequest` if the directory has no dataset.

    confined: links are not followed, so that only files in the directory are read: for a process that reads what other
    users have written.
    """

    def __init__(self, directory: str | Path, *, confined: bool = False) -> None:
        self.directory = Path(directory).absolute()
        self._confined = confined
        self.manifest = _read_manifest(self.directory, self.open)

    @property
    def key(self) -> str:
        """The name that tells this dataset from others in executors and attributes."""
        return f"{self.manifest.name}.{self.manifest.id}"

    @property
    def attribute(self) -> str:
        """The name of the attribute that says which of its partitions a node holds."""
        return ATTRIBUTE_PREFIX + self.key

    @property
    def statistics(self) -> Statistics:
        """What the compiler knows about the data."""
        return Statistics(self.manifest.distinct)

    def files(self, table: str, partition: int | None = None) -> list[Path]:
        """The Parquet files of a table, or of a partition of it; `InvalidRequest` if there are no files."""
        if table not in PARTITION_KEYS:
            found = [self.directory / f"{table}.parquet"]
        else:
            found = sorted((self.directory / table / f"part={partition}").glob("*.parquet"))
        if not found or not all(path.is_file() for path in found):
            of = table if partition is None else f"partition {partition} of {table}"
            raise InvalidRequest("directory", str(self.directory), "", f"{of} has no file in {self.directory}")
        return found

    def open(self, path: Path) -> BinaryIO:
        """A file of the dataset, opened for reading; `OSError` if that is not possible."""
        return open_without_links(path) if self._confined else path.open("rb")

    def check_partition(self, partition: int) -> None:
        """Raise `InvalidRequest` unless there is this partition."""
        if not 0 <= partition < self.manifest.partitions:
            raise InvalidRequest("partition", partition, f"a whole number from 0 to {self.manifest.partitions - 1}")


def open_without_links(path: Path) -> BinaryIO:
    """The regular file at this absolute path, opened for reading; `OSError` if there is no such file, or if any
    part of the path is a link, even one that is made meanwhile."""
    parent = os.open(path.anchor, DIRECTORY)
    try:
        for name in path.parts[1:-1]:
            child = os.open(name, DIRECTORY, dir_fd=parent)
            os.close(parent)
            parent = child
        # O_NONBLOCK: if the path is a pipe, do not wait for its other end.
        descriptor = os.open(path.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent)
    finally:
        os.close(parent)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return os.fdopen(descriptor, "rb")


def _read_manifest(directory: Path, opened: Callable[[Path], BinaryIO]) -> Manifest:
    path = directory / MANIFEST
    allowed = "a directory that `sparrow sql generate` has made"
    try:
        with opened(path) as file:
            manifest = msgspec.json.decode(file.read(MANIFEST_BYTES_MAX), type=Manifest)
    except OSError as error:
        raise InvalidRequest("data", str(directory), f"{allowed} ({MANIFEST}: {error.strerror})") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InvalidRequest("data", str(directory), f"{allowed} ({MANIFEST}: {error})") from None
    if manifest.format != FORMAT or not NAME.fullmatch(manifest.name) or not NAME.fullmatch("x" + manifest.id):
        raise InvalidRequest("data", str(directory), f"{allowed} ({MANIFEST} is of format {manifest.format})")
    if not 1 <= manifest.partitions <= PARTITIONS_MAX:
        raise InvalidRequest("data", str(directory), f"{allowed} ({MANIFEST} has {manifest.partitions} partitions)")
    if set(REPLICATED) - manifest.rows.keys() or set(STORED) - manifest.partition_rows.keys():
        raise InvalidRequest("data", str(directory), f"{allowed} ({MANIFEST} lacks tables)")
    return manifest


def write_manifest(directory: Path, manifest: Manifest) -> None:
    """Write the manifest, which makes the directory a dataset."""
    text = msgspec.json.format(msgspec.json.encode(manifest), indent=1)
    temporary = directory / f"{MANIFEST}.part"
    temporary.write_bytes(text)
    temporary.replace(directory / MANIFEST)
