"""Changes between two solves: merged, dropped where they say nothing, and what they break."""

from __future__ import annotations

import numpy as np
import pytest

from scheduler.flow.changes import Applied, Changes, Effect, effect
from scheduler.flow.graph import FlowGraph, Kind
from scheduler.flow.problem import ProblemError
from scheduler.flow.solvers.relaxation import Relaxation
from tests.support.flow_problems import five_tasks, integers, network
from tests.support.flow_proofs import assert_consistent

PROBLEM, NUMBER = network(*five_tasks())
SINK, M1, U0 = NUMBER["S"], NUMBER["M1"], NUMBER["U0"]


def changes_of_five() -> Changes:
    """Of the five tasks of the known answers, solved."""
    graph = FlowGraph.of(PROBLEM)
    Relaxation(graph).solve()
    return Changes(graph, SINK)


def arc(tail: str, head: str) -> int:
    """The number of the arc between two nodes of the five tasks."""
    return int(np.flatnonzero((PROBLEM.tail == NUMBER[tail]) & (PROBLEM.head == NUMBER[head]))[0])


def solved(changes: Changes) -> int:
    """The cost after the changes."""
    changes.apply()
    assert_consistent(changes.graph)
    Relaxation(changes.graph).solve()
    return changes.graph.solution().cost


def test_a_task_that_came_and_went_costs_nothing() -> None:
    changes = changes_of_five()
    nodes, arcs = changes.graph.nodes, changes.graph.arcs
    task = changes.add_node(1, Kind.TASK)
    changes.set_cost(changes.add_arc(task, M1, 3, 1), 4)
    changes.add_arc(task, U0, 5, 1)
    changes.set_supply(task, 2)
    changes.remove_node(task)
    assert changes.recorded == 6
    assert changes.apply() == Applied()
    assert changes.recorded == 0
    assert changes.graph.is_settled()
    assert (changes.graph.nodes, changes.graph.arcs) == (nodes, arcs)
    assert changes.apply().made == 0


def test_several_changes_of_an_arc_become_one() -> None:
    changes = changes_of_five()
    wish = arc("b", "M1")
    for cost in (3, 1, 2):
        changes.set_cost(wish, cost)
    assert changes.apply() == Applied(arcs_changed=1)
    assert changes.graph.cost[wish] == 2


def test_a_change_to_what_is_already_so_is_none() -> None:
    changes = changes_of_five()
    changes.set_cost(arc("b", "M1"), 6)
    changes.set_capacity(arc("M1", "S"), 1)
    changes.set_minimum(arc("M1", "S"), 0)
    changes.set_supply(NUMBER["a"], 1)
    changes.set_costs(np.arange(18), PROBLEM.cost)
    assert changes.apply() == Applied()


def test_changes_of_arcs_of_a_node_that_goes_are_dropped() -> None:
    changes = changes_of_five()
    changes.set_cost(arc("b", "M1"), 1)
    changes.set_capacity(arc("b", "U0"), 0)
    changes.remove_arc(arc("b", "U0"))
    changes.set_costs(integers([arc("b", "M1"), arc("a", "M0")]), integers([7, 8]))
    changes.add_arc(NUMBER["b"], NUMBER["M2"], 1, 1)
    changes.set_supply(NUMBER["b"], 2)
    changes.remove_node(NUMBER["b"])
    assert changes.apply() == Applied(nodes_removed=1, arcs_changed=1, supplies_changed=1)
    assert changes.graph.cost[arc("a", "M0")] == 8
    assert changes.graph.supply[SINK] == -4
    assert_consistent(changes.graph)


def test_the_last_of_single_and_many_changes_counts() -> None:
    changes = changes_of_five()
    wish, other = arc("b", "M1"), arc("c", "M3")
    changes.set_cost(wish, 1)
    changes.set_costs(integers([wish, other]), integers([2, 2]))
    changes.set_costs(integers([other]), integers([3]))
    changes.set_cost(other, 4)
    changes.apply()
    assert (changes.graph.cost[wish], changes.graph.cost[other]) == (2, 4)


