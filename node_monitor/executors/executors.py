"""Supervision of executors: their processes, and their connections over the Unix socket."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import itertools
import logging
import os
import secrets
import select
import signal
import socket
import struct
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, Protocol, cast

from node_monitor.blobs.blob_store import BlobStore, NoRoom
from node_monitor.blobs.result_files import LEFT_AGE_MAX_S, ResultDirectory
from node_monitor.executors.apps import App
from node_monitor.executors.builtin import BUILTIN_APPS
from node_monitor.executors.confinement import Confinement
from node_monitor.executors.environment import passed_on
from node_monitor.executors.mute_connections import MuteConnections
from node_monitor.executors.processes import ExecutorProcess, Processes
from node_monitor.executors.socket_directory import SocketDirectory
from node_monitor.host.os_account import Account
from sparrow_py.embedded.output_channel import OutputChannel
from sparrow_py.errors import LinkError, shown
from sparrow_py.executors import executor_protocol as x
from sparrow_py.job import TaskStatus
from sparrow_py.logs.line_interval import LineInterval
from sparrow_py.logs.sparing_log import SparingLog
from sparrow_py.processes.orphans import Orphans
from sparrow_py.processes.process_ends import exit_reason
from sparrow_py.wire.blobs import WrongBytes

log = logging.getLogger("sparrow.node_monitor.executors")
RESULT_CHARS_SHOWN = 200
"""Of what an executor says of a result that it could not write."""
BY_US = ", sent by this node monitor, which was to stop its task or did not need it any more"
CLIENT_MODULES = ("sparrow_py.client", "sparrow_py.session.relayed", "sparrow_py.session.uv_loop")
"""What clients within tasks take: once a task has one, forked executors have these modules from the start."""
HELLO_TIMEOUT_S = 30.0
PEER = struct.Struct("=iII")
"""The kernel's struct ucred: pid, uid, gid."""
ID_BYTES = 16
"""Random bytes in what an executor says in its hello."""
KEY_BYTES = 16
"""Random bytes of the key that clients within tasks of an executor show."""
WAITING_MAX = 8
"""Connections that may have said an executor's hello before its process is known."""
STOP_GRACE_S = 1.0
ORPHANS_GRACE_S = 2.0
SWEEP_INTERVAL_S = 600.0
ENDING_BYTES_MAX = 256 << 10
"""A connection that is to end, and has more to read, is cut off at once: its client does not read, or has no use for
what it is told any more."""
LAST_WORDS_S = 0.5
"""After a process ended its socket is read this long for what it sent last."""


class Events(Protocol):
    """Who is told what executors do."""

    def executor_up(self, executor: str, app: str, places: int, version: int) -> None:
        """It said hello, in this version of the protocol."""

    def executor_failed(self, app: str, reason: str) -> None:
        """Its process ended before it said hello."""

    def executor_leaving(self, executor: str) -> None:
        """Its process ended, or its connection closed: it does nothing more. It may still tell what it did;
        `executor_down` follows."""

    def executor_down(self, executor: str, reason: str, failure: str = "") -> None:
        """It is gone. `failure`: why the task that it ran has failed, where it ended the executor by its own doing."""

    def user_of(self, executor: str, run: int) -> str | None:
        """Whose task the run is; None if the executor does not have it."""

    def task_client_came(self, executor: str, hello: x.TaskClientHello, connection: _Connection) -> Any:
        """A process of the executor's has connected for a client within this run: what stands for that client. None,
        and it was told why, if it cannot have one now."""

    def task_client_said(
        self, client: Any, messages: list[Any], directory: ResultDirectory
    ) -> Coroutine[Any, Any, None] | None:
        """Such a client sent these messages; `LinkError` if it may not have. What of that takes a while is returned."""

    def task_client_gone(self, client: Any) -> None:
        """Its connection is closed."""

    def executor_said(self, executor: str, messages: list[Any]) -> None:
        """It sent these messages; `LinkError` if it may not have.

        A `File` in a `Done` is in the store, and pinned until this returns.
        """


def executor_environment(socket_path: str, executor_id: str, places: int, files: str, node: str) -> dict[str, str]:
    """What one executor finds in its environment besides what is passed on of our own."""
    return {
        x.SOCKET_VARIABLE: socket_path,
        x.ID_VARIABLE: executor_id,
        x.PLACES_VARIABLE: str(places),
        x.FILES_VARIABLE: files,
        x.NODE_VARIABLE: node,
    }


