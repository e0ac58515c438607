"""The network of a cluster under a policy: a node for each task, machine and aggregator, arcs as the policy says.

Beside the policy's arcs there are, as in Quincy: from each machine to the sink as many units as it has slots; from each
task to its job's aggregator of waiting tasks, and from that to the sink; from a task that runs to its machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from scheduler.flow.building import Building, NewNetwork
from scheduler.flow.convex import ConvexArc, expand
from scheduler.flow.policies.policy import Aggregator, ArcTo, Cluster, Machine, Policy, Task, UnitCost
from scheduler.flow.problem import Problem, ProblemError

WAITING_MAX = (1 << 31) - 1
"""Tasks of a job that may wait."""


@dataclass
class PolicyNetwork:
    """Puts machines and tasks into a network, and knows the numbers of their nodes. The policy has seen the cluster."""

    network: Building
    policy: Policy
    sink: int = field(init=False)
    machines: dict[str, int] = field(default_factory=dict)
    tasks: dict[str, int] = field(default_factory=dict)
    aggregators: dict[Aggregator, int] = field(default_factory=dict)
    waiting: dict[str, int] = field(default_factory=dict)
    """By job."""
    waiting_arcs: dict[str, int] = field(default_factory=dict)
    """By task: the arc that it takes if it waits."""
    running_arcs: dict[str, int] = field(default_factory=dict)
    """By task that runs: the arc that it takes if it stays."""

    def __post_init__(self) -> None:
        self.sink = self.network.add_node()

    def add_machine(self, machine: Machine) -> None:
        """All machines come before the first task."""
        if machine.name in self.machines:
            raise ProblemError(f"there are two machines {machine.name}")
        if machine.slots < 0:
            raise ProblemError(f"slots of {machine.name} are {machine.slots}; allowed are numbers from 0")
        self.machines[machine.name] = node = self.network.add_node()
        self._add_units(node, self.sink, self.policy.machine_cost(machine), machine.slots)

    def add_task(self, task: Task) -> None:
        """A task with its arcs, and what of aggregators it is the first to need."""
        if task.name in self.tasks:
            raise ProblemError(f"there are two tasks {task.name}")
        costs = self.policy.task(task)
        self.tasks[task.name] = node = self.network.add_node(1)
        self.network.set_supply(self.sink, -len(self.tasks))
        self._add_arcs(node, costs.arcs, f"task {task.name}")
        self.waiting_arcs[task.name] = self.network.add_arc(node, self._waiting(task.job), costs.waiting, 1)
        if task.runs_on is not None:
            stays = ArcTo(task.runs_on, costs.running)
            (self.running_arcs[task.name],) = self._add_arcs(node, [stays], f"task {task.name}")

    def _waiting(self, job: str) -> int:
        if job not in self.waiting:
            self.waiting[job] = node = self.network.add_node()
            self.network.add_arc(node, self.sink, 0, WAITING_MAX)
        return self.waiting[job]

    def _add_arcs(self, node: int, arcs: Sequence[ArcTo], whose: str) -> list[int]:
        """Arcs of one node; aggregators that they lead to come with theirs."""
        numbers: list[int] = []
        for arc in arcs:
            head = self._aggregator(arc.to) if isinstance(arc.to, Aggregator) else self.machines.get(arc.to)
            if head is None:
                raise ProblemError(f"an arc of {whose} leads to the machine {arc.to}; there is no such machine")
            numbers += self._add_units(node, head, arc.cost, arc.capacity)
        return numbers

    def _add_units(self, tail: int, head: int, cost: UnitCost, capacity: int) -> list[int]:
        if isinstance(cost, int):
            return [self.network.add_arc(tail, head, cost, capacity)]
        return expand(self.network, ConvexArc(tail, head, capacity, cost))

    def _aggregator(self, aggregator: Aggregator) -> int:
        node = self.aggregators.get(aggregator)
        if node is None:
            node = self.aggregators[aggregator] = self.network.add_node()
            arcs = self.policy.aggregator_arcs(aggregator)
            self._add_arcs(node, arcs, f"the aggregator {aggregator.kind} {aggregator.name}".rstrip())
        return node


def network_of(policy: Policy, cluster: Cluster) -> tuple[Problem, PolicyNetwork]:
    """The whole problem of a cluster, and the numbers in it."""
    policy.see(cluster)
    network = NewNetwork()
    made = PolicyNetwork(network, policy)
    for machine in cluster.machines.values():
        made.add_machine(machine)
    for task in cluster.tasks.values():
        made.add_task(task)
    return network.problem(), made
