"""Successive shortest paths."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from scheduler.flow.problem import Problem, ProblemError, StoppedError
from scheduler.flow.solvers import successive_paths
from scheduler.flow.solvers.stopping import stop_flag
from tests.support.flow_problems import (
    feasible_problems,
    integers,
    oracle_cost,
    quincy_graph,
)
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


def test_bad_problems_are_refused() -> None:
    columns = [integers([value]) for value in (0, 1, 2**60, 5, 0)]
    with pytest.raises(ProblemError, match=r"cost: the largest, \d+, times 2 nodes needs more than 62 bits"):
        successive_paths.solve(Problem(*columns, integers([1, -1])))
