"""Futures that have no condition until somebody needs one.

`concurrent.futures.Future` makes a condition each, which is most of what a future costs, in time and in memory; of a
large job most futures are never waited for one by one. Whoever waits for one, adds a callback, or ends it as any future
is ended, gets its condition from the attribute, made then and there.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures._base import CANCELLED, CANCELLED_AND_NOTIFIED, FINISHED, PENDING
from typing import Any, ClassVar

_ENDED = (FINISHED, CANCELLED, CANCELLED_AND_NOTIFIED)


class _OnFirstUse:
    """The attribute `_condition`; once a future has one, that is found in its place."""

    def __get__(self, future: LateConditionFuture, owner: type) -> threading.Condition:
        with LateConditionFuture.births:
            found: threading.Condition = vars(future).setdefault("_condition", threading.Condition())
            return found


class LateConditionFuture(Future[Any]):
    """See the module's docstring."""

    births: ClassVar[threading.RLock] = threading.RLock()
    """Held while a future gets its condition, or ends without one. Nothing waits while it is held; re-entrant, as a
    signal handler or a finalizer may need a condition meanwhile."""
    _condition: Any = _OnFirstUse()

    def __init__(self) -> None:
        # As the library's, but for the condition.
        self._state = PENDING
        self._result = None
        self._exception = None
        self._waiters = []
        self._done_callbacks: list[Callable[[Future[Any]], object]] = []

    def done(self) -> bool:
        """Whether it has ended. (To read the state takes no lock.)"""
        return self._state in _ENDED

    def end_unheeded(self, value: Any, error: BaseException | None) -> bool:
        """End it if it has no condition: then nobody waits for it, and there is nobody to tell. False if it has one, or
        has ended."""
        with LateConditionFuture.births:
            if "_condition" in vars(self) or self._state is not PENDING:
                return False
            self._result, self._exception, self._state = value, error, FINISHED
            return True


def _forked() -> None:
    """In a child of the process: a thread that is not here may have held the lock."""
    LateConditionFuture.births = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
