"""What rounds cost in virtual time: a formula of counted work, so that equal seeds give equal bytes.

The constants are measured by `python -m benchmarks.flow calibrate`, as CPU time.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from sparrow_py.job import check_number

COST_MAX = 1e9


@dataclass(slots=True)
class SolverWork:
    """What solvers have done: arcs that relaxation looked at; for cost scaling, arcs of its problems, arcs that its
    phases filled or emptied or left, nodes that it looked at."""

    relaxations: int = 0
    steps: int = 0
    scaling_arcs: int = 0
    filled_arcs: int = 0
    scaling_steps: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class FlowCosts:
    """By unit of work. round_us, node_ns: of a round, and for each node that the network has. task_us, run_us,
    gone_us: for each task that comes, is told to run, or goes. The others are those of `SolverWork`."""

    round_us: float = 0.0
    node_ns: float = 0.0
    task_us: float = 0.0
    run_us: float = 0.0
    gone_us: float = 0.0
    relaxation_us: float = 0.0
    step_ns: float = 1.0
    scaling_arc_ns: float = 1.0
    filled_arc_ns: float = 0.0
    scaling_step_ns: float = 1.0

    def __post_init__(self) -> None:
        for field in fields(self):
            check_number(field.name, getattr(self, field.name), 0, COST_MAX)

    def round_s(self, *, nodes: int, tasks: int, run: int, gone: int) -> float:
        """All of a round but its solves."""
        told_us = self.task_us * tasks + self.run_us * run + self.gone_us * gone
        return (self.round_us + self.node_ns * nodes / 1e3 + told_us) / 1e6

    def relaxation_s(self, steps: int) -> float:
        """Of one solve."""
        return (1e3 * self.relaxation_us + self.step_ns * steps) / 1e9

    def steps_in(self, seconds: float) -> int:
        """How many steps relaxation does in so long."""
        return max(0, int((1e9 * seconds - 1e3 * self.relaxation_us) / max(self.step_ns, 1e-3)))

    def scaling_s(self, arcs: int, fills: int, steps: int) -> float:
        """Of one solve."""
        return (self.scaling_arc_ns * arcs + self.filled_arc_ns * arcs * fills + self.scaling_step_ns * steps) / 1e9

    def scaling_steps_in(self, seconds: float, arcs: int, fills: int) -> int:
        """How many steps cost scaling does in so long, if it fills all arcs so often."""
        left_ns = 1e9 * (seconds - self.scaling_s(arcs, fills, 0))
        return max(0, int(left_ns / max(self.scaling_step_ns, 1e-3)))
