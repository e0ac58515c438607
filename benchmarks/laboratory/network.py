"""The network between a cluster's machines: loopback, or a network namespace for each machine (wires.py: proxies).

The namespaces are joined by a bridge in one of their own. Nothing is added to the host's own network: who asks a daemon
does so from within the daemon's namespace, and so also while it is cut off. A machine is cut off by taking its cable
from the bridge while both ends of the cable stay up: it and its peers keep their connections and hear nothing, as with
a broken switch. There is no RST, no loss of carrier.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

LOOPBACK = "127.0.0.1"
PREFIX = "sparrow-faults-"
ANSWER_TIMEOUT_S = 5.0
FIRST_PORT = 20_000
NAMESPACES = Path("/run/netns")
CLONE_NEWNET = 0x40000000


class Network:
    """Loopback, where nothing can be cut. Machines are known by the names of those that run there; those with an
    address of their own are given."""

    def __init__(self, addresses: Mapping[str, str] | None = None) -> None:
        self._addresses = dict(addresses or {})

    def address(self, machine: str) -> str:
        """Where it listens."""
        return self._addresses.get(machine, LOOPBACK)

    def within(self, machine: str) -> list[str]:
        """What a command line begins with that is to run on the machine."""
        return []

    def ways(self, peer: str, schedulers: Mapping[str, str]) -> Iterable[str]:
        """The addresses by which this peer finds the schedulers, whose own addresses are given."""
        return schedulers.values()

    def connect(self, machine: str, port: int, timeout_s: float) -> socket.socket:
        """A connection to this port of the machine, which nothing cuts."""
        return socket.create_connection((self.address(machine), port), timeout_s)

    def ask(self, machine: str, port: int, path: str, body: Any = None, *, token: str = "") -> tuple[int, str]:
        """(status, body) of the answer of a daemon there, asked on its own machine; status 0 if it gives none."""
        connection = HTTPConnection(self.address(machine), port)
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        try:
            connection.sock = self.connect(machine, port, ANSWER_TIMEOUT_S)
            connection.request("POST" if body else "GET", path, json.dumps(body) if body else None, headers)
            response = connection.getresponse()
            return response.status, response.read().decode()
        except (OSError, HTTPException) as error:
            return 0, str(error)
        finally:
            connection.close()

    def free_port(self, machine: str) -> int:
        """A port that nobody listens on; another may take it before it is used."""
        with socket.create_server((self.address(machine), 0)) as listener:
            return int(listener.getsockname()[1])

    def cut(self, machine: str, peer: str = "") -> None:
        """Drop whatever goes to the machine or comes from it, or from this peer alone."""
        raise NotImplementedError("loopback cannot be cut")

    def heal(self, machine: str, peer: str = "") -> None:
        """Pass it on again."""
        raise NotImplementedError("loopback cannot be cut")

    def close(self) -> None:
        """Remove what there is of it."""


class Namespaces(Network):
    """Namespaces by machine; `close` removes them. A process has one such network at a time. Machines' names become
    those of interfaces: 2 to 15 letters and digits."""

    def __init__(self, machines: Sequence[str]) -> None:
        super().__init__({machine: f"10.0.0.{number}" for number, machine in enumerate(machines, 1)})
        self._hub = f"{PREFIX}{os.getpid()}-hub"
        self._last_port = FIRST_PORT
        _remove_stale()
        try:
            _ip("netns", "add", self._hub)
            _ip("-n", self._hub, "link", "add", "bridge", "type", "bridge", "forward_delay", "0")
            _ip("-n", self._hub, "link", "set", "bridge", "up")
            for machine in machines:
                self._plug_in(machine)
        except BaseException:
            self.close()
            raise

    def within(self, machine: str) -> list[str]:
        """Enter its namespace."""
        return ["nsenter", f"--net={NAMESPACES / self._name(machine)}"]

    def free_port(self, machine: str) -> int:
        """Nobody else listens there."""
        self._last_port += 1
        return self._last_port

    def cut(self, machine: str, peer: str = "") -> None:
        """Of all peers alone."""
        _ip("-n", self._hub, "link", "set", machine, "nomaster")

    def heal(self, machine: str, peer: str = "") -> None:
        """Take the machine in again."""
        _ip("-n", self._hub, "link", "set", machine, "master", "bridge")

    def lose_power(self, machine: str) -> None:
        """A new machine with the old one's addresses, whose processes have been killed: no connection of the old one
        was closed, and the new one knows none of them. Whoever has the other end of one has it half open."""
        _ip("-n", self._hub, "link", "del", machine)
        _ip("netns", "del", self._name(machine))
        self._plug_in(machine)

    def connect(self, machine: str, port: int, timeout_s: float) -> socket.socket:
        """Made on the machine itself."""
        home = os.open("/proc/self/ns/net", os.O_RDONLY)
        there = os.open(NAMESPACES / self._name(machine), os.O_RDONLY)
        try:
            _enter(there)
            try:
                return socket.create_connection((self.address(machine), port), timeout_s)
            finally:
                _enter(home)
        finally:
            os.close(there)
            os.close(home)

    def close(self) -> None:
        """Remove the namespaces, and with them all interfaces."""
        for path in NAMESPACES.glob(f"{PREFIX}{os.getpid()}-*"):
            _ip("netns", "del", path.name)

    def _name(self, machine: str) -> str:
        return f"{PREFIX}{os.getpid()}-{machine}"

    def _plug_in(self, machine: str) -> None:
        name, address = self._name(machine), self.address(machine)
        # The hardware address too is the machine's own, for the others' ARP tables outlive it.
        hardware = f"02:00:00:00:00:{int(address.rpartition('.')[2]):02x}"
        _ip("netns", "add", name)
        _ip("-n", self._hub, "link", "add", machine, "type", "veth", "peer", "name", "eth0", "netns", name)
        _ip("-n", self._hub, "link", "set", machine, "master", "bridge", "up")
        _ip("-n", name, "link", "set", "lo", "up")
        _ip("-n", name, "link", "set", "eth0", "address", hardware, "up")
        _ip("-n", name, "addr", "add", f"{address}/24", "dev", "eth0")


@functools.cache
def why_no_namespaces() -> str:
    """Why there can be no network namespaces here; empty if there can."""
    missing = [command for command in ("ip", "nsenter") if shutil.which(command) is None]
    if missing:
        return f"{' and '.join(missing)} not installed"
    try:
        network = Namespaces(["probe"])
    except subprocess.CalledProcessError as error:
        return f"no network namespaces here: {error.stderr.strip()}"
    try:
        network.cut("probe")
    except subprocess.CalledProcessError as error:
        return f"no bridges here: {error.stderr.strip()}"
    finally:
        network.close()
    return ""


def why_no_mounts(directory: Path) -> str:
    """Why no small file system can be mounted here; empty if one can."""
    try:
        mount(directory, "64k")()
    except (OSError, subprocess.CalledProcessError) as error:
        return f"no file system can be mounted here: {getattr(error, 'stderr', '') or error}".strip()
    return ""


def mount(directory: Path, size: str) -> Callable[[], None]:
    """Mount a file system of this size, in memory, at the directory; returns what unmounts it."""
    directory.mkdir(exist_ok=True)
    _run("mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "sparrow-faults", str(directory))
    return lambda: _run("umount", "--lazy", str(directory))


def _enter(namespace: int) -> None:
    """Have this thread make its sockets in the namespace."""
    if ctypes.CDLL(None, use_errno=True).setns(namespace, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")


def _remove_stale() -> None:
    """Remove the namespaces of test processes that were killed."""
    for path in NAMESPACES.glob(f"{PREFIX}*"):
        pid = path.name.removeprefix(PREFIX).partition("-")[0]
        if not Path("/proc", pid).exists():
            with contextlib.suppress(subprocess.CalledProcessError):  # Another process removes them at the same time.
                _ip("netns", "del", path.name)


def _ip(*arguments: str) -> None:
    _run("ip", *arguments)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)
