"""Simulations side by side: a pool of processes, whose results come as they are ready."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from simulator.hosts import SimulationError

Task = TypeVar("Task")
Done = TypeVar("Done")


def side_by_side(work: Callable[[Task], Done], tasks: Iterable[Task], processes: int) -> Iterator[tuple[Task, Done]]:
    """Each task with what `work` made of it, in the order of their ends; with one process in this one, in their order.

    `SimulationError` if a process of the pool was killed. What has not begun is dropped when nobody wants more.
    """
    if processes <= 1:
        for task in tasks:
            yield task, work(task)
        return
    # Not forked: the parent may have threads (the progress bar's).
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, spawn, initializer=_end_at_interrupt) as pool:
        futures = {pool.submit(work, task): task for task in tasks}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BrokenProcessPool:
            raise SimulationError("a process was killed, for want of memory?") from None
        finally:
            pool.shutdown(cancel_futures=True)


def _end_at_interrupt() -> None:
    """In a process of the pool: end at Ctrl-C, at once and without a traceback."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
