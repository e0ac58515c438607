"""What is no problem, no flow, or not of least cost is found, and named by its first arc or node."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.flow import check
from scheduler.flow.problem import Problem, ProblemError, Solution
from tests.support.flow_problems import KNOWN, feasible_problems, integers, oracle_solve

SIX = KNOWN[0].problem


def changed(problem: Problem, field: str, index: int, value: int) -> Problem:
    values = getattr(problem, field).copy()
    values[index] = value
    return replace(problem, **{field: values})


@given(feasible_problems())
def test_the_oracles_answer_is_right(problem: Problem) -> None:
    check.check_problem(problem)
    assert check.fault_of_solution(problem, oracle_solve(problem)) == ""


@given(feasible_problems(), st.data())
def test_no_other_flow_passes_for_one_of_least_cost(problem: Problem, data: st.DataObject) -> None:
    solution = oracle_solve(problem)
    other = solution.flow + integers(
        data.draw(st.lists(st.integers(-1, 1), min_size=len(solution.flow), max_size=len(solution.flow)))
    )
    if not check.fault_of_flow(problem, other):
        dearer = check.cost_of(problem, other) > solution.cost
        assert bool(check.fault_of_potentials(problem, other, solution.potential)) == dearer


@pytest.mark.parametrize(
    ("field", "index", "value", "message"),
    [
        ("tail", 2, 6, "tail of arc 2 is 6; there is no such node"),
        ("head", 0, -1, "head of arc 0 is -1; there is no such node"),
        ("head", 1, 0, "head of arc 1 is 0; that is its tail; it must be another node"),
        ("capacity", 3, -2, "capacity of arc 3 is -2; allowed are 0 to 4,294,967,295"),
        ("minimum", 4, 4, "minimum of arc 4 is 4; allowed are 0 to 3"),
        (
            "cost",
            5,
            1 << 60,
            "cost of arc 5 is 1,152,921,504,606,846,976; with 6 nodes allowed are -",
        ),
        ("supply", 5, 1 << 40, "supply of node 5 is 1,099,511,627,776; allowed are -4,294,967,295 to"),
        ("supply", 5, -4, "supplies add up to 1; they must add up to 0"),
    ],
)
def test_what_is_no_problem_is_named(field: str, index: int, value: int, message: str) -> None:
    with pytest.raises(ProblemError) as caught:
        check.check_problem(changed(SIX, field, index, value))
    assert str(caught.value).startswith(message)


def test_arrays_that_do_not_fit_together_are_named() -> None:
    with pytest.raises(ProblemError, match="head has 7 entries; there are 8 arcs"):
        check.check_problem(replace(SIX, head=SIX.head[:7]))
    with pytest.raises(ProblemError, match="cost is an array of float64"):
        check.check_problem(replace(SIX, cost=SIX.cost.astype(float)))  # type: ignore[arg-type]


def test_a_negative_cycle_is_named() -> None:
    arcs = integers([0, 1, 2, 3]), integers([1, 2, 3, 1]), integers([5, 2, -4, 1])
    ring = Problem(*arcs, integers([1] * 4), integers([0] * 4), integers([0] * 4))
    cycle = check.negative_cycle(ring)
    assert sorted(cycle) == [1, 2, 3]
    with pytest.raises(ProblemError, match=r"the costs of the cycle [\d → ]+ add up to -1; they must"):
        check.check_problem(ring)
    assert check.negative_cycle(changed(ring, "cost", 3, 2)) == []
    assert check.negative_cycle(changed(ring, "capacity", 1, 0)) == []


@settings(max_examples=200)
@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(-4, 6)).filter(lambda arc: arc[0] != arc[1]),
        max_size=14,
    )
)
def test_a_negative_cycle_is_found_if_there_is_one(arcs: list[tuple[int, int, int]]) -> None:
    columns = [integers(column) for column in zip(*arcs, strict=True)] or [integers([])] * 3
    problem = Problem(*columns, integers([1] * len(arcs)), integers([0] * len(arcs)), integers([0] * 6))
    cycle = check.negative_cycle(problem)
    heads = [arcs[arc][1] for arc in cycle]
    assert [arcs[arc][0] for arc in cycle] == heads[-1:] + heads[:-1]
    assert sum(arcs[arc][2] for arc in cycle) < 0 or not cycle
    distance = {(a, b): 0 if a == b else 10**6 for a in range(6) for b in range(6)}
    for tail, head, cost in arcs:
        distance[tail, head] = min(distance[tail, head], cost)
    for k in range(6):
        for a in range(6):
            for b in range(6):
                distance[a, b] = min(distance[a, b], distance[a, k] + distance[k, b])
    assert bool(cycle) == any(distance[node, node] < 0 for node in range(6))


def test_a_long_path_of_negative_costs_is_no_cycle() -> None:
    nodes = np.arange(2000)
    path = Problem(
        nodes[:-1], nodes[1:], np.full(1999, -1), np.ones(1999, np.int64), np.zeros(1999, np.int64), nodes * 0
    )
    assert check.negative_cycle(path) == []


def test_a_flow_out_of_its_bounds_or_out_of_balance_is_named() -> None:
    flow = oracle_solve(SIX).flow
    assert check.fault_of_flow(SIX, flow[:3]) == "the flow has 3 entries; there are 8 arcs"
    flow[2] = 3
    assert check.fault_of_flow(SIX, flow) == "arc 2 (1 → 2) carries 3; allowed are 0 to 2"
    flow[2] = 0
    assert check.fault_of_flow(SIX, flow).startswith("node 1 sends out")


def test_potentials_that_prove_nothing_are_named_with_their_arc() -> None:
    solution = oracle_solve(SIX)
    wrong = solution.potential.copy()
    wrong[0] += 1
    assert check.fault_of_potentials(SIX, solution.flow, wrong).startswith("arc 0 (0 → 1) of reduced cost -1 carries")
    assert check.fault_of_potentials(SIX, solution.flow, wrong[:2]) == "there are 2 potentials; there are 6 nodes"
    other = Solution(solution.flow, solution.potential, 39)
    assert check.fault_of_solution(SIX, other) == "the cost is 38, not 39"


def test_a_cost_beyond_64_bits_is_added_up_exactly() -> None:
    two = Problem(*(integers([value] * 4) for value in (0, 1, 1 << 58, 1 << 31, 0)), integers([0, 0]))
    assert check.cost_of(two, two.capacity) == 1 << 91
