"""`SSHCluster` and `SlurmCluster`: a scheduler here, and node monitors on other machines that end with it."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar

from sparrow_py.access.credentials import Access
from sparrow_py.adaptive.scaling import INTERVAL_S, QUIET_S, Adaptive
from sparrow_py.cluster_nodes import NODES_PATH, Awaited, Listing, NodeStatus, check_timeout, decode_listing, merged
from sparrow_py.embedded.breaking import Breaking
from sparrow_py.embedded.daemon_process import SCHEDULER, DaemonProcess, check_flags
from sparrow_py.errors import ClusterError, InvalidRequest
from sparrow_py.job import check_whole
from sparrow_py.remote.launching import (
    Host,
    allocation,
    parse_hosts,
    shell_line,
    srun_command,
    ssh_command,
    step_command,
)
from sparrow_py.remote.machines import Machines
from sparrow_py.session.tasks_in_flight import TasksInFlight
from sparrow_py.wire.addresses import check_address
from sparrow_py.wire.http_get import http_get_text

log = logging.getLogger("sparrow.cluster")
START_TIMEOUT_S = 60.0
"""How long the node monitors may take to reach the scheduler."""
HTTP_TIMEOUT_S = 10.0
POLL_S = 0.5
"""How often it is looked whether the commands run."""


class RemoteCluster:
    """A scheduler of this machine, and node monitors that commands start on others. Use it in a `with` block, or `stop`
    it; all of it ends with this process, however that ends.

    `ClusterError` if the scheduler does not start, or a command ends before its node monitors have reached the
    scheduler. A machine that is lost later is a warning in the log `sparrow.cluster`; once the last one is, or the
    scheduler, the cluster is *broken*: its clients' jobs end with a `ClusterError` that says how. Its secret is new;
    traffic is not encrypted, so take networks that you trust.
    """

    is_remote: ClassVar = True

    def __init__(self, address: str, scheduler_options: Sequence[str], log_dir: str | Path | None) -> None:
        check_address(f"{address}:1")
        check_flags("scheduler_options", scheduler_options)
        self.token = secrets.token_hex(32)
        """The secret that clients show."""
        self.access = Access.of(self.token)
        self.addresses: list[str] = []
        """The scheduler's address."""
        self._node_options: Sequence[str] = ()
        self.in_flight = TasksInFlight()
        """What clients that are given the cluster tell of their jobs. No output is forwarded, so nobody asks."""
        self._breaking = Breaking()
        self._over = threading.Event()
        """Whether it is stopped, or broken."""
        self._log_dir = None if log_dir is None else Path(log_dir)
        self._logs: dict[str, Any] = {}
        self._adaptive: Adaptive | None = None
        self._environment = {name: value for name, value in os.environ.items() if not name.startswith("SPARROW_")}
        flags = ["--host", "0.0.0.0", "--log-level", "warning", *scheduler_options]
        self._machines = Machines(self.token, self._environment, lambda name: self._log(name.replace("/", "_")))
        environment = self._environment | {"SPARROW_TOKEN": self.token}
        self._scheduler = DaemonProcess(SCHEDULER, flags, environment, self._log(SCHEDULER), name="of this machine")
        try:
            self._scheduler.wait_until_ready()
        except BaseException:
            self.stop()
            raise
        self.addresses = [f"{address}:{self._scheduler.address.rpartition(':')[2]}"]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {', '.join(self.addresses)}, of {', '.join(self._machines.names())}>"

    def __enter__(self) -> RemoteCluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _log(self, name: str) -> Any:
        """Where a process's standard error goes."""
        if self._log_dir is None:
            return None
        self._log_dir.mkdir(parents=True, exist_ok=True)
        if name not in self._logs:
            self._logs[name] = (self._log_dir / f"{name}.log").open("ab")
        return self._logs[name]

    def _launch(self, commands: Mapping[str, Sequence[str]], first: int, nodes: int, timeout_s: float) -> None:
        """There are these machines: run the commands of the first ones, and wait for so many nodes."""
        self._machines.add(commands)
        try:
            self._machines.start(list(commands)[:first])
            self._wait_until_there(nodes, timeout_s)
        except BaseException:
            self.stop()
            raise
        threading.Thread(target=self._watch, name="sparrow-machines", daemon=True).start()

    def _wait_until_there(self, nodes: int, timeout_s: float) -> None:
        awaited = Awaited(nodes, timeout_s)
        try:
            while not awaited.are_there(self._listings()):
                self._check_all_run()
                time.sleep(awaited.pause_s())
        except TimeoutError as error:
            address = self.addresses[0]
            raise ClusterError(f"not all node monitors have reached the scheduler at {address}: {error}") from None

    def _check_all_run(self) -> None:
        if why := self._machines.why_one_ended():
            where = "its log has what it said" if self._log_dir else "what it said is on standard error"
            raise ClusterError(f"{why} before its node monitors had reached the scheduler; {where}")

    def _listings(self) -> list[Listing]:
        return [
            decode_listing(http_get_text(address, NODES_PATH, HTTP_TIMEOUT_S, self.access), address)
            for address in self.addresses
        ]

    def nodes(self) -> list[NodeStatus]:
        """The nodes, by id, as the scheduler lists them now; `ClusterError` if it does not answer."""
        return merged(self._listings())

    def tell_if_broken(self, listener: Callable[[ClusterError], None]) -> Callable[[], None]:
        """Have `listener` called, from any thread, once the cluster can do no more; returns what takes that back.

        `ClusterError` if it is so already.
        """
        return self._breaking.tell(listener)

    def wait(self) -> None:
        """Return when the scheduler or the last of the commands has ended, with a `ClusterError` that says how; or when
        another thread stops the cluster."""
        self._over.wait()
        if self._breaking.error is not None:
            raise self._breaking.error

    def _watch(self) -> None:
        """Say which machines are lost, and that the cluster is broken once the last one is: in a thread of its own."""
        while not self._over.wait(POLL_S):
            if self._scheduler.process.poll() is not None:
                self._break(f"the cluster has no scheduler any more: {self._scheduler.why_ended()}")
                return
            ended = self._machines.take_ended()
            is_broken = bool(ended) and not self._machines.own_nodes() and not self._starts_others()
            for one in ended[: len(ended) - is_broken]:
                if one.expected:
                    log.info("%s", one.last_words)
                else:
                    log.warning("%s\nIts tasks start elsewhere.", one.last_words)
            if is_broken:
                self._break(f"the cluster has no node monitor any more: {ended[-1].last_words}")
                return

    def _starts_others(self) -> bool:
        """Whether somebody starts node monitors in place of those that have ended, and machines are there for them."""
        return self._adaptive is not None and not self._adaptive.is_stopped and self._machines.room() > 0

    def _break(self, why: str) -> None:
        if not self._over.is_set():
            self._breaking.broken(ClusterError(why))
            self._over.set()

    # ---- growing and shrinking -------------------------------------------------------------------

    def adapt(
        self, *, minimum: int, maximum: int, quiet_s: float = QUIET_S, interval_s: float = INTERVAL_S
    ) -> Adaptive:
        """Start and end node monitors with what the jobs could use, from `minimum` to `maximum`, until the `Adaptive`
        that this returns is stopped, or the cluster is; it takes the place of one before.

        A node that has had nothing to do for `quiet_s` leaves; it is looked every `interval_s`. `InvalidRequest` for
        bounds that cannot be, more than there are machines among them, and for nodes that have other names than their
        machines; `ClusterError` of a cluster that is stopped or broken.
        """
        self._check_adaptable()
        check_whole("maximum", maximum, 1, len(self._machines.names()))
        self._adaptive = Adaptive(
            self, self._machines, minimum, maximum, quiet_s=quiet_s, interval_s=interval_s, before=self._adaptive
        )
        if self._over.is_set():  # Another thread has stopped it, and may not have seen this.
            self._adaptive.stop()
        return self._adaptive

    def _check_adaptable(self) -> None:
        if self._breaking.error is not None:
            raise self._breaking.error
        if self._over.is_set():
            raise ClusterError(f"this {type(self).__name__} is stopped: start another one")
        for option in self._node_options:
            if option.partition("=")[0] in ("--node-id", "--count"):
                raise InvalidRequest("node_options", option, "options without --node-id and --count, to be adapted")

    def stop(self) -> None:
        """End all node monitors and the scheduler at once."""
        self._over.set()
        if self._adaptive is not None:
            self._adaptive.stop()
        self._machines.end()
        self._scheduler.end()
        self._scheduler.wait_ended()
        for log in self._logs.values():
            log.close()


