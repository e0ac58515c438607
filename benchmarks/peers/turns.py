"""Who runs when: all libraries with the same number of slots are up at once, and take turns at each case."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.faults_peers.processes import Processes
from benchmarks.peers.cases import QUICK, Case, Size
from benchmarks.peers.lives import rotated
from benchmarks.peers.outcome import CaseResult, PeerResult, rounded
from benchmarks.peers.peer import Library
from benchmarks.peers.tasks import same
from benchmarks.peers.user_process import Failed, UserProcess
from benchmarks.report import progress

ROUND_TRIPS = 200
IDLE_S = 1.0


@dataclass
class Shape:
    """Libraries with the same number of slots, and their users' programs: started when first needed, and again after a
    failure."""

    slots: int
    processes: Processes
    libraries: Mapping[str, Library]
    users: dict[str, UserProcess] = field(default_factory=dict)

    def user(self, name: str) -> UserProcess:
        """`Failed` if it cannot be started."""
        if name not in self.users:
            self.users[name] = UserProcess(self.processes, self.libraries[name], self.slots)
        return self.users[name]

    def drop(self, name: str) -> None:
        """End it: what comes next starts afresh."""
        user = self.users.pop(name, None)
        if user is not None:
            user.end()

    def idle_cores(self) -> float:
        """Cores that all take while nothing runs."""
        before_s, began_s = self._cpu_s(), time.monotonic()
        time.sleep(IDLE_S)
        return (self._cpu_s() - before_s) / (time.monotonic() - began_s)

    def _cpu_s(self) -> float:
        return sum(user.cpu_s() for user in self.users.values())


def in_turns(
    cases: Sequence[Case], libraries: Mapping[str, Library], size: Size, turns: int, until_s: float
) -> Iterator[tuple[str, CaseResult]]:
    """Each case with its result, by number of slots. until_s: of the monotonic clock, when no more is begun."""
    for slots in sorted({case.slots for case in cases}):
        with (
            tempfile.TemporaryDirectory(prefix="pe-", ignore_cleanup_errors=True) as directory,
            Processes(Path(directory), {}) as processes,
        ):
            shape = Shape(slots or os.cpu_count() or 1, processes, libraries)
            for case in sorted((case for case in cases if case.slots == slots), key=lambda case: case.harms):
                if time.monotonic() > until_s:
                    progress(f"{case.name} is left out: there is no time for it")
                    continue
                yield case.name, run_case(shape, case, size, turns)
            for name in list(shape.users):
                shape.drop(name)


def run_case(shape: Shape, case: Case, size: Size, turns: int) -> CaseResult:
    """All libraries, with a small run to get warm, and then in turns."""
    began_s, trip_ms = time.monotonic(), round_trip_ms()
    results = {name: PeerResult(why=_no_part(library, case)) for name, library in shape.libraries.items()}
    for name, result in results.items():
        if not result.why:
            _started(shape, name, result)
            if not case.once:
                _run(shape, name, case, QUICK, result, keep=False)
    idle_cores = shape.idle_cores()
    for turn in range(1 if case.once else turns):
        progress(f"{case.name}: turn {turn + 1}")
        for name in rotated(list(results), turn):
            if not results[name].why:
                _run(shape, name, case, size, results[name], keep=True)
    for result in results.values():
        result.values, result.cpu_ms, result.p95 = map(rounded, (result.values, result.cpu_ms, result.p95))
    took_s = round(time.monotonic() - began_s, 1)
    return CaseResult(case.title, case.unit, took_s, round(trip_ms, 4), results, round(idle_cores, 2))


def _no_part(library: Library, case: Case) -> str:
    """Why this library has no part in the case; empty if it has."""
    if case.futures and not library.futures_as_arguments:
        return "its calls take no futures as arguments"
    return library.lacks.get(case.name, "")


def _started(shape: Shape, name: str, result: PeerResult) -> None:
    try:
        shape.user(name)
    except Failed as error:
        progress(f"{name}: {error}")
        result.why = str(error)


def _run(shape: Shape, name: str, case: Case, size: Size, result: PeerResult, *, keep: bool) -> None:
    """One run; what goes wrong is the result's `why`, and the user's program starts anew for the next case."""
    if result.why:
        return
    try:
        user = shape.user(name)
        before_s = user.cpu_s()
        ran = user.run(case, size)
        cpu_s = user.cpu_s() - before_s
        if ran.answer != case.answer(size):
            raise Failed(f"wrong answer {ran.answer!r}")
        value = case.look(user.process.pid) if case.look else ran.value
    except Failed as error:
        progress(f"{case.name}, {name}: {error}")
        result.why = str(error)
        shape.drop(name)
        return
    if case.harms or ran.work_left:
        shape.drop(name)
    if keep:
        result.values += [] if value is None else [value]
        result.cpu_ms += [1000 * cpu_s / tasks] if (tasks := case.tasks(size)) else []
        result.p95 += [] if ran.p95 is None else [ran.p95]
        result.why, result.note = (ran.note, "") if value is None else ("", ran.note or result.note)


def round_trip_ms() -> float:
    """Of a call to a process pool: how fast the machine is now."""
    with ProcessPoolExecutor(1) as pool:
        pool.submit(same, 0).result()
        began_s = time.perf_counter()
        for number in range(ROUND_TRIPS):
            pool.submit(same, number).result()
        return 1000 * (time.perf_counter() - began_s) / ROUND_TRIPS
