"""What holds of every solver: known answers, the oracle's costs, problems without an answer."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.flow.problem import InfeasibleError, Problem
from scheduler.flow.solver_table import SOLVERS, Solve, solver
from scheduler.flow.solvers import cost_scaling
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
    scheduling_problems,
)
from tests.support.flow_proofs import assert_least_cost

ALL: dict[str, Solve] = {name: solver(name) for name in SOLVERS} | {
    "cost-scaling, alpha 2": partial(cost_scaling.solve, alpha=2, first_divisor=1)
}
each_solver = pytest.mark.parametrize("solve", ALL.values(), ids=ALL)


@each_solver
@pytest.mark.parametrize("known", KNOWN, ids=repr)
def test_known_answers(solve: Solve, known: Known) -> None:
    solution = solve(known.problem)
    assert solution.cost == known.cost
    assert_least_cost(known.problem, solution)
    found = flows(known.problem, known.numbers, solution.flow)
    assert {pair: found.get(pair, 0) for pair in known.flow} == known.flow


@each_solver
@pytest.mark.parametrize("known", INFEASIBLE, ids=repr)
def test_where_there_is_no_flow_solvers_say_so(solve: Solve, known: Known) -> None:
    with pytest.raises(InfeasibleError):
        solve(known.problem)


@pytest.mark.parametrize("name", ["relaxation", "successive-paths"])
@pytest.mark.parametrize("known", INFEASIBLE, ids=repr)
def test_those_that_send_path_by_path_name_the_node(name: str, known: Known) -> None:
    with pytest.raises(InfeasibleError, match=r"node \d+: \d+ units find no way (from|to) there"):
        ALL[name](known.problem)


@each_solver
@given(problem=st.one_of(feasible_problems(), scheduling_problems()))
def test_the_cost_is_the_oracles(solve: Solve, problem: Problem) -> None:
    solution = solve(problem)
    assert solution.cost == oracle_cost(problem)
    assert_least_cost(problem, solution)


@each_solver
def test_a_start_of_a_similar_problem_is_taken_up(solve: Solve) -> None:
    before, after = network(*five_tasks())[0], network(*five_tasks(9, slots={"M3": 2}))[0]
    solution = solve(after, solve(before))
    assert solution.cost == 16
    assert_least_cost(after, solution)


@each_solver
def test_nothing_to_send_is_solved(solve: Solve) -> None:
    none = integers([])
    assert solve(Problem(none, none, none, none, none, none)).cost == 0
    assert solve(Problem(none, none, none, none, none, integers([0, 0]))).cost == 0
