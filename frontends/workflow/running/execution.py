"""Which jobs of a workflow run next: the loop of the thesis's listing 3.7, as a state that knows no cluster or clock.

The rest of the workflow is planned; the jobs of the plan whose inputs are there start; when one has ended, the true
sizes of what it made are known, and the rest is planned again. So at any time only jobs that run are decided. A job
that failed is planned again, with its engine barred from its operators: the next best engine gets them, perhaps as
several jobs. Each failure bars an engine from operators, so this ends.

    execution = Execution(dag, planner)
    while not execution.over:
        for job in execution.start(): ...            # begin to run it
        execution.finished(number, sizes)            # or failed(number, failure)
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from frontends.workflow.ir.dag import Dag, Leaf
from frontends.workflow.jobs.map_joins import NONE_SMALL
from frontends.workflow.mapping.sizes import TableSize
from frontends.workflow.running.errors import WorkflowFailed

JOBS_AT_ONCE_MAX = 16
"""Jobs of one workflow that run at the same time."""

DEATHS_MAX = 2
"""How often the process of an engine may end while it runs an operator, before another engine gets that."""


class Cause(enum.Enum):
    """Why a job failed."""

    ENGINE = "engine"
    """The engine, or code that it ran, failed."""
    MEMORY = "memory"
    """It needed more memory than it may have."""
    DIED = "died"
    """The process that ran it ended."""
    TIMEOUT = "timeout"
    """It ran for longer than it may: so it would again."""
    UNREACHABLE = "unreachable"
    """No node ran it: those with the engine have gone, or refuse it."""
    WORKFLOW = "workflow"
    """What the workflow says: a loop that does not end, tables that are not as declared. Every engine would fail."""
    STORE = "store"
    """Files that the job reads or writes are not where all nodes see them."""
    CANCELLED = "cancelled"
    """Somebody has cancelled it."""

    @property
    def final(self) -> bool:
        """Whether no other engine would do better."""
        return self in (Cause.WORKFLOW, Cause.STORE, Cause.CANCELLED)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a job failed. reason: in words; details: the end of a traceback, perhaps."""

    cause: Cause
    reason: str
    details: str = ""


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """Operators that one engine is to run as a job. small: relations that are surely small (`Engine.generate`)."""

    names: frozenset[str]
    engine: str
    small: frozenset[str] = NONE_SMALL


@dataclass(frozen=True, slots=True)
class Job:
    """A job that runs, or has run. dag: by itself (`Dag.subset`); its `Input`s are relations that other jobs made.
    small: relations that are surely small (`Engine.generate`)."""

    number: int
    names: frozenset[str]
    engine: str
    dag: Dag
    small: frozenset[str] = NONE_SMALL

    @property
    def inputs(self) -> tuple[str, ...]:
        """The relations that earlier jobs made."""
        return self.dag.input_names


@dataclass(frozen=True, slots=True)
class FailedJob:
    """A job that failed, and why."""

    job: Job
    failure: Failure

    def __str__(self) -> str:
        return f"job {self.job.number} on {self.job.engine}: {self.failure.reason}"


@dataclass(frozen=True)
class Barred:
    """Which engines must not run which operators, as they failed before: for the planner.

    An engine whose process ended may try again, `DEATHS_MAX` times in all: the process may have been killed.
    """

    failed: tuple[FailedJob, ...] = ()

    def reason(self, engine: str, names: Iterable[str]) -> str | None:
        """Why the engine must not run a job of these operators: the number of the job that failed. None if it may."""
        wanted = frozenset(names)
        deaths = 0
        for one in self.failed:
            if one.job.engine == engine and not wanted.isdisjoint(one.job.names):
                deaths += one.failure.cause is Cause.DIED
                if one.failure.cause is not Cause.DIED or deaths >= DEATHS_MAX:
                    return f"job {one.job.number} failed"
        return None


