"""Whether the code that runs is a task's: a client that is made there warns, and a task may ask whether to end."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from contextvars import ContextVar
from typing import Protocol, TypeVar

from sparrow_py.errors import NotInTask

T = TypeVar("T")
KEEPS_SLOT_S = 0.1
"""How long a task's own client, while it starts, keeps the task's slot if no scheduler answers; a few milliseconds are
usual."""
_PACKAGE = __name__.partition(".")[0]
_REASON = (
    "a client is made inside a task. Client.current() is a client of the cluster that the task runs on, with the "
    "task's user, and needs neither address nor secret; its jobs end with the task, and run before others of the user. "
    "Or make stages of one job, whose tasks get the results of those before (submit_stages and ResultOf)."
)
_CLUSTER_TOO = " Here each such task would also start a cluster of its own, with workers for all cores."
_in_process = False
"""Whether this process runs nothing but tasks."""
_in_thread: ContextVar[bool] = ContextVar("sparrow_in_task", default=False)


class YieldRequests(Protocol):
    """The executor of the task that runs, as far as the task asks it whether it is to yield."""

    @property
    def is_orphaned(self) -> bool:
        """Whether the task is to end as its node monitor is gone, and not for another user's turn; known once the task
        has asked whether it is to yield."""

    def asked(self, timeout_s: float | None) -> bool:
        """Whether the task is to yield; wait for that so long, with None as long as it lasts."""

    def left_s(self) -> float | None:
        """How long it has to end, if it is to yield."""


_yields_of_process: YieldRequests | None = None
_yields_of_thread: ContextVar[YieldRequests | None] = ContextVar("sparrow_yields", default=None)


class RunningTask(Protocol):
    """The task that runs in this process, as far as it is the one that submits tasks of its own."""

    @property
    def socket_path(self) -> str:
        """Where its node monitor listens for clients within tasks."""

    @property
    def files_directory(self) -> str:
        """Where large data are put that are for the node monitor."""

    @property
    def run(self) -> int:
        """What it is called between its executor and the node monitor; `NotInTask` if no task runs."""

    @property
    def client_key(self) -> bytes:
        """With which a client within it is believed to be of its process."""

    def client(self, make: Callable[[], Closable]) -> Closable:
        """The client of the task, which is made if there is none, or if that is closed, and closed when the task
        ends."""

    def without_slot(self, wait: Callable[[], T]) -> T:
        """What `wait` returns, for which the task gives its slot back, and which it has again afterwards. `WaitRefused`
        if it may not. Threads that the task has started wait as they are."""


class Closable(Protocol):
    """A client."""

    @property
    def closed(self) -> bool:
        """Whether it takes nothing more."""

    def close(self) -> None:
        """End it."""


_task_of_process: RunningTask | None = None


def running_task() -> RunningTask:
    """The task that runs here; `NotInTask` if none does that may have a client of its own."""
    if _task_of_process is None:
        raise NotInTask(
            "only a task has a client of its own: one of the Python app, in the process that runs the task. Elsewhere "
            "make a client: Client(addresses) or Client(cluster)"
        )
    return _task_of_process


def task_that_waits() -> RunningTask | None:
    """The task that runs in this process, which is to give its slot back while it waits; None if there is none."""
    return _task_of_process


def without_slot(wait: Callable[[], T]) -> T:
    """What `wait` returns. In a task the slot is given back meanwhile, for the tasks that are waited for."""
    task = _task_of_process
    return wait() if task is None else task.without_slot(wait)


class NestedClientWarning(UserWarning):
    """A client was made inside a task, where `Client.current` is one that ends with the task."""


def enter_process(yields: YieldRequests | None = None, task: RunningTask | None = None) -> None:
    """From now on all that runs in this process is a task's, whatever thread it is in. task: how it may submit tasks
    of its own, if it may."""
    global _in_process, _yields_of_process, _task_of_process  # noqa: PLW0603
    _in_process = True
    _yields_of_process = yields
    _task_of_process = task


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


def is_orphaned() -> bool:
    """Whether the task that is to yield is to end as its node monitor is gone, and its process is about to end."""
    yields = _yields_of_thread.get() or _yields_of_process
    return yields is not None and yields.is_orphaned


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
