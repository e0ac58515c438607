"""What a network of a cluster is told before a round, and what it answers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple, Protocol

from scheduler.flow.policies.policy import Group, Machine, Task
from scheduler.flow.problem import Problem
from scheduler.flow.solvers.stopping import StopFlag


class Gone(Enum):
    """Of a kind: nobody has tasks of it any more that are to be placed."""

    GONE = "gone"


GONE: Final = Gone.GONE


@dataclass(frozen=True, slots=True)
class Share:
    """A user's due, beside other users who have tasks that wait."""

    weight: float = 1.0
    """Above 0."""
    running: int = 0
    """Slots that the user's tasks hold which are no part of the network."""


@dataclass(frozen=True, slots=True)
class ClusterChanges:
    """What has changed in a cluster since the round before, to be applied in this order."""

    machines_gone: Sequence[str] = ()
    machines: Sequence[Machine] = ()
    """New ones, or such that have changed."""
    kinds: Mapping[str, Collection[str] | Gone | None] = field(default_factory=dict)
    """By kind: which machines tasks of it may go to; None: to all, as those of a kind that was never told may. None at
    all: its tasks wait outside the network, and cost nothing, until it has some. GONE: the kind can be forgotten as
    soon as no task is of it; till then it stays as it is."""
    tasks_gone: Sequence[str] = ()
    """They ended, were withdrawn, or were placed and are no part of the network any more. Unknown ones are ignored."""
    tasks: Sequence[Task] = ()
    """New ones, or such that have changed, which are as new then."""
    tasks_run: Sequence[tuple[str, str]] = ()
    """Task, machine: it runs there, if the network keeps tasks that run. Only then does it stay there."""
    shares: Mapping[str, Share] = field(default_factory=dict)
    """By user: those whose share is new or other than before. All others count with what `Share` is by default. A share
    is forgotten with the user's last task, and at once if the user has none."""
    now_s: float = 0.0
    """No less than in the round before."""
    groups: Mapping[str, Group | None] = field(default_factory=dict)
    """By name: those that are new or other than before, None if gone. Told no later than with the first of a group's
    tasks."""


class Mistake(NamedTuple):
    """What a policy got wrong of a task."""

    error: str
    where: str
    """In the policy's code."""


@dataclass(frozen=True, slots=True)
class Placed:
    """What has come of a round. Tasks that are in none of these lists wait on, or stay where they run."""

    placed: Sequence[tuple[str, str]]
    """Task, machine. Also those that ran elsewhere; and again those that were named before, as long as nobody says
    that they are gone or run."""
    stopped: Sequence[str]
    """They ran, and are to wait."""
    unplaceable: Mapping[str, str]
    """By group: why it cannot be placed at all as the cluster is."""
    cost: int
    solver: str
    """The one that found the flow; "" if there was nothing to solve."""
    solve_s: float
    """In solvers alone."""
    nodes: int
    arcs: int
    waiting: int
    """Tasks that wait then."""
    mistakes: dict[str, Mistake] = field(default_factory=dict)
    """By task: what the policy got wrong. These wait, or stay where they run."""


@dataclass(frozen=True, slots=True)
class Way:
    """One way that a task could go, or goes."""

    to: str
    """A machine, or an aggregator and the machine that is cheapest from there; "" of waiting."""
    cost: int
    """Of the whole way, if the task were the next one there."""
    limit: str
    """What binds there, in words; "" if nothing does."""
    taken: bool


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a task waits, or is where it is: its ways, the cheapest first."""

    task: str
    machine: str | None
    """Where it was placed, or runs."""
    waiting: int
    """The price of waiting."""
    ways: Sequence[Way]
    outside: str = ""
    """Why the network has no ways of the task at all; "" if it has."""


class Network(Protocol):
    """What takes changes and answers, round after round."""

    def round(self, changes: ClusterChanges, stop: StopFlag | None = None) -> Placed:
        """Take the changes, solve, and tell where tasks go. `StoppedError` if the flag is set."""

    def explain(self, task: str) -> Explanation:
        """The ways that a task has, with their costs and what binds there. `KeyError` if it is unknown."""

    def dump(self) -> Problem:
        """The problem as the last round has solved it."""