class Planner(Protocol):
    """Maps the rest of a workflow to jobs, in an order in which each comes after those that make what it reads.

    rest: what is neither done nor running, as a DAG by itself. known: sizes of relations that were made. The names of
    the jobs are a partition of `rest`'s operators, but for leaves that are no results. `NoEngine` if an operator cannot
    be run.
    """

    def plan(self, rest: Dag, known: Mapping[str, TableSize], barred: Barred) -> Sequence[PlannedJob]: ...


@dataclass
class Execution:
    """The state of a workflow that runs.

    done: operators that an earlier run has done (`--resume`), and `known` the sizes of what it made.
    """

    dag: Dag
    planner: Planner
    known: dict[str, TableSize] = field(default_factory=dict)
    done: set[str] = field(default_factory=set)
    jobs_at_once: int = JOBS_AT_ONCE_MAX

    def __post_init__(self) -> None:
        wanted = {*self.results, *self.dag.ancestors(self.results)}
        for name in tuple(wanted):
            wanted |= self.dag.inseparable(name)
        self._rest = {name for name in wanted if name in self.results or not isinstance(self.dag.operator(name), Leaf)}
        self._rest -= self.done
        self._running: dict[int, Job] = {}
        self._failed: list[FailedJob] = []
        self._number = 0
        self.jobs_done: list[Job] = []

    @property
    def results(self) -> tuple[str, ...]:
        """The relations that the workflow is asked for."""
        return self.dag.results

    @property
    def over(self) -> bool:
        """Whether all is made."""
        return not self._rest and not self._running

    @property
    def running(self) -> tuple[Job, ...]:
        return tuple(self._running.values())

    @property
    def failures(self) -> tuple[FailedJob, ...]:
        """Jobs that failed, in order."""
        return tuple(self._failed)

    def rest(self) -> Dag | None:
        """What is neither done nor running; None if that is nothing."""
        return self.dag.subset(self._rest) if self._rest else None

    def planned(self) -> Sequence[PlannedJob]:
        """The plan of the rest."""
        rest = self.rest()
        return self.planner.plan(rest, self.known, Barred(self.failures)) if rest is not None else ()

    def start(self) -> list[Job]:
        """The jobs that are to start now: they count as running from here on."""
        room = self.jobs_at_once - len(self._running)
        if not self._rest or room <= 0:
            return []
        possible = [(one, names) for one in self.planned() if (names := self._ready(one))]
        ready = [self._job(one, names) for one, names in possible[:room]]
        if not ready and not self._running:
            raise AssertionError(f"no job of the plan can run; to be done: {sorted(self._rest)}")
        for job in ready:
            self._rest -= job.names
            self._running[job.number] = job
        return ready

    def _ready(self, planned: PlannedJob) -> frozenset[str]:
        """The job's operators, if all that they read is there; else none."""
        names = planned.names & self._rest
        read = {name for one in names for name in self.dag.operator(one).inputs} - names
        there = all(name in self.done or isinstance(self.dag.operator(name), Leaf) for name in read)
        return frozenset(names if there else ())

    def _job(self, planned: PlannedJob, names: frozenset[str]) -> Job:
        self._number += 1
        return Job(self._number, names, planned.engine, self.dag.subset(names), planned.small)

    def finished(self, number: int, made: Mapping[str, TableSize]) -> None:
        """The job has made its results, of these sizes."""
        job = self._running.pop(number)
        missing = [name for name in job.dag.results if name not in made]
        if missing:
            raise AssertionError(f"job {number} has not made {missing}")
        self.done |= job.names
        self.known.update(made)
        self.jobs_done.append(job)

    def failed(self, number: int, failure: Failure) -> None:
        """The job has failed. `WorkflowFailed` if no other engine would do better."""
        job = self._running.pop(number)
        self._failed.append(FailedJob(job, failure))
        self._rest |= job.names
        if failure.cause.final:
            raise WorkflowFailed(failure.reason, [str(one) for one in self._failed[:-1]])

    def needed(self) -> frozenset[str]:
        """Relations that were made and that something still reads, or that are results."""
        unfinished = self._rest.union(*(job.names for job in self._running.values()))
        read = {name for one in unfinished for name in self.dag.operator(one).inputs}
        return frozenset(name for name in self.known if name in self.done and (name in read or name in self.results))
