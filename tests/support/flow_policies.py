"""Where a policy places the tasks of a small cluster, if the flow costs least."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scheduler.flow.graph import Kind
from scheduler.flow.policies.network import PolicyNetwork, network_of
from scheduler.flow.policies.policy import Cluster, Machine, Policy, Task
from scheduler.flow.policies.quincy import GIGABYTE
from scheduler.flow.problem import Integers, Problem, Solution
from scheduler.flow.solvers.solver import Solve
from tests.support.flow_problems import oracle_solve

MACHINES = [Machine(f"m{number}", f"r{number // 2}", 2) for number in range(4)]


def gigabytes(**amounts: int) -> dict[str, int]:
    return {name: amount * GIGABYTE for name, amount in amounts.items()}


def placements(problem: Problem, made: PolicyNetwork, solution: Solution) -> dict[str, str]:
    """Where each task goes: a machine's name, or "" if it waits. Where units meet they go on in any order."""
    left = solution.flow.copy()
    names = {node: name for name, node in made.machines.items()}
    found = {}
    for task, node in made.tasks.items():
        here = node
        while here != made.sink:
            arc = int(np.flatnonzero((problem.tail == here) & (left > 0))[0])
            left[arc] -= 1
            found[task] = names.get(here, "")
            here = int(problem.head[arc])
    return found


def placed(
    policy: Policy, tasks: Sequence[Task], machines: Sequence[Machine] = MACHINES, solve: Solve = oracle_solve
) -> dict[str, str]:
    """The machine of each task, "" of those that wait."""
    problem, made = network_of(policy, Cluster.of(machines, tasks))
    return placements(problem, made, solve(problem))


def kinds_of(problem: Problem, made: PolicyNetwork) -> Integers:
    """What kind of node each is, for a graph."""
    kinds = np.full(len(problem.supply), Kind.OTHER, np.int64)
    kinds[made.sink] = Kind.SINK
    for kind, numbers in ((Kind.MACHINE, made.machines), (Kind.UNSCHEDULED, made.waiting), (Kind.TASK, made.tasks)):
        kinds[list(numbers.values())] = kind
    return kinds
