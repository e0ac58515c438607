"""What the graph of a cluster has of machines, tasks, users, and of classes of tasks with aggregators and doors."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from scheduler.flow.pipes import Pipe
from scheduler.flow.policies.policy import Aggregator, Machine, Task


@dataclass(slots=True, eq=False)
class MachineNode:
    """A machine in the graph."""

    machine: Machine
    node: int
    slots: Pipe
    """To the sink."""
    tasks: set[str] = field(default_factory=set)
    """Those that run there, if the graph keeps such."""
    used: dict[str, float] = field(default_factory=dict)
    """Resources that these take."""

    def left(self) -> Mapping[str, float]:
        """Resources that no task in the graph has."""
        if not self.used:
            return self.machine.free
        return {name: amount - self.used.get(name, 0.0) for name, amount in self.machine.free.items()}


@dataclass(slots=True, eq=False)
class Door:
    """By which the tasks of a class come to a machine."""

    node: int
    arc: int
    capacity: int


@dataclass(slots=True, eq=False)
class AggregatorNode:
    """A class's copy of an aggregator."""

    node: int
    pipes: dict[tuple[str | Aggregator, int], Pipe] = field(default_factory=dict)
    """By where it leads, and the how manieth pipe to there it is."""


Key = tuple[str, tuple[tuple[str, float], ...], str]


@dataclass(slots=True, eq=False)
class TaskClass:
    """Tasks that may go to the same machines, with equal demands, and limits in common."""

    kind: str
    demand: Mapping[str, float]
    group: str
    tasks: int = 0
    doors: dict[str, Door] = field(default_factory=dict)
    aggregators: dict[Aggregator, AggregatorNode] = field(default_factory=dict)

    @property
    def has_doors(self) -> bool:
        """Whether more limits its tasks than machines' slots and their kind."""
        return bool(self.demand or self.group)


@dataclass(slots=True, eq=False)
class TaskNode:
    """A task in the graph."""

    task: Task
    node: int
    kind: TaskClass
    waiting_arc: int
    asks_again: Collection[str] | None
    ages: bool
    """Whether the policy has said how its costs change with time."""
    waiting: int = 0
    """The price of waiting when it was asked for last."""
    is_sent: bool = True
    """Whether its unit is in the flow: those of gangs are not, until the gang is tried."""


@dataclass(slots=True, eq=False)
class UserNode:
    """A user's aggregator of waiting tasks, and its arc to the sink."""

    node: int
    arc: int
    tasks: int = 0
    """Those in the flow."""
    running: int = 0
    """Of these, those that run."""
    minimum: int = 0
