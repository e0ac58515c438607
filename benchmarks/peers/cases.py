"""What is measured. Each value is better when it is smaller, and each run's answer is checked."""

from __future__ import annotations

import contextlib
import os
import signal
import statistics
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import numpy as np
import psutil

from benchmarks.faults_peers.processes import with_all_below
from benchmarks.graphs.systems import System
from benchmarks.graphs.work import ARRAY_WORKERS, ArrayToWorkers, random_graph, random_inputs
from benchmarks.peers.peer import Library
from benchmarks.peers.tasks import nap, nap_10_ms, nap_100_ms, process_after, same
from benchmarks.shortest_task.client import replay
from benchmarks.shortest_task.load import TASKS, Load, measured

SLEEP_SLOTS = 40
OPEN_LOOP_MS = 100.0
LOADS = (0.25, 0.6, 0.8, 0.9)
WORKER, START, COMMANDS, SCHEDULER = "worker", "start", "commands", "scheduler"
"""Cases named elsewhere, too. The last three are measured from outside (`lives.py`, `broken_scheduler.py`)."""
KILL_TASKS, KILL_TASK_S, KILL_AFTER_S = 40, 0.1, 0.15
"""The job in which a worker is killed: on `ARRAY_WORKERS` slots it takes 0.5 s when nothing happens."""
MEMORY_CALLS = 100


@dataclass(frozen=True)
class Size:
    """How much is done: calls one after the other, calls at once, jobs of `TASKS` naps, seconds of an open loop, tasks
    of the graph, bytes of the array, commands."""

    calls: int
    at_once: int
    jobs: int
    open_loop_s: float
    graph_tasks: int
    array_bytes: int
    commands: int


FULL = Size(300, 2_000, 15, 3.0, 10_000, 100_000_000, 1_000)
QUICK = Size(30, 300, 3, 1.0, 300, 8_000_000, 100)


@dataclass(frozen=True)
class Ran:
    """One run. value: in the case's unit; None if the work was not done, and then the note says why. work_left: the
    next run would have to wait for it."""

    value: float | None
    answer: Any
    p95: float | None = None
    note: str = ""
    work_left: bool = False


@dataclass(frozen=True)
class Case:
    """One column of the table.

    slots: of the cluster; 0 for as many as there are cores. run: in the user's process. answer: what must come out.
    tasks: among which CPU time is divided; 0 if CPU time says nothing. look: has its value from a look at the user's
    processes after the run, by the user's process id. once: it takes long, so that one run is measured, without one
    before it. harms: the system may be broken afterwards.
    """

    name: str
    title: str
    unit: str
    run: Callable[[Library, Size], Ran]
    answer: Callable[[Size], Any]
    tasks: Callable[[Size], int]
    slots: int = 0
    futures: bool = False
    look: Callable[[int], float] | None = field(default=None, repr=False)
    once: bool = False
    limit_s: float = 60.0
    harms: bool = False


def _sequential(library: Library, size: Size) -> Ran:
    took_ms, total = [], 0
    for number in range(size.calls):
        began_s = time.perf_counter()
        total += library.result(library.submit(same, number))
        took_ms.append(1000 * (time.perf_counter() - began_s))
    return Ran(statistics.median(took_ms), total, float(np.percentile(took_ms, 95)))


def _at_once(library: Library, size: Size) -> Ran:
    began_s = time.perf_counter()
    total = sum(library.map(same, range(size.at_once)))
    return Ran(1000 * (time.perf_counter() - began_s) / size.at_once, total)


def _jobs(task: Callable[[int], int], library: Library, size: Size) -> Ran:
    took_ms, total = [], 0
    for _ in range(size.jobs):
        began_s = time.perf_counter()
        total += sum(library.map(task, range(TASKS)))
        took_ms.append(1000 * (time.perf_counter() - began_s))
    return Ran(statistics.median(took_ms), total, float(np.percentile(took_ms, 95)))


def _open_loop(load: float, library: Library, size: Size) -> Ran:
    plan = Load(1, SLEEP_SLOTS, load, OPEN_LOOP_MS, size.open_loop_s)
    found = measured(plan, replay(library.job, plan, pass_time=library.pass_time))
    note = f"{found.unended} of {found.jobs} jobs did not end in time" if found.unended else ""
    return Ran(found.over_ideal, None, found.p95_over_ideal, note, work_left=found.unended > 0)


def _graph(library: Library, size: Size) -> Ran:
    work = random_graph(_inputs(size.graph_tasks))
    began_s = time.perf_counter()
    total = work.run(_as_system(library))
    return Ran(1000 * (time.perf_counter() - began_s) / size.graph_tasks, total)


