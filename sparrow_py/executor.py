"""`SparrowExecutor`: the standard library's executor interface on a Sparrow cluster."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, wait
from typing import TYPE_CHECKING, Any, TypeVar

from sparrow_py.client import CallOptions, Client

if TYPE_CHECKING:
    from sparrow_py.cluster import LocalCluster

T = TypeVar("T")


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
        options = options or CallOptions(report_placed=True)
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
        self, fn: Callable[..., T], *iterables: Iterable[Any], timeout: float | None = None, chunksize: int = 1,
        **_: Any,
    ) -> Iterator[T]:  # fmt: skip
        """As the interface says; `chunksize` calls make one task."""
        if chunksize < 1:
            raise ValueError("chunksize must be >= 1.")
        with self._lock:
            if self._is_shut_down:
                raise RuntimeError("cannot schedule new futures after shutdown")
        return self._client.map(fn, *iterables, timeout_s=timeout, chunksize=chunksize)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls; then end, in the background if not to `wait`."""
        with self._lock:
            first, self._is_shut_down = not self._is_shut_down, True
        if first:
            if cancel_futures:
                self._client.cancel(self._client.unfinished())
            self._closer = threading.Thread(target=self._close_when_done, name="sparrow-executor-shutdown")
            self._closer.start()
        if wait and self._closer is not None and self._closer is not threading.current_thread():
            self._closer.join()

    def _close_when_done(self) -> None:
        wait(self._client.unfinished())
        self._client.close()
