"""The problems that the solvers' tests use: their answers are OR-tools' too, and what is made up is what it says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from benchmarks.quincy_graphs import quincy_graph
from scheduler.flow.problem import InfeasibleError, Problem
from tests.support.flow_problems import (
    INFEASIBLE,
    KNOWN,
    Known,
    feasible_problems,
    flows,
    oracle_cost,
    oracle_flow,
    oracle_solve,
    scheduling_problems,
    with_offset,
)


@pytest.mark.parametrize("known", KNOWN, ids=repr)
def test_known_answers_are_the_oracles(known: Known) -> None:
    assert oracle_cost(known.problem) == known.cost
    found = flows(known.problem, known.numbers, oracle_flow(known.problem))
    assert {pair: found.get(pair, 0) for pair in known.flow} == known.flow


@pytest.mark.parametrize("known", INFEASIBLE, ids=repr)
def test_the_oracle_says_what_is_infeasible(known: Known) -> None:
    with pytest.raises(InfeasibleError):
        oracle_cost(known.problem)


@given(feasible_problems())
def test_made_up_problems_have_an_answer(problem: Problem) -> None:
    solution = oracle_solve(problem)
    assert solution.cost == oracle_cost(problem)
    assert np.all((problem.minimum <= solution.flow) & (solution.flow <= problem.capacity))


@given(scheduling_problems())
def test_made_up_tasks_all_go_somewhere(problem: Problem) -> None:
    assert oracle_cost(problem) >= 0


def test_a_quincy_graph_has_the_size_of_the_study() -> None:
    graph = quincy_graph(1250)
    assert 14_500 < len(graph.problem.supply) < 15_500
    assert 160_000 < len(graph.problem.tail) < 185_000
    assert graph.problem.supply.sum() == 0
    assert graph.problem.cost.min() >= 0
    assert int((graph.running_on >= 0).sum()) == 13_500
    assert np.bincount(graph.running_on[graph.running_on >= 0]).max() <= 12
    tails = graph.problem.tail[: graph.first_arc[-1]]
    assert np.array_equal(tails, np.repeat(np.arange(len(graph.tasks)) + graph.tasks[0], np.diff(graph.first_arc)))


@pytest.mark.parametrize("skew", [0.0, 0.8])
def test_a_quincy_graph_has_an_answer_and_an_offset_moves_nothing(skew: float) -> None:
    graph = quincy_graph(40, seed=3, skew=skew)
    cost = oracle_cost(graph.problem)
    assert oracle_cost(with_offset(graph.problem, graph.tasks[0], 7)) == cost + 7


def test_equal_seeds_make_equal_graphs() -> None:
    first, second, other = quincy_graph(40, 5).problem, quincy_graph(40, 5).problem, quincy_graph(40, 6).problem
    assert np.array_equal(first.cost, second.cost)
    assert np.array_equal(first.head, second.head)
    assert not np.array_equal(first.cost, other.cost)
