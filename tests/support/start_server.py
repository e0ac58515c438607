"""Starts processes by forking itself: it has imported what daemons and commands import, which is most of their start.

`python …/start_server.py DESCRIPTOR MODULE… ROOM`, started by `forked_starts`, imports the modules and reads from
the descriptor, a Unix socket that keeps messages apart. A message is a start (`ask`): its descriptors, of which the
first is of a file with all else (`Start`), the second of a pipe for the answer, the third of the working directory. The
answer is the process id, and `READY` once the process is as it is to be; or a negative error number. The server ends
with whoever started it. `ROOM` is room for the command lines of new processes.

The new process is the server's sibling, not its child (`CLONE_PARENT` of clone(2)): who asked for it is its parent,
waits for it, and gets its exit status. It has what an executed process has: the descriptors that it was given, under
their numbers, and no others; Python's own signal handlers; a random generator of its own. It runs its module as
`__main__`, on the stack of an interpreter that does nothing else, so that what ends the module ends the process. A node
monitor has a server of its own for its executors (`executor_starts`).
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import errno
import fcntl
import gc
import importlib
import io
import json
import os
import resource
import runpy
import signal
import socket
import sys
import threading
import time
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
DESCRIPTORS_MAX = 200
"""Of one start; a message takes no more than 253."""
SYS_CLONE3 = 435
CLONE_PARENT, CLONE_CHILD_CLEARTID, CLONE_CHILD_SETTID = 0x8000, 0x200000, 0x1000000
PR_GET_TID_ADDRESS = 40
READY = b" ready"
CANNOT_START_EXIT = 127
IGNORED_BY_PYTHON = frozenset({signal.SIGPIPE, signal.SIGXFSZ})
LAUNCHER = "node_monitor.executors.launcher"
SAFE_PATH = "-P"
NOT_CAUGHT = frozenset({signal.SIGKILL, signal.SIGSTOP})


@dataclass(frozen=True)
class Start:
    """What a process is started with, besides its descriptors."""

    command: list[str]
    """As the system would get it."""
    flags: list[str]
    """Of the interpreter: `SAFE_PATH`, or none."""
    script: str
    """The path of `sparrow_py/start.py` if the command runs that, else empty: the command is `-m MODULE`."""
    arguments: list[str]
    """Of the script, or the module and its arguments."""
    environment: dict[str, str]
    targets: list[int]
    """The numbers that its descriptors have: 0, 1, 2 and others."""
    cwd: str | None
    """Relative to the directory that comes as a descriptor."""
    umask: int
    ignored: list[int]
    """Signals, as those that are blocked."""
    blocked: list[int]
    limits: list[tuple[int, int, int]]
    """Resource, soft limit, hard limit."""
    new_session: bool
    process_group: int
    """-1: that of its parent."""
    launcher: list[str] = field(default_factory=list)
    """Arguments of `node_monitor/executors/launcher.py`, which the process comes by; empty if it does not."""
    forks_executors: bool = False

    def encoded(self) -> bytes:
        """As the file that comes with a start."""
        return json.dumps(asdict(self)).encode("ascii")


def ask(connection: socket.socket, start: Start, streams: Sequence[int]) -> int:
    """Ask a server for a process with these streams; returns its process id, `OSError` if there is none."""
    with contextlib.ExitStack() as closing:
        request = _opened(closing, os.memfd_create("start"))
        os.write(request, start.encoded())
        directory = _opened(closing, os.open(".", os.O_PATH))
        answers, answer = os.pipe()
        _opened(closing, answers)
        try:
            socket.send_fds(connection, [b"1"], [request, answer, directory, *streams, *start.targets[3:]])
        finally:
            os.close(answer)
        return _pid_of(_read_all(answers))


def _opened(closing: contextlib.ExitStack, descriptor: int) -> int:
    closing.callback(os.close, descriptor)
    return descriptor


def _read_all(descriptor: int) -> bytes:
    with open(descriptor, "rb", closefd=False) as file:
        return file.read()


def _pid_of(answer: bytes) -> int:
    """What a server has answered; `OSError` if the process is not there, or has ended instead of what it was to run."""
    pid = int(answer.removesuffix(READY) or b"-%d" % errno.EPIPE)
    if pid < 0:
        raise OSError(-pid, os.strerror(-pid))
    if not answer.endswith(READY):
        os.waitpid(pid, 0)
        raise OSError(errno.ECHILD, "the process could not become what it was to be")
    return pid


class _CloneArguments(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_uint64)
        for name in ("flags", "pidfd", "child_tid", "parent_tid", "exit_signal", "stack", "stack_size", "tls")
    ]


class Siblings:
    """Forks processes whose parent is this one's."""

    def __init__(self) -> None:
        self._libc = ctypes.PyDLL(None, use_errno=True)  # Which keeps the interpreter's lock, as a fork has to.
        self._arguments = _CloneArguments(flags=CLONE_PARENT)
        thread_id = ctypes.c_void_p()  # Where the C library has the main thread's number, which a fork has to change.
        if self._libc.prctl(PR_GET_TID_ADDRESS, ctypes.byref(thread_id), 0, 0, 0) == 0 and thread_id.value:
            self._arguments.flags |= CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID
            self._arguments.child_tid = thread_id.value

    def fork(self) -> int:
        """As `os.fork`."""
        size = ctypes.sizeof(self._arguments)
        ctypes.pythonapi.PyOS_BeforeFork()
        pid: int = self._libc.syscall(SYS_CLONE3, ctypes.byref(self._arguments), size)
        if pid == 0:
            ctypes.pythonapi.PyOS_AfterFork_Child()
            return 0
        number = ctypes.get_errno()
        ctypes.pythonapi.PyOS_AfterFork_Parent()
        if pid < 0:
            raise OSError(number, os.strerror(number))
        return pid


