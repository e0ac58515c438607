"""Mixes: several users, each with a load, jobs and times of its own."""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from loadgen.arrivals import Rates, poisson
from loadgen.durations import Durations
from loadgen.jobs import WorkloadJob
from sparrow_py.errors import InvalidOption
from sparrow_py.job import check_name

LOAD_MAX = 100.0
USERS_MAX = 10_000


@dataclass(frozen=True, kw_only=True)
class UserLoad:
    """The jobs that one user submits.

    user: the name. load: the user's work over the capacity of all slots; above the user's share, or 1, queues grow.
    weight: the user's weight under fair queueing, for a cluster that is started with it. tasks: the number of tasks of
    each job. constrained: the fraction of jobs whose tasks each prefer `replicas` random nodes and run nowhere else.
    rates: how the rate of arrivals changes. regular: jobs come at equal distances instead of as a Poisson process.
    states_mean: jobs state the mean of their durations, as what is expected of their tasks.
    """

    user: str = "user0"
    load: float = 0.5
    weight: float = 1.0
    tasks: int = 10
    durations: Durations = field(default_factory=lambda: Durations("constant"))
    constrained: float = 0.0
    replicas: int = 3
    rates: Rates = field(default_factory=Rates)
    regular: bool = False
    states_mean: bool = False

    def __post_init__(self) -> None:
        check_name("user", self.user, empty=False)
        if not 0 < self.load <= LOAD_MAX:
            raise InvalidOption("load", self.load, f"a number above 0, at most {LOAD_MAX:g}")
        if not 1e-6 <= self.weight <= 1e6:
            raise InvalidOption("weight", self.weight, "a number from 0.000001 to 1000000")
        if not 1 <= self.tasks <= 1_000_000:
            raise InvalidOption("tasks", self.tasks, "a whole number from 1 to 1000000")
        if not 0 <= self.constrained <= 1:
            raise InvalidOption("constrained", self.constrained, "a fraction from 0 to 1")
        if self.replicas < 1:
            raise InvalidOption("replicas", self.replicas, "a whole number from 1")
        if self.regular and self.rates.pieces:
            raise InvalidOption("regular", True, "False where rates change")

    def jobs_per_s(self, nodes: int, slots: int) -> float:
        """The user's mean rate of jobs on a cluster of this size."""
        return self.load * nodes * slots / (self.tasks * self.durations.mean_ms / 1000)

    def generate(self, seed: int, nodes: int, slots: int, until_s: float) -> Iterator[WorkloadJob]:
        """The user's jobs, not numbered yet."""
        arrivals, service, places = (
            random.Random(f"{seed} {self.user} {kind}") for kind in ("arrivals", "service", "places")
        )
        for at_s in self._arrivals(arrivals, self.jobs_per_s(nodes, slots), until_s):
            durations_s = self.durations.draw(service, self.tasks)
            preferred: tuple[tuple[int, ...], ...] = ()
            if self.constrained and places.random() < self.constrained:
                count = min(self.replicas, nodes)
                preferred = tuple(tuple(places.sample(range(nodes), count)) for _ in range(self.tasks))
            mean_s = self.durations.mean_ms / 1000 if self.states_mean else None
            yield WorkloadJob(0, at_s, self.user, durations_s, (), preferred, mean_s)

    def _arrivals(self, rng: random.Random, per_s: float, until_s: float) -> Iterator[float]:
        if not self.regular:
            yield from poisson(rng, per_s, self.rates, until_s)
            return
        number = 0
        while (at_s := round((number + 0.5) / per_s, 9)) < until_s:
            yield at_s
            number += 1


@dataclass(frozen=True)
class Mix:
    """The jobs that several users submit in `seconds`. The jobs of a user do not depend on the other users."""

    loads: tuple[UserLoad, ...]
    seconds: float = 30.0

    def __post_init__(self) -> None:
        if not 1 <= len(self.loads) <= USERS_MAX:
            raise InvalidOption("users", f"{len(self.loads)} users", f"1 to {USERS_MAX} users")
        if len(set(self.users)) < len(self.loads):
            raise InvalidOption("users", ", ".join(self.users), "each user once")
        if not 0 < self.seconds <= 1e6:
            raise InvalidOption("seconds", self.seconds, "a number of seconds above 0, at most 1e6")

    @property
    def users(self) -> tuple[str, ...]:
        """The users who submit the jobs."""
        return tuple(load.user for load in self.loads)

    @property
    def weights(self) -> dict[str, float]:
        """The users whose weight is not 1."""
        return {load.user: load.weight for load in self.loads if load.weight != 1}

    @property
    def load(self) -> float:
        """The work that arrives at the mean rates, over the capacity of the slots."""
        return sum(load.load for load in self.loads)

    def at_load(self, load: float) -> Mix:
        """The same users with the same shares of the arrivals, which together bring this load."""
        factor = load / self.load
        return Mix(tuple(replace(one, load=one.load * factor) for one in self.loads), self.seconds)

    def generate(self, seed: int, nodes: int, slots: int) -> Iterator[WorkloadJob]:
        """The jobs in order of arrival, for a cluster of `nodes` × `slots`."""
        streams = [load.generate(seed, nodes, slots, self.seconds) for load in self.loads]
        for number, job in enumerate(heapq.merge(*streams, key=lambda job: job.arrival_s)):
            job.number = number
            yield job


def shared(load: float, shares: Mapping[str, float], like: UserLoad) -> tuple[UserLoad, ...]:
    """Users that differ only in their share of the arrivals, and that together bring `load`."""
    whole = sum(shares.values())
    return tuple(replace(like, user=user, load=load * share / whole) for user, share in shares.items())
