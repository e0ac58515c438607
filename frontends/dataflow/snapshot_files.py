"""Snapshots of a program as files: a directory for each, with a file for each partition, and one that says it is whole.

That one is written last, so what an interrupted snapshot has left is never taken for one. Values are pickled: so only
this account may enter the directory, and what is read must be this account's own.
"""

from __future__ import annotations

import os
import pickle
import shutil
import stat
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from frontends.dataflow.control_messages import PlaceOf
from frontends.dataflow.controller_effects import Key
from frontends.dataflow.errors import InvalidProgram
from sparrow_py import function_pickling

WHOLE = "whole"


def usable_directory(path: object) -> str:
    """The directory's absolute path, made if it is not there. `InvalidProgram` if nothing can be written there."""
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise InvalidProgram("snapshot_dir", path, "a directory's path")
    try:
        directory = Path(path).absolute()
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            return str(directory)
    except (OSError, TypeError) as error:
        raise InvalidProgram(
            "snapshot_dir",
            path,
            "",
            f"snapshot_dir: {str(path)!r} is not valid; allowed: a directory that can be written: {error}",
        ) from None


class _Whole(msgspec.Struct, array_like=True):
    """What the last file of a snapshot says."""

    signals: dict[int, bool]
    places: list[PlaceOf]


class SnapshotFiles:
    """Those of one program, in a directory of their own."""

    def __init__(self, directory: str | Path) -> None:
        self._directory = Path(directory)

    def _of(self, key: Key) -> Path:
        return self._directory / f"snapshot-{key[0]}-{key[1]}"

    def keep(self, key: Key, values: Mapping[PlaceOf, Any]) -> None:
        """Write some values of a snapshot."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        directory = self._of(key)
        directory.mkdir(mode=0o700, exist_ok=True)
        for (dataset, index), value in values.items():
            with (directory / f"{dataset}-{index}").open("wb") as file:
                function_pickling.Pickler(file, protocol=5).dump(value)

    def complete(self, key: Key, signals: dict[int, bool]) -> None:
        """All values are written."""
        directory = self._of(key)
        unfinished = directory / f".{WHOLE}"
        unfinished.unlink(missing_ok=True)  # Of a controller that died here.
        parts = [path.name.partition("-") for path in directory.iterdir()]
        places = [(int(dataset), int(index)) for dataset, _, index in parts]
        with unfinished.open("wb") as file:
            file.write(msgspec.msgpack.encode(_Whole(signals, places)))
            file.flush()
            os.fsync(file.fileno())
        unfinished.rename(directory / WHOLE)

    def drop(self, key: Key) -> None:
        """Remove a snapshot."""
        shutil.rmtree(self._of(key), ignore_errors=True)

    def read(self, key: Key, places: Iterable[PlaceOf]) -> Iterable[tuple[PlaceOf, Any]]:
        """Values of a whole snapshot, one after the other."""
        for dataset, index in places:
            with _opened(self._of(key) / f"{dataset}-{index}") as file:
                yield (dataset, index), pickle.load(file)

    def whole(self) -> dict[Key, tuple[dict[int, bool], set[PlaceOf]]]:
        """The whole snapshots that are there: what signals said before each, and its values' places."""
        found: dict[Key, tuple[dict[int, bool], set[PlaceOf]]] = {}
        for path in self._directory.glob(f"snapshot-*/{WHOLE}"):
            _, run, block = path.parent.name.split("-")
            with _opened(path) as file:
                said = msgspec.msgpack.decode(file.read(), type=_Whole)
            found[int(run), int(block)] = said.signals, set(said.places)
        return found


def _opened(path: Path) -> BinaryIO:
    """A file of ours, to be read; `PermissionError` if another account has put it there, or a link."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and status.st_nlink == 1:
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    raise PermissionError(f"{path} is no file of this account: user {status.st_uid}, {stat.filemode(status.st_mode)}")
