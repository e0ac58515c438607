"""A fork server, which a node monitor starts and which starts executors for it: `…fork_server MODULE [ENTRY…]`.

The server has imported the executor's module, and forks an executor whenever the node monitor asks for one
(`fork_protocol`): a fork takes a millisecond, and the start of an interpreter seventy. The server never runs users'
code, so no executor begins with anything of another user. An executor calls the module's `main()`, with the environment
that it would have if it had been executed. Tasks look for modules in the entries first, also for modules that have the
name of one of our packages.

Standard input is the connection to the node monitor. The server ends when the connection does, and executors end with
their server.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import select
import signal
import socket
import sys
from collections.abc import Iterable

from sparrow_py.executors.executor_protocol import FrameSplitter, encode_frame
from sparrow_py.executors.fork_protocol import TO_FORK_SERVER, Ended, Fork, Forked, NotForked, Preload
from sparrow_py.own_packages import give_names_back, take_names
from sparrow_py.processes.process_control import SIGKILL, adopt_orphans, die_with_parent, hide_from_others

PRELOADED = ("cloudpickle",)
"""Modules that nearly all tasks need: imported once, rather than in each executor."""
CONNECTION = 0
"""The descriptor of the connection to the node monitor."""
RECEIVE_BYTES = 1 << 16
WAKE_UPS_BYTES = 4096


class ForkServer:
    """The server's loop, in a process that has no threads and no other children."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._splitter = FrameSplitter(TO_FORK_SERVER)
        self._executors: dict[int, str] = {}
        """Process id to executor."""
        self._wake_ups, self._wake_up = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(self._wake_up, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._poll = select.poll()
        self._poll.register(connection, select.POLLIN)
        self._poll.register(self._wake_ups, select.POLLIN)

    def serve(self) -> dict[str, str] | None:
        """Fork executors. Returns None once the node monitor is gone, and in each executor its environment."""
        while True:
            ready = {descriptor for descriptor, _ in self._poll.poll()}
            if self._wake_ups in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._wake_ups, WAKE_UPS_BYTES)
                self._bury()
            if self._connection.fileno() in ready:
                data = self._connection.recv(RECEIVE_BYTES)
                if not data:
                    return None
                for order in self._splitter.feed(data):
                    if type(order) is Preload:
                        preload(order.modules)
                    elif self._forked(order):
                        return dict(order.environment)

    def _forked(self, order: Fork) -> bool:
        """Start an executor; returns whether this process is the executor."""
        try:
            pid = os.fork()
        except OSError as error:
            self._say(NotForked(order.executor, error.errno or 0))
            return False
        if pid:
            self._executors[pid] = order.executor
            self._say(Forked(order.executor, pid))
            return False
        self._let_go()
        return True

    def _let_go(self) -> None:
        """In an executor: close what belongs to the server."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.close(self._wake_ups)
        os.close(self._wake_up)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, self._connection.detach())
        os.close(nothing)

    def _bury(self) -> None:
        """Tell of the executors that have ended. Until `waitpid` no other process gets their process ids."""
        while self._executors:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is None:
                return
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(ended.si_pid, SIGKILL)
            _, status = os.waitpid(ended.si_pid, 0)
            self._say(Ended(self._executors.pop(ended.si_pid), os.waitstatus_to_exitcode(status)))

    def _say(self, message: Forked | NotForked | Ended) -> None:
        self._connection.sendall(encode_frame([message]))


def preload(modules: Iterable[str]) -> None:
    """Import these, as far as they can be, for all executors to come. The first collection of garbage in each executor
    does not copy the memory that they share."""
    for name in modules:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()


def main() -> int:
    """Serve until the node monitor is gone; in an executor, run it. Returns the exit code of the process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A task that could change this process, or an executor, would change the process in which other users' tasks run.
    hide_from_others()
    # The node monitor ends the processes that executors have left, those of all apps in one way.
    adopt_orphans(False)
    module, *entries = sys.argv[1:]
    gc.disable()  # What is imported stays.
    take_names()
    executor = importlib.import_module(module)
    give_names_back()
    sys.path[:] = dict.fromkeys([*map(os.path.abspath, entries), *sys.path])
    preload(PRELOADED)  # After the entries, so that the version is the one that tasks find.
    gc.enable()
    server = os.getpid()
    try:
        environment = ForkServer(socket.socket(fileno=CONNECTION)).serve()
    except ConnectionError:
        return 0
    if environment is None:
        return 0
    os.setsid()
    die_with_parent(SIGKILL, server)
    adopt_orphans()
    os.environ.update(environment)
    return executor.main() or 0


if __name__ == "__main__":
    sys.exit(main())
