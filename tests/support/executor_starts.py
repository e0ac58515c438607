"""Executors and their fork servers as processes that are forked, of daemons that are (`forked_starts`).

The server of a daemon's own start could only make siblings of the daemon. So a node monitor, before it runs anything of
its own, forks a server that makes siblings of itself: they are the node monitor's children, as executed ones would be.
Each goes by way of the launcher's own code. A command that a fork would not do for is executed: with limits or another
account, by another interpreter or environment of the interpreter, of a module that is not ours.
"""

from __future__ import annotations

import asyncio
import os
import re
import resource
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from node_monitor.executors.confinement import LAUNCHER
from sparrow_py import start as start_script
from tests.support.start_server import SAFE_PATH, Start, ask, serve, show_command, take_numbers

FORKED = {"sparrow_py.executors.fork_server", "frontends.command.executor", "frontends.sql.executor"}
"""Modules."""
NAME = "the executors' start server"
"""What /proc says of it."""
BY_LAUNCHER = [sys.executable, "-I", "-S", LAUNCHER]
OUR_FLAGS = ["-s", SAFE_PATH]
HARMLESS = ("--parent=", "--files=", "--keep=")
"""Of the launcher's options, those that do to a fork what they would do to an executed process."""
OPTIONS = {"env", "stdin", "stdout", "stderr", "start_new_session", "pass_fds"}
OF_THE_INTERPRETER = re.compile(r"(PYTHON(?!PATH$)|LD_|LC_|LANG|MALLOC_|GLIBC_).*|.*_(NUM|MAX)_THREADS|VECLIB_.*")
"""Variables that are read when the interpreter starts, or a module is imported that executors import."""
IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
LIMITS = sorted({getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")})

Execute = Callable[..., Awaitable[Any]]


def fork_executors(start: Start, environment: Mapping[str, str]) -> Start | None:
    """In a new daemon: have its executors forked. Returns `start` in the daemon; in each process that is forked for it
    what to run, and None in the server once the daemon is gone. `environment`: what the interpreter was executed with.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        nothing = os.open(os.devnull, os.O_RDWR)
        (descriptor,) = take_numbers([0, 1, 2], [nothing] * 3, [theirs.detach()])
        ours.detach()
        os.setsid()
        for number in IGNORED:
            signal.signal(number, signal.SIG_IGN)
        show_command([NAME])
        with socket.socket(fileno=descriptor) as connection:
            return serve(connection)
    theirs.close()
    asyncio.create_subprocess_exec = _Starts(ours, asyncio.create_subprocess_exec, environment)  # type: ignore[assignment]
    return start


class _Starts:
    """In a daemon: `asyncio.create_subprocess_exec`."""

    def __init__(self, server: socket.socket, execute: Execute, environment: Mapping[str, str]) -> None:
        self._server = server
        self._execute = execute
        self._environment = _of_the_interpreter(environment)

    async def __call__(self, *command: str, **options: Any) -> Any:
        if options.keys() == OPTIONS and _of_the_interpreter(options["env"]) == self._environment:
            start = _start_of(list(command), **options)
            streams = [options[name] for name in ("stdin", "stdout", "stderr")]
            nothing = os.open(os.devnull, os.O_RDWR)
            try:
                if start is not None:
                    return _Forked(ask(self._server, start, [nothing if given == -3 else given for given in streams]))
            except OSError:  # The server was killed, or there is no clone3, or too little of something.
                pass
            finally:
                os.close(nothing)
        return await self._execute(*command, **options)


def _of_the_interpreter(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if OF_THE_INTERPRETER.fullmatch(name)}


def _start_of(
    command: list[str], *, env: Mapping[str, str], start_new_session: bool, pass_fds: tuple[int, ...], **_: int
) -> Start | None:
    """What the server is told; None if the process has to be executed."""
    if command[: len(BY_LAUNCHER)] != BY_LAUNCHER:
        return None
    arguments = command[len(BY_LAUNCHER) :]
    at = arguments.index("--")
    flags = [sys.executable, *OUR_FLAGS, str(Path(start_script.__file__).resolve())]
    words = arguments[at + 1 :]
    module = next((word for word in words[len(flags) :] if not word.startswith(start_script.PATH_FLAG)), "")
    plain = all(option.startswith(HARMLESS) for option in arguments[:at])
    if not plain or words[: len(flags)] != flags or module not in FORKED:
        return None
    return Start(
        command=words,
        flags=[SAFE_PATH],
        script=flags[-1],
        arguments=words[len(flags) :],
        environment=dict(env),
        targets=[0, 1, 2, *pass_fds],
        cwd=None,
        umask=_umask(),
        ignored=[],
        blocked=[],
        limits=[(kind, *resource.getrlimit(kind)) for kind in LIMITS],
        new_session=start_new_session,
        process_group=-1,
        launcher=arguments,
    )


def _umask() -> int:
    """This process's, whose threads may make files meanwhile."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("Umask:"))
    return int(line.split()[1], 8)


class _Forked:
    """What a node monitor needs of `asyncio.subprocess.Process`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._loop = asyncio.get_running_loop()
        self._code: asyncio.Future[int] = self._loop.create_future()
        self._descriptor = os.pidfd_open(pid)
        self._loop.add_reader(self._descriptor, self._ended)

    async def wait(self) -> int:
        """Its exit code, once it has ended; the negative number of a signal."""
        return await asyncio.shield(self._code)

    def _ended(self) -> None:
        self._loop.remove_reader(self._descriptor)
        os.close(self._descriptor)
        _, status = os.waitpid(self.pid, 0)
        self._code.set_result(os.waitstatus_to_exitcode(status))
