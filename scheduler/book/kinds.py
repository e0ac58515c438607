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
    avoid_by: str = ""
    """The attribute by which its job avoids others, which a node must have (§8); empty if there is none."""

    @classmethod
    def of(cls, stage: Stage, avoid_by: str) -> Kind:
        """The kind of a stage of a job with this `avoid_by`."""
        demand = tuple(sorted(stage.demand.items())) if stage.demand else ()
        return cls(stage.app, stage.runtime, stage.where, demand, avoid_by)
