"""Reads DAG jobs in the format of Alibaba's cluster of 2018: its table `batch_task.csv`, which has no headings.

A name like J3_1_2 says that task 3 of its job waits for tasks 1 and 2; the letter means nothing here. A name without a
number is of a task that waits for none. The data are Alibaba's, and none are part of this repository.
"""

from __future__ import annotations

import re
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby, islice
from pathlib import Path

from loadgen.csv_rows import Row, rows
from loadgen.dags.dag_job import NAME_MAX, DagJob, DagStage
from loadgen.dags.resources import CPU, MACHINE, MEMORY
from sparrow_py.errors import InvalidOption

COLUMNS = (
    "task_name", "instance_num", "job_name", "task_type", "status", "start_time", "end_time", "plan_cpu", "plan_mem",
)  # fmt: skip
TIME_S_MAX = 10**9
INSTANCES_MAX = 10_000_000
PLAN_MAX = 1e9
JOBS_MAX = 1_000_000
"""That are read at once, to be put into order of arrival."""
TASKS_OF_JOB_MAX = 10_000
"""Rows of a job."""
REMEMBERED = 100_000
"""Jobs that are over, whose names must not come again."""
FINISHED = "Terminated"
SHORTEST_S = 0.5
"""Of a task that ends in the second in which it starts."""
CPU_DEFAULT, MEMORY_DEFAULT = 100.0, 0.5
"""Of tasks of which the trace does not say it: one core, as most have, and half a percent of a machine."""
DEPENDENCIES = re.compile(r"[A-Za-z]+(\d{1,6})((?:_\d{1,6})*)(?:_Stg\d{1,6})?_?")
UNFINISHED, UNTIMED, UNCLEAR, TOO_LARGE = (
    "with a task that did not finish", "with a task whose times are not known",
    "whose tasks wait for ones that they do not have, or for each other", "larger than a job may be",
)  # fmt: skip
"""Why jobs are left out."""


@dataclass(frozen=True, slots=True)
class AlibabaTask:
    """A row: what is a stage here. number: of the task in its job, None if its name has none. waits_for: numbers of
    others. cpu: 100 is a core; memory: percent of the largest machine's. started_s, ended_s: 0 is outside the trace."""

    job: str
    name: str
    number: int | None
    waits_for: tuple[int, ...]
    instances: int
    status: str
    started_s: int
    ended_s: int
    cpu: float
    memory: float


def read_tasks(path: str | Path) -> Iterator[AlibabaTask]:
    """From a file, or a directory of them; `InvalidOption` names the line and the field that cannot be."""
    for row in rows(path, COLUMNS):
        yield _task(row)


def _task(row: Row) -> AlibabaTask:
    name, job = row.text("task_name"), row.text("job_name")
    for column, text in (("task_name", name), ("job_name", job)):
        if not 0 < len(text) <= NAME_MAX:
            raise row.fault(column, f"1 to {NAME_MAX} characters")
    instances = row.real("instance_num", 1, INSTANCES_MAX)
    if instances != int(instances):
        raise row.fault("instance_num", f"a whole number from 1 to {INSTANCES_MAX}")
    said = DEPENDENCIES.fullmatch(name)
    started_s = row.whole("start_time", 0, TIME_S_MAX, missing=0)
    ended_s = row.whole("end_time", 0, TIME_S_MAX, missing=0)
    if started_s and ended_s and ended_s < started_s:
        raise row.fault("end_time", f"seconds from {started_s} on, when the task started")
    cpu = row.real("plan_cpu", -1, PLAN_MAX, missing=-1)
    memory = row.real("plan_mem", -1, PLAN_MAX, missing=-1)
    return AlibabaTask(
        job,
        name,
        int(said[1]) if said else None,
        tuple(dict.fromkeys(int(number) for number in said[2].split("_") if number)) if said else (),
        int(instances),
        row.text("status"),
        started_s,
        ended_s,
        cpu if cpu > 0 else CPU_DEFAULT,
        memory if 0 < memory <= 100 else MEMORY_DEFAULT,
    )


