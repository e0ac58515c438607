"""What the soak's Python tasks do. Imports little: every worker imports it."""

from __future__ import annotations

import hashlib
import os
import random
import time
from typing import Any


def record_start(starts: str, job: str, task: int) -> None:
    """Append a line with this start to the file: one write, so that those of several processes do not mix."""
    descriptor = os.open(starts, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, f"{job} {task}\n".encode())
    finally:
        os.close(descriptor)


def work(starts: str, job: str, task: int, duration_s: float) -> int:
    """Take a while."""
    record_start(starts, job, task)
    time.sleep(duration_s)
    return task


def fail_sometimes(starts: str, job: str, task: int, share: float) -> int:
    """Fail, as chance has it."""
    record_start(starts, job, task)
    if random.random() < share:
        raise ValueError(f"task {task} failed by chance")
    return task


def large_result(starts: str, job: str, task: int, size: int) -> bytes:
    """A result that is known beforehand, and goes by reference."""
    record_start(starts, job, task)
    return pattern(task, size)


def digest(data: bytes) -> str:
    """The SHA-256 of a large input."""
    return hashlib.sha256(data).hexdigest()


def digest_of_result(data: Any) -> str:
    """The SHA-256 of a result of the stage before."""
    return digest(data)


def joined(digests: list[str]) -> str:
    """All results of the stage before."""
    return " ".join(digests)


def pattern(task: int, size: int) -> bytes:
    """So many bytes, others for each task."""
    return hashlib.shake_128(str(task).encode()).digest(size)
