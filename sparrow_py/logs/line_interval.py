"""Lines of the log for what others can bring about as often as they like. Pure."""

from __future__ import annotations

WARN_INTERVAL_S = 60.0
"""The least time between two lines of one kind. Each says how often its cause has happened since the line before."""


class LineInterval:
    """Says when one kind of line is due."""

    def __init__(self) -> None:
        self._times = 0
        self._said_s = float("-inf")

    def happened(self, now_s: float) -> int:
        """The cause of the line has happened. Returns how often since the last line if a line is due now, else 0."""
        self._times += 1
        if now_s < self._said_s + WARN_INTERVAL_S:
            return 0
        times, self._times, self._said_s = self._times, 0, now_s
        return times
