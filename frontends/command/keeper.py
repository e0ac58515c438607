"""A process that keeps commands, one after the other: starts each, waits for its end, and leaves nothing of it behind.

It is a copy of the executor, made by fork, and a subreaper: all processes that a command starts stay below it, even one
that makes a session of its own and lets its parent end (a daemon). When the command has ended, or the executor says
that it is to be killed, the keeper kills all that is left below it, and only then reports. When the executor has ended,
for whatever reason, its socket closes and the kernel sends SIGTERM: then the keeper kills all that is left below it,
and ends.

A keeper cannot end processes that a service of the machine has started for a command.

Runs have numbers. A kill names its run, so that a late one does not hit the next command.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import select
import signal
import socket
import struct
import subprocess
from collections.abc import Sequence
from io import FileIO
from typing import NamedTuple, NoReturn

import msgspec

from frontends.command.tasks import CommandTask
from sparrow_py.limits.task_limits import TaskLimits
from sparrow_py.processes.descendants import end_children
from sparrow_py.processes.process_control import adopt_orphans, die_with_parent

ORDER = struct.Struct("=BQ?")
"""What to do, the run's number, and whether the command has a standard input of its own. An order to run is followed by
the task, unless that is too large."""
KILL, RUN, TERMINATE = range(3)
"""An order to run comes with descriptors. To terminate is to send SIGTERM to the command's process group."""
TASK_BYTES_MAX = 32 << 10
"""Of a task that comes with its order. The socket has room for it, as the order goes to an idle keeper."""
REPORT = struct.Struct("=QiidQ")
"""A run's number, an errno, an exit code, seconds of CPU and the most memory in bytes. The errno is 0 if the command
was started; else the path at fault follows the report."""
REPORT_BYTES_MAX = 8192
DESCRIPTORS = 4
"""Most descriptors that an order to run comes with: a file with the task, if it is large; the command's stdin, if it
has one; its stdout and stderr."""
RESTORED_SIGNALS = (signal.SIGPIPE, signal.SIGXFSZ)
"""Those that the interpreter ignores; a command has them as it would from a shell."""
WAKE_UPS_BYTES = 512
KILOBYTE = 1024
"""Of `ru_maxrss` on Linux, where alone there are commands."""

_task_decoder = msgspec.msgpack.Decoder(CommandTask)


class Report(NamedTuple):
    """How a run ended."""

    run: int
    start_errno: int
    exit_code: int
    cpu_s: float
    """Of the command and of what it had started, as far as that has ended before it."""
    memory_bytes: int
    """The most that one process of these had at a time."""
    path: str

    def exit_code_or_error(self) -> int:
        """The command's exit code; `OSError` if it was not started."""
        if self.start_errno:
            raise OSError(self.start_errno, os.strerror(self.start_errno), self.path or None)
        return self.exit_code


def start_keeper(environment: dict[str, str], limits: TaskLimits) -> tuple[int, socket.socket]:
    """The process id of a new keeper, and the socket to it, which does not block.

    Its commands get this environment and these limits. `OSError` if the machine allows no further process or
    descriptor.
    """
    executor = os.getpid()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs, contextlib.ExitStack() as on_failure:
        on_failure.enter_context(ours)
        ours.setblocking(False)
        # Until the keeper has a handler of its own it has the executor's, which would do nothing in its process.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        try:
            pid = os.fork()
            if pid == 0:
                _be_keeper(theirs, environment, limits, executor, mask)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        on_failure.pop_all()
    return pid, ours


class Start(NamedTuple):
    """What a keeper needs to start a command.

    task: encoded; empty if it is in the file that the first of the descriptors has open.
    descriptors: that one, if there is one; the command's stdin, if `has_stdin`; its stdout and stderr.
    """

    task: bytes
    descriptors: Sequence[int]
    has_stdin: bool


def send_run(keeper: socket.socket, run: int, start: Start) -> None:
    """Have the keeper run this command."""
    socket.send_fds(keeper, [ORDER.pack(RUN, run, start.has_stdin) + start.task], start.descriptors)


def send_kill(keeper: socket.socket, run: int) -> None:
    """Have the keeper kill that command, and all that it started, unless it has ended."""
    keeper.send(ORDER.pack(KILL, run, False))


