"""Supervision of executors: their processes, and their connections over the Unix socket."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import shutil
import signal
import socket
import struct
from asyncio.subprocess import Process
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, cast

from node_monitor.apps import App
from node_monitor.builtin import BUILTIN_APPS
from node_monitor.confinement import Confinement
from node_monitor.environment import passed_on
from node_monitor.result_files import ResultFiles
from node_monitor.socket_directory import SocketDirectory
from sparrow_py import executor_protocol as x
from sparrow_py.errors import LinkError, shown
from sparrow_py.orphans import Orphans

log = logging.getLogger("sparrow.node_monitor.executors")
HELLO_TIMEOUT_S = 30.0
PEER = struct.Struct("=iII")
"""The kernel's struct ucred: pid, uid, gid."""
STOP_GRACE_S = 1.0
ORPHANS_GRACE_S = 2.0
LAST_WORDS_S = 0.5
"""After a process ended its socket is read this long for what it sent last."""


class Events(Protocol):
    """Who is told what executors do."""

    def executor_up(self, executor: str, app: str, places: int) -> None:
        """It said hello."""

    def executor_failed(self, app: str, reason: str) -> None:
        """Its process ended before it said hello."""

    def executor_leaving(self, executor: str) -> None:
        """Its process ended, or its connection closed: it does nothing more. It may still tell what it did;
        `executor_down` follows."""

    def executor_down(self, executor: str, reason: str, failure: str = "") -> None:
        """It is gone. `failure`: why the task that it ran has failed, where it ended the executor by its own doing."""

    def executor_said(self, executor: str, messages: list[Any]) -> None:
        """It sent these messages; `LinkError` if it may not have.

        A `File` in a `Done` is the receiver's from then on, to be removed by it.
        """


def executor_environment(
    passed_on: Mapping[str, str], socket_path: str, executor: str, places: int, files: str
) -> dict[str, str]:
    """What an executor is started with: what is passed on of our own environment, and what it is told."""
    return {
        **passed_on,
        x.SOCKET_VARIABLE: socket_path,
        x.ID_VARIABLE: executor,
        x.PLACES_VARIABLE: str(places),
        x.FILES_VARIABLE: files,
    }


