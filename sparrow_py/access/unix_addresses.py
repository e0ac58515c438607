"""Addresses of Unix sockets (`unix:PATH`), and the URLs that lead to them."""

from __future__ import annotations

UNIX = "unix:"
"""What an address begins with that is the path of a Unix socket."""
UNIX_PATH_BYTES_MAX = 103
"""Of a Unix socket's path: so many every system takes."""
UNIX_SCHEME = "unix"
"""Of a URL that leads to one. Its host is the path, in hexadecimal digits: a URL has no other place for it."""
_HOST = ".unix.localhost"
"""The end of such a host, which daemons know for this machine's."""


def unix_address(path: str) -> str:
    """The address of the Unix socket at this path."""
    return UNIX + path


def unix_path(address: str) -> str:
    """The path of a Unix socket's address; empty if it is another's."""
    return address[len(UNIX) :] if address.startswith(UNIX) else ""


def unix_url(path: str, resource: str) -> str:
    """The URL of what a daemon has at `resource`, over its Unix socket at this path."""
    return f"{UNIX_SCHEME}://{path.encode().hex()}{_HOST}{resource}"


def unix_path_of_host(host: str) -> str:
    """The path that `unix_url` has made a host of."""
    return bytes.fromhex(host.removesuffix(_HOST)).decode()
