"""`LocalCluster`: schedulers and node monitors on this machine, as processes or in this one; and `SchedulerHere`.

A daemon that ends though nobody ended it is started again, a few times; jobs go on as they do in any cluster whose
daemons die. Beyond that, once no scheduler or no node monitor is left, the cluster is *broken*, and its clients' jobs
end with the reason instead of waiting for daemons that will not come.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from sparrow_py.access.credentials import Access, client_token
from sparrow_py.access.secret_files import read_tokens
from sparrow_py.adaptive.scaling import INTERVAL_S, QUIET_S, Adaptive
from sparrow_py.auth import TLS
from sparrow_py.cluster_nodes import (
    NODE_COLUMNS,
    NODES_PATH,
    Awaited,
    Listing,
    NodeStatus,
    decode_listing,
    merged,
    node_row,
)
from sparrow_py.embedded.daemon_process import Daemon, check_flags
from sparrow_py.embedded.daemon_processes import NODES_MAX, DaemonProcesses
from sparrow_py.embedded.outlets import Outlets
from sparrow_py.embedded.unix_sockets import UnixSockets
from sparrow_py.errors import ClusterError, InvalidRequest, SparrowError, shown
from sparrow_py.job import check_whole
from sparrow_py.processes.process_bound import tell_of_forks
from sparrow_py.profiles import check_profile
from sparrow_py.session.tasks_in_flight import TasksInFlight
from sparrow_py.wire import messages as m
from sparrow_py.wire.http_get import http_answer, http_get_json, http_get_text
from sparrow_py.wire.local_link import LocalLink
from sparrow_py.wire.messages import LED, SPARROW

if TYPE_CHECKING:
    from sparrow_py.embedded.in_process import DaemonsInProcess

START_TIMEOUT_S = 30.0
LEAD_TIMEOUT_S = 300.0
"""Where the solvers were never compiled before, that takes a minute and more."""
POLL_S = 0.02
HTTP_TIMEOUT_S = 10.0
"""How long a scheduler may take to list its nodes."""
REPR_TIMEOUT_S = 1.0
"""The same, for what a notebook shows of the cluster."""


class LocalCluster:
    """An embedded cluster. Use it in a `with` block, or `stop` it.

    Its workers look for modules where this process does when the cluster is made: in `sys.path`, in that order.

    Parameters
    ----------
    schedulers, node_monitors: how many of each; of schedulers, those that sample.
    slots: of each node monitor; default: this machine's cores.
    processes: "one" has the scheduler and the node monitor in one process, which starts sooner, takes less memory and
        answers sooner; they die together. "separate" has each daemon in a process of its own. Default: "one" for a
        cluster of one scheduler and one node monitor, which alone may be so; else "separate".
    unix_sockets: let clients that are given the cluster, and its node monitors, reach the schedulers over Unix sockets
        that only this account can connect to, where that is possible (not with TLS). If not, over TCP.
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
    profile: of the daemons, "default" or "paper" (docs/options.md).
    policies: "sparrow", and "flow" or "altruistic", or one of them. Beside the schedulers that sample, each of the
        latter has one, in a process of its own, that leads; it needs the extra `flow`. Then all daemons have processes
        of their own. Without "sparrow" there is no scheduler that samples.

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
        processes: str | None = None,
        unix_sockets: bool = True,
        in_process: bool = False,
        enable_command: bool = False,
        scheduler_options: Sequence[str] = (),
        node_options: Sequence[str] = (),
        token_file: str | Path | None = None,
        tls: TLS | None = None,
        log_dir: str | Path | None = None,
        forward_output: bool = True,
        profile: str | None = None,
        policies: Sequence[str] = (SPARROW,),
    ) -> None:
        check_whole("schedulers", schedulers, 1, 1000)
        of_schedulers = _policies_of_schedulers(policies, schedulers, in_process=in_process)
        check_whole("node_monitors", node_monitors, 1, NODES_MAX)
        if slots is not None:
            check_whole("slots", slots, 1, 1 << 16)
        check_flags("scheduler_options", scheduler_options)
        check_flags("node_options", node_options)
        self._one_process = _in_one_process(processes, of_schedulers, node_monitors, in_process=in_process)
        self.addresses: list[str] = []
        """The schedulers' addresses."""
        self.dialled: list[str] = []
        """Where clients in this program dial them."""
        self._in_process: DaemonsInProcess | None = None
        self._here = in_process
        self._log_dir = None if log_dir is None else Path(log_dir)
        self.access = Access.of(read_tokens(str(token_file)).dialling if token_file else client_token(None), tls)
        """How its daemons are reached."""
        of_all = [
            *(["--profile", check_profile(profile)] if profile is not None else []),
            *(["--token-file", str(token_file)] if token_file else []),
            *(["--tls-cert", tls.cert, "--tls-key", tls.key, "--tls-ca", tls.ca] if tls else []),
        ]
        scheduler_flags = [*of_all, *scheduler_options]
        node_flags = [
            *of_all,
            *("--executor-env", "*"),  # Its tasks are this process's own: they get what it has.
            *(["--slots", str(slots)] if slots else []),
            *(["--enable-command"] if enable_command else []),
            *node_options,
        ]
        self._stopped = False
        self._adaptive: Adaptive | None = None
        self._inherited = False
        """Whether this is a forked child's copy."""
        tell_of_forks(self)
        # Has sockets: last of what may fail before there is something to end.
        self._outlets = Outlets(self._log_dir, forward=forward_output and not in_process)
        with_tls = tls is not None or any(option.startswith("--tls-") for option in scheduler_options)
        self._unix_sockets = UnixSockets(wanted=unix_sockets and not with_tls)
        self._processes = DaemonProcesses(scheduler_flags, node_flags, self._outlets, self._unix_sockets)
        self.scheduler_processes, self.node_processes = self._processes.schedulers, self._processes.node_monitors
        try:
            if in_process:
                from sparrow_py.embedded.in_process import DaemonsInProcess

                self._in_process = DaemonsInProcess(schedulers, node_monitors, scheduler_flags, node_flags)
                self.addresses = self.dialled = self._in_process.addresses
            else:
                self.addresses, self.dialled = self._processes.addresses, self._processes.dialled
                if self._one_process:
                    self._processes.start_both()
                else:
                    self._processes.start(of_schedulers, node_monitors)
            self._wait_until_ready(node_monitors)
            self._wait_for_executors()
            for address, policy in zip(self.addresses, of_schedulers, strict=True):
                if policy in LED:
                    self._wait_for_leader(address)
        except BaseException:
            self._end()
            raise

    def __repr__(self) -> str:
        where = "in this process" if self._here else "in processes"
        state = ", stopped" if self._stopped else ""
        return f"<LocalCluster {', '.join(self.addresses)}, {where}{state}>"

    def _repr_html_(self) -> str:
        """For notebooks: its schedulers and, if these answer at once, the nodes."""
        from sparrow_py.html_tables import html_block  # Which programs do without.

        where = "in this process" if self._here else "in processes"
        facts = [("schedulers", ", ".join(self.addresses)), ("daemons", "stopped" if self._stopped else where)]
        nodes: list[NodeStatus] = []
        with contextlib.suppress(SparrowError):  # A cluster that is broken is shown, too.
            nodes = [] if self._stopped else merged(self._listings(REPR_TIMEOUT_S))
        return html_block("LocalCluster", facts, NODE_COLUMNS, [node_row(node) for node in nodes])

    def _repr_mimebundle_(self, **_: object) -> dict[str, Any]:
        """For notebooks with ipywidgets: the same, until it is stopped."""
        from sparrow_py.futures.live_tables import live_mimebundle  # Which programs do without.

        return live_mimebundle(self._repr_html_, lambda: self._stopped)

    def __enter__(self) -> LocalCluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def add_node_monitor(self, node_id: str | None = None) -> Daemon:
        """Start another node monitor, with the name `node_id` if that is given, and wait until it works; `ClusterError`
        if it ends instead, and of a cluster that is stopped, or another process's."""
        self._check_goes_on()
        return self._processes.add_node_monitor(node_id)

    def adapt(
        self, *, minimum: int, maximum: int, quiet_s: float = QUIET_S, interval_s: float = INTERVAL_S
    ) -> Adaptive:
        """Start and end node monitors with what the jobs could use, from `minimum` to `maximum`, until the `Adaptive`
        that this returns is stopped, or the cluster is; it takes the place of one before.

        A node that has had nothing to do for `quiet_s` leaves; it is looked every `interval_s`. `InvalidRequest` for
        bounds that cannot be, and unless node monitors have processes of their own; `ClusterError` of a cluster that is
        stopped, broken, or another process's.
        """
        self._check_goes_on()
        if self._here or self._one_process:
            allowed = "'separate' for a cluster that is to be adapted: its node monitors have processes of their own"
            raise InvalidRequest("processes", "one", allowed)
        self._adaptive = Adaptive(
            self, self._processes, minimum, maximum, quiet_s=quiet_s, interval_s=interval_s, before=self._adaptive
        )
        if self._stopped:  # By another thread, which may not have seen it.
            self._adaptive.stop()
        return self._adaptive

    def _check_goes_on(self) -> None:
        if self._inherited:
            raise ClusterError("this LocalCluster is that of the process which has forked this one")
        if self._stopped:
            raise ClusterError("this LocalCluster is stopped: start another one")

    def tell_if_broken(self, listener: Callable[[ClusterError], None]) -> Callable[[], None]:
        """Have `listener` called, from any thread, once the cluster can do no more; returns what takes that back.

        `ClusterError` if it is so already.
        """
        return self._processes.tell_if_broken(listener)

    @property
    def in_flight(self) -> TasksInFlight:
        """Who is to be told of the jobs of this program's clients, by which forwarded output is marked."""
        return self._outlets.in_flight

    def nodes(self) -> list[NodeStatus]:
        """The nodes, by id, as the schedulers list them now; `ClusterError` if one does not answer."""
        return merged(self._listings())

    def wait_for_nodes(self, count: int, timeout_s: float | None = None) -> None:
        """Return when each scheduler has at least `count` nodes that are ready; `TimeoutError` if that takes longer
        than `timeout_s` (None: for ever), `ClusterError` if a scheduler does not answer."""
        awaited = Awaited(count, timeout_s)
        while not awaited.are_there(self._listings()):
            time.sleep(awaited.pause_s())

    def _listings(self, timeout_s: float = HTTP_TIMEOUT_S) -> list[Listing]:
        return [
            decode_listing(http_get_text(address, NODES_PATH, timeout_s, self.access), address)
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
        self._processes.forked()
        self._outlets.forked()
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

    def _starting(self, process: Daemon) -> list[str]:
        """The apps whose first executors are on their way; `ClusterError` if those of one do not start."""
        nodes = http_get_json(process.address, "/v1/nodes", access=self.access)["nodes"]
        apps = [(name, app) for node in nodes for name, app in node["apps"].items()]
        for name, app in apps:
            if app["state"] == "withdrawn":
                raise ClusterError(f"the executors of app {name!r} do not start on {process.name}: {app['reason']}")
        return [name for name, app in apps if app["state"] == "starting"]

    def _wait_for_leader(self, address: str) -> None:
        """Wait until the scheduler leads its plane, and its solvers are compiled, which takes long the first time."""
        deadline_s = time.monotonic() + LEAD_TIMEOUT_S
        while True:
            status, body = http_answer(address, "/readyz", access=self.access)
            if status == HTTPStatus.OK:
                return
            if time.monotonic() > deadline_s:
                why_not = shown(body.decode("utf-8", "replace"))
                raise ClusterError(f"the scheduler that leads was not ready in {LEAD_TIMEOUT_S:g} s: {why_not}")
            time.sleep(POLL_S)

    def stop(self) -> None:
        """End all daemons at once. Of a cluster that a forked process has inherited, none: it is the parent's."""
        if self._inherited:
            return
        self._stopped = True
        if self._adaptive is not None:
            self._adaptive.stop()
        self._outlets.ignore_logs()
        self._end()

    def _end(self) -> None:
        self._stopped = True
        if self._in_process is not None:
            self._in_process.stop()
            self._in_process = None
        self._processes.end()
        self._unix_sockets.remove()
        self._outlets.close()


def _policies_of_schedulers(policies: Sequence[str], schedulers: int, *, in_process: bool) -> list[str]:
    """The policy of each scheduler; `InvalidRequest` if there cannot be such ones."""
    leading = [policy for policy in LED if policy in policies]
    if isinstance(policies, str) or not policies or set(policies) - {SPARROW, *LED} or len(leading) > 1:
        raise InvalidRequest(
            "policies", policies, "a list of 'sparrow', 'flow' or 'altruistic', not both of the latter"
        )
    if not leading:
        return [SPARROW] * schedulers
    if in_process:
        why = f"policy {leading[0]} has a process of its own"
        raise InvalidRequest("policies", policies, f"['sparrow'] with in_process: {why}")
    if SPARROW in policies:
        return [SPARROW] * schedulers + leading
    if schedulers > 1:
        raise InvalidRequest("schedulers", schedulers, f"1 with policies={leading}, which one scheduler leads")
    return leading


def _in_one_process(processes: str | None, policies: list[str], node_monitors: int, *, in_process: bool) -> bool:
    """Whether scheduler and node monitor share a process; `InvalidRequest` if `processes` cannot be."""
    if processes not in (None, "one", "separate"):
        raise InvalidRequest("processes", processes, "'one', 'separate' or None")
    if in_process and processes is not None:
        raise InvalidRequest("processes", processes, "None with in_process, which has no process beside this one")
    alone = policies == [SPARROW] and node_monitors == 1
    if processes == "one" and not alone:
        allowed = "'separate' or None where there are several schedulers or node monitors, or policy flow"
        raise InvalidRequest("processes", processes, allowed)
    return alone and processes != "separate"


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
        check_flags("flags", flags)
        self._flags = ["--port", str(check_port(port)), *flags]
        self._daemon: Any = None

    async def start(self) -> m.Welcome:
        """Begin to listen, on this loop; what a dialled scheduler would have answered. `ClusterError` if it cannot."""
        if self._daemon is not None:
            raise ClusterError("a SchedulerHere is for one client; it was given to another before")
        from sparrow_py.embedded.in_process import new_scheduler

        self._daemon = new_scheduler(self._flags)
        self.address = (await self._daemon.start())["address"]
        welcome: m.Welcome = self._daemon.welcome()
        return welcome

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
