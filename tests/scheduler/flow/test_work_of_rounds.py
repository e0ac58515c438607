"""A round's work in Python is that of what has changed: 135,000 tasks that run must not be walked through each time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from scheduler.flow.cluster_network import ClusterChanges, ClusterNetwork
from scheduler.flow.policies.load_spreading import LoadSpreading
from scheduler.flow.policies.policy import Machine, Policy, Task
from scheduler.flow.policies.quincy import GIGABYTE, Quincy
from tests.support.counted_calls import calls
from tests.support.flow_networks import NEVER_S

MACHINES = 20


def of_a_round(policy: Policy, running: int) -> int:
    """The calls of a round of a task that comes and one that ends, beside so many that run on each machine."""
    network = ClusterNetwork(policy, keeps_running=True, second_after_s=NEVER_S)

    def task(number: int) -> Task:
        return Task(f"t{number}", f"j{number % 7}", 10 * GIGABYTE, {f"m{number % MACHINES}": 9 * GIGABYTE})

    tasks = [task(number) for number in range(MACHINES * running)]
    machines = [Machine(f"m{number}", f"r{number % 4}", 2 * running) for number in range(MACHINES)]
    told = network.round(ClusterChanges(machines=machines, tasks=tasks)).placed
    assert len(told) == len(tasks)
    for turn in range(3):  # Until all is settled.
        told = network.round(ClusterChanges(tasks_run=told, now_s=1.0 + turn)).placed
        assert not told
    changes = ClusterChanges(tasks=[task(len(tasks) + 3)], tasks_gone=["t5"], now_s=5.0)
    return calls(lambda: network.round(changes))


@pytest.mark.parametrize("policy", [Quincy, LoadSpreading])
def test_a_round_does_as_much_beside_many_tasks_that_run_as_beside_few(policy: Callable[[], Policy]) -> None:
    few, many = of_a_round(policy(), 4), of_a_round(policy(), 40)
    assert many - few < MACHINES * (40 - 4) / 10, (few, many)
