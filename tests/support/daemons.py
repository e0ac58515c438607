"""Real daemons started by hand, as an operator would, and HTTP to them."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from http.client import HTTPConnection
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil

from tests.support import executor_starts, forked_starts
from tests.support.waiting import TIMEOUT_S, wait_until


def clean_environment(**more: str) -> dict[str, str]:
    """This process's environment without options of ours, plus these."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SPARROW_")}
    path = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
    return {**kept, "PYTHONPATH": path, **more}


FORK_SERVER = "sparrow_py.executors.fork_server"
"""The module that a fork server is started with."""


class Daemon:
    """`python -m MODULE --port 0 FLAGS…`, ready to work. Ends with the `with` block.

    within: what its command line begins with, if it is to run in a namespace, say. python: another interpreter.
    uid: the user to run as, and its only group; it takes root.
    """

    def __init__(
        self,
        module: str,
        *flags: str,
        log: Path,
        port: int = 0,
        within: Sequence[str] = (),
        python: str = sys.executable,
        uid: int | None = None,
        **environment: str,
    ) -> None:
        self.log = log
        command = [*within, python, "-m", module, "--port", str(port), "--exit-on-stdin-eof", *flags]
        with log.open("ab") as stderr:
            self.process = forked_starts.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=clean_environment(**environment),
                user=uid,
                group=uid,
                extra_groups=None if uid is None else [],
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"{module} did not start:\n{log.read_text()}"
        self.announcement: dict[str, Any] = json.loads(line)
        self.address: str = self.announcement["address"]

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def signal(self, number: int = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    def wait(self) -> int:
        """Its exit code, once it has ended."""
        return self.process.wait(TIMEOUT_S)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def __enter__(self) -> "Daemon":
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.end()

    def end(self) -> None:
        """Close its standard input, and wait for its end."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        finally:
            self.process.stdout.close()


@contextlib.contextmanager
def node_of(address: str, log: Path, *flags: str, name: str = "n", slots: int = 2) -> Iterator[Daemon]:
    """A node monitor of the scheduler at this address, linked: each of the two knows of the other."""
    own = ("--scheduler", address, "--node-id", name, "--slots", str(slots))
    with Daemon("node_monitor", *own, *flags, log=log) as daemon:
        wait_until(lambda: name in nodes_of(address), f"node {name} at {address}")
        wait_until(lambda: http(daemon.address, "/readyz")[0] == 200, "the node monitor to see the link, too")
        yield daemon


def free_ports(count: int) -> list[int]:
    """Ports that nothing listens at now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def http(address: str, path: str, method: str = "GET", **headers: str) -> tuple[int, str]:
    """(status, body) of a daemon's answer."""
    connection = HTTPConnection(address, timeout=TIMEOUT_S)
    try:
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def post(address: str, path: str, body: Any) -> tuple[int, str]:
    """(status, body) of a daemon's answer to this JSON."""
    connection = HTTPConnection(address, timeout=TIMEOUT_S)
    try:
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def get_json(address: str, path: str) -> Any:
    """A daemon's JSON."""
    status, body = http(address, path)
    assert status == 200, body
    return json.loads(body)


def nodes_of(address: str) -> dict[str, Any]:
    """The node monitors that a scheduler knows, by id."""
    return {node["id"]: node for node in get_json(address, "/v1/nodes")["nodes"]}


def wait_for_nodes(address: str, *ids: str) -> None:
    """Wait until just these node monitors are linked to the scheduler."""
    wait_until(lambda: set(nodes_of(address)) == set(ids), f"nodes {ids} at {address}")


def workers_of(pid: int) -> set[int]:
    """The executors' process ids of the node monitor with this process id: those that have users, and fresh ones."""
    return {worker.pid for child in psutil.Process(pid).children() for worker in _workers(child)}


def _workers(child: psutil.Process) -> list[psutil.Process]:
    """The executors that a node monitor's child is: itself, or those that it forked."""
    try:
        command = child.cmdline()
        if executor_starts.NAME in command:
            return []
        return child.children() if FORK_SERVER in command else [child]
    except psutil.NoSuchProcess:
        return []


def gone(pid: int) -> bool:
    """Whether the process has ended (an orphan that nobody reaps has, too)."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
