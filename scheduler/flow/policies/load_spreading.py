"""The policy that spreads tasks: each further task on a machine costs more than the one before (paper 004, §5.2.2).

All tasks go to one aggregator, and from there by a convex arc to each machine, so that tasks of one round see each
other. Those that run count from the beginning.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from scheduler.flow.convex import rising
from scheduler.flow.policies.policy import AGE_S_MAX, Aggregator, ArcTo, Cluster, Machine, Task, TaskCosts, UnitCost
from scheduler.flow.problem import ProblemError

CLUSTER = Aggregator("cluster")


@dataclass
class LoadSpreading:
    """See the module's docstring."""

    task_cost: int = 100
    """What a machine costs more for each task that it has."""
    waiting_cost_per_s: float = 1.0
    _machines: list[Machine] = field(default_factory=list, init=False)
    _running: Counter[str] = field(default_factory=Counter, init=False)
    _worst: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        if self.task_cost < 0:
            raise ProblemError(f"task_cost is {self.task_cost}; allowed are numbers from 0")

    def see(self, cluster: Cluster) -> None:
        """How many tasks each machine has."""
        self._machines = list(cluster.machines.values())
        self._running = Counter(task.runs_on for task in cluster.tasks.values() if task.runs_on is not None)
        most = max((machine.slots + self._running[machine.name] for machine in self._machines), default=0)
        self._worst = self.task_cost * most

    def task(self, task: Task) -> TaskCosts:
        """To anywhere, for nothing yet. To wait costs more than the fullest machine does, and more with each second;
        to stay costs nothing, as no other place can be cheaper."""
        waited = int(self.waiting_cost_per_s * min(task.waited_s, AGE_S_MAX))
        return TaskCosts([ArcTo(CLUSTER, 0)], self._worst + 1 + waited)

    def machine_cost(self, machine: Machine) -> UnitCost:
        """Nothing beside the arc to it."""
        return 0

    def aggregator_arcs(self, aggregator: Aggregator) -> Sequence[ArcTo]:
        """To all machines, each unit dearer than the one before."""
        return [
            ArcTo(machine.name, rising(self.task_cost * self._running[machine.name], self.task_cost), machine.slots)
            for machine in self._machines
        ]
