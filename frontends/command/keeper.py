"""A process that outlives its executor just long enough to kill the commands it left behind.

An executor that is killed with SIGKILL cannot clean up, and its commands would run on while
their tasks are started again elsewhere and their slots are given to others. PR_SET_PDEATHSIG
would need code between fork and exec (`preexec_fn`, which gives up vfork) and reaches only the
command itself. So a child, forked before anything else happens, reads from a pipe which process
groups run, and kills those that are left when the pipe closes: at the executor's end, whatever it was.

What it cannot reach: a process that made a session of its own (a daemon), and a command whose
executor was killed in the instant between starting it and writing so into the pipe.
"""

from __future__ import annotations

import contextlib
import os
import signal
import struct

from sparrow_py.errors import ClusterError

NUMBER = struct.Struct("=i")
"""A process group that started, or, negative, one that ended. Writes so short are atomic."""


def kill_group(group: int) -> None:
    """Kill all processes of this group, if there are any and they may be killed."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


class Keeper:
    """The executor's end of the pipe. Make it before there are threads or an event loop."""

    def __init__(self) -> None:
        self._groups: set[int] = set()
        reading, self._pipe = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(self._pipe)
            _keep(reading)
        os.close(reading)
        self.pidfd = os.pidfd_open(self._pid)
        """Readable once the keeper has died, which only a kill brings about: then nothing may run on."""

    def started(self, group: int) -> None:
        """This process group is to be killed at the executor's end."""
        self._groups.add(group)
        self._write(group)

    def ended(self, group: int) -> None:
        """This one is not. Say so before its leader is reaped: from then on its number may be another's."""
        self._groups.discard(group)
        self._write(-group)

    def close(self) -> None:
        """Kill what is left."""
        for group in self._groups:
            kill_group(group)
        os.close(self._pipe)
        os.close(self.pidfd)
        os.waitpid(self._pid, 0)

    def _write(self, number: int) -> None:
        try:
            os.write(self._pipe, NUMBER.pack(number))
        except BrokenPipeError:
            raise ClusterError("the executor's keeper was killed") from None


def _keep(pipe: int) -> None:
    """The child's life. Never returns."""
    status = 1
    try:
        os.setsid()  # so that a signal to the executor's process group or terminal leaves it alone
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        groups: set[int] = set()
        with os.fdopen(pipe, "rb") as numbers:
            while data := numbers.read(NUMBER.size):
                (group,) = NUMBER.unpack(data)
                if group > 0:
                    groups.add(group)
                else:
                    groups.discard(-group)
        for group in groups:
            kill_group(group)
        status = 0
    finally:
        os._exit(status)
