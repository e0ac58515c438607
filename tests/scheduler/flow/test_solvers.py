"""What holds of every solver: known answers, the oracle's costs, problems without an answer."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.flow.problem import InfeasibleError, Problem, ProblemError
from scheduler.flow.solver_table import SOLVERS, solver
from scheduler.flow.solvers import cost_scaling
from scheduler.flow.solvers.solver import Solve
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


def one_arc(**changes: int) -> Problem:
    """Node 0 sends 1 to node 1."""
    arc = {"tail": 0, "head": 1, "cost": 1, "capacity": 1, "minimum": 0} | changes
    return Problem(**{field: integers([value]) for field, value in arc.items()}, supply=integers([1, -1]))


@each_solver
@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (one_arc(tail=2), "tail of arc 0 is 2; there is no such node"),
        (one_arc(head=-1), "head of arc 0 is -1; there is no such node"),
        (one_arc(head=0), "head of arc 0 is 0; that is its tail"),
        (one_arc(capacity=-1), "capacity of arc 0 is -1; allowed are 0 to"),
        (one_arc(minimum=2), "minimum of arc 0 is 2; allowed are 0 to 1"),
        (replace(one_arc(), supply=integers([1, 0])), "supplies add up to 1; they must add up to 0"),
        (replace(one_arc(), cost=integers([])), "cost has 0 entries; there are 1 arcs"),
        (one_arc(capacity=2**62), "capacity of arc 0 is [\\d,]+; allowed are 0 to"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_no_problem_is_refused(solve: Solve, problem: Problem, message: str) -> None:
    with pytest.raises(ProblemError, match=message):
        solve(problem)


@pytest.mark.parametrize("name", ["relaxation", "successive-paths"])
@pytest.mark.parametrize("known", INFEASIBLE, ids=repr)
def test_those_that_send_path_by_path_name_the_node(name: str, known: Known) -> None:
    with pytest.raises(InfeasibleError, match=r"node \d+: (1 unit finds|\d+ units find) no way (from|to) there"):
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