class ExecutorPool:
    """The executors of one node monitor.

    `files_directory` is where their large results are put, by default a directory that ends with the
    pool. `socket_dir` is the directory of the socket, by default a new one. `orphans` are this process's,
    if it has no children but executors. `environment` is passed on to executors, by default all but what is ours.
    """

    def __init__(
        self,
        apps: dict[str, App],
        events: Events,
        files_directory: str = "",
        socket_dir: str = "",
        confinement: Confinement | None = None,
        orphans: Orphans | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._apps = apps
        self._events = events
        self.confinement = confinement or Confinement()
        self._orphans = orphans
        self._environment = passed_on(os.environ, None) if environment is None else environment
        self._files_directory = files_directory
        self._socket_dir = socket_dir
        self._numbers = itertools.count(1)
        self._connections: dict[str, _Connection] = {}
        self._unflushed: dict[str, _Connection] = {}
        self._processes: dict[str, Process] = {}
        self._app_of: dict[str, str] = {}
        self._starting: dict[str, str] = {}
        """Executor id to app of those whose hello is due."""
        self._files_of: dict[str, str] = {}
        """Executor id to its directory for large results, of those that were started."""
        self._supervisors: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._directory: SocketDirectory | None = None
        self._stopping = False

    @property
    def socket_path(self) -> str:
        """Where executors connect; empty until `start`."""
        return self._directory.socket_path if self._directory else ""

    async def start(self) -> None:
        """Listen for executors, on a socket that only this user can reach.

        `InvalidOption` if the directory of the socket cannot be used, `OSError` if that of the results cannot.
        """
        account = self.confinement.account
        directory = self._directory = SocketDirectory(self._socket_dir, account)
        self._files = ResultFiles(self._files_directory or directory.files_path, account)
        if self._files_directory:
            Path(directory.files_path).symlink_to(Path(self._files_directory).absolute())
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(lambda: _Connection(self), directory.socket_path)
        directory.open_to_executors()

    async def stop(self) -> None:
        """End all executors, and what they started.

        One that runs many tasks is told by its connection, which closes, and has a moment to end
        what it started; then, and others at once, they are killed with their process groups.
        """
        self._stopping = True
        for connection in list(self._connections.values()):
            connection.close()
        for executor in list(self._processes):
            if not self._apps[self._app_of[executor]].plan.one_process:
                self._kill(executor)
        if self._supervisors:
            await asyncio.wait(self._supervisors, timeout=STOP_GRACE_S)
        for executor in list(self._processes):
            self._kill(executor)
        if self._server is not None:
            self._server.close()
        if self._supervisors:
            await asyncio.wait(self._supervisors, timeout=5)
        if self._orphans is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(ORPHANS_GRACE_S):
                    await self._orphans.gone()
        for files in self._files_of.values():
            self._files.remove(files)
        if self._directory is not None:
            self._directory.close()
            self._directory = None

    # ---- processes ---------------------------------------------------------------------------

    def start_executor(self, app: str, places: int) -> None:
        """Start a process for the app."""
        task = asyncio.create_task(self._supervise(app, places))
        self._supervisors.add(task)
        task.add_done_callback(self._supervisors.discard)

    async def _supervise(self, app: str, places: int) -> None:
        executor = f"{app}-{next(self._numbers)}"
        self._starting[executor] = app
        try:
            self._files_of[executor] = self._files.make(executor)
            process = await self._start_process(executor, app, places)
        except OSError as error:
            log.warning("executor of app %s cannot be started: %s", app, error)
            del self._starting[executor]
            self._remove_files(executor)
            self._events.executor_failed(app, f"cannot be started: {error}")
            return
        self._processes[executor] = process
        self._app_of[executor] = app
        if self._stopping:
            self._kill(executor)
        hello_timer = asyncio.get_running_loop().call_later(HELLO_TIMEOUT_S, self._no_hello, executor)
        code = await process.wait()
        reason = _exit_reason(code)
        hello_timer.cancel()
        connection = self._connections.get(executor)
        if connection is not None:
            self._events.executor_leaving(executor)
            # Something that the executor started may hold its socket open: don't wait for long.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LAST_WORDS_S):
                    await connection.closed.wait()
        self._kill(executor)  # What it may have left in its process group.
        if self._orphans is not None:
            self._orphans.ended(process.pid)  # And elsewhere.
        del self._processes[executor], self._app_of[executor]
        if self._stopping:
            return
        log.info("executor %s ended: %s", executor, reason)
        if connection is None:
            del self._starting[executor]
            self._events.executor_failed(app, reason)
        else:
            connection.close()
            self._gone(executor, f"executor {executor} {reason}", self._over_limit(app, code))
        self._remove_files(executor)

    async def _start_process(self, executor: str, app: str, places: int) -> Process:
        """`OSError` if it cannot be started."""
        argv = self._apps[app].argv
        if shutil.which(argv[0]) is None:  # Its launcher could only say so in the log.
            raise FileNotFoundError(f"no such command: {argv[0]}")
        limited = not self._apps[app].plan.one_process
        with self._orphans.starting() if self._orphans is not None else contextlib.nullcontext():
            process = await asyncio.create_subprocess_exec(
                *self.confinement.command(argv, limited=limited),
                env=executor_environment(
                    self._environment, self.socket_path, executor, places, self._files_of[executor]
                )
                | self.confinement.environment(),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=2,  # Standard output is for the announcement; what tasks print goes to the log.
                start_new_session=True,
            )
            if self._orphans is not None:
                self._orphans.started(process.pid)
        return process

    def _over_limit(self, app: str, code: int) -> str:
        """What an executor's task did that this exit code tells of; empty if it tells of none."""
        cpu_s = self.confinement.limits.cpu_s
        if cpu_s and code == -signal.SIGXCPU and not self._apps[app].plan.one_process:
            return f"it used more than task_cpu_s_max = {cpu_s} s of CPU time"
        return ""

    def _remove_files(self, executor: str) -> None:
        files = self._files_of.pop(executor, None)
        if files is not None:
            self._files.remove(files)

    def _no_hello(self, executor: str) -> None:
        if executor in self._starting:
            log.warning("executor %s did not say hello within %g s", executor, HELLO_TIMEOUT_S)
            self._kill(executor)

    def kill(self, executor: str) -> None:
        """End this executor at once, and what it started: `executor_down` follows.

        One that was not started here is disconnected; it is its owner's to end it.
        """
        if executor in self._processes:
            self._kill(executor)
        elif (connection := self._connections.get(executor)) is not None:
            connection.close()

    def _kill(self, executor: str) -> None:
        process = self._processes.get(executor)
        if process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)

    # ---- connections -------------------------------------------------------------------------

    def send(self, executor: str, message: x.ExecutorMessage) -> None:
        """Queue a message; `flush` sends it."""
        connection = self._connections.get(executor)
        if connection is not None:
            connection.queued.append(message)
            if type(message) is not x.ForgetCommon:  # That can wait for the next message that wakes the executor.
                self._unflushed[executor] = connection

    def flush(self) -> None:
        """Send what is queued, a frame per executor."""
        for connection in self._unflushed.values():
            connection.flush()
        self._unflushed.clear()

    def said(self, connection: _Connection, messages: list[Any]) -> None:
        """An executor sent these messages."""
        if connection.executor is None:
            self._hello(connection, messages.pop(0))
        executor = connection.executor
        if messages and executor is not None:
            for message in messages:
                if type(message) is x.Done and type(message.result) is x.File:
                    message.result = self._files.take(message.result, self._files_of.get(executor, self._files.path))
            self._events.executor_said(executor, messages)

    def _hello(self, connection: _Connection, hello: Any) -> None:
        if not isinstance(hello, x.ExecutorHello):
            raise LinkError("the first message is not a hello")
        x.check_version(hello.version)
        app = self._apps.get(hello.app)
        if app is None or hello.app in BUILTIN_APPS:
            raise LinkError(f"app {shown(hello.app)} is not wanted here")
        if not 1 <= hello.places <= x.PLACES_MAX:
            raise LinkError(f"{hello.places} places; allowed: a whole number from 1 to {x.PLACES_MAX}")
        if not app.plan.supervised and connection.peer_uid not in (0, os.geteuid()):
            raise LinkError(f"user {connection.peer_uid} may attach no executors here")
        if app.plan.supervised:
            if self._starting.pop(hello.id, None) != hello.app:
                raise LinkError(f"no executor {shown(hello.id)} of app {hello.app!r} was started")
            executor = hello.id
        else:
            executor = f"{hello.app}-{next(self._numbers)}"
        connection.executor = executor
        self._connections[executor] = connection
        self._events.executor_up(executor, hello.app, hello.places)

    def lost(self, connection: _Connection) -> None:
        """A connection closed."""
        executor = connection.executor
        if executor is None or self._stopping:
            return
        if executor in self._processes:
            # It is about to end, and its exit code says why; its supervisor goes on from there.
            self._events.executor_leaving(executor)
            asyncio.get_running_loop().call_later(LAST_WORDS_S, self._kill, executor)
        else:
            self._gone(executor, f"executor {executor} disconnected")

    def _gone(self, executor: str, reason: str, failure: str = "") -> None:
        if self._connections.pop(executor, None) is not None:
            self._events.executor_down(executor, reason, failure)


