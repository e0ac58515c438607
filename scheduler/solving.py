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
        self._held: list[tuple[Callable[[], Any], asyncio.Future[Any]]] | None = None
        """What waits for `release`, in order; None if nothing has to."""
        self.times = Times()

    def hold(self) -> None:
        """Compute nothing until `release`."""
        if self._held is None:
            self._held = []

    @property
    def holds(self) -> bool:
        """Whether nothing is computed until `release`."""
        return self._held is not None

    def release(self) -> None:
        """Compute what has come meanwhile, and from now on at once."""
        held, self._held = self._held, None
        for work, answer in held or ():
            if not answer.done():
                self._submit(work).add_done_callback(partial(_pass_on, answer))

    def solve(self, number: int, problem: Problem) -> None:
        """Compute it; the answer is an event like others."""
        solving = self._submit(partial(_timed, problem))
        self._problems[solving] = problem
        solving.add_done_callback(partial(self._solved, number))

    def compute(self, work: Callable[[], Answer]) -> asyncio.Future[Answer]:
        """Have it done in the same thread, after what is to be done there before: so it may look at what problems
        change."""
        return self._submit(work)

    def _submit(self, work: Callable[[], Answer]) -> asyncio.Future[Answer]:
        if self._held is not None:
            answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
            self._held.append((work, answer))
            return answer
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
        for _, answer in self._held or ():
            answer.cancel()
        self._held = None
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)


def _pass_on(to: asyncio.Future[Any], answer: asyncio.Future[Any]) -> None:
    """What was held back has been done."""
    if answer.cancelled():
        to.cancel()
    elif to.done():
        answer.exception()  # So it counts as looked at.
    elif (error := answer.exception()) is not None:
        to.set_exception(error)
    else:
        to.set_result(answer.result())


def _timed(problem: Problem) -> tuple[float, Any]:
    begun_s = time.perf_counter()
    answer = problem()
    return time.perf_counter() - begun_s, answer
