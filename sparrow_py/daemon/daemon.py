"""What all daemons do alike: start, announce their address, serve HTTP, drain and end.

New/start/stop as in NSQ: a daemon is an object with `start`, `drain` and `stop`, so that tests
and `LocalCluster(in_process=True)` run the real thing; `run` wraps it in a process.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import ipaddress
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Protocol

import orjson
from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from sparrow_py.access import principals
from sparrow_py.access.credentials import Credentials, refusals
from sparrow_py.access.principals import ANYBODY, Principal
from sparrow_py.daemon.options import BEYOND_LOOPBACK, DaemonOptions
from sparrow_py.errors import AccessDenied, ClusterError, InvalidOption
from sparrow_py.http import http_guard
from sparrow_py.limits import open_files
from sparrow_py.logs.printable import LogFormatter
from sparrow_py.processes.process_control import hide_from_others

log = logging.getLogger("sparrow")
HTTP_BODY_BYTES_MAX = 1 << 20
LISTEN_BACKLOG = 4096
TLS_HANDSHAKE_TIMEOUT_S = 5.0
"""A connection whose TLS handshake is not over by then is closed: no other bound sees it before."""
GC_THRESHOLDS = (50_000, 20, 100)
GC_EVERY_S = 60.0
"""All garbage is collected so often at most. Connections that have ended refer to themselves, so that only the
collector frees them, which by these thresholds alone comes to them seldom: megabytes of them would gather."""
GC_TIME_SHARE = 0.001
"""Where there is much to look through, it is done so seldom that it takes no more than this share of the time."""
MALLOC_ARENAS = 1
"""Heaps that the C library has for this process's threads. By default there are eight for each core, and what large
data leaves unused in each stays there: a node monitor had 4 to 10 MB of it, now more and now less."""
M_ARENA_MAX = -8
"""mallopt: that number (glibc)."""
PUBLIC_PATHS = frozenset({"/livez", "/readyz", "/link"})
"""Answered without a token; a link checks the token of its Hello itself."""
PRINCIPAL = web.RequestKey("principal", Principal)
"""Of a request: who asks."""
BLOB_PATH = "/v1/blobs/"


class Daemon(Protocol):
    """What `run` runs."""

    kind: str

    async def start(self) -> dict[str, Any]:
        """Listen and begin to work; returns what to announce, `address` among it."""

    async def drain(self) -> None:
        """Take nothing new, and return when nothing is left to do."""

    async def stop(self) -> None:
        """End at once."""

    credentials: Credentials

    async def renew(self) -> None:
        """Its credentials were read again: act on what they are now."""


class Metrics(Collector):
    """Metrics read from a core's counters when they are scraped, so that hot paths only count."""

    def __init__(self, collect: Callable[[], Iterable[Metric]]) -> None:
        self._collect = collect

    def collect(self) -> Iterable[Metric]:
        """For prometheus-client."""
        return self._collect()


def make_app(daemon: Any, credentials: Credentials, collect: Callable[[], Iterable[Metric]]) -> web.Application:
    """An HTTP application with `/livez`, `/readyz`, `/metrics`, which finds out who asks."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Metrics(collect))

    async def livez(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        why_not = daemon.why_not_ready()
        return web.Response(text=why_not + "\n" if why_not else "ok\n", status=503 if why_not else 200)

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(registry), headers={"Content-Type": "text/plain; version=0.0.4"})

    app = web.Application(client_max_size=HTTP_BODY_BYTES_MAX, middlewares=[_authentication(credentials)])
    # Where a token or a certificate is asked for a page of another name, which has neither, gets nowhere.
    names = None if daemon.options.guarded else daemon.options.names()
    http_guard.protect(app, names=names, public_paths=PUBLIC_PATHS, holder_of=holder_of)
    app.add_routes([web.get("/livez", livez), web.get("/readyz", readyz), web.get("/metrics", metrics)])
    return app


def _authentication(credentials: Credentials) -> Any:
    """Middleware that says who asks (`principal_of`), and refuses who does not prove to be anybody."""

    @web.middleware
    async def authenticate(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        if request.path in PUBLIC_PATHS:
            return await handler(request)
        scheme, _, secret = request.headers.get("Authorization", "").partition(" ")
        try:
            principal = credentials.principal(secret if scheme == "Bearer" else "", peer_certificate(request))
        except AccessDenied as error:
            if _shows_blob_key(request, secret, credentials):
                return await handler(request)
            header = "the header Authorization: Bearer TOKEN is missing or wrong"
            why_not = header if credentials.tokens else str(error)
            refusals.warning("a request from %s was refused: %s", request.remote, why_not)
            return json_error(401, why_not)
        request[PRINCIPAL] = principal
        return await handler(request)

    return authenticate


def _shows_blob_key(request: web.Request, key: str, credentials: Credentials) -> bool:
    """Whether a node asks for a blob, having been told by a client's job where it is (see `principals.blob_key`)."""
    blob = request.method == "GET" and request.path.startswith(BLOB_PATH) and key.startswith(principals.BLOB_KEY)
    return blob and credentials.tokens.opens_blob(key, request.path[len(BLOB_PATH) :])


def peer_certificate(request: web.Request) -> dict[str, Any] | None:
    """What the certificate of whoever asks says, as `ssl` has it; None without TLS."""
    certificate: dict[str, Any] | None = request.get_extra_info("peercert")
    return certificate


def principal_of(request: web.Request) -> Principal:
    """Who asks."""
    return request[PRINCIPAL]


