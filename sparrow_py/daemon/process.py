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
import stat
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, runtime_checkable

import orjson

from sparrow_py.daemon.listener import removing_unix_socket
from sparrow_py.daemon.options import DaemonOptions
from sparrow_py.daemon.service_manager import NOBODY, ServiceManager
from sparrow_py.errors import InvalidOption, SparrowError
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
NO_MEMORY = (
    "there is not enough memory to start with: the machine, the container or `ulimit` has too little for a daemon"
)


class DaemonRefused(SparrowError):
    """A daemon could not go on: the message is why."""


@runtime_checkable
class MayBeRefused(Protocol):
    """A daemon that others may forbid to go on."""

    refused: asyncio.Event
    """Set when it cannot go on."""

    def why_refused(self) -> str:
        """Why the process ends, once that is set."""


@runtime_checkable
class MayLeave(Protocol):
    """A daemon that ends by itself when it is not needed."""

    leaving: asyncio.Event
    """Set when it is to drain and end."""

    def why_leaving(self) -> str:
        """Why, once that is set."""


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
    and nothing else; logs go to standard error. The first SIGTERM or SIGINT drains, also while the
    daemon starts; a second one ends at once.
    """
    open_standard_streams()
    gc.disable()  # Until the daemon has started: what it imports stays, and to look through that took a tenth of it.
    limit_malloc_arenas()
    open_files.raise_limit()
    hide_from_others()  # The token, and what others submitted, are no business of tasks that run as the same user.
    _log_to_streams(options)
    manager = ServiceManager.of_environment(os.environ, heeded=not options.exit_on_stdin_eof)
    try:
        import uvloop

        runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
    except ImportError:  # No uvloop on this platform.
        runner = asyncio.Runner()
    with removing_unix_socket(options), runner:
        runner.run(serve(daemon_of, options, manager))


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


async def serve(daemon_of: Callable[[], Daemon], options: DaemonOptions, manager: ServiceManager = NOBODY) -> None:
    """Start the daemon, and return once it has been told to end and has stopped."""
    if options.exit_on_stdin_eof:
        check_stdin()
    loop = asyncio.get_running_loop()
    ending = _Ending(loop, options.drain_timeout_s, manager)  # First: from now on no signal ends the process by itself.
    if options.exit_on_stdin_eof:  # Before it starts: whoever started it may be killed while it does.
        _watch_stdin(loop, ending.end)
    try:
        daemon = daemon_of()
        hangup = asyncio.Event()
        if daemon.credentials.reloadable:  # Else the signal ends what a terminal that is closed leaves behind.
            loop.add_signal_handler(signal.SIGHUP, hangup.set)
        announcement = await _started(daemon, ending)
    except MemoryError:  # Wherever that happened, it says nothing of what is wrong.
        raise SparrowError(NO_MEMORY) from None
    if announcement is None:
        return
    ending.drain_with(daemon.drain)
    reloading = asyncio.create_task(_reload_at(hangup, daemon))
    refusing = asyncio.create_task(_end_if_refused(daemon, ending))
    leaving = asyncio.create_task(_drain_if_idle(daemon, ending))
    try:
        _announce(daemon, announcement, options)
    except BrokenPipeError:
        ending.end("nobody reads what it announces")
    manager.ready(f"listens on {announcement['address']}")
    freeze_garbage()
    collecting = asyncio.ensure_future(collect_garbage())
    living = asyncio.ensure_future(manager.show_life())
    reason = await ending.over
    log.info("ending: %s", reason)
    for task in (reloading, refusing, leaving, collecting):
        task.cancel()
    await daemon.stop()
    living.cancel()
    if isinstance(daemon, MayBeRefused) and daemon.refused.is_set():
        raise DaemonRefused(daemon.why_refused())


class _Ending:
    """What ends the process: the first SIGTERM or SIGINT drains the daemon, once it has started, and a second one ends
    it at once. Signals are heeded from the start, so that none ends the process without its exit code."""

    def __init__(self, loop: asyncio.AbstractEventLoop, drain_timeout_s: float, manager: ServiceManager) -> None:
        self.over: asyncio.Future[str] = loop.create_future()
        """Done with the reason once the process is to end."""
        self._drain_timeout_s = drain_timeout_s
        self._manager = manager
        self._drain: Callable[[], Awaitable[None]] | None = None
        self._first: str | None = None
        """The name of the first signal, or why else it ends."""
        self._draining: asyncio.Future[None] | None = None
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._on_signal, signal.Signals(number).name)

    def _on_signal(self, name: str) -> None:
        if self._first is not None:
            self.end(f"{name} again")
            return
        self.begin(name, "; once more ends at once")

    def begin(self, reason: str, more: str = "") -> None:
        """The daemon is to drain, and then to end, for this reason; nothing if it does already."""
        if self._first is not None:
            return
        self._first = reason
        log.info("%s: draining for at most %g s%s", reason, self._drain_timeout_s, more)
        self._manager.stopping()
        self._begin()

    def drain_with(self, drain: Callable[[], Awaitable[None]]) -> None:
        """The daemon has started, and drains by this: at once, if a signal has come already."""
        self._drain = drain
        if self._first is not None:
            self._begin()

    def _begin(self) -> None:
        if self._drain is not None and self._first is not None:
            self._draining = asyncio.ensure_future(self._drained(self._drain, self._first))

    async def _drained(self, drain: Callable[[], Awaitable[None]], name: str) -> None:
        try:
            async with asyncio.timeout(self._drain_timeout_s):
                await drain()
        except TimeoutError:
            log.warning("not drained within %g s", self._drain_timeout_s)
        finally:
            self.end(name)

    def end(self, reason: str) -> None:
        """The process is to end now."""
        if not self.over.done():
            self.over.set_result(reason)


async def _started(daemon: Daemon, ending: _Ending) -> dict[str, Any] | None:
    """Start the daemon; returns what to announce, None if the process is to end before it has started."""
    starting = asyncio.ensure_future(daemon.start())
    waited_for: list[asyncio.Future[Any]] = [starting, ending.over]
    await asyncio.wait(waited_for, return_when=asyncio.FIRST_COMPLETED)
    if starting.done():
        return starting.result()
    log.info("ending before the start is over: %s", ending.over.result())
    starting.cancel()
    await asyncio.wait([starting])
    if not starting.cancelled() and starting.exception() is None:
        await daemon.stop()  # The start was over in the same moment.
    return None


def _announce(daemon: Daemon, announcement: dict[str, Any], options: DaemonOptions) -> None:
    """Say on standard output that the daemon works."""
    line = orjson.dumps({"daemon": daemon.kind, **announcement, "profile": options.profile, "pid": os.getpid()})
    sys.stdout.write(line.decode() + "\n")
    sys.stdout.flush()
    log.info("%s listens on %s, profile %s", daemon.kind, announcement["address"], options.profile)


def freeze_garbage() -> None:
    """What was made at start lives as long as the process, and what comes and goes is freed without the collector's
    help: with Python's own thresholds it took a tenth of a busy daemon's time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    gc.enable()


