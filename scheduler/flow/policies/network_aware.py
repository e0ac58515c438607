"""The policy that keeps tasks from sharing a network link that has not enough for all of them (paper 004, §5.4).

Tasks that request the same bandwidth go to one request aggregator. From there as many units lead to a machine as fit
into what its link has left, floor((capacity − used) / request), and the unit after k others costs what is in use there
then, used + (k + 1) · request. So the tasks of one round go to the links that have least to do, and see each other.
(The text calls the numbers in figure 5.21 available bandwidth; its costs make sense only as bandwidth in use.)

Used is what is reserved, or what is measured, if that is more: tasks may take more than they have requested, and so may
those of others. Tasks with other requests are not seen within a round: the sum of what goes to a machine is looked at
when the flow is extracted, and what is too much is offered again (§5.5).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from scheduler.flow.convex import rising
from scheduler.flow.policies.policy import AGE_S_MAX, Aggregator, ArcTo, Cluster, Machine, Task, TaskCosts, UnitCost
from scheduler.flow.problem import ProblemError

MEASURED = {
    "in": ("net_in_bytes_per_s",),
    "out": ("net_out_bytes_per_s",),
    "both": ("net_in_bytes_per_s", "net_out_bytes_per_s"),
}
"""By direction: the loads of a machine, of which the larger one counts."""
KIND = "request"
EXACT_BITS = 10
"""Requests up to 1,023 units are told apart by the unit, larger ones by a 512th: so there are not too many."""


@dataclass
class NetworkAware:
    """See the module's docstring. Costs are bandwidth in units."""

    resource: str = "net_bytes_per_s"
    """The resource that tasks demand, and machines offer, for bandwidth."""
    unit: float = 1e6
    """So much of the resource costs 1: a megabyte a second."""
    capacity: float = 0.0
    """Of a link, where a machine has no attribute named like the resource. 0: the most that was free there so far."""
    direction: str = "in"
    """What of the measured traffic counts: what the machine receives, as tasks that read do; "out", or "both"."""
    waiting_cost: int = 1_000_000
    """Above what the fullest link costs, or tasks wait though they fit."""
    waiting_cost_per_s: float = 1.0
    _machines: dict[str, Machine] = field(default_factory=dict, init=False)
    _seen: dict[str, float] = field(default_factory=dict, init=False)
    """By machine: the most that was ever free."""
    _asked: dict[Aggregator, int] = field(default_factory=dict, init=False)
    """By aggregator that the network has: what a task of it requests, in units."""

    def __post_init__(self) -> None:
        for name in ("capacity", "waiting_cost", "waiting_cost_per_s"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ProblemError(f"{name} is {getattr(self, name)}; allowed are numbers from 0")
        if not 0 < self.unit < math.inf:
            raise ProblemError(f"unit is {self.unit}; allowed are numbers above 0")
        if self.direction not in MEASURED:
            raise ProblemError(f"direction is {self.direction!r}; allowed are {', '.join(MEASURED)}")
        if not self.resource:
            raise ProblemError("resource is empty; allowed is the name of a resource")

    def see(self, cluster: Cluster) -> None:
        """Which machines there are, and what their links have left."""
        self._machines = dict(cluster.machines)
        self._seen = {name: self._seen.get(name, 0.0) for name in cluster.machines}

    def task(self, task: Task) -> TaskCosts:
        """To the aggregator of its request; to stay costs nothing more."""
        waited = int(self.waiting_cost_per_s * min(task.waited_s, AGE_S_MAX))
        return TaskCosts(
            [ArcTo(self._aggregator(task), 0)],
            waiting=self.waiting_cost + waited,
            waiting_per_s=self.waiting_cost_per_s,
            running_per_s=0.0,
            asks_again=(),
        )

    def machine_cost(self, machine: Machine) -> UnitCost:
        """Nothing beside the arcs to it."""
        return 0

    def aggregator_arcs(self, aggregator: Aggregator) -> Sequence[ArcTo]:
        """To each machine that has as much left, as many units as fit."""
        request = self._asked[aggregator] = int(aggregator.name)
        arcs = (self._arc(machine, request) for machine in self._machines.values())
        return [arc for arc in arcs if arc.capacity > 0]

    def machine_arcs(self, machine: Machine) -> Mapping[Aggregator, ArcTo]:
        """From all request aggregators."""
        self._machines[machine.name] = machine
        return {aggregator: self._arc(machine, request) for aggregator, request in self._asked.items()}

    def aggregators_left(self, aggregators: Collection[Aggregator]) -> None:
        """Requests that no task has had for a while are forgotten."""
        self._asked = {name: request for name, request in self._asked.items() if name in aggregators}

    def used(self, machine: Machine) -> tuple[float, float]:
        """Bandwidth of the machine's link that is in use, and its capacity, in units."""
        free = machine.free.get(self.resource, 0.0)
        self._seen[machine.name] = most = max(free, self._seen.get(machine.name, 0.0))
        capacity = _number(machine.attributes.get(self.resource, "")) or self.capacity or most
        measured = max(machine.load.get(name, 0.0) for name in MEASURED[self.direction])
        return max(capacity - free, measured, 0.0) / self.unit, capacity / self.unit

    # ---- arcs ------------------------------------------------------------------------------------

    def _aggregator(self, task: Task) -> Aggregator:
        """By the request, rounded up to what is told apart."""
        request = math.ceil(task.demand.get(self.resource, 0.0) / self.unit)
        step = 1 << max(0, request.bit_length() - EXACT_BITS)
        return Aggregator(KIND, str(-(-request // step) * step))

    def _arc(self, machine: Machine, request: int) -> ArcTo:
        used, capacity = self.used(machine)
        if request == 0:
            return ArcTo(machine.name, rising(math.ceil(used), 1), machine.slots)
        fitting = min(machine.slots, max(0, math.floor((capacity - used) / request)))
        return ArcTo(machine.name, rising(math.ceil(used) + request, request), fitting)


def _number(text: str) -> float:
    """What an attribute says, if it is a number above 0; else 0."""
    try:
        number = float(text)
    except ValueError:
        return 0.0
    return number if 0 < number < math.inf else 0.0
