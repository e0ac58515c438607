"""A process that keeps one command: starts it, waits for its end, and leaves nothing of it behind.

It is a copy of the executor, made by fork, and a subreaper: whatever the command starts stays below it, also what makes
a session of its own and lets its parent end (a daemon). When the command has ended, when the executor says so (SIGTERM)
or has itself ended, whatever it died of (the kernel sends the same), it kills all that is left below it.

What it cannot end: what the command has had done elsewhere, by a service of the machine.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import os
import signal
import struct
import subprocess
from collections.abc import Sequence
from typing import NoReturn

from frontends.command.tasks import CommandTask
from sparrow_py.process_control import adopt_orphans, die_with_parent, end_children
from sparrow_py.task_limits import TaskLimits

HEAD = struct.Struct("=ii")
"""Of a report: an errno, if the command could not be started, with the path at fault; else 0 and its exit code."""
REPORT_BYTES_MAX = 8192
HIGH = 64
"""Descriptors below it are the command's, from 0; none of the executor's are left open."""
WAITED_FOR = (signal.SIGCHLD, signal.SIGTERM)


def start_keeper(
    task: CommandTask, environment: dict[str, str], limits: TaskLimits, descriptors: Sequence[int], report: int
) -> int:
    """The process id of the keeper of a new command with these descriptors for its stdin, stdout and stderr.

    `report` is where it writes how that ended; `OSError` if there can be no other process.
    """
    executor = os.getpid()
    # Until it has a handler of its own the keeper has the executor's, which would do nothing there.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    try:
        pid = os.fork()
        if pid == 0:
            _keep(task, environment, limits, [*descriptors, report], executor, mask)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    return pid


def end_keeper(pid: int) -> None:
    """Have the command killed, and all that it started. Only before the keeper was reaped."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)


def read_report(report: bytes) -> int:
    """The exit code of a command whose keeper has reported so; `OSError` if it was not started."""
    number, exit_code = HEAD.unpack_from(report)
    if number:
        raise OSError(number, os.strerror(number), os.fsdecode(report[HEAD.size :]) or None)
    return int(exit_code)


def _keep(
    task: CommandTask,
    environment: dict[str, str],
    limits: TaskLimits,
    descriptors: list[int],
    executor: int,
    mask: set[signal.Signals | int],
) -> NoReturn:
    """The keeper's life."""
    status = 1
    told: list[int] = []
    try:
        gc.freeze()  # Its pages stay the executor's, too.
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, lambda number, _: told.append(number))
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.setsid()  # A signal to the executor's process group is not for it.
        report = _arrange(descriptors)
        adopt_orphans()
        die_with_parent(signal.SIGTERM, executor)
        os.write(report, _run(task, environment, limits, told))
        status = 0
    finally:
        os._exit(status)


def _arrange(descriptors: list[int]) -> int:
    """Have these be 0, 1, 2, …, and close all others; returns the last, which the command does not get."""
    for number, high in enumerate([fcntl.fcntl(descriptor, fcntl.F_DUPFD, HIGH) for descriptor in descriptors]):
        os.dup2(high, number, inheritable=number < len(descriptors) - 1)
    os.closerange(len(descriptors), os.sysconf("SC_OPEN_MAX"))
    return len(descriptors) - 1


def _run(task: CommandTask, environment: dict[str, str], limits: TaskLimits, told: list[int]) -> bytes:
    """Run the command; the report of how it ended. Nothing of it is left then."""
    try:
        process = subprocess.Popen(
            task.argv,
            cwd=task.cwd or None,
            env=environment | task.env,
            start_new_session=True,
            preexec_fn=limits.impose if any(limits) else None,  # noqa: PLW1509 - this process has no other threads
        )
    except OSError as error:
        path = os.fsencode(error.filename or "")[: REPORT_BYTES_MAX - HEAD.size]
        return HEAD.pack(error.errno or 0, 0) + path
    status = _end_of(process.pid, told)
    end_children()
    return HEAD.pack(0, -signal.SIGKILL if status is None else os.waitstatus_to_exitcode(status))


def _end_of(pid: int, told: list[int]) -> int | None:
    """The wait status of this child, once it has ended; None if it has to be killed before. Reaps all others.

    `told`: SIGTERMs that have come before.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, WAITED_FOR)  # Not before: the command would inherit it.
    while True:
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == pid:
                    return ended[1]
        if signal.SIGTERM in told:
            return None
        told = [signal.sigwait(WAITED_FOR)]
