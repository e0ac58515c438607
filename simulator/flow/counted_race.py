"""The solvers of a network that lasts, raced by counted work: each step costs virtual time, and no clock is looked at.

They alternate: relaxation does as much as takes so long, then cost scaling tries to be done in the same time, then both
get four times as much. The winner is the one that would have been the first of two on cores of their own.
"""

from __future__ import annotations

from collections import Counter
from enum import StrEnum

from scheduler.flow.graph import FlowGraph
from scheduler.flow.problem import Solution, StoppedError
from scheduler.flow.solvers.cost_scaling import Scaling, start_scaling
from scheduler.flow.solvers.relaxation import Relaxation, Round
from scheduler.flow.solvers.stopping import POLL_STEPS, StopFlag, stop_flag
from simulator.flow.costs import VISITS_PER_STEP, FlowCosts, SolverWork

RELAXATION, COST_SCALING, NOTHING = "relaxation", "cost-scaling", ""
MORE = 4
"""Times as much as the time before that both get."""


class Solvers(StrEnum):
    """Who solves. COLD is Quincy: cost scaling from nothing each time."""

    RACE = "race"
    RELAXATION = "relaxation"
    WARM = "cost scaling, warm"
    COLD = "cost scaling, cold"


class CountedRace:
    """In place of `scheduler.flow.solvers.live.LiveRace`. spent_s: virtual time that all solves took so far."""

    def __init__(self, graph: FlowGraph, solvers: Solvers, costs: FlowCosts) -> None:
        self.graph = graph
        self.solvers = solvers
        self.costs = costs
        self.relaxation = Relaxation(graph)
        self.wins: Counter[str] = Counter()
        self.work = SolverWork()
        self.spent_s = 0.0

    def solve(self, stop: StopFlag | None = None) -> str:
        """Make the graph's flow one of least cost; who did."""
        if self.graph.is_settled():
            return NOTHING
        if self.solvers is Solvers.RACE:
            winner, seconds = self._race()
        elif self.solvers is Solvers.RELAXATION:
            done = self.relax(None)
            winner, seconds = RELAXATION, self.costs.relaxation_s(done.visits, done.steps)
        else:
            start = self.graph.solution() if self.solvers is Solvers.WARM else None
            winner, seconds = COST_SCALING, self._adopt(self.scale(start, None))
        self.wins[winner] += 1
        self.spent_s += seconds
        return winner

    # ---- each alone; measured by `benchmarks.flow calibrate`

    def relax(self, stop: StopFlag | None) -> Round:
        """On the graph itself."""
        done = self.relaxation.solve(stop)
        self.work.relaxations += 1
        self.work.visits += done.visits
        self.work.steps += done.steps
        return done

    def scale(self, start: Solution | None, stop: StopFlag | None) -> Scaling:
        """On a copy."""
        problem = self.graph.problem()
        scaling = start_scaling(problem, start, stop)
        try:
            return scaling.go()
        finally:
            self.work.scalings += 1
            self.work.scaling_arcs += len(problem.tail)
            self.work.scaling_steps += scaling.work

    # ---- both

    def _adopt(self, scaling: Scaling) -> float:
        """Take over an answer; how long it took."""
        self.graph.adopt(scaling.solution())
        return self.costs.scaling_s(len(scaling.network.tail), scaling.work)

    def _race(self) -> tuple[str, float]:
        costs = self.costs
        arcs = len(self.graph.tail)
        budget_s = costs.scaling_s(arcs, POLL_STEPS)
        """Before that cost scaling is never done."""
        done_steps = 0
        while True:
            steps = max(costs.steps_in(budget_s) - done_steps, POLL_STEPS)
            try:
                done = self.relax(stop_flag(steps))
                visits = VISITS_PER_STEP * done_steps + done.visits
                return RELAXATION, costs.relaxation_s(visits, done_steps + done.steps)
            except StoppedError:
                done_steps += steps
                self.work.steps += steps
            try:
                start = self.graph.solution()
                scaling = self.scale(start, stop_flag(costs.scaling_steps_in(budget_s, arcs)))
                return COST_SCALING, self._adopt(scaling)
            except StoppedError:
                budget_s *= MORE
