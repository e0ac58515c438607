"""Daemons and controllers of ours as processes that a server forks (`start_server`), in place of executed ones: a start
takes a fraction of the CPU time. So do those of their executors (`executor_starts`).

What is run cannot tell the difference, nor can who starts it: `Popen` is `subprocess.Popen` but for the start. These
differ: in /proc a process has its server's environment; processes of one server hash strings alike; modules are loaded
that a process would not have imported itself, or not yet; and modules are not cleared when it ends. Tests of that, and
of starts, are marked `real_starts`: then all is executed. Those of executors' starts are marked `real_executors`.

A process is executed, too, where a fork is not the same: with another interpreter or user, with other flags or another
environment of the interpreter itself; and where there is no clone3(2).
"""

from __future__ import annotations

import os
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from node_monitor.executors.environment import one_thread_per_slot
from sparrow_py import start as start_script
from tests.support import start_server
from tests.support.start_server import DESCRIPTORS_MAX, SAFE_PATH, Start, ask
from tests.support.waiting import TIMEOUT_S

MODULES = {
    "scheduler", "node_monitor", "sparrow_py.embedded.one_process", "frontends.dataflow.controller",
    "frontends.command.executor", "frontends.python.executor",
}  # fmt: skip
"""What is forked; executors are where a test starts them itself."""
HOSTS = {"node_monitor", "sparrow_py.embedded.one_process"}
"""Those that start executors."""
PRELOADED = (
    "scheduler.daemon", "node_monitor.daemon", "frontends.python.executor", "frontends.synthetic.spin_executor",
    "frontends.command.executor", "frontends.dataflow.worker", "frontends.dataflow.commanding_controller",
)  # fmt: skip
"""What a server imports: nothing that is run as `__main__`."""
ROOM = " " * 8000
"""For command lines."""
SCRIPT = str(Path(start_script.__file__).resolve())
OF_THE_INTERPRETER = re.compile(r"(PYTHON(?!PATH$)|LD_|LC_|LANG|MALLOC_|GLIBC_|SSL_CERT_).*|.*_NO_EXTENSIONS")
"""Variables that are read when the interpreter starts or a module is imported."""
LIMITS = sorted({getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")})

chosen = False
"""Whether processes are forked now."""
executors_chosen = True
"""Whether the executors of node monitors that are forked now are forked, too."""


class Popen(subprocess.Popen):  # type: ignore[type-arg]
    """As `subprocess.Popen`."""

    def _execute_child(self, *arguments: Any) -> None:
        given = _Given(*arguments)
        start = _start_of(given) if chosen else None
        pid = None if start is None else _forked(start, given.streams)
        if pid is None:
            super()._execute_child(*arguments)  # type: ignore[misc]
            return
        self.pid = pid
        self._child_created = True
        self._close_pipe_fds(*given[10:16])  # type: ignore[attr-defined]


def run(command: Sequence[str], *, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """What came of a daemon of ours that ends by itself. It is forked even if the test executes others."""
    global chosen  # noqa: PLW0603
    before, chosen = chosen, True
    try:
        process = Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
    finally:
        chosen = before
    with process:
        try:
            output, errors = process.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, output, errors)


class _Given(NamedTuple):
    """The arguments of `subprocess.Popen._execute_child`."""

    args: Any
    executable: Any
    preexec_fn: Any
    close_fds: bool
    pass_fds: Sequence[int]
    cwd: Any
    env: Mapping[str, str] | None
    startupinfo: Any
    creationflags: int
    shell: bool
    p2cread: int
    p2cwrite: int
    c2pread: int
    c2pwrite: int
    errread: int
    errwrite: int
    restore_signals: bool
    gid: Any
    gids: Any
    uid: Any
    umask: int
    start_new_session: bool
    process_group: int

    @property
    def is_plain(self) -> bool:
        """Whether nothing is asked for that only an executed process could have."""
        special = (self.executable, self.preexec_fn, self.gid, self.gids, self.uid)
        listed = isinstance(self.args, Sequence) and not isinstance(self.args, (str, bytes))
        few = len(self.pass_fds) < DESCRIPTORS_MAX // 2
        return special == (None,) * 5 and listed and few and not self.shell and self.close_fds and self.restore_signals

    @property
    def streams(self) -> list[int]:
        """The descriptors that become standard input, output and error: this process's own where none is given."""
        return [own if given == -1 else given for own, given in enumerate((self.p2cread, self.c2pwrite, self.errwrite))]


def _start_of(given: _Given) -> Start | None:
    """What a server is told; None if the process has to be executed."""
    if not given.is_plain:
        return None
    interpreter, *rest = words = [os.fspath(word) for word in given.args]
    flags = [SAFE_PATH] if rest[:1] == [SAFE_PATH] else []
    script, *arguments = rest[len(flags) :] or [""]
    module = next((word for word in arguments if not word.startswith(start_script.PATH_FLAG)), "")
    if interpreter != sys.executable or module not in MODULES or script not in ("-m", SCRIPT):
        return None
    return Start(
        command=words,
        flags=flags,
        script="" if script == "-m" else script,
        arguments=arguments,
        environment=dict(os.environ if given.env is None else given.env),
        targets=[0, 1, 2, *given.pass_fds],
        cwd=None if given.cwd is None else os.fspath(given.cwd),
        umask=_umask() if given.umask < 0 else given.umask,
        ignored=[number for number in signal.valid_signals() if signal.getsignal(number) == signal.SIG_IGN],
        blocked=list(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        limits=[(kind, *resource.getrlimit(kind)) for kind in LIMITS],
        new_session=given.start_new_session,
        process_group=given.process_group,
        forks_executors=executors_chosen and module in HOSTS,
    )


def _umask() -> int:
    """This process's, which `os.umask` could only tell by changing it."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("Umask:"))
    return int(line.split()[1], 8)


# ---- servers ---------------------------------------------------------------------------------


class Server:
    """The server of this process."""

    def __init__(self) -> None:
        self.connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        environment = one_thread_per_slot(environment)  # As executors' modules are loaded.
        command = [sys.executable, start_server.__file__, str(theirs.fileno()), *PRELOADED, ROOM]
        with theirs:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=environment,
                pass_fds=[theirs.fileno()],
            )
        self._environment = _of_the_interpreter(environment)

    @property
    def is_there(self) -> bool:
        """Whether it has not ended."""
        return self.process.poll() is None

    def would_do(self, start: Start) -> bool:
        """Whether the interpreter would be the same if it was executed."""
        return _of_the_interpreter(start.environment) == self._environment

    def fork(self, start: Start, streams: Sequence[int]) -> int:
        """The process id of a new process; `OSError` if there is none."""
        return ask(self.connection, start, streams)

    def end(self) -> None:
        """End it, and wait for its end."""
        self.connection.close()
        self.process.wait()


def _of_the_interpreter(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if OF_THE_INTERPRETER.fullmatch(name)}


_server: Server | None = None
_starting = threading.Lock()


def _forked(start: Start, streams: Sequence[int]) -> int | None:
    """The process id of a new process; None if it has to be executed."""
    global _server  # noqa: PLW0603
    with _starting:
        if _server is not None and not _server.is_there:
            _server.end()
            _server = None
        server = _server = _server or Server()
    if not server.would_do(start):
        return None
    sys.audit("subprocess.Popen", start.command[0], start.command, start.cwd, start.environment)
    try:
        return server.fork(start, streams)
    except OSError:  # There is no clone3, or the server was killed by a test, or the process has no such directory.
        return None


def end_server() -> None:
    """End that of this process."""
    global _server  # noqa: PLW0603
    if _server is not None:
        _server.end()
        _server = None


def _in_child() -> None:
    """In a fork of this process: the server is not its own."""
    global chosen  # noqa: PLW0603
    chosen = False
    if _server is not None:
        _server.connection.close()


os.register_at_fork(after_in_child=_in_child)