def test_costs_of_new_and_removed_arcs_among_many() -> None:
    changes = changes_of_five()
    new = changes.add_arc(NUMBER["b"], NUMBER["M2"], 9, 1)
    changes.set_costs(integers([new, arc("b", "M1")]), integers([1, 8]))
    changes.remove_arc(arc("a", "M1"))
    with pytest.raises(ProblemError, match=rf"arc {arc('a', 'M1')}: there is none of that number"):
        changes.set_costs(integers([arc("a", "M1")]), integers([1]))
    assert changes.apply() == Applied(arcs_added=1, arcs_removed=1, arcs_changed=1)
    assert changes.graph.cost[new] == 1


def test_the_sink_takes_in_what_all_others_send() -> None:
    changes = changes_of_five()
    task = changes.add_node(1, Kind.TASK)
    changes.add_arc(task, NUMBER["U1"], 7, 1)
    changes.set_capacity(arc("U1", "S"), 3)
    assert solved(changes) == 21
    assert changes.graph.supply[SINK] == -6
    changes.remove_node(task)
    changes.remove_node(NUMBER["b"])
    assert solved(changes) == 9
    assert changes.graph.supply[SINK] == -4


def test_the_graph_is_untouched_before_changes_are_applied() -> None:
    changes = changes_of_five()
    before = changes.graph.problem()
    changes.remove_node(NUMBER["a"])
    changes.set_cost(arc("c", "M1"), 5)
    changes.add_arc(NUMBER["c"], NUMBER["M2"], 1, 1)
    after = changes.graph.problem()
    assert np.array_equal(before.cost, after.cost[:18])
    assert np.array_equal(before.supply, after.supply)
    assert changes.graph.is_settled()


@pytest.mark.parametrize("drains", [True, False])
def test_a_task_that_ends_leaves_room_and_its_machine_to_others(drains: bool) -> None:
    changes = changes_of_five()
    changes.remove_node(NUMBER["c"])
    changes.apply(drains=drains)
    assert_consistent(changes.graph)
    Relaxation(changes.graph, drains=drains).solve()
    assert changes.graph.solution().cost == 13


def test_arcs_of_a_task_may_be_added_together() -> None:
    one_by_one, together = changes_of_five(), changes_of_five()
    rows = [(NUMBER["M0"], 1), (NUMBER["M2"], 3), (SINK, 4)]
    for changes in (one_by_one, together):
        task = changes.add_node(1, Kind.TASK)
        if changes is together:
            assert len(changes.add_unit_arcs(task, rows)) == 3
            assert changes.add_unit_arcs(task, []) == []
        else:
            for head, cost in rows:
                changes.add_arc(task, head, cost, 1)
        assert changes.recorded == 4
        changes.apply()
        Relaxation(changes.graph).solve()
    assert one_by_one.graph.solution().cost == together.graph.solution().cost


def test_what_is_wrong_is_refused_at_once() -> None:
    changes = changes_of_five()
    with pytest.raises(ProblemError, match=r"node 77: there is none of that number"):
        changes.add_arc(77, SINK, 1, 1)
    with pytest.raises(ProblemError, match=rf"arc: head {SINK}: another node than its tail is allowed"):
        changes.add_arc(SINK, SINK, 1, 1)
    with pytest.raises(ProblemError, match=r"arc: head 77: there is no other node of that number"):
        changes.add_unit_arcs(NUMBER["a"], [(SINK, 1), (77, 1)])
    with pytest.raises(ProblemError, match=rf"arc: head {SINK}: there is no other node of that number"):
        changes.add_unit_arcs(SINK, [(SINK, 1)])
    with pytest.raises(ProblemError, match="capacity of the arc is -1; allowed are 0 to 4,294,967,295"):
        changes.add_arc(NUMBER["a"], SINK, 1, -1)
    with pytest.raises(ProblemError, match="minimum of the arc is 3; allowed are 0 to 2"):
        changes.add_arc(NUMBER["a"], SINK, 1, 2, 3)
    with pytest.raises(ProblemError, match=r"the largest cost is [\d,]+; with 12 nodes allowed are"):
        changes.set_cost(0, -(2**60))
    with pytest.raises(ProblemError, match=r"the largest cost is [\d,]+; with 12 nodes allowed are"):
        changes.set_costs(integers([0]), integers([2**60]))
    with pytest.raises(ProblemError, match=r"costs have shape \(2,\): that of arcs, \(1,\), is allowed"):
        changes.set_costs(integers([0]), integers([1, 2]))
    with pytest.raises(ProblemError, match=r"arc 99: there is none of that number"):
        changes.set_capacity(99, 1)
    with pytest.raises(ProblemError, match=r"supply of the node is -[\d,]+; allowed are -4,294,967,295 to"):
        changes.add_node(-(2**50))
    with pytest.raises(ProblemError, match=rf"node {SINK} balances the others: it cannot be removed"):
        changes.remove_node(SINK)
    with pytest.raises(ProblemError, match=rf"node {SINK} balances the others: its supply follows from theirs"):
        changes.set_supply(SINK, 3)
    changes.remove_node(NUMBER["a"])
    with pytest.raises(ProblemError, match=rf"node {NUMBER['a']}: there is none of that number"):
        changes.remove_node(NUMBER["a"])
    assert changes.apply() == Applied(nodes_removed=1, supplies_changed=1)


