"""What all daemons do alike: start, announce their address, serve HTTP, drain and end.

New/start/stop as in NSQ: a daemon is an object with `start`, `drain` and `stop`, so that tests
and `LocalCluster(in_process=True)` run the real thing; `run` wraps it in a process.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import hmac
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

from sparrow_py.errors import ClusterError, InvalidOption
from sparrow_py.options import DaemonOptions

log = logging.getLogger("sparrow")
HTTP_BODY_BYTES_MAX = 1 << 20
LISTEN_BACKLOG = 4096
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


class Daemon(Protocol):
    """What `run` runs."""

    kind: str

    async def start(self) -> dict[str, Any]:
        """Listen and begin to work; returns what to announce, `address` among it."""

    async def drain(self) -> None:
        """Take nothing new, and return when nothing is left to do."""

    async def stop(self) -> None:
        """End at once."""


class Metrics(Collector):
    """Metrics read from a core's counters when they are scraped, so that hot paths only count."""

    def __init__(self, collect: Callable[[], Iterable[Metric]]) -> None:
        self._collect = collect

    def collect(self) -> Iterable[Metric]:
        """For prometheus-client."""
        return self._collect()


def make_app(daemon: Any, token: str, collect: Callable[[], Iterable[Metric]]) -> web.Application:
    """An HTTP application with `/livez`, `/readyz`, `/metrics` and the token check."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Metrics(collect))

    async def livez(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        why_not = daemon.why_not_ready()
        return web.Response(text=why_not + "\n" if why_not else "ok\n", status=503 if why_not else 200)

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(registry), headers={"Content-Type": "text/plain; version=0.0.4"})

    app = web.Application(client_max_size=HTTP_BODY_BYTES_MAX, middlewares=[_token_check(token)])
    app.add_routes([web.get("/livez", livez), web.get("/readyz", readyz), web.get("/metrics", metrics)])
    return app


def _token_check(token: str) -> Any:
    expected = f"Bearer {token}".encode()

    @web.middleware
    async def check(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        given = request.headers.get("Authorization", "").encode("utf-8", "surrogateescape")
        if token and request.path not in PUBLIC_PATHS and not hmac.compare_digest(given, expected):
            return json_error(401, "the header Authorization: Bearer TOKEN is missing or wrong")
        return await handler(request)

    return check


def json_response(value: Any, status: int = 200) -> web.Response:
    """A JSON answer."""
    return web.Response(body=orjson.dumps(value), status=status, content_type="application/json")


def json_error(status: int, message: str) -> web.Response:
    """A JSON error in the one shape that all errors have."""
    return json_response({"error": {"message": message}}, status)


async def listen(app: web.Application, options: DaemonOptions) -> tuple[web.AppRunner, str]:
    """Serve the application; returns the runner and the real address (host:port)."""
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        if options.listen_fd is None:
            where = f"{options.host}:{options.port}"
            await web.TCPSite(runner, options.host, options.port, backlog=LISTEN_BACKLOG).start()
        else:
            where = f"descriptor {options.listen_fd}"
            await web.SockSite(runner, socket.socket(fileno=options.listen_fd), backlog=LISTEN_BACKLOG).start()
    except OSError as error:
        await runner.cleanup()
        raise ClusterError(f"cannot listen on {where}: {error.strerror or error}") from None
    real_host, real_port = runner.addresses[0][:2]
    if not ipaddress.ip_address(real_host).is_loopback and not options.token():
        await runner.cleanup()
        raise InvalidOption("listen_fd", real_host, "a loopback address, or a secret: --token-file or SPARROW_TOKEN")
    return runner, f"[{real_host}]:{real_port}" if ":" in real_host else f"{real_host}:{real_port}"


def run(daemon_of: Callable[[], Daemon], options: DaemonOptions) -> None:
    """Run a daemon as this process until it is told to end.

    Standard output gets one line of JSON once the daemon works ({"daemon", "address", "pid", …})
    and nothing else; logs go to standard error. The first SIGTERM or SIGINT drains, a second
    one ends at once.
    """
    limit_malloc_arenas()
    logging.basicConfig(
        level=options.log_level.upper(),
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    try:
        import uvloop

        runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
    except ImportError:  # No uvloop on this platform.
        runner = asyncio.Runner()
    with runner:
        runner.run(_main(daemon_of, options))


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
    collecting.cancel()
    await daemon.stop()


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
