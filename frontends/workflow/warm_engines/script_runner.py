"""The work of the executor of the app `workflow`: it runs scripts in processes that keep engines warm.

There is one executor per node and account, with a place for each slot. It tells its node's attributes: the engines that
are installed (`workflow.ENGINE` = version) and those that have a warm process (`workflow_warm`). It runs no code of
users itself: `engine_processes` do.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import os
import select
import signal
import stat
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from frontends.workflow.engines import engine as engine_of
from frontends.workflow.engines import installed
from frontends.workflow.errors import EngineMissing, UnknownEngine
from frontends.workflow.running.execution import Cause
from frontends.workflow.running.store import TOKEN, TOKEN_BYTES_MAX
from frontends.workflow.running.tasks import (
    APP,
    ATTRIBUTE_PREFIX,
    TASK_BYTES_MAX,
    WARM_ATTRIBUTE,
    Answer,
    Failed,
    Made,
    Probe,
    Script,
    decode_task,
    encode,
)
from frontends.workflow.warm_engines.engine_processes import EngineProcess, EngineProcesses, Kind
from sparrow_py.errors import InvalidRequest, LinkError, SparrowError
from sparrow_py.executors import executor_protocol as x
from sparrow_py.executors.executor_connection import ExecutorConnection, places_from_environment
from sparrow_py.executors.executor_files import read, store
from sparrow_py.job import TaskStatus

KILLED = "it was killed"
ERROR_CHARS_MAX = 2000
ENGINE_IDLE_S = 300.0
"""How long a process that keeps an engine warm is kept, unless the operator says otherwise."""


class WorkflowExecutor:
    """Runs what the node monitor at the other end of the connection sends, `places` at a time."""

    def __init__(self, connection: ExecutorConnection, places: int, processes: EngineProcesses) -> None:
        self._connection = connection
        self._processes = processes
        self._send_lock = threading.Lock()
        self._threads = ThreadPoolExecutor(places, thread_name_prefix="script")
        self._lock = threading.Lock()
        self._waiting: dict[int, Future[None]] = {}
        """Runs that have not started."""
        self._running: dict[int, EngineProcess | None] = {}
        """Runs that have, with their process once they have one."""
        self._killed: set[int] = set()
        self._versions = {one.name: version for one in installed() if (version := one.version()) is not None}
        self._advertised: dict[str, str] = {}
        self._woken, self._wake = os.pipe()
        """A byte wakes the loop: a process has become idle, and is to end some time."""
        os.set_blocking(self._wake, False)

    def serve(self) -> None:
        """Run tasks until the node monitor closes the connection."""
        try:
            self._advertise()
            watched: list[Any] = [self._connection, self._woken]
            while True:
                until_s = self._processes.expire()
                self._advertise()
                readable: Sequence[Any] = select.select(watched, [], [], until_s)[0]
                if self._woken in readable:
                    os.read(self._woken, select.PIPE_BUF)
                if self._connection in readable:
                    for message in self._connection.receive():
                        self._handle(message)
        except (EOFError, ConnectionError):
            self._end()

    def _end(self) -> None:
        """End all processes, and this one: results are of no use to anybody any more, and threads cannot be ended."""
        self._processes.close()
        with self._lock:
            running = [process for process in self._running.values() if process is not None]
        for process in running:
            process.end()
        os._exit(0)

    def _handle(self, message: Any) -> None:
        if isinstance(message, x.Run):
            with self._lock:
                self._waiting[message.run] = self._threads.submit(self._run_task, message)
        elif isinstance(message, x.Revoke):
            with self._lock:
                revoked = [run for run in message.runs if run in self._waiting and self._waiting[run].cancel()]
                for run in revoked:
                    del self._waiting[run]
            self._send(x.Returned(revoked))
        elif isinstance(message, x.Kill):
            self._kill(message.runs)

    def _kill(self, runs: Sequence[int]) -> None:
        with self._lock:
            self._killed.update(run for run in runs if run in self._waiting or run in self._running)
            found = [process for run in runs if (process := self._running.get(run)) is not None]
        for process in found:
            process.end()

    def _send(self, message: x.ExecutorMessage) -> None:
        with self._send_lock:
            self._connection.send([message])

    def _advertise(self) -> None:
        """Tell the engines, and which are warm, if that has changed."""
        attributes = {ATTRIBUTE_PREFIX + name: version for name, version in self._versions.items()}
        if warm := self._processes.warm():
            attributes[WARM_ATTRIBUTE] = ",".join(warm)
        with self._send_lock:
            if attributes != self._advertised:
                self._advertised = attributes
                self._connection.send([x.Attributes(attributes)])

    # ---- a run, in a thread ------------------------------------------------------------------

    def _run_task(self, run: x.Run) -> None:
        with self._lock:
            self._waiting.pop(run.run, None)
            self._running[run.run] = None
        started_at_s, started_s = time.time(), time.perf_counter()
        try:
            status, result, error, used = self._outcome(run)
        except Exception as failure:  # Else nobody would see the exception, and the run would never end.
            status, result, error, used = TaskStatus.FAILED, b"", f"{type(failure).__name__}: {failure}", None
        with self._lock:
            del self._running[run.run]
            if run.run in self._killed and status is TaskStatus.FAILED:
                result, error = b"", KILLED
            self._killed.discard(run.run)
        done = x.Done(
            run.run, status, result, error[:ERROR_CHARS_MAX], started_at_s, time.perf_counter() - started_s,
            used=used if run.measure else None,
        )  # fmt: skip
        try:
            self._advertise()
            self._send(done)
        except ConnectionError:
            self._end()

    def _outcome(self, run: x.Run) -> tuple[TaskStatus, x.Data, str, x.Used | None]:
        """Status, result, error and what was used."""
        try:
            task = decode_task(read(checked(run.payload)))
        except (InvalidRequest, OSError, LinkError) as error:
            return TaskStatus.FAILED, b"", str(error), None
        if isinstance(task, Probe):
            return TaskStatus.FINISHED, b"", "", None
        answer = self._answer(run, task)
        result = store(encode(answer), self._connection.files_directory)
        if isinstance(answer, Failed):
            return TaskStatus.FAILED, result, answer.reason, None
        return TaskStatus.FINISHED, result, "", x.Used(answer.cpu_s, answer.memory_bytes)

    def _answer(self, run: x.Run, script: Script) -> Answer:
        if reason := not_shared(script):
            return Failed(Cause.STORE.value, reason)
        try:
            engine_of(script.engine).check_installed()
        except (UnknownEngine, EngineMissing) as error:
            return Failed(Cause.UNREACHABLE.value, str(error))
        kind = Kind(run.user, script.engine, script.threads)
        started_s = time.perf_counter()
        process = self._processes.take(kind)
        cold = process is None
        if process is None:
            process = EngineProcess(kind, self._processes.path)
        try:
            if not self._is_to_run(run.run, process):
                return Failed(Cause.DIED.value, KILLED)
            if cold and (failure := process.await_warm()) is not None:
                return failure
            start_s = time.perf_counter() - started_s
            answer = process.run(script)
        finally:
            with self._lock:
                self._running[run.run] = None
            self._processes.give_back(process)
            with contextlib.suppress(BlockingIOError):  # Then it wakes in any case.
                os.write(self._wake, b"x")
        if isinstance(answer, Made):
            answer.cold, answer.start_s = cold, start_s
        return answer

    def _is_to_run(self, run: int, process: EngineProcess) -> bool:
        """Note the run's process, so that it can be killed; False if that is asked already."""
        with self._lock:
            self._running[run] = process
            killed = run in self._killed
        if killed:
            process.end()
        return not killed


