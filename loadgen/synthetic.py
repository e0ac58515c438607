"""Synthetic workloads: jobs of one size, or of two, that arrive as a Poisson process (the paper's model, §4.1)."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from loadgen.durations import Durations
from loadgen.jobs import WorkloadJob
from sparrow_py.errors import InvalidOption


@dataclass(frozen=True, kw_only=True)
class Synthetic:
    """Jobs of `tasks` tasks whose arrivals bring `load` times the capacity of the cluster's slots.

    `InvalidOption` if a field cannot be.

    tasks: of each job.
    load: above 0 and below 1.
    jobs: how many.
    durations: of the tasks.
    users: each job is of one of these users, at random.
    constrained: the fraction of jobs whose tasks each prefer `replicas` random nodes and run nowhere else (task-level
        constraints, §3.3).
    replicas: how many nodes such a task prefers.
    zones: each job asks for one of this many zones of nodes at random; 0: for no zone (job-level constraints).
    large: the fraction of jobs, at random, that have `large_tasks` tasks instead.
    large_tasks: of such a job.
    """

    tasks: int = 100
    load: float = 0.8
    jobs: int = 1000
    durations: Durations = field(default_factory=Durations)
    users: tuple[str, ...] = ("user0",)
    constrained: float = 0.0
    replicas: int = 3
    zones: int = 0
    large: float = 0.0
    large_tasks: int = 1000
    state_duration: bool = False
    """Whether jobs state the mean of their tasks' durations."""

    def __post_init__(self) -> None:
        if self.tasks < 1:
            raise InvalidOption("tasks", self.tasks, "a whole number from 1")
        if self.large_tasks < 1:
            raise InvalidOption("large_tasks", self.large_tasks, "a whole number from 1")
        if self.jobs < 1:
            raise InvalidOption("jobs", self.jobs, "a whole number from 1")
        if not 0 < self.load < 1:
            raise InvalidOption("load", self.load, "above 0 and below 1: from 1 on queues grow without end")
        if not self.users:
            raise InvalidOption("users", self.users, "at least one user")
        if not 0 <= self.constrained <= 1:
            raise InvalidOption("constrained", self.constrained, "a fraction from 0 to 1")
        if not 0 <= self.large <= 1:
            raise InvalidOption("large", self.large, "a fraction from 0 to 1")
        if self.replicas < 1:
            raise InvalidOption("replicas", self.replicas, "a whole number from 1")
        if self.zones < 0:
            raise InvalidOption("zones", self.zones, "a whole number from 0")

    def generate(self, seed: int, nodes: int, slots: int) -> Iterator[WorkloadJob]:
        """The jobs in order of arrival, for a cluster of `nodes` × `slots`.

        The jobs depend on nothing else, so that two policies with the same seed get the same jobs.
        """
        kinds = ("arrivals", "service", "places", "sizes")
        arrivals, service, places, sizes = (random.Random(f"{seed} {kind}") for kind in kinds)
        mean_tasks = self.tasks + self.large * (self.large_tasks - self.tasks)
        jobs_per_s = self.load * nodes * slots / (mean_tasks * self.durations.mean_ms / 1000)
        at_s = 0.0
        for number in range(self.jobs):
            at_s = round(at_s + arrivals.expovariate(jobs_per_s), 9)
            user = self.users[arrivals.randrange(len(self.users))] if len(self.users) > 1 else self.users[0]
            tasks = self.large_tasks if self.large and sizes.random() < self.large else self.tasks
            durations_s = self.durations.draw(service, tasks)
            where = (f"zone == z{places.randrange(self.zones)}",) if self.zones else ()
            preferred: tuple[tuple[int, ...], ...] = ()
            if self.constrained and places.random() < self.constrained:
                count = min(self.replicas, nodes)
                preferred = tuple(tuple(places.sample(range(nodes), count)) for _ in range(tasks))
            mean_s = sum(durations_s) / tasks if self.state_duration else None
            yield WorkloadJob(number, at_s, user, durations_s, where, preferred, mean_s)