class SSHCluster(RemoteCluster):
    """A cluster of machines that ssh reaches without asking for a password.

    Parameters
    ----------
    hosts: the machines, as ssh names them (`HOST` or `USER@HOST`), each with ` slots=N` after it if it is to have
        another number of slots than cores; or the path of a file with a line for each.
    address: of this machine, as the others reach it; default: that which it has on the way to the first of them.
    python: the interpreter there, which has sparrow-py; default: the path of this one.
    directory: where node monitors start, and tasks look for modules, if it is there; default: the current one.
    enable_command: offer the app `command`.
    scheduler_options, node_options: further command-line flags of the daemons.
    ssh_options: of ssh, such as `["-p", "2222"]`.
    log_dir: where the daemons' logs, and what tasks print, go, a file for each machine; default: to standard error,
        from warnings on.
    timeout_s: how long the node monitors may take to reach the scheduler.
    machines: how many of them have a node monitor from the start, the first ones; default: all. For `adapt`.
    """

    def __init__(
        self,
        hosts: str | Path | Sequence[str],
        *,
        address: str | None = None,
        python: str | None = None,
        directory: str | None = None,
        enable_command: bool = False,
        scheduler_options: Sequence[str] = (),
        node_options: Sequence[str] = (),
        ssh_options: Sequence[str] = (),
        log_dir: str | Path | None = None,
        timeout_s: float = START_TIMEOUT_S,
        machines: int | None = None,
    ) -> None:
        check_timeout(timeout_s)
        check_flags("node_options", node_options)
        check_flags("ssh_options", ssh_options)
        found = read_hosts(hosts)
        first = _checked_machines(machines, len(found))
        own = address or address_towards(found[0].name.rpartition("@")[2])
        super().__init__(own, scheduler_options, log_dir)
        self._node_options = node_options
        commands = {}
        for host in found:
            named = ["--node-id", host.name, *(["--slots", str(host.slots)] if host.slots else [])]
            flags = [*_node_flags(self.addresses[0], enable_command), *named, *node_options]
            line = shell_line(python or sys.executable, directory or str(Path.cwd()), flags)
            commands[host.name] = ssh_command(host, line, ssh_options)
        self._launch(commands, first, first, timeout_s)


