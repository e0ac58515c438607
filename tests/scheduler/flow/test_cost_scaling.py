"""Cost scaling finds flows of least cost, cold and from other solutions, and ends where there are none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.quincy_graphs import quincy_graph
from scheduler.flow.check import fault_of_solution
from scheduler.flow.problem import FlowError, Problem, ProblemError, Solution, StoppedError
from scheduler.flow.solvers import cost_scaling, cycle_cancelling, residual
from scheduler.flow.solvers.stopping import stop_flag
from tests.support.flow_problems import (
    KNOWN,
    feasible_problems,
    integers,
    network,
    oracle_cost,
    scheduling_problems,
)

SOLVERS: tuple[Callable[..., Solution], ...] = (
    cost_scaling.solve,
    partial(cost_scaling.solve, alpha=2, first_divisor=1),
    cycle_cancelling.solve,
)
NAMES = ("cost scaling", "cost scaling, alpha 2", "cycle cancelling")
each_solver = pytest.mark.parametrize("solve", SOLVERS, ids=NAMES)


@given(problem=feasible_problems() | scheduling_problems(), alpha=st.sampled_from([2, 9, 1000]))
@settings(max_examples=300)
def test_costs_are_the_oracles(problem: Problem, alpha: int) -> None:
    for solve in (partial(cost_scaling.solve, alpha=alpha, first_divisor=alpha - 1), cycle_cancelling.solve):
        solution = solve(problem)
        assert solution.cost == oracle_cost(problem)
        assert fault_of_solution(problem, solution) == ""


@st.composite
def changed_problems(draw: st.DrawFn) -> tuple[Problem, Problem]:
    """A problem that has an answer, and one with the same arcs that need not have one."""
    before = draw(feasible_problems())
    arcs, nodes = len(before.tail), len(before.supply)
    amounts = st.lists(st.integers(0, 9), min_size=arcs, max_size=arcs)
    capacity = np.where(draw(st.booleans()), before.capacity, integers(draw(amounts)))
    minimum = np.minimum(before.minimum, capacity)
    cost = before.cost + (integers(draw(amounts)) if draw(st.booleans()) else 0)
    supply = before.supply.copy()
    supply[draw(st.integers(0, nodes - 1))] += 2
    supply[draw(st.integers(0, nodes - 1))] -= 2
    return before, replace(before, capacity=capacity, minimum=minimum, cost=cost, supply=supply)


def outcome(solve: Callable[[], Solution]) -> int | type[FlowError]:
    """The least cost, or what there is instead."""
    try:
        return solve().cost
    except FlowError as error:
        return type(error)


@given(pair=changed_problems(), known_potentials=st.booleans())
@settings(max_examples=300)
def test_a_warm_start_ends_as_a_cold_one(pair: tuple[Problem, Problem], known_potentials: bool) -> None:
    before, after = pair
    start = cost_scaling.solve(before)
    if not known_potentials:
        start = replace(start, potential=np.zeros_like(start.potential))
    cold = outcome(lambda: cost_scaling.solve(after))
    assert outcome(lambda: cost_scaling.solve(after, start)) == cold
    assert outcome(lambda: cycle_cancelling.solve(after, start)) == cold
    if isinstance(cold, int):
        assert cold == oracle_cost(after)
        assert fault_of_solution(after, cost_scaling.solve(after, start)) == ""
    else:
        with pytest.raises(cold):
            oracle_cost(after)


def test_an_unchanged_problem_is_solved_without_a_phase() -> None:
    problem = quincy_graph(20).problem
    start = cost_scaling.solve(problem)
    scaling = scaling_of(problem, start)
    scaling.run_warm(1)
    assert scaling.phases == []


def test_few_changes_are_little_work() -> None:
    """The smallest ε is enough for a task that comes, and for one whose place gets dearer."""
    graph = quincy_graph(100)
    task = graph.tasks[-1]
    without = graph.problem.supply.copy()
    without[task], without[graph.sink] = 0, without[graph.sink] + 1
    start = cost_scaling.solve(replace(graph.problem, supply=without))
    cold = scaling_of(graph.problem)
    cold.run(cost_scaling.FIRST_DIVISOR)
    warm = scaling_of(graph.problem, start)
    warm.run_warm(cost_scaling.FIRST_DIVISOR)
    assert [phase.epsilon for phase in warm.phases] == [1]
    assert sum(phase.work for phase in warm.phases) * 20 < sum(phase.work for phase in cold.phases)


def test_when_tasks_outnumber_slots_epsilon_rises() -> None:
    """With a small ε, prices would rise for ever to what waiting costs."""
    problem = quincy_graph(20, slots=12, running=0.9, arriving=1.0).problem
    problem = replace(problem, cost=problem.cost * 1000)
    scaling = scaling_of(problem)
    scaling.run(10**6)
    rising = [phase.epsilon for phase in scaling.phases]
    assert rising[0] < max(rising)
    assert cost_scaling.solve(problem, first_divisor=10**6).cost == oracle_cost(problem)


def test_a_dead_end_lures_nobody_for_ever() -> None:
    """Machines without slots, which cost nothing, beside one that is dear."""
    arcs = [("t", f"dead{number}", 0, 1) for number in range(5)] + [("t", "M", 10**12, 1), ("M", "S", 0, 1)]
    arcs += [(f"dead{number}", "S", 0, 0) for number in range(5)]
    problem, _ = network({"t": 1, "S": -1}, arcs)
    scaling = scaling_of(problem)
    scaling.run(10**12)
    assert sum(phase.work for phase in scaling.phases) < 1000
    assert cost_scaling.solve(problem).cost == 10**12


@given(nodes=st.integers(2, 5), sign=st.sampled_from([1, -1]))
def test_the_largest_costs_do_not_overflow(nodes: int, sign: int) -> None:
    """A way through all nodes, at the greatest cost there may be, beside arcs of the same cost that end nowhere."""
    most = (2**62 - 1) // (nodes * (nodes + 1))
    tail = integers([*range(nodes - 1), *range(nodes - 1)])
    cost = np.full(2 * (nodes - 1), sign * most)
    supply = np.zeros(nodes, np.int64)
    supply[0], supply[-1] = 2, -2
    problem = Problem(tail, tail + 1, cost, np.ones_like(tail), np.zeros_like(tail), supply)
    solution = cost_scaling.solve(problem)
    assert (solution.cost, fault_of_solution(problem, solution)) == (sign * most * 2 * (nodes - 1), "")
    with pytest.raises(
        ProblemError,
        match=f"cost of arc 0 is {sign * (most + 1):,}; with {nodes} nodes allowed",
    ):
        cost_scaling.solve(replace(problem, cost=cost + sign))


def test_an_alpha_below_two_is_refused() -> None:
    with pytest.raises(ValueError, match="alpha is 1, must be 2 or more"):
        cost_scaling.solve(KNOWN[0].problem, alpha=1)


@each_solver
def test_a_stopped_solver_leaves_all_as_it_was(solve: Callable[..., Solution]) -> None:
    problem = quincy_graph(20).problem
    start = cost_scaling.solve(problem)
    before = [values.copy() for values in (problem.supply, problem.cost, start.flow, start.potential)]
    flag = stop_flag()
    flag[0] = 1
    for begin in (None, start):
        with pytest.raises(StoppedError):
            solve(problem, begin, flag)
    after = [problem.supply, problem.cost, start.flow, start.potential]
    assert all(map(np.array_equal, before, after))
    flag[0] = 0
    assert solve(problem, start, flag).cost == start.cost == oracle_cost(problem)


def scaling_of(problem: Problem, start: Solution | None = None) -> cost_scaling.Scaling:
    """A run that has not begun."""
    unit = len(problem.supply) + 1
    potential = None if start is None else cost_scaling.scaled(start.potential, unit)
    ordered = residual.residual_of(problem, None if start is None else start.flow, unit)
    return cost_scaling.Scaling(ordered, potential, stop_flag(), cost_scaling.ALPHA)


def test_a_solver_that_lost_before_it_began_prepares_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A race waits for the loser: what it does with all arcs before the first step ends with the flag, too."""
    problem = quincy_graph(20).problem
    flag = stop_flag()
    flag[0] = 1
    for field in ("sorted_by_tail", "fill", "check_problem"):
        monkeypatch.setattr(residual, field, None)
    with pytest.raises(StoppedError):
        cost_scaling.start_scaling(problem, stop=flag)


