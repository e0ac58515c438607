"""Quincy's policy: tasks go where their data are, unless that means to wait for long (paper 004, §2.3.3, figure 2.18).

A task costs what it moves over the network: a byte that comes from another machine of the rack passes the rack's
switch, one that comes from another rack passes the core switch, too. It has arcs to machines and racks that hold enough
of its input (the thesis compares 14 % and 2 %), and one to the cluster, X, at the cost of the worst place there; a
rack, too, costs what its worst machine does. Waiting costs by the second, and a task that runs gets the cheaper to keep
the longer it has run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from scheduler.flow.policies.policy import AGE_S_MAX, Aggregator, ArcTo, Cluster, Machine, Task, TaskCosts, UnitCost
from scheduler.flow.problem import ProblemError

CLUSTER = Aggregator("cluster")
GIGABYTE = 1_000_000_000


def rack_of(name: str) -> Aggregator:
    """A rack's aggregator."""
    return Aggregator("rack", name)


@dataclass
class Quincy:
    """See the module's docstring. Costs are for each gigabyte, or second."""

    share_min: float = 0.14
    """Of its input that a machine or a rack has to hold to be preferred."""
    preferred_max: int = 10
    """Machines, and racks, that a task prefers: those that hold most."""
    rack_cost: int = 100
    core_cost: int = 200
    """Of a byte from another rack, its way through that rack included."""
    waiting_cost_per_s: float = 0.5
    running_bonus_per_s: float = 1.0
    offset: int = 2_000
    """Of waiting over the worst place: with 0 a task that has just come would wait rather than go there."""
    _rack_by_machine: dict[str, str] = field(default_factory=dict, init=False)
    _slots: dict[str, Counter[str]] = field(default_factory=dict, init=False)
    """By rack: slots by machine."""

    def __post_init__(self) -> None:
        if not 0 < self.share_min <= 1:
            raise ProblemError(f"share_min is {self.share_min}; allowed are numbers above 0, up to 1")
        if not 0 <= self.rack_cost <= self.core_cost:
            raise ProblemError(f"rack_cost is {self.rack_cost}; allowed are 0 to core_cost, {self.core_cost}")
        if self.preferred_max < 0:
            raise ProblemError(f"preferred_max is {self.preferred_max}; allowed are numbers from 0")

    def see(self, cluster: Cluster) -> None:
        """Which machine is in which rack."""
        self._rack_by_machine = {machine.name: machine.rack for machine in cluster.machines.values()}
        self._slots = {}
        for machine in cluster.machines.values():
            self._slots.setdefault(machine.rack, Counter())[machine.name] = machine.slots

    def task(self, task: Task) -> TaskCosts:
        """To preferred machines, to preferred racks, and to the cluster."""
        local, racks = self._held(task)
        enough = self.share_min * task.input_bytes
        machines = [name for name, held in local.most_common(self.preferred_max) if held >= enough > 0]
        preferred = [rack for rack, held in racks.most_common(self.preferred_max) if held >= enough > 0]
        worst = self._cluster_cost(task, local, racks)
        arcs = [
            *(ArcTo(machine, self._machine_cost(task, machine, local, racks)) for machine in machines),
            *(ArcTo(rack_of(rack), self._rack_cost(task, rack, local, racks)) for rack in preferred),
            ArcTo(CLUSTER, worst),
        ]
        waiting = worst + self.offset + int(self.waiting_cost_per_s * min(task.waited_s, AGE_S_MAX))
        if task.runs_on is None:
            return TaskCosts(arcs, waiting)
        place = self._machine_cost(task, task.runs_on, local, racks)
        return TaskCosts(arcs, waiting, place - int(self.running_bonus_per_s * min(task.ran_s, AGE_S_MAX)))

    def machine_cost(self, machine: Machine) -> UnitCost:
        """Nothing."""
        return 0

    def aggregator_arcs(self, aggregator: Aggregator) -> Sequence[ArcTo]:
        """From the cluster to its racks, from a rack to its machines: all slots, for nothing."""
        if aggregator == CLUSTER:
            return [ArcTo(rack_of(rack), 0, machines.total()) for rack, machines in self._slots.items()]
        return [ArcTo(machine, 0, slots) for machine, slots in self._slots[aggregator.name].items()]

    # ---- costs -------------------------------------------------------------------------------

    def _held(self, task: Task) -> tuple[Counter[str], Counter[str]]:
        """What of its input lies on machines that are there, and in their racks, at most all of it each."""
        local: Counter[str] = Counter()
        racks: Counter[str] = Counter()
        for name, held in task.local_bytes.items():
            rack = self._rack_by_machine.get(name)
            if rack is not None:
                local[name] = min(held, task.input_bytes)
                racks[rack] = min(racks[rack] + held, task.input_bytes)
        return local, racks

    def _cost(self, task: Task, local: int, in_rack: int) -> int:
        moved = self.rack_cost * (in_rack - local) + self.core_cost * (task.input_bytes - in_rack)
        return moved // GIGABYTE

    def _machine_cost(self, task: Task, machine: str, local: Counter[str], racks: Counter[str]) -> int:
        return self._cost(task, local[machine], racks[self._rack_by_machine[machine]])

    def _rack_cost(self, task: Task, rack: str, local: Counter[str], racks: Counter[str]) -> int:
        return self._cost(task, min(local[machine] for machine in self._slots[rack]), racks[rack])

    def _cluster_cost(self, task: Task, local: Counter[str], racks: Counter[str]) -> int:
        worst = [self._rack_cost(task, rack, local, racks) for rack in racks]
        if len(racks) < len(self._slots):
            worst.append(self._cost(task, 0, 0))
        return max(worst, default=0)
