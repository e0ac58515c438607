"""What of the machine is in use, as Linux says it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from node_monitor.host.load import LoadMeter

NET = """Inter-|   Receive                                       |  Transmit
 face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop fifo colls carrier compressed
    lo: 999999    1    0    0    0     0          0         0 999999    1    0    0    0     0       0          0
  eth0:{received} 1    0    0    0     0          0         0 {sent}    1    0    0    0     0       0          0
  eth1:   1000    1    0    0    0     0          0         0   2000    1    0    0    0     0       0          0
"""
MEMINFO = "MemTotal:       1000 kB\nMemFree:         100 kB\nMemAvailable:    {available} kB\n"


class Machine:
    """Files as those of Linux, and a clock."""

    def __init__(self, root: Path) -> None:
        self.proc, self.cgroup, self.now_s = root / "proc", root / "cgroup", 100.0
        (self.proc / "net").mkdir(parents=True)
        self.cgroup.mkdir()
        self.used(0.0)

    def used(self, cpu_s: float, available: int = 400, received: int = 0, sent: int = 0) -> None:
        ticks = round(cpu_s * os.sysconf("SC_CLK_TCK"))
        (self.proc / "stat").write_text(f"cpu  {ticks} 0 0 7000 300 0 0 0 5 0\ncpu0 1 2 3 4\nintr 1\n")
        (self.proc / "meminfo").write_text(MEMINFO.format(available=available))
        (self.proc / "net/dev").write_text(NET.format(received=received, sent=sent))

    def meter(self) -> LoadMeter:
        return LoadMeter(lambda: self.now_s, self.proc, self.cgroup)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_what_was_used_since_the_last_call_is_divided_by_the_time_since(machine: Machine) -> None:
    meter = machine.meter()
    machine.now_s += 4.0
    machine.used(6.0, available=250, received=4000, sent=800)
    assert meter.measure() == (1.5, 750 * 1024, 1000.0, 200.0)
    machine.now_s += 1.0
    machine.used(6.0, available=250, received=4000, sent=900)
    assert meter.measure() == (0.0, 750 * 1024, 0.0, 100.0)


def test_a_cgroup_with_limits_says_what_is_used_in_it(machine: Machine) -> None:
    (machine.cgroup / "cpu.max").write_text("200000 100000\n")
    (machine.cgroup / "cpu.stat").write_text("usage_usec 1000000\nuser_usec 1\n")
    (machine.cgroup / "memory.max").write_text("1000000\n")
    (machine.cgroup / "memory.current").write_text("700000\n")
    (machine.cgroup / "memory.stat").write_text("anon 600000\ninactive_file 100000\n")
    meter = machine.meter()
    machine.now_s += 2.0
    (machine.cgroup / "cpu.stat").write_text("usage_usec 4000000\nuser_usec 1\n")
    assert meter.measure()[:2] == (1.5, 600000)


def test_a_cgroup_without_limits_leaves_it_to_the_machine(machine: Machine) -> None:
    (machine.cgroup / "cpu.max").write_text("max 100000\n")
    (machine.cgroup / "memory.max").write_text("max\n")
    meter = machine.meter()
    machine.now_s += 1.0
    machine.used(1.0)
    assert meter.measure()[:2] == (1.0, 600 * 1024)


@pytest.mark.parametrize("missing", ["stat", "meminfo", "net/dev"])
def test_what_cannot_be_read_is_not_known_and_the_rest_is(machine: Machine, missing: str) -> None:
    (machine.proc / missing).write_text("nonsense") if missing != "net/dev" else (machine.proc / missing).unlink()
    meter = machine.meter()
    machine.now_s += 1.0
    measured = meter.measure()
    assert (measured.cpu is None, measured.memory_bytes is None, measured.net_in_bytes_per_s is None) == (
        missing == "stat", missing == "meminfo", missing == "net/dev",
    )  # fmt: skip


def test_counters_that_were_reset_have_not_gone_backwards(machine: Machine) -> None:
    machine.used(10.0, received=5000)
    meter = machine.meter()
    machine.now_s += 1.0
    machine.used(0.0, received=0)
    assert meter.measure() == (0.0, 600 * 1024, 0.0, 0.0)


def test_at_the_same_time_nothing_can_be_divided(machine: Machine) -> None:
    measured = machine.meter().measure()
    assert measured == (None, 600 * 1024, None, None)


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone says so")
def test_this_machine_uses_something() -> None:
    times_s = iter(range(10))
    measured = LoadMeter(lambda: float(next(times_s))).measure()
    assert measured.memory_bytes and measured.cpu is not None and measured.net_in_bytes_per_s is not None
