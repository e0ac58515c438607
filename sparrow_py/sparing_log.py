"""Log lines that others bring about, at a bounded rate: who is refused again and again must not fill the disk."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

LINES_MAX = 10
"""Lines in `INTERVAL_S`; what is beyond is counted, and the number stands in the next line."""
INTERVAL_S = 60.0


class SparingLog:
    """Logs warnings, and leaves out what is too much. For one thread."""

    def __init__(self, log: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._began_s = float("-inf")
        self._lines = 0
        self._left_out = 0

    def warning(self, text: str, *values: object) -> None:
        """Log this, or count it."""
        now_s = self._clock()
        if now_s >= self._began_s + INTERVAL_S:
            self._began_s, self._lines = now_s, 0
        if self._lines == LINES_MAX:
            self._left_out += 1
            return
        self._lines += 1
        if self._left_out:
            text, values = text + "; before that %d were left out", (*values, self._left_out)
            self._left_out = 0
        self._log.warning(text, *values)
