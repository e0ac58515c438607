"""The policy that spreads tasks: each further task on a machine costs more than the one before (paper 004, §5.2.2).

All tasks go to one aggregator, and from there by a convex arc to each machine, so that tasks of one round see each
other. Those that run count from the beginning; so does, if `measured` names it, what the machine measures: a machine
that has four CPUs in use then counts as one of four tasks, whoever uses them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    measured: str = ""
    """A load that counts in place of tasks, if it is more: cpu. "": tasks alone count."""
    waiting_cost: int = 1_000_000
    """Above what the fullest machine costs, or tasks wait though it has a slot."""
    waiting_cost_per_s: float = 1.0
    _machines: list[Machine] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        for name in ("task_cost", "waiting_cost", "waiting_cost_per_s"):
            if not getattr(self, name) >= 0:
                raise ProblemError(f"{name} is {getattr(self, name)}; allowed are numbers from 0")

    def see(self, cluster: Cluster) -> None:
        """Which machines there are."""
        self._machines = list(cluster.machines.values())

    def task(self, task: Task) -> TaskCosts:
        """To anywhere, for nothing yet. To wait costs more with each second; to stay costs nothing, as no other place
        can be cheaper."""
        waited = int(self.waiting_cost_per_s * min(task.waited_s, AGE_S_MAX))
        return TaskCosts(
            [ArcTo(CLUSTER, 0)],
            waiting=self.waiting_cost + waited,
            waiting_per_s=self.waiting_cost_per_s,
            running_per_s=0.0,
            asks_again=(),
        )

    def machine_cost(self, machine: Machine) -> UnitCost:
        """Nothing beside the arc to it."""
        return 0

    def aggregator_arcs(self, aggregator: Aggregator) -> Sequence[ArcTo]:
        """To all machines, each unit dearer than the one before."""
        return [self._arc(machine) for machine in self._machines]

    def machine_arcs(self, machine: Machine) -> Mapping[Aggregator, ArcTo]:
        """The one from the cluster."""
        return {CLUSTER: self._arc(machine)}

    def _arc(self, machine: Machine) -> ArcTo:
        tasks = max(machine.running, machine.load.get(self.measured, 0.0))
        return ArcTo(machine.name, rising(int(self.task_cost * tasks), self.task_cost), machine.slots)
