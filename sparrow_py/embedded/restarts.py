"""What becomes of a daemon of an embedded cluster that has ended though nobody ended it. Pure."""

from __future__ import annotations

from collections import deque

RESTARTS_MAX = 3
RESTARTS_WINDOW_S = 60.0
"""A daemon is started again so often in so many seconds: one that goes on dying has a reason for it."""


class Restarts:
    """How often one daemon has been started again; a daemon keeps its name."""

    def __init__(self) -> None:
        self._at_s: deque[float] = deque(maxlen=RESTARTS_MAX)

    def allowed(self, code: int, now_s: float) -> bool:
        """Whether it is to be started again now, having ended with this code; if so, that counts.

        0 is the code of one that was told to leave, by a signal: it left in order, and is not wanted any more.
        """
        if code == 0 or (len(self._at_s) == RESTARTS_MAX and now_s - self._at_s[0] < RESTARTS_WINDOW_S):
            return False
        self._at_s.append(now_s)
        return True

    def count(self, now_s: float) -> int:
        """How often it was, in the last `RESTARTS_WINDOW_S`."""
        return sum(now_s - at_s < RESTARTS_WINDOW_S for at_s in self._at_s)
