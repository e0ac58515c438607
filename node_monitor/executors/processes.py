"""The processes of executors: executed by way of the launcher, or forked by a server that was (`fork_server`)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import socket
from asyncio.subprocess import Process
from collections.abc import Iterator
from typing import Protocol, cast

from node_monitor.executors.apps import App
from node_monitor.executors.confinement import Confinement
from sparrow_py.embedded.output_channel import OUTPUT_VARIABLE, OutputChannel
from sparrow_py.errors import LinkError
from sparrow_py.executors.executor_protocol import LOG_VARIABLE, FrameSplitter, encode_frame
from sparrow_py.executors.fork_protocol import FROM_FORK_SERVER, Ended, Fork, Forked, NotForked, Preload
from sparrow_py.processes.orphans import Orphans
from sparrow_py.processes.process_control import parent_of
from sparrow_py.processes.process_ends import Tail, exit_reason

log = logging.getLogger("sparrow.node_monitor.executors")
OWN_LOG = 2, 2
"""Standard output and error of executors whose output is not forwarded. Our standard output is for the announcement."""
STOP_TIMEOUT_S = 5.0
"""A fork server that is killed is waited for this long."""
FORK_TIMEOUT_S = 30.0
"""A fork server that has not forked after so long, its own start included, is ended."""
LAST_LINES_TIMEOUT_S = 0.5
"""What a process wrote before it ended is waited for this long."""
LOG_DESCRIPTOR = 1
"""Our log in executors whose output is not forwarded, where standard error comes here first, see `write_to_log`."""


class ExecutorProcess(Protocol):
    """An executor's process, which leads a session of its own."""

    pid: int

    async def wait(self) -> int:
        """Its exit code, once it has ended; the negative number of a signal."""

    async def last_lines(self) -> str:
        """What it said last, as the end of a sentence on why it ended; empty if it said nothing."""

    def kill(self) -> None:
        """End it and its process group, at once."""


