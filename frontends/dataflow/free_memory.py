"""How much memory this machine, or the control group of this process, has left."""

from __future__ import annotations

import contextlib
from pathlib import Path

MEMINFO = Path("/proc/meminfo")
CONTROL_GROUP = Path("/sys/fs/cgroup")


def free_bytes(meminfo: Path = MEMINFO, group: Path = CONTROL_GROUP) -> int:
    """What can be had without taking it from others: the smaller of the machine's and the control group's."""
    free = 1 << 62
    with contextlib.suppress(OSError, StopIteration, ValueError):
        line = next(line for line in meminfo.read_text().splitlines() if line.startswith("MemAvailable:"))
        free = int(line.split()[1]) * 1024
    with contextlib.suppress(OSError, KeyError, ValueError):  # "max" is no number: there is no limit.
        limit = int((group / "memory.max").read_text())
        used = int((group / "memory.current").read_text())
        statistics = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        free = min(free, limit - used + int(statistics["inactive_file"]))
    return max(free, 0)
