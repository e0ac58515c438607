"""Runs ways to run a workflow in the processes that keep engines warm, as an executor does, and times them.

Wall time is that from the first script to the end of the last. CPU time is that of the engines' processes and, if a way
needs MapReduce, of all processes of the cluster that its jobs run on. A cold run starts the engines' processes anew;
the cluster is then there already.
"""

from __future__ import annotations

import math
import os
import random
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from benchmarks.report import cpu_s
from benchmarks.workflow.answers import check_same
from benchmarks.workflow.ways import Step, Way
from frontends.workflow.running.tasks import Failed, Script
from frontends.workflow.warm_engines.engine_processes import EngineProcess, Kind
from sparrow_py import LocalCluster
from sparrow_py.wire.addresses import SCHEDULERS_VARIABLE

LIMIT_S = 120.0
"""For which a way is waited at most."""
ON_CLUSTER = "mapreduce"
"""The engine whose scripts submit jobs to a cluster."""


@dataclass(frozen=True, slots=True)
class Ran:
    """A run. steps: wall and CPU seconds of each step."""

    wall_s: float
    cpu_s: float
    steps: tuple[tuple[float, float], ...] = ()


@dataclass
class Times:
    """The runs of one way."""

    runs: list[Ran] = field(default_factory=list)

    @property
    def wall_s(self) -> float:
        return statistics.median(one.wall_s for one in self.runs)

    @property
    def cpu_s(self) -> float:
        return statistics.median(one.cpu_s for one in self.runs)

    @property
    def middle_s(self) -> tuple[float, float]:
        """Least and greatest wall time without the quarter of the runs at either end: of five the middle three."""
        walls = sorted(one.wall_s for one in self.runs)
        cut = len(walls) // 4
        return walls[cut], walls[-1 - cut]


class WayFailedError(Exception):
    """A way that did not come to its end, or not in time."""


