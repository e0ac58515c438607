"""What policies know of a cluster, and what they have to say: arcs and costs of a task, a machine, an aggregator.

A policy is asked about each task: where its arcs lead and what they cost, what it costs to have the task wait, and, if
it runs, to let it. An aggregator stands between tasks and machines: what its arcs are the policy is asked when the
first arc leads to it. All else (machines' slots, the sink, an aggregator of each job's waiting tasks) is `network`'s.

Costs are whole numbers. What all arcs of a task have in common, its running and waiting costs included, moves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

AGE_S_MAX = 30 * 86_400
"""Seconds of waiting and of running that count: so costs stay small enough for solvers."""


@dataclass(frozen=True, slots=True)
class Machine:
    """One that is there."""

    name: str
    rack: str
    slots: int


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
        """Where it leads: to machines, or to aggregators that do not lead back."""
        ...
