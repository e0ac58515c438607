"""One running command: started without a shell, its output captured up to a limit, ended with all that it started.

It runs below a keeper, a process that sees to its end. That the keeper has ended is awaited on a pidfd.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
from io import FileIO

from frontends.command.keeper import REPORT_BYTES_MAX, end_keeper, read_report, start_keeper
from frontends.command.tasks import CommandResult, CommandTask
from sparrow_py.orphans import Orphans
from sparrow_py.task_limits import NO_LIMITS, TaskLimits

STREAM_BYTES_MAX = 256 << 10
"""What is kept of stdout, and of stderr."""
READ_BYTES = 64 << 10
DRAIN_S = 1.0
"""How long to wait for the end of the output once the command and all that it started have ended.

Only a process that was given the pipes, and that the command did not start, can hold them open that long."""
KEEPER_KILLED = "the process that kept it was killed, and it with that"
INHERITED_VARIABLES = ("PATH", "HOME", "LANG", "TZ")


def clean_environment() -> dict[str, str]:
    """The variables that every command gets from its node."""
    return {name: os.environ[name] for name in INHERITED_VARIABLES if name in os.environ}


class Capture:
    """Reads a pipe to its end, and keeps its first `STREAM_BYTES_MAX` bytes."""

    def __init__(self, pipe: FileIO) -> None:
        self._pipe = pipe
        self._loop = asyncio.get_running_loop()
        self._kept = bytearray()
        self.truncated = False
        self.ended = asyncio.Event()
        os.set_blocking(pipe.fileno(), False)
        self._loop.add_reader(pipe.fileno(), self._read)

    def _read(self) -> None:
        data = self._pipe.read(READ_BYTES)
        if data is None:
            return
        if not data:
            self.close()
            return
        room = STREAM_BYTES_MAX - len(self._kept)
        self._kept += data[:room]
        # Read on past the limit, for the command must not block in a write that nobody takes.
        self.truncated = self.truncated or len(data) > room

    def close(self) -> None:
        """Stop reading, at the end or before it."""
        if not self._pipe.closed:
            self._loop.remove_reader(self._pipe.fileno())
            self._pipe.close()
            self.ended.set()

    def text(self) -> bytes:
        """What was kept."""
        return bytes(self._kept)


class Command:
    """A command that runs from here on; `OSError` if there can be no process for it."""

    def __init__(
        self, task: CommandTask, environment: dict[str, str], limits: TaskLimits, orphans: Orphans | None
    ) -> None:
        self._orphans = orphans
        self._ended = False
        with contextlib.ExitStack() as theirs, contextlib.ExitStack() as ours:
            stdin = theirs.enter_context(_input_file(task.stdin))
            (stdout, into_stdout), (stderr, into_stderr), (report, into_report) = (_pipe() for _ in range(3))
            for file in (into_stdout, into_stderr, into_report):
                theirs.enter_context(file)
            for file in (stdout, stderr, report):
                ours.enter_context(file)
            descriptors = [file.fileno() for file in (stdin, into_stdout, into_stderr)]
            self._keeper = start_keeper(task, environment, limits, descriptors, into_report.fileno())
            if orphans is not None:
                orphans.started(self._keeper)
            ours.pop_all()
        self._report = report
        try:
            self._pidfd = os.pidfd_open(self._keeper)
            self._stdout = Capture(stdout)
            self._stderr = Capture(stderr)
        except BaseException:
            self.close()
            raise

    def kill(self) -> None:
        """End it, and all that it started; `wait` returns."""
        if not self._ended:  # From then on the number may be another's.
            end_keeper(self._keeper)

    def close(self) -> None:
        """End it, and all that it started, and wait for that."""
        self.kill()
        self._reap()

    async def wait(self) -> CommandResult:
        """Its result, once it has ended and nothing of it is left; `OSError` if it could not be started."""
        await _readable(self._pidfd)
        self._reap()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_S):
                await self._stdout.ended.wait()
                await self._stderr.ended.wait()
        self._stdout.close()
        self._stderr.close()
        with self._report:
            report = self._report.read(REPORT_BYTES_MAX)
        if not report:
            raise OSError(errno.ECHILD, KEEPER_KILLED)
        truncated = self._stdout.truncated or self._stderr.truncated
        return CommandResult(read_report(report), self._stdout.text(), self._stderr.text(), truncated)

    def _reap(self) -> None:
        if self._ended:
            return
        os.waitpid(self._keeper, 0)
        self._ended = True
        if self._orphans is not None:
            self._orphans.ended(self._keeper)


def _pipe() -> tuple[FileIO, FileIO]:
    reading, writing = os.pipe()
    return FileIO(reading), FileIO(writing, "w")


def _input_file(data: bytes) -> FileIO:
    """A file in memory with this content: unlike a pipe it needs nobody to write it while the command runs."""
    if not data:
        return FileIO(os.devnull)
    file = FileIO(os.memfd_create("stdin"), "r+")
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]
    file.seek(0)
    return file


async def _readable(descriptor: int) -> None:
    """Wait until this descriptor is readable, and close it."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def exit_error(exit_code: int, limits: TaskLimits = NO_LIMITS) -> str:
    """The error of a task whose command ended with this code; empty if it was 0."""
    if exit_code >= 0:
        return f"exit code {exit_code}" if exit_code else ""
    number = -exit_code
    if number == signal.SIGXCPU and limits.cpu_s:
        return f"it used more than task_cpu_s_max = {limits.cpu_s} s of CPU time"
    try:
        return f"killed by signal {number} ({signal.Signals(number).name})"
    except ValueError:  # most real-time signals have no name
        return f"killed by signal {number}"


def start_error(error: OSError, task: CommandTask) -> str:
    """The error of a task whose command did not start, naming what is in the way."""
    reason = error.strerror or str(error)
    if reason == KEEPER_KILLED:
        return reason
    if task.cwd and error.filename == task.cwd:
        if isinstance(error, FileNotFoundError):
            return f"working directory {task.cwd!r} does not exist"
        return f"cannot use working directory {task.cwd!r}: {reason}"
    if isinstance(error, FileNotFoundError):
        return f"command not found: {task.argv[0]!r}"
    if error.errno == errno.E2BIG:
        return f"cannot run {task.argv[0]!r}: argv and env are too long for this node"
    return f"cannot run {task.argv[0]!r}: {reason}"
