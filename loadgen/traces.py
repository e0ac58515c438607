"""Workloads from files: one job a line, in order of arrival.

Two formats, told apart line by line. JSON, our own: an object with `arrival_s`, `durations_s` (a list of seconds, one
for each task), and if wanted `user`, `where` (a list of constraints) and `preferred` (a list of lists of node numbers).
Numbers, as the traces of Hawk, Eagle and Pigeon have them, parted by spaces: arrival, number of tasks, mean duration,
and the durations, all times in seconds. Empty lines and what follows a # are skipped.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from loadgen.jobs import WorkloadJob
from sparrow_py.errors import InvalidOption

DURATION_S_MAX = 1e9
TASKS_MAX = 1_000_000
DEFAULT_USER = "user0"
KEYS = ("arrival_s", "durations_s", "user", "where", "preferred")


@dataclass(frozen=True)
class Trace:
    """A workload read from a file.

    path: where it was. lines: the jobs. stretch: arrivals are this many times as far apart.
    """

    path: str
    lines: tuple[WorkloadJob, ...]
    stretch: float = 1.0

    @property
    def jobs(self) -> int:
        """How many there are."""
        return len(self.lines)

    @property
    def users(self) -> tuple[str, ...]:
        """Who submits them."""
        return tuple(sorted({job.user for job in self.lines}))

    def load(self, nodes: int, slots: int) -> float:
        """Work that arrives, over what the slots can do while it arrives; infinite if all arrives at once."""
        span_s = (self.lines[-1].arrival_s - self.lines[0].arrival_s) * self.stretch
        work_s = sum(sum(job.durations_s) for job in self.lines)
        return work_s / (span_s * nodes * slots) if span_s else math.inf

    def at_load(self, load: float, nodes: int, slots: int) -> Trace:
        """The same jobs, their arrivals stretched so that they bring this load."""
        now = self.load(nodes, slots)
        if now == math.inf:
            raise InvalidOption("trace", self.path, "jobs that arrive at different times, to be stretched to a load")
        return Trace(self.path, self.lines, self.stretch * now / load)

    def generate(self, seed: int, nodes: int, slots: int) -> Iterator[WorkloadJob]:
        """The jobs in order of arrival; the seed changes nothing."""
        first_s = self.lines[0].arrival_s
        for job in self.lines:
            for node in (node for preferred in job.preferred for node in preferred):
                if node >= nodes:
                    raise InvalidOption("preferred", node, f"a node's number from 0 to {nodes - 1}")
            at_s = (job.arrival_s - first_s) * self.stretch
            yield WorkloadJob(job.number, at_s, job.user, job.durations_s, job.where, job.preferred, job.mean_s)


def read_trace(path: str) -> Trace:
    """The trace in a file; `InvalidOption` names the line that is none."""
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
            _of_json(where, len(jobs), content)
            if content.lstrip().startswith("{")
            else _of_numbers(where, len(jobs), content)
        )
        if jobs and job.arrival_s < jobs[-1].arrival_s:
            raise InvalidOption(where, job.arrival_s, f"an arrival not before the previous one's, {jobs[-1].arrival_s}")
        jobs.append(job)
    if not jobs:
        raise InvalidOption("trace", path, "at least one job")
    return jobs


def _of_numbers(where: str, number: int, text: str) -> WorkloadJob:
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


def _of_json(where: str, number: int, text: str) -> WorkloadJob:
    try:
        row = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise InvalidOption(where, text, f"a JSON object ({error})") from None
    unknown = sorted(set(row) - set(KEYS))
    if unknown:
        raise InvalidOption(where, unknown[0], f"the keys {', '.join(KEYS)}")
    durations = _list(where, row, "durations_s")
    if not 1 <= len(durations) <= TASKS_MAX:
        raise InvalidOption(f"{where} durations_s", f"{len(durations)} tasks", f"1 to {TASKS_MAX} tasks")
    constraints = _list(where, row, "where")
    user = row.get("user", DEFAULT_USER)
    for name, value in (("user", user), *(("where", constraint) for constraint in constraints)):
        if not isinstance(value, str) or not value:
            raise InvalidOption(f"{where} {name}", value, "text")
    preferred = _list(where, row, "preferred")
    if preferred and len(preferred) != len(durations):
        raise InvalidOption(f"{where} preferred", f"{len(preferred)} lists", "a list of nodes for each task, or none")
    for nodes in preferred:
        if not isinstance(nodes, list) or not all(isinstance(node, int) and node >= 0 for node in nodes):
            raise InvalidOption(f"{where} preferred", nodes, "a list of nodes' numbers from 0")
    return WorkloadJob(
        number,
        _arrival(where, row.get("arrival_s")),
        user,
        array("d", [_duration(where, value) for value in durations]),
        tuple(constraints),
        tuple(tuple(nodes) for nodes in preferred),
    )


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
