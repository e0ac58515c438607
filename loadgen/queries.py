"""Real queries as a workload (Sparrow §7.2): users launch random permutations of the `sql` framework's own queries.

A query's work is known only on the cluster that is to run it. So the data are placed there, each query runs alone a few
times, and from what its tasks took follows how many queries a second bring the load.
"""

from __future__ import annotations

import math
import random
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from loadgen.jobs import WorkloadJob, WorkloadStage
from loadgen.query_jobs import QueryJobs, rows_of
from loadgen.recorded import EXECUTED
from loadgen.tpch import PAPER_QUERIES, REPLICAS, USERS_MAX, permutations
from sparrow_py.errors import ClusterError, InvalidOption
from sparrow_py.job import JobSpec, TaskSpec

if TYPE_CHECKING:
    from frontends.sql.frontend import Answer, SqlFrontend

RUNS_ALONE = 3
"""How often each query runs alone, after a first time that is not counted."""
TIMEOUT_ALONE_S = 300.0


@dataclass(frozen=True)
class AloneTimes:
    """How long a query took when nothing else ran. service_s: for each run, of each of its tasks. response_s: for each
    run."""

    service_s: tuple[tuple[float, ...], ...]
    response_s: tuple[float, ...]

    def work_s(self) -> float:
        """Seconds of service that it takes, on average."""
        return fmean(sum(run) for run in self.service_s)


Measured = dict[str, AloneTimes]
"""By label. All points of a run have that of the first: they are to get the same queries at the same times."""


@dataclass(frozen=True)
class PreparedQueries:
    """Queries on a cluster that holds their data. settings: what is known of them, for the point's settings."""

    jobs: list[WorkloadJob]
    query_jobs: QueryJobs
    settings: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Queries:
    """Each of `users` users launches random permutations of the queries on the data set in `directory`.

    load: the work that arrives over the capacity of the slots, above 0 and below 1; it sets the aggregate rate of a
    Poisson process that the users share evenly. jobs: the number of queries; None for as many as arrive in `seconds`.
    Users share the data set, since one for each would need the memory of as many.
    """

    directory: str
    queries: tuple[str, ...] = PAPER_QUERIES
    users: int = 10
    load: float = 0.5
    seconds: float = 60.0
    jobs: int | None = None

    def __post_init__(self) -> None:
        if not 0 < self.load < 1:
            raise InvalidOption("load", self.load, "above 0 and below 1: from 1 on queues grow without end")
        if not 1 <= self.users <= USERS_MAX:
            raise InvalidOption("users", self.users, f"a whole number from 1 to {USERS_MAX}")

    def check(self) -> None:
        """`InvalidOption` if there is no data set in the directory, or a package that reads it is not there."""
        from frontends.sql.extra import needs_extra

        with needs_extra():
            from frontends.sql.frontend import SqlFrontend  # noqa: F401  # Needs all packages of the extra.
        from frontends.sql.dataset import Dataset

        Dataset(self.directory)

    def prepare(
        self, addresses: Sequence[str], nodes: Sequence[str], slots: int, seed: int, measured: Measured
    ) -> PreparedQueries:
        """Have the nodes hold the data, run each query alone, and draw the jobs. What is not in `measured` is added."""
        from frontends.sql.frontend import SqlFrontend
        from frontends.sql.tpch_queries import tpch_query

        with SqlFrontend(list(addresses), self.directory) as frontend:
            frontend.place(REPLICAS)
            specs, answers = {}, {}
            for label in self.queries:
                sql = tpch_query(int(label.removeprefix("q")))
                first = _run(frontend, label, sql)
                specs[label], answers[label] = frontend.job_spec(sql), rows_of(first.content)
                if label not in measured:
                    measured[label] = _alone([_run(frontend, label, sql) for _ in range(RUNS_ALONE)])
            manifest = frontend.dataset.manifest
        numbers = {node: number for number, node in enumerate(nodes)}
        alone = {label: measured[label] for label in self.queries}
        jobs = list(self.generate(specs, alone, numbers, len(nodes) * slots, seed))
        settings = {
            "execution": EXECUTED,
            "tasks_sleep": False,
            "jobs": len(jobs),
            "users": self.users,
            "queries_per_s": round(self.jobs_per_s(alone, len(nodes) * slots), 4),
            "data": {"scale": manifest.scale, "partitions": manifest.partitions, "replicas": min(REPLICAS, len(nodes))},
            "alone_ms": {label: round(1000 * fmean(query.response_s), 1) for label, query in alone.items()},
            "work_ms": {label: round(1000 * query.work_s(), 1) for label, query in alone.items()},
        }
        return PreparedQueries(jobs, QueryJobs(specs, answers), settings)

    def jobs_per_s(self, alone: Mapping[str, AloneTimes], slots: int) -> float:
        """The aggregate rate of queries on so many slots in all."""
        return self.load * slots / fmean(query.work_s() for query in alone.values())

    def generate(
        self,
        specs: Mapping[str, JobSpec],
        alone: Mapping[str, AloneTimes],
        numbers: Mapping[str, int],
        slots: int,
        seed: int,
    ) -> Iterator[WorkloadJob]:
        """The jobs in order of arrival. numbers: of the nodes, by their ids. Durations are those of a run alone."""
        kinds = ("arrivals", "users", "queries")
        arrivals, users, queries = (random.Random(f"{seed} queries {kind}") for kind in kinds)
        per_s = self.jobs_per_s(alone, slots)
        count = self.jobs if self.jobs is not None else max(1, math.ceil(self.seconds * per_s))
        launched = [permutations(self.queries, queries) for _ in range(self.users)]
        at_s = 0.0
        for number in range(count):
            at_s += arrivals.expovariate(per_s)
            user = users.randrange(self.users)
            label = next(launched[user])
            spec = specs[label]
            stages = tuple(WorkloadStage(stage.name, tuple(stage.after), len(stage.tasks)) for stage in spec.stages)
            preferred = tuple(
                tuple(numbers[node] for node in task.preferred) if isinstance(task, TaskSpec) else ()
                for stage in spec.stages
                for task in stage.tasks
            )
            durations_s = array("d", alone[label].service_s[0])
            yield WorkloadJob(
                number, at_s, f"user{user}", durations_s, (), preferred, stages=stages, label=label
            )  # fmt: skip


def _run(frontend: SqlFrontend, label: str, sql: str) -> Answer:
    """Run a query while nothing else runs."""
    try:
        return frontend.run(sql, TIMEOUT_ALONE_S)
    except TimeoutError as error:
        raise ClusterError(f"{label}, alone: {error}") from None


def _alone(runs: Sequence[Answer]) -> AloneTimes:
    service_s = tuple(tuple(took_s for stage in run.stages for took_s in stage.service_s) for run in runs)
    return AloneTimes(service_s, tuple(run.response_s for run in runs))
