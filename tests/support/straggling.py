"""Tasks that straggle: functions that tests run as tasks. Imports little: every worker imports it."""

import os
import time
from pathlib import Path

from tests.support.tasks import hold


def hold_first_start(gate: Path, mark: Path, payload: bytes = b"") -> int:
    """The first to start writes its process id to the mark, and is held at the gate; others end at once.

    Returns the size of what it was given.
    """
    own = mark.with_name(f"{mark.name}.{os.getpid()}")
    own.write_text(str(os.getpid()))
    try:
        os.link(own, mark)  # Whoever sees the mark sees what is in it: this process may be killed at any moment.
    except FileExistsError:
        return len(payload)
    hold(gate)
    return len(payload)


def hold_and_return(gate: Path, mark: Path, size: int) -> bytes:
    """As `hold_first_start`; returns so many bytes."""
    hold_first_start(gate, mark)
    return bytes(size)


def hold_and_count(gate: Path, mark: Path, results: list[bytes]) -> int:
    """As `hold_first_start`; returns how many bytes it was given."""
    hold_first_start(gate, mark)
    return sum(map(len, results))


def hold_every_start(gate: Path, marks: Path) -> None:
    """Leave a file with this process's id as name in the directory, and be held at the gate."""
    (marks / str(os.getpid())).touch()
    hold(gate)


def work_here(starts: Path, task: int, cpu_s: float) -> int:
    """Leave a file that names the task and this process, and use so much CPU time."""
    (starts / f"{task}.{os.getpid()}").touch()
    until_s = time.process_time() + cpu_s
    while time.process_time() < until_s:
        pass
    return task


def sleep_here(starts: Path, task: int, seconds: float, slower: float) -> int:
    """As `work_here`, without using the CPU; so many times slower in a process of niceness 10 or more."""
    (starts / f"{task}.{os.getpid()}").touch()
    time.sleep(seconds * (slower if os.nice(0) >= 10 else 1.0))
    return task
