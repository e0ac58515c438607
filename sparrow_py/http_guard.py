"""What stands before every request: no web pages, no strange names, and a bound on connections and their patience.

Web pages. A browser shows pages of anybody, and lets them send requests to this machine and its network. It says so,
by `Origin` or `Sec-Fetch-Site`; such requests are refused, whatever they ask for. A page can also have its own name
lead here (DNS rebinding), and its requests are of its own origin then. Where a secret is asked for they lack it; where
none is, a request that came by a name must have come by one that is known to be this machine's. Addresses are nobody's
to redirect, so all of them will do.

Connections. One that is in no handler's hands, because it says nothing, says it too slowly or does not read its
answer, is closed after `IDLE_TIMEOUT_S`, and before that if others need the room: so whoever opens connections in
masses closes its own. Links and readers of results are counted elsewhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import re
import resource
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Iterator
from http import HTTPStatus
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from sparrow_py.errors import shown
from sparrow_py.http_api import error_response

log = logging.getLogger("sparrow.http")
CONNECTIONS_MAX = 4096
"""HTTP connections of a daemon; half as many as it may have open files, if that is less."""
IDLE_TIMEOUT_S = 75.0
"""A connection is closed that has not brought its first or next request, or not read its answer, in so long."""
WARN_INTERVAL_S = 60.0
"""Connections closed for lack of room are logged so often at most."""
BRACKETED = re.compile(r"\[(?P<address>[0-9a-f:.]*:[0-9a-f:.]*(%[^\]]*)?)\](:[0-9]*)?")
"""A Host with an address of IPv6, and nothing behind it but a port."""
OWN_FETCHES = frozenset({"none", "same-origin"})
"""`Sec-Fetch-Site` of what a person typed in, and of what a browser fetches with it."""
HEADERS = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}
"""Of every answer that does not say otherwise."""
SERVER = "sparrow"
"""What answers call their server: without versions, which are nobody's business."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


# ---- who may ask -----------------------------------------------------------------------------


def web_page(request: web.BaseRequest) -> str:
    """Why a request is a web page's; empty if it is none."""
    if "Origin" in request.headers:
        return "this is not for web pages: the request has an Origin header"
    site = request.headers.get("Sec-Fetch-Site")
    if site is not None and site not in OWN_FETCHES:
        return f"this is not for web pages: the request has Sec-Fetch-Site: {shown(site)}"
    return ""


def host_of(header: str) -> str:
    """The name or address of `host` or `host:port`, as a Host header has it; what is neither is returned as it is."""
    host = header.strip().lower()
    if host.startswith("["):
        bracketed = BRACKETED.fullmatch(host)
        return bracketed["address"] if bracketed else host
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdecimal() else host).removesuffix(".")


def is_known(host: str, names: Collection[str]) -> bool:
    """Whether nobody else can have had this host lead here: an address, a name of loopback, or one of `names`."""
    if host == "localhost" or host.endswith(".localhost") or host in names:
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _check(names: Collection[str] | None) -> Any:
    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        why_not = web_page(request)
        if why_not:
            return error_response(HTTPStatus.FORBIDDEN, why_not)
        # No browser leaves Host out.
        for given in request.headers.getall("Host", ()) if names is not None else ():
            if not is_known(host_of(given), names or ()):
                message = f"Host: {shown(given)} is not known to be this daemon's; allowed_host names further ones"
                return error_response(HTTPStatus.MISDIRECTED_REQUEST, message, field="Host")
        return await handler(request)

    return check


async def _add_headers(_: web.Request, response: web.StreamResponse) -> None:
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    response.headers["Server"] = SERVER


# ---- connections -----------------------------------------------------------------------------


