"""Runs the jobs of a workflow on a cluster: each is a task of the app `workflow`, on a node that has its engine."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from frontends.workflow.engines import engine as engine_of
from frontends.workflow.engines.base import Rules
from frontends.workflow.ir.dag import Scan
from frontends.workflow.running.execution import Cause, Failure, Job
from frontends.workflow.running.store import KeptRelation, RunStore
from frontends.workflow.running.tasks import APP, ATTRIBUTE_PREFIX, Failed, Made, Script, decode_answer, encode
from sparrow_py.errors import LinkError, SparrowError, TaskFailed, TaskLost
from sparrow_py.job import RAN_TOO_LONG, JobSpec

if TYPE_CHECKING:
    from sparrow_py import Client
    from sparrow_py.client import Job as ClientJob

WAIT_FOR_NODES_S = 5.0
"""How long a job waits for a node with its engine, if there is none now."""


@dataclass(frozen=True, slots=True)
class JobSettings:
    """What each job may take. threads: by engine; memory_bytes_max: 0 for no limit. where: further predicates."""

    threads: Mapping[str, int]
    memory_bytes_max: int = 0
    where: tuple[str, ...] = ()
    task_timeout_s: float | None = None


@dataclass(frozen=True, slots=True)
class JobEnd:
    """How a job went well. seconds: of its script; start_s: until its process was warm; wall_s: as the driver saw."""

    made: Mapping[str, KeptRelation]
    node: str
    seconds: float
    start_s: float
    wall_s: float
    cpu_s: float
    memory_bytes: int
    cold: bool


class ClusterRunner:
    """Starts jobs, and says how they ended.

    tables: the Parquet file of each table that the workflow scans, by its name.
    """

    def __init__(
        self, client: Client, store: RunStore, tables: Mapping[str, Path], rules: Rules, settings: JobSettings
    ) -> None:
        self._client, self._store, self._tables = client, store, tables
        self._rules, self._settings = rules, settings
        self._jobs: dict[int, tuple[ClientJob, dict[str, str], float]] = {}

    def source(self, job: Job) -> str:
        """The job's script."""
        return engine_of(job.engine).generate(job.dag, self._rules, job.small)

    def start(self, job: Job) -> Future[Any]:
        """Begin to run the job; the future is done when it has ended, however that was."""
        attempt = secrets.token_hex(4)
        files = {name: f"{job.number}-{place}-{attempt}.parquet" for place, name in enumerate(job.dag.results)}
        threads = self._settings.threads.get(job.engine, 1)
        script = Script(
            job.engine,
            self.source(job),
            self._inputs(job),
            {name: str(self._store.directory.resolve() / file) for name, file in files.items()},
            str(self._store.directory.resolve()),
            self._store.token,
            threads,
            self._settings.memory_bytes_max,
        )
        demand: dict[str, float] = {"cpu": threads}
        if self._settings.memory_bytes_max:
            demand["memory_bytes"] = self._settings.memory_bytes_max
        spec = JobSpec(
            [encode(script)],
            app=APP,
            name=f"workflow {self._store.manifest.fingerprint[:8]} job {job.number} on {job.engine}",
            where=[f"{ATTRIBUTE_PREFIX}{job.engine} exists", *self._settings.where],
            demand=demand,
            wait_for_nodes_s=WAIT_FOR_NODES_S,
            task_timeout_s=self._settings.task_timeout_s,
            max_attempts=1,  # A lost one may still run, and write; the next has files of its own.
        )
        sent = self._client.submit_job(spec)
        self._jobs[job.number] = sent, files, time.monotonic()
        future: Future[Any] = sent.futures[0]
        return future

    def _inputs(self, job: Job) -> dict[str, str]:
        found = {name: str(self._store.path(name).resolve()) for name in job.inputs}
        return found | {scan.name: str(self._tables[scan.table].resolve()) for scan in job.dag.of_type(Scan)}

    def outcome(self, job: Job, future: Future[Any]) -> JobEnd | Failure:
        """How the job of this future, which is done, ended. What a failed attempt has written is deleted."""
        _, files, started_s = self._jobs.pop(job.number)
        wall_s = time.monotonic() - started_s
        try:
            answer = decode_answer(bytes(future.result()))
            if isinstance(answer, Made):
                report = getattr(future, "report", None)
                return _end(answer, files, report.node if report is not None else "", wall_s)
            failure = Failure(Cause.DIED, "its node answered with a failure, and said that it had finished")
        except TaskFailed as error:
            failure = _failure_of(error)
        except CancelledError as error:
            failure = Failure(Cause.CANCELLED, f"job {job.number} on {job.engine}: {error}")
        except TaskLost as error:
            report = getattr(future, "report", None)
            had_started = report is not None and report.attempts > 0
            failure = Failure(Cause.DIED if had_started else Cause.UNREACHABLE, str(error))
        except SparrowError as error:
            failure = Failure(Cause.UNREACHABLE, str(error))
        self._delete(files.values())
        return failure

    def cancel(self) -> None:
        """Stop all that runs."""
        for sent, files, _ in self._jobs.values():
            sent.cancel(running=True)
            self._delete(files.values())
        self._jobs.clear()

    def _delete(self, files: Iterable[str]) -> None:
        for file in files:
            for one in (file, f"{file}.partial"):
                (self._store.directory / one).unlink(missing_ok=True)


def _end(made: Made, files: Mapping[str, str], node: str, wall_s: float) -> JobEnd:
    relations = {
        name: KeptRelation(files[name], one.rows, one.bytes, one.column_bytes) for name, one in made.relations.items()
    }
    return JobEnd(
        relations, node, made.seconds, made.start_s, wall_s, made.cpu_s, made.memory_bytes, made.cold
    )  # fmt: skip


def _failure_of(error: TaskFailed) -> Failure:
    """What the node says of its time, and else what the executor says of it, if it says anything."""
    if RAN_TOO_LONG in str(error):  # The executor may have said meanwhile that a process was killed.
        return Failure(Cause.TIMEOUT, str(error))
    if error.result:
        try:
            answer = decode_answer(bytes(error.result))
        except LinkError as malformed:
            return Failure(Cause.DIED, str(malformed))
        if isinstance(answer, Failed):
            return Failure(Cause(answer.cause), answer.reason, answer.details)
    return Failure(Cause.DIED, str(error))
