"""What a command line takes: wall time, and CPU time of all processes that it starts."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import time
from collections.abc import Sequence
from typing import NamedTuple

from sparrow_py.errors import SparrowError
from sparrow_py.processes.process_control import adopt_orphans


class Times(NamedTuple):
    """Of one run."""

    wall_s: float
    cpu_s: float


def timed(argv: Sequence[str], stdin: bytes) -> Times:
    """Run this command with this input, its output discarded. `SparrowError` if it does not exit with 0.

    Python modules are compiled where they were not before, as an installation does. The CPU time is that of the command
    and of all below it that were waited for. What the command leaves without a parent is adopted here, and waited for
    after its wall time. So this process must have no other children.
    """
    adopt_orphans()
    before_s, started_s = _children_cpu_s(), time.monotonic()
    done = subprocess.run(
        argv, input=stdin, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment(), check=False
    )
    wall_s = time.monotonic() - started_s
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip()
        raise SparrowError(f"{argv[0]} exited with {done.returncode}: {said}")
    return Times(wall_s, _children_cpu_s() - before_s)


def environment() -> dict[str, str]:
    """This process's, in which the interpreter keeps what it has compiled."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def _children_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
