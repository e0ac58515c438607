"""What a daemon's process does beside its work."""

import asyncio
import gc
import os
import platform
import signal
import subprocess
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from sparrow_py.access.credentials import Credentials
from sparrow_py.daemon import process
from sparrow_py.daemon.options import DaemonOptions, command
from sparrow_py.errors import InvalidOption
from tests.support.daemons import clean_environment
from tests.support.waiting import TIMEOUT_S


class Ring:
    """Refers to itself, as a connection that has ended does."""

    def __init__(self) -> None:
        self.itself = self


async def test_what_refers_to_itself_is_collected_though_nothing_else_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "GC_EVERY_S", 0.0)
    enabled = gc.isenabled()
    gc.disable()
    try:
        ring = Ring()
        gone = weakref.ref(ring)
        gc.collect(0)  # It grows old.
        gc.collect(1)
        del ring
        collecting = asyncio.ensure_future(process.collect_garbage())
        async with asyncio.timeout(TIMEOUT_S):
            while gone() is not None:
                await asyncio.sleep(0)
        collecting.cancel()
    finally:
        if enabled:
            gc.enable()


COUNT_ARENAS = """
import ctypes, sys, threading
from sparrow_py.daemon.process import limit_malloc_arenas

if sys.argv[1] == "limited":
    limit_malloc_arenas()
barrier = threading.Barrier(9)

def allocate():
    kept = [bytes(10_000 + number) for number in range(100)]
    barrier.wait()  # All threads are there at the same time.

threads = [threading.Thread(target=allocate) for _ in range(8)]
for thread in threads:
    thread.start()
barrier.wait()
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
file = ctypes.c_void_p(libc.fopen(sys.argv[2].encode(), b"w"))
libc.malloc_info(0, file)
libc.fclose(file)
"""


@pytest.mark.processes
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no arenas")
@pytest.mark.parametrize(("how", "one"), [("limited", True), ("as it is", False)])
def test_threads_have_no_heaps_of_their_own(tmp_path: Path, how: str, one: bool) -> None:
    told = tmp_path / "arenas.xml"
    subprocess.run([sys.executable, "-c", COUNT_ARENAS, how, str(told)], env=clean_environment(), check=True)
    assert (told.read_text().count("<heap nr=") == 1) is one


class Hungry:
    """A daemon for whose start there is no memory."""

    kind = "hungry"
    credentials = Credentials(DaemonOptions(), dials=False)

    async def start(self) -> dict[str, Any]:
        raise MemoryError


def not_imported() -> Any:
    raise MemoryError


@pytest.mark.parametrize("made", [Hungry, not_imported])
def test_too_little_memory_to_start_with_is_an_error_of_one_line(made: Callable[[], Any]) -> None:
    def run(options: DaemonOptions) -> None:
        asyncio.run(process.serve(made, options))

    answer = CliRunner().invoke(command("daemon", DaemonOptions, run, ""), [])
    assert (answer.exit_code, answer.output) == (1, f"Error: {process.NO_MEMORY}\n")


class Recorded:
    """A daemon that notes what is done with it. While it is made and while it starts, so many signals come."""

    kind = "recorded"

    def __init__(self, done: list[str], *, when_made: int = 0, at_start: int = 0, starts: bool = True) -> None:
        self.done = done
        self.credentials = Credentials(DaemonOptions(), dials=False)
        self._at_start = at_start
        self._starts = starts
        _raise_signals(when_made)

    async def start(self) -> dict[str, Any]:
        _raise_signals(self._at_start)
        if not self._starts:
            await asyncio.Event().wait()
        await asyncio.sleep(0)
        self.done.append("started")
        return {"address": "here"}

    async def drain(self) -> None:
        self.done.append("drained")

    async def stop(self) -> None:
        self.done.append("stopped")

    async def renew(self) -> None:
        self.done.append("renewed")


def _raise_signals(count: int) -> None:
    for _ in range(count):
        assert signal.getsignal(signal.SIGTERM) not in (signal.SIG_DFL, signal.SIG_IGN, None)
        signal.raise_signal(signal.SIGTERM)


@pytest.mark.parametrize("when", [{"when_made": 1}, {"at_start": 1}])
async def test_a_signal_while_a_daemon_starts_drains_it_once_it_has_started(
    monkeypatch: pytest.MonkeyPatch, when: dict[str, int]
) -> None:
    monkeypatch.setattr(process, "freeze_garbage", lambda: None)
    done: list[str] = []
    async with asyncio.timeout(TIMEOUT_S):
        await process.serve(lambda: Recorded(done, **when), DaemonOptions())
    assert done == ["started", "drained", "stopped"]


async def test_a_second_signal_ends_a_start_that_takes_for_ever() -> None:
    done: list[str] = []
    async with asyncio.timeout(TIMEOUT_S):
        # One in the constructor and one later: signals that come together may count as one.
        await process.serve(lambda: Recorded(done, when_made=1, at_start=1, starts=False), DaemonOptions())
    assert done == []


async def test_a_start_ends_if_standard_input_does(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    readable, writable = os.pipe()
    with os.fdopen(readable) as stdin:
        os.close(writable)
        monkeypatch.setattr(sys, "stdin", stdin)
        async with asyncio.timeout(TIMEOUT_S):
            await process.serve(lambda: Recorded(done, starts=False), DaemonOptions(exit_on_stdin_eof=True))
    assert done == []


async def test_a_daemon_whose_announcement_nobody_reads_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    def announce(*_: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(process, "freeze_garbage", lambda: None)
    monkeypatch.setattr(process, "_announce", announce)
    done: list[str] = []
    async with asyncio.timeout(TIMEOUT_S):
        await process.serve(lambda: Recorded(done), DaemonOptions())
    assert done == ["started", "stopped"]


@pytest.mark.processes
def test_a_daemon_that_was_started_without_standard_streams_has_them_on_nothing() -> None:
    """Else uvloop ended the process when it closed a socket of such a number."""
    code = (
        "import os\nfrom sparrow_py.daemon import process\nfor one in (0, 1, 2): os.close(one)\n"
        "process.open_standard_streams()\nassert [os.fstat(one).st_rdev for one in (0, 1, 2)] == "
        "[os.stat(os.devnull).st_rdev] * 3\n"
    )
    subprocess.run([sys.executable, "-c", code], env=clean_environment(), check=True)


def test_the_end_of_a_standard_input_that_is_no_stream_cannot_be_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    readable, writable = os.pipe()
    with os.fdopen(writable, "w"), os.fdopen(readable) as pipe, Path(os.devnull).open() as null:
        monkeypatch.setattr(sys, "stdin", pipe)
        process.check_stdin()
        for stdin in (null, None):
            monkeypatch.setattr(sys, "stdin", stdin)
            with pytest.raises(InvalidOption, match=r"exit_on_stdin_eof.*a pipe, a socket or a terminal"):
                process.check_stdin()
