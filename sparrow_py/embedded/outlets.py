"""Where the daemons of an embedded cluster log, and where their workers write."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparrow_py.processes.process_ends import Tail
from sparrow_py.session.tasks_in_flight import TasksInFlight

if TYPE_CHECKING:
    from sparrow_py.embedded.output_forwarding import OutputForwarder


@dataclass
class Outlet:
    """Where a process logs, and where its workers write.

    log: its standard error. inherited: descriptors that the flags name. flags: of any daemon. node_flags: of a node
    monitor, besides.
    """

    log: Any
    inherited: list[int] = field(default_factory=list)
    flags: list[str] = field(default_factory=list)
    node_flags: list[str] = field(default_factory=list)


class Outlets:
    """The logs of all daemons of one cluster, and the way of their workers' output.

    log_dir: the directory of their logs, a file each; None: none are written. forward: whether what tasks print, and
    the daemons' warnings, reach this program's `sys.stdout` and `sys.stderr`.
    """

    def __init__(self, log_dir: Path | None, *, forward: bool) -> None:
        self._log_dir = log_dir
        self._forwarder = _new_forwarder() if forward else None

    @contextlib.contextmanager
    def of(self, name: str, *, workers: bool) -> Iterator[Outlet]:
        """What a process that is started in the block is given; `workers`: if it has any, whose output is shown."""
        with self._log(name) as log, self._outlet(name, log, workers=workers) as outlet:
            yield outlet

    @contextlib.contextmanager
    def _log(self, name: str) -> Iterator[Any]:
        """Its log, open in the block: a process that was started has it open itself."""
        if self._log_dir is None:
            yield subprocess.DEVNULL
            return
        self._log_dir.mkdir(parents=True, exist_ok=True)
        with (self._log_dir / f"{name}.log").open("ab") as log:
            yield log

    @contextlib.contextmanager
    def _outlet(self, name: str, log: Any, *, workers: bool) -> Iterator[Outlet]:
        forwarder = self._forwarder
        if forwarder is None:
            yield Outlet(Tail() if self._log_dir is None else log)
            return
        warnings = forwarder.log_pipe(name)
        try:
            outlet = Outlet(log, [warnings], ["--warnings-fd", str(warnings)])
            if self._log_dir is None:
                outlet = Outlet(Tail(warnings), [], ["--log-level", "warning"])
            if workers:
                channel = forwarder.channel.fileno()
                outlet.inherited.append(channel)
                outlet.node_flags += ["--output-fd", str(channel)]
            yield outlet
        finally:
            os.close(warnings)

    @property
    def in_flight(self) -> TasksInFlight:
        """Whom to tell of the jobs of this program's clients, by which forwarded output is marked."""
        return TasksInFlight() if self._forwarder is None else self._forwarder.tasks

    def forked(self) -> None:
        """In a child of the process: the output is the parent's to forward."""
        if self._forwarder is not None:
            self._forwarder.forked()

    def ignore_logs(self) -> None:
        """Forward no more of what daemons log: they are about to be ended."""
        if self._forwarder is not None:
            self._forwarder.ignore_logs()

    def close(self) -> None:
        """The daemons have ended: forward what is left of their output."""
        if self._forwarder is not None:
            self._forwarder.stop()


def _new_forwarder() -> OutputForwarder:
    from sparrow_py.embedded.output_forwarding import (
        OutputForwarder,  # With modules that clients elsewhere than on Linux lack.
    )

    return OutputForwarder()