def holder_of(request: web.Request, named: str = "") -> str:
    """Whose seats the request takes: those of its token's or certificate's user; of the user that is named, where
    neither says one; else of the address that it comes from."""
    principal = request.get(PRINCIPAL, ANYBODY)
    return principal.user or named or f"address {request.remote}"


def json_response(value: Any, status: int = 200) -> web.Response:
    """A JSON answer."""
    return web.Response(body=orjson.dumps(value), status=status, content_type="application/json")


def json_error(status: int, message: str) -> web.Response:
    """A JSON error in the one shape that all errors have."""
    return json_response({"error": {"message": message}}, status)


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


def run(daemon_of: Callable[[], Daemon], options: DaemonOptions) -> None:
    """Run a daemon as this process until it is told to end.

    Standard output gets one line of JSON once the daemon works ({"daemon", "address", "pid", …})
    and nothing else; logs go to standard error. The first SIGTERM or SIGINT drains, a second
    one ends at once.
    """
    limit_malloc_arenas()
    open_files.raise_limit()
    hide_from_others()  # The token, and what others submitted, are no business of tasks that run as the same user.
    _log_to_streams(options)
    try:
        import uvloop

        runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
    except ImportError:  # No uvloop on this platform.
        runner = asyncio.Runner()
    with runner:
        runner.run(_main(daemon_of, options))


def _log_to_streams(options: DaemonOptions) -> None:
    """Log to standard error, and where the options say."""
    handlers = [logging.StreamHandler(sys.stderr)]
    if options.warnings_fd is not None:
        handlers.append(_warnings_handler(options.warnings_fd))
    for handler in handlers:
        handler.setFormatter(LogFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=options.log_level.upper(), handlers=handlers)


def _warnings_handler(descriptor: int) -> logging.StreamHandler[Any]:
    try:
        os.set_blocking(descriptor, False)
        stream = os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        allowed = f"an inherited descriptor that can be written to ({error.strerror})"
        raise InvalidOption("warnings_fd", descriptor, allowed) from None
    handler = logging.StreamHandler(stream)
    handler.setLevel(logging.WARNING)
    return handler


async def _main(daemon_of: Callable[[], Daemon], options: DaemonOptions) -> None:
    loop = asyncio.get_running_loop()
    ended = loop.create_future()
    signals = 0

    def on_signal(name: str) -> None:
        nonlocal signals
        signals += 1
        if signals > 1 and not ended.done():
            ended.set_result(f"{name} again")
        elif signals == 1:
            log.info("%s: draining for at most %g s; once more ends at once", name, options.drain_timeout_s)
            draining.add(asyncio.ensure_future(drain(name)))

    async def drain(name: str) -> None:
        try:
            async with asyncio.timeout(options.drain_timeout_s):
                await daemon.drain()
        except TimeoutError:
            log.warning("not drained within %g s", options.drain_timeout_s)
        finally:
            if not ended.done():
                ended.set_result(name)

    draining: set[asyncio.Future[None]] = set()
    daemon = daemon_of()
    announcement = await daemon.start()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, signal.Signals(number).name)
    hangup = asyncio.Event()
    if daemon.credentials.reloadable:  # Else the signal ends what a terminal that is closed leaves behind.
        loop.add_signal_handler(signal.SIGHUP, hangup.set)
    reloading = asyncio.create_task(_reload_at(hangup, daemon))
    if options.exit_on_stdin_eof:
        _watch_stdin(loop, ended)
    line = orjson.dumps({"daemon": daemon.kind, **announcement, "pid": os.getpid()})
    sys.stdout.write(line.decode() + "\n")
    sys.stdout.flush()
    log.info("%s listens on %s", daemon.kind, announcement["address"])
    # What was made at start lives as long as the process, and what comes and goes is freed without the
    # collector's help: with Python's own thresholds it took a tenth of a busy daemon's time.
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    collecting = asyncio.ensure_future(collect_garbage())
    reason = await ended
    log.info("ending: %s", reason)
    reloading.cancel()
    collecting.cancel()
    await daemon.stop()


async def _reload_at(hangup: asyncio.Event, daemon: Daemon) -> None:
    while True:
        await hangup.wait()
        hangup.clear()
        try:
            if daemon.credentials.reload():
                await daemon.renew()
        except Exception:  # A bug of ours: the next time must come all the same.
            log.exception("tokens and certificates were not read again")


def limit_malloc_arenas() -> None:
    """Have no more than `MALLOC_ARENAS` heaps; to be called before there are threads. Other C libraries have one."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, MALLOC_ARENAS)


async def collect_garbage() -> None:
    """Collect all garbage now and then, for ever."""
    took_s = 0.0
    while True:
        await asyncio.sleep(max(GC_EVERY_S, took_s / GC_TIME_SHARE))
        began_s = time.perf_counter()
        gc.collect()
        took_s = time.perf_counter() - began_s


def _watch_stdin(loop: asyncio.AbstractEventLoop, ended: asyncio.Future[str]) -> None:
    descriptor = sys.stdin.fileno()

    def readable() -> None:
        if not os.read(descriptor, 4096):
            loop.remove_reader(descriptor)
            if not ended.done():
                ended.set_result("standard input closed")

    loop.add_reader(descriptor, readable)


async def until(condition: Callable[[], bool], every_s: float = 0.02) -> None:
    """Return once the condition holds. For the slow paths of a daemon's life only."""
    while not condition():
        await asyncio.sleep(every_s)
