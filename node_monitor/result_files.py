"""Where executors put results that are too large for a message, and how the node monitor takes them over."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
from pathlib import Path

from node_monitor.confinement import Account
from sparrow_py.blobs import is_hash
from sparrow_py.errors import LinkError, shown
from sparrow_py.executor_files import NAME_BYTES
from sparrow_py.executor_protocol import File


class ResultFiles:
    """A directory with one for each process that was started; those that were not started share it itself.

    What an executor leaves there without having named it in a `Done` goes with its directory.
    `account`: the executors' user, if that is another than ours.
    """

    def __init__(self, directory: str, account: Account | None = None) -> None:
        self.path = directory
        self._account = account
        Path(directory).mkdir(mode=0o700, parents=True, exist_ok=True)

    def make(self, executor: str) -> str:
        """A new directory for this executor, which nobody else can enter; `OSError` if there can be none."""
        directory = tempfile.mkdtemp(prefix=f"{executor}-", dir=self.path)
        if self._account is not None:
            os.chown(directory, self._account.uid, self._account.gid)
        return directory

    def remove(self, directory: str) -> None:
        """The executor that had this directory is gone."""
        shutil.rmtree(directory, ignore_errors=True)

    def take(self, file: File, directory: str) -> File:
        """The file, moved from the directory of the executor that named it to where it is the node monitor's.

        `LinkError` unless it is a plain file in that directory, of the size that it is said to have. What it is, is
        looked at after it was moved: until then whoever may write to the directory can put another in its place.
        """
        old, new = Path(file.path), Path(self.path, os.urandom(NAME_BYTES).hex())
        try:
            problem = _misnamed(old, file, directory)
            if not problem:
                old.rename(new)
                problem = self._unfit(new, file.size)
                if problem:
                    _discard(new)
        except (OSError, ValueError) as error:  # ValueError: a path with a NUL.
            problem = f"cannot be taken over: {error}"
        if problem:
            raise LinkError(f"the result's file {shown(file.path)} {problem}")
        return File(str(new), file.size, file.hash)

    def _unfit(self, path: Path, size: int) -> str:
        """Why what an executor named cannot be a result; empty if it can."""
        found = path.lstat()
        if not stat.S_ISREG(found.st_mode) or found.st_size != size:
            return f"is not a plain file of {size} bytes"
        if found.st_nlink != 1:  # It is somebody else's, too: a link to what the executor could not even read.
            return f"has {found.st_nlink} names; allowed: 1"
        owners = {os.geteuid()} if self._account is None else {os.geteuid(), self._account.uid}
        return "" if found.st_uid in owners else f"belongs to user {found.st_uid}, who is not the executor's"


def _misnamed(path: Path, file: File, directory: str) -> str:
    """What is wrong with how the executor names its file; empty if nothing is."""
    if not path.is_absolute() or not path.parent.samefile(directory):
        return f"is not in {directory}"
    return "" if is_hash(file.hash) else f"comes with {shown(file.hash)} for a SHA-256 in hexadecimal"


def _discard(path: Path) -> None:
    """Delete what was moved and is no result."""
    with contextlib.suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()
