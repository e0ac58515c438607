"""Parsl: its executor for high throughput, an interchange and a pool of workers on this machine."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.peers.peer import Library


class Parsl(Library):
    """`HighThroughputExecutor` with one block of the local provider."""

    name = "parsl"
    packages = ("parsl",)
    futures_as_arguments = True
    lacks: ClassVar = {"scheduler": "the program is its scheduler"}

    def start(self, slots: int) -> None:
        """Over loopback."""
        import parsl
        from parsl.executors import HighThroughputExecutor
        from parsl.providers import LocalProvider

        os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # Where its own programs are.
        self._directory = tempfile.TemporaryDirectory(prefix="parsl-", ignore_cleanup_errors=True)
        executor = HighThroughputExecutor(
            address="127.0.0.1", max_workers_per_node=slots, cores_per_worker=1e-3,
            provider=LocalProvider(init_blocks=1, min_blocks=1, max_blocks=1),
        )  # fmt: skip
        self._kernel = parsl.load(
            parsl.Config(executors=[executor], run_dir=self._directory.name, strategy="none", initialize_logging=False)
        )
        self._apps: dict[Callable[..., Any], Any] = {}

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """An app of each function."""
        import parsl

        app = self._apps.get(function)
        if app is None:
            app = self._apps[function] = parsl.python_app(function)
        return app(*arguments)

    def stop(self) -> None:
        """Interchange and workers."""
        import parsl

        self._kernel.cleanup()
        parsl.clear()
        self._directory.cleanup()
