"""What of the machine is in use: CPU, memory and network, as Linux counts them; elsewhere nobody knows.

CPU and memory are those of this process's cgroup where that has a limit of its own, as `resources` says what there is
of them; else those of the machine. Network is what all interfaces but the loopback carry.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from node_monitor.host.measured import Measured
from node_monitor.host.resources import CGROUP

PROC = Path("/proc")
_IDLE, _IOWAIT = 3, 4
"""Columns of the line `cpu` of /proc/stat; `guest` times, the last two, are part of others."""
_GUEST = 8


class LoadMeter:
    """Measures what was used since it measured last. `clock`: seconds."""

    def __init__(self, clock: Callable[[], float], proc: Path = PROC, cgroup: Path = CGROUP) -> None:
        self._clock = clock
        self._proc = proc
        self._cgroup = cgroup
        self._at_s = clock()
        self._cpu_s = self._cpu_used_s()
        self._net = self._net_bytes()

    def measure(self) -> Measured:
        """CPUs in use and bytes a second since the last call, and memory in use now; None for what cannot be had."""
        now_s, cpu_s, net = self._clock(), self._cpu_used_s(), self._net_bytes()
        past_s = now_s - self._at_s
        if past_s <= 0:
            return Measured(memory_bytes=self._memory_bytes())
        cpu = _rate(self._cpu_s, cpu_s, past_s)
        received = _rate(self._net and self._net[0], net and net[0], past_s)
        sent = _rate(self._net and self._net[1], net and net[1], past_s)
        self._at_s, self._cpu_s, self._net = now_s, cpu_s, net
        return Measured(cpu, self._memory_bytes(), received, sent)

    def _cpu_used_s(self) -> float | None:
        """Seconds of CPU used since some time."""
        try:
            if self._limited("cpu.max"):
                return int(_fields(self._cgroup / "cpu.stat")["usage_usec"]) / 1e6
            columns = [int(text) for text in (self._proc / "stat").read_text().split("\n", 1)[0].split()[1:]]
            busy = sum(columns[:_GUEST]) - columns[_IDLE] - columns[_IOWAIT]
        except (OSError, ValueError, KeyError, IndexError):
            return None
        return busy / os.sysconf("SC_CLK_TCK")

    def _memory_bytes(self) -> int | None:
        """Memory in use, caches of files not counted, which go when something needs their place."""
        try:
            if self._limited("memory.max"):
                cached = int(_fields(self._cgroup / "memory.stat")["inactive_file"])
                return max(0, int((self._cgroup / "memory.current").read_text()) - cached)
            kilobytes = _fields(self._proc / "meminfo", ":")
            return (_kilobytes(kilobytes["MemTotal"]) - _kilobytes(kilobytes["MemAvailable"])) * 1024
        except (OSError, ValueError, KeyError):
            return None

    def _net_bytes(self) -> tuple[int, int] | None:
        """Bytes received and sent since some time."""
        received = sent = 0
        try:
            for name, text in _fields(self._proc / "net/dev", ":").items():
                counts = text.split()
                if name != "lo" and len(counts) > _GUEST:
                    received += int(counts[0])
                    sent += int(counts[_GUEST])
        except (OSError, ValueError):
            return None
        return received, sent

    def _limited(self, name: str) -> bool:
        """Whether the cgroup has a limit of its own of that kind."""
        try:
            return not (self._cgroup / name).read_text().startswith("max")
        except OSError:
            return False


def _rate(before: float | None, now: float | None, past_s: float) -> float | None:
    """By how much it grew a second; a counter that was reset has not grown."""
    return None if before is None or now is None else max(0.0, now - before) / past_s


def _fields(path: Path, separator: str | None = None) -> dict[str, str]:
    """The lines of a file, by their first words."""
    pairs = (line.strip().split(separator, 1) for line in path.read_text().splitlines())
    return {pair[0]: pair[1].strip() for pair in pairs if len(pair) > 1}


def _kilobytes(text: str) -> int:
    return int(text.split(maxsplit=1)[0])
