"""What stands before every request: no web pages, no strange names, and a bound on connections and their patience.

Web pages. A browser shows pages of anybody, and lets them send requests to this machine and its network. It says so,
by `Origin` or `Sec-Fetch-Site`; such requests are refused, whatever they ask for. A page can also have its own name
lead here (DNS rebinding), and its requests are of its own origin then. Where a secret is asked for they lack it; where
none is, a request that came by a name must have come by one that is known to be this machine's. Addresses are nobody's
to redirect, so all of them will do.

Connections. One that is in no handler's hands, because it says nothing, says it too slowly or does not read its
answer, is closed after `IDLE_TIMEOUT_S`, and before that if others need the room: so whoever opens connections in
masses closes its own. Of those that are in a handler's hands a user has a share, and all users together leave a share
free for what comes new, above all for operators and their probes. Links and readers of results are counted elsewhere.

Links. What dials one has shown nothing until its Hello has been accepted. Until then it may send no more than
`HELLO_BYTES_MAX`, and of those that have come so far there are at most `HANDSHAKES_MAX`.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from http import HTTPStatus
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from sparrow_py.errors import shown
from sparrow_py.http.http_api import error_response, no_seat
from sparrow_py.limits import open_files
from sparrow_py.limits.seats import NoSeat, Seats
from sparrow_py.limits.shares import share_of
from sparrow_py.logs.line_interval import LineInterval
from sparrow_py.logs.sparing_log import SparingLog

log = logging.getLogger("sparrow.http")
HELLO_BYTES_MAX = 64 << 10
"""What a link may send until its Hello has been accepted."""
DROPPED_BYTES_MAX = 1 << 20
"""What may come beyond that before the connection is cut without a word."""
HANDSHAKES_MAX = 1024
"""Links whose Hello has not been accepted; one more closes that which has waited longest."""
IDLE_TIMEOUT_S = 75.0
"""A connection is closed that has not brought its first or next request, or not read its answer, in so long."""
BRACKETED = re.compile(r"\[(?P<address>[0-9a-f:.]*:[0-9a-f:.]*(%[^\]]*)?)\](:[0-9]*)?")
"""A Host with an address of IPv6, and nothing behind it but a port."""
HOST = re.compile(
    r"(\[[0-9a-f:.]+(%[a-z0-9._~-]+)?\]|[a-z0-9._~!$&'()*+,;=%-]*)(:(?P<port>[0-9]{0,5}))?", re.ASCII | re.IGNORECASE
)
"""A Host header: a name or an address, and a port (RFC 9110, 7.2)."""
HOST_ALLOWED = "one header, HOST or HOST:PORT"
PORT_MAX = 65_535
TRACEBACKS_MAX = 3
"""Errors of ours that are logged in a minute; others are counted."""
OWN_FETCHES = frozenset({"none", "same-origin"})
"""`Sec-Fetch-Site` of what a person typed in, and of what a browser fetches with it."""
HEADERS = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}
"""Of every answer that does not say otherwise."""
SERVER = "sparrow"
"""What answers call their server: without versions, which are nobody's business."""

errors = SparingLog(log, lines_max=TRACEBACKS_MAX)
"""Of errors in handlers: whoever finds a request that brings one about could fill the disk by it."""
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


# ---- who may ask -----------------------------------------------------------------------------


def web_page(request: web.BaseRequest, page: str = "") -> str:
    """Why a request is a web page's; empty if it is none. To go to `page`, which is the same for everybody and stands
    in no other page's frame, one may have followed a link of any other."""
    if page and request.path == page and request.method == "GET" and _goes_there(request):
        return ""
    if "Origin" in request.headers:
        return "this is not for web pages: the request has an Origin header"
    site = request.headers.get("Sec-Fetch-Site")
    if site is not None and site not in OWN_FETCHES:
        return f"this is not for web pages: the request has Sec-Fetch-Site: {shown(site)}"
    return ""


def _goes_there(request: web.BaseRequest) -> bool:
    """Whether a person's browser leaves the page that it shows for this one."""
    headers = request.headers
    return (headers.get("Sec-Fetch-Mode"), headers.get("Sec-Fetch-Dest")) == ("navigate", "document")