def _array_to_workers(library: Library, size: Size) -> Ran:
    array = _array(size.array_bytes)
    array.fewest_workers.clear()
    began_s = time.perf_counter()
    total = array.run(_as_system(library))
    took_ms = 1000 * (time.perf_counter() - began_s)
    workers = array.fewest_workers[library.name]
    return Ran(took_ms, total, note="" if workers == ARRAY_WORKERS else f"only {workers} workers got it")


def _memory(library: Library, size: Size) -> Ran:
    return Ran(None, sum(library.map(same, range(MEMORY_CALLS))))


def _worker_killed(library: Library, size: Size) -> Ran:
    victim = library.gather([library.submit(process_after, KILL_TASK_S) for _ in range(ARRAY_WORKERS)])[0]
    futures = [library.submit(nap, KILL_TASK_S, number) for number in range(KILL_TASKS)]
    library.pass_time(KILL_AFTER_S)
    with contextlib.suppress(ProcessLookupError):
        os.kill(victim, signal.SIGKILL)
    began_s, right, errors = time.perf_counter(), 0, Counter[str]()
    for number, future in enumerate(futures):
        try:
            right += library.result(future) == number
        except Exception as error:
            errors[type(error).__name__] += 1
    took_s = time.perf_counter() - began_s
    if right == KILL_TASKS:
        return Ran(took_s, None)
    kinds = ", ".join(f"{count} × {kind}" for kind, count in errors.most_common(2))
    return Ran(None, None, note=f"{right} of {KILL_TASKS} results, {kinds} ({took_s:.1f} s)")


def pss_mb(pid: int) -> float:
    """Memory of the process and all below it, of which what several share is counted once (10^6 bytes)."""
    total = 0
    for process in with_all_below(psutil.Process(pid)):
        with contextlib.suppress(psutil.Error):
            total += process.memory_full_info().pss
    return total / 1e6


@cache
def _inputs(tasks: int) -> list[tuple[int, ...]]:
    return random_inputs(tasks)


@cache
def _array(array_bytes: int) -> ArrayToWorkers:
    return ArrayToWorkers(array_bytes)


def _as_system(library: Library) -> System:
    return System(library.name, library.submit, library.gather, library.put)


def _graph_answer(size: Size) -> int:
    at_once = System("", lambda function, *arguments: function(*arguments), list, lambda value: value)
    return int(random_graph(_inputs(size.graph_tasks)).run(at_once))


def _open_case(load: float) -> Case:
    plan = partial(Load, 1, SLEEP_SLOTS, load, OPEN_LOOP_MS)
    return Case(
        f"load-{100 * load:.0f}", f"open loop, {100 * load:.0f} %", "× ideal", partial(_open_loop, load),
        lambda size: None, lambda size: TASKS * plan(size.open_loop_s).jobs, slots=SLEEP_SLOTS, once=True,
    )  # fmt: skip


def _jobs_case(ms: int, task: Callable[[int], int]) -> Case:
    return Case(
        f"jobs-{ms}", f"{TASKS} × {ms} ms", "ms", partial(_jobs, task),
        lambda size: size.jobs * sum(range(TASKS)), lambda size: size.jobs * TASKS, slots=SLEEP_SLOTS,
    )  # fmt: skip


IN_USER = (
    Case("sequential", "no-op, one by one", "ms", _sequential, lambda size: sum(range(size.calls)),
         lambda size: size.calls),
    Case("at-once", "no-ops at once", "ms a task", _at_once, lambda size: sum(range(size.at_once)),
         lambda size: size.at_once),
    Case("graph", "random graph", "ms a task", _graph, _graph_answer, lambda size: size.graph_tasks, futures=True,
         once=True),
    Case("memory", "memory", "MB", _memory, lambda size: sum(range(MEMORY_CALLS)), lambda size: 0, look=pss_mb,
         once=True),
    Case("array", f"array to {ARRAY_WORKERS}", "ms", _array_to_workers,
         lambda size: int(_array(size.array_bytes).array.sum()), lambda size: 1, slots=ARRAY_WORKERS, once=True,
         limit_s=30.0),
    _jobs_case(10, nap_10_ms),
    _jobs_case(100, nap_100_ms),
    *map(_open_case, LOADS),
    Case(WORKER, "worker killed", "s", _worker_killed, lambda size: None, lambda size: 0, slots=ARRAY_WORKERS,
         once=True, limit_s=25.0, harms=True),
)  # fmt: skip
"""Cases that a user's process runs, in the order of the table."""
NAMES = (*(case.name for case in IN_USER), START, COMMANDS, SCHEDULER)
