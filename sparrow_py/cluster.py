"""`LocalCluster`: schedulers and node monitors on this machine, as processes or in this one.

A daemon that ends though nobody ended it is started again, a few times (`restarts`); jobs go on as they do in any
cluster whose daemons die. Beyond that, once no scheduler or no node monitor is left, the cluster is *broken*, and its
clients' jobs end with the reason instead of waiting for daemons that will not come.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import orjson

from sparrow_py import start
from sparrow_py.access.credentials import Access, client_token
from sparrow_py.access.secret_files import read_tokens
from sparrow_py.auth import TLS
from sparrow_py.cluster_nodes import NODES_PATH, Awaited, Listing, NodeStatus, decode_listing, merged
from sparrow_py.embedded.restarts import RESTARTS_WINDOW_S, Restarts
from sparrow_py.embedded.tasks_in_flight import TasksInFlight
from sparrow_py.errors import ClusterError
from sparrow_py.job import check_whole
from sparrow_py.own_packages import require_here
from sparrow_py.processes.process_bound import descriptor_of, let_go, tell_of_forks
from sparrow_py.processes.process_ends import Tail, exit_reason
from sparrow_py.task_context import enter_thread
from sparrow_py.wire import messages as m
from sparrow_py.wire.local_link import LocalLink

if TYPE_CHECKING:
    from sparrow_py.embedded.output_forwarding import OutputForwarder

log = logging.getLogger("sparrow.cluster")
START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 5.0
CONNECT_AGAIN_S = 0.01
"""A worker that is a thread waits so long before it connects again."""
LOG_TAIL_CHARS = 2000
LAST_LINES_TIMEOUT_S = 0.5
"""What a daemon wrote before it ended is waited for this long: its executors may hold the pipe a moment longer."""
POLL_S = 0.02
HOST = "127.0.0.1"
KINDS = {"scheduler": "scheduler", "node_monitor": "node monitor"}
"""Daemons' modules, and what they are called."""
INSTEAD_OF_SCHEDULER_HERE = "run the scheduler as a process of its own (sparrow-scheduler), where it is not in the way"
INSTEAD_OF_IN_PROCESS = "leave out in_process: it is not in the way of daemons that are processes of their own"