class Bench:
    """The processes; use it in a `with` block. threads: of each engine, by default all cores."""

    def __init__(self, threads: int | None = None) -> None:
        self.threads = threads or os.cpu_count() or 1
        self._processes: dict[str, EngineProcess] = {}
        self._cluster: LocalCluster | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Bench:
        self.directory = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="workflow-figures-")))
        self._stack.callback(self.forget)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def forget(self, engines: Sequence[str] | None = None) -> None:
        """End the processes of these engines, or of all."""
        for name in list(self._processes) if engines is None else engines:
            if (process := self._processes.pop(name, None)) is not None:
                process.close()

    def run(self, way: Way, *, cold: bool = False, limit_s: float = LIMIT_S) -> Ran:
        """Run it once; `WayFailedError` if that fails, or takes longer than the limit."""
        if ON_CLUSTER in way.engines:
            self.start_cluster()
        if cold:
            self.forget(way.engines)
        else:
            for name in way.engines:
                self._process(name)
        before_s, began_s = self._cluster_cpu_s(), time.perf_counter()
        steps: list[tuple[float, float]] = []
        for step in way.steps:
            step_s = time.perf_counter()
            used_s = self._step(way, step, limit_s - (step_s - began_s))
            steps.append((time.perf_counter() - step_s, used_s))
        wall_s = time.perf_counter() - began_s
        return Ran(wall_s, sum(used_s for _, used_s in steps) + self._cluster_cpu_s() - before_s, tuple(steps))

    def _step(self, way: Way, step: Step, limit_s: float) -> float:
        """CPU seconds; those of a process that is started for it are among them."""
        script = Script(
            step.engine,
            step.source,
            {name: str(path) for name, path in step.reads.items()},
            {name: str(path) for name, path in step.makes.items()},
            "",
            "",
            self.threads,
        )
        began_s = time.perf_counter()
        before_s = self._engine_cpu_s(step.engine)
        process = self._process(step.engine)
        timer = threading.Timer(max(0.01, limit_s), process.end)
        timer.start()
        try:
            answer = process.run(script)
        finally:
            timer.cancel()
        if isinstance(answer, Failed):
            took_s = time.perf_counter() - began_s
            self.forget([step.engine])
            late = f"took longer than {limit_s:.1f} s" if took_s >= limit_s else answer.reason
            raise WayFailedError(f"{way.name}, {step.engine}: {late}")
        return self._engine_cpu_s(step.engine) - before_s

    def _engine_cpu_s(self, engine: str) -> float:
        """Of its process so far, and of those below it; none before it is started."""
        process = self._processes.get(engine)
        if process is None:
            return 0.0
        try:
            return cpu_s([process.pid], children=True)
        except psutil.NoSuchProcess:  # One below it has just ended.
            return _tree_cpu_s(process.pid)

    def _process(self, engine: str) -> EngineProcess:
        process = self._processes.get(engine)
        if process is not None and not process.alive:  # Its last run ended just as it was stopped.
            self.forget([engine])
            process = None
        if process is None:
            process = EngineProcess(Kind("", engine, self.threads), has_schedulers=True)
            failure = process.await_warm()
            if failure is not None:
                process.close()
                raise WayFailedError(f"{engine}: {failure.reason}")
            self._processes[engine] = process
        return process

    # ---- the cluster -------------------------------------------------------------------------

    def start_cluster(self) -> None:
        """Start the cluster that MapReduce's jobs run on, unless it is there."""
        if self._cluster is None:
            self._cluster = self._stack.enter_context(LocalCluster(forward_output=False))
            before = os.environ.get(SCHEDULERS_VARIABLE)
            self._stack.callback(_set_variable, before)
            _set_variable(",".join(self._cluster.addresses))

    def _cluster_cpu_s(self) -> float:
        """Of its daemons and all below them, those that have ended included."""
        if self._cluster is None:
            return 0.0
        daemons = {one.pid for one in (*self._cluster.scheduler_processes, *self._cluster.node_processes)}
        return sum(_tree_cpu_s(pid) for pid in daemons)


def _set_variable(value: str | None) -> None:
    if value is None:
        os.environ.pop(SCHEDULERS_VARIABLE, None)
    else:
        os.environ[SCHEDULERS_VARIABLE] = value


def _tree_cpu_s(pid: int) -> float:
    """Of a process and all below it, with those that they have waited for; in steps of 10 ms."""
    process = psutil.Process(pid)
    spent_s = 0.0
    for one in (process, *process.children(recursive=True)):
        try:
            spent_s += sum(one.cpu_times()[:4])
        except psutil.NoSuchProcess:  # Its parent has the time, or will.
            continue
    return spent_s


# ---- several ways, in turn -------------------------------------------------------------------

LATE = 3.0
"""How many times as long as the fastest a way may take to be waited for."""
FIRST_S, SECOND_S = 10.0, 1.0
"""For which a first run, in which engines compile, and a second one are waited in any case."""
TRIES_MAX = 5
"""Of a way, while they take less than `SECOND_S`."""
SHORT_LIST = 1.5
"""How much longer than the fastest a way may take to be run again and again."""


def interleaved(
    bench: Bench, ways: Sequence[Way], repeat: int, say: Callable[[str], object] = lambda text: None
) -> dict[str, Times]:
    """Run all ways so often, in another order in each round; those that fail are left out.

    Before the first round each runs once, which does not count, and what it makes is held against what the first makes.
    """
    times: dict[str, Times] = {}
    checked = _Checked()
    for way in ways:
        try:
            bench.run(way)
        except WayFailedError as error:
            say(f"left out: {error}")
            continue
        checked.check(way)
        times[way.name] = Times()
    _in_turn(bench, [way for way in ways if way.name in times], repeat, times)
    return times


