"""Tasks that try to get at what is not theirs, to outlive their end, or to take more than is theirs."""

from __future__ import annotations

import ctypes
import fcntl
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PTRACE_ATTACH = 16
SYS_PIDFD_GETFD = 438
BUSY_MAX_S = 60.0
FLIPPING_S = 1.0


def _read(path: str) -> bytes:
    with Path(path).open("rb") as file:
        return file.read(1)


def _ptrace(pid: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.ptrace(PTRACE_ATTACH, pid, 0, 0):
        raise OSError(ctypes.get_errno(), "ptrace")


def _take_descriptor(pid: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(SYS_PIDFD_GETFD, os.pidfd_open(pid), 0, 0) < 0:
        raise OSError(ctypes.get_errno(), "pidfd_getfd")


def attempts_on(pid: int, *paths: str) -> dict[str, str]:
    """What comes of looking into this process and these files: "denied", or that it worked."""
    tries: dict[str, Callable[[], object]] = {
        f"/proc/PID/{name}": lambda name=name: _read(f"/proc/{pid}/{name}")  # type: ignore[misc]
        for name in ("environ", "mem", "maps", "auxv")
    }
    tries["/proc/PID/fd"] = lambda: os.listdir(f"/proc/{pid}/fd")  # noqa: PTH208 - pathlib would follow it
    tries["ptrace"] = lambda: _ptrace(pid)
    tries["pidfd_getfd"] = lambda: _take_descriptor(pid)
    tries |= {path: lambda path=path: _read(path) for path in paths}  # type: ignore[misc]
    return {name: _outcome(attempt) for name, attempt in tries.items()}


def _outcome(attempt: Callable[[], object]) -> str:
    try:
        return f"got {attempt()!r}"
    except PermissionError:
        return "denied"
    except OSError as error:
        return f"failed otherwise: {error!r}"


def connect(path: str) -> str:
    """What comes of connecting to a Unix socket and listening."""
    with socket.socket(socket.AF_UNIX) as peer:
        return _outcome(lambda: (peer.connect(path), peer.recv(1)))


def who() -> dict[str, Any]:
    """Who runs this, and what it finds in its environment."""
    status = Path("/proc/self/status").read_text()
    return {
        "ids": (os.getresuid(), os.getresgid(), os.getgroups()),
        "capabilities": {line.split()[1] for line in status.splitlines() if line.startswith(("CapPrm", "CapEff"))},
        "no_new_privileges": "NoNewPrivs:\t1" in status,
        "home": os.environ["HOME"],
        "secrets": [name for name in os.environ if name.startswith(("SPARROW_TOKEN", "AWS_"))],
        "parent": os.getppid(),
        "files": os.environ["SPARROW_EXECUTOR_FILES"],
        "directory": str(Path.cwd()),
    }


def daemonise(mark: Path) -> None:
    """Leave a process behind that has a session and no parent of its own and writes its number to `mark`, and stay."""
    subprocess.run(["sh", "-c", daemon_script(mark)], check=True)
    time.sleep(BUSY_MAX_S)


def daemon_script(mark: Path) -> str:
    """The same for a shell; `mark` is there when it is complete."""
    return f"(setsid sh -c 'echo $$ >{mark}.new; mv {mark}.new {mark}; exec sleep 1000' &)"


def outrun(alive: Path, outlived: Path, life_s: float = 20.0, processes: int = 60) -> None:
    """Start a chain of processes, each in a session of its own, that starts the next and stays; then end this one.

    `alive` is locked (flock(2)) while there is one; one that was not killed in its life makes `outlived`.
    """
    lock = os.open(alive, os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    end_s = time.monotonic() + life_s
    for number in range(processes):
        if os.fork():  # The first is this one; the others stay.
            if number:
                time.sleep(max(0.0, end_s - time.monotonic()))
                outlived.touch()
            os._exit(0)
        os.setsid()
        time.sleep(0.03)
    time.sleep(max(0.0, end_s - time.monotonic()))
    outlived.touch()
    os._exit(0)


def is_locked(path: Path) -> bool:
    """Whether a process has locked this file."""
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def allocate(size: int) -> int:
    return len(bytes(size))


def open_files(count: int) -> int:
    files = [Path(os.devnull).open() for _ in range(count)]  # noqa: SIM115 - that they are all open is what is tried
    return len(files)


def fork_many(count: int) -> int:
    """How many processes there can be beside this one, up to so many."""
    pids: list[int] = []
    try:
        for _ in range(count):
            pid = os.fork()
            if pid == 0:
                time.sleep(BUSY_MAX_S)
                os._exit(0)
            pids.append(pid)
    except BlockingIOError:
        pass
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    return len(pids)


def overflow() -> None:
    """Run out of stack."""
    sys.setrecursionlimit(1 << 30)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    def deeper(depth: Any) -> Any:
        return sorted([depth], key=deeper)

    deeper(0)


def die(how: str) -> None:
    """End the worker."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if how == "exit":
        os._exit(3)
    elif how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == "segfault":
        ctypes.string_at(0)
    elif how == "abort":
        os.abort()
    elif how == "overflow":
        overflow()


def _name_as_result(path: str, hash_: str) -> None:
    """Have this worker name another file than that which it has written, or another hash, for its next large result."""
    from sparrow_py.executors.executor_connection import ExecutorConnection
    from sparrow_py.executors.executor_protocol import File

    data = ExecutorConnection.data

    def lie(connection: ExecutorConnection, value: bytes) -> Any:
        ExecutorConnection.data = data  # type: ignore[method-assign]
        file = data(connection, value)
        assert isinstance(file, File)
        return File(path or file.path, file.size, hash_)

    ExecutorConnection.data = lie  # type: ignore[method-assign]


def plant(content: bytes, hash_: str) -> bytes:
    """Return this, which is large, under the hash of something else."""
    _name_as_result("", hash_)
    return content


def through_a_link(outside: str, name: str, size: int) -> bytes:
    """Name a file as this call's result by way of a link, which leads now to the worker's directory, now elsewhere.

    The thing of that name there is as large as is said here.
    """
    from sparrow_py.calls import encode_value

    folder = os.environ["SPARROW_EXECUTOR_FILES"]
    os.chdir(folder)
    Path(name).write_bytes(bytes(size))
    for link, target in (("link", folder), ("other", outside)):
        Path(link).unlink(missing_ok=True)
        Path(link).symlink_to(target)
    if os.fork() == 0:
        libc, end_s = ctypes.CDLL(None), time.monotonic() + FLIPPING_S
        while time.monotonic() < end_s:
            libc.renameat2(-100, b"link", -100, b"other", 2)
        os._exit(0)
    _name_as_result(f"{folder}/link/{name}", "ab" * 32)
    return bytes(2 * size - len(encode_value(bytes(size))))  # So that it is as large when it is pickled.


def leave_a_mess(files: int, depth: int) -> str:
    """Leave these in the worker's directory for results: files, and directories in each other; where that is."""
    folder = os.environ["SPARROW_EXECUTOR_FILES"]
    os.chdir(folder)
    for number in range(files):
        os.close(os.open(str(number), os.O_CREAT | os.O_WRONLY))
    for _ in range(depth):
        Path("d").mkdir()
        os.chdir("d")
    os.chdir("/")
    return folder


# ---- exceptions that end the process that looks at them ------------------------------------------


def _exit(_: object) -> Any:
    sys.exit(3)


class NotesExit(Exception):
    __notes__ = property(_exit)  # type: ignore[assignment]


class _NameExits(type):
    __name__ = property(_exit)  # type: ignore[assignment]


class NameExits(Exception, metaclass=_NameExits):
    """Whose class has no name to be had."""


class ModuleExits(ModuleNotFoundError):
    name = property(_exit)  # type: ignore[assignment]


def fail_with_notes_that_exit() -> None:
    raise NotesExit("no")


def fail_with_a_name_that_exits() -> None:
    raise NameExits("no")


def fail_for_a_module_that_exits() -> None:
    raise ModuleExits("no")
