"""A daemon of an embedded cluster as a child process."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from typing import Any

import orjson

from sparrow_py import start
from sparrow_py.errors import ClusterError, InvalidRequest
from sparrow_py.job import sequence
from sparrow_py.processes.process_bound import let_go
from sparrow_py.processes.process_ends import Tail, exit_reason, wait_or_kill

STOP_TIMEOUT_S = 5.0
LOG_TAIL_CHARS = 2000
LAST_LINES_TIMEOUT_S = 0.5
"""What a daemon wrote before it ended is waited for this long: its executors may hold the pipe a moment longer."""
SCHEDULER, NODE_MONITOR, ONE_PROCESS = "scheduler", "node_monitor", "sparrow_py.embedded.one_process"
"""Modules: of a daemon each, and of both in one process."""
KINDS = {SCHEDULER: "scheduler", NODE_MONITOR: "node monitor", ONE_PROCESS: "scheduler and node monitor"}
"""What they are called."""
AND_NODE_MONITOR = "--and-node-monitor"
"""Of the arguments of `ONE_PROCESS`: what comes before is the scheduler's."""

NO_LISTENERS: Mapping[str, socket.socket] = {}


def check_flags(field: str, flags: object) -> None:
    """`InvalidRequest` unless these may be flags of a command line: texts, in a list or tuple."""
    for flag in sequence(field, flags):
        if not isinstance(flag, str):
            raise InvalidRequest(field, flag, "texts, such as '--port' and '0'")


class DaemonProcess:
    """A daemon as a child process. `announcement` is what it said when it was ready to work."""

    def __init__(
        self,
        module: str,
        arguments: Sequence[str],
        environment: dict[str, str],
        log: Any,
        listeners: Mapping[str, socket.socket] = NO_LISTENERS,
        inherited: Sequence[int] = (),
        name: str = "",
    ) -> None:
        """`log`: a file or descriptor that its log goes to, or a `Tail`, which becomes this process's. `listeners`:
        sockets that it is to listen on, by the options that name them. `inherited`: descriptors that its arguments
        name."""
        self.module = module
        self.name = name
        self.announcement: dict[str, Any] = {}
        self.was_ended = False
        """Whether it was told to end, by `kill` or `end`."""
        self._log = log
        own = ["--exit-on-stdin-eof", "--port", "0"]
        for option, listener in listeners.items():
            own += [option, str(listener.fileno())]
        inherited = [*inherited, *(listener.fileno() for listener in listeners.values())]
        command = start.command(module, *own, *arguments, path=import_path())
        try:
            self.process = Popen(
                command,
                stdin=PIPE,
                stdout=PIPE,
                stderr=log.descriptor if isinstance(log, Tail) else log,
                env=environment,
                start_new_session=True,
                pass_fds=inherited,
            )
        finally:
            if isinstance(log, Tail):
                log.close_ours()

    @property
    def address(self) -> str:
        """Where it listens."""
        return str(self.announcement["address"])

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    def wait_until_ready(self) -> None:
        """Read its announcement; `ClusterError` with its last log lines if it ends instead."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            code = self.process.wait()
            why = self.log_tail() or self._where_it_says()
            raise ClusterError(
                f"{KINDS.get(self.module, self.module)} ended with code {code} instead of starting:\n{why}"
            )
        self.announcement = orjson.loads(line)

    def why_ended(self) -> str:
        """How it ended, and what it said last; it must have ended."""
        said = self.log_tail()
        kind = KINDS.get(self.module, self.module)
        name = f"the process {self.name!r} ({kind})" if self.module == ONE_PROCESS else f"{kind} {self.name}"
        return f"{name} {exit_reason(self.process.returncode)}" + (f"; its log ends with:\n{said}" if said else "")

    def _where_it_says(self) -> str:
        """Where to look for its log, if not here."""
        nowhere = self._log == DEVNULL
        return "give the cluster a log_dir to see why" if nowhere else "what it said is on standard error"

    def log_tail(self) -> str:
        """The end of its log."""
        if isinstance(self._log, int) or self._log is None:
            return ""
        if isinstance(self._log, Tail):
            return "\n".join(self._log.lines(LAST_LINES_TIMEOUT_S))
        return last_lines(Path(self._log.name).read_text("utf-8", "replace"), LOG_TAIL_CHARS)

    def kill(self) -> None:
        """End it with SIGKILL, and wait for its end."""
        self.was_ended = True
        self.process.kill()
        self.process.wait()
        self._close_pipes()

    def end(self) -> None:
        """Close its standard input, so that it ends at once and stops its executors."""
        self.was_ended = True
        if self.process.stdin is not None:
            with contextlib.suppress(OSError):
                self.process.stdin.close()

    def wait_ended(self) -> None:
        """Wait until it has ended; kill it if it takes too long."""
        wait_or_kill(self.process, STOP_TIMEOUT_S)
        self._close_pipes()

    def forked(self) -> None:
        """In a child of the process: the daemon is the parent's, and ends with the parent's end of its input."""
        pipes = (self.process.stdin, self.process.stdout)
        let_go([pipe.fileno() for pipe in pipes if pipe is not None and not pipe.closed])

    def _close_pipes(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


class DaemonInside:
    """A daemon of a process that has several: what may be asked of a process, about this daemon.

    They live and die together: to kill one kills the process.
    """

    def __init__(self, host: DaemonProcess, module: str, name: str) -> None:
        self.host = host
        self.module = module
        self.name = name

    @property
    def announcement(self) -> dict[str, Any]:
        """What this daemon said when it was ready to work; empty before."""
        return self.host.announcement.get(self.module, {})  # type: ignore[no-any-return]

    @property
    def address(self) -> str:
        """Where it listens."""
        return str(self.announcement["address"])

    @property
    def process(self) -> Popen[bytes]:
        """The process of both."""
        return self.host.process

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.host.pid

    def log_tail(self) -> str:
        """The end of the process's log."""
        return self.host.log_tail()

    def kill(self) -> None:
        """End the process with SIGKILL, and wait for its end."""
        self.host.kill()

    def end(self) -> None:
        """Close the process's standard input, so that it ends at once."""
        self.host.end()


Daemon = DaemonProcess | DaemonInside
"""What a cluster's user sees of a daemon."""


def last_lines(text: str, chars_max: int) -> str:
    """The last whole lines of the text, or the end of the last one if that alone is longer."""
    if len(text) <= chars_max:
        return text
    end = text[-chars_max - 1 :]  # Which may begin with the end of the line before.
    whole = end.partition("\n")[2]
    return whole or end[1:]


def import_path() -> list[str]:
    """Where this process looks for modules, in order. Without places that are not there, of which Python has one."""
    places = dict.fromkeys(str(Path(entry).absolute()) for entry in sys.path if isinstance(entry, str))
    return list(filter(os.path.exists, places))
