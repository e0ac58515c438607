"""From sources (`addresses`) to the addresses that they name now."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sparrow_py.errors import InvalidRequest, NoScheduler
from sparrow_py.wire.addresses import FORMS, check_address, check_source

REFRESH_S = 5.0
"""How often files are re-read and names re-resolved."""
ADDRESSES_MAX = 10_000


async def resolve(sources: Sequence[str]) -> list[str]:
    """All addresses of these sources, in order, each once.

    Raises `NoScheduler` if a file cannot be read or names none, or a name does not resolve, `InvalidRequest`
    for an address that is none.
    """
    found: dict[str, None] = {}
    for source in sources:
        for address in await _resolve_one(source):
            found[address] = None
    return list(found)[:ADDRESSES_MAX]


def resolved(sources: Sequence[str]) -> list[str]:
    """`resolve` for functions that are not async, which a cell of a notebook calls while an event loop runs."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(resolve(sources))
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, resolve(sources)).result()


def is_fixed(sources: Iterable[str]) -> bool:
    """Whether the addresses of these sources can never change."""
    return not any(source.startswith(("file:", "dns:")) for source in sources)


async def _resolve_one(source: str) -> list[str]:
    if source.startswith("file:"):
        try:
            text = Path(source[5:]).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise NoScheduler(f"schedulers' file {source[5:]} cannot be read: {error}") from None
        lines = [line.partition("#")[0].strip() for line in text.splitlines()]
        addresses = [_address_of(line, source[5:], number) for number, line in enumerate(lines, 1) if line]
        if not addresses:  # Somebody may be writing it just now: to drop all links would be the worst answer.
            raise NoScheduler(f"schedulers' file {source[5:]} names no scheduler")
        return addresses
    if source.startswith("dns:"):
        name, _, port = source[4:].rpartition(":")
        try:
            infos = await asyncio.get_running_loop().getaddrinfo(name, int(port), type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:  # UnicodeError: a part of the name is empty or too long.
            raise NoScheduler(f"schedulers' name {name} does not resolve: {error}") from None
        hosts = sorted({str(info[4][0]) for info in infos})
        return [f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host in hosts]
    return [check_source(source)]


def _address_of(line: str, path: str, number: int) -> str:
    try:
        return check_address(line)
    except InvalidRequest as error:
        allowed = "host:port" if error.allowed == FORMS else error.allowed
        raise InvalidRequest(f"schedulers' file {path}, line {number}", error.value, allowed) from None
