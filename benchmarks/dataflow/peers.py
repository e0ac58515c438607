"""Iterations of a loop over partitions, here and in other systems, on two workers of this machine.

- `8 × 3 no-ops`: eight partitions, three stages of no-ops on each, until all is done and whoever decides on the next
  iteration knows of it.
- `allreduce`: 20 doubles of each worker are summed, and both have the sum.
- `signal, busy`: both work for 50 µs, then one tells the other whether to go on; what an iteration takes beyond that.
  Of this project's also at each of both alone: at the one that takes longer, which decides and sends, and at the other.
- `round trip`: a call of nothing on another process.
- `idle`: nothing is to be done for a while; share of a core.

Turns of all systems are interleaved. CPU time is that of all processes of a system, and of the thread that asks it;
threads that systems have beside that one in this process cannot be told apart, and do not count. A system that is not
installed, or refuses, is left out, and the report says why.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from statistics import median
from typing import ClassVar

import psutil

from benchmarks.flow.outcome import Row
from benchmarks.report import cpu_s, progress
from sparrow_py.distribution import install_command

WORKERS, PARTITIONS, STAGES = 2, 8, 3
DOUBLES = 20
BUSY_US = 50
IDLE_S = 1.0
NO_OPS, ALLREDUCE, SIGNAL, ROUND_TRIP, IDLE = (
    f"{PARTITIONS} × {STAGES} no-ops", "allreduce", "signal, busy", "round trip", "idle",
)  # fmt: skip
SLOWER, QUICKER = f"{SIGNAL}: the slower", f"{SIGNAL}: the quicker"
STUDY_US = {(NO_OPS, "ray"): 1_370.0, (ALLREDUCE, "mpi4py"): 6.6}
"""What a study measured on such a machine."""
AIM_US = {NO_OPS: 300.0, SIGNAL: 10.0}
"""What was aimed at for us."""
IDLE_AIM_PERCENT = 1.0


@dataclass(frozen=True)
class Turn:
    """So many iterations of one system. CPU time is None if the system has none of its own to tell."""

    iterations: int
    each_us: Sequence[float]
    """Wall times of single iterations, or one mean."""
    cpu_us: float | None
    """Of an iteration."""


Measure = Callable[[int], Turn]
"""By the number of iterations."""


class Peer(ABC):
    """A system; entered, it has its processes."""

    name: str
    packages: Sequence[str] = ()

    def missing(self) -> str:
        """What is not installed, with what to do about it; empty if it can run."""
        absent = [package for package in self.packages if not _installed(package)]
        return f"{', '.join(absent)} not installed: {install_command('peers')}" if absent else ""

    @abstractmethod
    def started(self, below: Below) -> AbstractContextManager[Mapping[str, Measure]]:
        """What it can do, while it runs."""


def _installed(package: str) -> bool:
    try:
        version(package)
    except PackageNotFoundError:
        return False
    return True


class Below:
    """CPU time of the calling thread, and of what one system started below this process.

    Systems start and take turns one after the other, so direct children that appear meanwhile are the system's, with
    all below them.
    """

    _claimed: ClassVar[set[int]] = set()
    """Direct children that are somebody's already."""

    def __init__(self) -> None:
        self._mine: dict[int, psutil.Process] = {}
        self._looked_s = 0.0
        """CPU time that looking has taken, which is nobody's."""
        Below._claimed |= {child.pid for child in psutil.Process().children()}

    def cpu_us(self) -> float:
        began_s = time.thread_time()
        self.claim()
        spent_s = cpu_s(self._mine, children=True) + began_s - self._looked_s
        self._looked_s += time.thread_time() - began_s
        return 1e6 * spent_s

    def claim(self) -> None:
        """Direct children that have come are this system's; those that have ended are not looked at."""
        children = {child.pid: child for child in psutil.Process().children()}
        self._mine |= {pid: child for pid, child in children.items() if pid not in Below._claimed}
        Below._claimed |= children.keys()
        self._mine = {pid: child for pid, child in self._mine.items() if child.is_running()}

    def turn(self, iterations: int, iterate: Callable[[], object]) -> Turn:
        """Each iteration with its wall time."""
        before, each = self.cpu_us(), []
        for _ in range(iterations):
            then = time.perf_counter()
            iterate()
            each.append((time.perf_counter() - then) * 1e6)
        return Turn(iterations, each, (self.cpu_us() - before) / iterations)

    def idle(self, _: int) -> Turn:
        """Share of a core in percent, in place of microseconds of CPU time."""
        before, then = self.cpu_us(), time.perf_counter()
        time.sleep(IDLE_S)
        spent_us, lasted_us = self.cpu_us() - before, (time.perf_counter() - then) * 1e6
        return Turn(1, [lasted_us], 100 * spent_us / lasted_us)


def rows(repeat: int = 10, iterations: int = 200, only: Sequence[str] = (), peers: Sequence[Peer] = ()) -> list[Row]:
    """A row for each system and what it can do; medians of interleaved turns. `only` names systems."""
    turns: dict[tuple[str, str], list[Turn]] = {}
    left_out: dict[str, str] = {}
    with ExitStack() as stack:
        plans: dict[str, Mapping[str, Measure]] = {}
        for peer in [peer for peer in peers if not only or peer.name in only]:
            why = peer.missing()
            if not why:
                try:
                    below = Below()
                    plans[peer.name] = stack.enter_context(peer.started(below))
                    below.claim()
                except Exception as error:
                    why = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
            if why:
                left_out[peer.name] = why
                progress(f"{peer.name} is left out: {why}")
        for turn in range(repeat + 1):
            for name, plan in plans.items():
                for what, measure in plan.items():
                    done = measure(iterations)
                    if turn:  # The first one warms.
                        turns.setdefault((what, name), []).append(done)
    return [*_compared(turns), *({"what": "left out", "who": name, "why": why} for name, why in left_out.items())]


def _compared(turns: Mapping[tuple[str, str], Sequence[Turn]]) -> list[Row]:
    ours = {what: _wall_us(each) for (what, name), each in turns.items() if name == "sparrow local"}
    made: list[Row] = []
    for what in (NO_OPS, ALLREDUCE, SIGNAL, SLOWER, QUICKER, ROUND_TRIP, IDLE):
        for (does, name), each in turns.items():
            if does != what:
                continue
            wall_us = _wall_us(each)
            cpu = [turn.cpu_us for turn in each if turn.cpu_us is not None]
            is_idle = what == IDLE
            made.append(
                {
                    "what": what,
                    "who": name,
                    "wall_us": None if is_idle else round(wall_us, 1),
                    "least_us": None if is_idle else round(min(min(turn.each_us) for turn in each), 1),
                    "cpu_us": None if is_idle or not cpu else round(sum(cpu) / len(cpu), 1),
                    "idle_%": round(median(cpu), 2) if is_idle and cpu else None,
                    "to_ours": round(wall_us / ours[what], 2) if what in ours and not is_idle else None,
                    "study_us": STUDY_US.get((what, name)),
                    "aim_us": AIM_US.get(what) if name == "sparrow local" else None,
                }
            )
    return made


def _wall_us(turns: Sequence[Turn]) -> float:
    return median(one for turn in turns for one in turn.each_us)
