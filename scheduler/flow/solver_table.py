"""The solvers by name. A solver's module, and numba with it, is imported when its solver is asked for."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Protocol, cast

from scheduler.flow.problem import Problem, Solution
from scheduler.flow.solvers.stopping import StopFlag


class Solve(Protocol):
    """What solves a problem; from `start`, if it has the solution of a similar one, and until `stop` is set."""

    def __call__(self, problem: Problem, start: Solution | None = None, stop: StopFlag | None = None) -> Solution:
        """`InfeasibleError` if no flow meets all supplies and minimum flows, `StoppedError` if it was told to stop."""
        ...


SOLVERS: Mapping[str, str] = {
    "relaxation": "scheduler.flow.solvers.relaxation",
    "cost-scaling": "scheduler.flow.solvers.cost_scaling",
    "successive-paths": "scheduler.flow.solvers.successive_paths",
    "cycle-cancelling": "scheduler.flow.solvers.cycle_cancelling",
}
"""Each a module with a function `solve`."""

DEFAULT = "relaxation"


def solver(name: str) -> Solve:
    """The solver of this name, of `SOLVERS`; `ModuleNotFoundError` if a package that it needs is not installed."""
    return cast(Solve, importlib.import_module(SOLVERS[name]).solve)
