"""Kinds of stages: what decides on which nodes a stage may run."""

from __future__ import annotations

from typing import NamedTuple

from sparrow_py.constraints import Constraint
from sparrow_py.wire.messages import Stage


class Kind(NamedTuple):
    """What decides on which nodes a stage may run: those of the same kind may run on the same (§3.3)."""

    app: str
    runtime: str
    where: tuple[Constraint, ...]
    demand: tuple[tuple[str, float], ...]

    @classmethod
    def of(cls, stage: Stage) -> Kind:
        """The stage's kind."""
        demand = tuple(sorted(stage.demand.items())) if stage.demand else ()
        return cls(stage.app, stage.runtime, stage.where, demand)