class DaemonProcess:
    """A daemon as a child process. `announcement` is what it said when it was ready to work."""

    def __init__(
        self,
        module: str,
        arguments: Sequence[str],
        environment: dict[str, str],
        log: Any,
        listener: socket.socket | None = None,
        inherited: Sequence[int] = (),
        name: str = "",
    ) -> None:
        """`log`: a file or descriptor that its log goes to, or a `Tail`, which becomes this process's. `inherited`:
        descriptors that its arguments name."""
        self.module = module
        self.name = name
        self.announcement: dict[str, Any] = {}
        self.was_ended = False
        """Whether it was told to end, by `kill` or `end`."""
        self._log = log
        command = start.command(module, "--port", "0", "--exit-on-stdin-eof", *arguments, path=import_path())
        if listener is not None:
            command += ["--listen-fd", str(listener.fileno())]
            inherited = [*inherited, listener.fileno()]
        try:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log.descriptor if isinstance(log, Tail) else log,
                env=environment,
                start_new_session=True,
                pass_fds=inherited,
            )
        finally:
            if isinstance(log, Tail):
                log.close_ours()

    @property
    def address(self) -> str:
        """Where it listens."""
        return str(self.announcement["address"])

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    def wait_until_ready(self) -> None:
        """Read its announcement; `ClusterError` with its last log lines if it ends instead."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            code = self.process.wait()
            why = self.log_tail() or self._where_it_says()
            raise ClusterError(f"{self.module} ended with code {code} instead of starting:\n{why}")
        self.announcement = orjson.loads(line)

    def why_ended(self) -> str:
        """How it ended, and what it said last; it must have ended."""
        said = self.log_tail()
        name = f"{KINDS.get(self.module, self.module)} {self.name}"
        return f"{name} {exit_reason(self.process.returncode)}" + (f"; its log ends with:\n{said}" if said else "")

    def _where_it_says(self) -> str:
        """Where to look for its log, if not here."""
        nowhere = self._log == subprocess.DEVNULL
        return "give the cluster a log_dir to see why" if nowhere else "what it said is on standard error"

    def log_tail(self) -> str:
        """The end of its log."""
        if isinstance(self._log, int) or self._log is None:
            return ""
        if isinstance(self._log, Tail):
            return "\n".join(self._log.lines(LAST_LINES_TIMEOUT_S))
        return Path(self._log.name).read_text("utf-8", "replace")[-LOG_TAIL_CHARS:]

    def kill(self) -> None:
        """End it with SIGKILL, and wait for its end."""
        self.was_ended = True
        self.process.kill()
        self.process.wait()
        self._close_pipes()

    def end(self) -> None:
        """Close its standard input, so that it ends at once and stops its executors."""
        self.was_ended = True
        if self.process.stdin is not None:
            with contextlib.suppress(OSError):
                self.process.stdin.close()

    def wait_ended(self) -> None:
        """Wait until it has ended; kill it if it takes too long."""
        try:
            self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._close_pipes()

    def forked(self) -> None:
        """In a child of the process: the daemon is the parent's, and ends with the parent's end of its input."""
        pipes = (self.process.stdin, self.process.stdout)
        let_go([pipe.fileno() for pipe in pipes if pipe is not None and not pipe.closed])

    def _close_pipes(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


class LocalCluster:
    """An embedded cluster. Use it in a `with` block, or `stop` it.

    Its workers look for modules where this process does when the cluster is made: in `sys.path`, in that order.

    Parameters
    ----------
    schedulers, node_monitors: how many of each.
    slots: of each node monitor; default: this machine's cores.
    in_process: run the daemons and their Python tasks in threads of this process, so that a
        debugger sees them. Tasks then share this interpreter, and killing is not possible.
    enable_command: offer the app `command`.
    scheduler_options, node_options: further command-line flags of the daemons.
    token_file, tls: the daemons' tokens, and their files for mutual TLS, whose certificate must be a daemon's, for
        127.0.0.1. Clients that are given the cluster show the first of the cluster's tokens, and the same certificate,
        unless they have their own.
    log_dir: where the daemons' logs go, a file each; default: nowhere.
    forward_output: write what tasks print to this program's `sys.stdout` and `sys.stderr`, in whole lines, each after
        `[name task] ` while a client has several tasks in flight; and the daemons' warnings to its `sys.stderr`. If
        not, it goes where the daemons' logs go. (With `in_process`, tasks print as this program does.)

    `ClusterError` if a daemon does not start, or the executors of an app that is to be warm (the Python workers): it
    has the reason, with the last lines of what does not start. A daemon that dies later is started again, three times
    a minute at most; `DaemonProcess.kill` ends one for good.
    """

    def __init__(
        self,
        schedulers: int = 1,
        node_monitors: int = 1,
        slots: int | None = None,
        *,
        in_process: bool = False,
        enable_command: bool = False,
        scheduler_options: Sequence[str] = (),
        node_options: Sequence[str] = (),
        token_file: str | Path | None = None,
        tls: TLS | None = None,
        log_dir: str | Path | None = None,
        forward_output: bool = True,
    ) -> None:
        check_whole("schedulers", schedulers, 1, 1000)
        check_whole("node_monitors", node_monitors, 1, 1000)
        if slots is not None:
            check_whole("slots", slots, 1, 1 << 16)
        self.addresses: list[str] = []
        """The schedulers' addresses."""
        self.scheduler_processes: list[DaemonProcess] = []
        self.node_processes: list[DaemonProcess] = []
        self._in_process: _InProcess | None = None
        self._here = in_process
        self._log_dir = Path(log_dir) if log_dir is not None else None
        self._logs: list[Any] = []
        self.access = Access.of(read_tokens(str(token_file)).dialling if token_file else client_token(None), tls)
        """How its daemons are reached."""
        security = [
            *(["--token-file", str(token_file)] if token_file else []),
            *(["--tls-cert", tls.cert, "--tls-key", tls.key, "--tls-ca", tls.ca] if tls else []),
        ]
        self._scheduler_options = [*security, *scheduler_options]
        self._node_options = [
            *security,
            *("--executor-env", "*"),  # Its tasks are this process's own: they get what it has.
            *(["--slots", str(slots)] if slots else []),
            *(["--enable-command"] if enable_command else []),
            *node_options,
        ]
        self._node_count = 0
        self._lock = threading.Lock()
        """Of what follows, and of the two lists of processes where one is replaced."""
        self._stopping = False
        self._broken: ClusterError | None = None
        self._listeners: dict[int, Callable[[ClusterError], None]] = {}
        self._next_listener = 0
        self._restarts: dict[str, Restarts] = {}
        """By the daemon's name."""
        self._inherited = False
        """Whether this is a forked child's copy."""
        tell_of_forks(self)
        self._forwarder = _new_forwarder() if forward_output and not in_process else None  # Has sockets: last.
        try:
            if in_process:
                self._in_process = _InProcess(schedulers, node_monitors, self._scheduler_options, self._node_options)
                self.addresses = self._in_process.addresses
            else:
                self._start_processes(schedulers, node_monitors)
            self._wait_until_ready(node_monitors)
            self._wait_for_executors()
        except BaseException:
            self._end()
            raise

    def __repr__(self) -> str:
        where = "in this process" if self._here else "in processes"
        state = ", stopped" if self._stopping else ""
        return f"<LocalCluster {', '.join(self.addresses)}, {where}{state}>"

    def __enter__(self) -> LocalCluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _start_processes(self, schedulers: int, node_monitors: int) -> None:
        # The schedulers' sockets are made here, so that the node monitors can be told of them and
        # all daemons start at the same time.
        for number in range(schedulers):
            with socket.create_server((HOST, 0)) as listener:
                self.addresses.append(f"{HOST}:{listener.getsockname()[1]}")
                process = self._spawn("scheduler", f"scheduler-{number}", self._scheduler_options, listener)
                self.scheduler_processes.append(process)
        for _ in range(node_monitors):
            self.node_processes.append(self._spawn_node(self._new_node_id()))
        for process in [*self.scheduler_processes, *self.node_processes]:
            self._await_ready(process)

    def _new_node_id(self) -> str:
        self._node_count += 1
        return f"node-{self._node_count - 1}"

    def _spawn_node(self, node_id: str) -> DaemonProcess:
        flags = ["--scheduler", ",".join(self.addresses), "--node-id", node_id, *self._node_options]
        # Workers must find what this process can import; after what the options name.
        flags += [f"--python-path={entry}" for entry in import_path()]
        return self._spawn("node_monitor", node_id, flags)

    def _spawn_scheduler_again(self, before: DaemonProcess) -> DaemonProcess:
        """At the same address, which clients and node monitors dial. That before may have ended before it told its."""
        address = self.addresses[int(before.name.removeprefix("scheduler-"))]
        with socket.create_server((HOST, int(address.rpartition(":")[2]))) as listener:
            return self._spawn("scheduler", before.name, self._scheduler_options, listener)

    def _await_ready(self, process: DaemonProcess) -> None:
        """Wait until it works, and from then on for its end; `ClusterError` if it ends instead."""
        process.wait_until_ready()
        threading.Thread(target=self._watch, args=(process,), name=f"sparrow-{process.name}", daemon=True).start()

    def add_node_monitor(self, node_id: str | None = None) -> DaemonProcess:
        """Start another node monitor (of that name), and wait until it works."""
        process = self._spawn_node(node_id or self._new_node_id())
        with self._lock:
            self.node_processes.append(process)
        self._await_ready(process)
        return process

    # ---- daemons that end by themselves ---------------------------------------------------------

    def tell_if_broken(self, listener: Callable[[ClusterError], None]) -> Callable[[], None]:
        """Have `listener` called, from any thread, once the cluster can do no more; returns what takes that back.

        `ClusterError` if it is so already.
        """
        with self._lock:
            if self._broken is not None:
                raise self._broken
            number = self._next_listener
            self._next_listener += 1
            self._listeners[number] = listener

        def take_back() -> None:
            self._listeners.pop(number, None)

        return take_back

    def _watch(self, process: DaemonProcess) -> None:
        """Wait for its end, and do what is to be done then: in a thread of its own."""
        process.process.wait()
        ended: DaemonProcess | None = process
        while ended is not None:
            ended = self._ended(ended)

    def _ended(self, process: DaemonProcess) -> DaemonProcess | None:
        """A daemon has ended: start it again if nobody ended it. Returns the one that was started, if it ended, too."""
        if process.was_ended or self._stopping:
            return None
        why, now_s = process.why_ended(), time.monotonic()
        restarts = self._restarts.setdefault(process.name, Restarts())
        if not restarts.allowed(process.process.returncode, now_s):
            self._do_without(
                process, f"{why}\n(Started again before: {restarts.count(now_s)}, in {RESTARTS_WINDOW_S:g} s.)"
            )
            return None
        try:
            again = self._start_again(process)
        except (OSError, ClusterError) as error:  # Its port is taken, or there are no processes to be had.
            self._do_without(process, f"{why}\nand cannot be started again: {error}")
            return None
        if again is None:
            return None
        log.warning("%s\nIt is started again.", why)
        try:
            self._await_ready(again)
        except ClusterError:
            return again
        return None

    def _start_again(self, process: DaemonProcess) -> DaemonProcess | None:
        """Another in its place; None if the cluster is being stopped, or has none for it any more."""
        scheduler = process.module == "scheduler"
        processes = self.scheduler_processes if scheduler else self.node_processes
        with self._lock:
            if self._stopping or process not in processes:
                return None
            again = self._spawn_scheduler_again(process) if scheduler else self._spawn_node(process.name)
            processes[processes.index(process)] = again
        process.wait_ended()  # It has, and nobody else closes its pipes any more.
        return again

    def _do_without(self, process: DaemonProcess, why: str) -> None:
        """It is not started again: without any of its kind the cluster is broken."""
        scheduler = process.module == "scheduler"
        processes = self.scheduler_processes if scheduler else self.node_processes
        if any(other.process.poll() is None for other in processes):
            log.warning("%s\nIt is not started again; the cluster goes on without it.", why)
            return
        error = ClusterError(f"the embedded cluster has no {KINDS[process.module]} any more: {why}")
        with self._lock:
            if self._stopping:
                return
            self._broken = error
            listeners = list(self._listeners.values())
        for listener in listeners:
            listener(error)

    def _spawn(
        self, module: str, name: str, flags: Sequence[str], listener: socket.socket | None = None
    ) -> DaemonProcess:
        # The user's SPARROW_… are for daemons that the user starts; the secret is for all.
        environment = {k: v for k, v in os.environ.items() if not k.startswith("SPARROW_") or k == "SPARROW_TOKEN"}
        with self._outlets(module, name) as (log, inherited, own):
            return DaemonProcess(module, [*own, *flags], environment, log, listener, inherited, name)

    @contextlib.contextmanager
    def _outlets(self, module: str, name: str) -> Iterator[tuple[Any, list[int], list[str]]]:
        """Where a daemon that is started in the block logs and its workers write: its standard error, the descriptors
        that it inherits, and flags of its own."""
        log: Any = subprocess.DEVNULL
        if self._log_dir is not None:
            self._log_dir.mkdir(parents=True, exist_ok=True)
            log = (self._log_dir / f"{name}.log").open("ab")
            self._logs.append(log)
        forwarder = self._forwarder
        if forwarder is None:
            yield Tail() if self._log_dir is None else log, [], []
            return
        warnings = forwarder.log_pipe(name)
        try:
            inherited, own = [warnings], ["--warnings-fd", str(warnings)]
            if self._log_dir is None:
                log, inherited, own = Tail(warnings), [], ["--log-level", "warning"]
            if module == "node_monitor":
                channel = forwarder.channel.fileno()
                inherited, own = [*inherited, channel], [*own, "--output-fd", str(channel)]
            yield log, inherited, own
        finally:
            os.close(warnings)

    @property
    def in_flight(self) -> TasksInFlight:
        """Who is to be told of the jobs of this program's clients, by which forwarded output is marked."""
        return TasksInFlight() if self._forwarder is None else self._forwarder.tasks

    def nodes(self) -> list[NodeStatus]:
        """The nodes, by id, as the schedulers list them now; `ClusterError` if one does not answer."""
        return merged(self._listings())

    def wait_for_nodes(self, count: int, timeout_s: float | None = None) -> None:
        """Return when each scheduler has at least `count` nodes that are ready; `TimeoutError` if that takes longer
        than `timeout_s` (None: for ever), `ClusterError` if a scheduler does not answer."""
        awaited = Awaited(count, timeout_s)
        while not awaited.are_there(self._listings()):
            time.sleep(awaited.pause_s())

    def _listings(self) -> list[Listing]:
        return [
            decode_listing(http_get_text(address, NODES_PATH, access=self.access), address)
            for address in self.addresses
        ]

    def _wait_until_ready(self, node_monitors: int) -> None:
        try:
            self.wait_for_nodes(node_monitors, START_TIMEOUT_S)
        except TimeoutError as error:
            raise ClusterError(f"the node monitors did not reach the schedulers: {error}") from None

    def forked(self) -> None:
        """In a child of the process: the cluster is the parent's."""
        self._inherited = True
        for process in (*self.node_processes, *self.scheduler_processes):
            process.forked()
        if self._forwarder is not None:
            self._forwarder.forked()
        if self._in_process is not None:
            self._in_process.forked()

    def _wait_for_executors(self) -> None:
        """Wait until the executors that start with their node have come; `ClusterError` with the reason if some don't.

        They would come while the first calls wait for them; if they do not, those would wait for ever.
        """
        deadline_s = time.monotonic() + START_TIMEOUT_S
        for process in self.node_processes:
            while starting := self._starting(process):
                if time.monotonic() > deadline_s:
                    names = ", ".join(starting)
                    raise ClusterError(f"no executor of app {names} started on {process.name} in {START_TIMEOUT_S:g} s")
                time.sleep(POLL_S)

    def _starting(self, process: DaemonProcess) -> list[str]:
        """The apps whose first executors are on their way; `ClusterError` if those of one do not start."""
        nodes = http_get_json(process.address, "/v1/nodes", access=self.access)["nodes"]
        apps = [(name, app) for node in nodes for name, app in node["apps"].items()]
        for name, app in apps:
            if app["state"] == "withdrawn":
                raise ClusterError(f"the executors of app {name!r} do not start on {process.name}: {app['reason']}")
        return [name for name, app in apps if app["state"] == "starting"]

    def stop(self) -> None:
        """End all daemons at once. Of a cluster that a forked process has inherited, none: it is the parent's."""
        if self._inherited:
            return
        if self._forwarder is not None:
            self._forwarder.ignore_logs()
        self._end()

    def _end(self) -> None:
        with self._lock:
            self._stopping = True
        if self._in_process is not None:
            self._in_process.stop()
            self._in_process = None
        # Node monitors first: both ends of a link that close at once wait for each other.
        for processes in (self.node_processes, self.scheduler_processes):
            for process in processes:
                process.end()
            for process in processes:
                process.wait_ended()
        if self._forwarder is not None:
            self._forwarder.stop()
        for log in self._logs:
            log.close()
        self._logs.clear()


