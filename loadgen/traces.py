"""Workloads from files: one job a line, in order of arrival.

There are two formats, and a file may mix them. JSON, our own: an object with `arrival_s`, `durations_s` (a list of
seconds, one for each task), and if wanted `user`, `label` (the kind of job), `priority` (a whole number), `where` (a
list of constraints) and `preferred` (a list of lists of node numbers). A job of several stages has `stages` in place of
`durations_s` and `preferred`: a list of objects with `name`, `durations_s`, and if wanted `after` (a list of names) and
`preferred`.
Numbers, as the traces of Hawk, Eagle and Pigeon have them, with spaces between them: arrival, number of tasks, mean
duration, and the durations, all times in seconds. Empty lines, and text after a #, are skipped.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson

from loadgen.jobs import WorkloadJob, WorkloadStage
from sparrow_py.errors import InvalidOption, InvalidRequest
from sparrow_py.job import PRIORITY_MAX, PRIORITY_MIN, STAGES_MAX, check_name, check_whole

DURATION_S_MAX = 1e9
TASKS_MAX = 1_000_000
DEFAULT_USER = "user0"
KEYS = ("arrival_s", "durations_s", "user", "where", "preferred", "label", "priority", "stages")
STAGE_KEYS = ("name", "after", "durations_s", "preferred")


@dataclass(frozen=True)
class Trace:
    """A workload read from a file.

    path: of the file.
    lines: the jobs.
    stretch: arrivals are this many times as far apart.
    """

    path: str
    lines: tuple[WorkloadJob, ...]
    stretch: float = 1.0

    @property
    def jobs(self) -> int:
        """The number of jobs."""
        return len(self.lines)

    @property
    def users(self) -> tuple[str, ...]:
        """The users who submit the jobs."""
        return tuple(sorted({job.user for job in self.lines}))

    def load(self, nodes: int, slots: int) -> float:
        """The work that arrives, over the capacity of so many nodes of so many slots in that time; infinite if all jobs
        arrive at once."""
        span_s = (self.lines[-1].arrival_s - self.lines[0].arrival_s) * self.stretch
        work_s = sum(sum(job.durations_s) for job in self.lines)
        return work_s / (span_s * nodes * slots) if span_s else math.inf

    def at_load(self, load: float, nodes: int, slots: int) -> Trace:
        """The same jobs, their arrivals stretched so that they bring this load to so many nodes of so many slots."""
        now = self.load(nodes, slots)
        if now == math.inf:
            raise InvalidOption("trace", self.path, "jobs that arrive at different times, to be stretched to a load")
        return Trace(self.path, self.lines, self.stretch * now / load)

    def generate(self, seed: int, nodes: int, slots: int) -> Iterator[WorkloadJob]:
        """The jobs in order of arrival, the same for any seed and slots; `InvalidOption` for a preferred node
        beyond `nodes`."""
        first_s = self.lines[0].arrival_s
        for job in self.lines:
            for node in (node for preferred in job.preferred for node in preferred):
                if node >= nodes:
                    raise InvalidOption("preferred", node, f"a node's number from 0 to {nodes - 1}")
            at_s = (job.arrival_s - first_s) * self.stretch
            yield replace(job, arrival_s=at_s)


def read_trace(path: str) -> Trace:
    """The trace in the file of this path; `InvalidOption` names a line that is not a job."""
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidOption("trace", path, f"a readable text file ({error})") from None
    return Trace(path, tuple(parse_lines(path, text.splitlines())))


def parse_lines(path: str, lines: Iterable[str]) -> list[WorkloadJob]:
    """The jobs of a trace's lines."""
    jobs: list[WorkloadJob] = []
    for line, text in enumerate(lines, 1):
        content = text if text.lstrip().startswith("{") else text.split("#")[0]
        if not content.strip():
            continue
        where = f"{path}:{line}"
        job = (
            _parse_json(where, len(jobs), content)
            if content.lstrip().startswith("{")
            else _parse_numbers(where, len(jobs), content)
        )
        if jobs and job.arrival_s < jobs[-1].arrival_s:
            raise InvalidOption(where, job.arrival_s, f"an arrival not before the previous one's, {jobs[-1].arrival_s}")
        jobs.append(job)
    if not jobs:
        raise InvalidOption("trace", path, "at least one job")
    return jobs


def _parse_numbers(where: str, number: int, text: str) -> WorkloadJob:
    try:
        values = [float(word) for word in text.split()]
    except ValueError as error:
        raise InvalidOption(where, text, f"numbers ({error})") from None
    if len(values) < 4 or values[1] != len(values) - 3:
        raise InvalidOption(where, text, "arrival, number of tasks, mean duration, and as many durations as tasks")
    durations_s = [_duration(where, value) for value in values[3:]]
    return WorkloadJob(
        number, _arrival(where, values[0]), DEFAULT_USER, array("d", durations_s), mean_s=_duration(where, values[2])
    )


def as_json(job: WorkloadJob) -> bytes:
    """The job as a line of our own format, without its end."""
    row: dict[str, Any] = {"arrival_s": job.arrival_s, "user": job.user}
    if job.label:
        row["label"] = job.label
    if job.priority is not None:
        row["priority"] = job.priority
    if job.where:
        row["where"] = job.where
    if not job.stages:
        return orjson.dumps(row | _tasks_as_json(job, range(len(job.durations_s))))
    row["stages"] = [
        {"name": stage.name, "after": stage.after} | _tasks_as_json(job, tasks) for stage, tasks in job.ranges()
    ]
    return orjson.dumps(row)


