"""`SqlFrontend`: queries as jobs of several stages, on nodes that hold the data."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, wait
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from frontends.daemon_http import ask, listed
from frontends.sql.compiler import compile_query
from frontends.sql.dataset import Dataset
from frontends.sql.errors import PartitionLost, QueryFailed
from frontends.sql.placement import LiveNode, check_fits, choose, holders, live_nodes
from frontends.sql.plan import Plan, Stage
from frontends.sql.query_jobs import WAIT_FOR_NODES_S, query_job
from frontends.sql.results import decode_tables
from frontends.sql.tasks import APP, Load, encode_task
from frontends.sql.tpch import PARTITION_KEYS, REPLICAS
from sparrow_py import Client
from sparrow_py.auth import TLS
from sparrow_py.client import Job
from sparrow_py.connection import connection_to
from sparrow_py.errors import NoScheduler, SparrowError, TaskCancelled, TaskError
from sparrow_py.job import JobSpec, TaskReport, TaskSpec, check_whole
from sparrow_py.wire.resolution import resolved

if TYPE_CHECKING:
    from sparrow_py import LocalCluster

NODES_AGE_MAX_S = 1.0
"""How long a list of the nodes and their partitions is used. The scheduler passes over nodes that have died since."""
ADVERTISED_TIMEOUT_S = 10.0
LOOK_EVERY_S = 0.01


@dataclass(frozen=True, slots=True)
class StageTimes:
    """How a stage went, in seconds.

    response_s: from when it could start (the stages before had ended) to the end of its last task.
    service_s: how long each task ran. nodes: where each task ran. attempts: the most starts of one task.
    """

    name: str
    after: tuple[str, ...]
    constrained: bool
    response_s: float
    service_s: tuple[float, ...]
    nodes: tuple[str, ...]
    attempts: int


@dataclass(frozen=True, slots=True)
class Answer:
    """A query's result, how it was computed, and how long that took, from submission. content: the bytes of `table`, an
    Arrow IPC file."""

    table: pa.Table
    content: bytes
    plan: Plan
    stages: tuple[StageTimes, ...]
    response_s: float


class SqlFrontend:
    """Runs queries over one dataset. Thread-safe; close it, or use it in a `with` block.

    Parameters
    ----------
    schedulers: addresses, or a `LocalCluster`, as for `Client`.
    directory: of the dataset; the nodes must find it at the same path when they load it.
    user, token, tls: as for `Client`.
    """

    def __init__(
        self,
        schedulers: str | Sequence[str] | LocalCluster,
        directory: str | Path,
        *,
        user: str | None = None,
        token: str | None = None,
        tls: TLS | None = None,
    ) -> None:
        self.dataset = Dataset(directory)
        self._access = connection_to(schedulers, token, tls).access
        addresses = schedulers if isinstance(schedulers, str | list | tuple) else schedulers.addresses  # type: ignore[union-attr]
        self._sources = [addresses] if isinstance(addresses, str) else list(addresses)
        self.client = Client(schedulers, user=user, token=token, tls=tls)
        self._nodes: list[LiveNode] = []
        self._nodes_at_s = float("-inf")

    def __enter__(self) -> SqlFrontend:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the frontend; the nodes go on holding the data."""
        self.client.close()

    # ---- where the data are ------------------------------------------------------------------

    def nodes(self, age_max_s: float = 0.0) -> list[LiveNode]:
        """The nodes that run sql executors, as a scheduler knows them; a list older than `age_max_s` is renewed."""
        if time.monotonic() - self._nodes_at_s > age_max_s:
            asked_at_s = time.monotonic()
            self._nodes = live_nodes(self._ask_nodes(), self.dataset)
            self._nodes_at_s = asked_at_s
        return self._nodes

    def _ask_nodes(self) -> list[dict[str, Any]]:
        reasons = []
        for address in resolved(self._sources):
            try:
                answer = ask(address, self._access, "GET", "/v1/nodes")
            except NoScheduler as error:
                reasons.append(str(error))
            else:
                return [entry for _, entry in listed([answer], "nodes")]
        raise NoScheduler("; ".join(reasons) or f"no scheduler is named in {', '.join(self._sources)}")

    def holders(self) -> list[list[str]]:
        """The live nodes that hold each partition."""
        return holders(self.nodes(), self.dataset.manifest.partitions)

    def place(self, replicas: int = REPLICAS) -> dict[str, list[int]]:
        """Have each partition held by `replicas` nodes, or by all if there are fewer; returns the partitions that each
        node has loaded.

        Called again after nodes have died or come, it loads what is missing (`repair` is another name for it).
        """
        check_whole("replicas", replicas, 1, 1000)
        nodes = self.nodes()
        added = choose(nodes, self.dataset.manifest.partitions, replicas)
        check_fits(self.dataset, nodes, added)
        if added:
            self._load(added)
        return added

    repair = place

    def _load(self, added: dict[str, list[int]]) -> None:
        directory = str(self.dataset.directory)
        tasks = [
            TaskSpec(encode_task(Load(directory, [partition])), preferred=[node])
            for node, partitions in added.items()
            for partition in partitions
        ]
        job = self.client.submit_job(
            JobSpec(tasks, app=APP, name=f"load {self.dataset.key}", wait_for_nodes_s=WAIT_FOR_NODES_S)
        )
        try:
            job.results()
        except TaskError as error:
            job.cancel(running=True)
            raise SparrowError(f"{self.dataset.key} could not be loaded: {error}") from None
        until_s = time.monotonic() + ADVERTISED_TIMEOUT_S
        while not self._advertised(added):
            if time.monotonic() > until_s:
                raise SparrowError(
                    f"nodes that have loaded {self.dataset.key} do not report its partitions; were they lost?"
                )
            time.sleep(LOOK_EVERY_S)  # The scheduler asked may hear of the partitions later than that of the job.

    def _advertised(self, added: dict[str, list[int]]) -> bool:
        """Whether all nodes that are still connected report the partitions that they were given."""
        return all(node.partitions.issuperset(added.get(node.id, ())) for node in self.nodes())

    # ---- queries -----------------------------------------------------------------------------

    def compile(self, sql: str) -> Plan:
        """The plan of a query; `InvalidQuery` or `NotSupported` if it cannot be compiled."""
        return compile_query(sql, self.dataset.statistics)

    def query(self, sql: str, timeout_s: float | None = None) -> pa.Table:
        """The result of a query."""
        return self.run(sql, timeout_s).table

    def run(self, sql: str, timeout_s: float | None = None) -> Answer:
        """The result of a query, with its stages and their times.

        `PartitionLost` if a partition that it reads is held by no live node, `QueryFailed` if a task failed,
        `TimeoutError` after `timeout_s`; then the query's remaining tasks are stopped.
        """
        plan = self.compile(sql)
        job = self.client.submit_job(self._job_of(sql, plan))
        done, running = wait(job.futures, timeout_s, FIRST_EXCEPTION)
        failed = [future for future in done if future.cancelled() or future.exception() is not None]
        if failed or running:
            job.cancel(running=True)
        if failed:
            self._raise_failure(plan, job)
        if running:
            raise TimeoutError(f"the query did not end within {timeout_s} s")
        return self._answer(plan, job)

    def job_spec(self, sql: str) -> JobSpec:
        """The job of a query, for programs that submit it themselves. Its last task's result is the query's, an Arrow
        IPC file. It knows the nodes that hold the data now."""
        return self._job_of(sql, self.compile(sql))

    def _job_of(self, sql: str, plan: Plan) -> JobSpec:
        where = holders(self.nodes(NODES_AGE_MAX_S), self.dataset.manifest.partitions)
        self._check_held(plan, where)
        return query_job(sql, plan, self.dataset, where)

    def _check_held(self, plan: Plan, where: list[list[str]]) -> None:
        if not plan.tables:
            return
        partitioned = sorted(plan.tables & PARTITION_KEYS.keys())
        lost = [partition for partition, nodes in enumerate(where) if not nodes]
        if partitioned and lost:
            raise PartitionLost(self.dataset.key, partitioned, lost)
        if not any(where):
            raise PartitionLost(self.dataset.key, sorted(plan.tables), lost)

    def _raise_failure(self, plan: Plan, job: Job) -> None:
        """Raise the reason why the query failed; a partition that no node holds any more goes before other reasons."""
        self._check_held(plan, self.holders())
        for stage in plan.stages:
            for number, future in enumerate(job.stage(stage.name)):
                error = future.exception() if future.done() and not future.cancelled() else None
                if isinstance(error, SparrowError) and not isinstance(error, TaskCancelled):
                    node = f" on {future.report.node}" if future.report and future.report.node else ""
                    raise QueryFailed(f"task {number} of stage {stage.name}{node}: {error}") from None
        raise QueryFailed("the query was cancelled")

    def _answer(self, plan: Plan, job: Job) -> Answer:
        (result,) = (future.result() for future in job.stage(plan.stages[-1].name))
        times: dict[str, StageTimes] = {}
        ended_at_s: dict[str, float] = {}
        for stage in plan.stages:
            reports = [future.report for future in job.stage(stage.name) if future.report is not None]
            began_at_s = max((ended_at_s[name] for name in stage.after), default=job.submitted_at_s)
            ended_at_s[stage.name] = max((one.finished_at_s or began_at_s for one in reports), default=began_at_s)
            times[stage.name] = _stage_times(stage, reports, ended_at_s[stage.name] - began_at_s)
        response_s = max(ended_at_s.values()) - job.submitted_at_s
        return Answer(decode_tables([result]), bytes(result), plan, tuple(times.values()), response_s)


def _stage_times(stage: Stage, reports: list[TaskReport], response_s: float) -> StageTimes:
    return StageTimes(
        stage.name,
        stage.after,
        stage.partitioned,
        response_s,
        tuple(report.service_s or 0.0 for report in reports),
        tuple(report.node for report in reports),
        max((report.attempts for report in reports), default=0),
    )
