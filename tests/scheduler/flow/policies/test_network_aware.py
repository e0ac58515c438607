"""The network-aware policy counts bandwidth in use, reserved or measured, and lets a link have what fits."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.flow.cluster_network import ClusterChanges, ClusterNetwork
from scheduler.flow.policies.network_aware import NetworkAware
from scheduler.flow.policies.policy import AGE_S_MAX, Aggregator, ArcTo, Cluster, Machine, Task
from scheduler.flow.problem import ProblemError
from scheduler.flow.solvers import relaxation
from scheduler.flow.task_classes import AGGREGATORS_KEPT, CLASSES_KEPT
from tests.support.flow_networks import NEVER_S
from tests.support.flow_policies import placed

MB = 1_000_000
NET = "net_bytes_per_s"


def linked(name: str, free: float, capacity: float = 1250, slots: int = 4, **load: float) -> Machine:
    """A machine whose link has so much left, in megabytes a second."""
    measured = {key: amount * MB for key, amount in load.items()}
    return Machine(name, "r", slots, {NET: free * MB}, attributes={NET: str(capacity * MB)}, load=measured)


def asking(name: str, request: float) -> Task:
    """A task that demands so much of a link, in megabytes a second."""
    return Task(name, "j", demand={NET: request * MB} if request else {})


def test_what_tasks_of_a_stage_have_used_makes_further_units_dearer_and_requests_say_what_fits() -> None:
    """They request 100 of 1,250 and use 600: two fit the link; the others go where it has to do more than it can only
    rather than wait for long."""
    task = replace(asking("a", 100), expected={NET: 600 * MB})
    assert arcs(NetworkAware(waiting_cost=10_000), task, linked("m", 1250, slots=5)) == {
        "m": [640, *(9_999 + int(10 * (units * 640 / 1250 - 1)) for units in (2, 3, 4, 5))],
    }


def test_what_a_machines_tasks_are_expected_to_use_counts_before_it_is_measured() -> None:
    task = asking("a", 400)
    quiet, about = linked("quiet", 850), replace(linked("about", 850), expected={NET: 700 * MB})
    assert arcs(NetworkAware(), task, quiet, about) == {
        "quiet": [800, 1200],
        "about": [1100, 999_999 + int(10 * 250 / 1250) - 1],
    }


@pytest.mark.parametrize(("waited_s", "places"), [(0.0, [""]), (4.0, [""]), (6.0, ["m"])])
def test_a_task_waits_for_a_link_with_room_but_not_for_ever(waited_s: float, places: list[str]) -> None:
    """The link would have to do half more than it can: that is worth half of `patience_s`."""
    policy = NetworkAware(patience_s=10, waiting_cost=10_000)
    crowded = replace(linked("m", 1000, capacity=1000), expected={NET: 875 * MB})
    task = replace(asking("a", 10), expected={NET: 640 * MB}, waited_s=waited_s)
    assert list(placed(policy, [task], [crowded], relaxation.solve).values()) == places


def test_what_a_task_is_expected_to_use_is_no_more_than_the_link_has() -> None:
    """A task that others saw use more than this link has is alone there, not nowhere."""
    task = replace(asking("a", 10), expected={NET: 9_000 * MB})
    assert arcs(NetworkAware(), task, linked("m", 1000, capacity=1000))["m"][0] == 1000
    assert set(placed(NetworkAware(), [task], [linked("m", 1000, capacity=1000)], relaxation.solve).values()) == {"m"}


@given(st.floats(0, 2000), st.integers(0, 1500), st.floats(0, 5000), st.floats(0, 100), st.integers(1, 12))
def test_units_never_get_cheaper(in_use: float, request: int, expected: float, patience_s: float, slots: int) -> None:
    policy = NetworkAware(patience_s=patience_s)
    machine = replace(linked("m", 1250, slots=slots), expected={NET: in_use * MB})
    for costs in arcs(policy, replace(asking("a", request), expected={NET: expected * MB}), machine).values():
        assert costs == sorted(costs)


def test_requests_are_forgotten_once_the_network_has_none_of_them() -> None:
    policy = NetworkAware()
    network = ClusterNetwork(policy, second_after_s=NEVER_S)
    network.round(ClusterChanges(machines=[linked("m", 1000)]))
    most = 0
    for number in range(1, 4 * AGGREGATORS_KEPT):
        task = asking(f"t{number}", number)
        network.round(ClusterChanges(tasks=[task], tasks_gone=[f"t{number - 1}"]))
        most = max(most, len(policy.machine_arcs(linked("m", 1000))))
    assert CLASSES_KEPT < most <= AGGREGATORS_KEPT + 1
    assert Aggregator("request", str(number)) in policy.machine_arcs(linked("m", 1000))
    again = network.round(ClusterChanges(machines=[linked("m", 2)], tasks=[asking("again", 1)], tasks_gone=[task.name]))
    assert again.placed == [("again", "m")]


def unit_costs(arc: ArcTo) -> list[int]:
    assert not isinstance(arc.cost, int)
    return [arc.cost(unit) for unit in range(arc.capacity)]


def arcs(policy: NetworkAware, task: Task, *machines: Machine) -> dict[str, list[int]]:
    """What the units to each machine cost."""
    policy.see(Cluster.of(machines, [task]))
    (arc,) = policy.task(task).arcs
    assert isinstance(arc.to, Aggregator) and arc.cost == 0
    return {str(arc.to): unit_costs(arc) for arc in policy.aggregator_arcs(arc.to)}


def test_each_unit_costs_what_is_in_use_then_and_as_many_lead_there_as_fit() -> None:
    """The arcs of figure 5.21 from RA150."""
    machines = [linked(f"M{number}", 1250 - used) for number, used in enumerate((850, 850, 650, 1050))]
    assert arcs(NetworkAware(), asking("a", 150), *machines) == {
        "M0": [1000, 1150],
        "M1": [1000, 1150],
        "M2": [800, 950, 1100, 1250],
        "M3": [1200],
    }
    assert arcs(NetworkAware(), asking("a", 401), *machines) == {"M2": [1051]}


@pytest.mark.parametrize(
    ("direction", "load", "costs"),
    [
        ("in", {}, [700, 900, 1100]),
        ("in", {"net_in_bytes_per_s": 300}, [700, 900, 1100]),
        ("in", {"net_out_bytes_per_s": 900, "net_in_bytes_per_s": 800}, [1000, 1200]),
        ("out", {"net_out_bytes_per_s": 900, "net_in_bytes_per_s": 800}, [1100]),
        ("both", {"net_out_bytes_per_s": 900, "net_in_bytes_per_s": 800}, [1100]),
        ("in", {"net_in_bytes_per_s": 2000}, []),
    ],
)
def test_what_is_reserved_or_measured_counts_whichever_is_more(
    direction: str, load: dict[str, float], costs: list[int]
) -> None:
    found = arcs(NetworkAware(direction=direction), asking("a", 200), linked("m", 750, **load), linked("full", 199))
    assert found == ({"m": costs} if costs else {})


def test_slots_limit_units_and_tasks_that_ask_for_nothing_fit_anywhere() -> None:
    assert arcs(NetworkAware(), asking("a", 10), linked("m", 1250, slots=2)) == {"m": [10, 20]}
    assert arcs(NetworkAware(), asking("a", 0), linked("m", 0, slots=2), linked("n", 650, slots=1)) == {
        "m": [1250, 1251],
        "n": [600],
    }


def test_a_capacity_that_nobody_states_is_the_most_that_was_free() -> None:
    policy = NetworkAware()
    nameless = replace(linked("m", 1000), attributes={NET: "fast"})
    assert arcs(policy, asking("a", 400), nameless) == {"m": [400, 800]}
    assert arcs(policy, asking("a", 400), replace(nameless, free={NET: 600.0 * MB})) == {"m": [800]}
    assert arcs(NetworkAware(capacity=800.0 * MB), asking("a", 400), replace(nameless, free={NET: 600.0 * MB})) == {
        "m": [600]
    }
    assert policy.used(replace(nameless, free={NET: 600.0 * MB})) == (400, 1000)


def test_a_machine_that_has_changed_gets_other_arcs_from_all_aggregators() -> None:
    policy = NetworkAware()
    for request in (100, 300):
        arcs(policy, asking("a", request), linked("m", 1250))
    found = policy.machine_arcs(linked("m", 450))
    assert {aggregator.name: unit_costs(arc) for aggregator, arc in found.items()} == {
        "100": [900, 1000, 1100, 1200],
        "300": [1100],
    }
    again = policy.aggregator_arcs(Aggregator("request", "300"))
    assert [unit_costs(arc) for arc in again] == [[1100]]


def test_tasks_of_one_round_go_to_the_links_that_have_least_to_do() -> None:
    machines = [linked("a", 1250), linked("b", 850), linked("c", 300)]
    tasks = [asking(f"t{number}", 400) for number in range(6)]
    found = list(placed(NetworkAware(), tasks, machines).values())
    assert {name: found.count(name) for name in ("a", "b", "c", "")} == {"a": 3, "b": 2, "c": 0, "": 1}
    assert placed(NetworkAware(), [asking("t", 400)], machines) == {"t": "a"}


@pytest.mark.parametrize(
    ("request_mb", "told_apart_as"), [(1022.5, "1023"), (1023.5, "1024"), (1025, "1026"), (100_001, "100096")]
)
def test_sizes_of_requests_are_not_too_many(request_mb: float, told_apart_as: str) -> None:
    policy = NetworkAware()
    policy.see(Cluster.of([], []))
    (arc,) = policy.task(asking("a", request_mb)).arcs
    assert arc.to == Aggregator("request", told_apart_as)


def test_waiting_gets_dearer_up_to_a_limit() -> None:
    policy = NetworkAware(waiting_cost=2500, waiting_cost_per_s=2)
    prices = [policy.task(Task("a", "j", waited_s=waited_s)).waiting for waited_s in (0, 3, 10 * AGE_S_MAX)]
    assert prices == [2500, 2506, 2500 + 2 * AGE_S_MAX]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"capacity": -1}, "capacity is -1; allowed are numbers from 0"),
        ({"waiting_cost": -1}, "waiting_cost is -1; allowed are numbers from 0"),
        ({"waiting_cost_per_s": float("nan")}, "waiting_cost_per_s is nan; allowed are numbers from 0"),
        ({"unit": 0}, "unit is 0; allowed are numbers above 0"),
        ({"direction": "up"}, "direction is 'up'; allowed are in, out, both"),
        ({"resource": ""}, "resource is empty; allowed is the name of a resource"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, float], message: str) -> None:
    with pytest.raises(ProblemError, match=message):
        NetworkAware(**settings)  # type: ignore[arg-type]
