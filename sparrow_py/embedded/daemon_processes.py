"""The daemons of an embedded cluster as processes: started, watched, started again, ended.

A daemon that ends though nobody ended it is started again, a few times (`restarts`). Beyond that, once no scheduler or
no node monitor is left, the cluster is *broken*.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence

from sparrow_py.embedded.daemon_process import KINDS, DaemonProcess, import_path
from sparrow_py.embedded.outlets import Outlets
from sparrow_py.embedded.restarts import RESTARTS_WINDOW_S, Restarts
from sparrow_py.errors import ClusterError

log = logging.getLogger("sparrow.cluster")
HOST = "127.0.0.1"


class DaemonProcesses:
    """The processes of one cluster. The options are command-line flags of the daemons."""

    def __init__(self, scheduler_options: Sequence[str], node_options: Sequence[str], outlets: Outlets) -> None:
        self.addresses: list[str] = []
        """The schedulers' addresses."""
        self.schedulers: list[DaemonProcess] = []
        self.node_monitors: list[DaemonProcess] = []
        self._scheduler_options = scheduler_options
        self._node_options = node_options
        self._outlets = outlets
        self._node_count = 0
        self._lock = threading.Lock()
        """Guards what follows, and the two lists of processes where a process is replaced."""
        self._stopping = False
        self._broken: ClusterError | None = None
        self._listeners: dict[int, Callable[[ClusterError], None]] = {}
        self._next_listener = 0
        self._restarts: dict[str, Restarts] = {}
        """By the daemon's name."""

    def start(self, schedulers: int, node_monitors: int) -> None:
        """Start so many of each, and wait until they work; `ClusterError` if one ends instead."""
        # The schedulers' sockets are made here, so that the node monitors can be told of them and
        # all daemons start at the same time.
        for number in range(schedulers):
            with socket.create_server((HOST, 0)) as listener:
                self.addresses.append(f"{HOST}:{listener.getsockname()[1]}")
                process = self._spawn("scheduler", f"scheduler-{number}", self._scheduler_options, listener)
                self.schedulers.append(process)
        for _ in range(node_monitors):
            self.node_monitors.append(self._spawn_node(self._new_node_id()))
        for process in [*self.schedulers, *self.node_monitors]:
            self._await_ready(process)

    def add_node_monitor(self, node_id: str | None = None) -> DaemonProcess:
        """Start another node monitor (of that name), and wait until it works."""
        process = self._spawn_node(node_id or self._new_node_id())
        with self._lock:
            self.node_monitors.append(process)
        self._await_ready(process)
        return process

    def forked(self) -> None:
        """In a child of the process: the daemons are the parent's."""
        for process in (*self.node_monitors, *self.schedulers):
            process.forked()

    def end(self) -> None:
        """End all at once."""
        with self._lock:
            self._stopping = True
        # Node monitors first: both ends of a link that close at once wait for each other.
        for processes in (self.node_monitors, self.schedulers):
            for process in processes:
                process.end()
            for process in processes:
                process.wait_ended()

    # ---- starting one ----------------------------------------------------------------------------

    def _new_node_id(self) -> str:
        self._node_count += 1
        return f"node-{self._node_count - 1}"

    def _spawn_node(self, node_id: str) -> DaemonProcess:
        flags = ["--scheduler", ",".join(self.addresses), "--node-id", node_id, *self._node_options]
        # Workers must find what this process can import; after what the options name.
        flags += [f"--python-path={entry}" for entry in import_path()]
        return self._spawn("node_monitor", node_id, flags)

    def _spawn_scheduler_again(self, before: DaemonProcess) -> DaemonProcess:
        """At the same address, which clients and node monitors dial. The one before may have ended before it told its
        address."""
        address = self.addresses[int(before.name.removeprefix("scheduler-"))]
        with socket.create_server((HOST, int(address.rpartition(":")[2]))) as listener:
            return self._spawn("scheduler", before.name, self._scheduler_options, listener)

    def _spawn(
        self, module: str, name: str, flags: Sequence[str], listener: socket.socket | None = None
    ) -> DaemonProcess:
        # The user's SPARROW_… are for daemons that the user starts; the secret is for all.
        environment = {k: v for k, v in os.environ.items() if not k.startswith("SPARROW_") or k == "SPARROW_TOKEN"}
        with self._outlets.of(module, name) as (its_log, inherited, own):
            return DaemonProcess(module, [*own, *flags], environment, its_log, listener, inherited, name)

    def _await_ready(self, process: DaemonProcess) -> None:
        """Wait until it works, and from then on for its end; `ClusterError` if it ends instead."""
        process.wait_until_ready()
        threading.Thread(target=self._watch, args=(process,), name=f"sparrow-{process.name}", daemon=True).start()

    # ---- daemons that end by themselves ----------------------------------------------------------

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
        processes = self.schedulers if scheduler else self.node_monitors
        with self._lock:
            if self._stopping or process not in processes:
                return None
            again = self._spawn_scheduler_again(process) if scheduler else self._spawn_node(process.name)
            processes[processes.index(process)] = again
        process.wait_ended()  # It has, and nobody else closes its pipes any more.
        return again

    def _do_without(self, process: DaemonProcess, why: str) -> None:
        """The daemon is not started again: without any of its kind the cluster is broken."""
        processes = self.schedulers if process.module == "scheduler" else self.node_monitors
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
