"""Paper 004 §5.1: a policy defines the network, and follows the cluster's events and measurements."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler.flow.cluster_network import ClusterChanges, ClusterNetwork
from scheduler.flow.policies.policy import FollowsMachines, Machine, Task
from scheduler.flow.policies.quincy import GIGABYTE, Quincy
from scheduler.flow.policies.table import POLICIES, policy_named
from tests.support.flow_networks import NEVER_S
from tests.support.flow_policies import gigabytes

MACHINES = [Machine(f"m{number}", f"r{number // 2}", 2) for number in range(4)]


def network(policy: str, *, keeps_running: bool = False) -> ClusterNetwork:
    return ClusterNetwork(policy_named(policy), second_after_s=NEVER_S, keeps_running=keeps_running)


@pytest.mark.parametrize("name", POLICIES)
def test_any_policy_places_what_there_is_room_for(name: str) -> None:
    """ "Generalises min-cost flow-based scheduling over the single, batch-oriented policy proposed by Quincy"."""
    made = network(name)
    tasks = [Task(f"t{number}", "j", GIGABYTE, gigabytes(m1=1), duration_s=number) for number in range(10)]
    first = made.round(ClusterChanges(machines=MACHINES, tasks=tasks))
    assert (len(first.placed), first.waiting) == (8, 2)
    machines = [machine for _, machine in first.placed]
    assert all(machines.count(machine.name) == 2 for machine in MACHINES)


@pytest.mark.parametrize("name", POLICIES)
def test_events_between_rounds_change_the_network_as_a_new_one_would_be(name: str) -> None:
    """ "Continuously monitors cluster events (e.g., task completions, machine failures), and updates the flow
    network"."""
    assert isinstance(policy_named(name), FollowsMachines)
    made = network(name)
    tasks = [Task(f"t{number}", "j", GIGABYTE, gigabytes(m1=1), duration_s=number, since_s=1.0) for number in range(6)]
    made.round(ClusterChanges(machines=MACHINES, tasks=tasks, now_s=1))
    fuller = replace(MACHINES[0], slots=1, running=1)
    more = Task("more", "k", duration_s=1, since_s=8.0)
    rounds = [
        ClusterChanges(machines=[fuller], tasks_gone=["t0"], now_s=5),
        ClusterChanges(machines_gone=["m3"], tasks=[more], now_s=9),
    ]
    for changes in rounds:
        placed = made.round(changes)
    anew = network(name).round(ClusterChanges(machines=[fuller, *MACHINES[1:3]], tasks=[*tasks[1:], more], now_s=9))
    assert (placed.cost, placed.waiting) == (anew.cost, anew.waiting)


def test_a_higher_priority_displaces_those_that_wait_and_preempts_those_that_run() -> None:
    """ "Firmament […] can support rescheduling and task priority preemption"."""
    one = [Machine("m", "r", 1)]
    made = network("quincy", keeps_running=True)
    low, lower, high = (Task(name, name, priority=value) for name, value in (("low", 0), ("lower", -1), ("high", 5)))
    assert made.round(ClusterChanges(machines=one, tasks=[lower, low])).placed == [("low", "m")]
    found = made.round(ClusterChanges(tasks_run=[("low", "m")], tasks=[high]))
    assert (found.placed, found.stopped) == ([("high", "m")], ["low"])
    kept = network("quincy")
    assert kept.round(ClusterChanges(machines=one, tasks=[lower, low, high])).placed == [("high", "m")]


def test_costs_age_while_nothing_else_happens() -> None:
    """What has waited goes before what has just come."""
    made = network("quincy")
    made.round(ClusterChanges(tasks=[Task("old", "j", since_s=0.0)], now_s=0))
    found = made.round(
        ClusterChanges(machines=[Machine("m", "r", 1)], tasks=[Task("new", "k", since_s=60.0)], now_s=60)
    )
    assert found.placed == [("old", "m")]


def test_what_machines_measure_moves_placements() -> None:
    """ "The scheduler can use the task profiles and the cluster resource topology in scheduling policies to avoid task
    co-location interference": here it is what the machines measure."""
    quiet, busy = Machine("quiet", "r", 4, running=1), Machine("busy", "r", 4, load={"cpu": 7.5})
    task = [Task("t", "j")]
    for name, place in (("load-spreading", "busy"), ("load-spreading,measured=cpu", "quiet"), ("co-location", "quiet")):
        found = network(name).round(ClusterChanges(machines=[quiet, busy], tasks=task))
        assert found.placed == [("t", place)]


def test_quincy_is_one_policy_of_several_and_the_default() -> None:
    assert isinstance(policy_named("quincy"), Quincy)
    assert policy_named("quincy,share_min=0.02") != policy_named("quincy")
