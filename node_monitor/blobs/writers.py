"""The few threads that hash and write large data: users have them by turns.

What takes long comes in batches, each of which is a piece of work here. So whoever has a hundred files under way is no
more in another user's way than who has one, and a user alone has all threads.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

WRITERS_MAX = 4
"""Most threads that hash and write."""

T = TypeVar("T")


class Writers:
    """See the module's docstring."""

    def __init__(self, threads: int = WRITERS_MAX) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="blobs")
        self._lock = threading.Lock()
        self._waiting: dict[str, deque[tuple[Future[Any], Callable[[], Any]]]] = {}
        """Work that no thread has begun, by user, the next one's first."""

    def submit(self, user: str, work: Callable[[], T]) -> Future[T]:
        """Have a thread do the user's work, whose own turns come in order. `RuntimeError` after `stop`."""
        done: Future[T] = Future()
        with self._lock:
            self._threads.submit(self._work)
            self._waiting.setdefault(user, deque()).append((done, work))
        return done

    def stop(self) -> None:
        """Take no further work. What there is is done."""
        self._threads.shutdown(wait=False)

    def _work(self) -> None:
        """In a thread, as often as something was submitted: do a piece of work of the user whose turn it is."""
        with self._lock:
            user, works = next(iter(self._waiting.items()))
            done, work = works.popleft()
            del self._waiting[user]
            if works:
                self._waiting[user] = works  # Behind the others.
        if not done.set_running_or_notify_cancel():
            return
        try:
            result = work()
        except BaseException as error:
            done.set_exception(error)
        else:
            done.set_result(result)
