"""`SparrowExecutor`: the standard library's executor interface on a Sparrow cluster."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, wait
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from sparrow_py.call_jobs import CallOptions
from sparrow_py.client import Client

if TYPE_CHECKING:
    from sparrow_py.cluster import LocalCluster

T = TypeVar("T")
SUBMIT_TIMEOUT_S = 86400.0
MAP_CALLS_MAX = 1 << 24
"""Calls that a `map` without buffersize takes from its iterables at once."""


class SparrowExecutor(Executor):
    """A `concurrent.futures.Executor`, with all that interface promises.

    With no address it starts an embedded cluster of this machine's cores, and ends it at shutdown.
    """

    def __init__(
        self,
        schedulers: str | Sequence[str] | LocalCluster | None = None,
        *,
        options: CallOptions | None = None,
        **client_options: Any,
    ) -> None:
        # `Future.running()` must tell the truth, so schedulers are asked to say when a task is placed.
        options = replace(options or CallOptions(), report_placed=True)
        # A pool's queue has no end: what schedulers refuse for now is offered again, for a day.
        client_options.setdefault("submit_timeout_s", SUBMIT_TIMEOUT_S)
        self._client = Client(schedulers, options=options, **client_options)
        self._lock = threading.Lock()
        self._is_shut_down = False
        self._closer: threading.Thread | None = None

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Schedule `fn(*args, **kwargs)`; `RuntimeError` after shutdown."""
        with self._lock:
            if self._is_shut_down:
                raise RuntimeError("cannot schedule new futures after shutdown")
            return self._client.submit(fn, *args, **kwargs)

    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
        buffersize: int | None = None,
    ) -> Iterator[T]:
        """As the interface says; `chunksize` calls make one task.

        The iterables are collected at once, unless `buffersize` says how many results may be
        waiting for whoever iterates (as in Python 3.14).
        """
        if chunksize < 1:
            raise ValueError("chunksize must be >= 1.")
        if buffersize is not None and buffersize < 1:
            raise ValueError("buffersize must be None or > 0")
        with self._lock:
            if self._is_shut_down:
                raise RuntimeError("cannot schedule new futures after shutdown")
        return self._client.map(
            fn, *iterables, timeout_s=timeout, chunksize=chunksize, window=buffersize or MAP_CALLS_MAX
        )

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls; then end, in the background if not to `wait`."""
        with self._lock:
            first, self._is_shut_down = not self._is_shut_down, True
            if first:
                # In a thread of its own, as a future's callback may call this, and it must not wait for itself.
                self._closer = threading.Thread(
                    target=self._close, args=(cancel_futures,), name="sparrow-executor-shutdown"
                )
                self._closer.start()
        # A callback cannot wait for what waits for it.
        if wait and self._closer is not None and not self._client.runs_here():
            self._closer.join()

    def _close(self, cancel_futures: bool) -> None:
        if cancel_futures:
            self._client.cancel(self._client.unfinished())
        wait(self._client.unfinished())
        self._client.close()
