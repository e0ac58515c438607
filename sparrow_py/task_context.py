"""Whether the code that runs is a task's: a client that is made there warns."""

from __future__ import annotations

import sys
import warnings
from contextvars import ContextVar

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


class NestedClientWarning(UserWarning):
    """A client was made inside a task: a task that waits there for others may wait for ever."""


def enter_process() -> None:
    """From now on all that runs in this process is a task's, whatever thread it is in."""
    global _in_process  # noqa: PLW0603
    _in_process = True


def enter_thread() -> None:
    """From now on all that runs in this thread, and in what takes its context from it, is a task's."""
    _in_thread.set(True)


def in_task() -> bool:
    """Whether this is called by a task."""
    return _in_process or _in_thread.get()


def warn_of_nesting(*, starts_cluster: bool) -> None:
    """Warn, in a task, whoever makes a client, at the line that makes it."""
    if not in_task():
        return
    level, frame = 1, sys._getframe()
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == _PACKAGE:
        level, frame = level + 1, frame.f_back  # type: ignore[assignment]
    warnings.warn(_REASON + _CLUSTER_TOO * starts_cluster, NestedClientWarning, level)
