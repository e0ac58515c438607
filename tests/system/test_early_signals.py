"""SIGTERM while a daemon starts: it ends as it does later, from the moment that its handler stands.

Before that nothing can be done: until Python runs our code, the kernel ends the process by itself.
"""

from __future__ import annotations

import contextlib
import os
import random
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest

from tests.support.daemons import clean_environment
from tests.support.suites import rest_after
from tests.support.waiting import TIMEOUT_S, wait_until

NO_SCHEDULER = "127.0.0.1:1"
COMMANDS = {
    "scheduler": ("scheduler", "--port", "0"),
    "node monitor": ("node_monitor", "--port", "0", "--scheduler", NO_SCHEDULER),
    "one process": (
        "sparrow_py.embedded.one_process", "--port", "0", "--and-node-monitor", "--port", "0", "--slots", "1",
    ),
}  # fmt: skip
MOMENTS = 3


@contextlib.contextmanager
def starting(log: Path, *command: str) -> Iterator[subprocess.Popen[bytes]]:
    """The process of a daemon that has just been started."""
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", *command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr,
            env=clean_environment(),
        )  # fmt: skip
    with process:
        try:
            yield process
        finally:
            process.kill()


def heeds_sigterm(process: subprocess.Popen[bytes]) -> bool:
    """Whether the process has a handler for SIGTERM."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    (caught,) = (line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)


def ended(process: subprocess.Popen[bytes], log: Path) -> int:
    """The exit code of the process, which has said nothing but log lines."""
    code = process.wait(TIMEOUT_S)
    assert "Traceback" not in log.read_text()
    return code


@pytest.mark.parametrize("which", rest_after(1, *COMMANDS))
def test_a_daemon_that_heeds_signals_ends_well_however_far_it_is(tmp_path: Path, which: str) -> None:
    log = tmp_path / "log"
    with starting(log, *COMMANDS[which]) as process:
        wait_until(lambda: heeds_sigterm(process), "a handler for SIGTERM")
        process.send_signal(signal.SIGTERM)
        assert ended(process, log) == 0
        assert "SIGTERM: draining" in log.read_text()


@pytest.mark.parametrize("which", COMMANDS)
@pytest.mark.rest
def test_a_second_signal_ends_a_start_at_once(tmp_path: Path, which: str) -> None:
    log = tmp_path / "log"
    with starting(log, *COMMANDS[which]) as process:
        wait_until(lambda: heeds_sigterm(process), "a handler for SIGTERM")
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGINT)
        assert ended(process, log) == 0


def has_computed(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Whether the process has computed for so long, or has started with less: the same takes a third longer while the
    machine is slow, as it may have been when that was measured."""
    return cpu_s(process) >= seconds or bool(select.select([process.stdout], [], [], 0)[0])


def cpu_s(process: subprocess.Popen[bytes]) -> float:
    """Seconds that the process has computed so far."""
    times = psutil.Process(process.pid).cpu_times()
    return times.user + times.system


@pytest.mark.rest
@pytest.mark.parametrize("which", COMMANDS)
def test_a_signal_at_any_moment_of_the_start(tmp_path: Path, which: str) -> None:
    """A moment is known by what the process has computed until then: how busy the machine is does not matter."""
    log = tmp_path / "log"
    with starting(log, *COMMANDS[which]) as process:
        assert process.stdout is not None and process.stdout.readline()
        start_s = cpu_s(process)
        process.send_signal(signal.SIGTERM)
        assert ended(process, log) == 0
    seed = int.from_bytes(os.urandom(4))
    rng = random.Random(seed)
    for _ in range(MOMENTS):
        moment_s = rng.uniform(0, 0.9 * start_s)
        with starting(log, *COMMANDS[which]) as process:
            wait_until(partial(has_computed, process, moment_s), f"a moment of seed {seed}")
            heeded = heeds_sigterm(process)
            process.send_signal(signal.SIGTERM)
            code = ended(process, log)
        assert code == 0 or (code == -signal.SIGTERM and not heeded), (seed, moment_s, code, heeded)
