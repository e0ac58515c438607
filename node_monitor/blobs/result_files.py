"""Where executors put results that are too large for a message, and how their files become the node monitor's.

An executor, and whatever else runs as its user, may change its directory at any moment: what a name leads to, what
kind of thing that is, and its bytes. So a name is used to open a file, once and relative to a descriptor of the
directory; all else is asked of the open file. It is taken over in steps:

    open    No link is followed, and it must be a plain file of the executor's user that has no other name.
    move    It is moved to a directory of ours, and looked at there: another may have been put in its place.
    close   Owner and mode change, so that nobody can open it for writing any more.
    lease   The kernel gives a read lease only on a file that nobody has open, or mapped, for writing.
    hash    Its bytes, which nobody can change now, are hashed; without the lease a copy of them is.

What does not fit stays in the executor's directory, or goes back there, and ends with it.

All of this blocks; `blob_store` has it done in threads.
"""

# ruff: noqa: PTH104, PTH108, PTH119 - what Path would tidy up is not to be
from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import signal
import stat
import tempfile
import threading
from collections.abc import Iterator

from node_monitor.host import access_lists
from node_monitor.host.os_account import Account
from node_monitor.host.removal import END_TIMEOUT_S, remove_tree
from sparrow_py.errors import LinkError, shown
from sparrow_py.executors.executor_files import NAME_BYTES
from sparrow_py.executors.executor_protocol import File
from sparrow_py.wire.blobs import SHORTAGES

READ_BYTES = 1 << 20
"""Read and hashed in one go."""
BATCH_BYTES = 8 << 20
"""Hashed before others have their turn."""
LEFT_AGE_MAX_S = 3600.0
"""In a directory that several executors share, a file that was not written to for so long is nobody's."""
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
PLAIN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""Not to wait where it turns out to be a pipe."""
NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


class ResultDirectory:
    """A directory for the large results of one executor, which only its user can enter, held by a descriptor."""

    def __init__(self, parent: str, executor: str, account: Account | None = None) -> None:
        """Make it in the directory `parent`, which must be ours; `OSError` if that cannot be done.

        account: the executor's user, if that is another than ours.
        """
        self.path = tempfile.mkdtemp(prefix=f"{executor}-", dir=parent)
        self.names = {self.path}
        """What executors call it."""
        self.uid = os.geteuid() if account is None else account.uid
        self.descriptor = os.open(self.path, DIRECTORY)
        if account is not None:
            os.fchown(self.descriptor, account.uid, account.gid)

    def close(self) -> None:
        """Nothing more is taken from it, and nothing may be under way. To remove it is another matter (`removal`)."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def open(self, file: File) -> int:
        """A descriptor of the file that the executor names; `LinkError` if it may not name that.

        Another `OSError`: there are no descriptors left.
        """
        with _naming(file):
            folder, name = os.path.split(file.path)
            if folder not in self.names or name in ("", ".", ".."):
                raise LinkError(f"is not in {self.path}")
            try:
                descriptor = os.open(name, PLAIN_FILE, dir_fd=self.descriptor)
            except (OSError, ValueError) as error:  # ValueError: no path at all, by its characters.
                if isinstance(error, OSError) and error.errno in SHORTAGES:
                    raise  # That is not the executor's doing.
                raise LinkError(f"cannot be opened: {getattr(error, 'strerror', None) or error}") from None
            try:
                check(descriptor, file.size, self.uid)
            except LinkError:
                os.close(descriptor)
                raise
        return descriptor

    def give_back(self, path: str) -> None:
        """Move what is at this path into it: it ends with the directory, if that is still there, else now."""
        try:
            os.rename(path, os.urandom(NAME_BYTES).hex(), dst_dir_fd=self.descriptor)
        except OSError:
            remove_tree(path, END_TIMEOUT_S)


