"""The functions that tasks call: workers of all systems import this module, so it imports next to nothing."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from typing import Any

from benchmarks.faults_peers.faults import ODD_TASK, Fault

TASK_S = 0.2
WARM_UP_S = 1.0


def warm_up(number: int) -> int:
    """Take a slot for so long that all workers get some."""
    time.sleep(WARM_UP_S)
    return number


def work(number: int, fault: str, starts: str) -> Any:
    """Say that the task starts, sleep, and return its number, unless it is the odd one."""
    log = os.open(starts, os.O_WRONLY | os.O_APPEND)
    os.write(log, f"{number} {os.getpid()}\n".encode())  # One write: lines of several processes do not mix.
    os.close(log)
    time.sleep(TASK_S)
    if number == ODD_TASK and fault == Fault.TASK_SEGFAULTS:
        ctypes.string_at(0)
    if number == ODD_TASK and fault == Fault.UNPICKLABLE_RESULT:
        return threading.Lock()
    return number
