"""Two solvers race for the same problem, each in a thread (paper 004, §5.2.6): the first to finish stops the other.

Neither is the faster one for all problems, and which one is cannot be told before. Both read the problem and the
solution to start from, and write to neither.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from scheduler.flow.problem import InfeasibleError, Problem, Solution, StoppedError
from scheduler.flow.solvers.solver import Solve
from scheduler.flow.solvers.stopping import StopFlag, stop_flag

LOOK_AT_FLAG_S = 0.005
"""How often the race looks whether it was told to stop."""


@dataclass(frozen=True, slots=True)
class Raced:
    """How a race ended."""

    solution: Solution
    winner: int
    """Whose it is: 0 or 1."""
    started: int
    """How many solvers had started."""
    failures: tuple[Exception | None, Exception | None]
    """What a solver raised, unless it was because it was stopped; the answer is the other's then."""


class Runner:
    """One solver in its thread."""

    def __init__(self, solver: Solve, problem: Problem, start: Solution | None, news: threading.Event) -> None:
        self.solver = solver
        self.problem = problem
        self.start = start
        self.news = news
        self.flag = stop_flag()
        self.solution: Solution | None = None
        self.failure: Exception | None = None
        self.thread = threading.Thread(target=self.run, name="flow solver", daemon=True)

    @property
    def is_started(self) -> bool:
        return self.thread.ident is not None

    @property
    def is_done(self) -> bool:
        """Whether it has an answer, or will have none."""
        return self.solution is not None or self.failure is not None

    def run(self) -> None:
        """In the thread."""
        try:
            self.solution = self.solver(self.problem, self.start, self.flag)
        except Exception as error:  # The race goes on with the other one.
            self.failure = error
        finally:
            self.news.set()

    def end(self) -> None:
        """Have it stop, and wait until it has."""
        self.flag[0] = 1
        if self.is_started:
            self.thread.join()


def race(
    first: Solve,
    second: Solve,
    problem: Problem,
    start: Solution | None = None,
    stop: StopFlag | None = None,
    *,
    second_after_s: float = 0.0,
) -> Raced:
    """The answer of the solver that finishes first. No thread is left when this returns or raises.

    The second starts after `second_after_s`, or when the first has failed: it may never have to. A solver that raises
    leaves the race to the other, even if it says that the problem is infeasible; if both raise, the first's exception
    is raised, but `InfeasibleError` if one of both says so.
    """
    news = threading.Event()
    runners = Runner(first, problem, start, news), Runner(second, problem, start, news)
    try:
        runners[0].thread.start()
        if second_after_s > 0:
            wait_for_news(news, stop, second_after_s)
        if runners[0].solution is None:
            runners[1].thread.start()
        while (winner := winner_of(runners)) is None:
            if all(runner.is_done for runner in runners):
                raise failure_of(runners)
            wait_for_news(news, stop, None)
    finally:
        for runner in runners:
            runner.end()
    solution = runners[winner].solution
    assert solution is not None
    failures = [None if isinstance(runner.failure, StoppedError) else runner.failure for runner in runners]
    return Raced(solution, winner, sum(runner.is_started for runner in runners), (failures[0], failures[1]))


def wait_for_news(news: threading.Event, stop: StopFlag | None, seconds_max: float | None) -> None:
    """Until a solver is done or the time is over; `StoppedError` if the flag is set."""
    waited_s = 0.0
    while True:
        if stop is not None and stop[0] != 0:
            raise StoppedError("the race was told to stop")
        left_s = None if seconds_max is None else seconds_max - waited_s
        if left_s is not None and left_s <= 0:
            return
        step_s = left_s if stop is None else LOOK_AT_FLAG_S if left_s is None else min(left_s, LOOK_AT_FLAG_S)
        if news.wait(step_s):
            news.clear()
            return
        waited_s += step_s or 0.0


def winner_of(runners: tuple[Runner, Runner]) -> int | None:
    """Who has a solution."""
    for number, runner in enumerate(runners):
        if runner.solution is not None:
            return number
    return None


def failure_of(runners: tuple[Runner, Runner]) -> Exception:
    """What to raise when both have failed; what the other raised is in its notes."""
    failures = [runner.failure for runner in runners if runner.failure is not None]
    failures.sort(key=lambda failure: not isinstance(failure, InfeasibleError))
    if type(failures[0]) is not type(failures[1]):
        failures[0].add_note(f"the other solver of the race raised {failures[1]!r}")
    return failures[0]
