"""The executor's keepers: each is used again and again, and there are as many as commands have run at once.

A keeper is forked when no idle one is left, and stays. A run occupies its keeper until the keeper has reported the
run's end.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket

from frontends.command.keeper import Report, Start, receive_report, send_kill, send_run, send_terminate, start_keeper
from sparrow_py.limits.task_limits import TaskLimits
from sparrow_py.processes.orphans import Orphans


class KeptRun:
    """A command at its keeper."""

    def __init__(self, keeper: _KeeperProcess, number: int) -> None:
        self.number = number
        self.report: asyncio.Future[Report | None] = asyncio.get_running_loop().create_future()
        """The keeper's report, which comes when nothing of the command is left. None: the keeper was killed."""
        self._keeper = keeper

    def kill(self) -> None:
        """Kill the command, and all that it started; the keeper reports that."""
        if not self.report.done():
            self._keeper.kill(self.number)

    def terminate(self) -> None:
        """Send the command SIGTERM."""
        if not self.report.done():
            self._keeper.terminate(self.number)


class Keepers:
    """Keepers whose commands get this environment and these limits."""

    def __init__(self, environment: dict[str, str], limits: TaskLimits, orphans: Orphans) -> None:
        self._environment = environment
        self._limits = limits
        self._orphans = orphans
        self._all: set[_KeeperProcess] = set()
        self._idle: list[_KeeperProcess] = []

    def start(self, start: Start) -> KeptRun:
        """Start this command; `OSError` if there can be no process for it."""
        while True:
            new = not self._idle
            keeper = self._start_keeper() if new else self._idle.pop()
            try:
                return keeper.start(start)
            except ConnectionError:  # The keeper was killed.
                self._reap(keeper)
                if new:
                    raise
            except OSError:
                self._idle.append(keeper)
                raise

    def close(self) -> None:
        """End all keepers and their commands, and wait until the keepers have ended."""
        for keeper in self._all:
            keeper.close()
        for keeper in list(self._all):
            self._reap(keeper)
        self._idle.clear()

    def _start_keeper(self) -> _KeeperProcess:
        keeper = _KeeperProcess(*start_keeper(self._environment, self._limits), self)
        self._all.add(keeper)
        self._orphans.started(keeper.pid)
        try:
            keeper.listen()
        except OSError:
            self._reap(keeper)
            raise
        return keeper

    def reported(self, keeper: _KeeperProcess) -> None:
        """The keeper's command has ended; the keeper can have another."""
        self._idle.append(keeper)

    def ended(self, keeper: _KeeperProcess) -> None:
        """The keeper was killed, idle or not. Its command, if there was one, is an orphan now."""
        if keeper in self._idle:
            self._idle.remove(keeper)
        self._reap(keeper)

    def _reap(self, keeper: _KeeperProcess) -> None:
        keeper.close()
        os.waitpid(keeper.pid, 0)
        self._all.discard(keeper)
        self._orphans.ended(keeper.pid)


class _KeeperProcess:
    """A keeper as the executor sees it: a child process, and a socket to it."""

    def __init__(self, pid: int, connection: socket.socket, keepers: Keepers) -> None:
        self.pid = pid
        self._connection = connection
        self._keepers = keepers
        self._runs = 0
        self._run: KeptRun | None = None
        self._loop = asyncio.get_running_loop()

    def listen(self) -> None:
        self._loop.add_reader(self._connection, self._receive)

    def start(self, start: Start) -> KeptRun:
        self._runs += 1
        send_run(self._connection, self._runs, start)
        self._run = KeptRun(self, self._runs)
        return self._run

    def kill(self, run: int) -> None:
        with contextlib.suppress(OSError):  # The keeper has ended, which `_receive` is about to see.
            send_kill(self._connection, run)

    def terminate(self, run: int) -> None:
        with contextlib.suppress(OSError):
            send_terminate(self._connection, run)

    def close(self) -> None:
        """Close the socket, so that the keeper ends."""
        if self._connection.fileno() >= 0:
            self._loop.remove_reader(self._connection)
            self._connection.close()

    def _receive(self) -> None:
        report = receive_report(self._connection)
        run, self._run = self._run, None
        if report is None:
            self._keepers.ended(self)
        else:
            self._keepers.reported(self)
        if run is not None and not run.report.done():
            run.report.set_result(report)