def checked(payload: x.Data) -> x.Data:
    """The payload, unless it is larger than any task: the executor, which decodes it, is there for all users."""
    size = payload.size if isinstance(payload, x.File) else len(payload)
    if size > TASK_BYTES_MAX:
        raise InvalidRequest("payload", f"{size:,} bytes", f"at most {TASK_BYTES_MAX:,}")
    return payload


def not_shared(script: Script) -> str:
    """Why the store cannot be used here; empty if it can."""
    path = str(Path(script.store, TOKEN))
    where = f"store {script.store} is not shared with node {os.uname().nodename}"
    advice = "name a directory that all nodes and this command see with --store or SPARROW_WORKFLOW_STORE"
    try:
        token = _token(path)
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have.
        return f"{where}: {getattr(error, 'strerror', None) or error}; {advice}"
    if token != script.token:
        return f"{where}, which has another directory of that name; {advice}"
    return ""


def _token(path: str) -> str:
    """The text of the file. The path is a user's, so it may be a pipe, a link or without end: these are refused."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, f"{TOKEN} is no file")
        return os.read(descriptor, TOKEN_BYTES_MAX + 1).decode("utf-8", errors="replace")
    finally:
        os.close(descriptor)


def serve(arguments: Sequence[str]) -> int:
    """Be an executor with these arguments until the node monitor goes away; the process's exit code."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parser = argparse.ArgumentParser(prog="frontends.workflow.executor")
    parser.add_argument("--engine-idle-s", type=float, default=ENGINE_IDLE_S, metavar="SECONDS")
    parser.add_argument("--path", action="append", default=[], metavar="DIR")
    given = parser.parse_args(arguments)
    try:
        places = places_from_environment()
        connection = ExecutorConnection.from_environment(APP, places=places)
    except (SparrowError, OSError) as error:
        print(f"sparrow workflow executor: {error}", file=sys.stderr)
        return 1
    processes = EngineProcesses(given.engine_idle_s, idle_max=2 * places, path=given.path)
    WorkflowExecutor(connection, places, processes).serve()
    return 0
