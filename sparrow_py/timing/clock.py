"""The drivers' clock, and the one timer that wakes a core."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


class Clock:
    """Seconds since the epoch that never go back: the monotonic clock, set once by the wall clock."""

    def __init__(self) -> None:
        self._offset_s = time.time() - time.monotonic()

    def __call__(self) -> float:
        return time.monotonic() + self._offset_s


class DeadlineTimer:
    """Calls `tick` when the core's next deadline is due, with one timer of the loop at most."""

    def __init__(self, clock: Clock, next_deadline_s: Callable[[], float | None], tick: Callable[[], None]) -> None:
        self._clock = clock
        self._next_deadline_s = next_deadline_s
        self._tick = tick
        self._handle: asyncio.TimerHandle | None = None
        self._due_s: float | None = None

    def update(self) -> None:
        """After events: arrange for the next deadline, which may have moved."""
        due_s = self._next_deadline_s()
        if due_s is None or (self._due_s is not None and self._due_s <= due_s):
            return  # The earlier timer, if there is one, will fire for nothing: cheaper than to move it each time.
        if self._handle is not None:
            self._handle.cancel()
        self._due_s = due_s
        self._handle = asyncio.get_running_loop().call_later(max(0.0, due_s - self._clock()), self._fire)

    def _fire(self) -> None:
        self._handle = self._due_s = None
        try:
            self._tick()
        finally:
            self.update()

    def cancel(self) -> None:
        """Fire no more."""
        if self._handle is not None:
            self._handle.cancel()