def host_of(header: str) -> str:
    """The name or address of `host` or `host:port`, as a Host header has it; what is neither is returned as it is."""
    host = header.strip().lower()
    if host.startswith("["):
        bracketed = BRACKETED.fullmatch(host)
        return bracketed["address"] if bracketed else host
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdecimal() else host).removesuffix(".")


def port_of(header: str) -> int | None:
    """The port that a Host header names, if it names one; `ValueError` if the header is none."""
    found = HOST.fullmatch(header.strip())
    port = int(found["port"] or -1) if found else PORT_MAX + 1
    if port > PORT_MAX:
        raise ValueError(f"{header!r} is no Host header")
    return None if port < 0 else port


def _malformed_host(given: Sequence[str]) -> str:
    """Why these Host headers of a request cannot be; empty if they can."""
    try:
        for header in given:
            port_of(header)
    except ValueError:
        return f"Host: {shown(header)} is not valid; allowed: {HOST_ALLOWED}"
    return f"Host: {len(given)} headers are not valid; allowed: {HOST_ALLOWED}" if len(given) > 1 else ""


def is_known(host: str, names: Collection[str]) -> bool:
    """Whether nobody else can have had this host lead here: an address, a name of loopback, or one of `names`."""
    if host == "localhost" or host.endswith(".localhost") or host in names:
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _check(names: Collection[str] | None, page: str) -> Any:
    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        why_not = web_page(request, page)
        if why_not:
            return error_response(HTTPStatus.FORBIDDEN, why_not)
        hosts = request.headers.getall("Host", ())  # No browser leaves it out.
        for given in hosts if names is not None else ():
            if not is_known(host_of(given), names or ()):
                message = f"Host: {shown(given)} is not known to be this daemon's; allowed_host names further ones"
                return error_response(HTTPStatus.MISDIRECTED_REQUEST, message, field="Host")
        malformed = _malformed_host(hosts)
        if malformed:
            return error_response(HTTPStatus.BAD_REQUEST, malformed, field="Host")
        return await handler(request)

    return check


async def _add_headers(_: web.Request, response: web.StreamResponse) -> None:
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    response.headers["Server"] = SERVER


# ---- connections -----------------------------------------------------------------------------


class Connections:
    """The HTTP connections of a daemon, and which of them go when there are too many."""

    def __init__(self, most: int, idle_timeout_s: float) -> None:
        self._most = most
        self._idle_timeout_s = idle_timeout_s
        self._waiting: OrderedDict[web.RequestHandler, tuple[float, asyncio.Transport]] = OrderedDict()
        """Those in no handler's hands, and since when; the longest first."""
        self._served: dict[web.RequestHandler, tuple[asyncio.Transport, str]] = {}
        """Those in a handler's hands, and whose they are."""
        self._handshakes: OrderedDict[web.RequestHandler, asyncio.Transport] = OrderedDict()
        """Of those that wait the links to be; the longest first."""
        self.seats = Seats("CONNECTIONS_MAX", max(1, most - share_of(most)), "HTTP requests are served at a time")
        self._sweep: asyncio.TimerHandle | None = None
        self._closings = LineInterval()

    def __len__(self) -> int:
        return len(self._waiting) + len(self._served)

    def opened(self, connection: web.RequestHandler, transport: asyncio.Transport) -> None:
        """A new connection: if there is no room, that which has waited longest goes."""
        self._wait(connection, transport)
        if len(self) > self._most:
            self._drop(next(iter(self._waiting)))
            self._warn(self._most, "HTTP connections")

    def gone(self, connection: web.RequestHandler) -> None:
        """It has closed, or is counted elsewhere from now on."""
        self._waiting.pop(connection, None)
        self._handshakes.pop(connection, None)
        self._serve_no_more(connection)

    def begins(self, connection: web.RequestHandler) -> None:
        """It is to be a link, and is asked for its Hello."""
        found = self._waiting.get(connection)
        if found is not None:
            self._handshakes[connection] = found[1]
            if len(self._handshakes) > HANDSHAKES_MAX:
                self._drop(next(iter(self._handshakes)))
                self._warn(HANDSHAKES_MAX, "links without a Hello")

    @contextlib.contextmanager
    def served(self, connection: web.RequestHandler, holder: str) -> Iterator[None]:
        """While it is in a handler's hands, on behalf of `holder`, it is not closed."""
        _, transport = self._waiting.pop(connection, (0.0, None))
        if transport is not None:
            self._serve(connection, transport, holder)
        try:
            yield
        finally:
            if transport is not None and self._serve_no_more(connection) is not None:
                self._wait(connection, transport)

    @contextlib.contextmanager
    def seated(self, connection: web.RequestHandler) -> Iterator[None]:
        """While another limit counts it, this one does not. It is in a handler's hands before and after."""
        found = self._serve_no_more(connection)
        try:
            yield
        finally:
            if found is not None and not found[0].is_closing():
                self._serve(connection, *found)

    def _serve(self, connection: web.RequestHandler, transport: asyncio.Transport, holder: str) -> None:
        self._served[connection] = transport, holder
        self.seats.take(holder)

    def _serve_no_more(self, connection: web.RequestHandler) -> tuple[asyncio.Transport, str] | None:
        found = self._served.pop(connection, None)
        if found is not None:
            self.seats.give_back(found[1])
        return found

    def _wait(self, connection: web.RequestHandler, transport: asyncio.Transport) -> None:
        loop = asyncio.get_running_loop()
        self._waiting[connection] = loop.time(), transport
        if self._sweep is None:
            self._sweep = loop.call_later(self._idle_timeout_s, self._drop_idle)

    def _drop_idle(self) -> None:
        loop, self._sweep = asyncio.get_running_loop(), None
        while self._waiting:
            connection, (since_s, _) = next(iter(self._waiting.items()))
            if since_s + self._idle_timeout_s > loop.time():
                self._sweep = loop.call_at(since_s + self._idle_timeout_s, self._drop_idle)
                return
            self._drop(connection)

    def _drop(self, waiting: web.RequestHandler) -> None:
        _, transport = self._waiting.pop(waiting)
        self._handshakes.pop(waiting, None)
        transport.abort()  # To close it would wait for what it does not read.

    def _warn(self, most: int, what: str) -> None:
        closed = self._closings.happened(asyncio.get_running_loop().time())
        if closed:
            log.warning("more than %d %s: %d that waited were closed", most, what, closed)