class ExecutorPool:
    """The executors of one node monitor. `apps`: by their plans' names.

    `store` takes their large results. `socket_dir` is the directory of the socket, by default a new one. `orphans`
    are this process's, if it has no children but executors. `environment` is passed on to executors, by default all
    but what is ours. `channel`: where what executors write goes, by default to our own log. `node`: the node
    monitor's id, which executors are told.
    """

    def __init__(
        self,
        apps: dict[str, App],
        events: Events,
        store: BlobStore,
        socket_dir: str = "",
        confinement: Confinement | None = None,
        orphans: Orphans | None = None,
        environment: Mapping[str, str] | None = None,
        channel: OutputChannel | None = None,
        node: str = "",
    ) -> None:
        self._apps = apps
        self._node = node
        self._events = events
        self.confinement = confinement or Confinement()
        self._orphans = orphans
        self._processes = Processes(self.confinement, orphans, channel)
        self._environment = passed_on(os.environ, None) if environment is None else environment
        self._store = store
        self._socket_dir = socket_dir
        self._numbers = itertools.count(1)
        self._connections: dict[str, _Connection] = {}
        self._said = {app.plan.app: app for app in apps.values()}
        """By the names that executors say, whatever their account."""
        self._unflushed: dict[str, _Connection] = {}
        self._readable: select.epoll | None = None
        """The sockets of executors, as soon as there are several, to see whether another has said something."""
        self._launched: dict[str, _Launched] = {}
        """Those that were started here and have not ended."""
        self._due: dict[str, _Launched] = {}
        """Those whose hello is due, by the id that it has to have."""
        self._files_of: dict[str, ResultDirectory] = {}
        """Executor id to its directory for large results, of those that were started."""
        self._shared_files: ResultDirectory | None = None
        """That of those that were not, if there may be any."""
        self._next_sweep_s = 0.0
        self.mute = MuteConnections(self._is_awaited)
        self._refusals = LineInterval()
        self.sparing = SparingLog(log)
        """For what tasks can bring about as often as they like."""
        self._supervisors: set[asyncio.Task[None]] = set()
        self._servers: list[asyncio.Server] = []
        self._directory: SocketDirectory | None = None
        self._stopping = False

    @property
    def socket_path(self) -> str:
        """Where executors connect that are not started here; empty until `start`."""
        return self._directory.socket_path if self._directory else ""

    async def start(self) -> None:
        """Listen for executors, on sockets that only this user can reach, and each account the one of its executors.

        `InvalidOption` if the directory of the socket cannot be used, `OSError` if that of the results cannot.
        """
        accounts = tuple(self.confinement.accounts.values())
        directory = self._directory = SocketDirectory(self._socket_dir, accounts)
        if not all(app.plan.supervised for app in self._apps.values()):
            self._shared_files = ResultDirectory(self._store.incoming, "attached")
            self._shared_files.names.add(directory.files_path)
            Path(directory.files_path).symlink_to(self._shared_files.path)
        only = self.confinement.only_account
        await self._listen(directory.socket_path, only)
        for account in accounts if only is None else ():
            await self._listen(directory.socket_path_of(account), account)
        directory.open_to_executors()

    async def _listen(self, path: str, account: Account | None) -> None:
        """Listen for executors of this account, and our own."""
        uids = frozenset({os.geteuid(), 0} if account is None else {os.geteuid(), 0, account.uid})
        loop = asyncio.get_running_loop()
        self._servers.append(await loop.create_unix_server(lambda: _Connection(self, uids), path))

    async def stop(self) -> None:
        """End all executors, and what they started.

        One that runs many tasks is told by its connection, which closes, and has a moment to end
        what it started; then, and others at once, they are killed with their process groups.
        """
        self._stopping = True
        for connection in list(self._connections.values()):
            connection.close()
            await connection.hear_no_more()
        for launched in self._launched.values():
            if not launched.app.plan.one_process:
                launched.kill()
        if self._supervisors:
            await asyncio.wait(self._supervisors, timeout=STOP_GRACE_S)
        for launched in self._launched.values():
            launched.kill()
        for server in self._servers:
            server.close()
        if self._readable is not None:
            self._readable.close()
            self._readable = None
        if self._supervisors:
            await asyncio.wait(self._supervisors, timeout=5)
        await self._processes.stop()
        if self._orphans is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(ORPHANS_GRACE_S):
                    await self._orphans.gone()
        for executor in list(self._files_of):
            self._remove_files(executor)
        if self._shared_files is not None:
            self._discard(self._shared_files)
            self._shared_files = None
        if self._directory is not None:
            await asyncio.to_thread(self._directory.close)
            self._directory = None

    # ---- processes ---------------------------------------------------------------------------

    def start_executor(self, app: str, places: int) -> None:
        """Start a process for the app of this plan's name."""
        task = asyncio.create_task(self._supervise(self._apps[app], places))
        self._supervisors.add(task)
        task.add_done_callback(self._supervisors.discard)

    async def _supervise(self, app: App, places: int) -> None:
        name = app.plan.app
        executor = f"{name}-{next(self._numbers)}"
        launched = self._launched[executor] = self._due_hello(_Launched(executor, app))
        try:
            assert self._directory is not None, "it listens"
            account = self.confinement.accounts.get(app.plan.account)
            files = self._files_of[executor] = ResultDirectory(self._store.incoming, executor, account)
            base = {**self._environment, **self.confinement.environment(account)}
            socket_path = self._directory.socket_path_of(account)
            own = executor_environment(socket_path, launched.hello_id, places, files.path, self._node)
            launched.process = await self._processes.start(app, executor, base, own)
        except Exception as error:
            if not isinstance(error, OSError):  # A bug of ours: who waits for the executor must hear all the same.
                log.exception("executor of app %s was not started", app.plan.name)
            self._cannot_start(launched, error)
            return
        if self._stopping:
            launched.kill()
        hello_timer = asyncio.get_running_loop().call_later(HELLO_TIMEOUT_S, self._no_hello, launched)
        launched.let_in()
        code = await launched.process.wait()
        hello_timer.cancel()
        await self._ended(launched, code)

    def _cannot_start(self, launched: _Launched, error: Exception) -> None:
        name = launched.app.plan.name
        log.info("executor of app %s cannot be started: %s", name, error)
        self._forget(launched)
        self._events.executor_failed(name, f"cannot be started: {error}")

    def _due_hello(self, launched: _Launched) -> _Launched:
        self._due[launched.hello_id] = launched
        return launched

    async def _ended(self, launched: _Launched, code: int) -> None:
        """Its process has ended: tell of it, once all that it said has been heard."""
        executor, process = launched.executor, launched.process
        assert process is not None
        reason = exit_reason(code)
        connection, said = self._connections.get(executor), ""
        if connection is not None:
            self._events.executor_leaving(executor)
            await connection.last_words()
        else:
            said = await process.last_lines()
        process.kill()  # What it may have left in its process group.
        self._processes.ended(process)  # And elsewhere.
        if self._stopping:
            del self._launched[executor]
            return
        by_us = launched.killed and code == -signal.SIGKILL
        log.info("executor %s ended: %s%s", executor, reason, BY_US if by_us else "")
        self._forget(launched)
        if connection is None:
            late = f"it did not say hello within {HELLO_TIMEOUT_S:g} s" if launched.late else reason
            self._events.executor_failed(launched.app.plan.name, late + said)
        else:
            connection.close()
            self._gone(executor, f"executor {executor} {reason}", self._over_limit(launched.app, code))

    def _forget(self, launched: _Launched) -> None:
        del self._launched[launched.executor]
        self._due.pop(launched.hello_id, None)
        launched.turn_away()
        self._remove_files(launched.executor)

    def _over_limit(self, app: App, code: int) -> str:
        """What an executor's task did that this exit code tells of; empty if it tells of none."""
        cpu_s = self.confinement.limits.cpu_s
        if cpu_s and code == -signal.SIGXCPU and not app.plan.one_process:
            return f"it used more than task_cpu_s_max = {cpu_s} s of CPU time"
        return ""

    def _remove_files(self, executor: str) -> None:
        files = self._files_of.pop(executor, None)
        if files is not None:
            self._discard(files)

    def _discard(self, files: ResultDirectory) -> None:
        files.close()
        self._store.remover.remove(files.path)

    def _no_hello(self, launched: _Launched) -> None:
        if launched.hello_id in self._due:
            log.warning("executor %s did not say hello within %g s", launched.executor, HELLO_TIMEOUT_S)
            launched.late = True
            launched.kill()

    def kill(self, executor: str) -> None:
        """End this executor at once, and what it started: `executor_down` follows.

        One that was not started here is disconnected; it is its owner's to end it.
        """
        launched = self._launched.get(executor)
        if launched is not None:
            launched.kill()
        elif (connection := self._connections.get(executor)) is not None:
            connection.close()

    # ---- connections -------------------------------------------------------------------------

    def send(self, executor: str, message: x.ExecutorMessage) -> None:
        """Queue a message; `flush` sends it."""
        connection = self._connections.get(executor)
        if connection is not None:
            if type(message) is x.Run:
                message.key = connection.client_key
            connection.queued.append(message)
            if type(message) is not x.ForgetCommon:  # That can wait for the next message that wakes the executor.
                self._unflushed[executor] = connection

    def flush(self) -> None:
        """Send what is queued, a frame per executor."""
        for connection in self._unflushed.values():
            connection.flush()
        self._unflushed.clear()

    def more_to_hear(self) -> bool:
        """Whether an executor has said something that was not told yet."""
        return self._readable is not None and bool(self._readable.poll(0, 1))

    def _watch(self, connection: _Connection) -> None:
        """`more_to_hear` looks at this executor, too; at none before there have been two."""
        if self._readable is not None:
            connection.register(self._readable)
        elif len(self._connections) > 1:
            self._readable = select.epoll()
            for each in self._connections.values():
                each.register(self._readable)

    def said(self, connection: _Connection, messages: list[Any]) -> None:
        """An executor sent these messages, or a client within its task."""
        if connection.client is not None:
            self._client_said(connection, connection.client, messages)
            return
        if connection.executor is None:
            if isinstance(messages[0], x.TaskClientHello):
                self._client_hello(connection, messages)
                return
            if not self._hello(connection, messages):
                return
        executor = connection.executor
        assert executor is not None
        for message in messages:
            if type(message) is x.Done and type(message.result) is x.File:
                connection.hear(self._tell_with_files(connection, executor, messages))
                return
        if messages:
            self._note_what_was_not_kept(messages)
            self._events.executor_said(executor, messages)

    def _note_what_was_not_kept(self, messages: list[Any]) -> None:
        """Results that executors could not write: no file of them comes here."""
        for message in messages:
            if type(message) is x.Done and message.error and x.NOT_KEPT in message.error:
                before, _, why = message.error.rpartition(x.NOT_KEPT)
                what = before[before.rfind("the result of ") :].strip()
                self._store.found_no_room(what[:RESULT_CHARS_SHOWN], why[:RESULT_CHARS_SHOWN], is_disk_full=True)

    def _client_hello(self, connection: _Connection, messages: list[Any]) -> None:
        """The first message of a client within a task: of which executor's, the kernel says, and the key proves.
        `LinkError` if it is of none that was started here."""
        hello: x.TaskClientHello = messages.pop(0)
        x.check_version(hello.version)
        if hello.version < x.SINCE[x.TaskClientHello]:
            raise LinkError(f"a client within a task speaks version {hello.version}, which knows no such clients")
        executor = self._executor_of(connection, hello.key)
        self._processes.preload(self._launched[executor].app, CLIENT_MODULES)
        self.mute.gone(connection, connection.peer_uid)
        connection.client = self._events.task_client_came(executor, hello, connection)
        if connection.client is not None:
            connection.client_of = executor
            if messages:
                self._client_said(connection, connection.client, messages)

    def _executor_of(self, connection: _Connection, key: bytes) -> str:
        """Whose process has connected for a client: it is of the executor's session and account, and has its key.

        The process id alone proves nothing: who connected may have ended, and another process have its id by now.
        """
        leader = connection.peer_leader
        launched = next((one for one in self._launched.values() if one.process and one.process.pid == leader), None)
        of_executor = None if launched is None else self._connections.get(launched.executor)
        if launched is None or of_executor is None:
            raise LinkError(f"process {connection.peer_pid}, which belongs to no executor here, wants a client")
        account = self.confinement.accounts.get(launched.app.plan.account)
        if connection.peer_uid != (os.geteuid() if account is None else account.uid):
            raise LinkError(f"user {connection.peer_uid} wants a client within a task of executor {launched.executor}")
        if not hmac.compare_digest(key, of_executor.client_key):
            raise LinkError(f"who wants a client within a task of executor {launched.executor} does not have its key")
        return launched.executor

    def _client_said(self, connection: _Connection, client: Any, messages: list[Any]) -> None:
        directory = self._files_of[connection.client_of]
        later = self._events.task_client_said(client, messages, directory)
        if later is not None:
            connection.hear(later)

    async def _tell_with_files(self, connection: _Connection, executor: str, messages: list[Any]) -> None:
        """Have the files that it names taken over, and tell all that it said in the order in which it said it.

        What it said before a file does not wait for that. Nothing more is read of it meanwhile, and if it ends what
        it said counts all the same.
        """
        ready: list[Any] = []
        for message in messages:
            if type(message) is x.Done and type(message.result) is x.File:
                self._tell(connection, executor, ready)
                ready = []
                await self._take_over(connection, executor, message, message.result)
            ready.append(message)
        self._tell(connection, executor, ready)

    async def _take_over(self, connection: _Connection, executor: str, done: x.Done, file: x.File) -> None:
        """The file of this result becomes the node monitor's; the run has failed if it cannot be kept.

        `LinkError` if the executor does not have the run: nobody's file takes no room, not even for a moment.
        """
        directory = self._files_of.get(executor, self._shared_files)
        assert directory is not None, "every executor has one"
        user = self._events.user_of(executor, done.run)
        if user is None:
            raise LinkError(f"executor {executor} reported run {done.run}, which it does not have")
        try:
            done.result = await self._store.take(directory, file, connection, user)
        except (NoRoom, WrongBytes) as error:
            done.status, done.result, done.error = TaskStatus.FAILED, b"", str(error)

    def _tell(self, connection: _Connection, executor: str, messages: list[Any]) -> None:
        self._note_what_was_not_kept(messages)
        try:
            if messages:
                self._events.executor_said(executor, messages)
        finally:
            self._store.unpin(connection)

    def refuse(self, reason: str) -> None:
        """Somebody was cut off before a hello: say so now and then, as anybody may try as often as they like."""
        times = self._refusals.happened(asyncio.get_running_loop().time())
        if times:
            log.warning("a connection to the executors' socket is cut off: %s (%d such)", reason, times)

    def _is_awaited(self, pid: int) -> bool:
        """Whether the process is one that was started and has yet to say hello, or that such a one started."""
        started = [launched.process.pid for launched in self._due.values() if launched.process is not None]
        return any(_leads(leader, pid) for leader in started)

    def _hello(self, connection: _Connection, messages: list[Any]) -> bool:
        """Its first message, which is taken from what it said. Whether it is let in now; `LinkError` if it never is."""
        hello = messages[0]
        if not isinstance(hello, x.ExecutorHello):
            raise LinkError("the first message is not a hello")
        x.check_version(hello.version)
        app = self._said.get(hello.app)
        if app is None or hello.app in BUILTIN_APPS:
            raise LinkError(f"app {shown(hello.app)} is not wanted here")
        places_max = 1 if app.plan.one_user else x.PLACES_MAX
        if not 1 <= hello.places <= places_max:
            raise LinkError(f"{hello.places} places; allowed: a whole number from 1 to {places_max}")
        if app.plan.supervised:
            launched = self._due.get(hello.id)
            if launched is None or launched.app.plan.app != hello.app:
                raise LinkError(f"no executor {shown(hello.id)} of app {hello.app!r} was started")
            if not launched.is_its(connection, lambda: self.said(connection, messages)):
                return False
            del self._due[hello.id]
            executor, app = launched.executor, launched.app
            connection.client_key = secrets.token_bytes(KEY_BYTES)
        elif connection.peer_uid not in (0, os.geteuid()):
            raise LinkError(f"user {connection.peer_uid} may attach no executors here")
        else:
            executor = f"{hello.app}-{next(self._numbers)}"
        self.mute.gone(connection, connection.peer_uid)
        del messages[0]
        connection.executor = executor
        self._connections[executor] = connection
        self._watch(connection)
        self._events.executor_up(executor, app.plan.name, hello.places, hello.version)
        return True

    def lost(self, connection: _Connection) -> None:
        """A connection closed, and perhaps once more when all that it said was told."""
        self.mute.gone(connection, connection.peer_uid)
        if connection.client is not None:
            self._events.task_client_gone(connection.client)
            return
        executor = connection.executor
        if executor is None or self._stopping:
            return
        if executor in self._launched:
            # It is about to end, and its exit code says why; its supervisor goes on from there.
            self._events.executor_leaving(executor)
            asyncio.get_running_loop().call_later(LAST_WORDS_S, self._launched[executor].kill)
        elif connection.hears:  # What it said before counts; this is called again then.
            self._events.executor_leaving(executor)
        else:
            self._gone(executor, f"executor {executor} disconnected")
            self._sweep()

    def _sweep(self) -> None:
        """Once in a while, remove what executors left behind that were not started here."""
        now_s = asyncio.get_running_loop().time()
        if self._shared_files is not None and now_s >= self._next_sweep_s:
            self._next_sweep_s = now_s + SWEEP_INTERVAL_S
            self._store.remover.sweep(self._shared_files.path, LEFT_AGE_MAX_S)

    def _gone(self, executor: str, reason: str, failure: str = "") -> None:
        if self._connections.pop(executor, None) is not None:
            self._events.executor_down(executor, reason, failure)


