"""What a process asks Linux about itself and its children: by prctl(2), by limits and from /proc.

A *subreaper* is a process that becomes the parent of those of its descendants whose own parent has ended; without one
init would. So a task that makes a daemon of itself (fork, setsid, fork) stays below the subreaper.

The launcher of every executor imports this module, and hardly any other. So this module imports nothing that takes
long.
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
    """Call prctl(2), on Linux; elsewhere do nothing."""
    if sys.platform == "linux" and ctypes.CDLL(None, use_errno=True).prctl(operation, argument, 0, 0, 0):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def die_with_parent(number: int, parent: int) -> None:
    """Have the kernel send this process the signal when its parent, which had this process id, ends."""
    _prctl(PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:  # The parent ended before the kernel was asked.
        os.kill(os.getpid(), number)


def adopt_orphans(adopt: bool = True) -> None:
    """Make this process a subreaper, or no longer one. `exec` does not change that, and children do not inherit it."""
    _prctl(PR_SET_CHILD_SUBREAPER, int(adopt))


def refuse_new_privileges() -> None:
    """From now on programs that this process and its descendants run get no further privileges (set-user-ID,
    capabilities)."""
    _prctl(PR_SET_NO_NEW_PRIVS, 1)


def hide_from_others() -> None:
    """Keep other processes of the same user from this one's memory, environment and descriptors (ptrace, /proc).

    The process dumps no core either. Root may still look into it.
    """
    _prctl(PR_SET_DUMPABLE, 0)


def line_buffer_c_output() -> None:
    """Have the C library of this process write standard output at the end of each line, as it does in a terminal."""
    library = ctypes.CDLL(None)
    try:
        stdout = ctypes.c_void_p.in_dll(library, "stdout")
    except ValueError:
        return  # Some C libraries have another name for the stream.
    library.setvbuf(stdout, None, _IOLBF, 0)


def lower_limit(kind: int, limit: int, grace: int = 0) -> None:
    """Lower this process's soft limit to `limit`, and the hard limit to `limit + grace`, up to which the process may
    raise it again. `limit` 0: change nothing."""
    _, hard = resource.getrlimit(kind)
    if limit and (hard == resource.RLIM_INFINITY or limit < hard):
        resource.setrlimit(kind, (limit, limit + grace if hard == resource.RLIM_INFINITY else min(limit + grace, hard)))


def restore_soft_limit(kind: int, soft: int) -> None:
    """Set the soft limit that this process's parent had before it raised its own; the hard limit stays."""
    _, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))


def children(of: int | str = "self", threads_max: int | None = None) -> set[int]:
    """The process ids of a process's children, zombies included; an empty set where there is no /proc.

    `of`: the process id. `threads_max`: look at no more of the process's threads. `OSError` if /proc cannot be read
    now: there may be no file descriptor left.
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
    """The process id of this process's parent. `OSError` if there is no such process, or /proc cannot be read now."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[1])
