"""The spin executor: `python -m frontends.synthetic.spin_executor`, started by a node monitor.

One place. A task multiplies floating-point numbers until its thread has used the CPU time asked
for: what the task costs is the same on an idle and on a busy machine, how long it takes is not.
"""

from __future__ import annotations

import signal
import sys
import time
from collections import deque

from frontends.synthetic.tasks import SPIN_APP, decode_duration
from sparrow_py.errors import InvalidRequest, SparrowError
from sparrow_py.executors.executor_connection import ExecutorConnection
from sparrow_py.executors.executor_files import read
from sparrow_py.executors.executor_protocol import SOCKET_VARIABLE, Done, Returned, Revoke, Run, Yield
from sparrow_py.job import TaskStatus

MULTIPLICATIONS = 1_000
"""Between two looks at the clock: some 40 µs, which is about how much too long a spin may last."""
SLICE_S = 0.05
"""CPU seconds between two looks at the connection: are runs revoked or to yield, or is the node monitor gone?"""


def spin(deadline_s: float) -> None:
    """Multiply until this thread's CPU time reaches `deadline_s`."""
    while time.thread_time() < deadline_s:
        product = 1.0
        for _ in range(MULTIPLICATIONS):
            product *= 1.000001


class SpinExecutor:
    """Runs what the connection brings, one by one, in order."""

    def __init__(self, connection: ExecutorConnection) -> None:
        self._connection = connection
        self._queue: deque[Run] = deque()
        self._to_yield = 0
        """The run that was last to yield."""

    def serve(self) -> None:
        """Run until the node monitor goes away, which is an `EOFError` or `ConnectionError`."""
        while True:
            self._receive(wait=not self._queue)
            if self._queue:
                self._connection.send([self._run_spin(self._queue.popleft())])

    def _receive(self, *, wait: bool) -> None:
        for message in self._connection.receive(wait=wait):
            if isinstance(message, Run):
                self._queue.append(message)
            elif isinstance(message, Revoke):
                self._revoke(set(message.runs))
            elif isinstance(message, Yield):
                self._to_yield = message.run

    def _revoke(self, revoked: set[int]) -> None:
        returned = [run.run for run in self._queue if run.run in revoked]
        self._queue = deque(run for run in self._queue if run.run not in revoked)
        self._connection.send([Returned(returned)])

    def _run_spin(self, run: Run) -> Done:
        started_at_s, started_s = time.time(), time.monotonic()
        status, error = TaskStatus.FINISHED, ""
        try:
            self._spin(run.run, decode_duration(read(run.payload)))
        except (InvalidRequest, OSError) as invalid:
            status, error = TaskStatus.FAILED, str(invalid)
        return Done(run.run, status, b"", error, started_at_s, time.monotonic() - started_s)

    def _spin(self, run: int, duration_s: float) -> None:
        now_s = time.thread_time()
        deadline_s = now_s + duration_s
        while now_s < deadline_s and self._to_yield != run:
            spin(min(deadline_s, now_s + SLICE_S))
            self._receive(wait=False)
            now_s = time.thread_time()


def main() -> int:
    """Run until the node monitor goes away; the process's exit code."""
    # Ctrl-C reaches the terminal's whole process group; it is the node monitor's to act on.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        SpinExecutor(ExecutorConnection.from_environment(SPIN_APP)).serve()
    except (EOFError, ConnectionResetError, BrokenPipeError):
        return 0
    except KeyError:
        print(f"sparrow spin executor: {SOCKET_VARIABLE} is not set; a node monitor sets it", file=sys.stderr)
    except (SparrowError, OSError) as error:
        print(f"sparrow spin executor: {error}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
