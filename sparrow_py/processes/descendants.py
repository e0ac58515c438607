"""To end processes below this one, which is a subreaper: whole trees of them at once.

Whoever kills a tree level by level is outrun by one that grows faster. So each process is stopped first, which forks no
more then, and its children are looked for after that. A turn of this is bounded; what it leaves loses its parent, and
is a child of this process in the next.

A process id may be another process's by the time it is used. A process is held by a descriptor (pidfd_open(2)), and
signalled by it once its parent, which is held as well, has been seen to be one of ours: what was reaped in between
gets no signal.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Set as AbstractSet

from sparrow_py.processes.process_control import children, parent_of

HELD_MAX = 64
"""Processes in a turn, each of which takes a descriptor."""
LOOKS_MAX = 3
"""For children, of each in a turn. The second finds some only where a stopped process was made to go on."""
THREADS_MAX = 8
"""Of a process, whose children are looked for: each thread has its own."""


def end_children() -> None:
    """Kill all descendants of this process, and reap them, until none is left."""
    while kill_descendants():
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-1, 0)
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def kill_descendants(spared: AbstractSet[int] = frozenset()) -> set[int]:
    """Kill the trees below this process but those of these children, or as much of them as a turn may.

    Returns the process ids that were found, also of those that had ended. None is reaped. `OSError` if it cannot be
    asked now which children there are: there may be no descriptor left.
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
    for pid in roots:  # Not reaped, so still ours; all, whether or not they could be held.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return roots | held.keys()


def _stop_all(spared: AbstractSet[int], held: dict[int, int]) -> None:
    """Stop what is below this process, until nothing new appears; process ids and descriptors go to `held`."""
    me = os.getpid()
    for _ in range(LOOKS_MAX):
        parents, before = [me, *held], len(held)
        for parent in parents:  # Which grow meanwhile.
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
    """Stop this child, and hold it; None if it cannot be, or is not its parent's child any more.

    `parent_descriptor` holds the parent; None: that is this process.
    """
    descriptor = None
    try:
        descriptor = os.pidfd_open(pid)
        if parent_of(pid) == parent:
            if parent_descriptor is not None:
                signal.pidfd_send_signal(parent_descriptor, 0)  # Fails if the parent's number may be another's.
            signal.pidfd_send_signal(descriptor, signal.SIGSTOP)  # Fails if what we saw was another's.
            held, descriptor = descriptor, None
            return held
    except OSError:
        pass
    finally:
        if descriptor is not None:
            os.close(descriptor)
    return None
