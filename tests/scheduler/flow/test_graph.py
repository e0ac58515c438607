"""A flow network that changes: its lists, its numbers, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

from scheduler.flow.graph import FlowGraph, Kind, total_cost
from scheduler.flow.limits import CAPACITY_MAX
from scheduler.flow.problem import Problem, ProblemError, Solution
from scheduler.flow.solvers.relaxation import Relaxation
from tests.support.flow_problems import five_tasks, integers, network
from tests.support.flow_proofs import assert_consistent


def chain(nodes: int) -> FlowGraph:
    """From the first node, which sends a unit, to the last."""
    graph = FlowGraph(1, 1)
    for number in range(nodes):
        graph.add_node(1 if number == 0 else -1 if number == nodes - 1 else 0)
    for number in range(nodes - 1):
        graph.add_arc(number, number + 1, 2, 3)
    return graph


def test_it_grows_as_it_is_filled() -> None:
    graph = chain(40)
    assert (graph.nodes, graph.arcs) == (40, 39)
    assert graph.network.nodes.shape[1] == graph.network.arcs.shape[1] == 64
    assert_consistent(graph)
    Relaxation(graph).solve()
    assert graph.solution().cost == 78
    graph.add_arc(0, 39, 1, 1)
    Relaxation(graph).solve()
    assert graph.solution().cost == 1


def test_numbers_of_what_was_removed_are_used_again() -> None:
    graph = chain(5)
    graph.remove_node(2)
    assert (graph.nodes, graph.arcs) == (4, 2)
    assert not graph.has_node(2)
    assert [arc for arc in range(4) if graph.has_arc(arc)] == [0, 3]
    assert_consistent(graph)
    assert graph.add_node(0, Kind.TASK) == 2
    assert sorted([graph.add_arc(1, 2, 1, 1), graph.add_arc(2, 3, 1, 1)]) == [1, 2]
    assert_consistent(graph)
    Relaxation(graph).solve()
    assert graph.solution().cost == 6


def test_a_node_that_comes_and_goes_often_between_solves() -> None:
    graph = chain(3)
    for _ in range(200):
        node = graph.add_node()
        graph.add_arc(0, node, 1, 1)
        graph.add_arc(node, 2, 1, 1)
        graph.remove_node(node)
    assert (graph.node_room.limit, graph.arc_room.limit) == (4, 4)
    Relaxation(graph).solve()
    assert graph.solution().cost == 4


def test_parallel_arcs_have_numbers_of_their_own() -> None:
    graph = chain(2)
    cheap = graph.add_arc(0, 1, 1, 1)
    assert cheap == 1
    Relaxation(graph).solve()
    assert graph.flow.tolist() == [0, 1]
    assert graph.used_in_arcs(1) == [cheap]
    graph.remove_arc(cheap)
    assert not graph.is_settled()
    Relaxation(graph).solve()
    assert graph.flow.tolist() == [1, 0]


def test_the_problem_has_the_graphs_numbers_and_the_compact_one_has_no_gaps() -> None:
    graph = FlowGraph.of(network(*five_tasks())[0])
    graph.remove_node(0)
    problem, compact = graph.problem(), graph.compact()
    assert len(problem.supply) == 12
    assert problem.capacity[:2].tolist() == [0, 0]
    assert compact.nodes.tolist() == list(range(1, 12))
    assert np.array_equal(compact.nodes[compact.problem.tail], problem.tail[compact.arcs])
    assert np.array_equal(compact.nodes[compact.problem.head], problem.head[compact.arcs])
    assert compact.problem.capacity.tolist() == problem.capacity[compact.arcs].tolist()
    graph.set_cost(int(compact.arcs[0]), 99)
    assert problem.cost[compact.arcs[0]] != 99


@pytest.mark.parametrize("bound", ["minimum", "capacity"])
def test_bounds_may_change_under_a_flow(bound: str) -> None:
    graph = chain(3)
    bypass = graph.add_arc(0, 2, 9, 3)
    solver = Relaxation(graph)
    solver.solve()
    if bound == "minimum":
        assert graph.set_minimum(bypass, 1) == 1
    else:
        assert graph.set_capacity(0, 0) == 1
    solver.solve()
    assert_consistent(graph)
    assert graph.solution().cost == 9


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("tail", 3, "tail of arc 1 is 3; there is no such node"),
        ("tail", -1, "tail of arc 1 is -1; there is no such node"),
        ("head", 3, "head of arc 1 is 3; there is no such node"),
        ("head", 1, "head of arc 1 is 1; that is its tail; it must be another node"),
        ("capacity", -1, "capacity of arc 1 is -1; allowed are 0 to 4,294,967,295"),
        ("capacity", CAPACITY_MAX + 1, "capacity of arc 1 is 4,294,967,296; allowed are 0 to 4,294,967,295"),
        ("minimum", -1, "minimum of arc 1 is -1; allowed are 0 to 4"),
        ("minimum", 5, "minimum of arc 1 is 5; allowed are 0 to 4"),
        ("supply", -(2**62), r"supply of node 1 is -[\d,]+; allowed are -4,294,967,295 to 4,294,967,295"),
        ("cost", 2**60, r"cost of arc 1 is [\d,]+; with 3 nodes allowed are -384,307,168,202,282,325 to"),
        ("cost", -(2**63), "cost of arc 1 is -9,223,372,036,854,775,808; with 3 nodes allowed are"),
    ],
)
def test_bad_problems_are_refused(field: str, value: int, words: str) -> None:
    columns = {
        "tail": [0, 1],
        "head": [1, 2],
        "cost": [1, 1],
        "capacity": [4, 4],
        "minimum": [0, 0],
        "supply": [1, 0, -1],
    }
    columns[field][1] = value
    with pytest.raises(ProblemError, match=words):
        FlowGraph.of(Problem(**{name: integers(values) for name, values in columns.items()}))


def test_a_problem_whose_arrays_do_not_go_together_is_refused() -> None:
    with pytest.raises(ProblemError, match="cost has 2 entries; there are 1 arcs"):
        FlowGraph.of(Problem(*map(integers, ([0], [1], [1, 2], [1], [0], [1, -1]))))


def test_more_nodes_may_make_costs_too_large() -> None:
    graph = FlowGraph()
    graph.add_node()
    graph.add_node()
    graph.add_arc(0, 1, 2**58, 1)
    graph.add_node()
    with pytest.raises(ProblemError, match=r"the largest cost is [\d,]+; with 4 nodes allowed are"):
        graph.add_node()
    assert graph.nodes == 3


def test_numbers_that_are_not_there_are_refused() -> None:
    graph = chain(3)
    graph.remove_arc(1)
    for step in (graph.remove_arc, lambda arc: graph.set_cost(arc, 1), lambda arc: graph.set_capacity(arc, 1)):
        for arc in (1, 2, -1, 10**9):
            with pytest.raises(ProblemError, match=rf"arc {arc}: there is none of that number"):
                step(arc)
    for step in (graph.remove_node, graph.out_arcs, lambda node: graph.set_supply(node, 1)):
        for node in (3, -1, 10**9):
            with pytest.raises(ProblemError, match=rf"node {node}: there is none of that number"):
                step(node)
    with pytest.raises(ProblemError, match=r"the same one is named twice"):
        graph.remove_nodes(integers([1, 1]))


def test_costs_that_are_no_64_bit_number_in_sum_are_exact() -> None:
    cost, flow = integers([2**59, -(2**59), 2**58]), integers([2**40, 2**39, 1])
    assert total_cost(cost, flow) == 2**98 + 2**58
    assert total_cost(integers([]), integers([])) == 0


def test_a_solution_of_another_size_is_refused() -> None:
    with pytest.raises(ProblemError, match=r"the solution is for 1 nodes and 1 arcs: the graph has 3 and 2"):
        chain(3).adopt(Solution(integers([0]), integers([0]), 0))