class SlurmCluster(RemoteCluster):
    """A cluster of all machines of the Slurm allocation in which this process runs (sbatch, salloc), by srun.

    `InvalidRequest` outside of an allocation. The parameters are those of `SSHCluster`; `srun_options` are of srun.
    With `machines` each machine has a job step of its own, which `adapt` can start and end; else there is one for all.
    """

    def __init__(
        self,
        *,
        address: str | None = None,
        python: str | None = None,
        directory: str | None = None,
        enable_command: bool = False,
        scheduler_options: Sequence[str] = (),
        node_options: Sequence[str] = (),
        srun_options: Sequence[str] = (),
        log_dir: str | Path | None = None,
        timeout_s: float = START_TIMEOUT_S,
        machines: int | None = None,
    ) -> None:
        check_timeout(timeout_s)
        check_flags("node_options", node_options)
        check_flags("srun_options", srun_options)
        allocated = allocation(os.environ)
        first = _checked_machines(machines, allocated.nodes)
        super().__init__(address or allocated.here or socket.gethostname(), scheduler_options, log_dir)
        self._node_options = node_options
        self._in_steps = machines is not None

        def line(*named: str) -> str:
            flags = [*_node_flags(self.addresses[0], enable_command), *named, *node_options]
            return shell_line(python or sys.executable, directory or str(Path.cwd()), flags)

        if self._in_steps:
            names = [f"machine-{number}" for number in range(allocated.nodes)]
            commands = {
                name: step_command(allocated, number, line("--node-id", name), srun_options)
                for number, name in enumerate(names)
            }
            self._launch(commands, first, first, timeout_s)
        else:
            self._launch({"the allocation": srun_command(allocated, line(), srun_options)}, 1, first, timeout_s)

    def _check_adaptable(self) -> None:
        super()._check_adaptable()
        if not self._in_steps:
            raise InvalidRequest("machines", None, "a number, so that each machine has a job step of its own")


def _checked_machines(machines: int | None, there: int) -> int:
    """How many machines have a node monitor from the start."""
    if machines is None:
        return there
    check_whole("machines", machines, 0, there)
    return machines


def _node_flags(scheduler: str, enable_command: bool) -> list[str]:
    own = ["--scheduler", scheduler, "--executor-env", "*", "--log-level", "warning"]
    return [*own, *(["--enable-command"] if enable_command else [])]


def read_hosts(hosts: str | Path | Sequence[str]) -> list[Host]:
    """The hosts of a list, or of the file at this path; `InvalidRequest` if that cannot be read or has none."""
    if not isinstance(hosts, str | Path):
        for host in hosts:
            if not isinstance(host, str):
                raise InvalidRequest("hosts", host, "text: HOST or USER@HOST")
        return parse_hosts("\n".join(hosts), each_once=True)
    try:
        text = Path(hosts).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(
            "hosts", str(hosts), f"a list of hosts, or a file of them that can be read ({error})"
        ) from None
    return parse_hosts(text, f"hosts of {hosts}")


def address_towards(host: str) -> str:
    """This machine's address on the way to a host; its name if that cannot be told. Nothing is sent."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(address)
            found = str(probe.getsockname()[0])
            return f"[{found}]" if ":" in found else found
    except OSError:
        return socket.gethostname()
