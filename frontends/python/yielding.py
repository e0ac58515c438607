"""How a task of the Python executor learns that it is to yield its slot (`sparrow_py.should_yield`).

While a task runs nobody reads the executor's connection. So whoever asks reads it: the task's own thread, or another
that it has started; one at a time, and none once the task has ended. A task that does not ask costs nothing for this.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable
from typing import Any

from sparrow_py.executors import executor_protocol as x
from sparrow_py.executors.executor_connection import ExecutorConnection

LOOK_EVERY_S = 0.001
"""A task that does not wait has the connection looked at once in so long, however often it asks."""
SLICE_S = 0.05
"""A thread that waits looks so often whether another has heard it, or the task has ended."""


class Yields:
    """What the node monitor has said of yielding, and who may ask it (`sparrow_py.task_context.YieldRequests`).

    handle: takes whatever else the node monitor has sent.
    """

    def __init__(self, connection: ExecutorConnection, handle: Callable[[Any], None]) -> None:
        self._connection = connection
        self._handle = handle
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._run: int | None = None
        self._asked: int | None = None
        """The run that was last to yield."""
        self._deadline_s = 0.0
        """By when it was to end."""
        self._looked_s = 0.0
        self.is_orphaned = False
        """Whether a task has found the node monitor gone. It is to end then, as if it were to yield."""
        self._watched = False
        """Whether somebody has asked since the run began."""

    # ---- the executor ------------------------------------------------------------------------

    def begin(self, run: int) -> None:
        """The run begins."""
        self._run = run

    def end(self) -> None:
        """The run has ended: from now on only the executor reads the connection."""
        self._run = None  # Before `_watched` is looked at: a thread looks at both in the other order.
        if self._watched:
            with self._lock:
                self._watched = False

    def ask(self, message: x.Yield) -> None:
        """The node monitor wants this run to yield."""
        self._asked, self._deadline_s = message.run, time.monotonic() + message.within_s

    # ---- the task ----------------------------------------------------------------------------

    def asked(self, timeout_s: float | None) -> bool:
        """Whether the run is to yield; wait for that so long, with None as long as it lasts."""
        run = self._run
        if run is None or os.getpid() != self._process:  # A task may have forked.
            return False
        now_s = time.monotonic()
        if timeout_s == 0 and now_s < self._looked_s + LOOK_EVERY_S:
            return self._asked == run
        end_s = None if timeout_s is None else now_s + timeout_s
        poll = None
        while not self._hear(run):
            now_s = time.monotonic()
            left_s = SLICE_S if end_s is None else min(SLICE_S, end_s - now_s)
            if left_s <= 0 or self._run != run:
                return False
            if poll is None:
                poll = select.poll()
                poll.register(self._connection.fileno(), select.POLLIN)
            poll.poll(left_s * 1000)
        return True

    def left_s(self) -> float | None:
        """How long the run has to end, if it is to yield."""
        return max(0.0, self._deadline_s - time.monotonic()) if self.asked(0) else None

    def hear_until(self, happened: Callable[[], bool]) -> None:
        """Read what the node monitor says until it has happened: for the task's own thread. `EOFError` if the node
        monitor is gone."""
        poll = select.poll()
        poll.register(self._connection.fileno(), select.POLLIN)
        while not happened():
            poll.poll(SLICE_S * 1000)  # No longer, as another thread of the task may hear it.
            with self._lock:
                self._watched = True
                for message in self._connection.receive(wait=False) if not happened() else ():
                    self._handle(message)

    def _hear(self, run: int) -> bool:
        """Read what there is, unless the run has ended; whether it is to yield."""
        with self._lock:
            self._watched = True
            if self._run != run:
                self._watched = False
                return False
            self._looked_s = time.monotonic()
            if self._asked == run:
                return True
            try:
                for message in self._connection.receive(wait=False):
                    self._handle(message)
            except (EOFError, OSError):  # The node monitor is gone, and this process is about to end.
                self.is_orphaned, self._asked, self._deadline_s = True, run, self._looked_s
            return self._asked == run
