"""Quincy's policy: tasks go where their data are, unless that means to wait for long (paper 004, §2.3.3, figure 2.18).

A task costs what it moves over the network: a byte that comes from another machine of the rack passes the rack's
switch, one that comes from another rack passes the core switch, too. It has arcs to machines and racks that hold enough
of its input (the thesis compares 14 % and 2 %), and one to the cluster, X, at the cost of a place that has nothing of
it; a rack costs what its worst machine does. Waiting costs by the second, and a task that runs gets the cheaper to keep
the longer it has run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from scheduler.flow.policies.policy import AGE_S_MAX, Aggregator, ArcTo, Cluster, Machine, Task, TaskCosts, UnitCost
from scheduler.flow.problem import ProblemError

CLUSTER = Aggregator("cluster")
GIGABYTE = 1_000_000_000
ALL = (1 << 31) - 1
"""Tasks that may go to a rack: its machines limit them."""


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
    _share_min: Fraction = field(default=Fraction(), init=False)
    """As it is written: 14 of 100 bytes are 14 %."""
    _rack_by_machine: dict[str, str] = field(default_factory=dict, init=False)
    _slots: dict[str, dict[str, int]] = field(default_factory=dict, init=False)
    """By rack: slots by machine."""

    def __post_init__(self) -> None:
        if not 0 < self.share_min <= 1:
            raise ProblemError(f"share_min is {self.share_min}; allowed are numbers above 0, up to 1")
        if not 0 <= self.rack_cost <= self.core_cost:
            raise ProblemError(f"rack_cost is {self.rack_cost}; allowed are 0 to core_cost, {self.core_cost}")
        self._share_min = Fraction(str(self.share_min))
        if self.preferred_max < 0:
            raise ProblemError(f"preferred_max is {self.preferred_max}; allowed are numbers from 0")

    def see(self, cluster: Cluster) -> None:
        """Which machine is in which rack."""
        self._rack_by_machine = {machine.name: machine.rack for machine in cluster.machines.values()}
        self._slots = {}
        for machine in cluster.machines.values():
            self._slots.setdefault(machine.rack, {})[machine.name] = machine.slots

    def task(self, task: Task) -> TaskCosts:
        """To preferred machines, to preferred racks, and to the cluster."""
        local, racks = self._held(task)
        worst = self._cost(task, 0, 0)
        arcs = [ArcTo(machine, self._machine_cost(task, machine, local, racks)) for machine in self._most(task, local)]
        arcs += [ArcTo(rack_of(rack), self._rack_cost(task, rack, local, racks)) for rack in self._most(task, racks)]
        arcs.append(ArcTo(CLUSTER, worst))
        running = 0
        if task.runs_on is not None:
            bonus = int(self.running_bonus_per_s * min(task.ran_s, AGE_S_MAX))
            running = self._machine_cost(task, task.runs_on, local, racks) - bonus
        return TaskCosts(
            arcs,
            waiting=worst + self.offset + int(self.waiting_cost_per_s * min(task.waited_s, AGE_S_MAX)),
            running=running,
            waiting_per_s=self.waiting_cost_per_s,
            running_per_s=self.running_bonus_per_s,
            asks_again={*task.local_bytes, *racks},
        )

    def machine_cost(self, machine: Machine) -> UnitCost:
        """Nothing."""
        return 0

    def aggregator_arcs(self, aggregator: Aggregator) -> Sequence[ArcTo]:
        """From the cluster to its racks, from a rack to its machines: for nothing."""
        if aggregator == CLUSTER:
            return [ArcTo(rack_of(rack), 0, ALL) for rack in self._slots]
        return [ArcTo(machine, 0, slots) for machine, slots in self._slots.get(aggregator.name, {}).items()]

    def machine_arcs(self, machine: Machine) -> Mapping[Aggregator, ArcTo]:
        """From its rack alone."""
        self._slots[machine.rack][machine.name] = machine.slots
        return {rack_of(machine.rack): ArcTo(machine.name, 0, machine.slots)}

    # ---- costs -------------------------------------------------------------------------------

    def _held(self, task: Task) -> tuple[dict[str, int], dict[str, int]]:
        """What of its input lies on machines that are there, and in their racks, at most all of it each."""
        local: dict[str, int] = {}
        racks: dict[str, int] = {}
        for name, held in task.local_bytes.items():
            rack = self._rack_by_machine.get(name)
            if rack is not None:
                local[name] = min(held, task.input_bytes)
                racks[rack] = min(racks.get(rack, 0) + held, task.input_bytes)
        return local, racks

    def _most(self, task: Task, held: Mapping[str, int]) -> list[str]:
        """Those that hold enough to be preferred, and most."""
        of, parts = self._share_min.as_integer_ratio()
        places = [name for name, amount in held.items() if amount > 0 and amount * parts >= task.input_bytes * of]
        if len(places) > self.preferred_max:
            places = sorted(places, key=held.__getitem__, reverse=True)[: self.preferred_max]
        return places

    def _cost(self, task: Task, local: int, in_rack: int) -> int:
        moved = self.rack_cost * (in_rack - local) + self.core_cost * (task.input_bytes - in_rack)
        return moved // GIGABYTE

    def _machine_cost(self, task: Task, machine: str, local: Mapping[str, int], racks: Mapping[str, int]) -> int:
        return self._cost(task, local.get(machine, 0), racks.get(self._rack_by_machine[machine], 0))

    def _rack_cost(self, task: Task, rack: str, local: Mapping[str, int], racks: Mapping[str, int]) -> int:
        """Of the machine that holds least, which is nothing where the rack has more machines than hold anything."""
        machines = self._slots[rack]
        least = 0 if len(local) < len(machines) else min(local.get(machine, 0) for machine in machines)
        return self._cost(task, least, racks[rack])
