"""What the tasks of a round do: write down that they begin, take a while, write down that they end, return a value.

A task's first act is to make a file of its own (O_EXCL), its last act another, in the directory of its job. Their names
say all: `TASK.PID.NS.NODE` when it begins, and the same with `.end.NS` when it ends. NS is CLOCK_MONOTONIC, which all
processes of a machine share and nobody can set. NODE is the name of the executor's working directory, of which each
incarnation of a node monitor has its own. Every worker imports this module, so it imports little.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

END = "end"


class PlannedFailure(Exception):
    """A task failed, as it was to."""


def task(order: tuple[str, int, float, int, int], pad: bytes, inputs: Sequence[Any]) -> str | bytes:
    """Do as `order` says: (directory, number, seconds to take, starts that fail, bytes of the result, 0: few).

    pad: bytes that make the arguments large. inputs: values of other tasks, or lists of them.
    """
    directory, number, duration_s, fails, result_bytes = order
    begun = begin(directory, number)
    try:
        print(said(directory, number))
        time.sleep(duration_s)
        if fails and starts_of(directory, number) <= fails:
            raise PlannedFailure(f"task {number} fails {fails} times")
        return value(Path(directory).name, number, [mark(part) for part in inputs], result_bytes)
    finally:
        end(directory, begun)


def chunked(order: tuple[str, int, float, int, int]) -> str | bytes:
    """`task` for `map`."""
    return task(order, b"", ())


def said(directory: str, number: int) -> str:
    """What a task prints."""
    return f"{Path(directory).name} {number}"


def begin(directory: str, number: int) -> str:
    """Write down a start; its name."""
    name = f"{number}.{os.getpid()}.{time.monotonic_ns()}.{Path.cwd().name}"
    create(directory, name)
    return name


def end(directory: str, begun: str) -> None:
    """Write down the end of that start."""
    create(directory, f"{begun}.{END}.{time.monotonic_ns()}")


def create(directory: str, name: str) -> None:
    """A new file; an error if it is there."""
    os.close(os.open(f"{directory}/{name}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))


def starts_of(directory: str, number: int) -> int:
    """How often the task has been started, this time included."""
    return sum(name.startswith(f"{number}.") and f".{END}." not in name for name in os.listdir(directory))  # noqa: PTH208


# ---- values ----------------------------------------------------------------------------------


def value(job: str, number: int, marks: Sequence[Any], result_bytes: int) -> str | bytes:
    """What a task returns: a function of what it is and of its inputs."""
    token = hashlib.sha256(f"{job} {number} {marks}".encode()).hexdigest()[:16]
    return hashlib.shake_128(token.encode()).digest(result_bytes) if result_bytes else token


def mark(result: Any) -> Any:
    """A value in few characters: text as it is, of bytes their hash, of a list the marks of its parts."""
    if isinstance(result, bytes | bytearray | memoryview):
        return hashlib.sha256(result).hexdigest()[:16]
    return [mark(part) for part in result] if isinstance(result, list) else str(result)


# ---- commands --------------------------------------------------------------------------------

SCRIPT = """\
set -C
now() { read -r up _ < /proc/uptime; ns=${up%.*}${up#*.}0000000; }
now
begun=$1/$2.$$.$ns.${PWD##*/}
: > "$begun" || exit 99
sleep "$3"
echo "$4"
now
: > "$begun.end.$ns"
"""
"""The same as a shell's work: arguments are directory, number, seconds, and what to print. Its clock, which stands for
CLOCK_MONOTONIC, has steps of 10 ms."""


def argv(directory: str, number: int, duration_s: float) -> list[str]:
    """The command line of a task."""
    printed = str(value(Path(directory).name, number, [], 0))
    return ["sh", "-c", SCRIPT, "sh", directory, str(number), str(duration_s), printed]
