"""Paper 004 §5.2.7: changes of the network between two solves, and how placements are read from a flow."""

from __future__ import annotations

from collections import deque

import numpy as np
import pytest

from scheduler.flow.changes import Applied, Changes
from scheduler.flow.extract import extract, settle
from scheduler.flow.graph import FlowGraph, Kind
from scheduler.flow.solvers.relaxation import Relaxation
from tests.support.flow_problems import five_tasks, integers, network

PROBLEM, NUMBER = network(*five_tasks())


def changes_of_five() -> Changes:
    graph = FlowGraph.of(PROBLEM)
    Relaxation(graph).solve()
    return Changes(graph, NUMBER["S"])


def arc(tail: str, head: str) -> int:
    return int(np.flatnonzero((PROBLEM.tail == NUMBER[tail]) & (PROBLEM.head == NUMBER[head]))[0])


# ---- "Flow network changes creation" ---------------------------------------------------------------------------------


def test_no_duplicate_changes() -> None:
    """ "Does not generate duplicate changes"; one that sets what is set already is a duplicate, too."""
    changes = changes_of_five()
    for _ in range(3):
        changes.set_cost(arc("b", "M1"), 2)
    changes.set_cost(arc("c", "M1"), int(PROBLEM.cost[arc("c", "M1")]))
    assert changes.recorded == 4
    assert changes.apply() == Applied(arcs_changed=1)


def test_changes_to_an_arc_are_merged() -> None:
    """ "Merges multiple changes to an arc into a single change that encompasses all"."""
    changes = changes_of_five()
    wish = arc("b", "M1")
    changes.set_cost(wish, 9)
    changes.set_capacity(wish, 3)
    changes.set_cost(wish, 2)
    assert changes.apply() == Applied(arcs_changed=2), "one of its cost, one of its bounds"
    assert (changes.graph.cost[wish], changes.graph.capacity[wish]) == (2, 3)
    new = changes.add_arc(NUMBER["b"], NUMBER["M2"], 9, 1)
    changes.set_cost(new, 1)
    assert changes.apply() == Applied(arcs_added=1)


def test_changes_of_arcs_of_removed_nodes_are_pruned() -> None:
    """ "Prunes changes to incoming and outgoing arcs of nodes that it later removes"."""
    changes = changes_of_five()
    changes.set_cost(arc("b", "M1"), 1)
    changes.set_capacity(arc("M1", "S"), 0)
    changes.add_arc(NUMBER["d"], NUMBER["M1"], 1, 1)
    changes.remove_node(NUMBER["M1"])
    changes.remove_node(NUMBER["b"])
    assert changes.recorded == 5
    assert changes.apply() == Applied(nodes_removed=2, supplies_changed=1)


def test_a_task_that_came_and_went_between_two_solves_is_no_change() -> None:
    changes = changes_of_five()
    task = changes.add_node(1, Kind.TASK)
    changes.add_arc(task, NUMBER["M1"], 1, 1)
    changes.remove_node(task)
    assert changes.apply().made == 0
    assert changes.graph.is_settled()


def test_a_round_of_few_changes_touches_few_things() -> None:
    """ "Submit only graph changes": a round in which one task came and one went, on a network of some size."""
    changes = changes_of_five()
    for _ in range(50):
        task = changes.add_node(1, Kind.TASK)
        changes.add_arc(task, NUMBER["U1"], 7, 1)
    changes.set_capacity(arc("U1", "S"), 99)
    changes.apply()
    Relaxation(changes.graph).solve()
    task = changes.add_node(1, Kind.TASK)
    changes.add_arc(task, NUMBER["M1"], 1, 1)
    changes.add_arc(task, NUMBER["U1"], 7, 1)
    changes.remove_node(NUMBER["e"])
    assert changes.apply() == Applied(nodes_added=1, nodes_removed=1, arcs_added=2)


# ---- "Task placement extraction" -------------------------------------------------------------------------------------


