"""Ctrl-C while futures are waited for: what they stand for is stopped."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from typing import Any

from sparrow_py.futures.task_future import FutureJob, TaskFuture


@contextlib.contextmanager
def stopping_on_interrupt(futures: Iterable[Future[Any]]) -> Iterator[None]:
    """Who is interrupted here (Ctrl-C) wants none of these any more: their tasks are cancelled, even if they run."""
    try:
        yield
    except KeyboardInterrupt as error:
        stop_if_interrupted(futures, error)
        raise


def stop_if_interrupted(futures: Iterable[Future[Any]], error: KeyboardInterrupt) -> bool:
    """Stop the tasks of these, without waiting until they are, unless the error is of a task. Whether it is not."""
    ours = [future for future in futures if isinstance(future, TaskFuture)]
    if any(future._exception is error for future in ours):
        return False
    cancel_soon(ours, running=True)
    return True


def cancel_soon(futures: Iterable[TaskFuture], *, running: bool) -> None:
    """Cancel the tasks of these that are not done, without waiting until they are; with `running` even if they run."""
    by_job: dict[FutureJob, list[int]] = {}
    for future in futures:
        if not future.done():
            by_job.setdefault(future.job, []).append(future.task)
    for job, tasks in by_job.items():
        job.cancel_soon(tasks, running=running)
