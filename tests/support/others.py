"""Processes that run tests wait for each other, before the first test beside which those of others may not run."""

from __future__ import annotations

import fcntl
from pathlib import Path


class Others:
    """How a process of a run knows that no other is busy with tests beside which its own may not run. Each has one from
    before tests are distributed. path: the same file for all, and of this run alone."""

    def __init__(self, path: Path) -> None:
        # Such a lock is the process's own: those that it forks do not have it.
        self._file = path.open("a+")
        fcntl.lockf(self._file, fcntl.LOCK_SH)

    def wait_until_over(self) -> None:
        """This process has no tests left but such as run alone. Return once that holds for all, or they have ended."""
        if not self._file.closed:
            fcntl.lockf(self._file, fcntl.LOCK_UN)  # As two that wait with it would wait for each other.
            fcntl.lockf(self._file, fcntl.LOCK_EX)
            self.leave()

    def leave(self) -> None:
        """This process has no tests left that others would wait for."""
        self._file.close()