def send_terminate(keeper: socket.socket, run: int) -> None:
    """Have the keeper send that command SIGTERM, unless it has ended."""
    keeper.send(ORDER.pack(TERMINATE, run, False))


def receive_report(keeper: socket.socket) -> Report | None:
    """The keeper's next report; None if the keeper has ended."""
    try:
        data = keeper.recv(REPORT_BYTES_MAX)
    except ConnectionResetError:  # The keeper ended before it read the last order.
        return None
    if not data:
        return None
    run, start_errno, exit_code, cpu_s, memory_bytes = REPORT.unpack_from(data)
    return Report(run, start_errno, exit_code, cpu_s, memory_bytes, os.fsdecode(data[REPORT.size :]))


def _be_keeper(
    executor_socket: socket.socket,
    environment: dict[str, str],
    limits: TaskLimits,
    executor: int,
    mask: set[signal.Signals | int],
) -> NoReturn:
    """Be a keeper, in its new process, until the executor ends."""
    status = 1
    try:
        gc.freeze()  # The pages stay shared with the executor.
        signal.set_wakeup_fd(-1)
        _close_inherited_descriptors(executor_socket.fileno())
        keeper = _Keeper(executor_socket, environment, limits)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.setsid()  # A signal to the executor's process group is not for it.
        adopt_orphans()
        die_with_parent(signal.SIGTERM, executor)
        keeper.serve()
        status = 0
    finally:
        os._exit(status)


def _close_inherited_descriptors(kept: int) -> None:
    """Close all descriptors of the executor but this one; 0, 1 and 2 become /dev/null.

    The executor's sockets to other keepers must be closed: a keeper sees that the executor has ended when no process
    has the other end of its socket open.
    """
    os.closerange(3, kept)
    os.closerange(kept + 1, os.sysconf("SC_OPEN_MAX"))
    null = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(null, number)
    os.close(null)


def _home() -> int | None:
    """A descriptor of the working directory; None if this process may not enter it."""
    try:
        return os.open(".", os.O_PATH | os.O_DIRECTORY)
    except OSError:
        return None


def _program(name: str, environment: dict[str, str]) -> str | None:
    """The file of this program, as exec would find it; None if there seems to be none."""
    if "/" in name:
        return name
    for directory in environment.get("PATH", os.defpath).split(os.pathsep):
        path = os.path.join(directory, name)  # noqa: PTH118 - microseconds
        if os.access(path, os.X_OK) and not os.path.isdir(path):  # noqa: PTH112
            return path
    return None


class _Run(NamedTuple):
    number: int
    start: Start


