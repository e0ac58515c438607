"""The directory that a node monitor has for its executors' sockets, and what dead node monitors left.

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
from collections.abc import Sequence
from pathlib import Path

from node_monitor.host import access_lists
from node_monitor.host.os_account import Account
from node_monitor.host.removal import END_TIMEOUT_S, remove_tree
from sparrow_py.errors import InvalidOption
from sparrow_py.executors.executor_protocol import FILES_SUFFIX

PREFIX = "sparrow-node-"
RANDOM_CHARS = 8
"""That `tempfile` puts at the end of a new directory's name."""
LOCK_NAME = "lock"
SOCKET_NAME = "executors.sock"
ACCOUNT_SOCKET = "as-{}"
"""The socket of an account's executors, by its user id, where there are several; it has no longer a name."""
SOCKET_PATH_BYTES_MAX = 107
"""The kernel's limit on the path of a Unix socket, less its NUL."""
DIRECTORY_MODE = 0o700
SHARED_MODE = 0o710
"""Of a directory that the executors' user may enter, but not list or change."""


class SocketDirectory:
    """A directory that only this user can enter, and that no other node monitor uses.

    `given` names it, and is made if it is not there; `InvalidOption` (`socket_dir`) if it cannot be.
    By default it is a new one among the system's temporary directories. `accounts`: those of the executors, if they
    are others than ours; `open_to_executors` lets them enter. One has the socket, and of several each its own.
    """

    def __init__(self, given: str = "", accounts: Sequence[Account] = ()) -> None:
        self._given = given
        self._accounts = accounts
        if given:
            self.path = str(Path(given).absolute())
            _check_given(self.path, accounts)
            lock = _lock(Path(self.path, LOCK_NAME), create=True)
            if lock is None:
                raise InvalidOption("socket_dir", given, "a directory that no other node monitor uses")
            self._lock = lock
            self._close_to_executors()  # Of another time, whose accounts may have been others.
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

    def socket_path_of(self, account: Account | None) -> str:
        """Where the socket of the account's executors is to be."""
        if account is None or len(self._accounts) == 1:
            return self.socket_path
        return str(Path(self.path, ACCOUNT_SOCKET.format(account.uid)))

    def open_to_executors(self) -> None:
        """Let the executors' accounts connect to their sockets, which listen now; `InvalidOption` if that cannot be."""
        Path(self.socket_path).chmod(0o600)
        for account in self._accounts:
            path = self.socket_path_of(account)
            Path(path).chmod(0o600)
            os.chown(path, account.uid, account.gid)
        if len(self._accounts) == 1:
            os.chown(self.path, -1, self._accounts[0].gid)
            Path(self.path).chmod(SHARED_MODE)
        elif self._accounts:
            try:
                uids = [account.uid for account in self._accounts]
                access_lists.allow(self.path, uids, access_lists.ENTER, owner=7)
            except OSError as error:
                raise InvalidOption("socket_dir", self.path, access_lists.allowed(error)) from None

    def _close_to_executors(self) -> None:
        access_lists.remove(self.path)
        Path(self.path).chmod(DIRECTORY_MODE)

    def close(self) -> None:
        """Remove the directory; of one that was given, the sockets and the directory of results."""
        self._clear()
        if self._given:
            self._close_to_executors()
        else:
            remove_tree(self.path, END_TIMEOUT_S)
        os.close(self._lock)

    def _clear(self) -> None:
        try:
            for path in (Path(self.socket_path), *Path(self.path).glob(ACCOUNT_SOCKET.format("*"))):
                path.unlink(missing_ok=True)
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


def _check_given(path: str, accounts: Sequence[Account]) -> None:
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
    groups = {account.gid for account in accounts}
    left_open = mode == SHARED_MODE and (found.st_gid in groups or access_lists.exist(path))  # By one that died.
    private = not mode & 0o077 or left_open
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
