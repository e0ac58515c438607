"""Lines of the log for what others can bring about as often as they like. Pure."""

from __future__ import annotations

WARN_INTERVAL_S = 60.0
"""Such a line is written so often at most, with how often it has happened since the one before."""


class LineInterval:
    """Says when one kind of line is due."""

    def __init__(self) -> None:
        self._times = 0
        self._said_s = float("-inf")

    def happened(self, now_s: float) -> int:
        """It has happened: how often since it was last said, if it is to be said now, else 0."""
        self._times += 1
        if now_s < self._said_s + WARN_INTERVAL_S:
            return 0
        times, self._times, self._said_s = self._times, 0, now_s
        return times
