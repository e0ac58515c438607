"""What a worker tells the controller. Signals that follow each other quickly are told of together.

Workers hear of a signal from each other, and wait for it. The controller only writes it down, and it wakes for each
frame: where signals take less than a tenth of a millisecond, that is time of a core which the tasks need. News of
signals keep their order among themselves and with all else that the worker says; the controller puts those of several
workers in order anyway.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from frontends.dataflow.messages import Told

TOLD_EVERY_S = 0.01
"""A signal that comes sooner after one that was told of waits for others."""
WAITING_MAX = 1_000
"""Signals that wait."""


class Reports:
    """Pure; `post` is given messages in the order in which they are to arrive."""

    def __init__(self, post: Callable[[Any], object], clock: Callable[[], float]) -> None:
        self._post, self._clock = post, clock
        self._told_s = float("-inf")
        self.waiting: list[Told] = []

    def send(self, message: Any) -> None:
        """A signal may wait, unless something is to happen at it."""
        if type(message) is not Told or message.flags:
            self._tell_waiting()
            self._post(message)
            return
        now_s = self._clock()
        if now_s < self._told_s + TOLD_EVERY_S and len(self.waiting) < WAITING_MAX:
            self.waiting.append(message)
            return
        self._tell_waiting()
        self._post(message)
        self._told_s = now_s

    def see(self, now_s: float) -> None:
        """Tell of what has waited for long enough."""
        if self.waiting and now_s >= self._told_s + TOLD_EVERY_S:
            self._tell_waiting()
            self._told_s = now_s

    def _tell_waiting(self) -> None:
        for told in self.waiting:
            self._post(told)
        self.waiting.clear()
