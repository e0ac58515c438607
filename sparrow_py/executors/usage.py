"""What this process uses while it runs a task: CPU time and memory, for executors that run one task at a time."""

from __future__ import annotations

import contextlib
import resource
import sys
from pathlib import Path

from sparrow_py.executors.executor_protocol import Used

RESET_PEAK = "5"
"""Written to `clear_refs`: the peak of resident memory begins anew."""
BYTES_PER_UNIT = 1 if sys.platform == "darwin" else 1024
"""Of `ru_maxrss`."""


class UsageMeter:
    """Measures from when it is made. Where the peak of memory cannot be begun anew it is that of the process's life."""

    def __init__(self, proc: Path = Path("/proc/self")) -> None:
        self._proc = proc
        with contextlib.suppress(OSError):
            (proc / "clear_refs").write_text(RESET_PEAK)
        self._cpu_s = _cpu_s()

    def used(self) -> Used:
        """Since it was made."""
        return Used(_cpu_s() - self._cpu_s, self._peak_bytes())

    def _peak_bytes(self) -> int:
        with contextlib.suppress(OSError, ValueError, IndexError):
            for line in (self._proc / "status").read_text().splitlines():
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * BYTES_PER_UNIT


def _cpu_s() -> float:
    """Of this process and of its children that have ended."""
    whole_s = 0.0
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        usage = resource.getrusage(who)
        whole_s += usage.ru_utime + usage.ru_stime
    return whole_s
