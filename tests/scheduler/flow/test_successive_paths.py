"""Successive shortest paths."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from benchmarks.quincy_graphs import quincy_graph
from scheduler.flow.problem import Problem, StoppedError
from scheduler.flow.solvers import successive_paths
from scheduler.flow.solvers.stopping import stop_flag
from tests.support.flow_problems import feasible_problems, oracle_cost
from tests.support.flow_proofs import assert_least_cost


@settings(max_examples=30)
@given(feasible_problems())
def test_negative_cycles_are_filled(problem: Problem) -> None:
    turned = Problem(problem.tail, problem.head, -problem.cost, problem.capacity, problem.minimum, problem.supply)
    solution = successive_paths.solve(turned)
    assert_least_cost(turned, solution)
    assert solution.cost == oracle_cost(turned)


def test_it_stops_when_told() -> None:
    problem = quincy_graph(40, 2).problem
    flag = stop_flag()
    flag[0] = 1
    with pytest.raises(StoppedError):
        successive_paths.solve(problem, stop=flag)
    flag[0] = 0
    assert successive_paths.solve(problem, stop=flag).cost == oracle_cost(problem)