def import_path() -> list[str]:
    """Where this process looks for modules, in order."""
    return list(dict.fromkeys(str(Path(entry).absolute()) for entry in sys.path if isinstance(entry, str)))


def _new_forwarder() -> OutputForwarder:
    from sparrow_py.embedded.output_forwarding import (
        OutputForwarder,  # With modules that clients elsewhere than on Linux lack.
    )

    return OutputForwarder()


class SchedulerHere:
    """A scheduler inside its frontend's own process, the way of the lowest latency (Sparrow §6.1).

    Give it to a `Client` or `AsyncClient` in place of addresses: it runs on the client's event loop,
    takes the client's jobs without a socket between, and ends with the client. Node monitors, and
    other clients if they like, dial its `address` as any scheduler's. Its process is one that may die
    like any other; jobs of a frontend that dies with its scheduler end with both.

    Parameters
    ----------
    port: where node monitors find it; 0 takes a free one, and `address` tells it once the client is made.
    flags: further command-line flags of the scheduler: ["--host", "0.0.0.0", "--token-file", …].
    """

    def __init__(self, port: int = 0, flags: Sequence[str] = ()) -> None:
        self.address = ""
        self._flags = ["--port", str(check_port(port)), *flags]
        self._daemon: Any = None

    async def start(self) -> m.Welcome:
        """Begin to listen, on this loop; what a dialled scheduler would have answered. `ClusterError` if it cannot."""
        if self._daemon is not None:
            raise ClusterError("a SchedulerHere is for one client; it was given to another before")
        require_here("SchedulerHere", ["scheduler"], INSTEAD_OF_SCHEDULER_HERE)
        from click import ClickException

        from scheduler.daemon import SchedulerDaemon
        from scheduler.options import SchedulerOptions
        from sparrow_py.daemon.options import parse

        try:
            options = parse(SchedulerOptions, self._flags)
        except ClickException as error:
            raise ClusterError(f"the scheduler did not start: {error.format_message()}") from None
        self._daemon = SchedulerDaemon(options)
        self.address = (await self._daemon.start())["address"]
        return m.Welcome(m.PROTOCOL_VERSION, self._daemon.name, options.frame_bytes_max)

    def attach(self, user: str, deliver: Callable[[list[Any]], None]) -> LocalLink:
        """The link that the client sends on; what is for it goes to `deliver`."""
        link: LocalLink = self._daemon.attach(user, deliver)
        return link

    async def stop(self) -> None:
        """End the scheduler at once."""
        if self._daemon is not None:
            await self._daemon.stop()


