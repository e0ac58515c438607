"""HTTP connections of a client or node monitor: over TCP, and over Unix sockets to schedulers that are named so.

aiohttp has a connector for each. This one looks at the URL's scheme: `unix`, which no redirection leads to, and which
nothing but `Access.url` makes, of an address that this process was given. Peers name hosts and ports only.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable
from typing import Any

import aiohttp
from aiohttp.client_exceptions import UnixClientConnectorError
from aiohttp.client_proto import ResponseHandler

from sparrow_py.access.unix_addresses import UNIX_SCHEME, unix_path_of_host

_PEER = struct.Struct("=iII")
"""What Linux tells of the other end: process, account, group."""


class Connector(aiohttp.TCPConnector):
    """Of any number of connections. `made` is told of each socket, before it is connected."""

    allowed_protocol_schema_set = aiohttp.TCPConnector.allowed_protocol_schema_set | {UNIX_SCHEME}

    def __init__(self, made: Callable[[socket.socket], None] = lambda _: None) -> None:
        super().__init__(limit=0, socket_factory=self._make_socket)
        self._made = made

    def _make_socket(self, address: tuple[Any, ...]) -> socket.socket:
        family, kind, protocol, *_ = address
        made = socket.socket(family, kind, protocol)
        self._made(made)
        return made

    async def _create_connection(
        self, req: aiohttp.ClientRequest, traces: Any, timeout: aiohttp.ClientTimeout
    ) -> ResponseHandler:
        """Overridden, as aiohttp's own connectors do: there is no public way to choose for each request."""
        if req.url.scheme != UNIX_SCHEME:
            return await super()._create_connection(req, traces, timeout)
        path = unix_path_of_host(req.url.host or "")
        made = self._make_socket((socket.AF_UNIX, socket.SOCK_STREAM, 0))
        try:
            made.setblocking(False)
            await self._loop.sock_connect(made, path)
            check_listener(made, path)
            _, protocol = await self._loop.create_unix_connection(self._factory, sock=made)
        except OSError as error:
            made.close()
            raise UnixClientConnectorError(path, req.connection_key, error) from error
        except BaseException:
            made.close()
            raise
        return protocol


def check_listener(connected: socket.socket, path: str) -> None:
    """`OSError` if another account listens at the path than this process's or root: once a directory of ours is gone,
    anybody may make one of its name, and would be shown our token."""
    if hasattr(socket, "SO_PEERCRED"):
        _, uid, _ = _PEER.unpack(connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
        if uid not in (0, os.geteuid()):
            raise OSError(f"account {uid} listens at {path}; this process is of account {os.geteuid()}")
