"""Batches of calls of `joblib.Parallel` that are in flight, and the thread that tells joblib of their ends.

joblib sends its next batch from the callback of one that has ended, with a lock of its own held that the program's
thread takes, too. On the client's loop that could wait for ever: the program's thread may wait for the loop meanwhile.
So callbacks have a thread of their own.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any

from sparrow_py.futures.interrupts import cancel_soon
from sparrow_py.futures.task_future import TaskFuture

log = logging.getLogger("sparrow.joblib")
Callback = Callable[[Any], object]


class Batches:
    """See the module's docstring.

    send: makes a future of a batch; what it raises is the batch's own error. given_up: whether nobody wants the batch
    with this callback any more. in_flight_max: batches that are sent at a time; further ones wait here.
    """

    def __init__(
        self, send: Callable[[Any], Future[Any]], given_up: Callable[[Callback], bool], in_flight_max: int
    ) -> None:
        self._send = send
        self._given_up = given_up
        self._in_flight_max = in_flight_max
        self._lock = threading.Lock()
        self._waiting: deque[tuple[Any, Callback]] = deque()
        self._in_flight: dict[Future[Any], Callback] = {}
        self._sending = 0
        """Batches that are being sent."""
        self._ended: SimpleQueue[tuple[Future[Any], Callback] | None] = SimpleQueue()
        threading.Thread(target=self._tell, name="sparrow-joblib", daemon=True).start()

    def submit(self, batch: Any, callback: Callback) -> None:
        """Send the batch, now or when others have ended. `callback` is called with its future, on our thread."""
        with self._lock:
            self._waiting.append((batch, callback))
        self._send_waiting()

    def stop_given_up(self) -> None:
        """Stop what nobody wants any more, without waiting until it is, and drop what of it waits."""
        with self._lock:
            self._waiting = deque(
                (batch, callback) for batch, callback in self._waiting if not self._given_up(callback)
            )
            futures = [future for future, callback in self._in_flight.items() if self._given_up(callback)]
        cancel_soon([future for future in futures if isinstance(future, TaskFuture)], running=True)

    def close(self) -> None:
        """No more will be submitted: end the thread once it has told of what has ended."""
        self._ended.put(None)

    def _send_waiting(self) -> None:
        """Send as many as may be in flight."""
        while True:
            with self._lock:
                if not self._waiting or len(self._in_flight) + self._sending >= self._in_flight_max:
                    return
                batch, callback = self._waiting.popleft()
                self._sending += 1
            future = self._sent(batch)
            with self._lock:
                self._sending -= 1
                self._in_flight[future] = callback
            if self._given_up(callback):  # Meanwhile: who has stopped the others did not find this one.
                self.stop_given_up()
            self._tell_of(future, callback)

    def _tell_of(self, future: Future[Any], callback: Callback) -> None:
        future.add_done_callback(lambda future: self._ended.put((future, callback)))

    def _sent(self, batch: Any) -> Future[Any]:
        try:
            return self._send(batch)
        except Exception as error:  # joblib raises it where the results are awaited.
            failed: Future[Any] = Future()
            failed.set_exception(error)
            return failed

    def _tell(self) -> None:
        """The thread's work."""
        while (ended := self._ended.get()) is not None:
            future, callback = ended
            with self._lock:
                self._in_flight.pop(future, None)
            self._send_waiting()
            try:
                callback(future)
            except Exception:
                log.exception("joblib's callback of a batch failed")
