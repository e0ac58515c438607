"""Convex arcs: unit by unit, all at once, or only as much as is needed, they cost the same."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.flow import convex as module
from scheduler.flow.building import NewNetwork
from scheduler.flow.convex import ConvexArc
from scheduler.flow.problem import InfeasibleError, Problem, ProblemError
from tests.support.flow_clusters import WAITING, Cluster
from tests.support.flow_problems import oracle_cost, oracle_solve


@st.composite
def rising_costs(draw: st.DrawFn) -> list[int]:
    return sorted(draw(st.lists(st.integers(0, 12), max_size=6)))


def behind_one_node(steps: Sequence[Sequence[int]], tasks: int) -> tuple[Cluster, list[ConvexArc]]:
    """Tasks behind an aggregator, from which a convex arc leads to each machine."""
    cluster = Cluster([len(costs) for costs in steps])
    gathers = cluster.network.add_node()
    for task in cluster.add_tasks(tasks):
        cluster.network.add_arc(task, gathers, 0, 1)
    arcs = [
        ConvexArc(gathers, machine, len(costs), module.stepped(costs))
        for machine, costs in zip(cluster.machines, steps, strict=True)
    ]
    return cluster, arcs


def expanded(steps: Sequence[Sequence[int]], tasks: int) -> Problem:
    cluster, arcs = behind_one_node(steps, tasks)
    for arc in arcs:
        module.expand(cluster.network, arc)
    return cluster.problem()


@given(st.lists(rising_costs(), max_size=4), st.integers(0, 8))
def test_exposed_units_cost_what_all_units_cost(steps: list[list[int]], tasks: int) -> None:
    every = sorted(cost for costs in steps for cost in costs if cost <= WAITING)[:tasks]
    wanted = sum(every) + WAITING * (tasks - len(every))
    assert oracle_cost(expanded(steps, tasks)) == wanted
    cluster, arcs = behind_one_node(steps, tasks)
    found = module.solve_convex(cluster.problem(), arcs, oracle_solve)
    assert found.solution.cost == wanted
    for arc, flow in zip(arcs, found.flow.tolist(), strict=True):
        next_cost, last_cost = arc.next_cost(flow), arc.last_cost(flow)
        assert next_cost is None or next_cost >= (last_cost or 0)
    assert (
        sum(arc.cost(unit) for arc, flow in zip(arcs, found.flow, strict=True) for unit in range(flow))
        + WAITING * (tasks - int(found.flow.sum()))
        == wanted
    )


def test_few_units_are_exposed_of_many() -> None:
    cluster, _ = behind_one_node([[0]] * 50, 0)
    gathers = cluster.network.add_node()
    for task in cluster.add_tasks(50, 1000):
        cluster.network.add_arc(task, gathers, 0, 1)
    arcs = [ConvexArc(gathers, machine, 1000, module.rising(0, 1)) for machine in cluster.machines]
    for machine in cluster.machines:
        cluster.network.add_arc(machine, cluster.sink, 0, 1000)
    found = module.solve_convex(cluster.problem(), arcs, oracle_solve)
    assert found.flow.tolist() == [1] * 50
    assert found.exposed == 100


def test_units_that_are_needed_to_have_an_answer_are_exposed() -> None:
    network = NewNetwork()
    source, sink = network.add_node(7), network.add_node(-7)
    problem = network.problem()
    arc = ConvexArc(source, sink, 9, module.rising(1, 2))
    found = module.solve_convex(problem, [arc], oracle_solve)
    assert (found.solution.cost, found.flow.tolist()) == (49, [7])
    with pytest.raises(InfeasibleError):
        module.solve_convex(problem, [ConvexArc(source, sink, 6, module.rising(1, 2))], oracle_solve)


def test_units_that_get_cheaper_are_refused() -> None:
    arc = ConvexArc(3, 4, 3, module.stepped([2, 5, 4]))
    with pytest.raises(ProblemError, match="unit 2 of the convex arc 3 → 4 costs 4; it must cost 5 or more"):
        module.expand(NewNetwork(), arc)
    with pytest.raises(ProblemError, match="capacity of a convex arc is 1,048,577"):
        ConvexArc(0, 1, module.UNITS_MAX + 1, module.rising(1, 1))


def test_figure_5_16() -> None:
    network = NewNetwork()
    tail, head = network.add_node(3), network.add_node(-3)
    arc = ConvexArc(tail, head, 4, module.stepped([2, 4, 9, 15]))
    assert len(module.expand(network, arc)) == 4
    assert oracle_cost(network.problem()) == 15
    assert [(arc.last_cost(flow), arc.next_cost(flow)) for flow in (0, 2, 4)] == [(None, 2), (4, 9), (15, None)]
