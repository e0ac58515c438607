"""Processes that a run starts, and their end: each by its pid, with everything that it started."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import psutil

from benchmarks.laboratory.processes import python, send
from benchmarks.report import ROOT
from sparrow_py.processes.process_control import adopt_orphans

END_TIMEOUT_S = 10.0


class Processes:
    """Processes below this one. At the end of the `with` block none of them is left, nor any that they started.

    What they start may leave its parent, as daemons do; it then becomes a child of ours (a subreaper's, on Linux) and
    is ended with the rest. Children that were there before are left alone. prefix: what goes before commands.
    """

    def __init__(self, directory: Path, environment: Mapping[str, str], prefix: Sequence[str] = ()) -> None:
        self.directory = directory
        self._prefix = prefix
        self.environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **environment}
        """Of all that is started from now on."""
        self._not_ours: set[int] = set()
        self._started: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Processes:
        self._not_ours = {child.pid for child in psutil.Process().children(recursive=True)}
        adopt_orphans(True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        deadline_s = time.monotonic() + END_TIMEOUT_S
        while ours := self._ours():
            for process in ours:
                send(process.pid, signal.SIGKILL)
            psutil.wait_procs(ours, timeout=0.2)
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"processes {sorted(p.pid for p in ours)} do not end")
        for started in self._started:
            started.wait()
        adopt_orphans(False)

    def start(
        self,
        name: str,
        command: Sequence[str],
        environment: Mapping[str, str] | None = None,
        prefix: Sequence[str] | None = None,
    ) -> psutil.Process:
        """Start a process whose output goes to `name.out` and `name.err`."""
        with self.out(name).open("ab") as out, self.err(name).open("ab") as err:
            started = subprocess.Popen(
                [*(self._prefix if prefix is None else prefix), *command],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                cwd=self.directory,
                env={**self.environment, **(environment or {})},
                start_new_session=True,
            )
        self._started.append(started)
        return psutil.Process(started.pid)

    def python(
        self,
        name: str,
        arguments: Iterable[str],
        prefix: Sequence[str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> psutil.Process:
        """Start `python -m …` with this interpreter, behind `prefix`."""
        return self.start(name, python(*arguments), environment, prefix)

    def out(self, name: str) -> Path:
        """Its standard output."""
        return self.directory / f"{name}.out"

    def err(self, name: str) -> Path:
        """Its standard error."""
        return self.directory / f"{name}.err"

    def said(self, name: str) -> str:
        """All that it said."""
        return "".join(path.read_text("utf-8", "replace") for path in (self.out(name), self.err(name)))

    def _ours(self) -> list[psutil.Process]:
        below = psutil.Process().children(recursive=True)
        return [process for process in below if process.pid not in self._not_ours and running(process)]


def with_all_below(process: psutil.Process) -> list[psutil.Process]:
    """The process and all that it started; none if it has ended."""
    try:
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def kill(process: psutil.Process) -> None:
    """SIGKILL for it and all below it: they are stopped first, so that none of them can start another."""
    for sent in (signal.SIGSTOP, signal.SIGKILL):
        for member in with_all_below(process):
            send(member.pid, sent)
    with suppress(psutil.TimeoutExpired):
        process.wait(END_TIMEOUT_S)


def freeze(process: psutil.Process) -> None:
    """SIGSTOP for it and all below it."""
    for member in with_all_below(process):
        send(member.pid, signal.SIGSTOP)


def running(process: psutil.Process) -> bool:
    """Whether it has not ended."""
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
