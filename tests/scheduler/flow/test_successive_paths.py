"""Successive shortest paths."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.flow.problem import InfeasibleError, Problem, ProblemError, StoppedError
from scheduler.flow.solvers import successive_paths
from scheduler.flow.solvers.stopping import stop_flag
from tests.support.flow_problems import (
    INFEASIBLE,
    KNOWN,
    Known,
    feasible_problems,
    five_tasks,
    flows,
    integers,
    network,
    oracle_cost,
    quincy_graph,
    scheduling_problems,
)
from tests.support.flow_proofs import assert_least_cost


@pytest.mark.parametrize("known", KNOWN, ids=repr)
def test_known_answers(known: Known) -> None:
    solution = successive_paths.solve(known.problem)
    assert solution.cost == known.cost
    assert_least_cost(known.problem, solution)
    found = flows(known.problem, known.numbers, solution.flow)
    assert {pair: found.get(pair, 0) for pair in known.flow} == known.flow


@pytest.mark.parametrize("known", INFEASIBLE, ids=repr)
def test_what_has_no_answer_names_a_node(known: Known) -> None:
    with pytest.raises(InfeasibleError, match=r"node \d+: \d+ units find no way (from|to) there"):
        successive_paths.solve(known.problem)


@given(st.one_of(feasible_problems(), scheduling_problems()))
def test_the_cost_is_the_oracles(problem: Problem) -> None:
    solution = successive_paths.solve(problem)
    assert_least_cost(problem, solution)
    assert solution.cost == oracle_cost(problem)


@settings(max_examples=30)
@given(feasible_problems())
def test_negative_cycles_are_filled(problem: Problem) -> None:
    turned = Problem(problem.tail, problem.head, -problem.cost, problem.capacity, problem.minimum, problem.supply)
    solution = successive_paths.solve(turned)
    assert_least_cost(turned, solution)
    assert solution.cost == oracle_cost(turned)


def test_a_start_of_a_similar_problem_is_taken_up() -> None:
    before, after = network(*five_tasks())[0], network(*five_tasks(9, slots={"M3": 2}))[0]
    solution = successive_paths.solve(after, successive_paths.solve(before))
    assert solution.cost == 16
    assert_least_cost(after, solution)


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
