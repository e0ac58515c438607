"""The sockets of a daemon, on which its HTTP application is served."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import select
import socket
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

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
        loop = asyncio.get_running_loop()
        if self._sock.family == socket.AF_UNIX:
            self._server = await loop.create_unix_server(self._runner.server, sock=self._sock, backlog=self._backlog)
            return
        self._server = await loop.create_server(
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
            if options.also_listen_fd is not None:
                self._sockets.append(unix_socket(options.also_listen_fd))
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


@contextlib.contextmanager
def removing_unix_socket(options: DaemonOptions) -> Iterator[None]:
    """The Unix socket that a program has made for this process goes with it, however that ends: the program may be
    killed before anything listens."""
    path = _own_path(options.also_listen_fd) if options.exit_on_stdin_eof else ""
    try:
        yield
    finally:
        if path:
            _remove_socket(path, with_directory=_input_has_ended())


def _own_path(descriptor: int | None) -> str:
    """Of the inherited Unix socket, if it is one that nobody else can reach; else empty."""
    if descriptor is None:
        return ""
    try:
        with socket.socket(fileno=os.dup(descriptor)) as inherited:
            _check_own(inherited)
            return str(inherited.getsockname())
    except OSError:
        return ""


def _input_has_ended() -> bool:
    """Whether the program that has started this process is gone, or wants nothing more of it."""
    poll = select.poll()
    poll.register(sys.stdin.fileno(), 0)
    return any(event & select.POLLHUP for _, event in poll.poll(0))


def _remove_socket(path: str, *, with_directory: bool) -> None:
    """`with_directory`: if it is the last there. The program that made the directory removes it at its own end: as long
    as that lives and may dial, no other account is to make a directory of this name."""
    with contextlib.suppress(OSError):
        Path(path).unlink()
        if with_directory:
            Path(path).parent.rmdir()


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


def unix_socket(descriptor: int) -> socket.socket:
    """The inherited Unix socket, which nobody else can reach; `InvalidOption` if that is not so.

    Who may connect to a socket is a matter of the directories that lead to it, on all systems.
    """
    with contextlib.ExitStack() as undo:
        try:
            listening = undo.enter_context(socket.socket(fileno=descriptor))
            _check_own(listening)
        except OSError as error:
            allowed = f"an inherited Unix socket in a directory of this account's own ({error.strerror or error})"
            raise InvalidOption("also_listen_fd", descriptor, allowed) from None
        undo.pop_all()
    return listening


def _check_own(listening: socket.socket) -> None:
    """`OSError` unless this account alone can reach it."""
    path = listening.getsockname() if listening.family == socket.AF_UNIX else None
    if not isinstance(path, str) or not path.startswith("/"):
        raise OSError("it is no Unix socket with a path")
    directory = Path(path).parent.lstat()
    if not stat.S_ISDIR(directory.st_mode) or directory.st_uid != os.geteuid() or directory.st_mode & 0o077:
        raise OSError("others than this account may enter its directory, which must have mode 0700")