def listing_5_1(graph: FlowGraph) -> dict[int, int]:
    """Listing 5.1 with two things put right: its loop tests `assigned_machines` and increments `moved_machines`, so it
    does not end; and tasks whose arcs carry nothing are not visited. It visits nodes in whatever order they come."""
    machines = np.flatnonzero(graph.kind == Kind.MACHINE).tolist()
    sink = int(np.flatnonzero(graph.kind == Kind.SINK)[0])
    into_sink = {node: 0 for node in machines}
    for into in graph.in_arcs(sink):
        if int(graph.tail[into]) in into_sink:
            into_sink[int(graph.tail[into])] += int(graph.flow[into])
    destinations: dict[int, list[int]] = {node: [node] * count for node, count in into_sink.items()}
    to_visit, mappings = deque(machines), dict[int, int]()
    while to_visit:
        node = to_visit.popleft()
        if graph.kind[node] == Kind.TASK:
            mappings[node] = destinations[node].pop()
            continue
        for into in graph.in_arcs(node):
            source, moved = int(graph.tail[into]), 0
            while moved < graph.flow[into]:
                destinations.setdefault(source, []).append(destinations[node].pop())
                moved += 1
            if moved and source not in to_visit:
                to_visit.append(source)
    return mappings


def two_ways() -> FlowGraph:
    """Two tasks to an aggregator A, which reaches M0 directly and M1 by way of B: ways of different lengths."""
    arcs = [("t", "A", 0, 1), ("u", "A", 0, 1), ("A", "M0", 1, 1), ("A", "B", 1, 1), ("B", "M1", 0, 1)]
    problem, numbers = network({"t": 1, "u": 1, "S": -2}, [*arcs, ("M0", "S", 0, 1), ("M1", "S", 0, 1)])
    kinds = {"t": Kind.TASK, "u": Kind.TASK, "S": Kind.SINK, "M0": Kind.MACHINE, "M1": Kind.MACHINE}
    graph = FlowGraph.of(problem, integers([kinds.get(name, Kind.OTHER) for name in numbers]))
    Relaxation(graph).solve()
    return graph


def test_listing_5_1_goes_wrong_where_ways_differ_in_length() -> None:
    """ "The algorithm may visit a node more than once if there are several flow paths of different length". As printed
    that does not work: A is visited when M0 has reached it and M1 has not, and has nothing to give to its second task.
    In reverse topological order a node's units are all known when it is visited, once."""
    graph = two_ways()
    with pytest.raises(IndexError):
        listing_5_1(graph)
    tasks = graph.kind == Kind.TASK
    assert sorted(extract(graph).machine[tasks].tolist()) == np.flatnonzero(graph.kind == Kind.MACHINE).tolist()


def test_on_networks_without_such_ways_both_find_the_same() -> None:
    kinds = {"S": Kind.SINK, "M": Kind.MACHINE, "U": Kind.UNSCHEDULED}
    graph = FlowGraph.of(PROBLEM, integers([Kind.TASK if name.islower() else kinds[name[0]] for name in NUMBER]))
    Relaxation(graph).solve()
    found = extract(graph).machine
    assert listing_5_1(graph) == {node: int(found[node]) for node in range(5) if found[node] >= 0}


def test_minimum_flows_aggregators_and_parallel_arcs_are_read() -> None:
    """ "Firmament supports minimum flow requirements on arcs, arbitrary aggregators and multiple arcs between pairs of
    nodes"."""
    arcs = [(task, "G", 0, 1) for task in "abc"] + [("G", "M0", 1, 1), ("G", "M0", 4, 1), ("G", "M1", 9, 1, 1)]
    problem, numbers = network({"a": 1, "b": 1, "c": 1, "S": -3}, [*arcs, ("M0", "S", 0, 3), ("M1", "S", 0, 3)])
    of_name = {"G": Kind.OTHER, "M0": Kind.MACHINE, "M1": Kind.MACHINE, "S": Kind.SINK}
    graph = FlowGraph.of(problem, integers([of_name.get(name, Kind.TASK) for name in numbers]))
    Relaxation(graph).solve()
    found = extract(graph).machine[:3].tolist()
    assert (found.count(numbers["M0"]), found.count(numbers["M1"])) == (2, 1)


def test_nothing_migrates_between_equal_places() -> None:
    """§5.2.5.2: a running arc from each running task to its machine. The unit of a task that was placed moves there, so
    the next flow, which might pair tasks and equal machines in another way, leaves it."""
    graph = two_ways()
    placements = extract(graph)
    tasks = np.flatnonzero(graph.kind == Kind.TASK)
    before = placements.machine[tasks].tolist()
    arcs = settle(graph, placements, tasks, integers([0, 0]))
    assert graph.flow[arcs].tolist() == [1, 1]
    Relaxation(graph).solve()
    assert extract(graph).machine[tasks].tolist() == before