class _Connection(asyncio.Protocol):
    """One executor's socket."""

    def __init__(self, pool: ExecutorPool) -> None:
        self.executor: str | None = None
        self.peer_uid = -1
        self.queued: list[x.ExecutorMessage] = []
        self.closed = asyncio.Event()
        self._pool = pool
        self._splitter = x.FrameSplitter()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by inheritance.
        peer = transport.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER.size)
        _, self.peer_uid, _ = PEER.unpack(peer)
        if self.peer_uid not in self._pool.confinement.uids:
            log.warning("user %d may not connect as an executor, and is cut off", self.peer_uid)
            self.close()

    def data_received(self, data: bytes) -> None:
        try:
            messages = self._splitter.feed(data)
            if messages:
                self._pool.said(self, messages)
        except LinkError as error:
            log.warning("executor %s broke the protocol and is cut off: %s", self.executor or "(no hello)", error)
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set()
        self._pool.lost(self)

    def flush(self) -> None:
        # A closed one's end is told soon. To write to it would raise (uvloop) into whatever had something to send:
        # a scheduler's link would break for it.
        if self._transport is not None and not self.closed.is_set():
            try:
                self._transport.write(x.encode_frame(self.queued, self._splitter.encoding))
            except LinkError as error:
                log.warning("executor %s cannot be told something and is cut off: %s", self.executor, error)
                self.close()
        self.queued.clear()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()


def _exit_reason(code: int) -> str:
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