def _tasks_as_json(job: WorkloadJob, tasks: range) -> dict[str, Any]:
    row: dict[str, Any] = {"durations_s": [job.durations_s[task] for task in tasks]}
    if any(job.preferred[task] for task in tasks if job.preferred):
        row["preferred"] = [job.preferred[task] for task in tasks]
    return row


def _parse_json(where: str, number: int, text: str) -> WorkloadJob:
    try:
        row = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise InvalidOption(f"{where}:{error.colno}", _excerpt(text, error.pos), f"JSON ({error.msg})") from None
    _check_keys(where, row, KEYS)
    constraints = _list(where, row, "where")
    user, label = row.get("user", DEFAULT_USER), row.get("label", "")
    for name, value in (("user", user), *(("where", constraint) for constraint in constraints)):
        if not isinstance(value, str) or not value:
            raise InvalidOption(f"{where} {name}", value, "text")
    if not isinstance(label, str):
        raise InvalidOption(f"{where} label", label, "text")
    priority = row.get("priority")
    if priority is not None:
        try:
            check_whole("priority", priority, PRIORITY_MIN, PRIORITY_MAX)
        except InvalidRequest as error:
            raise InvalidOption(f"{where} priority", error.value, error.allowed) from None
    arrival_s = _arrival(where, row.get("arrival_s"))
    stages: tuple[WorkloadStage, ...] = ()
    if "stages" in row:
        stages, durations_s, preferred = _stages(where, row)
    else:
        durations_s, preferred = _tasks(where, row)
    return WorkloadJob(
        number, arrival_s, user, durations_s, tuple(constraints), preferred, stages=stages, label=label,
        priority=priority,
    )  # fmt: skip


def _stages(where: str, row: dict[str, Any]) -> tuple[tuple[WorkloadStage, ...], array[float], tuple[Any, ...]]:
    """The stages of a job, and its tasks' durations and preferred nodes."""
    for name in ("durations_s", "preferred"):
        if name in row:
            raise InvalidOption(f"{where} {name}", row[name], "no such field beside stages, which have their own")
    given = _list(where, row, "stages")
    if not 1 <= len(given) <= STAGES_MAX:
        raise InvalidOption(f"{where} stages", f"{len(given)} stages", f"1 to {STAGES_MAX} stages")
    stages: list[WorkloadStage] = []
    durations_s: array[float] = array("d")
    preferred: list[tuple[int, ...]] = []
    for index, stage in enumerate(given):
        here = f"{where} stages[{index}]"
        _check_keys(here, stage, STAGE_KEYS)
        own_s, nodes = _tasks(here, stage)
        try:
            check_name("name", stage.get("name"), empty=False)
        except InvalidRequest as error:
            raise InvalidOption(f"{here} name", error.value, error.allowed) from None
        after = _list(here, stage, "after")
        for name in after:
            if name not in [before.name for before in stages]:
                raise InvalidOption(f"{here} after", name, "names of stages that stand before this one")
        stages.append(WorkloadStage(stage["name"], tuple(after), len(own_s)))
        durations_s.extend(own_s)
        preferred.extend(nodes or ((),) * len(own_s))
    if len(durations_s) > TASKS_MAX:
        raise InvalidOption(f"{where} stages", f"{len(durations_s)} tasks", f"at most {TASKS_MAX} tasks")
    names = [stage.name for stage in stages]
    for name in names:
        if names.count(name) > 1:
            raise InvalidOption(f"{where} stages", name, "a name that no other stage of the job has")
    return tuple(stages), durations_s, tuple(preferred) if any(preferred) else ()


def _tasks(where: str, row: dict[str, Any]) -> tuple[array[float], tuple[tuple[int, ...], ...]]:
    """Durations and preferred nodes of the tasks of a job or stage."""
    durations = _list(where, row, "durations_s")
    if not 1 <= len(durations) <= TASKS_MAX:
        raise InvalidOption(f"{where} durations_s", f"{len(durations)} tasks", f"1 to {TASKS_MAX} tasks")
    preferred = _list(where, row, "preferred")
    if preferred and len(preferred) != len(durations):
        raise InvalidOption(f"{where} preferred", f"{len(preferred)} lists", "a list of nodes for each task, or none")
    for nodes in preferred:
        if not isinstance(nodes, list) or not all(type(node) is int and node >= 0 for node in nodes):
            raise InvalidOption(f"{where} preferred", nodes, "a list of nodes' numbers from 0")
    return array("d", [_duration(where, value) for value in durations]), tuple(tuple(nodes) for nodes in preferred)


def _check_keys(where: str, row: Any, keys: tuple[str, ...]) -> None:
    if not isinstance(row, dict):
        raise InvalidOption(where, row, "a JSON object")
    unknown = sorted(set(row) - set(keys))
    if unknown:
        raise InvalidOption(where, unknown[0], f"the keys {', '.join(keys)}")


def _excerpt(text: str, position: int) -> str:
    """The text around an error, for its message."""
    return text[position : position + 20] or "the end of the line"


def _list(where: str, row: dict[str, Any], name: str) -> list[Any]:
    value = row.get(name, [])
    if not isinstance(value, list):
        raise InvalidOption(f"{where} {name}", value, "a list")
    return value


def _arrival(where: str, value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= DURATION_S_MAX:
        raise InvalidOption(f"{where} arrival", value, "seconds from 0")
    return float(value)


def _duration(where: str, value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= DURATION_S_MAX:
        raise InvalidOption(f"{where} duration", value, f"seconds from 0 to {DURATION_S_MAX:g}")
    return float(value)
