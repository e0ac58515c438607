"""The thread of a client, with an event loop, which other threads ask to do what has to be done there."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

from sparrow_py.processes import process_bound
from sparrow_py.session.event_loop import new_event_loop

T = TypeVar("T")
CLOSED = "the client is closed"


class LoopThread:
    """A loop that runs in a thread of its own until it is closed. All methods are for any thread."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        """With it held the thread is not closed: what is put on the loop under it comes before the end. Reentrant: a
        finalizer may cancel tasks, and the collector may call it wherever the lock's holder makes an object."""
        self.closed = False
        self.why_closed = CLOSED
        """What whoever asks a closed one is told."""
        self.loop = new_event_loop()
        self._ending: asyncio.Task[None] | None = None
        self._failure: Exception | None = None
        """What the end has raised."""
        self._runs = threading.Lock()
        """Held until the thread is at its end. Whoever is interrupted while it joins a thread takes that for ended."""
        self._runs.acquire()
        self._thread = threading.Thread(target=self._serve, name="sparrow-client", daemon=True)
        self._thread.start()

    def is_alive(self) -> bool:
        """Whether the thread has not ended."""
        return self._runs.locked()

    def runs_here(self) -> bool:
        """Whether the caller is this thread."""
        return threading.current_thread() is self._thread

    def check_not_here(self) -> None:
        """`RuntimeError` in this thread, which would wait for itself."""
        if self.runs_here():
            raise RuntimeError("this would wait for itself: done-callbacks run on the client's own loop")

    def call_soon(self, action: Callable[[], object]) -> None:
        """Do it on the loop; `RuntimeError` if that is closed."""
        with self.lock:
            if self.closed:
                raise RuntimeError(self.why_closed)
            self.loop.call_soon_threadsafe(action)

    def run(
        self, start: Callable[[], Coroutine[Any, Any, T]], wait: Callable[[Future[T]], T] = lambda done: done.result()
    ) -> T:
        """Do it on the loop, and wait for it; `RuntimeError` if the loop is closed, or is meanwhile. `wait`: how."""
        self.check_not_here()
        with self.lock:
            if self.closed:
                raise RuntimeError(self.why_closed)
            running = self.begin(start())
        try:
            return wait(running)
        except CancelledError:
            raise RuntimeError("the client was closed meanwhile") from None

    def begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Do it on the loop, with the lock held."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def close(self, end: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Take nothing more, do `end` on the loop, and end the thread. Whoever is interrupted meanwhile may close it
        again, and waits for the same end; it is done once."""
        self.check_not_here()
        with self.lock:
            self.closed = True
            if self.is_alive():
                with contextlib.suppress(RuntimeError):  # The loop has ended already.
                    self.loop.call_soon_threadsafe(self._begin_end, end)
        self._join()
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """End the thread as it is."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._join()

    def _join(self) -> None:
        with self._runs:
            pass
        if self._thread.is_alive():  # It need not have been started: in a child.
            self._thread.join()

    def _begin_end(self, end: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if self._ending is None:
            self._ending = self.loop.create_task(self._end(end))

    async def _end(self, end: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await end()
        except Exception as error:
            self._failure = error
        finally:
            self.loop.stop()

    def _serve(self) -> None:
        try:
            self.loop.run_forever()
            # Who waits for something else of the loop must not wait for ever.
            tasks = asyncio.all_tasks(self.loop)
            for task in tasks:
                task.cancel()
            if tasks:
                self.loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            self.loop.close()
        finally:
            self._runs.release()

    def forked(self, why_closed: str) -> bool:
        """In a child of the process, where this thread does not run: it is closed there, for this reason. False if it
        was closed before."""
        self.lock, self._runs = threading.RLock(), threading.Lock()
        if self.closed:
            return False
        self.closed = True
        self.why_closed = why_closed
        self._thread = threading.Thread()  # None runs here.
        process_bound.let_go([process_bound.descriptor_of(self.loop)])
        return True
