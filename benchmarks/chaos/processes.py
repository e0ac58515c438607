"""Processes of a round: daemons and clients, forked from one that has imported what they run.

They run what `python -m scheduler` and the others run, from the parsing of their flags on. That they are forked saves
a third of a second of CPU each, which a round with eight daemons and their restarts would not have. Who forks must have
one thread. Executors are started by their node monitors, as ever.
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
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil

from benchmarks.chaos import clocks

ANNOUNCED_WITHIN_S = 30.0
DIRECT = 0


class Process:
    """A child of this process that runs `main`; it has its own session, working directory, clock and log.

    Its standard input is a pipe whose other end is here, so that it can notice that this process is gone.
    """

    def __init__(self, main: Callable[[], object], *, log: Path, cwd: Path, environment: Mapping[str, str]) -> None:
        self.code: int | None = None
        """Its exit code once it has ended, -N: killed by signal N."""
        self.log = log
        self._announcement = b""
        stdin, self._stdin = os.pipe()
        self._stdout, stdout = os.pipe()
        with log.open("ab") as stderr:
            gc.collect()
            self.pid = os.fork()
            if self.pid == DIRECT:
                _become(main, stdin, stdout, stderr.fileno(), cwd, environment)
        os.close(stdin)
        os.close(stdout)

    def announcement(self) -> dict[str, Any]:
        """The line of JSON that a daemon prints when it works; waits for it."""
        deadline_s = time.monotonic() + ANNOUNCED_WITHIN_S
        while not self._announcement.endswith(b"\n"):
            ready, _, _ = select.select([self._stdout], [], [], max(0.0, deadline_s - time.monotonic()))
            part = os.read(self._stdout, 1 << 16) if ready else b""
            if not part:
                raise RuntimeError(f"a daemon did not start:\n{self.log.read_text()}")
            self._announcement += part
        return dict(json.loads(self._announcement))

    @property
    def runs(self) -> bool:
        """Whether it has not ended (it may stand still)."""
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._ended(os.waitstatus_to_exitcode(status))
        return self.code is None

    def _ended(self, code: int) -> None:
        self.code = code
        os.close(self._stdin)
        os.close(self._stdout)

    def signal(self, number: int) -> None:
        """Send it a signal, if it is there."""
        if self.runs:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL, and wait for its end."""
        self.signal(signal.SIGKILL)
        if self.runs:
            self._ended(os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1]))

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


def _become(
    main: Callable[[], object], stdin: int, stdout: int, stderr: int, cwd: Path, environment: Mapping[str, str]
) -> None:
    """Run `main` in this new process, and end it."""
    code = 1
    try:
        os.setsid()
        for number, descriptor in enumerate((stdin, stdout, stderr)):
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
        code = int(main() or 0)  # type: ignore[call-overload]
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
