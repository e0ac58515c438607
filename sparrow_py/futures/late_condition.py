"""Futures that have no condition until somebody needs one.

`concurrent.futures.Future` makes a condition each, which is most of what a future costs, in time and in memory; of a
large job most futures are never waited for one by one. Whoever has the library wait, adds a callback, or ends one as
any future is ended, gets its condition from the attribute, made then and there.

Who waits for the end alone has a bare lock, that is released then. It costs a fifth less, and bears a signal's handler
that raises: `threading.Condition` is entered in Python, so that such a handler may leave it locked for ever, or release
it twice. Where the library waits (`wait`, `as_completed`), that has conditions which are broken then, and events of
bare locks: so whoever ends futures, the client's own thread, never waits for ever.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures._base import CANCELLED, CANCELLED_AND_NOTIFIED, FINISHED, PENDING, RUNNING
from typing import Any, ClassVar

from sparrow_py.futures.breakable_condition import BreakableCondition
from sparrow_py.futures.checked_waiters import CheckedWaiters
from sparrow_py.futures.late_event import LateEvent
from sparrow_py.futures.sleepers import Sleepers
from sparrow_py.task_context import task_that_waits

_ENDED = (FINISHED, CANCELLED, CANCELLED_AND_NOTIFIED)


class AwaitedEvent(LateEvent):
    """The event of somebody who waits for futures: a task gives its slot back meanwhile."""

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until it is set; False if the time ran out."""
        task = task_that_waits()
        if self._is_set or task is None:
            return super().wait(timeout_s)
        return task.without_slot(lambda: LateEvent.wait(self, timeout_s))


class _Waiters(CheckedWaiters):
    """The library's waiters of a future."""

    def append(self, waiter: Any) -> None:
        """It is about to wait, by an event of its own."""
        if type(waiter.event) is threading.Event:
            waiter.event = AwaitedEvent()
        super().append(waiter)


class _OnFirstUse:
    """An attribute of this name; once a future has one, that is found in its place."""

    def __init__(self, name: str, make: Callable[[LateConditionFuture], Any]) -> None:
        self._name = name
        self._make = make

    def __get__(self, future: LateConditionFuture, owner: type) -> Any:
        with LateConditionFuture.births:
            return vars(future).setdefault(self._name, self._make(future))


class LateConditionFuture(Future[Any]):
    """See the module's docstring."""

    births: ClassVar[threading.RLock] = threading.RLock()
    """Held while a future gets its condition, or ends without one. Nothing waits while it is held; re-entrant, as a
    signal handler or a finalizer may need a condition meanwhile."""
    _condition: Any = _OnFirstUse("_condition", lambda _: BreakableCondition())
    _waiters: Any = _OnFirstUse("_waiters", _Waiters)
    _sleepers: Any = _OnFirstUse("_sleepers", lambda _: Sleepers())
    """Who waits for its end alone."""

    def __init__(self) -> None:
        # As the library's, but for the condition and the waiters.
        self._state = PENDING
        self._result = None
        self._exception = None
        self._done_callbacks: list[Callable[[Future[Any]], object]] = []

    # ---- its state: to read it takes no lock, and makes no condition --------------------------

    def done(self) -> bool:
        """Whether it has ended."""
        return self._state in _ENDED

    def running(self) -> bool:
        """Whether it runs."""
        return self._state == RUNNING

    def cancelled(self) -> bool:
        """Whether it was cancelled."""
        return self._state in (CANCELLED, CANCELLED_AND_NOTIFIED)

    def _has_value(self) -> bool:
        """Whether it has ended well."""
        return self._state == FINISHED and self._exception is None

    def _check_may_wait(self) -> None:
        """See `MayRefuseToWait`."""

    # ---- its end -----------------------------------------------------------------------------

    def _wait_ended(self, timeout_s: float | None = None) -> bool:
        """Wait until it has ended; False if the time ran out. A signal's handler that raises leaves nothing behind."""
        if self._state in _ENDED:
            return True
        sleepers: Sleepers = self._sleepers
        task = task_that_waits()
        if task is None:
            return sleepers.sleep_until(self.done, timeout_s)
        return task.without_slot(lambda: sleepers.sleep_until(self.done, timeout_s))

    def _wake_sleepers(self) -> None:
        """It has ended."""
        sleepers: Sleepers | None = vars(self).get("_sleepers")
        if sleepers is not None:
            sleepers.wake()

    def _invoke_callbacks(self) -> None:
        """As the library's, which calls it at every end that it has made."""
        self._wake_sleepers()
        super()._invoke_callbacks()  # type: ignore[misc]

    def end_unheeded(self, value: Any, error: BaseException | None) -> bool:
        """End it if it has no condition: then there is nobody to tell but who sleeps. False if it has one, or has
        ended."""
        with LateConditionFuture.births:
            if "_condition" in vars(self) or self._state is not PENDING:
                return False
            self._result, self._exception, self._state = value, error, FINISHED
        self._wake_sleepers()
        return True


def all_ended(futures: Sequence[LateConditionFuture], timeout_s: float | None = None) -> bool:
    """Wait until all have ended; False if the time ran out.

    The library's `wait` holds the conditions of all of them for a while. A signal's handler that raised then would
    leave some locked for ever, and whoever ends these futures, the client's own loop, would wait for ever.
    """
    task = task_that_waits()
    if task is None or all(future.done() for future in futures):
        return _all_ended(futures, timeout_s)
    return task.without_slot(lambda: _all_ended(futures, timeout_s))  # Once for all of them.


def _all_ended(futures: Sequence[LateConditionFuture], timeout_s: float | None) -> bool:
    until_s = None if timeout_s is None else time.monotonic() + timeout_s
    for future in reversed(futures):  # The last often ends last: then there is one sleep.
        if not future._wait_ended(None if until_s is None else until_s - time.monotonic()):
            return False
    return True


def _forked() -> None:
    """In a child of the process: a thread that is not here may have held the lock."""
    LateConditionFuture.births = threading.RLock()
    BreakableCondition.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