def test_bounds_that_exclude_each_other_change_nothing() -> None:
    changes = changes_of_five()
    changes.set_minimum(arc("M1", "S"), 2)
    changes.remove_node(NUMBER["a"])
    with pytest.raises(ProblemError, match=r"minimum 2: 0 to the arc's capacity, 1, is allowed"):
        changes.apply()
    assert changes.graph.has_node(NUMBER["a"])
    changes.set_minimum(arc("M1", "S"), 1)
    assert changes.apply().nodes_removed == 1


# ---- table 5.3 -------------------------------------------------------------------------------------------------------


FULL, FREE, EMPTY = 0, 1, 2
"""Arcs of reduced cost below 0, of 0 with room and flow, and above 0."""


def table_graph() -> FlowGraph:
    """Two units go from node 0 to node 1: one on a cheap arc that is full, one on another of three, none on a dear."""
    graph = FlowGraph()
    graph.add_node(2)
    graph.add_node(-2)
    for cost, capacity in ((1, 1), (5, 3), (9, 3)):
        graph.add_arc(0, 1, cost, capacity)
    Relaxation(graph).solve()
    assert graph.flow.tolist() == [1, 1, 0]
    return graph


@pytest.mark.parametrize(
    ("which", "change", "effect_of_it"),
    [
        (FULL, {"capacity": 2}, Effect.OPTIMALITY),
        (FREE, {"capacity": 4}, Effect.NONE),
        (EMPTY, {"capacity": 4}, Effect.NONE),
        (FULL, {"capacity": 0}, Effect.FEASIBILITY),
        (FREE, {"capacity": 1}, Effect.NONE),
        (FREE, {"capacity": 0}, Effect.FEASIBILITY),
        (EMPTY, {"capacity": 0}, Effect.NONE),
        (FULL, {"cost": 5}, Effect.NONE),
        (FULL, {"cost": 6}, Effect.OPTIMALITY),
        (FREE, {"cost": 6}, Effect.OPTIMALITY),
        (EMPTY, {"cost": 99}, Effect.NONE),
        (FULL, {"cost": -9}, Effect.NONE),
        (FREE, {"cost": 4}, Effect.OPTIMALITY),
        (EMPTY, {"cost": 5}, Effect.NONE),
        (EMPTY, {"cost": 4}, Effect.OPTIMALITY),
        (EMPTY, {"minimum": 1}, Effect.FEASIBILITY),
        (FREE, {"minimum": 1}, Effect.NONE),
    ],
)
def test_what_a_change_of_an_arc_breaks(which: int, change: dict[str, int], effect_of_it: Effect) -> None:
    graph = table_graph()
    assert effect(graph, which, **change) is effect_of_it
    changes = Changes(graph)
    if "cost" in change:
        changes.set_cost(which, change["cost"])
    elif "capacity" in change:
        changes.set_capacity(which, change["capacity"])
    else:
        changes.set_minimum(which, change["minimum"])
    changes.apply()
    assert graph.is_settled() == (effect_of_it is Effect.NONE)
