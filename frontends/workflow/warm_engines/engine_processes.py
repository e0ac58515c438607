"""The processes of an executor that keep engines warm: one is taken for a job and given back afterwards.

A process is for one user, engine and number of threads, and runs one job at a time: two jobs at once have two. It is
kept for `idle_s` after its last job; of those that are idle the oldest goes when there are more than `idle_max`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait

from frontends.workflow.engines import engine as engine_of
from frontends.workflow.running.execution import Cause
from frontends.workflow.running.tasks import Answer, Failed, Script, decode_answer, encode
from sparrow_py import start
from sparrow_py.errors import LinkError
from sparrow_py.wire.addresses import SCHEDULERS_VARIABLE

MODULE = "frontends.workflow.warm_engines.engine_process"
NO_USER_SITE = ("-s",)
"""As with other processes of ours: packages of the account, which tasks may write to, must not decide what runs."""
END_TIMEOUT_S = 10.0
ANSWER_BYTES_MAX = 16 << 20
"""Of what a process answers: code of users runs there, and the executor is there for all users."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What tells processes apart that are not for the same jobs."""

    user: str
    engine: str
    threads: int


class EngineProcess:
    """A process that has just been started; `OSError` if it cannot be.

    path: where else its interpreter looks for modules. has_schedulers: whether jobs may use the cluster that the
    environment names: not on a node of that cluster, where a job may wait for the slot that it holds.
    """

    def __init__(self, kind: Kind, path: Sequence[str] = (), *, has_schedulers: bool = False) -> None:
        self.kind = kind
        self.used_at_s = 0.0
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                self._process = subprocess.Popen(
                    start.command(MODULE, str(theirs.fileno()), kind.engine, path=path, flags=NO_USER_SITE),
                    env=_environment(kind, has_schedulers=has_schedulers),
                    stdin=subprocess.DEVNULL,
                    stdout=2,  # What jobs print goes to the node's log.
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
        except BaseException:
            ours.close()
            raise
        self._connection = Connection(ours.detach())
        self._end_seen = os.pidfd_open(self._process.pid)
        """Readable once the process has ended: what it started may hold its end of the connection open."""

    @property
    def pid(self) -> int:
        return self._process.pid

    def await_warm(self) -> Failed | None:
        """Return once the engine is imported; a failure if the process ended instead."""
        try:
            self._received()
        except (EOFError, OSError):
            return self._ended("did not start")
        return None

    def _received(self) -> bytes:
        """What the process says next; `EOFError` if it has ended, `OSError` if that is too long."""
        wait((self._connection, self._end_seen))
        if not self._connection.poll():
            raise EOFError
        return self._connection.recv_bytes(ANSWER_BYTES_MAX)

    def run(self, script: Script) -> Answer:
        """Run the script; if the process ends meanwhile, that is the answer."""
        try:
            self._connection.send_bytes(encode(script))
            return decode_answer(self._received())
        except (EOFError, OSError):
            return self._ended("ended", limited=script.memory_bytes_max > 0)
        except LinkError as error:
            self.end()
            return Failed(Cause.DIED.value, str(error))

    def _ended(self, what: str, *, limited: bool = False) -> Failed:
        self.end()
        code = self._process.returncode
        how = f"exit code {code}" if code >= 0 else f"signal {-code}"
        if code < 0:
            with contextlib.suppress(ValueError):
                how += f" ({signal.Signals(-code).name})"
        aborted = limited and code in (-signal.SIGABRT, -signal.SIGSEGV)  # So do allocators that get no memory.
        reason = f"the process of the engine {self.kind.engine} {what}: {how}"
        return Failed((Cause.MEMORY if aborted else Cause.DIED).value, reason + ("; out of memory?" if aborted else ""))

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def end(self) -> None:
        """Kill the process, and what it started that is still in its group; wait for its end."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(END_TIMEOUT_S)

    def close(self) -> None:
        """End the process and let go of its connection."""
        self.end()
        self._connection.close()
        os.close(self._end_seen)


def _environment(kind: Kind, *, has_schedulers: bool) -> dict[str, str]:
    ours = {name: value for name, value in os.environ.items() if has_schedulers or name != SCHEDULERS_VARIABLE}
    return {**ours, **engine_of(kind.engine).environment(kind.threads)}


@dataclass
class EngineProcesses:
    """Thread-safe. path: where else their interpreter looks for modules."""

    idle_s: float
    idle_max: int
    path: Sequence[str] = ()
    _idle: list[EngineProcess] = field(default_factory=list)
    """Those used last come last."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, kind: Kind) -> EngineProcess | None:
        """A warm process of this kind, for the caller alone; None if there is none."""
        with self._lock:
            for process in reversed(self._idle):
                if process.kind == kind:
                    self._idle.remove(process)
                    if process.alive:
                        return process
                    process.close()
                    break
        return None

    def give_back(self, process: EngineProcess) -> None:
        """Keep it warm, if it is alive."""
        if not process.alive:
            process.close()
            return
        process.used_at_s = time.monotonic()
        with self._lock:
            self._idle.append(process)
            surplus = self._idle[: max(0, len(self._idle) - self.idle_max)]
            del self._idle[: len(surplus)]
        for one in surplus:
            one.close()

    def expire(self) -> float | None:
        """End those that were idle for too long, or have ended; in how many seconds the next one will be."""
        now_s = time.monotonic()
        with self._lock:
            gone = [one for one in self._idle if not one.alive or now_s - one.used_at_s >= self.idle_s]
            self._idle = [one for one in self._idle if one not in gone]
            following = min((one.used_at_s + self.idle_s - now_s for one in self._idle), default=None)
        for one in gone:
            one.close()
        return following

    def warm(self) -> list[str]:
        """The engines that have an idle process."""
        with self._lock:
            return sorted({one.kind.engine for one in self._idle})

    def close(self) -> None:
        """End all that are idle."""
        with self._lock:
            idle, self._idle = self._idle, []
        for one in idle:
            one.close()
