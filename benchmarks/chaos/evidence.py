"""What is known of a round when it is over: what tasks wrote down, what programs were told, what was done to whom."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from benchmarks.chaos import told, work
from benchmarks.chaos.client import named
from benchmarks.chaos.plan import Job, Kind, Plan
from benchmarks.chaos.told import Event, Told


@dataclass(frozen=True)
class Run:
    """A start of a task, by its own account. end_ns: None if it was killed. host: an incarnation of a node monitor."""

    job: str
    task: int
    pid: int
    start_ns: int
    end_ns: int | None
    host: str

    @property
    def node(self) -> str:
        """The node's name."""
        return self.host.partition("+")[0]


@dataclass(frozen=True)
class Happened:
    """A fault, or its mending."""

    at_ns: int
    kind: Kind
    target: str
    mended: bool = False
    detail: str = ""


@dataclass(frozen=True)
class Program:
    """One life of a user's program."""

    user: str
    life: int
    lines: tuple[Told, ...]

    @property
    def over(self) -> bool:
        """Whether it came to its end."""
        return any(line.event is Event.OVER for line in self.lines)


@dataclass
class Evidence:
    """Of a round. troubles: what the player has noticed: what is left, does not end, ends with an error."""

    plan: Plan
    programs: list[Program]
    runs: list[Run]
    happened: list[Happened]
    troubles: list[str] = field(default_factory=list)

    @cached_property
    def jobs(self) -> dict[str, Job]:
        """By name, those of further lives included."""
        lives = {program.life for program in self.programs} | {0}
        return {named(job, life): job for job in self.plan.jobs for life in lives}

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

    def faults(self, *kinds: Kind) -> list[Happened]:
        """Of these kinds, or all but clocks."""
        return [one for one in self.happened if not one.mended and (one.kind in kinds or not kinds)]


def read_runs(directory: Path) -> list[Run]:
    """What tasks wrote down."""
    starts: dict[tuple[str, str], tuple[int, int, int, str]] = {}
    ends: dict[tuple[str, str], int] = {}
    for job in directory.iterdir():
        for path in job.iterdir():
            begun, _, end_ns = path.name.partition(f".{work.END}.")
            task, pid, start_ns, host = begun.split(".")
            starts[job.name, begun] = int(task), int(pid), int(start_ns), host
            if end_ns:
                ends[job.name, begun] = int(end_ns)
    return [
        Run(job, task, pid, start_ns, ends.get((job, begun)), host)
        for (job, begun), (task, pid, start_ns, host) in starts.items()
    ]


def read_programs(directory: Path) -> list[Program]:
    """What programs wrote down."""
    found = []
    for path in sorted(directory.iterdir()):
        user, _, life = path.name.rpartition(".")
        found.append(Program(user, int(life), tuple(told.read(path))))
    return found


def happened(kind: Kind, target: str, *, mended: bool = False, detail: str = "") -> Happened:
    """Now."""
    return Happened(time.monotonic_ns(), kind, target, mended, detail)
