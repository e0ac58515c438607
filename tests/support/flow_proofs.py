"""What proves that a flow is one of least cost."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from scheduler.flow.graph import FlowGraph
from scheduler.flow.network import EXCESS, FIRST_IN, NEXT_IN, NONE, PREVIOUS_IN
from scheduler.flow.problem import Integers, Problem, Solution


def assert_least_cost(problem: Problem, solution: Solution) -> None:
    """Supplies and bounds are met, the cost is that of the flow, and complementary slackness holds."""
    flow, potential = solution.flow, solution.potential
    assert np.all((problem.minimum <= flow) & (flow <= problem.capacity))
    sent = np.zeros(len(problem.supply), np.int64)
    np.add.at(sent, problem.tail, flow)
    np.subtract.at(sent, problem.head, flow)
    assert np.array_equal(sent, problem.supply)
    assert solution.cost == int(problem.cost @ flow)
    reduced = problem.cost - potential[problem.tail] + potential[problem.head]
    assert np.array_equal(flow[reduced < 0], problem.capacity[reduced < 0])
    assert np.array_equal(flow[reduced > 0], problem.minimum[reduced > 0])


def assert_consistent(graph: FlowGraph) -> None:
    """The lists of a graph hold what its arrays say, and its excesses are what flows in and not out."""
    compact = graph.compact()
    network = graph.network
    excess = np.zeros(graph.node_room.limit, np.int64)
    excess[compact.nodes] = compact.problem.supply
    np.subtract.at(excess, graph.tail[compact.arcs], graph.flow[compact.arcs])
    np.add.at(excess, graph.head[compact.arcs], graph.flow[compact.arcs])
    assert np.array_equal(excess, network.nodes[EXCESS, : len(excess)])
    leaving, entering, entering_used = (defaultdict[int, list[int]](list) for _ in range(3))
    tails, heads, is_used = graph.tail.tolist(), graph.head.tolist(), (graph.flow > graph.minimum).tolist()
    for arc in compact.arcs.tolist():
        leaving[tails[arc]].append(arc)
        entering[heads[arc]].append(arc)
        if is_used[arc]:
            entering_used[heads[arc]].append(arc)
    assert {*leaving, *entering} <= set(compact.nodes.tolist())
    for node in compact.nodes.tolist():
        into = entering[node]
        assert sorted(graph.out_arcs(node)) == leaving[node]
        assert sorted(graph.in_arcs(node)) == into
        assert sorted(graph.used_in_arcs(node)) == entering_used[node]
        assert backward(network.nodes[FIRST_IN, node], network.arcs[NEXT_IN], network.arcs[PREVIOUS_IN]) == sorted(into)
    gone = np.setdiff1d(np.arange(graph.arc_room.limit), compact.arcs)
    assert not graph.capacity[gone].any()
    assert not graph.flow[gone].any()


def backward(first: int, following: Integers, previous: Integers) -> list[int]:
    """The arcs of a list from its end, sorted."""
    arc = int(first)
    while arc != NONE and following[arc] != NONE:
        arc = int(following[arc])
    found = []
    while arc != NONE:
        found.append(arc)
        arc = int(previous[arc])
    return sorted(found)
