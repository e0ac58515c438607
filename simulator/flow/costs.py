"""What rounds cost in virtual time: a formula of counted work, so that equal seeds give equal bytes.

The constants are measured by `python -m benchmarks.flow calibrate`, as CPU time.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from sparrow_py.job import check_number

COST_MAX = 1e9
VISITS_PER_STEP = 0.25
"""Of a relaxation that was stopped: nodes that it looked at for each arc. Of others they are counted."""
FAR_ARCS = 1e6
"""Of a problem for which no cache is large enough."""


@dataclass(slots=True)
class SolverWork:
    """What solvers have done: nodes and arcs that relaxation looked at; for cost scaling, arcs of its problems, and
    nodes that it looked at."""

    relaxations: int = 0
    visits: int = 0
    steps: int = 0
    scalings: int = 0
    scaling_arcs: int = 0
    scaling_steps: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class FlowCosts:
    """By unit of work. round_us, node_ns: of a round, and for each node that the network has. task_us, run_us,
    gone_us: for each task that comes, is told to run, or goes. The others are those of `SolverWork`; far_step_ns: more
    for a step of cost scaling in a problem of `FAR_ARCS`, in one of fewer accordingly less."""

    round_us: float = 0.0
    node_ns: float = 0.0
    task_us: float = 0.0
    run_us: float = 0.0
    gone_us: float = 0.0
    relaxation_us: float = 0.0
    visit_ns: float = 0.0
    step_ns: float = 1.0
    scaling_us: float = 0.0
    scaling_arc_ns: float = 1.0
    scaling_step_ns: float = 1.0
    far_step_ns: float = 0.0

    def __post_init__(self) -> None:
        for field in fields(self):
            check_number(field.name, getattr(self, field.name), 0, COST_MAX)

    def round_s(self, *, nodes: int, tasks: int, run: int, gone: int) -> float:
        """All of a round but its solves."""
        told_us = self.task_us * tasks + self.run_us * run + self.gone_us * gone
        return (self.round_us + self.node_ns * nodes / 1e3 + told_us) / 1e6

    def relaxation_s(self, visits: float, steps: int) -> float:
        """Of one solve."""
        return (1e3 * self.relaxation_us + self.visit_ns * visits + self.step_ns * steps) / 1e9

    def steps_in(self, seconds: float) -> int:
        """About how many steps relaxation does in so long."""
        step_ns = self.step_ns + VISITS_PER_STEP * self.visit_ns
        return max(0, int((1e9 * seconds - 1e3 * self.relaxation_us) / max(step_ns, 1e-3)))

    def scaling_s(self, arcs: int, steps: int) -> float:
        """Of one solve."""
        return (1e3 * self.scaling_us + self.scaling_arc_ns * arcs + self._scaling_step_ns(arcs) * steps) / 1e9

    def scaling_steps_in(self, seconds: float, arcs: int) -> int:
        """How many steps cost scaling does in so long."""
        left_ns = 1e9 * (seconds - self.scaling_s(arcs, 0))
        return max(0, int(left_ns / max(self._scaling_step_ns(arcs), 1e-3)))

    def _scaling_step_ns(self, arcs: int) -> float:
        return self.scaling_step_ns + self.far_step_ns * arcs / FAR_ARCS
