"""CPU time of one solve, and its end when it takes too long."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from benchmarks.flow.outcome import BEYOND
from scheduler.flow.problem import StoppedError
from scheduler.flow.solvers.stopping import StopFlag, stop_flag

Result = TypeVar("Result")

LOOK_EVERY_S = 0.05


@dataclass(frozen=True, slots=True)
class Timed(Generic[Result]):
    """How long something took in its thread; result: None if it was stopped."""

    cpu_s: float
    wall_s: float
    result: Result | None

    @property
    def cell(self) -> float | str:
        """For a table."""
        return BEYOND if self.result is None else self.cpu_s


def timed(step: Callable[[], Result]) -> tuple[float, Result]:
    """CPU seconds of this thread."""
    start_s = time.thread_time()
    result = step()
    return time.thread_time() - start_s, result


def within(limit_s: float, solve: Callable[[StopFlag], Result]) -> Timed[Result]:
    """Solve, in this thread; another one sets the flag when this one has used up so much CPU time."""
    flag, done = stop_flag(), threading.Event()
    clock = time.pthread_getcpuclockid(threading.get_ident())
    before_s = time.clock_gettime(clock)

    def watch() -> None:
        while not done.wait(LOOK_EVERY_S):
            if time.clock_gettime(clock) - before_s > limit_s:
                flag[0] = 1
                return

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    start_s, wall_s = time.thread_time(), time.perf_counter()
    result: Result | None = None
    try:
        result = solve(flag)
    except StoppedError:
        pass
    finally:
        cpu_s, wall_s = time.thread_time() - start_s, time.perf_counter() - wall_s
        done.set()
        watcher.join()
    return Timed(cpu_s, wall_s, result)
