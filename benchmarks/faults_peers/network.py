"""Where processes run and how the network between them is cut.

With root on Linux, each worker of a run whose network will be cut has a network namespace of its own, at a bridge; the
cut takes the bridge's port down, so that packets vanish and nobody is told. Elsewhere the worker is stopped with
SIGSTOP: it does not answer either, but its kernel still takes what is sent to it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import psutil

from benchmarks.faults_peers.faults import WORKERS
from benchmarks.faults_peers.processes import freeze

SUBNET = f"10.213.{os.getpid() % 256}"
"""Not the same for two commands at a time."""


@dataclass
class Seat:
    """Where a worker runs: its address, and what goes before its command."""

    address: str
    prefix: Sequence[str] = ()


@dataclass
class Network:
    """The address of everything but the workers, the workers' seats, and how the last of them is cut off."""

    host: str
    seats: Sequence[Seat]
    cut: Callable[[psutil.Process], None]


def namespaces_possible() -> bool:
    """Whether this process may make network namespaces."""
    return os.name == "posix" and os.geteuid() == 0 and shutil.which("ip") is not None


def loopback() -> Network:
    """Everything on this machine's loopback, an address for each worker; it can only be cut by SIGSTOP.

    None of them is 127.0.0.1, in place of which Ray takes another.
    """
    return Network("127.0.0.2", [Seat(f"127.0.0.{3 + number}") for number in range(WORKERS)], freeze)


@contextmanager
def namespaces() -> Iterator[Network]:
    """A namespace for each worker, at a bridge that this machine's processes reach; gone when the block ends."""
    bridge = f"fp{os.getpid() % 10**8}"
    names = [f"{bridge}w{number}" for number in range(WORKERS)]
    try:
        _ip("link", "add", bridge, "type", "bridge")
        _ip("address", "add", f"{SUBNET}.1/24", "dev", bridge)
        _ip("link", "set", bridge, "up")
        seats = [_seat(bridge, name, f"{SUBNET}.{2 + number}") for number, name in enumerate(names)]
        yield Network(f"{SUBNET}.1", seats, lambda _: _ip("link", "set", names[-1], "down"))
    finally:
        # Links by name: a namespace is only gone when the last of its connections has given up.
        for command in [("link", "delete", link) for link in (*names, bridge)] + [
            ("netns", "delete", n) for n in names
        ]:
            with suppress(subprocess.CalledProcessError):
                _ip(*command)


def _seat(bridge: str, name: str, address: str) -> Seat:
    _ip("netns", "add", name)
    _ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
    _ip("link", "set", name, "master", bridge, "up")
    _ip("-n", name, "address", "add", f"{address}/24", "dev", "eth0")
    _ip("-n", name, "link", "set", "eth0", "up")
    _ip("-n", name, "link", "set", "lo", "up")
    return Seat(address, ("ip", "netns", "exec", name))


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)