class Processes:
    """Starts the processes of one node monitor's executors.

    `orphans` are this process's, if it has no children but executors and fork servers. `channel`: where what they
    write goes, in place of our own log.
    """

    def __init__(
        self, confinement: Confinement, orphans: Orphans | None = None, channel: OutputChannel | None = None
    ) -> None:
        self._confinement = confinement
        self._orphans = orphans
        self._channel = channel
        self._servers: dict[str, _ForkServer] = {}
        """By plan, of those whose executors are forked: started with the first, and after an end with the next."""
        self._starting: dict[str, asyncio.Lock] = {}
        """By plan: who needs its server waits for one that is being started."""

    async def start(self, app: App, executor: str, base: dict[str, str], own: dict[str, str]) -> ExecutorProcess:
        """Start this executor, with an environment of `base` (its app's) and its `own`; `OSError` if it cannot be."""
        if self._channel is None:
            own = own | {LOG_VARIABLE: str(LOG_DESCRIPTOR)}
        if app.plan.forks:
            server = await self._server(app, base)
            return await server.fork(executor, own)
        return _Executed(*await self._execute(app, base | own, asyncio.subprocess.DEVNULL))

    def preload(self, app: App, modules: tuple[str, ...]) -> None:
        """Executors of the app that are forked from now on have these modules."""
        server = self._servers.get(app.plan.name)
        if server is not None:
            server.preload(modules)

    def ended(self, process: ExecutorProcess) -> None:
        """It has ended, and is not of interest any more; what it left behind is ended, too."""
        if self._orphans is not None:
            self._orphans.ended(process.pid)

    async def stop(self) -> None:
        """End the fork servers."""
        for server in self._servers.values():
            await server.stop()
        self._servers.clear()

    async def _execute(
        self, app: App, environment: dict[str, str], stdin: int, inherited: tuple[int, ...] = ()
    ) -> tuple[Process, Tail]:
        """Start the app's command. `stdin`: a descriptor; `inherited`: others. `OSError` if it cannot be started."""
        if shutil.which(app.argv[0]) is None:  # Its launcher could only say so in the log.
            raise FileNotFoundError(f"no such command: {app.argv[0]}")
        account = self._confinement.accounts.get(app.plan.account)
        starting = self._orphans.starting() if self._orphans is not None else contextlib.nullcontext()
        with starting, self._streams() as (stdout, stderr):
            tail = Tail(stderr)
            try:
                process = await asyncio.create_subprocess_exec(
                    *self._confinement.command(app.argv, account, limited=not app.plan.one_process, kept=inherited),
                    env=environment,
                    stdin=stdin,
                    stdout=stdout,
                    stderr=tail.descriptor,
                    start_new_session=True,
                    pass_fds=inherited,
                )
            finally:
                tail.close_ours()
            if self._orphans is not None:
                self._orphans.started(process.pid)
        return process, tail

    @contextlib.contextmanager
    def _streams(self) -> Iterator[tuple[int, int]]:
        """Standard output and error of a process that is started in the block."""
        with contextlib.ExitStack() as closing:
            streams = OWN_LOG
            if self._channel is not None:
                with contextlib.suppress(OSError):
                    streams = closing.enter_context(self._channel.pipes())
            yield streams

    async def _server(self, app: App, environment: dict[str, str]) -> _ForkServer:
        """The fork server of the app and its account."""
        name = app.plan.name
        async with self._starting.setdefault(name, asyncio.Lock()):
            server = self._servers.get(name)
            if server is None or server.over:
                server = self._servers[name] = await self._start_server(app, environment)
            return server

    async def _start_server(self, app: App, environment: dict[str, str]) -> _ForkServer:
        # Each executor makes pipes of its own, where it says which task it runs.
        own: dict[str, str] = {}
        inherited: tuple[int, ...] = ()
        if self._channel is not None:
            inherited = (self._channel.fileno(),)
            own[OUTPUT_VARIABLE] = str(self._channel.fileno())
        ours, theirs = socket.socketpair()
        with theirs:
            ours.setblocking(False)
            try:
                process, tail = await self._execute(app, environment | own, theirs.fileno(), inherited)
            except BaseException:
                ours.close()
                raise
        server = _ForkServer(app.plan.name, process, tail, self._orphans)
        await asyncio.get_running_loop().create_unix_connection(lambda: server, sock=ours)
        return server


class _Executed:
    """An executor that was executed."""

    def __init__(self, process: Process, tail: Tail) -> None:
        self.pid = process.pid
        self._process = process
        self._tail = tail

    async def wait(self) -> int:
        return await self._process.wait()

    async def last_lines(self) -> str:
        return await _last_lines(self._tail)

    def kill(self) -> None:
        # Its session outlives it as long as anything of it is there, and then nobody has its number.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)


class _ForkedExecutor:
    """An executor that was forked. The server kills its process group when it has ended."""

    def __init__(self, pid: int, server: int, tail: Tail) -> None:
        self.pid = pid
        self._server = server
        """The process id of its server."""
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._tail = tail
        """Its server's, which has what all executors write that have not said hello."""

    async def wait(self) -> int:
        return await self.ended

    async def last_lines(self) -> str:
        return await _last_lines(self._tail)

    def kill(self) -> None:
        if self.ended.done() or _parent(self.pid) not in (self._server, os.getpid(), None):
            return  # Its server has reaped it, and the number is another's.
        for end in (os.killpg, os.kill):  # It leads its group a moment after it was forked.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                end(self.pid, signal.SIGKILL)


