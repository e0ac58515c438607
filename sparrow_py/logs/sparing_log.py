"""Log lines that others bring about, at a bounded rate: who is refused again and again must not fill the disk."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

LINES_MAX = 10
"""Lines in `INTERVAL_S`; what is beyond is counted, and the number stands in the next line."""
INTERVAL_S = 60.0


class SparingLog:
    """Logs lines, and leaves out what is too much: beyond `lines_max` in `interval_s`. For one thread."""

    def __init__(
        self,
        log: logging.Logger,
        clock: Callable[[], float] = time.monotonic,
        *,
        lines_max: int = LINES_MAX,
        interval_s: float = INTERVAL_S,
    ) -> None:
        self._log = log
        self._clock = clock
        self._lines_max = lines_max
        self._interval_s = interval_s
        self._began_s = float("-inf")
        self._lines = 0
        self._left_out = 0

    def warning(self, text: str, *values: object) -> None:
        """Log this as a warning, or count it."""
        self._say(logging.WARNING, text, values)

    def info(self, text: str, *values: object) -> None:
        """Log this for information, or count it."""
        self._say(logging.INFO, text, values)

    def exception(self, text: str, *values: object, error: BaseException | bool = True) -> None:
        """Log this as an error with the traceback of an exception, by default of that which is being handled, or
        count it."""
        self._say(logging.ERROR, text, values, error)

    def _say(
        self, level: int, text: str, values: tuple[object, ...], error: BaseException | bool | None = None
    ) -> None:
        now_s = self._clock()
        if now_s >= self._began_s + self._interval_s:
            self._began_s, self._lines = now_s, 0
        if self._lines == self._lines_max:
            self._left_out += 1
            return
        self._lines += 1
        if self._left_out:
            text, values = text + "; before that %d were left out", (*values, self._left_out)
            self._left_out = 0
        self._log.log(level, text, *values, exc_info=error)
