"""Paper 004 §5.3: convex arcs, constraints between tasks, gangs."""

from __future__ import annotations

from itertools import pairwise

import pytest

from scheduler.flow import constructs, gangs
from scheduler.flow.convex import ConvexArc, expand, rising, solve_convex, stepped
from scheduler.flow.policies.co_location import TASKS, CoLocation, Penalty
from scheduler.flow.policies.load_spreading import LoadSpreading
from scheduler.flow.policies.policy import Machine, Task
from scheduler.flow.policies.quincy import GIGABYTE, Quincy
from scheduler.flow.problem import InfeasibleError, Problem, Solution
from scheduler.flow.solvers import relaxation
from scheduler.flow.solvers.stopping import StopFlag
from tests.support.flow_clusters import WAITING, Cluster
from tests.support.flow_policies import gigabytes, placed
from tests.support.flow_problems import gang, network

# ---- §5.3.1 ----------------------------------------------------------------------------------------------------------

FIGURE_5_16 = [2, 4, 9, 15]


def pair(units: int) -> tuple[Cluster, int, int]:
    """A cluster of one machine with four slots, and an aggregator before it with so many tasks."""
    cluster = Cluster([4])
    gathers = cluster.network.add_node()
    for task in cluster.add_tasks(units, waiting=100):
        cluster.network.add_arc(task, gathers, 0, 1)
    return cluster, gathers, cluster.machines[0]


@pytest.mark.parametrize("units", range(5))
def test_figure_5_16(units: int) -> None:
    """ "It costs x ∗ c to send x units of flow" along a linear arc; convex costs are "multiple arcs between pairs of
    nodes […]. The sum of capacities of these arcs must be equal to u"."""
    cluster, gathers, machine = pair(units)
    cluster.network.add_arc(gathers, machine, 5, 4)
    assert relaxation.solve(cluster.problem()).cost == 5 * units
    cluster, gathers, machine = pair(units)
    numbers = expand(cluster.network, ConvexArc(gathers, machine, 4, stepped(FIGURE_5_16)))
    problem = cluster.problem()
    assert problem.capacity[numbers].sum() == 4
    assert relaxation.solve(problem).cost == sum(FIGURE_5_16[:units])


def test_units_are_used_from_the_cheapest_on() -> None:
    cluster, gathers, machine = pair(2)
    numbers = expand(cluster.network, ConvexArc(gathers, machine, 4, stepped(FIGURE_5_16)))
    assert relaxation.solve(cluster.problem()).flow[numbers].tolist() == [1, 1, 0, 0]


def test_a_function_instead_of_many_arcs() -> None:
    """ "In the worst case […] as many new arcs as the capacities of prior linear cost arcs": a solver that asks for the
    next unit needs to see few of them."""
    cluster = Cluster([1000] * 5)
    gathers = cluster.network.add_node()
    for task in cluster.add_tasks(12, waiting=10_000):
        cluster.network.add_arc(task, gathers, 0, 1)
    arcs = [ConvexArc(gathers, machine, 1000, rising(0, 1)) for machine in cluster.machines]
    found = solve_convex(cluster.problem(), arcs, relaxation.solve)
    assert sorted(found.flow.tolist()) == [2, 2, 2, 3, 3]
    assert found.exposed < 5 * 6


def test_linear_costs_crowd_popular_data_and_convex_ones_do_not() -> None:
    """Figure 5.15: three tasks whose data lies on one machine. Preference arcs "do not increase as more tasks are
    placed in a scheduling round"; with convex ones tasks that interfere keep apart."""
    machines = [Machine(f"m{number}", f"r{number // 2}", 4) for number in range(4)]
    tasks = [Task(f"t{number}", "j", 10 * GIGABYTE, gigabytes(m1=10)) for number in range(3)]
    assert set(placed(Quincy(), tasks, machines, relaxation.solve).values()) == {"m1"}
    assert len(set(placed(LoadSpreading(), tasks, machines, relaxation.solve).values())) == 3


def test_tasks_that_interfere_keep_apart_within_one_round() -> None:
    """Schwarzkopf's way was to place one task of a kind a machine and round; "this trade-off is not necessary"."""
    policy = CoLocation(table=[Penalty("gpu", TASKS, 50), Penalty("gpu", "cpu", 10)])
    machines = [Machine(f"m{number}", "r", 4, load={"cpu": float(number)}) for number in range(3)]
    tasks = [Task(f"t{number}", "j", demand={"gpu": 1}) for number in range(6)]
    found = list(placed(policy, tasks, machines, relaxation.solve).values())
    assert [found.count(machine.name) for machine in machines] == [2, 2, 2]


# ---- §5.3.2 ----------------------------------------------------------------------------------------------------------


def at_most(tasks: int, slots: list[int], placed_max: int, per_machine_max: int) -> list[int]:
    """Tasks that each machine gets under the construct of figure 5.17b, machines at costs 1, 3, 5 …"""
    cluster = Cluster(slots)
    costs = [1 + 2 * number for number in range(len(slots))]
    constructs.at_most(
        cluster.network,
        cluster.add_tasks(tasks),
        cluster.places(costs),
        placed_max=placed_max,
        per_machine_max=per_machine_max,
    )
    problem = cluster.problem()
    solution = relaxation.solve(problem)
    return [int(solution.flow[problem.tail == machine].sum()) for machine in cluster.machines]


