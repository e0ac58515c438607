"""Wall clocks that jump: of one daemon and its executors, while all others' go on.

A clock namespace covers only the monotonic clocks, and to set the machine's own clock would hit everybody on it. So
the wall clock is shifted where this project reads it: in `time.time`, of which all of its processes have no other
(tests/benchmarks/test_laboratory.py looks). How far is in a file, which a process maps when it starts: to write the
file is the jump. CLOCK_MONOTONIC is nobody's to set, on real machines neither.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from pathlib import Path

VARIABLE = "CHAOS_CLOCK"
"""Of the environment: the file."""
HOOK = Path(__file__).parent / "hook"
"""To be in front of PYTHONPATH."""
_OFFSET = struct.Struct("d")


def new(path: Path) -> None:
    """A clock that is right."""
    path.write_bytes(_OFFSET.pack(0.0))


def jump(path: Path, by_s: float) -> None:
    """Have the clock jump, of all that follow it."""
    with path.open("r+b") as file:
        (now_s,) = _OFFSET.unpack(file.read())
        file.seek(0)
        file.write(_OFFSET.pack(now_s + by_s))


def follow(path: Path) -> None:
    """This process's wall clock is that one from now on."""
    with path.open("rb") as file:
        shared = mmap.mmap(file.fileno(), _OFFSET.size, access=mmap.ACCESS_READ)
    real = time.time

    def shifted() -> float:
        return float(real() + _OFFSET.unpack_from(shared)[0])

    time.time = shifted


def follow_environment() -> None:
    """As the environment says; nothing if it says nothing."""
    if path := os.environ.get(VARIABLE):
        follow(Path(path))
