"""`SparrowExecutor`: the standard library's executor interface on a Sparrow cluster."""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401  # The interpreter's end comes to us before it comes to this.
import contextlib
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

from sparrow_py.call_jobs import CallOptions
from sparrow_py.calls import APP
from sparrow_py.client import Client
from sparrow_py.cluster_nodes import ready_slots
from sparrow_py.counted import counted
from sparrow_py.errors import NoScheduler, SparrowError
from sparrow_py.futures.late_condition import all_ended
from sparrow_py.futures.task_future import TaskFuture
from sparrow_py.processes.process_bound import StaysHere

if TYPE_CHECKING:
    from sparrow_py.cluster import LocalCluster

T = TypeVar("T")
log = logging.getLogger("sparrow.executor")
SUBMIT_TIMEOUT_S = 86400.0
MAP_CALLS_MAX = 1 << 24
"""Calls that a `map` without buffersize takes from its iterables at once."""
WORKERS_FRESH_S = 1.0
"""The number of workers is asked for so often at most."""
EXIT_PATIENCE_S = 60.0
"""For so long the interpreter's end waits for a scheduler, if none can be reached."""
EXIT_LOOK_S = 0.5
"""How often it looks whether one can."""


class SparrowExecutor(StaysHere, Executor):
    """A `concurrent.futures.Executor`, with all that interface promises.

    With no address, neither here nor in SPARROW_SCHEDULER, it starts an embedded cluster of this machine's cores, and
    ends it at shutdown. One that is dropped, or left when the interpreter ends, shuts down as a process pool does:
    what was submitted is finished.

    schedulers: as of `Client`.
    options: how calls are run.
    client_options: the other parameters of `Client`.
    """

    def __init__(
        self,
        schedulers: str | Sequence[str] | LocalCluster | None = None,
        *,
        options: CallOptions | None = None,
        **client_options: Any,
    ) -> None:
        # A pool's queue has no end: what schedulers refuse for now is offered again, for a day.
        client_options.setdefault("submit_timeout_s", SUBMIT_TIMEOUT_S)
        self._client = Client(schedulers, options=options, **client_options)
        self._workers = 0
        self._workers_until_s = float("-inf")
        self._end = _End(self._client)
        weakref.finalize(self, self._end.begin).atexit = False

    def __repr__(self) -> str:
        return f"<SparrowExecutor of {self._client.described()}>"

    @property
    def _max_workers(self) -> int:
        """Calls that run at a time, which libraries read of executors (Dask and joblib do): the slots of the nodes that
        are ready. They are asked for when this is read, at most once a second; 1 before the first answer."""
        if time.monotonic() >= self._workers_until_s:
            with contextlib.suppress(SparrowError, RuntimeError):  # None answers, or it is shut down: as it was.
                self._workers = ready_slots(self._client.nodes(), APP)
                self._workers_until_s = time.monotonic() + WORKERS_FRESH_S
        return self._workers or 1

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Schedule `fn(*args, **kwargs)`; `RuntimeError` after shutdown, and when the interpreter ends."""
        return self._client.submit(fn, *args, **kwargs)

    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
        buffersize: int | None = None,
    ) -> Iterator[T]:
        """The results of `fn` over the iterables, as the interface says; `chunksize` calls make one task.
        `TimeoutError` where a result is not there `timeout` seconds after this call.

        The iterables are collected at once, unless `buffersize` says how many results may be
        waiting for whoever iterates (as in Python 3.14).
        """
        if chunksize < 1:
            raise ValueError("chunksize must be >= 1.")
        if buffersize is not None and buffersize < 1:
            raise ValueError("buffersize must be None or > 0")
        results = self._client.map(
            fn, *iterables, timeout_s=timeout, chunksize=chunksize, window=buffersize or MAP_CALLS_MAX
        )
        return results if buffersize is None else self._held_for(results)

    def _held_for(self, results: Iterator[T]) -> Iterator[T]:
        """The results; as long as somebody has this iterator, the executor takes calls."""
        yield from results

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls; with `cancel_futures` cancel those that have not started; then end, in the background if
        not to `wait`."""
        self._client.take_no_more("cannot schedule new futures after shutdown")
        if cancel_futures:
            self._client.cancel_unfinished()
        self._end.begin()
        # A callback cannot wait for what waits for it.
        if wait and not self._client.runs_here():
            self._end.join()


class _End(threading.Thread):
    """The end of an executor: waits until it is begun, then for all that was submitted, and closes the client.

    A thread of its own, as a callback may shut the executor down and must not wait for itself; made with the executor,
    as none can be started when the interpreter ends (since Python 3.12), nor where garbage is collected.
    """

    def __init__(self, client: Client) -> None:
        super().__init__(name="sparrow-executor-shutdown", daemon=True)
        self._client = client
        self._begun: SimpleQueue[None] = SimpleQueue()  # Which a finalizer may put to, whatever it interrupts.
        self.start()
        _ends.add(self)
        if _exiting:
            self.begin_at_exit()

    def run(self) -> None:
        """The thread's work."""
        self._begun.get()
        all_ended(self._unfinished())
        self._client.close()
        _ends.discard(self)

    def _unfinished(self) -> list[TaskFuture]:
        """The futures that are not done: an executor makes no actors."""
        return [future for future in self._client.unfinished() if isinstance(future, TaskFuture)]

    def begin(self) -> None:
        """Nothing more will be submitted."""
        self._begun.put(None)

    def begin_at_exit(self) -> None:
        """The interpreter ends."""
        self._client.take_no_more("cannot schedule new futures after interpreter shutdown")
        self.begin()

    def finish_at_exit(self) -> None:
        """Wait until all is done, unless no scheduler can be reached for so long that none will."""
        while self.is_alive():
            self.join(EXIT_LOOK_S)
            if self._client.cut_off_s() > EXIT_PATIENCE_S and (left := self._unfinished()):
                reason = f"the interpreter ends, and no scheduler could be reached for {EXIT_PATIENCE_S:g} s"
                log.warning("%s given up: %s", counted(len(left), "call", "are"), reason)
                for future in left:
                    future.refuse(NoScheduler(reason))


_ends: set[_End] = set()
"""The ends of the executors that have not ended."""
_exiting = False
"""Whether the interpreter ends."""


def _finish_at_exit() -> None:
    """Before the interpreter ends: finish what was submitted, as the standard library's executors do."""
    global _exiting  # noqa: PLW0603
    _exiting = True
    ends = list(_ends)
    for end in ends:
        end.begin_at_exit()
    for end in ends:
        end.finish_at_exit()


try:
    threading._register_atexit(_finish_at_exit)  # type: ignore[attr-defined]  # As the library's own executors do.
except RuntimeError:  # This was imported too late.
    _exiting = True
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_ends.clear)  # A child has none of the threads.
