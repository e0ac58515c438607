"""What is known when it is over: what tasks wrote down, what programs were told, what was done to whom."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from benchmarks.laboratory import told, work
from benchmarks.laboratory.faults import Happened
from benchmarks.laboratory.jobs import Job
from benchmarks.laboratory.told import Event, Told


@dataclass(frozen=True)
class Run:
    """A start of a task, by its own account. end_ns: None if it was killed. host: an incarnation of a node monitor.
    waited_ns: from when until when it waited for tasks of its own, if it did and came to the end of that."""

    job: str
    task: int
    pid: int
    start_ns: int
    end_ns: int | None
    host: str
    waited_ns: tuple[int, int] | None = None

    @property
    def node(self) -> str:
        """The node's name."""
        return self.host.partition("+")[0]


@dataclass(frozen=True)
class Program:
    """One life of a user's program."""

    name: str
    life: int
    lines: tuple[Told, ...]

    @property
    def over(self) -> bool:
        """Whether it came to its end."""
        return any(line.event is Event.OVER for line in self.lines)


@dataclass
class Evidence:
    """Of what was done to a cluster, and came of it. slots, zones: of each node. jobs: by name. troubles: what the
    experiment has noticed: what is left, does not end, ends with an error."""

    slots: dict[str, int]
    jobs: dict[str, Job]
    programs: list[Program]
    runs: list[Run]
    happened: list[Happened]
    troubles: list[str] = field(default_factory=list)
    zones: dict[str, str] = field(default_factory=dict)

    @cached_property
    def program_of(self) -> dict[str, str]:
        """The program that submitted a job."""
        return {line.job: one.name for one in self.programs for line in one.lines if line.event is Event.SUBMITTED}

    @cached_property
    def runs_of(self) -> dict[tuple[str, int], list[Run]]:
        """By task, in the order of their starts."""
        found: dict[tuple[str, int], list[Run]] = defaultdict(list)
        for run in sorted(self.runs, key=lambda run: run.start_ns):
            found[run.job, run.task].append(run)
        return found

    def told(self, *events: Event) -> Iterable[Told]:
        """The lines of all programs with these events."""
        return (line for program in self.programs for line in program.lines if line.event in events)


def read_runs(directory: Path) -> list[Run]:
    """What tasks of all jobs wrote down."""
    return [run for job in directory.iterdir() for run in read_runs_of(job)]


def read_runs_of(job: Path) -> list[Run]:
    """What tasks of a job wrote down in its directory."""
    names = sorted(path.name.split(".") for path in job.iterdir())
    marks = {(*begun, mark): int(ns) for *begun, mark, ns in names if mark in work.MARKS}
    runs = []
    for begun in [name for name in names if name[-2] not in work.MARKS]:
        task, pid, start_ns, host = begun
        end_ns, waits_ns, goes_ns = (marks.get((*begun, mark)) for mark in work.MARKS)
        waited_ns = None if waits_ns is None or goes_ns is None else (waits_ns, goes_ns)
        runs.append(Run(job.name, int(task), int(pid), int(start_ns), end_ns, host, waited_ns))
    return runs


def read_programs(directory: Path) -> list[Program]:
    """What programs wrote down."""
    found = []
    for path in sorted(directory.iterdir()):
        name, _, life = path.name.rpartition(".")
        found.append(Program(name, int(life), tuple(told.read(path))))
    return found


def read(directory: Path, slots: dict[str, int], happened: list[Happened], troubles: list[str]) -> Evidence:
    """All that was written down."""
    programs = read_programs(directory / "told")
    jobs = {line.job: line.spec for one in programs for line in one.lines if line.spec is not None}
    return Evidence(slots, jobs, programs, read_runs(directory / "runs"), happened, troubles)
