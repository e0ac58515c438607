"""The daemons of an embedded cluster as processes: started, watched, started again, ended.

A daemon that ends though nobody ended it is started again, a few times (`restarts`). Beyond that, once no scheduler or
no node monitor is left, the cluster is *broken*.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from sparrow_py.embedded.breaking import Breaking
from sparrow_py.embedded.daemon_process import (
    AND_NODE_MONITOR,
    KINDS,
    NO_LISTENERS,
    NODE_MONITOR,
    ONE_PROCESS,
    SCHEDULER,
    Daemon,
    DaemonInside,
    DaemonProcess,
    import_path,
)
from sparrow_py.embedded.outlets import Outlets
from sparrow_py.embedded.restarts import RESTARTS_WINDOW_S, Restarts
from sparrow_py.embedded.unix_sockets import UnixSockets
from sparrow_py.errors import ClusterError
from sparrow_py.wire.messages import LED

log = logging.getLogger("sparrow.cluster")
HOST = "127.0.0.1"
BOTH = "cluster"
"""The name of the process that has a scheduler and a node monitor."""
FIRST_NODE = "node-0"
NODES_MAX = 1000
"""Node monitors of one cluster."""
PORT_FREE_S = 2.0
"""For so long it is tried to have a dead scheduler's port again, each `POLL_S`."""
POLL_S = 0.05


