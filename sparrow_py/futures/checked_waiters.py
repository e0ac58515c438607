"""Who waits for a future by `concurrent.futures.wait` or `as_completed`: nobody in the thread that is to end it."""

from __future__ import annotations

import weakref
from typing import Any, Protocol


class MayRefuseToWait(Protocol):
    """A future."""

    def _check_may_wait(self) -> None:
        """Raises where to wait for its end, which is yet to come, would be to wait for oneself."""


class CheckedWaiters(list[Any]):
    """The library's waiters of a future."""

    def __init__(self, future: MayRefuseToWait) -> None:
        super().__init__()
        self._future = weakref.ref(future)

    def append(self, waiter: Any) -> None:
        """It is about to wait."""
        future = self._future()
        if future is not None:
            future._check_may_wait()
        super().append(waiter)
