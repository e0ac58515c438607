"""The critical path of a call, from what the processes noted: pure."""

from __future__ import annotations

import bisect
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

BEGINS = "submits"
ENDS = "has the result"
SAYS, HEARS = "says ", "hears "


@dataclass(frozen=True)
class Event:
    """A process did something."""

    when_ns: int
    cpu_ns: int
    """Of its thread."""
    role: str
    process: int
    label: str

    @property
    def step(self) -> str:
        """As a path names it."""
        return f"{self.role} {self.label}"

    @property
    def messages(self) -> frozenset[str]:
        """The messages that were said or heard."""
        verb, _, names = self.label.partition(" ")
        return frozenset(names.split(",")) if f"{verb} " in (SAYS, HEARS) else frozenset()


@dataclass(frozen=True)
class Hop:
    """From one step of the path to the next, over all calls that took the path; median microseconds."""

    name: str
    wall_us: float
    cpu_us: float | None
    """None between processes, where no one thread's CPU time says it."""


def calls(events: Sequence[Event]) -> list[list[Event]]:
    """The events of each call, in order of time: those from its submission to its result."""
    ordered = sorted(events, key=lambda event: event.when_ns)
    begins = [event.when_ns for event in ordered if event.label == BEGINS]
    ends = [event.when_ns for event in ordered if event.label == ENDS]
    times = [event.when_ns for event in ordered]
    return [
        ordered[bisect.bisect_left(times, begin) : bisect.bisect_right(times, end)]
        for begin, end in zip(begins, ends, strict=False)
    ]


def critical_path(call: Sequence[Event]) -> list[Event]:
    """What the result waited for, from the submission on; empty if it cannot be traced back.

    A process acts upon what it heard last; what it heard was said by another process last before.
    """
    path = [call[-1]]
    at = len(call) - 1
    while at > 0:
        now = path[-1]
        at = next((i for i in range(at - 1, -1, -1) if _leads_to(call[i], now)), -1)
        if at < 0:
            return []
        path.append(call[at])
    return path[::-1]


def _leads_to(before: Event, now: Event) -> bool:
    if now.label.startswith(HEARS):
        return before.process != now.process and before.label.startswith(SAYS) and bool(before.messages & now.messages)
    return before.process == now.process and not (before.label.startswith(SAYS) and now.label.startswith(SAYS))


def hops(paths: Iterable[Sequence[Event]]) -> tuple[list[Hop], float]:
    """The hops of the path that most calls took, and the share of the calls that took it."""
    found = [list(path) for path in paths]
    steps = Counter(tuple(event.step for event in path) for path in found if path)
    if not steps:
        return [], 0.0
    usual, times = steps.most_common(1)[0]
    taken = [path for path in found if tuple(event.step for event in path) == usual]
    return [_hop(taken, i) for i in range(len(usual) - 1)], times / len(found)


def _hop(paths: Sequence[Sequence[Event]], i: int) -> Hop:
    """From step `i` to the next."""
    before, after = paths[0][i], paths[0][i + 1]
    pairs = [(path[i], path[i + 1]) for path in paths]
    wall_us = statistics.median((b.when_ns - a.when_ns) / 1000 for a, b in pairs)
    if before.process != after.process:
        return Hop(f"{before.role} → {after.role}", wall_us, None)
    # What was said in one go is a message for each note; who hears it has all of them.
    said = paths[0][i + 2].label.removeprefix(HEARS) if after.label.startswith(SAYS) else after.label
    # A negative difference: the steps are of two threads.
    cpu_us = [(b.cpu_ns - a.cpu_ns) / 1000 for a, b in pairs if 0 <= b.cpu_ns - a.cpu_ns <= b.when_ns - a.when_ns]
    cpu = statistics.median(cpu_us) if len(cpu_us) == len(pairs) else None
    return Hop(f"{before.role}: {before.label.removeprefix(HEARS)} → {said}", wall_us, cpu)
