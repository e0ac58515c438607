"""What a process asks of Linux about itself and its children, by prctl(2), limits and /proc.

A *subreaper* is a process that becomes the parent of those of its descendants whose own parent has ended, as init
would otherwise: a daemon made by a task (fork, setsid, fork) does not get away from it.

The launcher of every executor imports this, and next to nothing else: what takes time to import is done without.
"""

# ruff: noqa: PTH123, PTH208
from __future__ import annotations

import ctypes
import os
import resource
import sys

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
_IOLBF = 1
SIGKILL = 9
"""`signal.SIGKILL`, without the import of its module, which takes longer than all others here together."""


def _prctl(operation: int, argument: int) -> None:
    """Elsewhere than on Linux nothing is asked."""
    if sys.platform == "linux" and ctypes.CDLL(None, use_errno=True).prctl(operation, argument, 0, 0, 0):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def die_with_parent(number: int, parent: int) -> None:
    """Have the kernel send this process the signal when its parent, which had this process id, ends."""
    _prctl(PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:  # It ended before we asked.
        os.kill(os.getpid(), number)


def adopt_orphans(adopt: bool = True) -> None:
    """Make this process a subreaper, or none. That outlives `exec`, and is not inherited."""
    _prctl(PR_SET_CHILD_SUBREAPER, int(adopt))


def refuse_new_privileges() -> None:
    """Programs that this process and its descendants run get no privileges of their own (set-user-ID, capabilities)."""
    _prctl(PR_SET_NO_NEW_PRIVS, 1)


def hide_from_others() -> None:
    """Keep other processes of the same user from this one's memory, environment and descriptors (ptrace, /proc).

    It dumps no core either. Root may look.
    """
    _prctl(PR_SET_DUMPABLE, 0)


def line_buffer_c_output() -> None:
    """Have the C library of this process write standard output at the end of each line, as it does in a terminal."""
    library = ctypes.CDLL(None)
    try:
        stdout = ctypes.c_void_p.in_dll(library, "stdout")
    except ValueError:
        return  # A C library that has it under another name.
    library.setvbuf(stdout, None, _IOLBF, 0)


def lower_limit(kind: int, limit: int, grace: int = 0) -> None:
    """Let this process have no more, and no means to have more than `grace` beyond it. 0: nothing is changed."""
    _, hard = resource.getrlimit(kind)
    if limit and (hard == resource.RLIM_INFINITY or limit < hard):
        resource.setrlimit(kind, (limit, limit + grace if hard == resource.RLIM_INFINITY else min(limit + grace, hard)))


def restore_soft_limit(kind: int, soft: int) -> None:
    """Have the soft limit that this process's parent had before it raised its own; the hard one stays."""
    _, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))


def children(of: int | str = "self", threads_max: int | None = None) -> set[int]:
    """The process ids of a process's children, zombies included; none where /proc does not tell.

    `of`: its process id. `threads_max`: look at no more of its threads. `OSError` if it cannot be asked now: there may
    be no file descriptor left.
    """
    found: set[int] = set()
    try:
        threads = os.listdir(f"/proc/{of}/task")[:threads_max]
    except FileNotFoundError:
        return found
    for thread in threads:
        try:
            with open(f"/proc/{of}/task/{thread}/children", "rb") as file:
                found.update(map(int, file.read().split()))
        except (FileNotFoundError, ProcessLookupError):
            pass  # The thread has ended.
    return found


def parent_of(pid: int) -> int:
    """The process id of this process's parent. `OSError` if there is no such process, or it cannot be asked now."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[1])
