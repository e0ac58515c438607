"""Orphans: processes that executors and commands left running when they ended. For processes with an event loop.

A subreaper whose own children are subreapers, too, has only two kinds of children: those that it has started, and those
that were left by children which have ended. So it may kill every child that it did not start.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterator

from sparrow_py.processes.descendants import kill_descendants
from sparrow_py.processes.process_control import adopt_orphans, children

WAIT_FIRST_S = 0.001
WAIT_MAX_S = 0.5


class Orphans:
    """The orphans of this process. To be made before the process has started any other."""

    def __init__(self) -> None:
        adopt_orphans()
        self._own = children()
        """Children that are not orphans."""
        self._starting = 0
        self._sweep: asyncio.Task[None] | None = None

    @contextlib.contextmanager
    def starting(self) -> Iterator[None]:
        """No child is killed in this block, in which one is started whose process id is not known yet."""
        self._starting += 1
        try:
            yield
        finally:
            self._starting -= 1

    def started(self, pid: int) -> None:
        """This child is not an orphan."""
        self._own.add(pid)

    def ended(self, pid: int) -> None:
        """This child has ended, and was reaped: the processes that it left are orphans, and are killed."""
        self._own.discard(pid)
        self.end()

    def end(self) -> None:
        """Kill all orphans, and those that appear when their parents are killed. Returns at once."""
        if self._sweep is None:
            self._sweep = asyncio.create_task(self._end_all())

    async def gone(self) -> None:
        """Kill all orphans, and return when there is none left."""
        self.end()
        if self._sweep is not None:
            await self._sweep

    def _kill_those_here(self) -> set[int] | None:
        """Returns the process ids of the orphans that were found; None if they cannot be told apart now."""
        if self._starting:
            return None
        try:
            for pid in children() - self._own:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
            return kill_descendants(self._own)
        except OSError:
            return None

    async def _end_all(self) -> None:
        """Killed processes take a moment to end, and their children become orphans: look again until there is none.

        The pauses grow only while no new orphan appears.
        """
        wait_s = WAIT_FIRST_S
        known: set[int] = set()
        try:
            while (found := self._kill_those_here()) is None or found:
                if found is not None:
                    wait_s = WAIT_FIRST_S if found - known else min(2 * wait_s, WAIT_MAX_S)
                    known = found
                await asyncio.sleep(wait_s)
        finally:
            self._sweep = None
