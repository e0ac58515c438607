"""Sparrow: an embedded cluster, as `Client()` starts it, with the default options, with prefetching, and by flow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import Any, ClassVar

from benchmarks.peers.peer import Library
from benchmarks.peers.tasks import nap
from sparrow_py import CallOptions, Client, LocalCluster

PREFETCH = 16


class Sparrow(Library):
    """Late binding by batch sampling."""

    name = "sparrow"
    ours = True
    packages: ClassVar[Sequence[str]] = ("sparrow-py",)
    futures_as_arguments = True
    scheduler = "sparrow"
    options: ClassVar[CallOptions | None] = None
    policy: ClassVar[str] = "sparrow"

    def start(self, slots: int) -> None:
        """One scheduler, one node monitor."""
        self._stack = ExitStack()
        cluster = self._stack.enter_context(LocalCluster(slots=slots, policies=(self.policy,)))
        self._client = self._stack.enter_context(Client(cluster, options=self.options))

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """A job of one task."""
        return self._client.submit(function, *arguments)

    def gather(self, futures: Sequence[Any]) -> list[Any]:
        """The client's own."""
        return self._client.gather(futures)

    def map(self, function: Callable[[Any], Any], values: Iterable[Any]) -> list[Any]:
        """One job."""
        return list(self._client.submit_calls(function, [(value,) for value in values]).results())

    def put(self, value: Any) -> Any:
        """To all nodes."""
        return self._client.put(value, broadcast=True)

    def job(self, duration_s: float, tasks: int, done: Callable[[], None]) -> None:
        """One job."""
        for future in self._client.submit_calls(nap, [(duration_s, number) for number in range(tasks)]).futures:
            future.add_done_callback(lambda _: done())

    def stop(self) -> None:
        """Client and cluster."""
        self._stack.close()


class SparrowPrefetch(Sparrow):
    """Nodes hold tasks ahead of a free slot."""

    name = "sparrow, prefetch"
    options = CallOptions(prefetch=PREFETCH)
    lacks: ClassVar = {"scheduler": "as sparrow", "memory": "as sparrow", "start": "as sparrow"}


class SparrowFlow(Sparrow):
    """Each task to the best place in the whole cluster, for tasks of seconds."""

    name = "sparrow, flow"
    packages = ("sparrow-py", "numba")
    options = CallOptions(policy="flow")
    policy = "flow"
    scheduler = ""
    lacks: ClassVar = {"scheduler": "not measured here; `benchmarks.chaos` kills leaders of a plane"}