def serve(connection: socket.socket) -> Start | None:
    """Start processes. Returns None once nobody is left who could ask, and in each new process what it is to run."""
    siblings = Siblings()
    while True:
        data, descriptors, _, _ = socket.recv_fds(connection, 1, DESCRIPTORS_MAX)
        if not data:
            return None
        try:
            if siblings.fork() == 0:
                connection.close()
                return prepared(*descriptors)
        except OSError as error:
            os.write(descriptors[1], b"-%d" % (error.errno or errno.EAGAIN))
        for descriptor in descriptors:
            os.close(descriptor)


def prepared(request: int, answer: int, directory: int, *given: int) -> Start:
    """In a new process: be as one that was executed, answer, and return what to run."""
    os.write(answer, b"%d" % os.getpid())
    try:
        with os.fdopen(request, encoding="ascii") as file:
            file.seek(0)
            start = Start(**json.load(file))
        for kind, soft, hard in start.limits:
            if resource.getrlimit(kind) != (soft, hard):
                resource.setrlimit(kind, (soft, hard))
        answer, directory = take_numbers(start.targets, given, [answer, directory])
        os.fchdir(directory)
        os.close(directory)
        if start.cwd is not None:
            os.chdir(start.cwd)
        if start.new_session:
            os.setsid()
        elif start.process_group >= 0:
            os.setpgid(0, start.process_group)
        os.umask(start.umask)
        os.environ.clear()
        os.environ.update(start.environment)
        time.tzset()
        take_streams()
        take_signals(start.ignored, start.blocked)
        os.write(answer, READY)
        os.close(answer)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        os._exit(CANNOT_START_EXIT)
    return start


def take_numbers(targets: Collection[int], given: Collection[int], kept: Collection[int]) -> list[int]:
    """Have the descriptors that were given under these numbers, for whatever is executed from here, too. All others are
    closed but those that are kept, whose new numbers are returned."""
    beyond = max(targets) + 1
    moved = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, beyond) for descriptor in (*given, *kept)]
    for target, descriptor in zip(targets, moved, strict=False):
        os.dup2(descriptor, target)
    kept_now = moved[len(given) :]
    for descriptor in [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]:
        if descriptor not in targets and descriptor not in kept_now:
            with contextlib.suppress(OSError):  # That of the listing itself.
                os.close(descriptor)
    return kept_now


