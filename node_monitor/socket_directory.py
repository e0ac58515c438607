"""The directory that a node monitor has for its executors' socket, and what dead node monitors left.

Its owner keeps a lock (flock) on the file `lock` in it. The kernel releases that when the owner dies,
whatever it died of, and not before: a directory whose lock can be had is nobody's any more.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import stat
import tempfile
from pathlib import Path

from node_monitor.confinement import Account
from node_monitor.removal import END_TIMEOUT_S, remove_tree
from sparrow_py.errors import InvalidOption
from sparrow_py.executor_protocol import FILES_SUFFIX

PREFIX = "sparrow-node-"
RANDOM_CHARS = 8
"""That `tempfile` puts at the end of a new directory's name."""
LOCK_NAME = "lock"
SOCKET_NAME = "executors.sock"
SOCKET_PATH_BYTES_MAX = 107
"""The kernel's limit on the path of a Unix socket, less its NUL."""
DIRECTORY_MODE = 0o700
SHARED_MODE = 0o710
"""Of a directory that the executors' user may enter, but not list or change."""


class SocketDirectory:
    """A directory that only this user can enter, and that no other node monitor uses.

    `given` names it, and is made if it is not there; `InvalidOption` (`socket_dir`) if it cannot be.
    By default it is a new one among the system's temporary directories. `account`: the executors'
    user, if that is another; `open_to_executors` lets it enter.
    """

    def __init__(self, given: str = "", account: Account | None = None) -> None:
        self._given = given
        self._account = account
        if given:
            self.path = str(Path(given).absolute())
            _check_given(self.path, account)
            lock = _lock(Path(self.path, LOCK_NAME), create=True)
            if lock is None:
                raise InvalidOption("socket_dir", given, "a directory that no other node monitor uses")
            self._lock = lock
        else:
            temporary = tempfile.gettempdir()
            _check_temporary(temporary)
            remove_stale_directories(temporary)
            self.path = tempfile.mkdtemp(prefix=PREFIX)
            self._lock = _lock_new(self.path)
        self._clear()  # Of what an owner that died has left.

    @property
    def socket_path(self) -> str:
        """Where the socket is to be."""
        return str(Path(self.path, SOCKET_NAME))

    @property
    def files_path(self) -> str:
        """Where executors that the node monitor does not start look for the directory of results."""
        return str(Path(self.socket_path).with_suffix(FILES_SUFFIX))

    def open_to_executors(self) -> None:
        """Let the executors' user connect to the socket, which listens now."""
        Path(self.socket_path).chmod(0o600)
        if self._account is not None:
            os.chown(self.socket_path, self._account.uid, self._account.gid)
            os.chown(self.path, -1, self._account.gid)
            Path(self.path).chmod(SHARED_MODE)

    def close(self) -> None:
        """Remove the directory; of one that was given, the socket and the directory of results."""
        self._clear()
        if not self._given:
            remove_tree(self.path, END_TIMEOUT_S)
        os.close(self._lock)

    def _clear(self) -> None:
        try:
            Path(self.socket_path).unlink(missing_ok=True)
        except OSError as error:
            allowed = f"a directory in which {SOCKET_NAME} can be made ({error.strerror})"
            raise InvalidOption("socket_dir", self.path, allowed) from None
        remove_tree(self.files_path, END_TIMEOUT_S)


def _check_temporary(path: str) -> None:
    """`InvalidOption` if a socket in a new directory there would have too long a path."""
    path_bytes_max = SOCKET_PATH_BYTES_MAX - len(f"/{PREFIX}{'x' * RANDOM_CHARS}/{SOCKET_NAME}")
    if len(os.fsencode(path)) > path_bytes_max:
        allowed = f"a directory whose path has at most {path_bytes_max} bytes; or name one for the socket by socket_dir"
        raise InvalidOption("TMPDIR", path, allowed)


def _check_given(path: str, account: Account | None) -> None:
    """Make the directory, or check that nobody else has business in it.

    A link is not followed: who can change where it leads could have executors connect to a socket of theirs.
    """
    allowed = "a directory (no link) of this user's that nobody else may enter (mode 0700), or the path of a new one"
    path_bytes_max = SOCKET_PATH_BYTES_MAX - len(SOCKET_NAME) - 1
    if len(os.fsencode(path)) > path_bytes_max:
        raise InvalidOption("socket_dir", path, f"a path of at most {path_bytes_max} bytes")
    try:
        Path(path).mkdir(DIRECTORY_MODE, exist_ok=True)
        found = Path(path).lstat()
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path.
        raise InvalidOption("socket_dir", path, f"{allowed} ({error})") from None
    mode = stat.S_IMODE(found.st_mode)
    private = not mode & 0o077 or (account is not None and mode == SHARED_MODE and found.st_gid == account.gid)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or not private:
        raise InvalidOption("socket_dir", path, allowed)


def _lock_new(directory: str) -> int:
    """The descriptor of a lock made in this new directory.

    It is locked before it has its name: whoever finds one that is not may know that its owner is dead.
    """
    descriptor, unnamed = tempfile.mkstemp(dir=directory)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    Path(unnamed).rename(Path(directory, LOCK_NAME))
    return descriptor


def _lock(path: Path, *, create: bool) -> int | None:
    """The descriptor of this lock, which is ours now; None if its owner lives, or it is none."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o600)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


@functools.cache
def remove_stale_directories(temporary: str) -> None:
    """Remove what this user's dead node monitors left among these temporary directories.

    Once per process: one that hosts hundreds of node monitors need not look hundreds of times.
    """
    for directory in Path(temporary).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # Others may be doing the same.
            found = directory.lstat()
            if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid():
                _remove_if_stale(directory)


def _remove_if_stale(directory: Path) -> None:
    lock = _lock(directory / LOCK_NAME, create=False)
    if lock is not None:
        remove_tree(str(directory), END_TIMEOUT_S)
        os.close(lock)