def connections_max() -> int:
    """How many connections there may be: so many that files are left for all else."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return CONNECTIONS_MAX if files == resource.RLIM_INFINITY else max(1, min(CONNECTIONS_MAX, files // 2))


class Connections:
    """The HTTP connections of a daemon, and which of them go when there are too many."""

    def __init__(self, most: int, idle_timeout_s: float) -> None:
        self._most = most
        self._idle_timeout_s = idle_timeout_s
        self._waiting: OrderedDict[web.RequestHandler, tuple[float, asyncio.Transport]] = OrderedDict()
        """Those in no handler's hands, and since when; the longest first."""
        self._served: dict[web.RequestHandler, asyncio.Transport] = {}
        self._sweep: asyncio.TimerHandle | None = None
        self._closed = 0
        self._warned_s = float("-inf")

    def __len__(self) -> int:
        return len(self._waiting) + len(self._served)

    def opened(self, connection: web.RequestHandler, transport: asyncio.Transport) -> None:
        """A new connection: if there is no room, that which has waited longest goes."""
        self._wait(connection, transport)
        if len(self) > self._most:
            self._drop_oldest()
            self._warn()

    def gone(self, connection: web.RequestHandler) -> None:
        """It has closed, or is counted elsewhere from now on."""
        self._waiting.pop(connection, None)
        self._served.pop(connection, None)

    @contextlib.contextmanager
    def served(self, connection: web.RequestHandler) -> Iterator[None]:
        """While it is in a handler's hands it is not closed."""
        _, transport = self._waiting.pop(connection, (0.0, None))
        if transport is not None:
            self._served[connection] = transport
        try:
            yield
        finally:
            if transport is not None and self._served.pop(connection, None) is not None:
                self._wait(connection, transport)

    @contextlib.contextmanager
    def seated(self, connection: web.RequestHandler) -> Iterator[None]:
        """While another limit counts it, this one does not. It is in a handler's hands before and after."""
        transport = self._served.pop(connection, None)
        try:
            yield
        finally:
            if transport is not None and not transport.is_closing():
                self._served[connection] = transport

    def _wait(self, connection: web.RequestHandler, transport: asyncio.Transport) -> None:
        loop = asyncio.get_running_loop()
        self._waiting[connection] = loop.time(), transport
        if self._sweep is None:
            self._sweep = loop.call_later(self._idle_timeout_s, self._drop_idle)

    def _drop_idle(self) -> None:
        loop, self._sweep = asyncio.get_running_loop(), None
        while self._waiting:
            since_s, _ = next(iter(self._waiting.values()))
            if since_s + self._idle_timeout_s > loop.time():
                self._sweep = loop.call_at(since_s + self._idle_timeout_s, self._drop_idle)
                return
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        _, (_, transport) = self._waiting.popitem(last=False)
        transport.abort()  # To close it would wait for what it does not read.

    def _warn(self) -> None:
        self._closed += 1
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._warned_s + WARN_INTERVAL_S:
            log.warning("more than %d HTTP connections: %d that waited were closed", self._most, self._closed)
            self._warned_s, self._closed = now_s, 0


_CONNECTIONS = web.AppKey("connections", Connections)


def _serving(public_paths: Collection[str]) -> Any:
    @web.middleware
    async def serving(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path in public_paths:  # Who asks there has not shown any right to stay.
            return await handler(request)
        with request.app[_CONNECTIONS].served(request.protocol):
            return await handler(request)

    return serving


def served(request: web.BaseRequest) -> contextlib.AbstractContextManager[None]:
    """For an answer that is sent after its handler has returned: it is in hand until the block ends."""
    return _connections(request).served(request.protocol)


def seated(request: web.Request) -> contextlib.AbstractContextManager[None]:
    """The request's connection is counted by another limit until the block ends."""
    return _connections(request).seated(request.protocol)


def admitted(request: web.Request) -> None:
    """The request's connection is a link now: another limit counts it."""
    _connections(request).gone(request.protocol)


def _connections(request: web.BaseRequest) -> Connections:
    assert isinstance(request, web.Request)
    return request.app[_CONNECTIONS]


class _Connection(web.RequestHandler):
    """A connection that is counted."""

    __slots__ = ("_connections",)

    def __init__(self, manager: web.Server, connections: Connections) -> None:
        super().__init__(
            manager,
            loop=asyncio.get_running_loop(),
            access_log=None,  # type: ignore[arg-type] # None: there is none.
            auto_decompress=False,  # No handler takes compressed bodies: what is refused is not inflated, either.
        )
        self._connections = connections

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._connections.opened(self, transport)  # type: ignore[arg-type] # uvloop's is none by inheritance.

    def connection_lost(self, exc: BaseException | None) -> None:
        self._connections.gone(self)
        super().connection_lost(exc)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """A request that cannot be read is its sender's fault, and no news: it is answered, and not logged."""
        if not isinstance(exc, HttpProcessingError):
            return super().handle_error(request, status, exc, message)
        response = error_response(status, f"this is no HTTP request: {shown(exc.message)}", headers={"Server": SERVER})
        response.force_close()
        return response


class Runner(web.AppRunner):
    """Runs an application that `protect` has seen to."""

    def __init__(self, app: web.Application, **options: Any) -> None:
        super().__init__(app, access_log=None, **options)

    @property
    def server(self) -> Any:
        """What makes the protocol of a connection."""
        server = super().server
        return None if server is None else lambda: _Connection(server, self.app[_CONNECTIONS])


# ---- all of it -------------------------------------------------------------------------------


def protect(app: web.Application, *, names: Collection[str] | None, public_paths: Collection[str]) -> None:
    """Put all this before an application's middlewares, which are those that ask for the secret.

    `names`: those that this daemon is known by; None where a secret is asked for, and any will do.
    """
    app[_CONNECTIONS] = Connections(connections_max(), IDLE_TIMEOUT_S)
    known = None if names is None else {host_of(name) for name in names}
    app.middlewares.insert(0, _check(known))
    app.middlewares.append(_serving(public_paths))
    app.on_response_prepare.append(_add_headers)
