"""Where executors put results that are too large for a message, and how the node monitor takes these files over.

An executor, and any other process of its user, may change its directory at any moment: which file a name leads to, what
kind of file that is, and the file's bytes. So a name is used only to open a file, once, and relative to a descriptor of
the directory; everything else is asked of the open file. The node monitor takes a file over in steps:

    open    No link is followed, and it must be a plain file of the executor's user that has no other name.
    move    The file is moved to a directory of ours, and checked there: another may have been put in its place.
    close   Owner and mode change, so that nobody can open the file for writing any more.
    lease   The kernel gives a read lease only on a file that nobody has open, or mapped, for writing.
    hash    The file's bytes, which nobody can change now, are hashed; without the lease, those of a copy.

A file that is refused stays in the executor's directory, or goes back there, and is deleted with the directory. If
descriptors are short, so that a file cannot be opened, it is deleted at once.

All of these calls block; `blob_store` makes them in threads.
"""

# ruff: noqa: PTH104, PTH106, PTH108, PTH119 - paths are used as executors write them, and Path would normalise them
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
"""Bytes that are read and hashed in one go."""
BATCH_BYTES = 8 << 20
"""Bytes of one file that are hashed before other files have their turn."""
LEFT_AGE_MAX_S = 3600.0
"""In a directory that several executors share, a file that was not written to for so long is deleted."""
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
PLAIN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""`O_NONBLOCK`, so that the call does not wait if the file turns out to be a pipe."""
NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


class ResultDirectory:
    """A directory for the large results of one executor, which only its user can enter, held by a descriptor."""

    def __init__(self, parent: str, executor: str, account: Account | None = None) -> None:
        """Make the directory in `parent`, which must be ours; `OSError` if that fails.

        account: the executor's user, if that is another user than ours.
        """
        self.path = tempfile.mkdtemp(prefix=f"{executor}-", dir=parent)
        self.names = {self.path}
        """Paths by which executors name the directory."""
        self.uid = os.geteuid() if account is None else account.uid
        try:
            self.descriptor = os.open(self.path, DIRECTORY)
        except OSError:
            os.rmdir(self.path)  # Each start in vain would leave one.
            raise
        if account is not None:
            os.fchown(self.descriptor, account.uid, account.gid)

    def close(self) -> None:
        """Close the directory, of which no file may be under way. `removal` deletes it."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def open(self, file: File) -> int:
        """A descriptor of the file that the executor names; `LinkError` if the executor may not name that file.

        Another `OSError` if there are no descriptors left: then the file is deleted.
        """
        with _naming(file):
            folder, name = os.path.split(file.path)
            if folder not in self.names or name in ("", ".", ".."):
                raise LinkError(f"is not in {self.path}")
            try:
                descriptor = os.open(name, PLAIN_FILE, dir_fd=self.descriptor)
            except (OSError, ValueError) as error:  # ValueError: the name has characters that no path has.
                if isinstance(error, OSError) and error.errno in SHORTAGES:
                    with contextlib.suppress(OSError):  # Nobody will ask for it again, and its executor may live long.
                        os.unlink(name, dir_fd=self.descriptor)
                    raise  # The executor has not caused that.
                raise LinkError(f"cannot be opened: {getattr(error, 'strerror', None) or error}") from None
            try:
                check(descriptor, file.size, self.uid)
            except LinkError:
                os.close(descriptor)
                raise
        return descriptor

    def give_back(self, path: str) -> None:
        """Move the file at this path into the directory, with which it is deleted, or now if that is gone."""
        try:
            os.rename(path, os.urandom(NAME_BYTES).hex(), dst_dir_fd=self.descriptor)
        except OSError:
            remove_tree(path, END_TIMEOUT_S)


class Taking:
    """Takes a result's file over: `begin`, then `go_on` until it returns True.

    Then the file is at `path`, in a directory of ours on the same file system. Both raise `LinkError` if the executor
    may not name this file, and another `OSError` if the file cannot be opened or copied now. Methods may be called in
    any thread.
    """

    def __init__(self, directory: ResultDirectory, file: File, path: str, readers_gid: int | None = None) -> None:
        """readers_gid: the group whose members may read the file once it is taken over."""
        self.path = path
        self.copied = False
        """Whether the file at `path` is a copy, because another process could have written to the original."""
        self._directory = directory
        self._file = file
        self._readers_gid = readers_gid
        self._source = self._copy = -1
        self._position = 0
        self._digest = hashlib.sha256()
        self._buffer = memoryview(bytearray(max(1, min(READ_BYTES, file.size))))
        self._lock = threading.Lock()
        """Held by the thread that is at work; `close` waits for that thread."""
        self._closed = False

    @property
    def hash(self) -> str:
        """The SHA-256 of the bytes that were read."""
        return self._digest.hexdigest()

    def begin(self) -> None:
        """Open and move the file, and close it to others."""
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
        """Hash a batch; returns whether it was the last."""
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
        """Close all descriptors, and delete a copy that is not complete."""
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
        """Check that the file that was moved is the one that was opened, and take it away from all others."""
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
    """Puts the file's name before the text of a `LinkError`."""
    try:
        yield
    except LinkError as error:
        raise LinkError(f"the result's file {shown(file.path)} {error}") from None


def check(descriptor: int, size: int, uid: int) -> None:
    """`LinkError` unless the open file is a plain one of so many bytes, of this user and with one name."""
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_size != size:
        raise LinkError(f"is not a plain file of {size} bytes")
    if found.st_nlink != 1:  # It may be a link to a file that the executor cannot even read.
        raise LinkError(f"has {found.st_nlink} names; allowed: 1")
    if found.st_uid != uid:
        raise LinkError(f"belongs to user {found.st_uid}; allowed: {uid}")


def close_to_others(descriptor: int, readers_gid: int | None) -> None:
    """Make the open file ours: nobody may open it for writing, and only the readers' group may open it for reading."""
    os.fchown(descriptor, os.geteuid(), -1 if readers_gid is None else readers_gid)
    access_lists.remove(descriptor)
    os.fchmod(descriptor, 0o400 if readers_gid is None else 0o440)


def leased(descriptor: int) -> bool:
    """Whether the kernel gives a read lease, and so vouches that nobody has the file open, or mapped, for writing. The
    lease is given back at once."""
    try:
        # The signal that the kernel sends when a lease is broken would end this process; SIGURG is ignored.
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError:  # Another process has the file open for writing, or this file system has no leases.
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
