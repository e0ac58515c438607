"""How a task of the Python executor submits tasks of its own, and gives its slot back while it waits for them.

While a task runs nobody reads the executor's connection. So the task's own thread does, when it waits: it says so, and
waits only once it has been told that it may; and it goes on only once it has been told that it has a slot again. So its
node monitor knows at every moment who has the slot.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from typing import TypeVar

from frontends.python.yielding import Yields
from sparrow_py.errors import NotInTask, WaitRefused
from sparrow_py.executors import executor_protocol as x
from sparrow_py.executors.executor_connection import ExecutorConnection
from sparrow_py.task_context import Closable

T = TypeVar("T")
NO_TASK = "no task runs in this process now"


class NestedTask:
    """The task that runs (`sparrow_py.task_context.RunningTask`).

    ended: what the executor has yet to tell the node monitor, which may not wait as long as the task does.
    """

    def __init__(self, connection: ExecutorConnection, yields: Yields, ended: list[x.ExecutorMessage]) -> None:
        self._connection = connection
        self._yields = yields
        self._ended = ended
        self._run: int | None = None
        self._key = b""
        self._thread = 0
        """The one that runs the task."""
        self._process = os.getpid()
        self._lock = threading.Lock()
        """Held while a client is made, or looked for."""
        self._client: Closable | None = None
        self._has_slot = True
        self._answer: x.MayWait | None = None
        self.files_directory = connection.files_directory

    # ---- the executor ------------------------------------------------------------------------

    def begin(self, run: int, key: bytes = b"") -> None:
        """The run begins, in this thread. key: that of its clients."""
        self._run = run
        self._key = key
        self._thread = threading.get_ident()

    def end(self) -> None:
        """The run has ended, and its client with it."""
        self._run = None
        client, self._client = self._client, None
        if client is not None:
            with contextlib.suppress(Exception):  # Whatever it is, the task has ended.
                client.close()

    def heard(self, message: x.MayWait | x.HasSlot) -> None:
        """The node monitor has answered."""
        if isinstance(message, x.HasSlot):
            self._has_slot = True
        else:
            self._answer = message
            self._has_slot = bool(message.why_not)

    # ---- the task ----------------------------------------------------------------------------

    @property
    def socket_path(self) -> str:
        """Where the node monitor listens."""
        return self._connection.path

    @property
    def run(self) -> int:
        """What it is called between its executor and the node monitor; `NotInTask` if no task runs."""
        run = self._run
        if run is None or os.getpid() != self._process:
            raise NotInTask(NO_TASK)
        return run

    @property
    def client_key(self) -> bytes:
        """See `RunningTask`."""
        return self._key

    def client(self, make: Callable[[], Closable]) -> Closable:
        """See `RunningTask`."""
        run = self.run
        with self._lock:
            if self._client is None or self._client.closed:
                client = make()
                if self._run != run:  # The task has ended meanwhile, and this is a thread that it has left.
                    client.close()
                    raise NotInTask(NO_TASK)
                self._client = client
            return self._client

    def without_slot(self, wait: Callable[[], T]) -> T:
        """See `RunningTask`."""
        run = self._run
        if run is None or threading.get_ident() != self._thread or not self._has_slot or os.getpid() != self._process:
            return wait()
        try:
            self._give_back(run)
            return wait()
        finally:
            if not self._has_slot:
                self._take_back(run)

    def _give_back(self, run: int) -> None:
        self._answer = None
        interrupted = self._connection.send_through([*self._ended, x.Waits(run)])
        self._ended.clear()
        interrupted = self._hear(lambda: self._answer is not None) or interrupted
        answer = self._answer
        assert answer is not None
        if self._ended:  # Runs were asked back before the answer.
            interrupted = self._connection.send_through(self._ended) or interrupted
            self._ended.clear()
        if answer.why_not:
            raise interrupted or WaitRefused(f"the task may not wait for tasks of its own: {answer.why_not}")
        if interrupted is not None:
            raise interrupted

    def _take_back(self, run: int) -> None:
        interrupted = self._connection.send_through([x.WantsSlot(run)])
        interrupted = self._hear(lambda: self._has_slot) or interrupted
        if interrupted is not None:
            raise interrupted

    def _hear(self, happened: Callable[[], bool]) -> BaseException | None:
        """Wait until the node monitor has said it, whatever a handler of a signal raises meanwhile; that is returned.
        `EOFError` if the node monitor is gone, and this process is about to end."""
        interrupted: BaseException | None = None
        while not happened():
            try:
                self._yields.hear_until(happened)
            except BaseException as error:
                if isinstance(error, EOFError | OSError) and self._connection.is_gone():  # Handlers raise such, too.
                    raise
                interrupted = error
        return interrupted
