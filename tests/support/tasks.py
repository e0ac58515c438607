"""Functions that tests run as tasks. Imports little: every worker imports it."""

import asyncio
import contextlib
import hashlib
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import sparrow_py

left_waiting: list[list[bool]] = []
HOLD_MAX_S = 60.0
"""A task that is held ends after this, so that a failed test leaves no worker behind."""


def square(number: int) -> int:
    return number * number


def cube(number: int) -> int:
    return number**3


def replace_square() -> None:
    """Have this worker's module name another function `square`, as one that was reloaded may."""
    globals()["square"] = cube


def remove_square() -> None:
    """Have this worker's module name no function `square`."""
    globals().pop("square", None)


def burn(cpu_s: float) -> None:
    """Use so much CPU time."""
    deadline_s = time.process_time() + cpu_s
    while time.process_time() < deadline_s:
        pass


def die_if(mark: Path) -> str:
    """End the worker if this file is there."""
    if mark.exists():
        os._exit(3)
    return "alive"


def describe(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
    return args, kwargs


def fail(text: str) -> None:
    raise ValueError(text)


async def square_later(number: int) -> int:
    await asyncio.sleep(0)
    return number * number


async def fail_later(text: str) -> None:
    await asyncio.sleep(0)
    raise ValueError(text)


async def hold_later(gate: Path, mark: str = "") -> str:
    """As `hold`."""
    return await asyncio.to_thread(hold, gate, mark)


async def leave_running(mark: Path) -> None:
    """Start what would leave the file `mark` if it ever went on, and end."""

    async def go_on() -> None:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        mark.touch()

    leaving.append(asyncio.create_task(go_on()))


leaving: "list[asyncio.Task[None]]" = []


def divide(number: int, by: int) -> float:
    return number / by


def say(text: str) -> str:
    print(text)
    print(f"{text} on stderr", file=sys.stderr)
    return text


def hold(gate: Path, mark: str = "") -> str:
    """Leave the file `gate`.`mark`, then end when the file `gate` is there."""
    if mark:
        gate.with_name(f"{gate.name}.{mark}").touch()
    deadline_s = time.monotonic() + HOLD_MAX_S
    while not gate.exists() and time.monotonic() < deadline_s:
        time.sleep(0.005)
    return mark


def open_descriptors() -> dict[int, str]:
    """Of the worker: what each refers to, without numbers of pipes and sockets."""
    found = {}
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # That of the listing itself.
            found[int(link.name)] = str(link.readlink()).partition(":[")[0]
    return found


def started(gate: Path, *marks: str) -> bool:
    """Whether the tasks held at this gate with these marks have started."""
    return all(gate.with_name(f"{gate.name}.{mark}").exists() for mark in marks)


def exit_worker(code: int = 3) -> None:
    os._exit(code)


def exit_worker_with(data: bytes) -> None:
    os._exit(3)


def kill_worker() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def hang_up_afterwards() -> None:
    """Have this worker close its connection when it has sent this call's result, and live on until it is killed."""
    from sparrow_py.executors.executor_connection import ExecutorConnection

    send = ExecutorConnection.send

    def send_and_hang_up(connection: ExecutorConnection, messages: Any) -> None:
        send(connection, messages)
        connection.close()
        time.sleep(HOLD_MAX_S)

    ExecutorConnection.send = send_and_hang_up  # type: ignore[method-assign]


def exit_politely(code: int) -> None:
    sys.exit(code)


def record_start(starts: Path, task: int, duration_s: float = 0.0, gate: Path | None = None) -> int:
    """Append a line with the task and this process to the file, then take a while."""
    descriptor = os.open(starts, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(descriptor, f"{task} {os.getpid()}\n".encode())
    finally:
        os.close(descriptor)
    if gate is not None:
        hold(gate)
    time.sleep(duration_s)
    return task


def record_start_after(starts: Path, task: int, before: Any) -> Any:
    """As `record_start`; returns the results of the stage before."""
    record_start(starts, task, 0.005)
    return before


def record_start_pattern(starts: Path, task: int, size: int) -> bytes:
    """As `record_start`; returns `pattern(size)`."""
    record_start(starts, task)
    return pattern(size)


def record_start_bytes(starts: Path, task: int, size: int) -> bytes:
    """As `record_start`; returns so many bytes, which are the task's own."""
    record_start(starts, task)
    return own_bytes(task, size)


def own_bytes(task: int, size: int) -> bytes:
    """Bytes that no other task returns."""
    return (task.to_bytes(4, "big") * (size // 4 + 1))[:size]


def pattern(size: int) -> bytes:
    """So many bytes, in which a piece that is missing or twice there shows."""
    return (b"".join(number.to_bytes(4, "big") for number in range(250_000)) * (size // 1_000_000 + 1))[:size]


def lengths(several: list[bytes]) -> list[int]:
    return [len(one) for one in several]


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def read_starts(starts: Path) -> list[tuple[int, int]]:
    """(task, pid) of each start so far."""
    text = ""
    with contextlib.suppress(FileNotFoundError):
        text = starts.read_text()
    return [(int(task), int(pid)) for task, pid in map(str.split, text.splitlines())]


def raise_(kind: type[BaseException]) -> None:
    raise kind("on purpose")


def raise_elsewhere(kind: type[BaseException], pid: int) -> Any:
    """Raise it, but in this process be an ordinary error."""
    if os.getpid() != pid:
        raise kind("on purpose")
    return ValueError("an ordinary error")


class RaisesAtUnpickling:
    """To unpickle it raises an exception of this kind."""

    def __init__(self, kind: type[BaseException]) -> None:
        self.kind = kind

    def __reduce__(self) -> Any:
        return raise_, (self.kind,)


class RaisesAtPickling:
    """To pickle it raises an exception of this kind."""

    def __init__(self, kind: type[BaseException]) -> None:
        self.kind = kind

    def __reduce__(self) -> Any:
        raise self.kind("on purpose")


class RaisesWhereItArrives(Exception):
    """An exception that can be unpickled in the process that made it; in others that raises one of this kind."""

    def __init__(self, kind: type[BaseException]) -> None:
        super().__init__(kind.__name__)
        self.kind, self.pid = kind, os.getpid()

    def __reduce__(self) -> Any:
        return raise_elsewhere, (self.kind, self.pid)


def fail_where_it_arrives(kind: type[BaseException]) -> None:
    raise RaisesWhereItArrives(kind)


class Thing:
    """Something that a weak reference can refer to."""

    def __init__(self, number: int = 0) -> None:
        self.number = number

    def doubled(self) -> int:
        return 2 * self.number


class Farewell:
    """Leaves a file named after the process that lets go of it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def __del__(self) -> None:
        (self.directory / str(os.getpid())).touch()


class Grumpy:
    """Cannot be pickled, and cannot even be shown."""

    def __reduce__(self) -> Any:
        raise TypeError("I stay where I am")

    def __repr__(self) -> str:
        raise RuntimeError("no")


class Huge:
    """There is no memory to pickle it."""

    def __reduce__(self) -> Any:
        raise MemoryError


class Unshowable(Exception):
    """An exception whose text cannot be had."""

    def __str__(self) -> str:
        raise RuntimeError("no")


class OneWay(Exception):
    """An exception that pickles and does not unpickle."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first} and {second}")


def make_grumpy() -> Grumpy:
    return Grumpy()


def fail_unshowably() -> None:
    raise Unshowable


def fail_one_way() -> None:
    raise OneWay(1, 2)


def fail_with_surrogate() -> None:
    raise ValueError("a file name: \udcff")


def say_surrogate() -> None:
    with contextlib.suppress(UnicodeError):
        print("a file name: \udcff")


def hold_and_burn(cpu_s: float, size: int) -> int:
    """Take so much memory, all of it written to, and use so much CPU time."""
    kept = bytearray(b"x") * size
    end_s = time.process_time() + cpu_s
    while time.process_time() < end_s:
        pass
    return len(kept)


def until_asked(gate: Path, mark: str = "") -> bool:
    """Leave the file `gate`.`mark`, then end when this task is to yield. Returns whether it was."""
    gate.with_name(f"{gate.name}.{mark}").touch()
    return sparrow_py.wait_for_yield(HOLD_MAX_S)


def work_until_asked(gate: Path, mark: str, part_s: float = 0.005) -> int:
    """The same in parts of some milliseconds, or until the file `gate` is there. Returns how many there were."""
    gate.with_name(f"{gate.name}.{mark}").touch()
    parts = 1
    deadline_s = time.monotonic() + HOLD_MAX_S
    while not (sparrow_py.should_yield() or gate.exists()) and time.monotonic() < deadline_s:
        time.sleep(part_s)
        parts += 1
    return parts


def until_a_thread_is_asked(gate: Path, mark: str) -> list[Any]:
    """Several threads of the task wait. What each was told, and how long there is left to end."""
    told: list[Any] = []
    threads = [threading.Thread(target=lambda: told.append(sparrow_py.wait_for_yield())) for _ in range(3)]
    for thread in threads:
        thread.start()
    gate.with_name(f"{gate.name}.{mark}").touch()
    for thread in threads:
        thread.join(HOLD_MAX_S)
    return [*told, sparrow_py.yield_within_s()]


def leave_waiting() -> bool:
    """Leave a thread that waits for this task to be asked, and end."""
    told: list[bool] = []
    left_waiting.append(told)
    threading.Thread(target=lambda: told.append(sparrow_py.wait_for_yield()), daemon=True).start()
    return sparrow_py.should_yield()


def told_afterwards(count: int) -> list[list[bool]]:
    """What threads heard that were left waiting, once so many have heard something."""
    deadline_s = time.monotonic() + HOLD_MAX_S
    while sum(map(len, left_waiting)) < count and time.monotonic() < deadline_s:
        time.sleep(0.005)
    return left_waiting


def ask_in_a_child(gate: Path, mark: str) -> tuple[int, bool]:
    """A process that the task forks asks, too. What that heard, and what the task did."""
    gate.with_name(f"{gate.name}.{mark}").touch()
    pid = os.fork()
    if not pid:
        os._exit(3 if sparrow_py.wait_for_yield(0.2) else 4)
    heard = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return heard, sparrow_py.wait_for_yield(HOLD_MAX_S)


def ask_outside_a_lease() -> tuple[bool, float | None]:
    return sparrow_py.should_yield(), sparrow_py.yield_within_s()


def hold_with_its_pid(gate: Path, mark: str) -> str:
    """As `hold`, but the file has this process's number."""
    written = gate.with_name(f"{gate.name}.{mark}.part")
    written.write_text(str(os.getpid()))
    written.rename(gate.with_name(f"{gate.name}.{mark}"))
    return hold(gate)
