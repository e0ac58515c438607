"""Solvers that may do so many steps: equal runs stop at the same place, and go on or start anew from there."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.quincy_graphs import quincy_graph
from scheduler.flow.graph import FlowGraph
from scheduler.flow.problem import StoppedError
from scheduler.flow.solvers.cost_scaling import start_scaling
from scheduler.flow.solvers.relaxation import Relaxation
from scheduler.flow.solvers.stopping import POLL_STEPS, stop_flag
from tests.support.flow_problems import oracle_cost

PROBLEM = quincy_graph(60, arriving=0.3).problem


def test_relaxation_stops_after_its_steps_and_goes_on() -> None:
    flows = []
    for _ in range(2):
        graph = FlowGraph.of(PROBLEM)
        solver = Relaxation(graph)
        with pytest.raises(StoppedError):
            solver.solve(stop_flag(POLL_STEPS))
        flows.append(graph.flow.copy())
        solver.solve()
        assert graph.solution().cost == oracle_cost(PROBLEM)
    assert flows[0].any() and np.array_equal(*flows)


def test_cost_scaling_stops_after_its_steps() -> None:
    whole = start_scaling(PROBLEM).go()
    assert whole.work > 2 * POLL_STEPS and whole.fills >= 2
    assert whole.solution().cost == oracle_cost(PROBLEM)
    flows = []
    for _ in range(2):
        part = start_scaling(PROBLEM, stop=stop_flag(POLL_STEPS))
        with pytest.raises(StoppedError):
            part.go()
        assert POLL_STEPS <= part.work <= whole.work // 2 + POLL_STEPS
        flows.append(part.ordered.flow())
    assert np.array_equal(*flows)


def test_as_many_steps_as_are_needed_change_nothing() -> None:
    whole = start_scaling(PROBLEM).go()
    same = start_scaling(PROBLEM, stop=stop_flag(2 * whole.work)).go()
    assert np.array_equal(same.solution().flow, whole.solution().flow)
    graph = FlowGraph.of(PROBLEM)
    steps = Relaxation(graph).solve().steps
    again = FlowGraph.of(PROBLEM)
    Relaxation(again).solve(stop_flag(steps + POLL_STEPS))
    assert np.array_equal(again.flow, graph.flow)
