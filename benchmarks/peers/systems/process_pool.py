"""`concurrent.futures.ProcessPoolExecutor`: workers are forks of the program, which is the scheduler."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from benchmarks.peers.peer import Library


class ProcessPool(Library):
    """Of the standard library."""

    name = "process pool"
    pool = True

    def version(self) -> str:
        """Python's."""
        return f"of Python {platform.python_version()}"

    def start(self, slots: int) -> None:
        """Workers are forked when there is something to do."""
        self._executor = ProcessPoolExecutor(slots)

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """A concurrent future."""
        return self._executor.submit(function, *arguments)

    def map(self, function: Callable[[Any], Any], values: Iterable[Any]) -> list[Any]:
        """Each value alone, as `chunksize` is 1."""
        return list(self._executor.map(function, values))

    def stop(self) -> None:
        """Waits for its workers."""
        self._executor.shutdown()
