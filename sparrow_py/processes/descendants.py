"""Ends all processes below this one, which is a subreaper: whole trees of them at once.

A tree that grows fast cannot be killed level by level. So each process is stopped first, after which it forks no more,
and then its children are looked for. One turn stops and kills a limited number of processes; those that it leaves lose
their parent, and are children of this process in the next turn.

A process id may belong to another process by the time it is used. So each process is held by a descriptor
(pidfd_open(2)), and gets signals by that descriptor, after its parent, which is held as well, has been seen to be one
of ours. A process that was reaped in between gets no signal.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Set as AbstractSet

from sparrow_py.processes.process_control import children, parent_of

HELD_MAX = 64
"""Most processes in a turn; each takes a descriptor."""
LOOKS_MAX = 3
"""How often a turn looks for new children. The second look finds some only if a stopped process was made to go on."""
THREADS_MAX = 8
"""Most threads of a process that are asked for their children: each thread has its own."""


def end_children() -> None:
    """Kill all descendants of this process, and reap them, until none is left."""
    while has_children() and kill_descendants():
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-1, 0)
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def has_children() -> bool:
    """Whether this process has any child that was not reaped: takes less than to list them."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def kill_descendants(spared: AbstractSet[int] = frozenset()) -> set[int]:
    """Kill the trees below this process, except those of the `spared` children, or as much of them as a turn may.

    Returns the process ids that were found, those of processes that had ended included. No process is reaped. `OSError`
    if the children cannot be listed now: there may be no descriptor left.
    """
    roots = children() - spared
    if not roots:
        return roots
    held: dict[int, int] = {}
    try:
        _stop_all(spared, held)
        for descriptor in held.values():
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    finally:
        for descriptor in held.values():
            os.close(descriptor)
    for pid in roots:  # They were not reaped, so the ids are still theirs. Some of them may not have been held.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return roots | held.keys()


def _stop_all(spared: AbstractSet[int], held: dict[int, int]) -> None:
    """Stop the processes below this one, until no new one appears; `held` gets their process ids and descriptors."""
    me = os.getpid()
    for _ in range(LOOKS_MAX):
        parents, before = [me, *held], len(held)
        for parent in parents:  # The list grows meanwhile.
            for pid in _children_now(parent, me) - spared - held.keys():
                if len(held) == HELD_MAX:
                    return
                if (descriptor := _stopped(pid, parent, held.get(parent))) is not None:
                    held[pid] = descriptor
                    parents.append(pid)
        if len(held) == before:
            return


def _children_now(parent: int, me: int) -> set[int]:
    try:
        return children() if parent == me else children(parent, THREADS_MAX)
    except OSError:
        return set()


def _stopped(pid: int, parent: int, parent_descriptor: int | None) -> int | None:
    """Stop this child and return a descriptor of it; None if that fails, or if it is not its parent's child any more.

    `parent_descriptor` holds the parent; None: the parent is this process.
    """
    descriptor = None
    try:
        descriptor = os.pidfd_open(pid)
        if parent_of(pid) == parent:
            if parent_descriptor is not None:
                signal.pidfd_send_signal(parent_descriptor, 0)  # Fails if the parent has been reaped.
            signal.pidfd_send_signal(descriptor, signal.SIGSTOP)  # Fails if the child has been reaped.
            held, descriptor = descriptor, None
            return held
    except OSError:
        pass
    finally:
        if descriptor is not None:
            os.close(descriptor)
    return None