def take_streams() -> None:
    """Have streams that fit the descriptors: a file's can seek, a pipe's cannot."""
    for descriptor, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        before = getattr(sys, name)
        raw: Any = io.FileIO(descriptor, mode, closefd=False)
        raw.name = before.name
        as_in_a_terminal = before.line_buffering or (raw.isatty() and not before.write_through)
        stream: Any = io.TextIOWrapper(
            raw if before.write_through else (io.BufferedReader if mode == "r" else io.BufferedWriter)(raw),
            before.encoding, before.errors, "\n", as_in_a_terminal, before.write_through,
        )  # fmt: skip
        stream.mode = mode
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def take_signals(ignored: Collection[int], blocked: Collection[int]) -> None:
    """Have the handlers that Python has when it is executed while these signals are ignored, and these blocked."""
    for number in signal.valid_signals() - NOT_CAUGHT:
        handler: object = signal.SIG_DFL
        if number in ignored or number in IGNORED_BY_PYTHON:
            handler = signal.SIG_IGN
        elif number == signal.SIGINT:
            handler = signal.default_int_handler
        if signal.getsignal(number) != handler:
            signal.signal(number, handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def show_command(command: Sequence[str]) -> None:
    """Have /proc say that this is the process's command line, as far as there is room."""
    begin, end = map(int, Path("/proc/self/stat").read_text().rpartition(")")[2].split()[45:47])
    words = b"".join(os.fsencode(word) + b"\0" for word in command)[: end - begin - 1]
    ctypes.memmove(begin, words.ljust(end - begin, b"\0"), end - begin)


def take_flags(flags: Collection[str]) -> None:
    """Have `sys.flags` as it is of an interpreter with these flags, where nothing may be changed otherwise. Whatever
    else the flag does has been done when an interpreter runs, or is done by `run`."""
    if SAFE_PATH in flags:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(True))  # As the reference is taken over.
        at = type(sys.flags).__match_args__.index("safe_path")
        ctypes.pythonapi.PyStructSequence_SetItem(
            ctypes.py_object(sys.flags), ctypes.c_ssize_t(at), ctypes.py_object(True)
        )


def run(start: Start, path: list[str]) -> None:
    """Be the process. `path`: where an interpreter looks for modules whose environment names no places."""
    sys.orig_argv = start.command
    show_command(start.command)
    take_flags(start.flags)
    if start.launcher:
        importlib.import_module(LAUNCHER).confined(start.launcher)
    named = filter(None, start.environment.get("PYTHONPATH", "").split(os.pathsep))
    sys.path[:] = dict.fromkeys([*map(os.path.abspath, named), *path])
    sys.path_importer_cache.clear()
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
    gc.enable()
    if start.script:
        from sparrow_py import start as script

        sys.argv = [start.script, *start.arguments]
        script._load_package = lambda _: None  # It is loaded, from there.
        script._script(sys.argv[1:])
    else:
        module, *arguments = start.arguments
        sys.argv = ["-m", *arguments]
        if not sys.flags.safe_path:
            sys.path.insert(0, str(Path.cwd()))
        if not hasattr(sys.modules.get(module), "__path__"):  # An executor's, which is to be `__main__` alone.
            sys.modules.pop(module, None)
        runpy.run_module(module, run_name="__main__", alter_sys=True)


def main() -> None:
    """Serve; in a new process, run what it is for."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # A terminal's, which means those who ask; then there is no one left.
    descriptor, *modules, _ = sys.argv[1:]
    path = sys.path[:-1]
    gc.disable()
    for module in modules:
        importlib.import_module(module)
    from tests.support import executor_starts

    importlib.import_module(LAUNCHER)
    for name in [name for name in sys.modules if name.partition(".")[0] in ("tests", "process_control")]:
        del sys.modules[name]  # A process finds them where it looks for them.
    gc.collect()
    gc.freeze()  # Else the first collection in each process would copy the memory that all of them share.
    environment = dict(os.environ)
    with socket.socket(fileno=int(descriptor)) as connection:
        start = serve(connection)
    if start is not None and start.forks_executors:
        start = executor_starts.fork_executors(start, environment)
    if start is None:
        return
    code: object = 0
    try:
        run(start, path)
    except SystemExit as end:
        code = end.code or 0
    if not isinstance(code, int):
        sys.exit(code)  # type: ignore[unreachable]
    end_without_clearing(code)


def end_without_clearing(code: int) -> None:
    """As an interpreter ends, but for the modules, which it would clear one by one: that copies the memory that all
    share, and takes twice the CPU time of the start."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    gc.collect()  # Which warns of what was left open.
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(code & 0xFF)


if __name__ == "__main__":
    del sys.path[0]
    sys.path.append(str(ROOT))
    importlib.import_module("tests.support.start_server").main()