class _Launched:
    """An executor that was started here."""

    def __init__(self, executor: str, app: App) -> None:
        self.executor = executor
        self.app = app
        self.hello_id = f"{executor}-{secrets.token_hex(ID_BYTES)}"
        """What it says in its hello; nobody else can guess it."""
        self.process: ExecutorProcess | None = None
        """As soon as it is known."""
        self.late = False
        """Whether it is ended as its hello did not come."""
        self.killed = False
        """Whether this node monitor ended it."""
        self._waiting: list[tuple[_Connection, Callable[[], None]]] = []
        """Who has said hello in its name before its process was known, and how to hear them again."""

    def is_its(self, connection: _Connection, again: Callable[[], None]) -> bool:
        """Whether who connected is of its session, `LinkError` if not. If that is not known yet, `again` asks again."""
        if self.process is None:
            if len(self._waiting) >= WAITING_MAX:
                raise LinkError(f"{WAITING_MAX} have said hello as executor {self.executor} already")
            self._waiting.append((connection, again))
            connection.pause()
            return False
        if not _leads(self.process.pid, connection.peer_pid):
            raise LinkError(f"process {connection.peer_pid} does not belong to executor {self.executor}")
        return True

    def let_in(self) -> None:
        """Its process is known: hear those who wait."""
        waiting, self._waiting = self._waiting, []
        for connection, again in waiting:
            connection.resume(again)

    def turn_away(self) -> None:
        """It will not be."""
        for connection, _ in self._waiting:
            connection.close()

    def kill(self) -> None:
        """End it at once, and its process group."""
        if self.process is not None:
            self.killed = True
            self.process.kill()


