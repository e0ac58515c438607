"""What executors and commands that have ended left running, for processes with an event loop.

Who starts processes that are subreapers, and is one itself, has no other children than those, and what was left by
those that have ended. So whatever it did not start may be killed, whoever's it was.
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
    """Of this process; make one before it has started anything."""

    def __init__(self) -> None:
        adopt_orphans()
        self._own = children()
        """Not to be killed."""
        self._starting = 0
        self._sweep: asyncio.Task[None] | None = None

    @contextlib.contextmanager
    def starting(self) -> Iterator[None]:
        """While a child is being started whose process id is not known yet, none is killed."""
        self._starting += 1
        try:
            yield
        finally:
            self._starting -= 1

    def started(self, pid: int) -> None:
        """This child is not an orphan."""
        self._own.add(pid)

    def ended(self, pid: int) -> None:
        """It has ended, and was reaped: what it left are orphans, to be killed."""
        self._own.discard(pid)
        self.end()

    def end(self) -> None:
        """Kill all orphans, and those that come to light by it. Returns at once."""
        if self._sweep is None:
            self._sweep = asyncio.create_task(self._end_all())

    async def gone(self) -> None:
        """Return when there are none."""
        self.end()
        if self._sweep is not None:
            await self._sweep

    def _kill_those_here(self) -> set[int] | None:
        """The process ids of those that were found; None if it cannot be told now which are orphans."""
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
        """They take a moment to end, and what they leave are orphans, too: look again until there are none.

        Only those that do not end are looked at less and less often.
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
