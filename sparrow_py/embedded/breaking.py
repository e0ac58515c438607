"""Whether a cluster that a program has started can do no more, and who is to be told."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable

from sparrow_py.errors import ClusterError


class Breaking:
    """Of one cluster. Its methods may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.error: ClusterError | None = None
        """Why it can do no more, once it is so."""
        self._listeners: dict[int, Callable[[ClusterError], None]] = {}
        self._numbers = itertools.count()

    def tell(self, listener: Callable[[ClusterError], None]) -> Callable[[], None]:
        """Have `listener` called, from any thread, once the cluster can do no more; returns what takes that back.

        `ClusterError` if it is so already.
        """
        with self._lock:
            if self.error is not None:
                raise self.error
            number = next(self._numbers)
            self._listeners[number] = listener

        def take_back() -> None:
            self._listeners.pop(number, None)

        return take_back

    def broken(self, error: ClusterError) -> None:
        """The cluster can do no more, for this reason: all are told, those who come later, too. Only once."""
        with self._lock:
            if self.error is not None:
                return
            self.error = error
            listeners = list(self._listeners.values())
        for listener in listeners:
            listener(error)
