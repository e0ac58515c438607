"""Price refine finds potentials that prove a flow optimal, or says that it is not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.quincy_graphs import quincy_graph
from scheduler.flow.check import fault_of_solution
from scheduler.flow.problem import Problem, StoppedError
from scheduler.flow.solvers import cost_scaling
from scheduler.flow.solvers.refine import NotOptimalError, refine
from scheduler.flow.solvers.stopping import stop_flag
from tests.support.flow_problems import feasible_problems, integers, network, oracle_flow


@given(problem=feasible_problems(), spread=st.integers(0, 50), seed=st.integers(0, 9))
def test_potentials_prove_the_flow_from_wherever_they_start(problem: Problem, spread: int, seed: int) -> None:
    chance = np.random.default_rng(seed)
    wide = chance.integers(-spread, spread + 1, len(problem.supply))
    flow = oracle_flow(problem)
    before = wide.copy()
    refined = refine(problem, flow, wide)
    assert fault_of_solution(problem, refined) == ""
    assert np.array_equal(refined.flow, flow)
    assert np.array_equal(wide, before)


@given(feasible_problems())
def test_potentials_that_fit_stay(problem: Problem) -> None:
    solution = cost_scaling.solve(problem)
    assert np.array_equal(refine(problem, solution.flow, solution.potential).potential, solution.potential)


def test_after_refine_cost_scaling_starts_with_the_smallest_epsilon() -> None:
    """Potentials of 0 fit no task's flow: cost scaling would do its work again."""
    graph = quincy_graph(100)
    problem = graph.problem
    flow = cost_scaling.solve(problem).flow
    refined = refine(problem, flow)
    task = graph.tasks[0]
    dearer = replace(problem, cost=np.where(problem.tail == task, problem.cost + 100, problem.cost))
    assert works_of(dearer, refined.flow, refined.potential) == 0
    assert works_of(dearer, flow, np.zeros_like(refined.potential)) > 0


def works_of(problem: Problem, flow: np.ndarray, potential: np.ndarray) -> int:
    """Steps of warm cost scaling."""
    unit = len(problem.supply) + 1
    ordered = cost_scaling.residual_of(problem, flow, unit)
    scaling = cost_scaling.Scaling(ordered, cost_scaling.scaled(potential, unit), stop_flag(), cost_scaling.ALPHA)
    scaling.run_warm(cost_scaling.FIRST_DIVISOR)
    return sum(phase.work for phase in scaling.phases)


def test_a_dearer_flow_is_not_proven() -> None:
    problem, _ = network({"a": 1, "b": -1}, [("a", "b", 1, 1), ("a", "b", 2, 1)])
    assert refine(problem, integers([1, 0])).cost == 1
    with pytest.raises(NotOptimalError, match="residual cycle of negative cost"):
        refine(problem, integers([0, 1]))


def test_a_flow_that_does_not_balance_is_not_proven() -> None:
    problem, _ = network({"a": 1, "b": -1}, [("a", "b", 1, 1)])
    with pytest.raises(NotOptimalError, match="not feasible"):
        refine(problem, integers([0]))


def test_refine_stops() -> None:
    problem = quincy_graph(50).problem
    flow = cost_scaling.solve(problem).flow
    flag = stop_flag()
    flag[0] = 1
    with pytest.raises(StoppedError):
        refine(problem, flow, None, flag)