class DaemonProcesses:
    """The processes of one cluster. The options are command-line flags of the daemons."""

    def __init__(
        self,
        scheduler_options: Sequence[str],
        node_options: Sequence[str],
        outlets: Outlets,
        unix_sockets: UnixSockets,
    ) -> None:
        self.addresses: list[str] = []
        """The schedulers' addresses."""
        self.dialled: list[str] = []
        """Where their clients and node monitors on this machine dial them, in the same order."""
        self.schedulers: list[Daemon] = []
        self.node_monitors: list[Daemon] = []
        self._processes: dict[str, DaemonProcess] = {}
        """By name: that of its daemon, or `BOTH`."""
        self._scheduler_options = scheduler_options
        self._node_options = node_options
        self._outlets = outlets
        self._unix_sockets = unix_sockets
        self._policies: Sequence[str] = ()
        """Of the schedulers, by their number."""
        self._first_nodes = 0
        """Node monitors with which the cluster starts."""
        self._lock = threading.Lock()
        """Guards what follows, and the processes and daemons where a process is replaced."""
        self._stopping = False
        self._breaking = Breaking()
        self._leaving: set[str] = set()
        """Names of node monitors that were told to leave."""
        self._given_up: set[str] = set()
        """Names of those that died too often."""
        self._restarts: dict[str, Restarts] = {}
        """By the process's name."""

    def start(self, policies: Sequence[str], node_monitors: int) -> None:
        """Start a scheduler of each of these policies, and so many node monitors, and wait until they work;
        `ClusterError` if one ends instead."""
        self._policies, self._first_nodes = policies, node_monitors
        for number in range(len(policies)):
            self._spawn_scheduler(number)
        for _ in range(node_monitors):
            self._spawn_node(self._new_node_id())
        for process in list(self._processes.values()):
            self._await_ready(process)

    def start_both(self) -> None:
        """Start one of each in one process, and wait until they work; `ClusterError` if it ends instead."""
        self._spawn_both(self._new_node_id())
        self._await_ready(self._processes[BOTH])

    def add_node_monitor(self, node_id: str | None = None) -> Daemon:
        """Start another node monitor (of that name), and wait until it works."""
        with self._lock:
            process = self._spawn_node(node_id or self._new_node_id())
        self._await_ready(process)
        return process

    # ---- growing and shrinking -------------------------------------------------------------------

    def own_nodes(self) -> set[str]:
        """Ids of the nodes that have a process of their own and may leave, those that start or leave among them."""
        with self._lock:
            found = [one for one in self._processes.values() if one.module == NODE_MONITOR and not one.was_ended]
            return {one.name for one in found} - self._given_up

    def room(self) -> int:
        """How many further node monitors can be started."""
        return max(0, NODES_MAX - len(self.own_nodes()))

    def start_nodes(self, count: int) -> None:
        """Start so many further node monitors, and wait until they work; `ClusterError` if one ends instead."""
        for process in [one for name, one in list(self._processes.items()) if name in self._given_up]:
            self._forget(process)
        with self._lock:
            wanted = 0 if self._stopping else count
            started = [self._spawn_node(self._new_node_id()) for _ in range(wanted)]
        for process in started:
            try:
                self._await_ready(process)
            except ClusterError:
                self._forget(process)
                raise

    def expect_end(self, node_id: str, *, expected: bool) -> None:
        """The node is told to leave: its process is not started again; or, it stays after all."""
        with self._lock:
            (self._leaving.add if expected else self._leaving.discard)(node_id)

    def give_up(self, node_id: str) -> None:
        """End the process of this node, and do without it."""
        process = self._processes.get(node_id)
        if process is not None:
            process.end()
            process.wait_ended()
            self._forget(process)

    def _forget(self, process: DaemonProcess) -> None:
        """A node monitor has left."""
        with self._lock:
            self._leaving.discard(process.name)
            self._given_up.discard(process.name)
            self._restarts.pop(process.name, None)
            if self._processes.get(process.name) is process:
                del self._processes[process.name]
            if process in self.node_monitors:
                self.node_monitors.remove(process)

    def forked(self) -> None:
        """In a child of the process: the daemons are the parent's."""
        for process in self._processes.values():
            process.forked()

    def end(self) -> None:
        """End all at once."""
        with self._lock:
            self._stopping = True
        # Node monitors first: both ends of a link that close at once wait for each other.
        processes = list(self._processes.values())
        nodes = [process for process in processes if process.module == NODE_MONITOR]
        others = [process for process in processes if process.module != NODE_MONITOR]
        for ending in (nodes, others):
            for process in ending:
                process.end()
            for process in ending:
                process.wait_ended()

    # ---- starting one ----------------------------------------------------------------------------

    def _new_node_id(self) -> str:
        """The first that no node has: those of nodes that have left are given again."""
        taken = {*self._processes, *(one.name for one in self.node_monitors)}
        return next(name for name in map("node-{}".format, itertools.count()) if name not in taken)

    def _spawn_scheduler(self, number: int) -> DaemonProcess:
        with self._listening(number) as listeners:
            policy = self._policies[number]
            # Else its leader would wait for others, which do not come.
            expected = ["--nodes-expected", str(self._first_nodes)] if policy in LED else []
            flags = [*expected, *self._scheduler_options, "--policy", policy]
            process = self._spawn(SCHEDULER, f"{SCHEDULER}-{number}", flags, listeners=listeners)
        _put(self.schedulers, process)
        return process

    def _spawn_node(self, node_id: str) -> DaemonProcess:
        process = self._spawn(NODE_MONITOR, node_id, (), self._node_flags(node_id))
        _put(self.node_monitors, process)
        return process

    def _spawn_both(self, node_id: str) -> DaemonProcess:
        with self._listening(0) as listeners:
            process = self._spawn(ONE_PROCESS, BOTH, self._scheduler_options, self._node_flags(node_id), listeners)
        _put(self.schedulers, DaemonInside(process, SCHEDULER, f"{SCHEDULER}-0"))
        _put(self.node_monitors, DaemonInside(process, NODE_MONITOR, node_id))
        return process

    def _spawn_again(self, process: DaemonProcess) -> DaemonProcess:
        if process.module == SCHEDULER:
            return self._spawn_scheduler(int(process.name.removeprefix(f"{SCHEDULER}-")))
        if process.module == NODE_MONITOR:
            return self._spawn_node(process.name)
        return self._spawn_both(FIRST_NODE)

    @contextlib.contextmanager
    def _listening(self, number: int) -> Iterator[dict[str, socket.socket]]:
        """The sockets of this scheduler, by the options that name them: made here, so that node monitors can be told of
        them and start at the same time, and one that is started again is where it was."""
        again = number < len(self.addresses)
        port = int(self.addresses[number].rpartition(":")[2]) if again else 0
        with contextlib.ExitStack() as stack:
            listener = stack.enter_context(socket.create_server((HOST, port)))
            listeners = {"--listen-fd": listener}
            # One whose clients dial TCP already is found there, whatever may be possible now.
            only_tcp = again and self.dialled[number] == self.addresses[number]
            unix = None if only_tcp else self._unix_sockets.listen(f"{SCHEDULER}-{number}")
            if unix is not None:
                listeners["--also-listen-fd"] = stack.enter_context(unix)
            if not again:
                self.addresses.append(f"{HOST}:{listener.getsockname()[1]}")
                self.dialled.append(self._unix_sockets.address(unix) or self.addresses[number])
            yield listeners

    def _node_flags(self, node_id: str) -> list[str]:
        flags = ["--scheduler", ",".join(self.dialled), "--node-id", node_id, *self._node_options]
        # Workers must find what this process can import; after what the options name.
        return flags + [f"--python-path={entry}" for entry in import_path()]

    def _spawn(
        self,
        module: str,
        name: str,
        scheduler_flags: Sequence[str],
        node_flags: Sequence[str] = (),
        listeners: Mapping[str, socket.socket] = NO_LISTENERS,
    ) -> DaemonProcess:
        # The user's SPARROW_… are for daemons that the user starts; the secret is for all.
        environment = {k: v for k, v in os.environ.items() if not k.startswith("SPARROW_") or k == "SPARROW_TOKEN"}
        with self._outlets.of(name, workers=module != SCHEDULER) as outlet:
            flags = [*outlet.flags, *scheduler_flags]
            if module == ONE_PROCESS:
                flags += [AND_NODE_MONITOR, "--port", "0"]
            flags += [*outlet.node_flags, *node_flags]
            process = DaemonProcess(module, flags, environment, outlet.log, listeners, outlet.inherited, name)
        self._processes[name] = process
        return process

    def _await_ready(self, process: DaemonProcess) -> None:
        """Wait until it works, and from then on for its end; `ClusterError` if it ends instead."""
        process.wait_until_ready()
        threading.Thread(target=self._watch, args=(process,), name=f"sparrow-{process.name}", daemon=True).start()

    # ---- daemons that end by themselves ----------------------------------------------------------

    def tell_if_broken(self, listener: Callable[[ClusterError], None]) -> Callable[[], None]:
        """As `Breaking.tell`."""
        return self._breaking.tell(listener)

    def _watch(self, process: DaemonProcess) -> None:
        """Wait for its end, and do what is to be done then: in a thread of its own."""
        process.process.wait()
        ended: DaemonProcess | None = process
        while ended is not None:
            ended = self._ended(ended)

    def _ended(self, process: DaemonProcess) -> DaemonProcess | None:
        """A daemon has ended: start it again if nobody ended it. Returns the one that was started, if it ended, too."""
        process.wait_ended()  # It has: its pipes are closed.
        if process.name in self._leaving and process.process.returncode == 0:
            self._forget(process)
            return None
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
            again = self._start_again_once_free(process)
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

    def _start_again_once_free(self, process: DaemonProcess) -> DaemonProcess | None:
        """As `_start_again`. Children of the dead process may hold its port until they have ended, too."""
        deadline_s = time.monotonic() + PORT_FREE_S
        while True:
            try:
                return self._start_again(process)
            except OSError as error:
                if error.errno != errno.EADDRINUSE or time.monotonic() > deadline_s:
                    raise
            time.sleep(POLL_S)

    def _start_again(self, process: DaemonProcess) -> DaemonProcess | None:
        """Another in its place; None if the cluster is being stopped, or another of its name was started."""
        with self._lock:
            if self._stopping or self._processes[process.name] is not process:
                return None
            return self._spawn_again(process)

    def _do_without(self, process: DaemonProcess, why: str) -> None:
        """The process is not started again: without any daemon of a kind the cluster is broken."""
        self._given_up.add(process.name)
        missing = [
            KINDS[module]
            for module, daemons in ((SCHEDULER, self.schedulers), (NODE_MONITOR, self.node_monitors))
            if process.module in (module, ONE_PROCESS) and all(one.process.poll() is not None for one in daemons)
        ]
        if not missing:
            log.warning("%s\nIt is not started again; the cluster goes on without it.", why)
            return
        with self._lock:
            if self._stopping:
                return
        self._breaking.broken(ClusterError(f"the embedded cluster has no {' and no '.join(missing)} any more: {why}"))


def _put(daemons: list[Daemon], daemon: Daemon) -> None:
    """In the place of the one of its name that has ended; else at the end."""
    for place, before in enumerate(daemons):
        if before.name == daemon.name:
            daemons[place] = daemon
            return
    daemons.append(daemon)
