"""A job of a workload, before it meets a cluster."""

from __future__ import annotations

from array import array
from dataclasses import dataclass


@dataclass(slots=True)
class WorkloadJob:
    """A job that arrives.

    number: its place in the workload, from 0. arrival_s: seconds since the workload's start. user: who submits it.
    durations_s: service time of each task in seconds (array of doubles).
    where: job-level constraints, predicates as `sparrow_py.constraints` reads them.
    preferred: of each task, the numbers of the nodes that have its input (task-level constraint); empty: none has any.
    mean_s: what its submitter expects of a task, if it states it.
    """

    number: int
    arrival_s: float
    user: str
    durations_s: array[float]
    where: tuple[str, ...] = ()
    preferred: tuple[tuple[int, ...], ...] = ()
    mean_s: float | None = None
