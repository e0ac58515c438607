"""loky: joblib's process pool, whose workers are fresh interpreters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.peers.peer import Library


class Loky(Library):
    """Its executor, without joblib's batches."""

    name = "loky"
    pool = True
    packages = ("loky",)

    def start(self, slots: int) -> None:
        """Workers are started when there is something to do, and do not end for want of it."""
        from loky import ProcessPoolExecutor

        self._executor = ProcessPoolExecutor(slots, timeout=None)

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """A concurrent future."""
        return self._executor.submit(function, *arguments)

    def stop(self) -> None:
        """Waits for its workers."""
        self._executor.shutdown()
