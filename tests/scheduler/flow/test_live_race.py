"""Relaxation on a live graph against cost scaling on a copy: whoever wins, the graph goes on from the answer."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings

from scheduler.flow.cluster_network import ClusterChanges, ClusterNetwork
from scheduler.flow.graph import FlowGraph
from scheduler.flow.policies.policy import Task
from scheduler.flow.problem import InfeasibleError, Problem, StoppedError
from scheduler.flow.solvers.live import COST_SCALING, NOTHING, RELAXATION, LiveRace
from scheduler.flow.solvers.relaxation import Relaxation, Round
from scheduler.flow.solvers.stopping import StopFlag, stop_flag
from tests.support.flow_networks import NEVER_S, Table, machines_of
from tests.support.flow_problems import INFEASIBLE, KNOWN, Known, oracle_cost, scheduling_problems


class Waits(Relaxation):
    """Relaxation that gets nowhere until it is told to stop."""

    def solve(self, stop: StopFlag | None = None) -> Round:
        assert stop is not None
        while stop[0] == 0:
            time.sleep(0.001)
        raise StoppedError("told to stop")


@given(problem=scheduling_problems())
def test_whoever_wins_the_graph_has_a_flow_of_least_cost(problem: Problem) -> None:
    graph = FlowGraph.of(problem)
    assert LiveRace(graph, second_after_s=0.0).solve() in (RELAXATION, COST_SCALING, NOTHING)
    assert graph.solution().cost == oracle_cost(problem)
    assert graph.is_settled()


@settings(max_examples=30)
@given(problem=scheduling_problems())
def test_relaxation_goes_on_from_what_cost_scaling_found(problem: Problem) -> None:
    graph = FlowGraph.of(problem)
    race = LiveRace(graph, second_after_s=0.0)
    own = race.relaxation
    race.relaxation = Waits(graph)
    first = race.solve()
    assert first in (COST_SCALING, NOTHING)
    race.relaxation = own
    assert graph.solution().cost == oracle_cost(problem)
    graph.set_cost(0, int(graph.cost[0]) + 3)
    race.solve()
    assert graph.solution().cost == oracle_cost(graph.problem())


def test_the_second_does_not_start_before_its_time_and_wins_are_counted() -> None:
    graph = FlowGraph.of(KNOWN[0].problem)
    race = LiveRace(graph, second_after_s=3600.0)
    assert race.solve() == RELAXATION
    assert race.solve() == NOTHING
    assert dict(race.wins) == {RELAXATION: 1}
    assert 0 < race.usual_s <= race.spent_s


@pytest.mark.parametrize("known", INFEASIBLE, ids=repr)
def test_what_has_no_flow_is_said_by_whoever_finds_out(known: Known) -> None:
    graph = FlowGraph.of(known.problem)
    with pytest.raises(InfeasibleError):
        LiveRace(graph, second_after_s=0.0).solve()


def test_both_stop_when_told_and_the_next_solve_goes_on() -> None:
    graph = FlowGraph.of(KNOWN[0].problem)
    flag = stop_flag()
    race = LiveRace(graph, second_after_s=3600.0)
    own, race.relaxation = race.relaxation, Waits(graph)
    flag[0] = 1
    with pytest.raises(StoppedError):
        race.solve(flag)
    race.relaxation = own
    assert race.solve() == RELAXATION
    assert graph.solution().cost == KNOWN[0].cost


def test_a_round_that_is_stopped_has_taken_note_of_its_changes() -> None:
    table = Table({"a": {"m0": 1}, "b": {"m0": 2}}, {"a": 9, "b": 9})
    network = ClusterNetwork(table, second_after_s=NEVER_S)
    flag = stop_flag()
    flag[0] = 1
    with pytest.raises(StoppedError):
        network.round(ClusterChanges(machines=machines_of(m0=1), tasks=[Task("a", "j"), Task("b", "j")]), flag)
    placed = network.round(ClusterChanges(tasks_gone=["a"]))
    assert (placed.placed, placed.cost) == ([("b", "m0")], 2)


def test_a_network_whose_first_solver_is_stuck_is_solved_by_the_second() -> None:
    table = Table({"a": {"m0": 1}, "b": {"m0": 2}}, {"a": 9, "b": 9})
    network = ClusterNetwork(table, second_after_s=0.0)
    own, network.race.relaxation = network.race.relaxation, Waits(network.graph)
    placed = network.round(ClusterChanges(machines=machines_of(m0=1), tasks=[Task("a", "j"), Task("b", "j")]))
    assert (placed.placed, placed.cost, placed.solver) == ([("a", "m0")], 10, COST_SCALING)
    network.race.relaxation = own
    placed = network.round(ClusterChanges(tasks_gone=["a"]))
    assert (placed.placed, placed.cost) == ([("b", "m0")], 2)
