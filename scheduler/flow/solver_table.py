"""The solvers by name. A solver's module, and numba with it, is imported when its solver is asked for."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import cast

from scheduler.flow.solvers.solver import Solve

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
