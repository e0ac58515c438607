"""One running command: started without a shell, its output captured up to a limit, ended with all that it started.

The command runs below a keeper, a process that waits for its end and reports it.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
from io import FileIO

import msgspec

from frontends.command.keeper import TASK_BYTES_MAX, Start
from frontends.command.keepers import Keepers
from frontends.command.tasks import CommandResult, CommandTask, encode_task
from sparrow_py.executors.executor_protocol import Used
from sparrow_py.limits.task_limits import NO_LIMITS, TaskLimits

STREAM_BYTES_MAX = 256 << 10
"""Bytes that are kept of stdout, and of stderr."""
READ_BYTES = 64 << 10
READS_MAX = 4
"""Reads of a command's stream after its end, each of `READ_BYTES`: a pipe holds no more, unless it was enlarged."""
LISTEN_AFTER_S = 0.005
"""Output is read while a command runs once it has run for so long: pipes hold it until then."""
DRAIN_S = 1.0
"""How long to wait for the end of the output once the command and all that it started have ended.

Only a process that was given the pipes, and that the command did not start, can hold them open that long."""
KEEPER_KILLED = "the process that had started it was killed, and the command with that process"
INHERITED_VARIABLES = ("PATH", "HOME", "LANG", "TZ")


def clean_environment() -> dict[str, str]:
    """The variables that every command gets from its node."""
    return {name: os.environ[name] for name in INHERITED_VARIABLES if name in os.environ}


class Capture:
    """Reads a pipe to its end, and keeps its first `STREAM_BYTES_MAX` bytes.

    A short command has ended before anybody looks (`read_rest`), which takes least. For one that goes on the event loop
    reads (`listen`), as the command must not wait for room in the pipe.
    """

    def __init__(self, pipe: FileIO) -> None:
        self._pipe = pipe
        self._loop = asyncio.get_running_loop()
        self._kept = bytearray()
        self._listens = False
        self.truncated = False
        self.ended = asyncio.Event()
        os.set_blocking(pipe.fileno(), False)

    def listen(self) -> None:
        """Have the event loop read from now on."""
        if not self._listens and not self._pipe.closed:
            self._listens = True
            self._loop.add_reader(self._pipe.fileno(), self._read)

    def read_rest(self) -> bool:
        """Read what is there; whether that was all."""
        for _ in range(READS_MAX):
            if self._pipe.closed or not self._read():
                break
        return self._pipe.closed

    def _read(self) -> bool:
        """Read once; whether there was something."""
        data = self._pipe.read(READ_BYTES)
        if data is None:
            return False
        if not data:
            self.close()
            return False
        room = STREAM_BYTES_MAX - len(self._kept)
        self._kept += data[:room]
        # Read on past the limit, for the command must not block in a write that nobody takes.
        self.truncated = self.truncated or len(data) > room
        return True

    def close(self) -> None:
        """Stop reading, at the end or before it."""
        if not self._pipe.closed:
            if self._listens:
                self._loop.remove_reader(self._pipe.fileno())
            self._pipe.close()
            self.ended.set()

    def kept(self) -> bytes:
        """The bytes that were kept."""
        return bytes(self._kept)


class Command:
    """A command, which is started when this object is made; `OSError` if there can be no process for it.

    used: there once it has ended.
    """

    used: Used | None = None

    def __init__(self, task: CommandTask, keepers: Keepers) -> None:
        encoded = encode_task(msgspec.structs.replace(task, stdin=b"") if task.stdin else task)
        with contextlib.ExitStack() as theirs, contextlib.ExitStack() as ours:
            files = []
            if len(encoded) > TASK_BYTES_MAX:
                # A file rather than a pipe: a keeper that does not read must not block the executor.
                files.append(theirs.enter_context(_file_in_memory(encoded)))
                encoded = b""
            if task.stdin:
                files.append(theirs.enter_context(_file_in_memory(task.stdin)))
            self._stdout, into_stdout = _captured(ours, theirs)
            self._stderr, into_stderr = _captured(ours, theirs)
            descriptors = [file.fileno() for file in (*files, into_stdout, into_stderr)]
            self._run = keepers.start(Start(encoded, descriptors, bool(task.stdin)))
            ours.pop_all()

    def kill(self) -> None:
        """Kill the command, and all that it started, so that `wait` returns."""
        self._run.kill()

    def terminate(self) -> None:
        """Send the command SIGTERM, which it may act on as it likes."""
        self._run.terminate()

    async def wait(self) -> CommandResult:
        """The result, once the command and all that it started have ended; `OSError` if it could not be started."""
        listening = asyncio.get_running_loop().call_later(LISTEN_AFTER_S, self._listen)
        try:
            report = await self._run.report
        finally:
            listening.cancel()
        if not all([self._stdout.read_rest(), self._stderr.read_rest()]):
            self._listen()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(DRAIN_S):
                    await self._stdout.ended.wait()
                    await self._stderr.ended.wait()
        self._stdout.close()
        self._stderr.close()
        if report is None:
            raise OSError(errno.ECHILD, KEEPER_KILLED)
        self.used = Used(report.cpu_s, report.memory_bytes)
        truncated = self._stdout.truncated or self._stderr.truncated
        return CommandResult(report.exit_code_or_error(), self._stdout.kept(), self._stderr.kept(), truncated)

    def _listen(self) -> None:
        self._stdout.listen()
        self._stderr.listen()


def _captured(ours: contextlib.ExitStack, theirs: contextlib.ExitStack) -> tuple[Capture, FileIO]:
    """A capture, which the stack `ours` closes, and the file to write to, which `theirs` closes."""
    reading, writing = os.pipe()
    writer = theirs.enter_context(FileIO(writing, "w"))
    reader = ours.enter_context(FileIO(reading))
    return ours.enter_context(contextlib.closing(Capture(reader))), writer


def _file_in_memory(data: bytes) -> FileIO:
    """A file to be read that has this content: unlike a pipe, it needs no writer in the meantime."""
    file = FileIO(os.memfd_create("command"), "r+")
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[file.write(rest) :]
        file.seek(0)
    except BaseException:
        file.close()
        raise
    return file


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
