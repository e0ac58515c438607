"""Paper 004 §5.5, limitations, and what is done about them here: resources of several dimensions."""

from __future__ import annotations

from collections import Counter

import pytest

from scheduler.flow.cluster_network import ClusterChanges, ClusterNetwork
from scheduler.flow.policies.load_spreading import LoadSpreading
from scheduler.flow.policies.network_aware import NetworkAware
from scheduler.flow.policies.policy import Machine, Task
from tests.support.flow_networks import NEVER_S, Play
from tests.support.flow_problems import IN_USE_MBPS, LINK_MBPS

MB = 1_000_000
NET = "net_bytes_per_s"
MACHINES = [
    Machine(name, "r", 5, {NET: (LINK_MBPS - used) * MB}, attributes={NET: str(LINK_MBPS * MB)})
    for name, used in IN_USE_MBPS.items()
]
REQUESTS = {"a": 400, "b": 400, "c": 150, "d": 150, "e": 150}
TASKS = [Task(name, "j", demand={NET: request * MB}) for name, request in REQUESTS.items()]


def play(*, largest_first: bool = True) -> Play:
    policy = NetworkAware(waiting_cost=2_500)
    return Play(ClusterNetwork(policy, second_after_s=NEVER_S, largest_first=largest_first))


def in_use(placed: list[tuple[str, str]]) -> dict[str, int]:
    """Bandwidth in use afterwards."""
    used = Counter(IN_USE_MBPS)
    for task, machine in placed:
        used[machine] += REQUESTS[task]
    return dict(used)


def test_solvers_do_not_distinguish_between_the_supplies_of_tasks() -> None:
    """ "Min-cost flow solvers do not distinguish between different task flow supplies": arcs of different requests do
    not see each other, so the optimum of figure 5.21, 5,050, sends 650 + 150 + 150 + 400 = 1,350 MB/s to M2's link of
    1,250. What is admitted never does: largest request first, what is turned away solved again at once, ends at 5,250,
    the best that there is."""
    game = play()
    placed = game.round(ClusterChanges(machines=MACHINES, tasks=TASKS))
    assert placed.cost == 5250
    assert not game.tasks
    assert max(in_use(list(placed.placed)).values()) <= LINK_MBPS


def test_smallest_requests_first_leave_a_large_one_waiting() -> None:
    game = play(largest_first=False)
    placed = game.round(ClusterChanges(machines=MACHINES, tasks=TASKS))
    assert placed.cost == 6500
    assert [REQUESTS[name] for name in game.tasks] == [400]
    assert max(in_use(list(placed.placed)).values()) <= LINK_MBPS


@pytest.mark.parametrize(
    ("demand", "fitting"),
    [({"cpu": 1.0}, 8), ({"cpu": 1.0, "memory_bytes": 5.0}, 4), ({"memory_bytes": 11.0}, 0), ({"gpu": 1.0}, 0)],
)
def test_a_task_goes_where_each_dimension_of_its_request_fits(demand: dict[str, float], fitting: int) -> None:
    """ "Tasks having widely different requirements on multiple resource dimensions": arcs lead only to where a task
    fits, and as many units as fit."""
    network = ClusterNetwork(LoadSpreading(), second_after_s=NEVER_S)
    machines = [Machine(name, "r", 8, {"cpu": 4.0, "memory_bytes": 10.0}) for name in ("m", "n")]
    tasks = [Task(f"t{number}", "j", demand=demand) for number in range(12)]
    found = Counter(machine for _, machine in network.round(ClusterChanges(machines=machines, tasks=tasks)).placed)
    assert found.total() == fitting
    assert not found or max(found.values()) == fitting / 2


def test_requests_of_different_shape_share_machines_without_overcommitting_any_dimension() -> None:
    network = ClusterNetwork(LoadSpreading(), second_after_s=NEVER_S)
    machines = [Machine(name, "r", 9, {"cpu": 6.0, "memory_bytes": 6.0}) for name in ("m", "n")]
    shapes = {"c": {"cpu": 3.0, "memory_bytes": 1.0}, "d": {"cpu": 1.0, "memory_bytes": 3.0}, "e": {"cpu": 2.0}}
    tasks = [Task(f"{shape}{number}", "j", demand=demand) for shape, demand in shapes.items() for number in range(4)]
    placed = network.round(ClusterChanges(machines=machines, tasks=tasks)).placed
    for machine in machines:
        there = [shapes[task[0]] for task, name in placed if name == machine.name]
        for resource, offered in machine.free.items():
            assert sum(demand.get(resource, 0.0) for demand in there) <= offered
        assert there
