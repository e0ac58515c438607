"""TPC-H-like workloads (Sparrow §7.2): users launch random permutations of queries whose stages and durations were
recorded from real runs.

A profile is a JSON file: {"source": the recorded cluster, "queries": {"q3": {"stages": [{"name", "after",
"constrained", "durations_s": [[of each task in run 1], [in run 2], …]}, …]}, …}}. `constrained` says that a stage's
tasks read a partition of the data: each prefers the 3 random nodes that have its partition.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from loadgen.jobs import WorkloadJob, WorkloadStage
from loadgen.traces import DURATION_S_MAX, Trace
from sparrow_py.errors import InvalidOption

PROFILE = Path(__file__).parent / "profiles" / "tpch.json"
"""The profile that comes with this package."""
PAPER_QUERIES = ("q3", "q4", "q6", "q12")
"""The queries that the paper runs (§7.2)."""
REPLICAS = 3
PLACES = ("striped", "random")
"""How a user's partitions lie on the nodes: in turn, or each on nodes of its own."""
USERS_MAX = 10_000
Seconds = Annotated[float, Meta(ge=0, le=DURATION_S_MAX)]
Name = Annotated[str, Meta(min_length=1, max_length=100)]


class ProfileStage(msgspec.Struct, frozen=True):
    """A stage of a query. durations_s: for each run, a duration for each task; all runs have the same stages."""

    name: Name
    durations_s: Annotated[tuple[Annotated[tuple[Seconds, ...], Meta(min_length=1)], ...], Meta(min_length=1)]
    after: tuple[Name, ...] = ()
    constrained: bool = False


class ProfileQuery(msgspec.Struct, frozen=True):
    """A query: its stages, each after the stages that it waits for."""

    stages: Annotated[tuple[ProfileStage, ...], Meta(min_length=1)]

    @property
    def runs(self) -> int:
        """How often the query was recorded."""
        return len(self.stages[0].durations_s)

    def mean_work_s(self) -> float:
        """Seconds of service that a run of the query takes, on average."""
        return sum(sum(run) for stage in self.stages for run in stage.durations_s) / self.runs

    def widest(self) -> int:
        """The number of tasks of the largest stage."""
        return max(len(run) for stage in self.stages for run in stage.durations_s)


class Profile(msgspec.Struct, frozen=True):
    """Recorded queries. source: the data, the cluster and the engine that they were recorded with."""

    source: dict[str, Any]
    queries: Annotated[dict[Name, ProfileQuery], Meta(min_length=1)]

    def only(self, names: Sequence[str]) -> Profile:
        """The profile of these queries alone; `InvalidOption` for a name that the profile does not have."""
        for name in names:
            if name not in self.queries:
                raise InvalidOption("queries", name, ", ".join(self.queries))
        return Profile(self.source, {name: self.queries[name] for name in names})

    def partitions(self) -> int:
        """The number of partitions of the data: the tasks of the largest stage that reads them."""
        stages = [stage for query in self.queries.values() for stage in query.stages if stage.constrained]
        return max((len(run) for stage in stages for run in stage.durations_s), default=0)

    def widest(self) -> int:
        """The number of tasks of the largest stage."""
        return max(query.widest() for query in self.queries.values())

    def mean_task_s(self) -> float:
        """Seconds that a task takes, on average over all recorded tasks."""
        all_s = [
            duration_s
            for query in self.queries.values()
            for stage in query.stages
            for run in stage.durations_s
            for duration_s in run
        ]
        return sum(all_s) / len(all_s)


def read_profile(path: Path | None = None) -> Profile:
    """The profile in a file, or the one that comes with this package; `InvalidOption` names what is wrong with it."""
    path = path or PROFILE
    try:
        text = path.read_bytes()
    except OSError as error:
        why = f"a readable profile of recorded queries ({error.strerror}; docs/loadgen.md says how to record one)"
        raise InvalidOption("recorded", str(path), why) from None
    try:
        profile = msgspec.json.decode(text, type=Profile)
    except msgspec.MsgspecError as error:
        raise InvalidOption("recorded", str(path), f"a profile of recorded queries ({error})") from None
    for name, query in profile.queries.items():
        _check_query(f"{path} {name}", query)
    if not profile.mean_task_s():
        raise InvalidOption("recorded", str(path), "queries that take time")
    return profile


def _check_query(where: str, query: ProfileQuery) -> None:
    before: set[str] = set()
    for stage in query.stages:
        if stage.name in before:
            raise InvalidOption(f"{where} {stage.name}", stage.name, "a name that no other stage of the query has")
        if not before.issuperset(stage.after):
            raise InvalidOption(f"{where} {stage.name} after", list(stage.after), "stages that stand before it")
        if len(stage.durations_s) != query.runs:
            found = f"{len(stage.durations_s)} runs"
            raise InvalidOption(f"{where} {stage.name} durations_s", found, f"{query.runs} runs, as its first stage")
        before.add(stage.name)


