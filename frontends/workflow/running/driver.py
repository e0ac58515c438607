"""Drives a workflow to its end: starts the jobs that `execution` says, and notes in the store what they have made.

A thin driver: what runs next is decided in `execution`, how it runs in a runner (`cluster_runner`).
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from typing import Any, Protocol

from frontends.workflow.running.cluster_runner import JobEnd
from frontends.workflow.running.errors import WorkflowFailed
from frontends.workflow.running.execution import Execution, FailedJob, Failure, Job
from frontends.workflow.running.store import RunStore
from sparrow_py.errors import SparrowError


class Runner(Protocol):
    """What runs jobs."""

    def start(self, job: Job) -> Future[Any]: ...

    def outcome(self, job: Job, future: Future[Any]) -> JobEnd | Failure: ...

    def cancel(self) -> None: ...


class Observer(Protocol):
    """Who is told how a workflow goes."""

    def started(self, job: Job) -> None: ...

    def finished(self, job: Job, end: JobEnd) -> None: ...

    def failed(self, failed: FailedJob) -> None: ...


@dataclass(frozen=True, slots=True)
class JobRun:
    """A job that ended well."""

    job: Job
    end: JobEnd


def execute(execution: Execution, runner: Runner, store: RunStore, observers: Sequence[Observer] = ()) -> list[JobRun]:
    """Run the workflow to its end: its jobs, in the order in which they ended.

    `WorkflowFailed` if a job fails on every engine; what is done by then is in the store, for `resume`.
    """
    running: dict[Future[Any], Job] = {}
    ended: list[JobRun] = []
    try:
        while not execution.over:
            for job in _to_start(execution):
                running[runner.start(job)] = job
                for one in observers:
                    one.started(job)
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in [one for one in running if one in done]:
                job = running.pop(future)
                end = runner.outcome(job, future)
                if isinstance(end, Failure):
                    for one in observers:
                        one.failed(FailedJob(job, end))
                    execution.failed(job.number, end)
                else:
                    execution.finished(job.number, {name: kept.size for name, kept in end.made.items()})
                    store.add(frozenset(job.names), end.made, execution.needed())
                    ended.append(JobRun(job, end))
                    for one in observers:
                        one.finished(job, end)
    except BaseException:
        runner.cancel()
        raise
    return ended


def _to_start(execution: Execution) -> list[Job]:
    """The jobs to start; if none can be found since some failed, the failures are why."""
    try:
        return execution.start()
    except SparrowError as error:
        if not execution.failures:
            raise
        raise WorkflowFailed(str(error), [str(one) for one in execution.failures]) from error
