"""What the tasks of the fault matrix do. Every worker imports it."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path

HOLD_MAX_S = 60.0
"""A task that is held ends after this, so that a failed test leaves no worker behind."""
MEMORY_HEADROOM_BYTES = 64 << 20
"""What a task that is to run out of memory may still allocate."""


def work(log: str, task: int, gate: str, bomb: str, result_bytes: int, pad: bytes = b"") -> bytes:
    """Write down the start, wait until the file `gate` is there, write down the end, return so many bytes.

    The task whose `bomb` is there runs out of memory instead of ending.
    """
    write_down(log, "start", task)
    deadline_s = time.monotonic() + HOLD_MAX_S
    while not Path(gate).exists() and time.monotonic() < deadline_s:
        if bomb and Path(bomb).exists():
            break
        time.sleep(0.005)
    if bomb and Path(bomb).exists():
        run_out_of_memory()
    # No two results are alike: the same bytes would be kept once.
    result = (f"{log} {task} ".encode() * (result_bytes // 8 + 1))[:result_bytes]
    write_down(log, "end", task)
    return result


def write_down(log: str, what: str, task: int) -> None:
    """Append a line in one write, which other processes' lines cannot get into."""
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(descriptor, f"{what} {task} {os.getpid()}\n".encode())
    finally:
        os.close(descriptor)


def run_out_of_memory() -> None:
    """Allocate more than this process may, by a limit that it sets itself and takes back."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    in_use = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (in_use + MEMORY_HEADROOM_BYTES, hard))
    try:
        bytearray(2 * MEMORY_HEADROOM_BYTES)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def read_log(log: Path, what: str) -> list[tuple[int, int]]:
    """(task, pid) of each start or end that was written down so far."""
    if not log.exists():
        return []
    lines = [line.split() for line in log.read_text().splitlines()]
    return [(int(task), int(pid)) for kind, task, pid in lines if kind == what]
