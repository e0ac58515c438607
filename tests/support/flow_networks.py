"""Networks of clusters, for tests: a policy whose costs are a table, and rounds whose answers are carried out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from scheduler.flow.cluster_network import ClusterChanges, ClusterNetwork, Placed, Share
from scheduler.flow.policies.policy import Aggregator, ArcTo, Cluster, Machine, Task, TaskCosts, UnitCost

NEVER_S = float("inf")
"""When cost scaling starts beside relaxation."""


@dataclass
class Table:
    """A policy that says what is written in a table: by task its machines with their costs, and the price of waiting.

    It has only what a policy must have.
    """

    arcs: Mapping[str, Mapping[str, int]]
    waiting: Mapping[str, int]
    aggregators: Mapping[str, Sequence[ArcTo]] = field(default_factory=dict)
    to: Mapping[str, str] = field(default_factory=dict)
    """By task: an aggregator that it has an arc to."""
    machines: set[str] = field(default_factory=set)

    def see(self, cluster: Cluster) -> None:
        self.machines = set(cluster.machines)

    def task(self, task: Task) -> TaskCosts:
        own = [ArcTo(name, cost) for name, cost in self.arcs.get(task.name, {}).items() if name in self.machines]
        if task.name in self.to:
            own.append(ArcTo(Aggregator(self.to[task.name]), 0))
        return TaskCosts(own, self.waiting[task.name])

    def machine_cost(self, machine: Machine) -> UnitCost:
        return 0

    def aggregator_arcs(self, aggregator: Aggregator) -> Sequence[ArcTo]:
        return [arc for arc in self.aggregators.get(aggregator.kind, ()) if arc.to in self.machines]


def machines_of(**slots: int) -> list[Machine]:
    return [Machine(name, "rack", count) for name, count in slots.items()]


@dataclass
class Play:
    """A network, and a cluster in which its placements are carried out: tasks that it places are no part of it then."""

    network: ClusterNetwork
    machines: dict[str, Machine] = field(default_factory=dict)
    tasks: dict[str, Task] = field(default_factory=dict)
    """Those that wait."""
    running: dict[str, tuple[Task, str]] = field(default_factory=dict)
    now_s: float = 0.0
    held: dict[str, int] = field(default_factory=dict)
    """Slots by user."""
    _gone: list[str] = field(default_factory=list)
    _changed: dict[str, Machine] = field(default_factory=dict)

    def round(self, changes: ClusterChanges | None = None) -> Placed:
        """Tell what has changed, also by what was placed; what is placed runs then."""
        given = changes or ClusterChanges()
        for name in given.machines_gone:
            self.machines.pop(name)
            self._changed.pop(name, None)
        for machine in given.machines:
            self.machines[machine.name] = self._changed[machine.name] = machine
        for task in given.tasks:
            self.tasks[task.name] = task
        users = {task.user for task in self.tasks.values()} | set(self.held)
        shares = {user: Share(1.0, self.held.get(user, 0)) for user in users} | {
            user: replace(share, running=self.held.get(user, 0)) for user, share in given.shares.items()
        }
        for name in given.tasks_gone:
            self.tasks.pop(name, None)
        told = replace(
            given,
            machines=list(self._changed.values()),
            tasks_gone=[*given.tasks_gone, *self._gone],
            shares=shares,
            now_s=self.now_s,
        )
        self._gone, self._changed = [], {}
        placed = self.network.round(told)
        for name, place in placed.placed:
            self._take(self.tasks.pop(name), place, 1)
        return placed

    def end(self, name: str) -> None:
        """A task that ran has ended."""
        task, place = self.running.pop(name)
        if place in self.machines:
            self._change(place, task, -1)
        self.held[task.user] -= 1

    def _take(self, task: Task, place: str, sign: int) -> None:
        self.running[task.name] = task, place
        self._gone.append(task.name)
        self._change(place, task, sign)
        self.held[task.user] = self.held.get(task.user, 0) + 1

    def _change(self, place: str, task: Task, sign: int) -> None:
        machine = self.machines[place]
        free = {name: amount - sign * task.demand.get(name, 0.0) for name, amount in machine.free.items()}
        machine = replace(machine, slots=machine.slots - sign, running=machine.running + sign, free=free)
        assert machine.slots >= 0 and all(amount >= -1e-6 for amount in free.values()), f"{machine} is overcommitted"
        self.machines[place] = self._changed[place] = machine
