"""The command executor: `python -m frontends.command.executor`, started by a node monitor.

One process runs as many commands at once as it has places (`SPARROW_EXECUTOR_PLACES`); further runs
wait in order, and can be revoked. One that runs can be killed; one that is to yield is sent
SIGTERM. A command is started without a shell, in a session of its own, with a clean environment,
within the limits that the operator has set. When it exits its task is over, and all that it left
running is killed. When the node monitor goes away, all commands are killed.

A command that exits with 0 is a finished task; with another code, or killed by a signal, a failed
one whose result says what it wrote. One that cannot be started is a failed task without a result.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from frontends.command.keepers import Keepers
from frontends.command.process import READ_BYTES, Command, clean_environment, exit_error, start_error
from frontends.command.tasks import APP, decode_task, encode_result, is_json
from sparrow_py.errors import InvalidOption, InvalidRequest, LinkError, SparrowError
from sparrow_py.executors.executor_connection import places_from_environment, write_to_log
from sparrow_py.executors.executor_files import read, store
from sparrow_py.executors.executor_protocol import (
    EXECUTOR_PROTOCOL_VERSION,
    FILES_SUFFIX,
    FILES_VARIABLE,
    ID_VARIABLE,
    NOT_KEPT,
    SOCKET_VARIABLE,
    TO_EXECUTOR,
    Data,
    Done,
    ExecutorHello,
    FrameSplitter,
    Kill,
    Returned,
    Revoke,
    Run,
    Yield,
    encode_frame,
)
from sparrow_py.job import TaskStatus
from sparrow_py.limits.task_limits import TaskLimits
from sparrow_py.processes.descendants import end_children
from sparrow_py.processes.orphans import Orphans
from sparrow_py.processes.process_control import hide_from_others

KILLED = "it was killed"
Outcome = tuple[TaskStatus, Data, str]


class CommandExecutor:
    """Starts queued runs as places become free, and reports each. Calls `stop` if it cannot go on."""

    def __init__(
        self,
        places: int,
        writer: asyncio.StreamWriter,
        files_directory: str,
        stop: Callable[[], object],
        orphans: Orphans,
    ) -> None:
        self._free = list(range(1, places + 1))
        """The numbers of free places, a heap: the lowest is taken first."""
        self._writer = writer
        self._files_directory = files_directory
        self._stop = stop
        self._limits = TaskLimits.from_environment()
        self._keepers = Keepers(clean_environment(), self._limits, orphans)
        self._queue: deque[Run] = deque()
        self._running: set[asyncio.Task[None]] = set()
        self._commands: dict[int, Command | None] = {}
        """The command of each run that has a place; None until it is started."""
        self._killed: set[int] = set()
        """Runs that are to be killed, whether they have a place or are queued."""

    def receive(self, messages: Iterable[Any]) -> None:
        """Take what the node monitor sent. Commands have no use for common bytes."""
        for message in messages:
            if isinstance(message, Run):
                self._queue.append(message)
            elif isinstance(message, Revoke):
                self._revoke(set(message.runs))
            elif isinstance(message, Kill):
                self._kill(set(message.runs))
            elif isinstance(message, Yield) and (command := self._commands.get(message.run)) is not None:
                command.terminate()
        self._start_queued()

    def _revoke(self, revoked: set[int]) -> None:
        returned = [run.run for run in self._queue if run.run in revoked]
        self._queue = deque(run for run in self._queue if run.run not in revoked)
        self._killed.difference_update(returned)
        self._writer.write(encode_frame([Returned(returned)]))

    def _kill(self, killed: set[int]) -> None:
        """Kill these runs. One that has not started will not start; one that has ended is reported as it ended."""
        self._killed |= killed & (self._commands.keys() | {run.run for run in self._queue})
        for run in killed:
            command = self._commands.get(run)
            if command is not None:
                command.kill()

    def _start_queued(self) -> None:
        while self._free and self._queue:
            place = heapq.heappop(self._free)
            run = self._queue.popleft()
            self._commands[run.run] = None
            task = asyncio.create_task(self._run_command(run, place))
            self._running.add(task)
            task.add_done_callback(self._run_ended)

    def _run_ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()):
            # The run cannot be reported from here; the node monitor reports the runs of an executor that ended.
            print(f"sparrow command executor: {error}", file=sys.stderr)
            self._stop()

    def close(self) -> None:
        """End all commands."""
        self._keepers.close()
        end_children()  # Processes of commands whose keepers were killed.

    async def _run_command(self, run: Run, place: int) -> None:
        started_at_s, started_s = time.time(), time.monotonic()
        status, result, error = await self._outcome(run, place)
        service_s = time.monotonic() - started_s
        command = self._commands.pop(run.run)
        self._killed.discard(run.run)
        done = Done(run.run, status, result, error, started_at_s, service_s)
        if run.measure and command is not None:
            done.used = command.used
        self._writer.write(encode_frame([done]))
        # A broken connection is seen, and dealt with, where it is read.
        with contextlib.suppress(ConnectionError):
            await self._writer.drain()
        heapq.heappush(self._free, place)
        self._start_queued()

    async def _outcome(self, run: Run, place: int) -> Outcome:
        """Status, result and error of this run, which has this place."""
        if run.run in self._killed:
            return TaskStatus.FAILED, b"", KILLED
        try:
            payload = read(run.payload)
            task = decode_task(payload).in_place(str(place))
        except (InvalidRequest, OSError) as error:
            return TaskStatus.FAILED, b"", str(error)
        try:
            command = Command(task, self._keepers)
            self._commands[run.run] = command
            result = await command.wait()
        except OSError as error:
            killed = run.run in self._killed  # Else the keeper was killed, or the command could not be started.
            return TaskStatus.FAILED, b"", KILLED if killed else start_error(error, task)
        killed = run.run in self._killed and result.exit_code == -signal.SIGKILL
        error_text = KILLED if killed else exit_error(result.exit_code, self._limits)
        return self._with_stored_result(encode_result(result, as_json=is_json(payload)), error_text)

    def _with_stored_result(self, result: bytes, error: str) -> Outcome:
        """The outcome of a command with this result, which goes to a file if it is large."""
        status = TaskStatus.FAILED if error else TaskStatus.FINISHED
        try:
            return status, store(result, self._files_directory), error
        except OSError as reason:
            kept = f"the result of {len(result)} bytes {NOT_KEPT}{reason.strerror or reason}"
            return TaskStatus.FAILED, b"", "; ".join(filter(None, (error, kept)))


async def serve(path: str, places: int) -> None:
    """Run the commands that come through the socket at `path`, until it closes or this process is told to end."""
    current = asyncio.current_task()
    assert current is not None
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, current.cancel)
    # Ctrl-C reaches the terminal's whole process group; it is the node monitor's to act on. Not SIG_IGN,
    # which commands would inherit.
    loop.add_signal_handler(signal.SIGINT, _ignore)
    reader, writer = await asyncio.open_unix_connection(path)
    hello = ExecutorHello(
        version=EXECUTOR_PROTOCOL_VERSION,
        id=os.environ.get(ID_VARIABLE, ""),
        app=APP,
        places=places,
        runtime="",
        pid=os.getpid(),
    )
    writer.write(encode_frame([hello]))
    write_to_log()
    files_directory = os.environ.get(FILES_VARIABLE) or str(Path(path).with_suffix(FILES_SUFFIX))
    executor = CommandExecutor(places, writer, files_directory, current.cancel, Orphans())
    splitter = FrameSplitter(TO_EXECUTOR)
    # A reset connection is a node monitor that died: an end like any other.
    try:
        with contextlib.suppress(asyncio.CancelledError, ConnectionResetError):
            while data := await reader.read(READ_BYTES):
                executor.receive(splitter.feed(data))
    finally:
        executor.close()


def _ignore() -> None:
    """Do nothing: the node monitor acts on this signal."""


def main() -> int:
    """Run until the node monitor goes away; the process's exit code."""
    try:
        # This process reports for all users' commands: no task may read its memory or use its socket.
        hide_from_others()
        places = places_from_environment()
        path = os.environ.get(SOCKET_VARIABLE)
        if not path:
            raise LinkError(f"{SOCKET_VARIABLE} is not set; a node monitor sets it when it starts this")
        if not hasattr(os, "memfd_create"):
            raise InvalidOption("enable_command", sys.platform, "on Linux only")
        asyncio.run(serve(path, places))
    except (SparrowError, OSError) as error:
        print(f"sparrow command executor: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
