"""The policy that keeps tasks from sharing a network link that has not enough for all of them (paper 004, §5.4).

Tasks that request the same bandwidth go to one request aggregator. From there as many units lead to a machine as fit
into what its link has left, floor((capacity − used) / request), and the unit after k others costs what is in use there
then, used + (k + 1) · request. So the tasks of one round go to the links that have least to do, and see each other.
(The text calls the numbers in figure 5.21 available bandwidth; its costs make sense only as bandwidth in use.)

Used is what is reserved, or what is measured, if that is more: tasks may take more than they have requested, and so may
those of others. So costs go by what a task is expected to use (`Task.expected`), if tasks of its stage have used more
than they request: by that each further unit costs more, and a machine's tasks count with that before their traffic is
measured. Requests alone say what fits. But where a link would have more to do than it can, a task rather waits for
another link: `patience_s` seconds, if the link would be asked for twice what it can, half as long if for half more.
Then it goes there all the same, so that nothing waits for ever because of an estimate.

Tasks with other requests are not seen within a round: the sum of what goes to a machine is looked at
when the flow is extracted, and what is too much is offered again (§5.5).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

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
EXPECTED_BITS = 4
"""What tasks are expected to use is told apart by an eighth, as it moves with each task that ends."""
CROWDS_MAX = 1_000.0
"""A link that would have more times more to do than it can is no worse than one with so many."""
BETWEEN = "/"
"""In an aggregator's name: after the request comes what tasks are expected to use, if that is more."""


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
    patience_s: float = 10.0
    """How long a task waits rather than go where the link would have to do twice what it can."""
    waiting_cost: int = 1_000_000
    """Above what the fullest link costs, or tasks wait though they fit."""
    waiting_cost_per_s: float = 1.0
    _machines: dict[str, Machine] = field(default_factory=dict, init=False)
    _seen: dict[str, float] = field(default_factory=dict, init=False)
    """By machine: the most that was ever free."""
    _asked: dict[Aggregator, tuple[int, int]] = field(default_factory=dict, init=False)
    """By aggregator that the network has: what a task of it requests, and is expected to use, in units."""

    def __post_init__(self) -> None:
        for name in ("capacity", "patience_s", "waiting_cost", "waiting_cost_per_s"):
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
        request, _, expected = aggregator.name.partition(BETWEEN)
        asked = self._asked[aggregator] = int(request), int(expected or request)
        arcs = (self._arc(machine, *asked) for machine in self._machines.values())
        return [arc for arc in arcs if arc.capacity > 0]

    def machine_arcs(self, machine: Machine) -> Mapping[Aggregator, ArcTo]:
        """From all request aggregators."""
        self._machines[machine.name] = machine
        return {aggregator: self._arc(machine, *asked) for aggregator, asked in self._asked.items()}

    def aggregators_left(self, aggregators: Collection[Aggregator]) -> None:
        """Requests that no task has had for a while are forgotten."""
        self._asked = {name: asked for name, asked in self._asked.items() if name in aggregators}

    def used(self, machine: Machine) -> tuple[float, float]:
        """Bandwidth of the machine's link that is reserved, or measured, and its capacity, in units."""
        free = machine.free.get(self.resource, 0.0)
        self._seen[machine.name] = most = max(free, self._seen.get(machine.name, 0.0))
        capacity = _number(machine.attributes.get(self.resource, "")) or self.capacity or most
        measured = max(machine.load.get(name, 0.0) for name in MEASURED[self.direction])
        return max(capacity - free, measured, 0.0) / self.unit, capacity / self.unit

    # ---- arcs ------------------------------------------------------------------------------------

    def _aggregator(self, task: Task) -> Aggregator:
        """By the request, and by what the task is expected to use, rounded up to what is told apart."""
        request = _rounded(task.demand.get(self.resource, 0.0) / self.unit, EXACT_BITS)
        expected = _rounded(task.expected.get(self.resource, 0.0) / self.unit, EXPECTED_BITS)
        if expected <= request + request // (1 << EXPECTED_BITS - 1):
            return Aggregator(KIND, str(request))
        return Aggregator(KIND, f"{request}{BETWEEN}{expected}")

    def _arc(self, machine: Machine, request: int, expected: int) -> ArcTo:
        used, capacity = self.used(machine)
        fitting = machine.slots
        if request:
            fitting = min(fitting, max(0, math.floor((capacity - used) / request)))
        used = max(used, machine.expected.get(self.resource, 0.0) / self.unit)
        if expected == 0:
            return ArcTo(machine.name, rising(math.ceil(used), 1), fitting)
        step = max(request, min(expected, math.floor(capacity)))
        if used + fitting * step <= capacity:
            return ArcTo(machine.name, rising(math.ceil(used) + step, step), fitting)
        return ArcTo(machine.name, partial(self._cost, used, step, capacity), fitting)

    def _cost(self, used: float, step: int, capacity: float, others: int) -> int:
        """Of the unit after so many others, on a link that may have more to do than it can."""
        then = math.ceil(used) + (others + 1) * step
        beyond = then / capacity - 1 if capacity else 1.0
        if beyond <= 0:
            return then
        patience_cost = self.waiting_cost_per_s * self.patience_s * min(beyond, CROWDS_MAX)
        return max(then, self.waiting_cost - 1 + int(patience_cost))


def _rounded(amount: float, bits: int) -> int:
    """Up to a whole number of so many significant bits, or to the unit."""
    whole = math.ceil(amount)
    step = 1 << max(0, whole.bit_length() - bits)
    return -(-whole // step) * step


def _number(text: str) -> float:
    """What an attribute says, if it is a number above 0; else 0."""
    try:
        number = float(text)
    except ValueError:
        return 0.0
    return number if 0 < number < math.inf else 0.0