def check_port(port: int) -> int:
    """`port`, if it is one."""
    check_whole("port", port, 0, 65535)
    return port


def http_get_json(address: str, path: str, timeout_s: float = 10.0, access: Access | None = None) -> Any:
    """As `http_get_text`, decoded."""
    return orjson.loads(http_get_text(address, path, timeout_s, access))


def http_get_text(address: str, path: str, timeout_s: float = 10.0, access: Access | None = None) -> str:
    """What a daemon answers, who is reached as the environment says unless `access` does; `ClusterError` if it does
    not."""
    access = Access.of_client() if access is None else access
    connection = access.http_connection(address, timeout_s)
    try:
        connection.request("GET", path, headers=access.headers())
        response = connection.getresponse()
        body = response.read()
    except OSError as error:
        raise ClusterError(f"{address} does not answer: {error}") from None
    finally:
        connection.close()
    if response.status != 200:
        raise ClusterError(f"{address}{path} answered {response.status}: {body[:200]!r}")
    return body.decode()


class _InProcess:
    """All daemons on a loop in a thread of this process, and Python workers as threads."""

    def __init__(self, schedulers: int, node_monitors: int, scheduler_flags: list[str], node_flags: list[str]) -> None:
        packages = ("scheduler", "node_monitor", "frontends")
        require_here("LocalCluster(in_process=True)", packages, INSTEAD_OF_IN_PROCESS)
        from sparrow_py.client import new_event_loop

        self.addresses: list[str] = []
        self._daemons: list[Any] = []
        self._loop = new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="sparrow-cluster", daemon=True)
        self._thread.start()
        try:
            self._run(self._start(schedulers, node_monitors, scheduler_flags, node_flags))
        except BaseException:
            self.stop()
            raise

    async def _start(
        self, schedulers: int, node_monitors: int, scheduler_flags: list[str], node_flags: list[str]
    ) -> None:
        from node_monitor.daemon import NodeMonitorDaemon
        from node_monitor.options import NodeMonitorOptions
        from scheduler.daemon import SchedulerDaemon
        from scheduler.options import SchedulerOptions
        from sparrow_py.daemon.options import parse

        for _ in range(schedulers):
            scheduler = SchedulerDaemon(parse(SchedulerOptions, ["--port", "0", *scheduler_flags], environment=False))
            self._daemons.append(scheduler)
            self.addresses.append((await scheduler.start())["address"])
        for number in range(node_monitors):
            flags = ["--port", "0", "--node-id", f"node-{number}", "--scheduler", ",".join(self.addresses), *node_flags]
            node_monitor = NodeMonitorDaemon(parse(NodeMonitorOptions, flags, environment=False), attached=("python",))
            self._daemons.append(node_monitor)
            await node_monitor.start()
            for node in node_monitor.nodes:
                for _ in range(node.slots):
                    threading.Thread(target=_serve_calls, args=(node.pool.socket_path,), daemon=True).start()

    def _run(self, coroutine: Any) -> Any:
        from click import ClickException

        try:
            return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(START_TIMEOUT_S)
        except ClickException as error:
            raise ClusterError(f"a daemon did not start: {error.format_message()}") from None

    def forked(self) -> None:
        """In a child of the process: let go of the loop, which nobody runs there."""
        let_go([descriptor_of(self._loop)])

    def stop(self) -> None:
        """Stop the daemons, node monitors first; the worker threads end as their sockets close."""
        if self._loop.is_closed():
            return
        for daemon in reversed(self._daemons):
            self._run(daemon.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def _serve_calls(socket_path: str) -> None:
    """A Python worker as a thread, which connects again when it has been cut off, until the cluster is stopped."""
    from frontends.python.executor import PythonExecutor
    from sparrow_py.calls import APP, RUNTIME
    from sparrow_py.executors.executor_connection import ExecutorConnection

    enter_thread()
    while True:
        try:
            connection = ExecutorConnection(socket_path)
        except OSError:  # The cluster has been stopped.
            return
        with contextlib.suppress(OSError):
            connection.hello(APP, runtime=RUNTIME)
            PythonExecutor(connection).serve()
        connection.close()
        # Nobody can kill a thread: of a task that was to be stopped it was cut off, and the task has ended by itself.
        time.sleep(CONNECT_AGAIN_S)
