"""The Unix sockets of an embedded cluster's schedulers: its clients and node monitors are on the same machine.

They lie in a directory that only this account may enter. A round trip over one costs two thirds of one over TCP.
"""

from __future__ import annotations

import contextlib
import shutil
import socket
import stat
import tempfile
from pathlib import Path

from sparrow_py.access.unix_addresses import UNIX_PATH_BYTES_MAX, unix_address

LISTEN_BACKLOG = 4096
CHANGEABLE = (0o002, 0o020, 0o022)
"""Modes of a directory for temporary files that others may change, and that is not sticky."""


class UnixSockets:
    """Of one cluster. The directory is there from the first socket on, until `remove`."""

    def __init__(self, *, wanted: bool) -> None:
        """Not `wanted`: there are none, and all is dialled over TCP."""
        self._wanted = wanted and hasattr(socket, "AF_UNIX")
        self._directory: Path | None = None

    def listen(self, name: str) -> socket.socket | None:
        """A socket of this name that is listened on, in place of one that a process has left; None if there can be
        none."""
        if not self._wanted:
            return None
        with contextlib.ExitStack() as undo:
            try:
                path = self._new_path(name)
                path.unlink(missing_ok=True)
                listening = undo.enter_context(socket.socket(socket.AF_UNIX))
                listening.bind(str(path))
                listening.listen(LISTEN_BACKLOG)
            except OSError:  # The path is too long, or nothing can be written there: TCP will do.
                return None
            undo.pop_all()
            return listening

    def _new_path(self, name: str) -> Path:
        if self._directory is None:
            if Path(tempfile.gettempdir()).stat().st_mode & (0o022 | stat.S_ISVTX) in CHANGEABLE:
                raise OSError("others may put another directory in the place of ours")
            self._directory = Path(tempfile.mkdtemp(prefix="sparrow-"))
        path = self._directory / name
        if len(str(path).encode()) > UNIX_PATH_BYTES_MAX:
            raise OSError(f"{path} is too long for a socket")
        return path

    def address(self, listening: socket.socket | None) -> str:
        """What it is dialled at; empty if there is none."""
        return "" if listening is None else unix_address(listening.getsockname())

    def remove(self) -> None:
        """Nobody listens any more."""
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None
