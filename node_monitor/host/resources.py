"""What the machine offers: cores and memory, as this process may use them."""

from __future__ import annotations

import os
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")


def cores() -> int:
    """Cores that this process may run on: its CPU affinity, or less if its cgroup has a quota."""
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = (CGROUP / "cpu.max").read_text().split()
        if quota != "max":
            available = min(available, max(1, int(quota) // int(period)))
    except (OSError, ValueError):
        pass  # No cgroup v2, or no limit.
    return available


def memory_bytes() -> int:
    """Memory of the machine, or less if this process's cgroup has a limit."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = (CGROUP / "memory.max").read_text().strip()
        if limit != "max":
            total = min(total, int(limit))
    except (OSError, ValueError):
        pass
    return total


def resource_vector() -> dict[str, float]:
    """The node's resources: cpu in cores, memory in bytes."""
    return {"cpu": float(cores()), "memory_bytes": float(memory_bytes())}
