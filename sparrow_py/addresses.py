"""Where the schedulers are: addresses, a file that is re-read, or a DNS name with many addresses.

A source is one of
    host:port            that address
    file:PATH            one address per line, # starts a comment; re-read while the daemon runs
    dns:NAME:PORT        every address that the name resolves to; re-resolved while the daemon runs
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable, Sequence
from pathlib import Path

from sparrow_py.errors import InvalidRequest, NoScheduler

REFRESH_S = 5.0
"""How often files are re-read and names re-resolved."""
ADDRESSES_MAX = 10_000


def check_address(address: str) -> str:
    """The address, if it is host:port (an IPv6 host in brackets); `InvalidRequest` if not."""
    host, colon, port = address.rpartition(":")
    if not (colon and host and port.isdigit() and 1 <= int(port) <= 65535) or any(c in address for c in " /@#?\\"):
        raise InvalidRequest("scheduler address", address, "host:port, file:PATH or dns:NAME:PORT")
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        raise InvalidRequest("scheduler address", address, "an IPv6 host in brackets, as in [::1]:20503")
    return address


def check_source(source: str) -> str:
    """The source, if it is of one of the three forms; `InvalidRequest` if not."""
    if source.startswith("dns:"):
        check_address(source[4:])
    elif source.startswith("file:"):
        if not source[5:]:
            raise InvalidRequest("scheduler address", source, "a path after file:")
    else:
        check_address(source)
    return source


async def resolve(sources: Sequence[str]) -> list[str]:
    """All addresses of these sources, in order, each once.

    Raises `NoScheduler` if a file cannot be read or a name does not resolve, `InvalidRequest`
    for an address that is none.
    """
    found: dict[str, None] = {}
    for source in sources:
        for address in await _resolve_one(source):
            found[address] = None
    return list(found)[:ADDRESSES_MAX]


def is_fixed(sources: Iterable[str]) -> bool:
    """Whether the addresses of these sources can never change."""
    return not any(source.startswith(("file:", "dns:")) for source in sources)


async def _resolve_one(source: str) -> list[str]:
    if source.startswith("file:"):
        try:
            text = Path(source[5:]).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise NoScheduler(f"schedulers' file {source[5:]} cannot be read: {error}") from None
        lines = (line.partition("#")[0].strip() for line in text.splitlines())
        return [check_address(line) for line in lines if line]
    if source.startswith("dns:"):
        name, _, port = source[4:].rpartition(":")
        try:
            infos = await asyncio.get_running_loop().getaddrinfo(
                name, int(port), type=socket.SOCK_STREAM
            )
        except OSError as error:
            raise NoScheduler(f"schedulers' name {name} does not resolve: {error}") from None
        return sorted({f"[{a[0]}]:{a[1]}" if ":" in str(a[0]) else f"{a[0]}:{a[1]}" for *_, a in infos})
    return [check_address(source)]
