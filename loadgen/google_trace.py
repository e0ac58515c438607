"""Reads traces in the format of Google's cluster of May 2011 ("ClusterData2011_2", format and schema 2.1).

Its tables are directories of gzipped CSV files without headings. The trace itself is 41 GB and not part of this
repository; `google_like` makes up a workload from what is published of it.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path

from loadgen.csv_rows import Row, rows
from loadgen.jobs import WorkloadJob
from sparrow_py.errors import InvalidOption

MACHINE_COLUMNS = ("time", "machine_id", "event_type", "platform_id", "cpus", "memory")
JOB_COLUMNS = (
    "time", "missing_info", "job_id", "event_type", "user", "scheduling_class", "job_name", "logical_job_name",
)  # fmt: skip
TASK_COLUMNS = (
    "time", "missing_info", "job_id", "task_index", "machine_id", "event_type", "user", "scheduling_class", "priority",
    "cpu_request", "memory_request", "disk_space_request", "different_machines",
)  # fmt: skip

AFTER = 2**63 - 1
"""The time of what came after the trace's end; 0 is before its beginning."""
ID_MAX = 2**63 - 1
PRODUCTION = 9
"""The least priority of services."""
PRIORITY_MAX = 12
TASK_INDEX_MAX = 10_000_000
SERVICE, BATCH = "service", "batch"


class MachineEventType(IntEnum):
    """What became of a machine."""

    ADD = 0
    REMOVE = 1
    UPDATE = 2


class TaskEventType(IntEnum):
    """What became of a job or task."""

    SUBMIT = 0
    SCHEDULE = 1
    EVICT = 2
    FAIL = 3
    FINISH = 4
    KILL = 5
    LOST = 6
    UPDATE_PENDING = 7
    UPDATE_RUNNING = 8


ENDS = frozenset(
    {TaskEventType.EVICT, TaskEventType.FAIL, TaskEventType.FINISH, TaskEventType.KILL, TaskEventType.LOST}
)


@dataclass(frozen=True, slots=True)
class MachineEvent:
    """A line of machine_events. Capacities are shares of the largest machine's; None where the trace has none."""

    at_s: float
    machine: int
    type: MachineEventType
    cpus: float | None
    memory: float | None


@dataclass(frozen=True, slots=True)
class JobEvent:
    """A line of job_events."""

    at_s: float
    job: int
    type: TaskEventType
    user: str
    scheduling_class: int


@dataclass(frozen=True, slots=True)
class TaskEvent:
    """A line of task_events. machine: None unless it runs, or ran. Requests: shares of the largest machine's."""

    at_s: float
    job: int
    index: int
    machine: int | None
    type: TaskEventType
    user: str
    scheduling_class: int
    priority: int
    cpus: float
    memory: float


def read_machine_events(path: str | Path) -> Iterator[MachineEvent]:
    """From a file, or a directory of them."""
    for row in rows(path, MACHINE_COLUMNS):
        yield MachineEvent(
            _time_s(row),
            row.whole("machine_id", 0, ID_MAX),
            MachineEventType(row.whole("event_type", 0, max(MachineEventType))),
            row.real("cpus", 0, 1) if row.text("cpus") else None,
            row.real("memory", 0, 1) if row.text("memory") else None,
        )


def read_job_events(path: str | Path) -> Iterator[JobEvent]:
    """From a file, or a directory of them."""
    for row in rows(path, JOB_COLUMNS):
        yield JobEvent(
            _time_s(row), row.whole("job_id", 0, ID_MAX), _type(row), row.text("user"), _scheduling_class(row)
        )


def read_task_events(path: str | Path) -> Iterator[TaskEvent]:
    """From a file, or a directory of them."""
    for row in rows(path, TASK_COLUMNS):
        machine = row.whole("machine_id", 0, ID_MAX, missing=-1)
        yield TaskEvent(
            _time_s(row),
            row.whole("job_id", 0, ID_MAX),
            row.whole("task_index", 0, TASK_INDEX_MAX),
            None if machine < 0 else machine,
            _type(row),
            row.text("user"),
            _scheduling_class(row),
            row.whole("priority", 0, PRIORITY_MAX),
            row.real("cpu_request", 0, 1, missing=0.0),
            row.real("memory_request", 0, 1, missing=0.0),
        )


def _time_s(row: Row) -> float:
    """Seconds; infinite for what came after the trace's end."""
    time_us = row.whole("time", 0, AFTER)
    return float("inf") if time_us == AFTER else time_us / 1e6


def _type(row: Row) -> TaskEventType:
    return TaskEventType(row.whole("event_type", 0, max(TaskEventType)))


def _scheduling_class(row: Row) -> int:
    return row.whole("scheduling_class", 0, 3)


# ---- as a workload ---------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _TaskStory:
    submitted_s: float
    started_s: float | None = None
    ran_s: float | None = None
    """Of its last run that has ended."""


@dataclass(slots=True)
class _JobStory:
    user: str
    priority: int
    tasks: dict[int, _TaskStory] = field(default_factory=dict)


def jobs_of(events: Iterable[TaskEvent]) -> list[WorkloadJob]:
    """The jobs of a trace, in order of arrival: each task lasts as long as its last run did.

    A task that still runs at the end lasts until then; one that never started is left out. A job arrives when its first
    task is submitted. Label: "service" from the production priorities on, else "batch".
    """
    stories: dict[int, _JobStory] = {}
    last_s = 0.0
    for event in events:
        if event.at_s == float("inf"):
            continue
        last_s = max(last_s, event.at_s)
        job = stories.setdefault(event.job, _JobStory(event.user, event.priority))
        task = job.tasks.setdefault(event.index, _TaskStory(event.at_s))
        if event.type == TaskEventType.SCHEDULE:
            task.started_s = event.at_s
        elif event.type in ENDS and task.started_s is not None:
            task.ran_s, task.started_s = event.at_s - task.started_s, None
    return _ordered([_as_job(story, last_s) for story in stories.values()])


def read_google_trace(path: str | Path) -> list[WorkloadJob]:
    """The jobs of the table task_events."""
    jobs = jobs_of(read_task_events(path))
    if not jobs:
        raise InvalidOption("trace", str(path), "events of at least one task that starts")
    return jobs


def _as_job(story: _JobStory, last_s: float) -> WorkloadJob:
    durations_s = array("d")
    for _, task in sorted(story.tasks.items()):
        if task.started_s is not None:
            durations_s.append(last_s - task.started_s)
        elif task.ran_s is not None:
            durations_s.append(task.ran_s)
    return WorkloadJob(
        0,
        min(task.submitted_s for task in story.tasks.values()),
        story.user,
        durations_s,
        label=SERVICE if story.priority >= PRODUCTION else BATCH,
    )


def _ordered(jobs: list[WorkloadJob]) -> list[WorkloadJob]:
    """Those that have tasks, in order of arrival, from the first one's on."""
    kept = sorted((job for job in jobs if job.durations_s), key=lambda job: job.arrival_s)
    for number, job in enumerate(kept):
        job.number = number
    return kept