def shortlisted(
    bench: Bench, ways: Sequence[Way], repeat: int, say: Callable[[str], object] = lambda text: None,
    limit_s: float = LIMIT_S, among: Sequence[Callable[[Way], bool]] = (lambda way: True,),
) -> dict[str, Times]:  # fmt: skip
    """The times of `Tries` of these ways."""
    tries = Tries(bench, say, limit_s, among)
    tries.add(ways)
    return tries.finished(repeat)


class Tries:
    """Ways, each tried twice, or five times if that takes no second; those not much slower than the fastest
    (`SHORT_LIST`) then run again and again, in turn.

    Of slower ones the best try counts. Those that fail, or that are late by much, are left out. among: in which sets
    of ways there is a fastest; one of a way's sets is enough.
    """

    def __init__(
        self, bench: Bench, say: Callable[[str], object] = lambda text: None, limit_s: float = LIMIT_S,
        among: Sequence[Callable[[Way], bool]] = (lambda way: True,),
    ) -> None:  # fmt: skip
        self._bench, self._say, self._limit_s, self._among = bench, say, limit_s, among
        self._checked = _Checked()
        self._times: dict[str, Times] = {}
        self._usual: dict[str, Ran] = {}
        self.ways: list[Way] = []
        """All that were tried, those that failed included."""

    def add(self, ways: Iterable[Way]) -> None:
        """Try these ways, too."""
        for way in ways:
            self.ways.append(way)
            try:
                runs = [self._bench.run(way, limit_s=self._limit(way, FIRST_S))]
                self._checked.check(way)
            except WayFailedError as error:
                self._say(f"left out: {error}")
                continue
            with suppress(WayFailedError):  # Late again: then the runs before count.
                while len(runs) < 2 or (len(runs) < TRIES_MAX and sum(ran.wall_s for ran in runs) < SECOND_S):
                    runs.append(self._bench.run(way, limit_s=self._limit(way, SECOND_S)))
            self._times[way.name] = Times([min(runs, key=lambda ran: ran.wall_s)])
            self._usual[way.name] = sorted(runs[1:] or runs, key=lambda ran: ran.wall_s)[max(0, len(runs) - 2) // 2]

    def try_of(self, way: Way) -> Ran | None:
        """That in the middle of all tries but the first, in which engines compile; None if the way failed."""
        return self._usual.get(way.name)

    def finished(self, repeat: int) -> dict[str, Times]:
        """The times of all ways that did not fail, after so many runs of those that are nearly as fast as any."""
        tried = [way for way in self.ways if way.name in self._times]
        short = [way for way in tried if self._times[way.name].wall_s <= SHORT_LIST * self._best_s(way)]
        times = {**self._times, **{way.name: Times() for way in short}}
        _in_turn(self._bench, short, repeat, times)
        return times

    def _limit(self, way: Way, least_s: float) -> float:
        return min(self._limit_s, max(least_s, LATE * self._best_s(way)))

    def _best_s(self, way: Way) -> float:
        """Of the way's sets the one that is least quick."""
        sets = [{one.name for one in self.ways if has(one)} for has in self._among if has(way)]
        return max((_fastest_s(self._times, names) for names in sets), default=math.inf)


def _fastest_s(times: Mapping[str, Times], names: Collection[str]) -> float:
    return min((each.wall_s for name, each in times.items() if name in names), default=math.inf)


def _in_turn(bench: Bench, ways: Sequence[Way], repeat: int, times: Mapping[str, Times]) -> None:
    """In another order in each round: a way that always followed one of its own engine would find that warmer."""
    orders = random.Random(len(ways))
    for _ in range(repeat):
        for way in orders.sample(ways, len(ways)):
            times[way.name].runs.append(bench.run(way))


class _Checked:
    """Holds what ways make against what the first of them has made."""

    def __init__(self) -> None:
        self._first: Way | None = None

    def check(self, way: Way) -> None:
        if self._first is None:
            self._first = way
        else:
            check_same(way.name, way.results, self._first.name, self._first.results)