class AlibabaJobs:
    """The jobs of a table, in its order. The rows of a job stand together. left_out: how many could not be used, by the
    reason."""

    def __init__(self, path: str | Path) -> None:
        self._path = str(path)
        self.left_out: Counter[str] = Counter()

    def __iter__(self) -> Iterator[DagJob]:
        seen: OrderedDict[str, None] = OrderedDict()
        for name, tasks in groupby(read_tasks(self._path), key=lambda task: task.job):
            if name in seen:
                raise InvalidOption(f"{self._path} job_name", name, "a table in which the rows of a job stand together")
            seen[name] = None
            if len(seen) > REMEMBERED:
                seen.popitem(last=False)
            job = self._job(name, self._bounded(name, tasks))
            if job is not None:
                yield job

    def _bounded(self, name: str, tasks: Iterable[AlibabaTask]) -> list[AlibabaTask]:
        found = list(islice(tasks, TASKS_OF_JOB_MAX + 1))
        if len(found) > TASKS_OF_JOB_MAX:
            raise InvalidOption(f"{self._path} job_name", name, f"at most {TASKS_OF_JOB_MAX:,} rows of a job")
        return found

    def _job(self, name: str, tasks: list[AlibabaTask]) -> DagJob | None:
        reason = _why_not(tasks)
        order = [] if reason else _in_order(tasks)
        if not reason and len(order) < len(tasks):
            reason = UNCLEAR
        if not reason:
            try:
                return DagJob(name, float(min(task.started_s for task in tasks)), _stages(order), label="alibaba")
            except InvalidOption:
                reason = TOO_LARGE
        self.left_out[reason] += 1
        return None


def read_alibaba(path: str | Path, most: int = JOBS_MAX) -> tuple[list[DagJob], Mapping[str, int]]:
    """The first jobs of a table that can be used, at most so many, in order of arrival, from the first one's on; and
    how many were left out, by the reason."""
    if not 1 <= most <= JOBS_MAX:
        raise InvalidOption("jobs", most, f"a whole number from 1 to {JOBS_MAX}")
    source = AlibabaJobs(path)
    jobs = sorted(islice(source, most), key=lambda job: job.arrival_s)
    if not jobs:
        raise InvalidOption("trace", str(path), "at least one job all of whose tasks finished")
    first_s = jobs[0].arrival_s
    return [replace(job, arrival_s=job.arrival_s - first_s) for job in jobs], source.left_out


def _why_not(tasks: list[AlibabaTask]) -> str:
    if any(task.status != FINISHED for task in tasks):
        return UNFINISHED
    if not all(task.started_s and task.ended_s for task in tasks):
        return UNTIMED
    numbers = [task.number for task in tasks if task.number is not None]
    waited_for = {number for task in tasks for number in task.waits_for}
    return UNCLEAR if len(set(numbers)) < len(numbers) or not waited_for <= set(numbers) else ""


def _in_order(tasks: list[AlibabaTask]) -> list[AlibabaTask]:
    """Tasks after those that they wait for; those of a circle, and what waits for it, are not there."""
    waits = {number: len(task.waits_for) for number, task in enumerate(tasks)}
    readers: dict[int, list[int]] = {}
    for number, task in enumerate(tasks):
        for other in task.waits_for:
            readers.setdefault(other, []).append(number)
    order = [number for number, left in waits.items() if not left]
    for done in order:
        own = tasks[done].number
        for number in readers.get(own, ()) if own is not None else ():
            waits[number] -= 1
            if not waits[number]:
                order.append(number)
    return [tasks[number] for number in order]


def _stages(order: list[AlibabaTask]) -> tuple[DagStage, ...]:
    place = {task.number: number for number, task in enumerate(order)}
    return tuple(
        DagStage(
            task.instances,
            max(SHORTEST_S, float(task.ended_s - task.started_s)),
            {CPU: task.cpu / 100, MEMORY: task.memory / 100 * MACHINE[MEMORY]},
            tuple(sorted(place[number] for number in task.waits_for)),
            task.name[0] if task.number is not None else "",
        )
        for task in order
    )
