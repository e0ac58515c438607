"""Gangs are placed whole: those that fit by force, the others if it pays."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.flow import constructs
from scheduler.flow import gangs as module
from scheduler.flow.constructs import Group, Place
from scheduler.flow.gangs import Gang
from scheduler.flow.problem import InfeasibleError, Problem, Solution
from tests.support.flow_clusters import WAITING, Cluster
from tests.support.flow_problems import oracle_cost, oracle_solve

few_costs = st.lists(st.integers(0, 14), min_size=1, max_size=3)


def test_the_known_answers_of_figure_5_19() -> None:
    for rigid, cost in ((True, 13), (False, 9)):
        cluster = Cluster([1, 1])
        tasks = cluster.add_tasks(2, waiting=5)
        if rigid:
            module.gang(cluster.network, tasks, cluster.places([4, 9]))
        else:
            constructs.spread(cluster.network, tasks, [cluster.places([4, 9])])
        assert oracle_cost(cluster.problem()) == cost


def test_a_gang_that_cannot_fit_is_refused_and_others_go_on() -> None:
    gangs = [Gang("first", 2, [0]), Gang("second", 2, [0, 1]), Gang("third", 1, [2])]
    fitting, refused = module.gangs_that_fit(gangs, {0: 1, 1: 1, 2: 1})
    assert [gang.name for gang in fitting] == ["second", "third"]
    assert refused == {"first": "the gang first needs 2 places at once; its machines have 1 beside the gangs before it"}


def test_a_gang_moves_over_for_another_one() -> None:
    gangs = [Gang("a", 1, [0, 1]), Gang("b", 1, [0, 2]), Gang("c", 2, [0, 1, 3], 1)]
    assert module.gangs_that_fit(gangs, {0: 1, 1: 1, 2: 1, 3: 1}) == (gangs, {})
    assert [gang.name for gang in module.gangs_that_fit(gangs, {0: 1, 1: 1, 2: 1})[0]] == ["a", "b"]


@settings(max_examples=300)
@given(
    st.lists(st.tuples(st.integers(1, 4), st.lists(st.integers(0, 3), unique=True), st.integers(1, 3)), max_size=4),
    st.lists(st.integers(0, 3), min_size=4, max_size=4),
)
def test_gangs_fit_if_a_flow_says_so(gangs: list[tuple[int, list[int], int]], slots: list[int]) -> None:
    def feasible(wanted: Sequence[Gang]) -> bool:
        cluster = Cluster(slots)
        for gang in wanted:
            places = [Place(cluster.machines[machine], 1) for machine in gang.machines]
            module.gang(cluster.network, cluster.add_tasks(gang.size), places, per_machine_max=gang.per_machine_max)
        try:
            oracle_cost(cluster.problem())
        except InfeasibleError:
            return False
        return True

    named = [Gang(str(number), *gang) for number, gang in enumerate(gangs)]
    fitting, refused = module.gangs_that_fit(named, dict(enumerate(slots)))
    expected: list[Gang] = []
    for gang in named:
        if feasible([*expected, gang]):
            expected.append(gang)
    assert fitting == expected
    assert set(refused) == {gang.name for gang in named} - {gang.name for gang in expected}


def test_a_gang_of_thousands_is_looked_at_at_once() -> None:
    machines = range(12_500)
    fitting, _ = module.gangs_that_fit([Gang("large", 20_000, machines, 12)], dict.fromkeys(machines, 2))
    assert len(fitting) == 1


def soft_gangs(sizes: Sequence[int], costs: Sequence[int], slots: Sequence[int]) -> tuple[Problem, list[Group]]:
    cluster = Cluster(slots)
    gangs = [
        module.gang(cluster.network, cluster.add_tasks(size), cluster.places(costs), rigid=False) for size in sizes
    ]
    return cluster.problem(), gangs


@given(st.lists(st.integers(1, 3), max_size=3), few_costs, st.data())
def test_gangs_are_placed_whole_or_not_at_all(sizes: list[int], costs: list[int], data: st.DataObject) -> None:
    slots = [data.draw(st.integers(0, 3)) for _ in costs]
    problem, gangs = soft_gangs(sizes, costs, slots)
    solves = 0

    def solve(trial: Problem) -> Solution:
        nonlocal solves
        solves += 1
        return oracle_solve(trial)

    decision = module.decide_gangs(problem, gangs, solve)
    assert solves == len(gangs) + 1
    assert sorted([*decision.placed, *decision.waiting], key=lambda gang: gang.gate) == gangs
    assert all(decision.solution.flow[gang.gate] == gang.size for gang in decision.placed)
    assert all(decision.solution.flow[gang.gate] == 0 for gang in decision.waiting)
    assert decision.solution.cost <= sum(sizes) * WAITING


def test_the_older_gang_is_placed_and_the_younger_waits() -> None:
    problem, gangs = soft_gangs([2, 2], [1, 1, 1], [1, 1, 1])
    decision = module.decide_gangs(problem, gangs, oracle_solve)
    assert (decision.placed, decision.waiting) == ([gangs[0]], [gangs[1]])
    assert decision.solution.cost == 2 + 2 * WAITING


def test_a_gang_that_costs_more_than_waiting_waits() -> None:
    problem, gangs = soft_gangs([2], [4, 17], [1, 1])
    assert module.decide_gangs(problem, gangs, oracle_solve).waiting == gangs
