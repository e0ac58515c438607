"""A job of a workload, before it meets a cluster."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WorkloadStage:
    """A stage of a job of several. tasks: how many of the job's tasks are its. after: names of the stages it needs."""

    name: str
    after: tuple[str, ...]
    tasks: int


@dataclass(slots=True)
class WorkloadJob:
    """A job that arrives.

    number: its place in the workload, from 0. arrival_s: seconds since the workload's start. user: who submits it.
    durations_s: service time of each task in seconds (array of doubles), of all stages in their order.
    where: job-level constraints, predicates as `sparrow_py.constraints` reads them.
    preferred: of each task, the numbers of the nodes that have its input (task-level constraint); empty: none has any.
    mean_s: what its submitter expects of a task, if it states it.
    stages: of a job of several, each after those that it names in `after`; empty: all tasks are of one stage.
    label: what it is one of, for reports ("q3"); empty where all jobs are alike.
    """

    number: int
    arrival_s: float
    user: str
    durations_s: array[float]
    where: tuple[str, ...] = ()
    preferred: tuple[tuple[int, ...], ...] = ()
    mean_s: float | None = None
    stages: tuple[WorkloadStage, ...] = ()
    label: str = ""

    def as_stages(self) -> tuple[WorkloadStage, ...]:
        """Its stages, one without a name if it has no others."""
        return self.stages or (WorkloadStage("", (), len(self.durations_s)),)

    def ranges(self) -> Iterator[tuple[WorkloadStage, range]]:
        """Each stage and the numbers of its tasks."""
        first = 0
        for stage in self.as_stages():
            yield stage, range(first, first + stage.tasks)
            first += stage.tasks
