"""The user's program of a library, seen from outside: asked for runs, watched, and ended with all below it."""

from __future__ import annotations

import contextlib
import socket
import time
from multiprocessing.connection import Connection

import psutil

from benchmarks.faults_peers.observation import shortened
from benchmarks.faults_peers.processes import Processes, kill, running, with_all_below
from benchmarks.peers.cases import Case, Ran, Size
from benchmarks.peers.peer import Library
from benchmarks.report import cpu_s

START_LIMIT_S = 90.0
STOP_LIMIT_S = 10.0
LAST_WORDS_CHARS = 2_000


class Failed(Exception):
    """The library did not do what it was asked for; says why."""


class UserProcess:
    """Of one library, with so many slots."""

    def __init__(self, processes: Processes, library: Library, slots: int) -> None:
        self._said = f"user-{time.monotonic_ns():x}"
        self._processes = processes
        path = processes.directory / f"{time.monotonic_ns():x}"
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
            listener.listen(1)
            listener.settimeout(0.2)
            self.process = processes.python(
                self._said, ["benchmarks.peers.user", library.address, str(slots), str(path)]
            )
            self._link = self._accepted(listener)
        if self._answer(START_LIMIT_S) != "ready":
            raise Failed("did not start")

    def run(self, case: Case, size: Size) -> Ran:
        """One run. `Failed` if it does not end in time, or with an exception."""
        self._link.send((case.name, size))
        answer = self._answer(case.limit_s)
        if isinstance(answer, Ran):
            return answer
        raise Failed(shortened(str(answer)))

    def cpu_s(self) -> float:
        """CPU seconds of all its processes, those that have ended below one that lives included."""
        total = 0.0
        for process in with_all_below(self.process):
            with contextlib.suppress(psutil.Error):
                ended = process.cpu_times()
                total += cpu_s([process.pid]) + ended.children_user + ended.children_system
        return total

    def end(self) -> None:
        """By its own way, then by force."""
        self._link.close()
        with contextlib.suppress(psutil.TimeoutExpired, psutil.NoSuchProcess):
            self.process.wait(STOP_LIMIT_S)
        kill(self.process)

    def _accepted(self, listener: socket.socket) -> Connection:
        deadline_s = time.monotonic() + START_LIMIT_S
        while True:
            with contextlib.suppress(TimeoutError):
                return Connection(listener.accept()[0].detach())
            if not running(self.process) or time.monotonic() > deadline_s:
                kill(self.process)
                raise Failed(self._last_words())

    def _answer(self, limit_s: float) -> object:
        try:
            if self._link.poll(limit_s):
                return self._link.recv()
        except (EOFError, OSError):
            kill(self.process)
            raise Failed(f"the user's program died: {self._last_words()}") from None
        kill(self.process)
        raise Failed(f"did not end within {limit_s:g} s")

    def _last_words(self) -> str:
        words = self._processes.said(self._said)[-LAST_WORDS_CHARS:].strip().splitlines()
        return shortened(words[-1]) if words else "no word"
