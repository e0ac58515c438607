"""A job of a workload, before it is submitted to a cluster."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WorkloadStage:
    """A stage of a job of several. tasks: the number of its tasks. after: names of the stages that it waits for.
    expected_s: the duration of a task that the submitter states; None: the job's `mean_s`."""

    name: str
    after: tuple[str, ...]
    tasks: int
    expected_s: float | None = None


@dataclass(slots=True)
class WorkloadJob:
    """A job that arrives.

    number: its place in the workload, from 0. arrival_s: seconds since the workload's start. user: who submits it.
    durations_s: service time of each task in seconds (array of doubles), of all stages in their order.
    where: job-level constraints, predicates as `sparrow_py.constraints` reads them.
    preferred: for each task, the numbers of the nodes that have its input (task-level constraint); empty: no task has
    preferred nodes.
    mean_s: the mean duration of a task that the submitter states; None if it states none.
    stages: of a job of several, each after those that it names in `after`; empty: all tasks are of one stage.
    label: the kind of the job, for reports ("q3"); empty where all jobs are alike.
    priority: of the job, no higher than the user's own; None is that.
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
    priority: int | None = None

    def as_stages(self) -> tuple[WorkloadStage, ...]:
        """The stages; a job without stages of its own has one without a name."""
        return self.stages or (WorkloadStage("", (), len(self.durations_s)),)

    def ranges(self) -> Iterator[tuple[WorkloadStage, range]]:
        """Each stage and the numbers of its tasks."""
        first = 0
        for stage in self.as_stages():
            yield stage, range(first, first + stage.tasks)
            first += stage.tasks
