"""Policies place tasks as they say, and what all arcs of a task have in common moves none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.flow import check
from scheduler.flow.building import NewNetwork
from scheduler.flow.limits import cost_max
from scheduler.flow.policies.co_location import CoLocation
from scheduler.flow.policies.load_spreading import LoadSpreading
from scheduler.flow.policies.network import PolicyNetwork, network_of
from scheduler.flow.policies.network_aware import NetworkAware
from scheduler.flow.policies.policy import (
    AGE_S_MAX,
    Aggregator,
    ArcTo,
    Cluster,
    Machine,
    Policy,
    Task,
    TaskCosts,
    UnitCost,
)
from scheduler.flow.policies.quincy import CLUSTER, GIGABYTE, Quincy, rack_of
from scheduler.flow.policies.shortest_job import ShortestJob
from scheduler.flow.problem import ProblemError, Solution
from tests.support.flow_policies import MACHINES, gigabytes, placed
from tests.support.flow_problems import oracle_solve

# ---- any policy ----------------------------------------------------------------------------------------------------


@dataclass
class Dearer:
    """A policy whose costs of one task are all higher by the same."""

    policy: Policy
    name: str
    amount: int

    def see(self, cluster: Cluster) -> None:
        self.policy.see(cluster)

    def task(self, task: Task) -> TaskCosts:
        costs = self.policy.task(task)
        if task.name != self.name:
            return costs
        arcs = [replace(arc, cost=arc.cost + self.amount) for arc in costs.arcs if isinstance(arc.cost, int)]
        return TaskCosts(arcs, costs.waiting + self.amount, costs.running + self.amount)

    def machine_cost(self, machine: Machine) -> UnitCost:
        return self.policy.machine_cost(machine)

    def aggregator_arcs(self, aggregator: Aggregator) -> Sequence[ArcTo]:
        return self.policy.aggregator_arcs(aggregator)


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """A few machines and tasks, of which some run."""
    machines = [
        Machine(f"m{number}", f"r{draw(st.integers(0, 2))}", draw(st.integers(0, 3)))
        for number in range(draw(st.integers(1, 5)))
    ]
    free = [machine.name for machine in machines for _ in range(machine.slots)]
    tasks = []
    for number in range(draw(st.integers(1, 7))):
        runs_on = free.pop(draw(st.integers(0, len(free) - 1))) if free and draw(st.booleans()) else None
        size = draw(st.integers(0, 20))
        held = st.dictionaries(st.sampled_from([*(machine.name for machine in machines), "gone"]), st.integers(0, 20))
        tasks.append(
            Task(
                f"t{number}",
                f"j{draw(st.integers(0, 2))}",
                size * GIGABYTE,
                gigabytes(**draw(held)),
                draw(st.integers(0, 10_000)),
                runs_on,
                draw(st.integers(0, 10_000)) if runs_on else 0,
            )
        )
    return Cluster.of(machines, tasks)


policies = st.one_of(
    st.builds(Quincy, share_min=st.sampled_from([0.02, 0.14, 1.0]), preferred_max=st.integers(0, 3)),
    st.builds(LoadSpreading, task_cost=st.integers(0, 9)),
    st.builds(ShortestJob, octave_cost=st.integers(0, 9)),
    st.builds(NetworkAware, capacity=st.just(10e6)),
    st.builds(CoLocation),
)


@settings(max_examples=150)
@given(policies, clusters(), st.integers(-50, 50), st.data())
def test_what_all_arcs_of_a_task_have_in_common_moves_nothing(
    policy: Policy, cluster: Cluster, amount: int, data: st.DataObject
) -> None:
    name = data.draw(st.sampled_from(sorted(cluster.tasks)))
    problem, _ = network_of(policy, cluster)
    dearer, made = network_of(Dearer(policy, name, amount), cluster)
    check.check_problem(problem)
    before = oracle_solve(problem)
    potential = before.potential.copy()
    potential[made.tasks[name]] += amount
    assert check.fault_of_solution(dearer, Solution(before.flow, potential, before.cost + amount)) == ""
    assert oracle_solve(dearer).cost == before.cost + amount


@settings(max_examples=100)
@given(policies, clusters())
def test_all_tasks_go_somewhere_within_the_slots(policy: Policy, cluster: Cluster) -> None:
    found = placed(policy, list(cluster.tasks.values()), list(cluster.machines.values()))
    assert set(found) == set(cluster.tasks)
    for machine in cluster.machines.values():
        assert list(found.values()).count(machine.name) <= machine.slots
    slots = sum(machine.slots for machine in cluster.machines.values())
    assert sum(place != "" for place in found.values()) == min(slots, len(cluster.tasks))


def test_names_that_come_twice_or_lead_nowhere_are_refused() -> None:
    policy = LoadSpreading()
    policy.see(Cluster.of([], []))
    made = PolicyNetwork(NewNetwork(), policy)
    made.add_machine(MACHINES[0])
    made.add_task(Task("a", "j"))
    with pytest.raises(ProblemError, match="there are two machines m0"):
        made.add_machine(MACHINES[0])
    with pytest.raises(ProblemError, match="there are two tasks a"):
        made.add_task(Task("a", "j"))
    with pytest.raises(ProblemError, match="slots of m9 are -1; allowed are numbers from 0"):
        network_of(LoadSpreading(), Cluster.of([Machine("m9", "r", -1)], []))
    with pytest.raises(ProblemError, match="an arc of task a leads to the machine m7; there is no such machine"):
        network_of(LoadSpreading(), Cluster.of(MACHINES, [Task("a", "j", runs_on="m7")]))


# ---- Quincy --------------------------------------------------------------------------------------------------------


def costs_of(policy: Quincy, task: Task) -> dict[object, object]:
    policy.see(Cluster.of(MACHINES, [task]))
    return {arc.to: arc.cost for arc in policy.task(task).arcs}


def test_places_cost_what_is_moved_to_them() -> None:
    task = Task("a", "j", 10 * GIGABYTE, gigabytes(m0=6, m1=1, m2=2, gone=5))
    assert costs_of(Quincy(), task) == {
        "m0": 100 * 1 + 200 * 3,
        "m2": 100 * 0 + 200 * 8,
        rack_of("r0"): 100 * 6 + 200 * 3,
        rack_of("r1"): 100 * 2 + 200 * 8,
        CLUSTER: 200 * 10,
    }
    assert "m1" in costs_of(Quincy(share_min=0.02), task)
    assert list(costs_of(Quincy(preferred_max=1), task)) == ["m0", rack_of("r0"), CLUSTER]


def test_the_cluster_costs_as_a_place_that_has_nothing() -> None:
    assert costs_of(Quincy(), Task("a", "j", 10 * GIGABYTE, gigabytes(m0=10)))[CLUSTER] == 2000
    assert costs_of(Quincy(), Task("a", "j")) == {CLUSTER: 0}


@given(clusters())
def test_no_arc_is_dearer_than_one_to_more_places(cluster: Cluster) -> None:
    policy = Quincy(share_min=0.01)
    policy.see(cluster)
    for task in cluster.tasks.values():
        costs = {arc.to: arc.cost for arc in policy.task(task).arcs}
        for to, cost in costs.items():
            assert isinstance(cost, int)
            assert 0 <= cost <= costs[CLUSTER]  # type: ignore[operator]
            rack = rack_of(cluster.machines[to].rack) if isinstance(to, str) else CLUSTER
            assert cost <= costs.get(rack, costs[CLUSTER])  # type: ignore[operator]


def test_tasks_go_to_their_data() -> None:
    tasks = [Task(f"t{number}", "j", 8 * GIGABYTE, gigabytes(**{f"m{number // 2}": 8})) for number in range(8)]
    assert placed(Quincy(), tasks) == {f"t{number}": f"m{number // 2}" for number in range(8)}


def test_of_too_many_the_one_that_has_waited_longest_is_placed() -> None:
    tasks = [Task(f"t{number}", "j", waited_s=100 * (number == 1)) for number in range(3)]
    assert placed(Quincy(), tasks, [Machine("m", "r", 1)]) == {"t0": "", "t1": "m", "t2": ""}


@pytest.mark.parametrize(("ran_s", "place"), [(100, "m2"), (1000, "m0")])
def test_a_task_moves_to_its_data_unless_it_has_run_for_long(ran_s: float, place: str) -> None:
    task = Task("a", "j", 3 * GIGABYTE, gigabytes(m2=3), runs_on="m0", ran_s=ran_s)
    assert placed(Quincy(), [task]) == {"a": place}


def test_the_longer_a_task_has_run_the_rather_it_stays() -> None:
    machine = [Machine("m", "r", 1)]
    old, new = Task("old", "j", runs_on="m", ran_s=5000), Task("new", "j", waited_s=9000)
    assert placed(Quincy(), [old, new], machine) == {"old": "m", "new": ""}
    assert placed(Quincy(), [replace(old, ran_s=100), new], machine) == {"old": "", "new": "m"}


def test_ages_count_up_to_a_limit() -> None:
    policy = Quincy()
    policy.see(Cluster.of(MACHINES, []))
    limits = (AGE_S_MAX, 10 * AGE_S_MAX)
    ages = [policy.task(Task("a", "j", waited_s=age_s, runs_on="m0", ran_s=age_s)) for age_s in limits]
    assert (ages[0].waiting, ages[0].running) == (ages[1].waiting, ages[1].running)
    assert -ages[0].running < cost_max(150_000)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"share_min": 0}, "share_min is 0; allowed are numbers above 0, up to 1"),
        ({"preferred_max": -1}, "preferred_max is -1; allowed are numbers from 0"),
        ({"rack_cost": 300}, "rack_cost is 300; allowed are 0 to core_cost, 200"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, int], message: str) -> None:
    with pytest.raises(ProblemError, match=message):
        Quincy(**settings)  # type: ignore[arg-type]


# ---- load spreading ------------------------------------------------------------------------------------------------


def test_tasks_of_one_round_are_spread() -> None:
    found = list(placed(LoadSpreading(), [Task(f"t{number}", "j") for number in range(6)]).values())
    assert sorted(found.count(machine.name) for machine in MACHINES) == [1, 1, 2, 2]


def test_tasks_that_run_count_and_stay() -> None:
    running = [Task(f"r{number}", "j", runs_on=f"m{number}") for number in (0, 1, 3)]
    machines = [replace(machine, running=machine.name != "m2") for machine in MACHINES]
    found = placed(LoadSpreading(), [*running, Task("new", "j")], machines)
    assert found == {"r0": "m0", "r1": "m1", "r3": "m3", "new": "m2"}


def test_measured_load_counts_if_it_is_named_and_more() -> None:
    machines = [Machine("a", "r", 2, running=2), Machine("b", "r", 2, running=1, load={"cpu": 3.5})]
    assert placed(LoadSpreading(), [Task("new", "j")], machines) == {"new": "b"}
    assert placed(LoadSpreading(measured="cpu"), [Task("new", "j")], machines) == {"new": "a"}


@pytest.mark.parametrize("name", ["task_cost", "waiting_cost", "waiting_cost_per_s"])
def test_costs_below_0_are_refused(name: str) -> None:
    with pytest.raises(ProblemError, match=f"{name} is -1; allowed are numbers from 0"):
        LoadSpreading(**{name: -1})
