"""Whether the code that runs is a task's: a client that is made there warns, and a task may ask whether to end."""

from __future__ import annotations

import sys
import warnings
from contextvars import ContextVar
from typing import Protocol

_PACKAGE = __name__.partition(".")[0]
_REASON = (
    "a client is made inside a task. A task that waits for tasks of its own cluster holds its slot meanwhile: once all "
    "slots are held so, those tasks never start, and none of them ever ends. Let the cluster wait instead: make stages "
    "of one job, whose tasks get the results of those before (submit_stages and ResultOf), or submit from the program "
    "that has submitted this task."
)
_CLUSTER_TOO = " Here each such task would also start a cluster of its own, with workers for all cores."
_in_process = False
"""Whether this process runs nothing but tasks."""
_in_thread: ContextVar[bool] = ContextVar("sparrow_in_task", default=False)


class YieldRequests(Protocol):
    """The executor of the task that runs, as far as the task asks it whether it is to yield."""

    def asked(self, timeout_s: float | None) -> bool:
        """Whether the task is to yield; wait for that so long, with None as long as it lasts."""

    def left_s(self) -> float | None:
        """How long it has to end, if it is to yield."""


_yields_of_process: YieldRequests | None = None
_yields_of_thread: ContextVar[YieldRequests | None] = ContextVar("sparrow_yields", default=None)


class NestedClientWarning(UserWarning):
    """A client was made inside a task: a task that waits there for others may wait for ever."""


def enter_process(yields: YieldRequests | None = None) -> None:
    """From now on all that runs in this process is a task's, whatever thread it is in."""
    global _in_process, _yields_of_process  # noqa: PLW0603
    _in_process = True
    _yields_of_process = yields


def enter_thread(yields: YieldRequests | None = None) -> None:
    """From now on all that runs in this thread, and in what takes its context from it, is a task's."""
    _in_thread.set(True)
    _yields_of_thread.set(yields)


def in_task() -> bool:
    """Whether this is called by a task."""
    return _in_process or _in_thread.get()


def should_yield() -> bool:
    """In a task whose stage has `lease_s`: whether it is to end soon, in an orderly way, as it is another user's turn.

    It has `yield_within_s` of its node from then on (`yield_within_s()` says how much is left), after which it is
    killed and lost. Costs about a microsecond, and can be asked as often as one likes, in any thread of the task.
    Elsewhere it is False.
    """
    return wait_for_yield(0)


def wait_for_yield(timeout_s: float | None = None) -> bool:
    """As `should_yield`, but waits until it is so: for `timeout_s` at most, and no longer than the task lasts."""
    yields = _yields_of_thread.get() or _yields_of_process
    return yields is not None and yields.asked(timeout_s)


def yield_within_s() -> float | None:
    """How many seconds the task has left to end, if it is to yield; None if it is not."""
    yields = _yields_of_thread.get() or _yields_of_process
    return None if yields is None else yields.left_s()


def warn_of_nesting(*, starts_cluster: bool) -> None:
    """Warn, in a task, whoever makes a client, at the line that makes it."""
    if not in_task():
        return
    level, frame = 1, sys._getframe()
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == _PACKAGE:
        level, frame = level + 1, frame.f_back  # type: ignore[assignment]
    warnings.warn(_REASON + _CLUSTER_TOO * starts_cluster, NestedClientWarning, level)
