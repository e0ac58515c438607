"""Whole lives: what programs take from nothing to the first result, and command lines for many commands."""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import psutil

from benchmarks.faults_peers.processes import Processes
from benchmarks.habits.gnu_parallel import lines
from benchmarks.habits.process_times import timed
from benchmarks.peers.cases import START
from benchmarks.peers.outcome import PeerResult
from benchmarks.peers.peer import Library, Tool
from benchmarks.report import progress
from sparrow_py.errors import SparrowError

LIFE_LIMIT_S = 60.0


def start_once(library: Library, slots: int) -> tuple[float, float]:
    """Seconds to the first result of a fresh interpreter, and CPU seconds of its whole life. `SparrowError` if none."""
    with tempfile.TemporaryDirectory(prefix="life-", ignore_cleanup_errors=True) as directory:
        first, before_s = Path(directory) / "first", _children_cpu_s()
        with Processes(Path(directory), {}) as processes:
            began_s = time.monotonic()
            life = processes.start("life", _life(library, slots, first))
            try:
                life.wait(LIFE_LIMIT_S)
            except psutil.TimeoutExpired:
                raise SparrowError(f"did not end within {LIFE_LIMIT_S:g} s") from None
            if not first.exists():
                raise SparrowError((processes.said("life").strip().splitlines() or ["no word"])[-1])
        return float(first.read_text()) - began_s, _children_cpu_s() - before_s


def starts(libraries: Mapping[str, Library], turns: int) -> dict[str, PeerResult]:
    """Of each, so many times in turns, after one that is not measured."""
    results = {name: PeerResult(why=library.lacks.get(START, "")) for name, library in libraries.items()}
    for turn in range(-1, turns):
        progress(f"start: turn {turn + 1} of {turns}")
        for name in rotated(list(libraries), turn):
            result = results[name]
            if result.why:
                continue
            try:
                took_s, cpu_s = start_once(libraries[name], os.cpu_count() or 1)
            except SparrowError as error:
                result.why = str(error)
                continue
            if turn >= 0:
                result.values.append(took_s)
                result.cpu_ms.append(1000 * cpu_s)
    return results


def commands(tools: Mapping[str, Tool], turns: int, count: int) -> dict[str, PeerResult]:
    """So many times `true` by each tool. This process must have no children."""
    results = {name: PeerResult() for name in tools}
    at_once = os.cpu_count() or 1
    for turn in range(-1, turns):
        progress(f"commands: turn {turn + 1} of {turns}")
        for name in rotated(list(tools), turn):
            result = results[name]
            if result.why:
                continue
            try:
                times = timed(tools[name].command(at_once), lines(count if turn >= 0 else 1))
            except SparrowError as error:
                result.why = str(error).splitlines()[-1]
                continue
            if turn >= 0:
                result.values.append(times.wall_s)
                result.cpu_ms.append(1000 * times.cpu_s / count)
    return results


def rotated(names: list[str], turn: int) -> list[str]:
    """Another one first each time."""
    first = turn % len(names) if names else 0
    return names[first:] + names[:first]


def _life(library: Library, slots: int, first: Path) -> list[str]:
    return [sys.executable, "-m", "benchmarks.peers.user", library.address, str(slots), "--once", str(first)]


def _children_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
