"""A replay's records and the schedulers' audit logs, put together as the tables of `loadgen.recorded`."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from loadgen.audit import Audit
from loadgen.job_records import STATUSES, JobRecord
from loadgen.jobs import WorkloadJob
from loadgen.measures import ideal_s
from loadgen.recorded import EVENTS, JOBS, TASKS

WARM_UP = 0.1
COOL_DOWN = 0.05
"""Shares of the jobs that are not measured: the first and the last that arrive."""
UNKNOWN = STATUSES.index("lost")


def jobs_table(
    point: int, jobs: Sequence[WorkloadJob], records: Sequence[JobRecord], start_s: float, audit: Audit
) -> pa.Table:
    """A row for each job."""
    first, last = int(len(jobs) * WARM_UP), len(jobs) - int(len(jobs) * COOL_DOWN)
    columns: dict[str, list[Any]] = defaultdict(list)
    for index, (job, record) in enumerate(zip(jobs, records, strict=True)):
        positions = {stage.name: number for number, stage in enumerate(job.as_stages())}
        after = [[positions[name] for name in stage.after] for stage in job.as_stages()]
        ended_s = record.ended_s
        row = {
            "point": point,
            "job": job.number,
            "label": job.label,
            "user": job.user,
            "tasks": len(job.durations_s),
            "stages": len(after),
            "after": after,
            "measured": first <= index < last,
            "status": record.status,
            "due_s": record.due_s - start_s,
            "submitted_s": record.submitted_s - start_s,
            "ended_s": ended_s - start_s,
            "response_s": ended_s - record.due_s,
            "ideal_s": _ideal_s(job, record, after),
        }
        for name, value in row.items():
            columns[name].append(value)
    return _table(JOBS, columns)


def _ideal_s(job: WorkloadJob, record: JobRecord, after: list[list[int]]) -> float:
    """The ideal of a job whose tasks have all finished."""
    if record.status != "finished":
        return math.nan
    return ideal_s(after, [record.service_s[own.start : own.stop] for _, own in job.ranges()])


def tasks_table(
    point: int, jobs: Sequence[WorkloadJob], records: Sequence[JobRecord], start_s: float, audit: Audit
) -> pa.Table:
    """A row for each task."""
    columns: dict[str, list[Any]] = {name: [] for name in TASKS.names}
    append = [columns[name].append for name in TASKS.names]
    for job, record in zip(jobs, records, strict=True):
        arrived_s = audit.arrived_s.get(record.job_id, math.nan) - start_s
        for position, (stage, own) in enumerate(job.ranges()):
            for task in own:
                launch = audit.launches.get((record.job_id, task))
                asked_s = launched_s = math.nan
                if launch is not None:
                    launched_s = launch.launched_s - start_s
                    asked_s = math.nan if launch.asked_s is None else launch.asked_s - start_s
                started_s = record.started_s[task] - start_s
                row = (
                    point, job.number, position, stage.name, task - own.start,
                    bool(job.preferred and job.preferred[task]),
                    "refused" if record.status == "refused" else STATUSES[record.task_status[task] or UNKNOWN],
                    record.node[task], "" if launch is None else launch.scheduler, record.attempts[task],
                    arrived_s, record.reserved_s[task] - start_s, asked_s, launched_s, started_s,
                    started_s + record.service_s[task], record.service_s[task],
                )  # fmt: skip
                for add, value in zip(append, row, strict=True):
                    add(value)
    return _table(TASKS, columns)


def events_table(point: int, start_s: float, audit: Audit) -> pa.Table:
    """A row for each no-op and cancellation."""
    columns: dict[str, list[Any]] = {name: [] for name in EVENTS.names}
    for at_s, kind, count, user in audit.events:
        for name, value in zip(EVENTS.names, (point, at_s - start_s, kind, count, user), strict=True):
            columns[name].append(value)
    return _table(EVENTS, columns)


def _table(schema: pa.Schema, columns: dict[str, list[Any]]) -> pa.Table:
    return pa.table([pa.array(columns[field.name], field.type) for field in schema], schema=schema)
