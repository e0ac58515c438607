"""The work of the process that keeps an engine warm.

It imports the engine, then runs one script after another, as its socket brings them, and answers each. It ends with the
executor, or when the socket closes.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import psutil

from frontends.workflow.engines import engine as engine_of
from frontends.workflow.engines.runs import run_script
from frontends.workflow.errors import IterationsExceeded, JobFailed, TableMismatch
from frontends.workflow.running.execution import Cause
from frontends.workflow.running.tasks import Answer, Failed, Made, MadeFile, Script, decode_task, encode
from frontends.workflow.table_files import size_of
from sparrow_py.errors import SparrowError
from sparrow_py.limits.task_limits import TaskLimits, allow_cpu

MEMORY_ERRORS = ("MemoryError", "OutOfMemoryException", "ArrowMemoryError")
"""Names of what engines raise when there is no memory."""
MEMORY_WORDS = ("out of memory", "bad_alloc", "cannot allocate memory", "memory allocation", "outofmemoryerror")
"""In messages of those whose exceptions have other names."""
REASON_CHARS_MAX = 4_000
ROOM_BYTES_MIN = 16 << 20
"""What a script needs beyond what its process has: the stacks of two threads."""
KILOBYTE = 1024
"""Of `ru_maxrss` on Linux."""


def answer(script: Script) -> Answer:
    """Run the script here; how that went."""
    started_s, cpu_s = time.perf_counter(), _cpu_s()
    for path in script.inputs.values():
        if not Path(path).is_file():
            return Failed(Cause.STORE.value, f"{path} is not there on the node that runs the job; do all nodes see it?")
    if reason := no_room_under(script.memory_bytes_max):
        return _failed(Cause.MEMORY, reason)
    try:
        with _memory_limited(script.memory_bytes_max):
            run_script(script.engine, script.source, script.inputs, script.outputs)
        made = {name: _size_of(path) for name, path in script.outputs.items()}
    except (IterationsExceeded, TableMismatch) as error:
        return _failed(Cause.WORKFLOW, str(error))
    except JobFailed as error:
        cause = Cause.MEMORY if lacks_memory(error.error, error.message) else Cause.ENGINE
        return _failed(cause, error.raised, error.details)
    except (SparrowError, OSError) as error:
        return _failed(Cause.ENGINE, f"{type(error).__name__}: {error}")
    memory_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KILOBYTE
    return Made(made, time.perf_counter() - started_s, 0.0, _cpu_s() - cpu_s, memory_bytes, cold=False)


def _failed(cause: Cause, reason: str, details: str = "") -> Failed:
    return Failed(cause.value, reason[:REASON_CHARS_MAX], details[-REASON_CHARS_MAX:])


def lacks_memory(error: str, message: str) -> bool:
    """Whether an exception of this name, with this message, says that there was no memory."""
    return error in MEMORY_ERRORS or any(words in message.lower() for words in MEMORY_WORDS)


def no_room_under(bytes_max: int) -> str:
    """Why no script can run here under this limit, 0 for none; empty if one may. Earlier scripts leave memory mapped,
    and a thread that finds no memory for its first steps keeps the one that starts it waiting for ever."""
    if not bytes_max:
        return ""
    data_bytes = psutil.Process().memory_info().data
    if data_bytes + ROOM_BYTES_MIN <= bytes_max:
        return ""
    return (
        f"MemoryError: the engine's process, which is kept warm, maps {data_bytes:,} bytes already, and the job may "
        f"have {bytes_max:,}, of which a script needs {ROOM_BYTES_MIN:,} at least"
    )


def _size_of(path: str) -> MadeFile:
    size = size_of(Path(path))
    return MadeFile(size.rows, Path(path).stat().st_size, dict(size.column_bytes))


def _cpu_s() -> float:
    """CPU seconds of this process, and of those that it started and that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


@contextlib.contextmanager
def _memory_limited(bytes_max: int) -> Iterator[None]:
    """For the `with` block: this process may write to no more memory than this (RLIMIT_DATA); 0: no limit of the
    job's."""
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    lowest = min((one for one in (bytes_max, soft, hard) if one > 0), default=soft)
    if bytes_max:
        resource.setrlimit(resource.RLIMIT_DATA, (lowest, hard))
    try:
        yield
    finally:
        if bytes_max:
            resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def serve(connection: Connection, engine_name: str, cpu_s: int) -> None:
    """Answer scripts until the other end closes the connection."""
    engine = engine_of(engine_name)
    engine.check_installed()
    engine.warm_up()
    connection.send_bytes(b"")  # It is warm.
    while True:
        try:
            content = connection.recv_bytes()
        except EOFError:
            return
        script = decode_task(content)
        assert isinstance(script, Script)
        if cpu_s:
            allow_cpu(cpu_s)
        connection.send_bytes(encode(answer(script)))


def serve_engine(descriptor: int, engine: str) -> int:
    """Be the process of this engine until the executor goes away; the process's exit code."""
    os.set_inheritable(descriptor, False)  # Programs that a job starts are not to answer for it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    limits = TaskLimits.from_environment()
    limits._replace(cpu_s=0).impose()
    try:
        serve(Connection(descriptor), engine, limits.cpu_s)
    except (SparrowError, ImportError) as error:
        print(f"sparrow workflow engine {engine}: {error}", file=sys.stderr)
        return 1
    return 0
