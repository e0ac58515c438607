"""Processes of the laboratory: daemons, programs, executors that are started by hand.

A process is started by its command, or forked from this one, which has imported what it runs: then it runs what
`python -m scheduler` and the others run, from the parsing of their flags on. That saves a third of a second of CPU
each, which short rounds with eight daemons and their restarts would not have. Who forks must have one thread.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import random
import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from benchmarks.laboratory import clocks

ANNOUNCED_WITHIN_S = 60.0
ORPHANS_END_WITHIN_S = 15.0
POLL_S = 0.02


class Process:
    """A child of this process: a command, or a function in a fork. It has its own session, working directory and log.

    Its standard input is a pipe whose other end is here, so that it notices that this process is gone, or that it is
    `dismissed`.
    """

    def __init__(
        self, work: Sequence[str] | Callable[[], object], *, log: Path, cwd: Path, environment: Mapping[str, str]
    ) -> None:
        self.code: int | None = None
        """Its exit code once it has ended, -N: killed by signal N."""
        self.log = log
        self._announcement = b""
        self._command: subprocess.Popen[bytes] | None = None
        stdin, self._stdin = os.pipe()
        self._stdout, stdout = os.pipe()
        with log.open("ab") as stderr:
            if callable(work):
                self.pid = _fork(work, (stdin, stdout, stderr.fileno()), cwd, environment)
            else:
                self._command = subprocess.Popen(
                    work, stdin=stdin, stdout=stdout, stderr=stderr, cwd=cwd, env=environment, start_new_session=True
                )
                self.pid = self._command.pid
        os.close(stdin)
        os.close(stdout)

    def announcement(self) -> dict[str, Any]:
        """The line of JSON that a process prints when it works; waits for it."""
        if not self.announced(ANNOUNCED_WITHIN_S):
            raise RuntimeError(f"a process did not start:\n{self.log.read_text()}")
        return dict(json.loads(self._announcement))

    def announced(self, within_s: float = 0.0) -> bool:
        """Whether it has printed that line, by now or within so many seconds."""
        deadline_s = time.monotonic() + within_s
        while not self._announcement.endswith(b"\n"):
            ready, _, _ = select.select([self._stdout], [], [], max(0.0, deadline_s - time.monotonic()))
            part = os.read(self._stdout, 1 << 16) if ready else b""
            if not part:
                return False
            self._announcement += part
        return True

    @property
    def runs(self) -> bool:
        """Whether it has not ended (it may stand still)."""
        if self.code is None:
            if self._command is not None:
                code = self._command.poll()
            else:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                code = os.waitstatus_to_exitcode(status) if pid else None
            if code is not None:
                self._ended(code)
        return self.code is None

    def _ended(self, code: int) -> None:
        self.code = code
        self.dismiss()
        os.close(self._stdout)

    def say(self, line: bytes) -> None:
        """Write a line to its standard input."""
        os.write(self._stdin, line + b"\n")

    def dismiss(self) -> None:
        """Close its standard input: a daemon ends, a program when it has done what it has to do."""
        if self._stdin >= 0:
            os.close(self._stdin)
            self._stdin = -1

    def signal(self, number: int) -> None:
        """Send it a signal, if it is there."""
        if self.runs:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL, and wait for its end."""
        self.signal(signal.SIGKILL)
        self.wait()

    def wait(self, timeout_s: float = float("inf")) -> bool:
        """Wait for its end; whether it has come."""
        deadline_s = time.monotonic() + timeout_s
        while self.runs and time.monotonic() < deadline_s:
            time.sleep(POLL_S / 10)
        return not self.runs

    def children(self) -> list[psutil.Process]:
        """What it and those have started."""
        with contextlib.suppress(psutil.NoSuchProcess):
            if self.runs:
                return list(psutil.Process(self.pid).children(recursive=True))
        return []

    def descriptors(self) -> int:
        """How many it has open; 0 where it does not let us look."""
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            return int(psutil.Process(self.pid).num_fds())
        return 0


def _fork(work: Callable[[], object], streams: Sequence[int], cwd: Path, environment: Mapping[str, str]) -> int:
    gc.collect()
    pid = os.fork()
    if not pid:
        _become(work, streams, cwd, environment)
    return pid


def _become(work: Callable[[], object], streams: Sequence[int], cwd: Path, environment: Mapping[str, str]) -> None:
    """Do this work in this new process, and end it."""
    code = 1
    try:
        os.setsid()
        for number, descriptor in enumerate(streams):
            os.dup2(descriptor, number)
        os.closerange(3, min(resource.getrlimit(resource.RLIMIT_NOFILE)[0], 1 << 16))
        sys.stdin, sys.stdout, sys.stderr = (os.fdopen(n, mode, 1) for n, mode in enumerate(("r", "w", "w")))
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(cwd)
        clocks.follow_environment()
        random.seed()
        code = int(work() or 0)  # type: ignore[call-overload]
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


# ---- all processes below this one ------------------------------------------------------------


def python(module: str, *arguments: str) -> list[str]:
    """The command that runs a module of ours."""
    return [sys.executable, "-m", module, *arguments]


def clean_environment(**more: str) -> dict[str, str]:
    """This process's environment without options of ours, with all places where it finds modules, plus these."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SPARROW_")}
    path = dict.fromkeys(str(Path(entry or ".").absolute()) for entry in sys.path)
    return kept | {"PYTHONPATH": os.pathsep.join(path)} | more


def send(pid: int, number: int) -> None:
    """Send a signal to a process that may have ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def children_now() -> set[int]:
    """The process ids of this process's children."""
    return {child.pid for child in psutil.Process().children()}


def end_orphans(strangers: Container[int]) -> Iterator[str]:
    """Processes that have lost their parents are ours now; those that still run after a while are ended, and named."""
    deadline_s = time.monotonic() + ORPHANS_END_WITHIN_S
    while (living := _living_children(strangers)) and time.monotonic() < deadline_s:
        time.sleep(POLL_S)
    for orphan in living:
        with contextlib.suppress(psutil.NoSuchProcess):
            yield f"{orphan.pid} {' '.join(orphan.cmdline())[:200]}"
            orphan.kill()
            orphan.wait()


def _living_children(strangers: Container[int]) -> list[psutil.Process]:
    """Children of this process that run, but for those; others that have ended are reaped."""
    living = []
    for child in psutil.Process().children():
        if child.pid in strangers:
            continue
        with contextlib.suppress(psutil.NoSuchProcess):
            if child.status() == psutil.STATUS_ZOMBIE:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(child.pid, os.WNOHANG)
            else:
                living.append(child)
    return living
