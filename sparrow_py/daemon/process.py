"""A daemon as a process: it starts, announces its address, heeds signals, drains and ends.

New/start/stop as in NSQ: a daemon is an object with `start`, `drain` and `stop`, so that tests
and `LocalCluster(in_process=True)` run the real thing; `run` wraps it in a process.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol

import orjson

from sparrow_py.daemon.options import DaemonOptions
from sparrow_py.errors import InvalidOption
from sparrow_py.limits import open_files
from sparrow_py.logs.printable import LogFormatter
from sparrow_py.processes.process_control import hide_from_others

log = logging.getLogger("sparrow")
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


class Reloadable(Protocol):
    """Credentials that may be read again."""

    @property
    def reloadable(self) -> bool:
        """Whether there are files to read again."""

    def reload(self) -> bool:
        """Read the files again; whether they would do."""


class Daemon(Protocol):
    """What `run` runs."""

    kind: str

    async def start(self) -> dict[str, Any]:
        """Listen and begin to work; returns what to announce, `address` among it."""

    async def drain(self) -> None:
        """Take nothing new, and return when nothing is left to do."""

    async def stop(self) -> None:
        """End at once."""

    @property
    def credentials(self) -> Reloadable:
        """What it shows to others and asks of them."""

    async def renew(self) -> None:
        """Its credentials were read again: act on what they are now."""


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
    line = orjson.dumps({"daemon": daemon.kind, **announcement, "profile": options.profile, "pid": os.getpid()})
    sys.stdout.write(line.decode() + "\n")
    sys.stdout.flush()
    log.info("%s listens on %s, profile %s", daemon.kind, announcement["address"], options.profile)
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
