"""What policies know of a cluster, and what they have to say: arcs and costs of a task, a machine, an aggregator.

A policy is asked about each task: where its arcs lead and what they cost, what it costs to have the task wait, and, if
it runs, to let it. An aggregator stands between tasks and machines: what its arcs are the policy is asked when the
first arc leads to it. All else (machines' slots, the sink, aggregators of waiting tasks, which machines a task may go
to and fits) is the network's.

Costs are whole numbers. What all arcs of a task have in common, its running and waiting costs included, moves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

AGE_S_MAX = 30 * 86_400
"""Seconds of waiting and of running that count: so costs stay small enough for solvers."""

ANY_MACHINE = "*"
"""Stands for every machine in `TaskCosts.asks_again`."""


@dataclass(frozen=True, slots=True)
class Machine:
    """One that is there."""

    name: str
    rack: str
    slots: int
    """For placed tasks. Those that hold some but are no part of the network have been taken off."""
    free: Mapping[str, float] = field(default_factory=dict)
    """Resources for placed tasks, by name, as `slots` are reckoned. One that is not named is not there."""
    running: int = 0
    """Placed tasks that the machine has, whether or not they are part of the network."""
    attributes: Mapping[str, str] = field(default_factory=dict)
    load: Mapping[str, float] = field(default_factory=dict)
    """What the machine measures of itself, by name: cpu, memory, network."""
    expected: Mapping[str, float] = field(default_factory=dict)
    """What the placed tasks that it has are expected to use together, by resource: as `Task.expected` says of each."""


@dataclass(frozen=True, slots=True)
class Task:
    """One that waits or runs."""

    name: str
    job: str
    input_bytes: int = 0
    """What it reads, from wherever."""
    local_bytes: Mapping[str, int] = field(default_factory=dict)
    """What of that lies on machines, by their names."""
    waited_s: float = 0.0
    runs_on: str | None = None
    """A machine's name, or None if the task waits."""
    ran_s: float = 0.0
    user: str = ""
    kind: str = ""
    """Tasks of one kind may go to the same machines; which ones `ClusterChanges.kinds` says. Policies need not know."""
    demand: Mapping[str, float] = field(default_factory=dict)
    """Resources that the task takes from its machine, by name. Policies need not know."""
    group: str = ""
    """Tasks with limits in common: `ClusterChanges.groups` says which. Policies need not know."""
    priority: int = 0
    """The higher, the dearer it is to have the task wait. The network sees to it: policies need not."""
    since_s: float | None = None
    """Since when it waits, or runs: from it the network reckons `waited_s`, or `ran_s`. None: these are as they are."""
    duration_s: float | None = None
    """How long the task is expected to run."""
    preferred: tuple[str, ...] = ()
    """Machines that are better for the task than whatever else the policy says. The network sees to it."""
    expected: Mapping[str, float] = field(default_factory=dict)
    """What the task is expected to use, by resource: what it demands or, if that is more, what tasks of its stage have
    used (`profiles`). What is not named nobody knows; it is used all the same."""


@dataclass(frozen=True, slots=True)
class Group:
    """Limits that tasks have in common, as the tasks of a stage do. 0: no limit."""

    gang: int = 0
    """So many tasks are placed at once, or none; those of the group that the network has are no fewer then."""
    max_per_machine: int = 0
    max_per_rack: int = 0
    together_with: str = ""
    """Another group: tasks go only to machines that have tasks of that one. The group's own name: all to one."""
    running: Mapping[str, int] = field(default_factory=dict)
    """By machine: tasks of the group that are there and no part of the network any more."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Everything that a policy may look at."""

    machines: Mapping[str, Machine]
    tasks: Mapping[str, Task]

    @classmethod
    def of(cls, machines: Sequence[Machine], tasks: Sequence[Task]) -> Cluster:
        """By their names."""
        return cls({machine.name: machine for machine in machines}, {task.name: task for task in tasks})


@dataclass(frozen=True, slots=True)
class Aggregator:
    """A node between tasks and machines, by what the policy calls it."""

    kind: str
    name: str = ""


UnitCost = int | Callable[[int], int]
"""What each unit costs; or what the unit after so many others does, no less than the one before it: a convex arc."""


@dataclass(frozen=True, slots=True)
class ArcTo:
    """An arc of a task or an aggregator."""

    to: str | Aggregator
    """A machine by its name, or an aggregator."""
    cost: UnitCost
    capacity: int = 1


@dataclass(frozen=True, slots=True)
class TaskCosts:
    """What a policy says of a task."""

    arcs: Sequence[ArcTo]
    """Where it may go; each machine that is named is there."""
    waiting: int
    """To have it wait, or stop it if it runs."""
    running: int = 0
    """To have it stay where it runs, if it does."""
    waiting_per_s: float | None = None
    """How much dearer it gets with each second to wait, from the beginning to `AGE_S_MAX`, rounded down: so a network
    that lasts need not ask again. None: what it costs is asked for each round."""
    running_per_s: float | None = None
    """How much cheaper it gets with each second to stay."""
    asks_again: Collection[str] | None = None
    """Names of machines and racks, or ANY_MACHINE: when one of them comes or goes, or changes its rack or attributes,
    the arcs may be others. None: also when any machine changes in whatever way."""


class Policy(Protocol):
    """See the module's docstring."""

    def see(self, cluster: Cluster) -> None:
        """The cluster as it is now; asked before anything else, and each time machines have come or gone."""
        ...

    def task(self, task: Task) -> TaskCosts:
        """A task's arcs, and what it costs to have it wait or run on."""
        ...

    def machine_cost(self, machine: Machine) -> UnitCost:
        """Of each task that the machine has, wherever the task came from."""
        ...

    def aggregator_arcs(self, aggregator: Aggregator) -> Sequence[ArcTo]:
        """Where it leads: to machines, or to aggregators that do not lead back. Nowhere, if it is of machines that
        have gone."""
        ...


@runtime_checkable
class FollowsMachines(Protocol):
    """What a policy may have in addition: then a round costs what has changed, however large the cluster is.

    Without it a policy is shown the cluster, and asked about all aggregators, as soon as any machine has changed.
    """

    def machine_arcs(self, machine: Machine) -> Mapping[Aggregator, ArcTo]:
        """All arcs from aggregators to a machine that is not new, but has other slots, resources, tasks or loads."""
        ...


@runtime_checkable
class ForgetsAggregators(Protocol):
    """What a policy may have in addition that remembers aggregators: so what it remembers stays as small as what the
    network has of them."""

    def aggregators_left(self, aggregators: Collection[Aggregator]) -> None:
        """The network has these aggregators, and no others any more: it asks anew about one that comes again."""
        ...
