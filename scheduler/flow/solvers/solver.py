"""What every solver is to whoever has a problem solved."""

from __future__ import annotations

from typing import Protocol

from scheduler.flow.problem import Problem, Solution
from scheduler.flow.solvers.stopping import StopFlag


class Solve(Protocol):
    """What solves a problem; from `start`, if it has the solution of a similar one, and until `stop` is set.

    It runs without the GIL where it takes part in a race.
    """

    def __call__(self, problem: Problem, start: Solution | None = None, stop: StopFlag | None = None) -> Solution:
        """`ProblemError` if the problem is none (`limits.check_problem`), `InfeasibleError` if no flow meets all
        supplies and minimum flows, `StoppedError` if it was told to stop."""
        ...
