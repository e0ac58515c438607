"""One running command: started without a shell, its output captured up to a limit, its process group killed.

The exit is awaited on a pidfd and the command reaped by ourselves, after what is left of its
process group was killed: as long as the leader is a zombie its number cannot be another's.
asyncio's own subprocesses reap first.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import subprocess
from io import FileIO
from typing import cast

from frontends.command.keeper import Keeper, kill_group
from frontends.command.tasks import CommandResult, CommandTask

STREAM_BYTES_MAX = 256 << 10
"""What is kept of stdout, and of stderr."""
READ_BYTES = 64 << 10
DRAIN_S = 1.0
"""How long to wait for the end of the output once the command has ended and its group was killed.

Only a process that made a session of its own can hold the pipes open that long."""
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
    """A command that runs from here on; `OSError` if it cannot be started."""

    def __init__(self, task: CommandTask, environment: dict[str, str], keeper: Keeper) -> None:
        self._process = _start(task, environment)
        self._keeper = keeper
        self._reaped = False
        try:
            keeper.started(self._process.pid)
            self._pidfd = os.pidfd_open(self._process.pid)
            self._stdout = Capture(cast(FileIO, self._process.stdout))
            self._stderr = Capture(cast(FileIO, self._process.stderr))
        except BaseException:
            self._kill_and_reap()
            raise

    def kill(self) -> None:
        """End it, and what it started in its process group; `wait` returns."""
        if not self._reaped:  # From then on the number may be another's.
            kill_group(self._process.pid)

    async def wait(self) -> CommandResult:
        """Its result, once it has ended. What it left running in its process group is killed."""
        await _readable(self._pidfd)
        exit_code = self._kill_and_reap()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_S):
                await self._stdout.ended.wait()
                await self._stderr.ended.wait()
        self._stdout.close()
        self._stderr.close()
        truncated = self._stdout.truncated or self._stderr.truncated
        return CommandResult(exit_code, self._stdout.text(), self._stderr.text(), truncated)

    def _kill_and_reap(self) -> int:
        kill_group(self._process.pid)
        self._keeper.ended(self._process.pid)
        self._reaped = True
        return self._process.wait()


def _start(task: CommandTask, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    with _input_file(task.stdin) as stdin:
        return subprocess.Popen(
            task.argv,
            bufsize=0,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=task.cwd or None,
            env=environment | task.env,
            start_new_session=True,
        )


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


def exit_error(exit_code: int) -> str:
    """The error of a task whose command ended with this code; empty if it was 0."""
    if exit_code >= 0:
        return f"exit code {exit_code}" if exit_code else ""
    number = -exit_code
    try:
        return f"killed by signal {number} ({signal.Signals(number).name})"
    except ValueError:  # most real-time signals have no name
        return f"killed by signal {number}"


def start_error(error: OSError, task: CommandTask) -> str:
    """The error of a task whose command did not start, naming what is in the way."""
    reason = error.strerror or str(error)
    if task.cwd and error.filename == task.cwd:
        if isinstance(error, FileNotFoundError):
            return f"working directory {task.cwd!r} does not exist"
        return f"cannot use working directory {task.cwd!r}: {reason}"
    if isinstance(error, FileNotFoundError):
        return f"command not found: {task.argv[0]!r}"
    if error.errno == errno.E2BIG:
        return f"cannot run {task.argv[0]!r}: argv and env are too long for this node"
    return f"cannot run {task.argv[0]!r}: {reason}"