def _leads(leader: int, pid: int) -> bool:
    """Whether the process is of the leader's session, as what the leader starts is until it takes one of its own."""
    return _leader_of(pid) == leader


def _leader_of(pid: int) -> int:
    """The leader of the process's session; -1 if that cannot be told."""
    try:
        return os.getsid(pid) if pid > 0 else -1
    except (ProcessLookupError, PermissionError):
        return -1


class _Connection(asyncio.Protocol):
    """One executor's socket."""

    def __init__(self, pool: ExecutorPool, uids: frozenset[int]) -> None:
        """uids: users of this machine that may connect."""
        self.executor: str | None = None
        self.client: Any = None
        """The client within a task whose connection it is, if it is no executor's."""
        self.client_of = ""
        """The executor of that task."""
        self.client_key = b""
        """An executor's own, which clients within its tasks have to show; empty if it was not started here."""
        self.peer_pid = 0
        self.peer_leader = -1
        """The leader of that process's session, when the connection was accepted."""
        self.peer_uid = -1
        self.queued: list[x.ExecutorMessage] = []
        self.closed = asyncio.Event()
        self._pool = pool
        self._uids = uids
        self._splitter = x.FrameSplitter(first_bytes_max=x.HELLO_BYTES_MAX)
        self._transport: asyncio.Transport | None = None
        self._hearing: asyncio.Task[None] | None = None
        """While it is not read, as what it said is still being told."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by inheritance.
        peer = transport.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER.size)
        self.peer_pid, self.peer_uid, _ = PEER.unpack(peer)
        self.peer_leader = _leader_of(self.peer_pid)
        if self.peer_uid in self._uids:
            self._pool.mute.came(self, self.peer_uid, self.peer_pid)
        else:
            self._pool.refuse(f"user {self.peer_uid} may not connect as an executor")
            self.close()

    def register(self, readable: select.epoll) -> None:
        """Have it look whether the executor has said something, until the socket is closed."""
        if self._transport is not None and not self.closed.is_set() and not self._transport.is_closing():
            readable.register(self._transport.get_extra_info("socket").fileno(), select.EPOLLIN)

    def data_received(self, data: bytes) -> None:
        self._heard(lambda: self._pool.said(self, messages) if (messages := self._splitter.feed(data)) else None)

    def pause(self) -> None:
        """Read no more for now."""
        if self._transport is not None:
            self._transport.pause_reading()

    def resume(self, first: Callable[[], None]) -> None:
        """Go on reading, after `first`."""
        if not self.closed.is_set():
            self._heard(first)
        if self._transport is not None and not self._transport.is_closing() and not self.hears:
            self._transport.resume_reading()

    def _heard(self, hear: Callable[[], None]) -> None:
        try:
            hear()
        except LinkError as error:
            self._broke(error)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set()
        self._pool.lost(self)

    def _broke(self, error: LinkError) -> None:
        if self.client is not None:
            self._pool.sparing.warning("a client within a task of executor %s is cut off: %s", self.client_of, error)
        elif self.executor is None:
            self._pool.refuse(f"it broke the protocol before its hello: {error}")
        else:
            log.warning("executor %s broke the protocol and is cut off: %s", self.executor, error)
        self.close()

    # ---- what takes time to be heard -----------------------------------------------------------

    @property
    def hears(self) -> bool:
        """Whether what it said is still being told."""
        return self._hearing is not None

    def hear(self, telling: Coroutine[Any, Any, None]) -> None:
        """Read nothing more until all that it said was told."""
        assert self._transport is not None
        self._transport.pause_reading()
        self._hearing = asyncio.create_task(self._hear(telling))

    async def _hear(self, telling: Coroutine[Any, Any, None]) -> None:
        try:
            await telling
        except LinkError as error:
            self._broke(error)
        except Exception:  # A bug of ours, and what it said is lost.
            log.exception("executor %s is cut off", self.executor)
            self.close()
        finally:
            self._hearing = None
        if self.closed.is_set():
            self._pool.lost(self)
        elif self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    async def hear_no_more(self) -> None:
        """What was not told will not be."""
        if self._hearing is not None:
            self._hearing.cancel()
            await asyncio.wait({self._hearing})

    async def last_words(self) -> None:
        """Its process has ended: wait until all that it said was told.

        Something that the executor started may hold its socket open: it is not waited for long.
        """
        heard = False
        while not heard:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LAST_WORDS_S):
                    await self.closed.wait()
            heard = self._hearing is None
            if self._hearing is not None:
                await asyncio.wait({self._hearing})

    # ---- what it is told -----------------------------------------------------------------------

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

    def say(self, message: x.ExecutorMessage) -> None:
        """Send a message at once."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(x.encode_frame([message], self._splitter.encoding))

    def take_frames(self, bytes_max: int) -> None:
        """From now on a frame has so many bytes at most."""
        self._splitter.limit(bytes_max)

    def unread_bytes(self) -> int:
        """What waits for the peer to be read."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def end(self) -> None:
        """Close it once what was said has left, for which neither much nor for long is kept: who does not read has a
        connection until then, and its descriptor."""
        if self._transport is None or self._transport.is_closing():
            return
        if self.unread_bytes() > ENDING_BYTES_MAX:
            self.close()
            return
        self._transport.close()
        self._pool.mute.came(self, self.peer_uid, self.peer_pid)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()