class Taking:
    """The taking over of a result's file: `begin`, and `go_on` until that says that it is complete.

    It is at `path` then, in a directory of ours on the same file system. Errors of both: `LinkError` if the executor
    may not name this file, another `OSError` if it cannot be opened or copied now. Methods may be called in any thread.
    """

    def __init__(self, directory: ResultDirectory, file: File, path: str, readers_gid: int | None = None) -> None:
        """readers_gid: the group whose members may read what is taken over."""
        self.path = path
        self.copied = False
        """Whether it is a copy, as somebody could have written to the file."""
        self._directory = directory
        self._file = file
        self._readers_gid = readers_gid
        self._source = self._copy = -1
        self._position = 0
        self._digest = hashlib.sha256()
        self._buffer = memoryview(bytearray(max(1, min(READ_BYTES, file.size))))
        self._lock = threading.Lock()
        """One thread at a time; whoever closes it waits for the one that is at work."""
        self._closed = False

    @property
    def hash(self) -> str:
        """The SHA-256 of what was read."""
        return self._digest.hexdigest()

    def begin(self) -> None:
        """Open, move and close the file to others."""
        with self._at_work():
            self._source = self._directory.open(self._file)
            with _naming(self._file):
                _move(os.path.basename(self._file.path), self._directory.descriptor, self.path)
                try:
                    self._make_ours()
                except LinkError:
                    self._directory.give_back(self.path)
                    raise
            if not leased(self._source):
                self.copied = True
                self._copy = os.open(self._copy_path, NEW_FILE, 0o600)
                close_to_others(self._copy, self._readers_gid)

    def go_on(self) -> bool:
        """Hash a batch; whether it was the last."""
        size = self._file.size
        with self._at_work(), _naming(self._file):
            end = min(size, self._position + BATCH_BYTES)
            while self._position < end:
                room = self._buffer[: end - self._position]
                count = os.preadv(self._source, [room], self._position)
                if not count:
                    raise LinkError(f"has become shorter than {size} bytes")
                self._digest.update(room[:count])
                if self.copied:
                    _write(self._copy, room[:count])
                self._position += count
            if self._position == size and self.copied:
                os.rename(self._copy_path, self.path)
            return self._position == size

    def close(self) -> None:
        """Let go of the file. Unless it is complete, what is left of it goes."""
        with self._lock:
            self._closed = True
            for descriptor in (self._source, self._copy):
                if descriptor >= 0:
                    os.close(descriptor)
            if self.copied:
                with contextlib.suppress(OSError):
                    os.unlink(self._copy_path)

    @property
    def _copy_path(self) -> str:
        return f"{self.path}-copy"

    @contextlib.contextmanager
    def _at_work(self) -> Iterator[None]:
        with self._lock:
            if self._closed:
                raise LinkError(f"the result's file {shown(self._file.path)} is not wanted any more")
            yield

    def _make_ours(self) -> None:
        """What was moved is the file that was opened, and from now on nobody else's."""
        if not os.path.samestat(os.lstat(self.path), os.fstat(self._source)):
            raise LinkError("was exchanged for another while it was taken over")
        close_to_others(self._source, self._readers_gid)
        try:
            check(self._source, self._file.size, os.geteuid())
        except LinkError:
            os.fchown(self._source, self._directory.uid, -1)
            raise


@contextlib.contextmanager
def _naming(file: File) -> Iterator[None]:
    """A `LinkError` says which file it is about."""
    try:
        yield
    except LinkError as error:
        raise LinkError(f"the result's file {shown(file.path)} {error}") from None


def check(descriptor: int, size: int, uid: int) -> None:
    """`LinkError` unless the open file is a plain one of so many bytes, of this user and with one name."""
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_size != size:
        raise LinkError(f"is not a plain file of {size} bytes")
    if found.st_nlink != 1:  # It is somebody else's, too: a link to what the executor could not even read.
        raise LinkError(f"has {found.st_nlink} names; allowed: 1")
    if found.st_uid != uid:
        raise LinkError(f"belongs to user {found.st_uid}; allowed: {uid}")


def close_to_others(descriptor: int, readers_gid: int | None) -> None:
    """Make the open file ours, and nobody may open it for writing; to read it only the group of the readers may."""
    os.fchown(descriptor, os.geteuid(), -1 if readers_gid is None else readers_gid)
    access_lists.remove(descriptor)
    os.fchmod(descriptor, 0o400 if readers_gid is None else 0o440)


def leased(descriptor: int) -> bool:
    """Whether the kernel vouches that nobody has the file open for writing, or mapped. It is given back at once."""
    try:
        # What whoever breaks a lease has us sent would end us; this signal is ignored.
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError:  # Somebody has, or this file system knows no leases.
        return False
    return True


def _move(name: str, directory: int, path: str) -> None:
    try:
        os.rename(name, path, src_dir_fd=directory)
    except OSError as error:
        raise LinkError(f"cannot be taken over: {error.strerror}") from None


def _write(descriptor: int, content: memoryview) -> None:
    while content:
        content = content[os.write(descriptor, content) :]