def test_xor_places_one_task_of_two() -> None:
    """Figure 5.17a: "at most one task out of T0 and T1 can be placed"."""
    assert at_most(2, [2, 2], placed_max=1, per_machine_max=1) == [1, 0]


@pytest.mark.parametrize(
    ("placed_max", "per_machine_max", "found"),
    [(5, 2, [2, 2, 1]), (3, 2, [2, 1, 0]), (9, 1, [1, 1, 1]), (0, 1, [0] * 3)],
)
def test_no_more_than_r_tasks_on_a_machine_and_p_of_n_in_all(
    placed_max: int, per_machine_max: int, found: list[int]
) -> None:
    """Figure 5.17b."""
    assert at_most(7, [4, 4, 4], placed_max, per_machine_max) == found


@pytest.mark.parametrize(("per_rack_max", "racks"), [(None, {0: 2, 1: 2}), (1, {0: 1, 1: 1})])
def test_anti_affinity_spreads_tasks_over_machines_and_racks(per_rack_max: int | None, racks: dict[int, int]) -> None:
    """ "Spread tasks across machines and racks for better fault tolerance"."""
    cluster = Cluster([3, 3, 3, 3])
    places = cluster.places([1, 1, 1, 1])
    constructs.spread(
        cluster.network, cluster.add_tasks(4), [places[:2], places[2:]], per_machine_max=1, per_rack_max=per_rack_max
    )
    problem = cluster.problem()
    solution = relaxation.solve(problem)
    on = [int(solution.flow[problem.tail == machine].sum()) for machine in cluster.machines]
    assert max(on) == 1
    assert {0: sum(on[:2]), 1: sum(on[2:])} == racks


@pytest.mark.parametrize(("slots", "door"), [([1, 2, 2], 1), ([1, 1, 1], None), ([2, 2, 2], 0)])
def test_affinity_needs_trials_as_and_is_generalised_flow(slots: list[int], door: int | None) -> None:
    """ "It is impossible to represent such task requirements in min-cost flow networks". Both tasks go to one machine,
    or both wait, because each machine is tried."""
    cluster = Cluster(slots)
    group, doors = constructs.together(cluster.network, cluster.add_tasks(2), cluster.places([1, 2, 3]))
    found, solution = constructs.place_together(cluster.problem(), group, doors, relaxation.solve)
    assert (found is None) == (door is None)
    assert solution.cost == (2 * WAITING if door is None else 2 * (door + 1))


# ---- §5.3.3 ----------------------------------------------------------------------------------------------------------


def test_a_rigid_gang_is_placed_whatever_it_costs() -> None:
    """Figure 5.19: with the minimum flow both tasks are placed, though to leave one waiting costs less."""
    costs = {minimum: relaxation.solve(network(*gang(minimum))[0]).cost for minimum in (2, 0)}
    assert costs == {2: 13, 0: 9}


def test_a_gang_that_cannot_fit_would_make_the_whole_network_infeasible_so_that_is_looked_at_before() -> None:
    supply, arcs = gang(2)
    with pytest.raises(InfeasibleError):
        relaxation.solve(network(supply, [arc for arc in arcs if "M1" not in arc])[0])
    fits, cannot = gangs.Gang("fits", 2, (0, 1)), gangs.Gang("cannot", 3, (0, 1), per_machine_max=2)
    fitting, refused = gangs.gangs_that_fit([fits, cannot], {0: 2, 1: 1})
    assert fitting == [fits]
    assert "the gang cannot needs 3 places at once" in refused["cannot"]


def soft(cluster: Cluster, sizes: list[int], costs: list[int]) -> tuple[Problem, list[constructs.Group]]:
    made = [gangs.gang(cluster.network, cluster.add_tasks(n), cluster.places(costs), rigid=False) for n in sizes]
    return cluster.problem(), made


@pytest.mark.parametrize(("costs", "placed_gangs"), [([1, 2, 3], 1), ([1, 2, 30], 0)])
def test_all_or_nothing_gangs_are_tried_and_undone(costs: list[int], placed_gangs: int) -> None:
    """In place of figure 5.20, which needs gain factors: placed whole if that costs less than to have all wait."""
    problem, groups = soft(Cluster([1, 1, 1]), [3], costs)
    decision = gangs.decide_gangs(problem, groups, relaxation.solve)
    assert len(decision.placed) == placed_gangs
    assert decision.solution.cost == (sum(costs) if placed_gangs else 3 * WAITING)


def test_many_gangs_need_one_solve_each_and_not_a_power_of_two() -> None:
    """ "2^N solver instances to gang schedule N jobs": ours takes gangs one after the other, the oldest first; another
    choice of gangs might cost less, and is not looked for."""
    solves = 0

    def solve(problem: Problem, start: Solution | None = None, stop: StopFlag | None = None) -> Solution:
        nonlocal solves
        solves += 1
        return relaxation.solve(problem, start, stop)

    problem, groups = soft(Cluster([1] * 8), [2, 3, 4, 1], [1] * 8)
    decision = gangs.decide_gangs(problem, groups, solve)
    assert solves == 5
    assert [group.size for group in decision.placed] == [2, 3, 1]
    assert [group.size for group in decision.waiting] == [4]
    assert all(before.gate < after.gate for before, after in pairwise(decision.placed))