def partition_nodes(
    partitions: int, replicas: int, nodes: int, places: random.Random, *, striped: bool = True
) -> list[tuple[int, ...]]:
    """The different nodes, by number, that have the replicas of each partition of a user's data.

    Striped as in the paper (§7.2: 30 partitions of three replicas lie on 90 of 100 machines): the nodes stand in a
    random order, and all replicas of the first partition, then those of the second, … are given to them in turn. So
    each node has as many replicas as any other, or one more, whatever the number of partitions, and users' data lie
    apart. Otherwise each partition has random nodes, of which some get several times as many as others.
    """
    replicas = min(replicas, nodes)
    if not striped:
        return [tuple(places.sample(range(nodes), replicas)) for _ in range(partitions)]
    order = places.sample(range(nodes), min(nodes, partitions * replicas))
    return [
        tuple(order[place % nodes] for place in range(first, first + replicas))
        for first in range(0, partitions * replicas, replicas)
    ]


def permutations(labels: Sequence[str], order: random.Random) -> Iterator[str]:
    """Random permutations of these queries without end, one after the other."""
    while True:
        left = sorted(labels)
        order.shuffle(left)
        while left:
            yield left.pop()


@dataclass(frozen=True, kw_only=True)
class TpchLike:
    """Each of `users` users launches random permutations of the profile's queries, one after the other.

    load: the work that arrives over the capacity of the slots, above 0 and below 1; it sets the aggregate rate of a
    Poisson process that the users share evenly. A query has the durations of a random one of its recorded runs, times
    `stretch`. A task of a constrained stage prefers the `REPLICAS` nodes of its partition, which are the same for all
    queries of a user: each user has data of its own (§7.2). data: how these lie on the nodes, one of `PLACES`.
    """

    profile: Profile
    users: int = 10
    load: float = 0.65
    jobs: int = 1000
    stretch: float = 1.0
    data: str = "striped"

    def __post_init__(self) -> None:
        if not 1 <= self.users <= USERS_MAX:
            raise InvalidOption("users", self.users, f"a whole number from 1 to {USERS_MAX}")
        if not 0 < self.load < 1:
            raise InvalidOption("load", self.load, "above 0 and below 1: from 1 on queues grow without end")
        if self.jobs < 1:
            raise InvalidOption("jobs", self.jobs, "a whole number from 1")
        if not 0 < self.stretch <= 1e6:
            raise InvalidOption("stretch", self.stretch, "a number above 0, at most 1e6")
        if self.data not in PLACES:
            raise InvalidOption("data", self.data, " or ".join(PLACES))

    def mean_work_s(self) -> float:
        """Seconds of service that a query takes, on average."""
        queries = self.profile.queries.values()
        return self.stretch * sum(query.mean_work_s() for query in queries) / len(queries)

    def jobs_per_s(self, nodes: int, slots: int) -> float:
        """The aggregate rate of queries on a cluster of this size."""
        return self.load * nodes * slots / self.mean_work_s()

    def generate(self, seed: int, nodes: int, slots: int) -> Iterator[WorkloadJob]:
        """The jobs in order of arrival, for a cluster of `nodes` × `slots`."""
        kinds = ("arrivals", "users", "queries", "runs", "places")
        arrivals, users, queries, runs, places = (random.Random(f"{seed} tpch {kind}") for kind in kinds)
        per_s = self.jobs_per_s(nodes, slots)
        launched = [permutations(list(self.profile.queries), queries) for _ in range(self.users)]
        striped, widest = self.data == "striped", self.profile.partitions()
        partitions: dict[int, list[tuple[int, ...]]] = {}
        at_s = 0.0
        for number in range(self.jobs):
            at_s = round(at_s + arrivals.expovariate(per_s), 9)
            user = users.randrange(self.users)
            if user not in partitions:
                partitions[user] = partition_nodes(widest, REPLICAS, nodes, places, striped=striped)
            label = next(launched[user])
            query = self.profile.queries[label]
            run = runs.randrange(query.runs)
            yield self._job(number, at_s, user, label, query, run, partitions[user])

    def _job(
        self,
        number: int,
        at_s: float,
        user: int,
        label: str,
        query: ProfileQuery,
        run: int,
        partitions: list[tuple[int, ...]],
    ) -> WorkloadJob:
        durations_s: array[float] = array("d")
        preferred: list[tuple[int, ...]] = []
        stages = []
        for stage in query.stages:
            own = stage.durations_s[run]
            durations_s.extend(round(duration_s * self.stretch, 9) for duration_s in own)
            preferred += partitions[: len(own)] if stage.constrained else [()] * len(own)
            stages.append(WorkloadStage(stage.name, stage.after, len(own)))
        places_of = tuple(preferred) if any(preferred) else ()
        return WorkloadJob(
            number, at_s, f"user{user}", durations_s, (), places_of, stages=tuple(stages), label=label
        )  # fmt: skip

    def as_trace(self, seed: int, nodes: int, slots: int) -> Trace:
        """The jobs as a trace has them."""
        return Trace("TPC-H-like queries", tuple(self.generate(seed, nodes, slots)))

    def with_jobs(self, jobs: int) -> TpchLike:
        """The same workload with this number of jobs."""
        return replace(self, jobs=jobs)
