"""The sockets of a daemon, on which its HTTP application is served."""

from __future__ import annotations

import asyncio
import ipaddress
import socket

from aiohttp import web

from sparrow_py.access.credentials import Credentials
from sparrow_py.daemon.options import BEYOND_LOOPBACK, DaemonOptions
from sparrow_py.errors import ClusterError, InvalidOption
from sparrow_py.http import http_guard

LISTEN_BACKLOG = 4096
TLS_HANDSHAKE_TIMEOUT_S = 5.0
"""A connection whose TLS handshake is not over by then is closed: no other bound sees it before."""


class _Site(web.SockSite):
    """A socket that is listened on, where TLS has its time."""

    async def start(self) -> None:
        await web.BaseSite.start(self)
        assert self._runner.server is not None
        self._server = await asyncio.get_running_loop().create_server(
            self._runner.server,
            sock=self._sock,
            ssl=self._ssl_context,
            backlog=self._backlog,
            ssl_handshake_timeout=None if self._ssl_context is None else TLS_HANDSHAKE_TIMEOUT_S,
        )


class Listener:
    """Serves an application on the sockets of a daemon, with the certificate of the day."""

    def __init__(self, app: web.Application, options: DaemonOptions, credentials: Credentials) -> None:
        self.address = ""
        """The real one, host:port."""
        self._options = options
        self._credentials = credentials
        self._runner = http_guard.Runner(app, shutdown_timeout=1.0)
        self._sockets: list[socket.socket] = []

    async def start(self) -> None:
        """Listen; `ClusterError` or `InvalidOption` if that cannot be."""
        options = self._options
        await self._runner.setup()
        try:
            self._sockets = _listening_sockets(options)
            host, port = self._sockets[0].getsockname()[:2]
            if not ipaddress.ip_address(host).is_loopback and not options.guarded:
                raise InvalidOption("listen_fd", host, f"a loopback address, or {BEYOND_LOOPBACK}")
            await self._serve()
        except BaseException:
            await self.close()
            raise
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    async def _serve(self) -> None:
        for listening in self._sockets:
            # A copy: a site closes its socket, and connections that wait to be accepted are to find another there.
            context = self._credentials.server_context
            await _Site(self._runner, listening.dup(), ssl_context=context, backlog=LISTEN_BACKLOG).start()

    async def renew(self) -> None:
        """Accept new connections with the certificate and the authorities that the files have now; others go on."""
        before = list(self._runner.sites)
        await self._serve()
        for site in before:
            await site.stop()

    async def refuse_connections(self) -> None:
        """Listen no more; connections that stand are not touched."""
        for site in list(self._runner.sites):
            await site.stop()
        for listening in self._sockets:
            listening.close()
        self._sockets.clear()

    async def close(self) -> None:
        """Listen no more, and end what is connected."""
        await self._runner.cleanup()
        for listening in self._sockets:
            listening.close()


def _listening_sockets(options: DaemonOptions) -> list[socket.socket]:
    if options.listen_fd is not None:
        try:
            return [socket.socket(fileno=options.listen_fd)]
        except OSError as error:
            raise ClusterError(f"cannot listen on descriptor {options.listen_fd}: {error.strerror or error}") from None
    listening: list[socket.socket] = []
    try:
        found = socket.getaddrinfo(options.host, options.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, _, _, _, address in dict.fromkeys(found):
            listening.append(socket.create_server(address, family=family, backlog=LISTEN_BACKLOG))
    except OSError as error:
        for one in listening:
            one.close()
        raise ClusterError(f"cannot listen on {options.host}:{options.port}: {error.strerror or error}") from None
    return listening