class _ForkServer(asyncio.Protocol):
    """A fork server's process, and the connection to it."""

    def __init__(self, app: str, process: Process, tail: Tail, orphans: Orphans | None) -> None:
        self.over = False
        self._app = app
        self._process = process
        self._tail = tail
        self._orphans = orphans
        self._splitter = FrameSplitter(FROM_FORK_SERVER)
        self._asked: dict[str, asyncio.Future[ExecutorProcess]] = {}
        self._executors: dict[str, _ForkedExecutor] = {}
        self._transport: asyncio.Transport | None = None
        """The connection, while it is open."""
        self._preloaded: set[str] = set()
        self._stopped = False
        self._reason = ""
        """Why it has ended, in words, once all who asked are told so."""
        self._watch = asyncio.create_task(self._until_its_end())

    async def fork(self, executor: str, environment: dict[str, str]) -> ExecutorProcess:
        """Start an executor with these variables; `OSError` if it cannot be started."""
        if self._reason:
            raise OSError(self._reason)
        asked: asyncio.Future[ExecutorProcess] = asyncio.get_running_loop().create_future()
        self._asked[executor] = asked
        # The end of the connection may be heard before that of the process, which then answers what was asked.
        if self._transport is not None:
            self._transport.write(encode_frame([Fork(executor, environment)]))
        try:
            async with asyncio.timeout(FORK_TIMEOUT_S):
                return await asked
        except TimeoutError:
            self._kill()
            said = await _last_lines(self._tail)
            raise OSError(f"its fork server did not answer within {FORK_TIMEOUT_S:g} s{said}") from None

    def preload(self, modules: tuple[str, ...]) -> None:
        """Have it import those of these modules that it was not told to before."""
        news = [name for name in modules if name not in self._preloaded]
        self._preloaded.update(news)
        if news and self._transport is not None:
            self._transport.write(encode_frame([Preload(news)]))

    async def stop(self) -> None:
        """End it; executors that it has forked end with it."""
        self._stopped = True
        self._kill()
        await asyncio.wait([self._watch], timeout=STOP_TIMEOUT_S)

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    async def _until_its_end(self) -> None:
        code = await self._process.wait()
        self.over = True
        if self._transport is not None:
            self._transport.abort()
        if self._orphans is not None:
            self._orphans.ended(self._process.pid)
        for process in self._executors.values():
            process.kill()  # The kernel has done so already, where there is that of Linux.
            process.ended.set_result(-signal.SIGKILL)
        self._executors.clear()
        said = ""
        if not self._stopped:
            log.info("fork server of app %s ended: %s", self._app, exit_reason(code))
            said = await _last_lines(self._tail)
        self._reason = f"its fork server {exit_reason(code)}{said}"
        for asked in self._asked.values():
            if not asked.done():
                asked.set_exception(OSError(self._reason))
        self._asked.clear()

    # ---- what it says

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        try:
            messages = self._splitter.feed(data)
        except LinkError as error:
            log.warning("fork server of app %s broke the protocol and is ended: %s", self._app, error)
            self._kill()
            return
        for message in messages:
            if type(message) is Forked and not self._may_have_forked(message):
                log.warning("fork server of app %s names process %d as its own and is ended", self._app, message.pid)
                self._kill()
                return
            self._said(message)

    def _may_have_forked(self, message: Forked) -> bool:
        """Whether this executor was asked for, and the process is the server's child, or has ended since."""
        known = message.pid > 1 and message.executor in self._asked
        return known and _parent(message.pid) in (self._process.pid, None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._kill()

    def _said(self, message: Forked | NotForked | Ended) -> None:
        if type(message) is Ended:
            ended = self._executors.pop(message.executor, None)
            if ended is not None:
                ended.ended.set_result(message.code)
            return
        asked = self._asked.pop(message.executor, None)
        if type(message) is Forked:
            process = self._executors[message.executor] = _ForkedExecutor(message.pid, self._process.pid, self._tail)
            if asked is None or asked.done():  # Whoever wanted it has gone.
                process.kill()
            else:
                asked.set_result(process)
        elif type(message) is NotForked and asked is not None and not asked.done():
            asked.set_exception(OSError(message.error, os.strerror(message.error)))


def _parent(pid: int) -> int | None:
    """The process id of the process's parent; None if there is no such process, or it is hidden from us."""
    try:
        return parent_of(pid)
    except OSError:
        return None


async def _last_lines(tail: Tail) -> str:
    lines = await asyncio.to_thread(tail.lines, LAST_LINES_TIMEOUT_S)
    return "; it said:\n" + "\n".join(lines) if lines else ""
