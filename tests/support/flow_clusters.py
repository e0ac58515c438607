"""Small clusters as flow networks: machines with slots, tasks that may wait."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scheduler.flow.building import NewNetwork
from scheduler.flow.constructs import Place
from scheduler.flow.problem import Problem

WAITING = 10
"""What it costs to have a task wait."""


@dataclass
class Cluster:
    """A network of machines and one aggregator for all that wait."""

    slots: Sequence[int]

    def __post_init__(self) -> None:
        self.network = NewNetwork()
        self.sink = self.network.add_node()
        self.waiting = self.network.add_node()
        self.machines = [self.network.add_node() for _ in self.slots]
        for machine, count in zip(self.machines, self.slots, strict=True):
            self.network.add_arc(machine, self.sink, 0, count)
        self.tasks: list[int] = []

    def add_tasks(self, count: int, waiting: int = WAITING) -> list[int]:
        """Tasks that may wait."""
        tasks = [self.network.add_node(1) for _ in range(count)]
        for task in tasks:
            self.network.add_arc(task, self.waiting, waiting, 1)
        self.tasks += tasks
        return tasks

    def places(self, costs: Sequence[int]) -> list[Place]:
        """All machines, at these costs."""
        return [Place(machine, cost) for machine, cost in zip(self.machines, costs, strict=True)]

    def problem(self) -> Problem:
        """All of it."""
        self.network.add_arc(self.waiting, self.sink, 0, len(self.tasks))
        problem = self.network.problem()
        problem.supply[self.sink] = -len(self.tasks)
        return problem
