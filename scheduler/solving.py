"""What planes have computed off the loop: one thread, one problem after the other, and how long that took."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from scheduler.plane import Problem, Stoppable

log = logging.getLogger("sparrow.scheduler")
Answer = TypeVar("Answer")
BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Of the histogram of times."""


class Times:
    """A histogram of seconds."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.sum_s = 0.0

    def add(self, seconds: float) -> None:
        """Something took so long."""
        self.counts[next((index for index, bound in enumerate(BOUNDS_S) if seconds <= bound), len(BOUNDS_S))] += 1
        self.sum_s += seconds


class Solving:
    """Solves the problems of a scheduler. Its thread begins with the first of them."""

    def __init__(self, answered: Callable[[int, Any], None]) -> None:
        self._answered = answered
        """Called on the loop with a problem's number and its answer; None if it could not be had."""
        self._thread: ThreadPoolExecutor | None = None
        self._problems: dict[asyncio.Future[Any], Problem] = {}
        """Those that have no answer."""
        self.times = Times()

    def solve(self, number: int, problem: Problem) -> None:
        """Compute it; the answer is an event like others."""
        solving = self._submit(partial(_timed, problem))
        self._problems[solving] = problem
        solving.add_done_callback(partial(self._solved, number))

    async def compute(self, work: Callable[[], Answer]) -> Answer:
        """Have it done in the same thread, after what is to be done there before: so it may look at what problems
        change."""
        return await self._submit(work)

    def _submit(self, work: Callable[[], Answer]) -> asyncio.Future[Answer]:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "sparrow-solving")
        return asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _solved(self, number: int, solving: asyncio.Future[Any]) -> None:
        del self._problems[solving]
        if solving.cancelled():
            return
        error = solving.exception()
        if error is not None:
            log.error("problem %d was not solved", number, exc_info=error)
            self._answered(number, None)
            return
        seconds, answer = solving.result()
        self.times.add(seconds)
        self._answered(number, answer)

    def stop(self) -> None:
        """No answer is needed any more: what is being computed is told to end, and is not waited for."""
        for solving, problem in list(self._problems.items()):
            if isinstance(problem, Stoppable):
                problem.stop()
            solving.cancel()
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)


def _timed(problem: Problem) -> tuple[float, Any]:
    begun_s = time.perf_counter()
    answer = problem()
    return time.perf_counter() - begun_s, answer
