"""Dask distributed: its `LocalCluster`, with the scheduler in the program's process, as is its default."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import Any

from benchmarks.peers.peer import Library
from benchmarks.peers.tasks import nap

PROCESSES_MAX = 8
"""With more slots than these workers are two processes with threads, as tasks then only sleep."""


class Dask(Library):
    """Workers are processes under nannies."""

    name = "dask"
    packages = ("distributed", "dask")
    futures_as_arguments = True
    scheduler = "dask"

    def start(self, slots: int) -> None:
        """Without its dashboard."""
        import distributed

        workers = slots if slots <= PROCESSES_MAX else 2
        shape: dict[str, Any] = {"n_workers": workers, "threads_per_worker": slots // workers}
        self._stack = ExitStack()
        cluster = self._stack.enter_context(
            distributed.LocalCluster(**shape, dashboard_address=None, silence_logs=logging.ERROR)
        )
        self._client = self._stack.enter_context(distributed.Client(cluster, set_as_default=False))

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Not known by its arguments: each call is a task."""
        return self._client.submit(function, *arguments, pure=False)

    def gather(self, futures: Sequence[Any]) -> list[Any]:
        """The client's own."""
        return list(self._client.gather(list(futures)))

    def map(self, function: Callable[[Any], Any], values: Iterable[Any]) -> list[Any]:
        """The client's own."""
        return self.gather(self._client.map(function, list(values), pure=False))

    def put(self, value: Any) -> Any:
        """To all workers."""
        return self._client.scatter(value, broadcast=True, hash=False)

    def job(self, duration_s: float, tasks: int, done: Callable[[], None]) -> None:
        """One `map`."""
        for future in self._client.map(nap, [duration_s] * tasks, list(range(tasks)), pure=False):
            future.add_done_callback(lambda _: done())

    def stop(self) -> None:
        """Client and cluster."""
        self._stack.close()
