"""Notices that this process stood still: stopped by a signal, swapped out, or its machine asleep.

Whoever stood still for longer than its peers wait for a sign of life has been given up by all of them. It finds what
they had sent before that, on connections whose end it has not read yet.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

PATIENCE = 1.5
"""Heartbeats that a peer waits for a sign of life at most."""
TICKS = 4
"""Signs of life of an idle process in the time that its peers wait for one."""


class Standstill:
    """Calls `noticed` with the seconds that this process stood still, if that was longer than `patience_s`.

    What comes first after a standstill, a timer or what peers have sent, depends on the event loop: so whoever handles
    the latter calls `check` before.
    """

    def __init__(
        self, patience_s: float, noticed: Callable[[float], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._patience_s = patience_s
        self._noticed = noticed
        self._clock = clock
        self._alive_s = clock()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to watch."""
        self._alive_s = self._clock()
        self._tick()

    def stop(self) -> None:
        """Watch no more."""
        if self._timer is not None:
            self._timer.cancel()

    def check(self) -> None:
        """This process is alive now; was it all the time?"""
        before_s, self._alive_s = self._alive_s, self._clock()
        if self._alive_s - before_s > self._patience_s:
            self._noticed(self._alive_s - before_s)

    def _tick(self) -> None:
        self.check()
        self._timer = asyncio.get_running_loop().call_later(self._patience_s / TICKS, self._tick)
