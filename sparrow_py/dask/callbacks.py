"""Dask's callbacks (`dask.diagnostics.ProgressBar` and the like), told of what runs on the cluster.

Tasks count as started when their job is submitted, as the client is not told when each leaves the queue; and what is
handed on as a task's value is None, as values stay where they are.
"""

from __future__ import annotations

import contextlib
from collections.abc import Hashable, Iterable, Iterator
from typing import Any

from dask.callbacks import local_callbacks, unpack_callbacks


class Told:
    """The callbacks of one call of `get`."""

    def __init__(self, callbacks: Iterable[Any], graph: dict[Hashable, Any]) -> None:
        self._graph = graph
        self._all = list(callbacks)
        _, _, self._before, self._after, _ = unpack_callbacks(self._all)
        self._state: dict[str, Any] = {
            "ready": [],
            "waiting": {key: set() for key in graph},
            "running": set(),
            "finished": set(),
            "cache": {},
        }

    def begin(self, told: list[Any]) -> None:
        """The call begins. `told` gets those that are to be told of its end."""
        for callback in self._all:
            if callback[0]:
                callback[0](self._graph)
            told.append(callback)
        for callback in self._all:
            if callback[1]:
                callback[1](self._graph, self._state)

    def submitted(self, keys: Iterable[Hashable]) -> None:
        """These tasks are the cluster's."""
        if not self._all:
            return
        for key in keys:
            self._state["waiting"].pop(key, None)
            self._state["running"].add(key)
            for before in self._before:
                before(key, self._graph, self._state)

    def finished(self, key: Hashable, node: str) -> None:
        """A task has finished, on this node."""
        if not self._all:
            return
        self._state["running"].discard(key)
        self._state["finished"].add(key)
        for after in self._after:
            after(key, None, self._graph, self._state, node)

    def end(self, told: list[Any], *, errored: bool) -> None:
        """The call has ended."""
        for callback in told:
            if callback[4]:
                callback[4](self._graph, self._state, errored)


@contextlib.contextmanager
def telling(callbacks: Any, graph: dict[Hashable, Any]) -> Iterator[Told]:
    """Whom to tell of a call: `callbacks`, or those that are active."""
    with local_callbacks(callbacks) as active:
        tell, told = Told(active or (), dict(graph)), []  # type: ignore[var-annotated]
        errored = True
        try:
            tell.begin(told)
            yield tell
            errored = False
        finally:
            tell.end(told, errored=errored)
