"""executorlib: an executor whose workers are interpreters at the other end of a ZeroMQ socket each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.peers.peer import Library


class Executorlib(Library):
    """On one machine, with workers that live on from call to call (`block_allocation`)."""

    name = "executorlib"
    pool = True
    packages = ("executorlib",)
    futures_as_arguments = True

    def start(self, slots: int) -> None:
        """All workers."""
        from executorlib import SingleNodeExecutor

        self._executor = SingleNodeExecutor(max_workers=slots, block_allocation=True, hostname_localhost=True)

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """A concurrent future."""
        return self._executor.submit(function, *arguments)

    def stop(self) -> None:
        """Waits for its workers."""
        self._executor.shutdown()
