"""At which of its addresses this machine is reached from the machines of a cluster."""

from __future__ import annotations

import contextlib
import ipaddress
import socket

from sparrow_py.access.unix_addresses import unix_path

LOOPBACK = "127.0.0.1"


def is_loopback(host: str) -> bool:
    """Whether what is sent there stays on this machine."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def host_towards(scheduler: str) -> str:
    """The address of this machine by which it reaches this scheduler ("host:port" or "unix:PATH"), and so, as a rule,
    that at which nodes reach this machine."""
    if not scheduler or unix_path(scheduler):
        return LOOPBACK
    host, _, port = scheduler.rpartition(":")
    return host_towards_port(host.strip("[]"), int(port))


def host_towards_port(host: str, port: int) -> str:
    """The same for a host and a port there."""
    if is_loopback(host):
        return LOOPBACK
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, port))  # Nothing is sent: it says which interface leads there.
        return str(probe.getsockname()[0])
