"""Constructs mean what they say: each is held against all that could be done instead."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.flow import constructs
from scheduler.flow.problem import ProblemError
from tests.support.flow_clusters import WAITING, Cluster
from tests.support.flow_problems import oracle_cost, oracle_solve


def cheapest(costs: Sequence[Sequence[int | None]], slots: Sequence[int], placed_max: int, per_machine: int) -> int:
    """The least cost by trying all: each task's cost by machine, None where it may not go; the rest wait."""
    best = len(costs) * WAITING
    for choice in product(range(-1, len(slots)), repeat=len(costs)):
        counts = [choice.count(machine) for machine in range(len(slots))]
        if any(count > min(limit, per_machine) for count, limit in zip(counts, slots, strict=True)):
            continue
        if len(choice) - choice.count(-1) > placed_max:
            continue
        prices = [WAITING if machine < 0 else task[machine] for task, machine in zip(costs, choice, strict=True)]
        if None not in prices:
            best = min(best, sum(price for price in prices if price is not None))
    return best


# ---- xor, anti-affinity --------------------------------------------------------------------------------------------

few_costs = st.lists(st.integers(0, 14), min_size=1, max_size=3)


@given(few_costs, st.integers(0, 4), st.integers(0, 4), st.integers(1, 3), st.data())
def test_at_most_so_many_are_placed(
    costs: list[int], tasks: int, placed_max: int, per_machine: int, data: st.DataObject
) -> None:
    slots = [data.draw(st.integers(0, 3)) for _ in costs]
    cluster = Cluster(slots)
    places = cluster.places(costs)
    constructs.at_most(
        cluster.network, cluster.add_tasks(tasks), places, placed_max=placed_max, per_machine_max=per_machine
    )
    assert oracle_cost(cluster.problem()) == cheapest([costs] * tasks, slots, placed_max, per_machine)


def test_the_known_answers_of_figure_5_17() -> None:
    for placed_max, per_machine, cost in ((1, 1, 11), (2, 1, 4), (2, 2, 2)):
        cluster = Cluster([2, 2])
        constructs.at_most(
            cluster.network,
            cluster.add_tasks(2),
            cluster.places([1, 3]),
            placed_max=placed_max,
            per_machine_max=per_machine,
        )
        assert oracle_cost(cluster.problem()) == cost


@pytest.mark.parametrize(("per_rack_max", "cost"), [(None, 1 + 2 + 3), (2, 1 + 2 + 7), (1, 1 + 7 + WAITING)])
def test_tasks_are_spread_over_machines_and_racks(per_rack_max: int | None, cost: int) -> None:
    cluster = Cluster([4, 4, 4, 4])
    racks = [cluster.places([1, 2, 3, 7])[:3], cluster.places([1, 2, 3, 7])[3:]]
    constructs.spread(cluster.network, cluster.add_tasks(3), racks, per_rack_max=per_rack_max)
    assert oracle_cost(cluster.problem()) == cost


def test_limits_below_one_are_refused() -> None:
    cluster = Cluster([1])
    with pytest.raises(ProblemError, match="per_machine_max is 0; allowed are numbers from 1"):
        constructs.at_most(cluster.network, [], [], placed_max=1, per_machine_max=0)
    with pytest.raises(ProblemError, match="placed_max is -1; allowed are numbers from 0"):
        constructs.at_most(cluster.network, [], [], placed_max=-1, per_machine_max=1)
    with pytest.raises(ProblemError, match="per_rack_max is 0"):
        constructs.spread(cluster.network, [], [], per_rack_max=0)


# ---- affinity ------------------------------------------------------------------------------------------------------


@given(few_costs, st.integers(1, 3), st.data())
def test_tasks_that_stay_together_share_the_cheapest_machine_or_all_wait(
    costs: list[int], tasks: int, data: st.DataObject
) -> None:
    slots = [data.draw(st.integers(0, 4)) for _ in costs]
    cluster = Cluster(slots)
    group, doors = constructs.together(cluster.network, cluster.add_tasks(tasks), cluster.places(costs))
    problem = cluster.problem()
    assert oracle_cost(problem) == tasks * WAITING
    door, solution = constructs.place_together(problem, group, doors, oracle_solve)
    possible = [cost * tasks for cost, count in zip(costs, slots, strict=True) if count >= tasks]
    assert solution.cost == min([*possible, tasks * WAITING])
    if door is None:
        assert not possible or min(possible) >= tasks * WAITING
    else:
        assert solution.flow[door] == tasks
