"""What a process asks of Linux about itself and its children, by prctl(2) and /proc. Elsewhere nothing is asked.

A *subreaper* is a process that becomes the parent of those of its descendants whose own parent has ended, as init
would otherwise: a daemon made by a task (fork, setsid, fork) does not get away from it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38


def _prctl(operation: int, argument: int) -> None:
    if sys.platform == "linux" and ctypes.CDLL(None, use_errno=True).prctl(operation, argument, 0, 0, 0):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def die_with_parent(number: int, parent: int) -> None:
    """Have the kernel send this process the signal when its parent, which had this process id, ends."""
    _prctl(PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:  # It ended before we asked.
        os.kill(os.getpid(), number)


def adopt_orphans() -> None:
    """Make this process a subreaper. That outlives `exec`, and is not inherited."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def refuse_new_privileges() -> None:
    """Programs that this process and its descendants run get no privileges of their own (set-user-ID, capabilities)."""
    _prctl(PR_SET_NO_NEW_PRIVS, 1)


def hide_from_others() -> None:
    """Keep other processes of the same user from this one's memory, environment and descriptors (ptrace, /proc).

    It dumps no core either. Root may look.
    """
    _prctl(PR_SET_DUMPABLE, 0)


def children() -> set[int]:
    """The process ids of this process's children, zombies included; none where /proc does not tell.

    `OSError` if it cannot be asked now: there may be no file descriptor left.
    """
    found: set[int] = set()
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for thread in os.listdir("/proc/self/task"):  # noqa: PTH208 - pathlib would cost its import at every start
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # That thread has ended.
                found.update(_children_of(thread))
    return found


def _children_of(thread: str) -> list[int]:
    with open(f"/proc/self/task/{thread}/children", "rb") as file:  # noqa: PTH123
        return [int(pid) for pid in file.read().split()]


def end_children() -> None:
    """Kill all children of this process, which is a subreaper, and theirs, until none is left."""
    while pids := children():
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        for pid in pids:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
