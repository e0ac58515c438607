"""Waiting by bare locks, which bears a signal's handler that raises at any moment: nothing stays locked.

`threading.Condition`, and `threading.Event` with it, is entered in Python: a handler that raises there may leave it
locked for ever, so that whoever is to wake others waits instead.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable


class Sleepers:
    """Threads that wait until something has happened.

    Who waits looks whether it has happened once those who wake may find the sleeper; these look for sleepers once it
    has happened. So one of the two sees the other.
    """

    __slots__ = ("_asleep",)

    def __init__(self) -> None:
        self._asleep: list[threading.Lock] = []

    def __len__(self) -> int:
        return len(self._asleep)

    def sleep_until(self, happened: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Wait until it has happened and `wake` was called; False if the time ran out."""
        sleeper = threading.Lock()
        sleeper.acquire()
        woken = False
        try:
            self._asleep.append(sleeper)
            if not happened():
                limit_s = -1 if timeout_s is None else min(max(timeout_s, 0), threading.TIMEOUT_MAX)
                woken = sleeper.acquire(timeout=limit_s)
        finally:
            if not woken:
                with contextlib.suppress(ValueError):  # It has been woken meanwhile.
                    self._asleep.remove(sleeper)
        return happened()

    def wake(self) -> None:
        """It has happened."""
        while self._asleep:
            with contextlib.suppress(IndexError):  # The last has taken itself away.
                self._asleep.pop().release()