def test_a_running_solver_looks_at_its_flag() -> None:
    """The kernel is left at its first look, after a few steps of the work that it would do."""
    problem = quincy_graph(50).problem
    scaling = scaling_of(problem)
    scaling.fill_arcs()
    scaling.stop[0] = 1
    with pytest.raises(StoppedError):
        scaling.settle(1, 10**9)
    assert scaling.phases[0].work < 100


@given(st.lists(st.integers(-(10**6), 10**6), min_size=1, max_size=30))
def test_exact_potentials_keep_the_order_of_scaled_ones(values: list[int]) -> None:
    """Potentials differ in whole units by what they differed by, rounded down or up."""
    unit = len(values) + 1
    exact = cost_scaling.exact(integers(values)).tolist()
    for scaled_one, one in zip(values, exact, strict=True):
        for scaled_other, other in zip(values, exact, strict=True):
            assert abs((one - other) * unit - (scaled_one - scaled_other)) < unit


@given(problem=feasible_problems(), order=st.randoms(use_true_random=False))
def test_the_order_of_arcs_says_nothing(problem: Problem, order: object) -> None:
    numbers = list(range(len(problem.tail)))
    order.shuffle(numbers)  # type: ignore[attr-defined]
    moved = integers(numbers)
    fields = ("tail", "head", "cost", "capacity", "minimum")
    shuffled = replace(problem, **{field: getattr(problem, field)[moved] for field in fields})
    solution = cost_scaling.solve(shuffled)
    assert solution.cost == oracle_cost(problem)
    assert fault_of_solution(shuffled, solution) == ""
