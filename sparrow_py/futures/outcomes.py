"""What an outcome is to the user: a value or an exception, and a report."""

from __future__ import annotations

import contextlib
import pickle
from typing import Any

from sparrow_py.calls import APP
from sparrow_py.errors import TaskCancelled, TaskFailed, TaskLost, shown
from sparrow_py.exception_pickling import with_traceback
from sparrow_py.job import FINISHED, BlobRef, TaskReport, TaskStatus
from sparrow_py.wire.messages import Outcome


def task_report(outcome: Outcome, submitted_at_s: float) -> TaskReport:
    """An outcome as the user sees it."""
    started, service = outcome.started_at_s, outcome.service_s
    return TaskReport(
        task=outcome.task,
        status=outcome.status,
        attempts=outcome.attempts,
        node=outcome.node,
        error=outcome.error,
        submitted_at_s=submitted_at_s,
        reserved_at_s=outcome.reserved_at_s,
        started_at_s=started,
        finished_at_s=None if started is None or service is None else started + service,
        service_s=service,
        stdout=outcome.stdout,
        stderr=outcome.stderr,
        earlier_errors=outcome.earlier_errors,
    )


def outcome_value(outcome: Outcome, app: str) -> tuple[Any, BaseException | None]:
    """(value, None) of a task that finished, (None, what to raise) of any other.

    The value of a large result that was not fetched, as of a stage that others come after, is its reference.
    """
    if outcome.status is not FINISHED:
        if outcome.status is TaskStatus.CANCELLED:
            return None, task_cancelled(outcome)
        return None, failure(outcome, app)
    result = outcome.result
    if isinstance(result, BlobRef):
        return result, None
    if app != APP:
        return bytes(result), None
    try:
        return pickle.loads(result), None
    except BaseException as error:  # Unpickling runs the user's code, which may raise anything.
        return None, not_unpickled(outcome, error)


def task_cancelled(outcome: Outcome) -> TaskCancelled:
    """The exception of a task that was cancelled, with the reason."""
    return TaskCancelled(f"task {outcome.task} was cancelled: {outcome.error}")


def failure(outcome: Outcome, app: str) -> BaseException:
    """The exception of a task that failed or was lost: its own if it can be shown, with the remote traceback."""
    if outcome.status is TaskStatus.LOST:
        return TaskLost(f"task {outcome.task} was lost: {outcome.error}")
    where = f" on {outcome.node}" if outcome.node else ""  # Nowhere if an input of it failed.
    own: TaskFailed = TaskFailed(f"task {outcome.task} failed{where}: {outcome.error}")
    result = outcome.result
    if isinstance(result, BlobRef):  # What it raised could not be fetched.
        return own
    own.result = result
    if app != APP or not result:
        return own
    try:
        exception, text = pickle.loads(result)
        if not issubclass(type(exception), BaseException):
            return own
        exception = with_traceback(carried(exception, "the task raised"), text)
    except BaseException as error:  # Unpickling runs the user's code, which may raise anything.
        own.add_note(f"its exception could not be unpickled here: {_told(error)}")
        return own
    return exception


def not_unpickled(outcome: Outcome, error: BaseException) -> BaseException:
    """What a task's future ends with if to unpickle its result raised `error`: as far as possible that, with a note."""
    carries = carried(error, "its unpickling raised")
    with contextlib.suppress(Exception):  # A frozen class refuses it.
        carries.add_note(f"task {outcome.task} finished, but its result could not be unpickled here")
    return carries


def carried(exception: BaseException, what: str) -> BaseException:
    """The exception, or one in its place: asyncio's futures carry no StopIteration, and iterators would end by it."""
    return RuntimeError(f"{what} {_told(exception)}") if isinstance(exception, StopIteration) else exception


def _told(error: BaseException) -> str:
    """The error as messages repeat it, even if its own code does not let it be shown."""
    try:
        return shown(error)
    except BaseException:
        return f"{type(error).__name__}, which cannot be shown"