class _Keeper:
    """A keeper, in its own process.

    SIGCHLD and SIGTERM wake it up by a pipe, so that no signal is missed between a check and the wait after it.
    """

    def __init__(self, executor: socket.socket, environment: dict[str, str], limits: TaskLimits) -> None:
        self._executor = executor
        self._environment = environment
        self._impose = limits.impose if any(limits) else None
        self._home = _home()
        self._killed = 0
        self._cpu_s, self._memory_bytes = 0.0, 0
        """What the run's processes that have ended have used."""
        self._to_terminate = 0
        self._over = False
        """Whether the executor has ended, or this keeper was sent SIGTERM."""
        self._wake_ups, wake_up = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_up, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._end)
        self._poll = select.poll()
        self._poll.register(executor, select.POLLIN)
        self._poll.register(self._wake_ups, select.POLLIN)

    def serve(self) -> None:
        """Run commands until the executor ends."""
        while not self._over:
            run = self._wait()
            if run is not None:
                report = self._run_command(run)
                with contextlib.suppress(ConnectionError):
                    self._executor.send(report)

    def _end(self, *_: object) -> None:
        self._over = True

    def _wait(self) -> _Run | None:
        """Wait for an order or a signal; returns the run to start if there is one."""
        ready = {descriptor for descriptor, _ in self._poll.poll()}
        if self._wake_ups in ready:
            os.read(self._wake_ups, WAKE_UPS_BYTES)
        return self._receive() if self._executor.fileno() in ready else None

    def _receive(self) -> _Run | None:
        try:
            order, descriptors, _, _ = socket.recv_fds(
                self._executor, ORDER.size + TASK_BYTES_MAX, DESCRIPTORS, socket.MSG_CMSG_CLOEXEC
            )
        except ConnectionResetError:
            order = b""
        if not order:
            self._over = True
            return None
        what, number, has_stdin = ORDER.unpack_from(order)
        if what == RUN:
            return _Run(number, Start(order[ORDER.size :], descriptors, has_stdin))
        if what == TERMINATE:
            self._to_terminate = number
        else:
            self._killed = number
        return None

    def _run_command(self, run: _Run) -> bytes:
        """Run this command to its end, and end all that it started; returns the report."""
        try:
            pid = self._start(run.start)
        except OSError as error:
            path = os.fsencode(error.filename or "")[: REPORT_BYTES_MAX - REPORT.size]
            return REPORT.pack(run.number, error.errno or errno.EIO, 0, 0.0, 0) + path
        self._cpu_s, self._memory_bytes = 0.0, 0
        status = self._status_of(pid, run.number)
        end_children()
        exit_code = -signal.SIGKILL if status is None else os.waitstatus_to_exitcode(status)
        return REPORT.pack(run.number, 0, exit_code, self._cpu_s, self._memory_bytes)

    def _start(self, start: Start) -> int:
        """Start the command; its process id."""
        try:
            if len(start.descriptors) < 2 + start.has_stdin + (not start.task):
                # The kernel drops descriptors for which this process has no room.
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            *others, stdout, stderr = start.descriptors
            stdin = others[-1] if start.has_stdin else 0
            task = _task_decoder.decode(start.task or FileIO(others[0], closefd=False).readall())
            streams = {0: stdin, 1: stdout, 2: stderr}
            return self._spawned(task, streams) or self._executed(task, streams)
        finally:
            for descriptor in start.descriptors:
                os.close(descriptor)

    def _spawned(self, task: CommandTask, streams: dict[int, int]) -> int | None:
        """Start the command in the way that takes least.

        None if that cannot be, or fails: the other says why, and knows more ways. The working directory is this
        process's own meanwhile.
        """
        if self._impose is not None or (task.cwd and self._home is None):
            return None
        environment = self._environment | task.env
        try:
            if task.cwd:
                os.chdir(task.cwd)
            program = _program(task.argv[0], environment)
            if program is None:
                return None
            return os.posix_spawn(
                program,
                task.argv,
                environment,
                file_actions=[(os.POSIX_SPAWN_DUP2, ours, theirs) for theirs, ours in streams.items() if ours],
                setsid=True,
                setsigdef=RESTORED_SIGNALS,
            )
        except (OSError, NotImplementedError):
            return None
        finally:
            if task.cwd and self._home is not None:
                os.fchdir(self._home)

    def _executed(self, task: CommandTask, streams: dict[int, int]) -> int:
        """Start the command in the way that takes all there is to say about it."""
        process = subprocess.Popen(
            task.argv,
            stdin=streams[0],
            stdout=streams[1],
            stderr=streams[2],
            cwd=task.cwd or None,
            env=self._environment | task.env,
            start_new_session=True,
            preexec_fn=self._impose,  # noqa: PLW1509 - this process has no other threads
        )
        process.returncode = 0  # It is waited for elsewhere.
        return process.pid

    def _status_of(self, pid: int, run: int) -> int | None:
        """The wait status of this child once it has ended; None if it is to be killed before. Reaps other children."""
        while True:
            with contextlib.suppress(ChildProcessError):
                while (ended := os.wait4(-1, os.WNOHANG))[0]:
                    usage = ended[2]
                    self._cpu_s += usage.ru_utime + usage.ru_stime
                    self._memory_bytes = max(self._memory_bytes, usage.ru_maxrss * KILOBYTE)
                    if ended[0] == pid:
                        return ended[1]
            if self._over or self._killed == run:
                return None
            if self._to_terminate == run:
                self._to_terminate = 0
                with contextlib.suppress(ProcessLookupError, PermissionError):  # It may be another user by now.
                    os.killpg(pid, signal.SIGTERM)
            self._wait()
