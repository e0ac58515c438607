"""Warm cost scaling: what an earlier answer has wrong is mended where it is wrong, and never at the price of much more
than a cold start. Counted work."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.flow.clusters import QuincyCluster, before_arrival
from benchmarks.quincy_graphs import quincy_graph
from scheduler.flow.check import fault_of_solution
from scheduler.flow.graph import FlowGraph
from scheduler.flow.network import NODES
from scheduler.flow.problem import Problem, Solution, StoppedError
from scheduler.flow.solvers import cost_scaling
from scheduler.flow.solvers.cost_scaling import scaled, start_scaling
from scheduler.flow.solvers.relaxation import Relaxation
from scheduler.flow.solvers.residual import Ordered, residual_of
from scheduler.flow.solvers.stopping import POLL_STEPS, stop_flag
from scheduler.flow.solvers.warm_start import fit, largest_violation
from tests.support.flow_problems import feasible_problems, integers, network, oracle_cost, scheduling_problems
from tests.support.suites import rest_after

NOT_MUCH_MORE = 1.2
"""Times a cold start's work: what a warm start may take where it does not help."""


def next_round(machines: int, full: float, arriving: float, events: int) -> tuple[Problem, Solution]:
    """A cluster in its optimum, then all tasks have aged, so many have ended, and as many have come."""
    cluster = QuincyCluster(quincy_graph(machines, running=full, arriving=arriving))
    cluster.solver.solve()
    cluster.place()
    cluster.age()
    cluster.happen(events)
    return cluster.graph.problem(), cluster.graph.solution()


def works(problem: Problem, start: Solution) -> tuple[int, int]:
    """Of a warm and of a cold start."""
    warm, cold = start_scaling(problem, start).go(), start_scaling(problem).go()
    assert warm.solution().cost == cold.solution().cost == oracle_cost(problem)
    return warm.work, cold.work


@pytest.mark.parametrize("full", [0.8, 0.9])
def test_a_round_of_a_cluster_with_free_slots_is_a_tenth_of_a_cold_start(full: float) -> None:
    """All have aged; two of a thousand tasks ended, as many came."""
    warm, cold = works(*next_round(300, full, 0.01, 6))
    assert 10 * warm < cold


@pytest.mark.parametrize("events", rest_after(1, 10, 100))
@pytest.mark.parametrize(("full", "arriving"), [(0.9, 0.01), (0.97, 0.01), (0.98, 0.07), (0.98, 0.3)])
def test_a_warm_start_is_never_much_more_work_than_a_cold_one(full: float, arriving: float, events: int) -> None:
    """Up to a third of all tasks end in the round, and up to 27 % more tasks are there than slots."""
    warm, cold = works(*next_round(300, full, arriving, events))
    assert warm < NOT_MUCH_MORE * cold


@pytest.mark.parametrize("arriving", [0.05, 0.08, 0.15])
@pytest.mark.parametrize("steps", [0, POLL_STEPS, 20 * POLL_STEPS])
def test_from_what_relaxation_has_when_it_takes_long_it_is_not_much_more_either(arriving: float, steps: int) -> None:
    """A large job comes to a cluster at 90 %: so starts the second solver of a race, from a flow that is not whole."""
    quincy = quincy_graph(300, arriving=arriving)
    before = FlowGraph.of(before_arrival(quincy))
    Relaxation(before).solve()
    graph = FlowGraph.of(quincy.problem)
    graph.adopt(before.solution())
    if steps:
        try:
            Relaxation(graph).solve(stop_flag(steps))
        except StoppedError:
            assert graph.network.counts[NODES] > 0
    warm, cold = works(quincy.problem, graph.solution())
    assert warm < NOT_MUCH_MORE * cold


@settings(max_examples=50)
@given(problem=feasible_problems() | scheduling_problems(), seed=st.integers(0, 99))
def test_from_whatever_start_the_answer_is_right(problem: Problem, seed: int) -> None:
    chance = np.random.default_rng(seed)
    start = Solution(
        chance.integers(0, 5, len(problem.tail)), chance.integers(-20, 20, len(problem.supply)), 0
    )  # fmt: skip
    for drains in (True, False):
        solution = start_scaling(problem, start, drains=drains).go().solution()
        assert solution.cost == oracle_cost(problem)
        assert fault_of_solution(problem, solution) == ""


# ---- fitting ---------------------------------------------------------------------------------------------------------


def fitted(problem: Problem, start: Solution) -> tuple[bool, Ordered, np.ndarray]:
    unit = len(problem.supply) + 1
    ordered = residual_of(problem, start.flow, unit)
    potential = scaled(start.potential, unit)
    assert potential is not None
    return fit(ordered.network, potential, stop_flag()).fits, ordered, potential


def test_a_slot_that_gets_free_is_taken_by_who_wants_it_most() -> None:
    """b would be better off at M, which has had one slot and gets another: its unit is taken back to the sink."""
    arcs = [("a", "M", 1, 1), ("b", "M", 1, 1), ("a", "N", 9, 1), ("b", "N", 8, 1), ("M", "S", 0, 1), ("N", "S", 0, 2)]
    before, numbers = network({"a": 1, "b": 1, "S": -2}, arcs)
    start = cost_scaling.solve(before)
    capacity = before.capacity.copy()
    capacity[4] = 2
    after = Problem(before.tail, before.head, before.cost, capacity, before.minimum, before.supply)
    fits, ordered, potential = fitted(after, start)
    assert fits and largest_violation(ordered.network, potential) == 0
    excess = {name: int(ordered.network.excess[number]) for name, number in numbers.items()}
    assert excess == {"a": 0, "b": 1, "M": 0, "N": 0, "S": -1}
    assert potential[numbers["M"]] == potential[numbers["S"]]


def test_where_all_wait_for_each_slot_nothing_is_changed() -> None:
    """The slots of a full cluster: a free one would be taken by thousands."""
    problem, start = next_round(60, 0.98, 0.3, 20)
    fits, ordered, _ = fitted(problem, start)
    assert not fits
    assert np.array_equal(ordered.flow()[start.flow <= problem.capacity],
                          start.flow[start.flow <= problem.capacity])  # fmt: skip


def test_a_circle_in_which_potentials_would_fall_for_ever_is_left_to_the_solver() -> None:
    arcs = [("a", "b", 1, 1), ("b", "c", -3, 1), ("c", "b", 1, 1), ("c", "d", 1, 1)]
    problem, _ = network({"a": 1, "d": -1}, arcs)
    start = Solution(integers([0, 0, 0, 0]), integers([0, 0, 0, 0]), 0)
    assert cost_scaling.solve(problem, start).cost == oracle_cost(problem)


def test_fitting_stops_when_told() -> None:
    problem, start = next_round(60, 0.9, 0.01, 5)
    ordered = residual_of(problem, start.flow, 1)
    flag = stop_flag()
    flag[0] = 1
    with pytest.raises(StoppedError):
        fit(ordered.network, start.potential.copy(), flag)