_CONNECTIONS = web.AppKey("connections", Connections)


def _serving(public_paths: Collection[str], holder_of: Callable[[web.Request], str]) -> Any:
    @web.middleware
    async def serving(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path in public_paths:  # Who asks there has not shown any right to stay.
            return await handler(request)
        connections, holder = request.app[_CONNECTIONS], holder_of(request)
        try:
            connections.seats.check(holder)
        except NoSeat as error:
            response = no_seat(error)
            response.force_close()
            return response
        with connections.served(request.protocol, holder):
            return await handler(request)

    return serving


def served(request: web.BaseRequest, holder: str) -> contextlib.AbstractContextManager[None]:
    """For an answer that is sent after its handler has returned: it is in hand until the block ends."""
    return _connections(request).served(request.protocol, holder)


def seated(request: web.Request) -> contextlib.AbstractContextManager[None]:
    """The request's connection is counted by another limit until the block ends."""
    return _connections(request).seated(request.protocol)


def begins_link(request: web.Request) -> None:
    """The request's connection is to be a link, and is asked for its Hello."""
    _connections(request).begins(request.protocol)


def is_link(request: web.Request) -> None:
    """Its Hello has been accepted: it is a link now, and another limit counts it."""
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

    def log_exception(self, *args: Any, exc_info: BaseException | bool = True, **_: Any) -> None:
        """For aiohttp: what a handler of ours did wrong, at a bounded rate."""
        errors.exception(*args, error=exc_info)

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


def protect(
    app: web.Application,
    *,
    names: Collection[str] | None,
    public_paths: Collection[str],
    holder_of: Callable[[web.Request], str],
    page: str = "",
) -> None:
    """Put all this before an application's middlewares, which are those that ask for the secret.

    `names`: those that this daemon is known by; None where a secret is asked for, and any will do. `holder_of`: whose
    share a request counts to. `page`: the path of a page for people, to which others' pages may link.
    """
    app[_CONNECTIONS] = Connections(open_files.budget().connections, IDLE_TIMEOUT_S)
    known = None if names is None else {host_of(name) for name in names}
    app.middlewares.insert(0, _check(known, page))
    app.middlewares.append(_serving(public_paths, holder_of))
    app.on_response_prepare.append(_add_headers)