async def _end_if_refused(daemon: Daemon, ending: _Ending) -> None:
    if isinstance(daemon, MayBeRefused):
        await daemon.refused.wait()
        ending.end("it was refused")


async def _drain_if_idle(daemon: Daemon, ending: _Ending) -> None:
    if isinstance(daemon, MayLeave):
        await daemon.leaving.wait()
        ending.begin(daemon.why_leaving())


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


def open_standard_streams() -> None:
    """Have descriptors 0 to 2 open, on nothing if they were closed: else sockets would get these numbers, which uvloop
    takes for standard streams."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # The lowest number that is free.


def check_stdin() -> None:
    """`InvalidOption` unless the end of standard input can be waited for."""
    mode = os.fstat(sys.stdin.fileno()).st_mode if sys.stdin is not None else 0
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or (mode and os.isatty(sys.stdin.fileno()))):
        raise InvalidOption("exit_on_stdin_eof", True, "a standard input that is a pipe, a socket or a terminal")


def _watch_stdin(loop: asyncio.AbstractEventLoop, end: Callable[[str], None]) -> None:
    descriptor = sys.stdin.fileno()

    def readable() -> None:
        if not os.read(descriptor, 4096):
            loop.remove_reader(descriptor)
            end("standard input closed")

    loop.add_reader(descriptor, readable)


async def until(condition: Callable[[], bool], every_s: float = 0.02) -> None:
    """Return once the condition holds. For the slow paths of a daemon's life only."""
    while not condition():
        await asyncio.sleep(every_s)
