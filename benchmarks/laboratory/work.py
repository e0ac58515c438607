"""What tasks in the laboratory do: write down that they begin, take a while, write down that they end, return a value.

A task's first act is to make a file of its own (O_EXCL), its last act another, in the directory of its job. Their names
say all: `TASK.PID.NS.NODE` when it begins, the same with `.end.NS` when it ends, and with `.waits.NS` and `.goes.NS`
around its wait for tasks of its own. NS is CLOCK_MONOTONIC, which all
processes of a machine share and nobody can set. NODE is the name of the executor's working directory, of which each
incarnation of a node monitor has its own. Every worker imports this module, so it imports little.
"""

from __future__ import annotations

import hashlib
import os
import resource
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

END, WAITS, GOES = "end", "waits", "goes"
MARKS = (END, WAITS, GOES)
"""What a task writes down after its start."""
BOMB = ".bomb"
HOLD_MAX_S = 60.0
"""A task that is held goes on after this, so that no worker is left behind."""
MEMORY_HEADROOM_BYTES = 64 << 20
"""What a task that is to run out of memory may still allocate."""


class PlannedFailure(Exception):
    """A task failed, as it was to."""


Order = tuple[str, int, float, int, int, str, int]
"""Of a task: (directory, number, seconds to take, starts that fail, bytes of the result, 0: few, its gate, tasks of its
own that it waits for)."""


def task(order: Order, pad: bytes, inputs: Sequence[Any]) -> str | bytes:
    """Do as it is told. pad: bytes that make the arguments large. inputs: values of other tasks, or lists of them."""
    directory, number, duration_s, fails, result_bytes, gate, children = order
    begun = begin(directory, number)
    try:
        print(said(directory, number))
        wait_at(gate, number) if gate else time.sleep(duration_s)
        if children:
            wait_for_children(directory, begun, children, duration_s)
        if fails and starts_of(directory, number) <= fails:
            raise PlannedFailure(f"task {number} fails {fails} times")
        return value(Path(directory).name, number, [mark(part) for part in inputs], result_bytes)
    finally:
        end(directory, begun)


def wait_for_children(directory: str, begun: str, children: int, duration_s: float) -> None:
    """Submit so many tasks, which last as long, and wait for them. What becomes of them under faults is theirs."""
    from sparrow_py import Client, SparrowError  # Which other tasks do without.

    create(directory, f"{begun}.{WAITS}.{time.monotonic_ns()}")
    try:
        client = Client.current()
        for child in [client.submit(time.sleep, duration_s) for _ in range(children)]:
            child.result()
    except SparrowError as error:
        print(f"its own tasks: {error}")
    create(directory, f"{begun}.{GOES}.{time.monotonic_ns()}")


def wait_at(gate: str, number: int) -> None:
    """Return once the file is there; the first task runs out of memory if that of the bomb is."""
    deadline_s = time.monotonic() + HOLD_MAX_S
    while not os.path.exists(gate) and time.monotonic() < deadline_s:  # noqa: PTH110
        if not number and os.path.exists(gate + BOMB):  # noqa: PTH110
            break
        time.sleep(0.005)
    if not number and os.path.exists(gate + BOMB):  # noqa: PTH110
        run_out_of_memory()


def run_out_of_memory() -> None:
    """Allocate more than this process may, by a limit that it sets itself and takes back."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    in_use = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (in_use + MEMORY_HEADROOM_BYTES, hard))
    try:
        bytearray(2 * MEMORY_HEADROOM_BYTES)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def chunked(order: Order) -> str | bytes:
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
    names = [name.split(".") for name in os.listdir(directory)]  # noqa: PTH208
    return sum(parts[0] == str(number) and not any(mark in parts for mark in MARKS) for parts in names)


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
