"""A condition for which nobody waits for ever."""

from __future__ import annotations

import threading
import time
from typing import Any

LOOKS, LOOK_S = 20, 0.05
"""How often, and for how long each time, it is looked whether a lock is given back. Several looks, as a process that
was stopped for a while finds that a single one is over."""


class BreakableCondition(threading.Condition):
    """A condition whose lock is replaced if it is not given back for `LOOKS` looks.

    A future's condition is held for moments only. Who has not given it back for so long was interrupted in between, as
    by a signal's handler that raised in the library's `wait`, and never does. Such a call leaves the conditions of many
    futures locked, all of them since before the first was waited for: the others are replaced at once.
    """

    _abandoned_until_s = float("-inf")
    """What was taken before this, and is locked yet, was held during all looks at another. Of the class."""
    _breaking = threading.Lock()
    """Held while a lock is replaced. Of the class; nothing waits while it is held."""
    _lock: Any

    def __init__(self) -> None:
        super().__init__()
        for name in ("acquire", "release"):  # Its lock's own, which would be found in place of ours.
            vars(self).pop(name, None)
        self._use(self._lock)

    def _use(self, lock: Any) -> None:
        """This lock, which is free, is its lock from now on."""
        self._depth = 0
        """How often its holder has taken it."""
        self._since_s = float("inf")
        """When it was taken, if it is and that is known."""
        self._lock = lock
        self._is_owned, self._acquire_restore = lock._is_owned, lock._acquire_restore

    def _release_save(self) -> Any:
        self._depth, self._since_s = 0, float("inf")
        return self._lock._release_save()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take its lock: without a time limit that always comes to an end."""
        if blocking and timeout < 0:
            while not self._take(self._lock):
                pass
        elif not self._lock.acquire(blocking, timeout):
            return False
        self._depth += 1
        if self._depth == 1:
            self._since_s = time.monotonic()
        return True

    def _take(self, lock: Any) -> bool:
        """Take this lock, or have it replaced; False if it is not the condition's any more."""
        if not (lock.acquire(blocking=False) or self._wait_for(lock)):
            with BreakableCondition._breaking:
                if self._lock is lock:
                    self._use(threading.RLock())
            return False
        if self._lock is lock:
            return True
        lock.release()
        return False

    def _wait_for(self, lock: Any) -> bool:
        """Wait until the lock is given back; False if it is not going to be."""
        if self._since_s <= BreakableCondition._abandoned_until_s:
            return False
        began_s = time.monotonic()
        if any(lock.acquire(timeout=LOOK_S) for _ in range(LOOKS)):
            return True
        BreakableCondition._abandoned_until_s = began_s
        return False

    def release(self) -> None:
        """Give it back; nothing if it was replaced meanwhile."""
        if not self._lock._is_owned():
            return
        self._depth = max(self._depth - 1, 0)
        if not self._depth:
            self._since_s = float("inf")
        self._lock.release()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    @classmethod
    def forked(cls) -> None:
        """In a child of the process: a thread that is not here may have been replacing a lock."""
        cls._breaking = threading.Lock()
