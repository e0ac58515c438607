"""Placements, read from a flow."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from benchmarks.quincy_graphs import quincy_graph
from scheduler.flow.changes import Changes
from scheduler.flow.extract import Placements, extract, settle
from scheduler.flow.graph import FlowGraph, Kind
from scheduler.flow.problem import FlowError, Problem
from scheduler.flow.solvers.relaxation import Relaxation
from tests.support.flow_problems import (
    KNOWN,
    Arc,
    Known,
    flows,
    integers,
    network,
    scheduling_problems,
)
from tests.support.flow_proofs import assert_consistent

KINDS = {"S": Kind.SINK, "M": Kind.MACHINE, "U": Kind.UNSCHEDULED}


def solved(known: Known) -> tuple[FlowGraph, Placements]:
    """The graph of a known answer, and where its tasks go: those of small letters."""
    kinds = [Kind.TASK if name.islower() else KINDS.get(name[0], Kind.OTHER) for name in known.numbers]
    graph = FlowGraph.of(known.problem, np.array(kinds, np.int64))
    Relaxation(graph).solve()
    return graph, extract(graph)


def by_name(known: Known, placements: Placements) -> dict[str, str]:
    """The machine of each task that has one."""
    names = {number: name for name, number in known.numbers.items()}
    found = placements.machine[: len(names)].tolist()
    return {names[node]: names[machine] for node, machine in enumerate(found) if machine >= 0}


def of_name(name: str) -> Known:
    return next(known for known in KNOWN if known.name == name)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("five tasks", {"a": "M0", "c": "M1", "d": "M2", "e": "M3"}),
        ("five tasks, M3 gone", {"a": "M0", "c": "M1", "d": "M2"}),
        ("five tasks, M3 of two slots", {"a": "M0", "b": "M1", "c": "M3", "d": "M2", "e": "M3"}),
    ],
)
def test_the_five_tasks(name: str, expected: dict[str, str]) -> None:
    known = of_name(name)
    assert by_name(known, solved(known)[1]) == expected


@pytest.mark.parametrize("name", ["gang of two", "two tasks a machine", "at most one of two tasks", "figure 5.21"])
def test_units_by_way_of_aggregators_and_parallel_arcs(name: str) -> None:
    known = of_name(name)
    graph, placements = solved(known)
    found = list(by_name(known, placements).values())
    flow = flows(known.problem, known.numbers, graph.flow)
    into = {machine: flow.get((machine, "S"), 0) for machine in known.numbers if machine.startswith("M")}
    assert {machine: found.count(machine) for machine in into} == into


def counted(graph: FlowGraph, placements: Placements) -> bool:
    """Whether each machine has as many tasks as it sends units to the sink."""
    machines = np.flatnonzero(graph.kind == Kind.MACHINE)
    found = np.bincount(placements.machine[placements.machine >= 0], minlength=len(graph.supply))
    sent = np.zeros(len(graph.supply), np.int64)
    np.add.at(sent, graph.tail, graph.flow)
    return np.array_equal(found[machines], sent[machines])


def graph_of(problem: Problem) -> FlowGraph:
    """Of a made-up scheduling problem: tasks, machines, sink, those that wait, cluster."""
    tasks = int(np.flatnonzero(problem.supply == 1)[-1]) + 1
    machines = len(problem.supply) - tasks - 3
    kinds = [Kind.TASK] * tasks + [Kind.MACHINE] * machines + [Kind.SINK, Kind.UNSCHEDULED, Kind.OTHER]
    return FlowGraph.of(problem, np.array(kinds, np.int64))


@given(scheduling_problems())
def test_each_machine_gets_what_it_sends_on(problem: Problem) -> None:
    graph = graph_of(problem)
    Relaxation(graph).solve()
    placements = extract(graph)
    assert counted(graph, placements)
    waiting = graph.flow[graph.in_arcs(len(problem.supply) - 2)].sum()
    tasks = graph.kind == Kind.TASK
    assert (placements.machine[tasks] < 0).sum() == waiting


@settings(max_examples=50)
@given(scheduling_problems())
def test_placed_tasks_stay_where_they_are_when_places_are_equal(problem: Problem) -> None:
    graph = graph_of(problem)
    solver = Relaxation(graph)
    solver.solve()
    cost = graph.solution().cost
    placements = extract(graph)
    tasks = np.flatnonzero(placements.machine >= 0)
    costs = graph.potential[tasks] - graph.potential[placements.machine[tasks]]
    arcs = settle(graph, placements, tasks, costs)
    assert_consistent(graph)
    assert graph.flow[arcs].tolist() == [1] * len(tasks)
    solver.solve()
    again = extract(graph)
    assert np.array_equal(again.machine, placements.machine)
    assert counted(graph, again)
    assert graph.solution().cost <= cost


def test_a_quincy_graph_moves_nothing_between_rounds_without_events() -> None:
    quincy = quincy_graph(40, 5)
    kinds = np.full(len(quincy.problem.supply), Kind.OTHER, np.int64)
    kinds[quincy.sink] = Kind.SINK
    kinds[list(quincy.machines)] = Kind.MACHINE
    kinds[list(quincy.waiting)] = Kind.UNSCHEDULED
    kinds[list(quincy.tasks)] = Kind.TASK
    graph = FlowGraph.of(quincy.problem, kinds)
    solver = Relaxation(graph)
    solver.solve()
    placements = extract(graph)
    assert counted(graph, placements)
    tasks = np.flatnonzero(placements.machine >= 0)
    costs = graph.potential[tasks] - graph.potential[placements.machine[tasks]] - 1
    arcs = settle(graph, placements, tasks, costs)
    for _ in range(3):
        changes = Changes(graph, quincy.sink)
        changes.set_costs(arcs, graph.cost[arcs] - 1)
        changes.apply()
        solver.solve()
        assert np.array_equal(extract(graph).machine, placements.machine)


def test_a_task_that_waits_has_no_running_arc() -> None:
    known = of_name("five tasks")
    graph, placements = solved(known)
    waits = known.numbers["b"]
    with pytest.raises(FlowError, match=rf"node {waits} is no task that has a machine"):
        settle(graph, placements, integers([waits]), integers([0]))


def test_flow_in_a_circle_is_refused() -> None:
    arcs: list[Arc] = [("a", "X", 0, 2), ("X", "Y", 0, 2, 2), ("Y", "X", 0, 1, 1), ("Y", "M", 0, 2), ("M", "S", 0, 2)]
    known = Known("a circle", *network({"a": 1, "S": -1}, arcs), 0, {})
    with pytest.raises(FlowError, match=r"node \d+ gets flow from itself: placements need a graph without circles"):
        solved(known)


def test_an_empty_graph_places_nothing() -> None:
    assert len(extract(FlowGraph()).machine) == 0
