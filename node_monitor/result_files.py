"""Where executors put results that are too large for a message, and how the node monitor takes them over."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from pathlib import Path

from sparrow_py.blobs import is_hash
from sparrow_py.errors import LinkError, shown
from sparrow_py.executor_files import NAME_BYTES
from sparrow_py.executor_protocol import File


class ResultFiles:
    """A directory with one for each process that was started; those that were not started share it itself.

    What an executor leaves there without having named it in a `Done` goes with its directory.
    """

    def __init__(self, directory: str) -> None:
        self.path = directory
        Path(directory).mkdir(mode=0o700, parents=True, exist_ok=True)

    def make(self, executor: str) -> str:
        """A new directory for this executor; `OSError` if there can be none."""
        return tempfile.mkdtemp(prefix=f"{executor}-", dir=self.path)

    def remove(self, directory: str) -> None:
        """The executor that had this directory is gone."""
        shutil.rmtree(directory, ignore_errors=True)

    def take(self, file: File, directory: str) -> File:
        """The file, moved from the directory of the executor that named it to where it is the node monitor's.

        `LinkError` unless it is a plain file in that directory, of the size that it is said to have.
        """
        old, new = Path(file.path), Path(self.path, os.urandom(NAME_BYTES).hex())
        try:
            problem = _problem(old, file, directory)
            if not problem:
                old.rename(new)
        except (OSError, ValueError) as error:  # ValueError: a path with a NUL.
            problem = f"cannot be taken over: {error}"
        if problem:
            raise LinkError(f"the result's file {shown(file.path)} {problem}")
        return File(str(new), file.size, file.hash)


def _problem(path: Path, file: File, directory: str) -> str:
    """Why a file that an executor named cannot be a result; empty if it can."""
    if not path.is_absolute() or not path.parent.samefile(directory):
        return f"is not in {directory}"
    found = path.lstat()
    if not stat.S_ISREG(found.st_mode) or found.st_size != file.size:
        return f"is not a plain file of {file.size} bytes"
    return "" if is_hash(file.hash) else f"comes with {shown(file.hash)} for a SHA-256 in hexadecimal"
