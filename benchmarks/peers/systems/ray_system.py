"""Ray: a node that the program starts, by remote functions and by actors."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from itertools import cycle
from typing import Any, ClassVar

from benchmarks.peers.peer import Library
from benchmarks.peers.tasks import nap

OBJECT_STORE_BYTES = 400_000_000
"""Three copies of the largest argument, and some more."""


class RayTasks(Library):
    """Remote functions."""

    name = "ray tasks"
    packages = ("ray",)
    futures_as_arguments = True
    scheduler = "ray"

    def start(self, slots: int) -> None:
        """Without its dashboard."""
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        import ray

        self._remotes: dict[Callable[..., Any], Any] = {}
        self._directory = tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True)
        ray.init(
            "local", num_cpus=slots, include_dashboard=False, log_to_driver=False, logging_level="error",
            object_store_memory=OBJECT_STORE_BYTES, _temp_dir=self._directory.name, _node_ip_address="127.0.0.1",
        )  # fmt: skip

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """An object reference."""
        import ray

        remote = self._remotes.get(function)
        if remote is None:
            remote = self._remotes[function] = ray.remote(function)
        return remote.remote(*arguments)

    def result(self, future: Any) -> Any:
        """Of a reference."""
        import ray

        return ray.get(future)

    def gather(self, futures: Sequence[Any]) -> list[Any]:
        """All at once."""
        import ray

        return list(ray.get(list(futures)))

    def put(self, value: Any) -> Any:
        """Into the object store, which all workers map."""
        import ray

        return ray.put(value)

    def job(self, duration_s: float, tasks: int, done: Callable[[], None]) -> None:
        """References have concurrent futures."""
        for number in range(tasks):
            self.submit(nap, duration_s, number).future().add_done_callback(lambda _: done())

    def stop(self) -> None:
        """The node."""
        import ray

        ray.shutdown()
        self._directory.cleanup()


class Worker:
    """What an actor is."""

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Any call."""
        return function(*arguments)


class RayActors(RayTasks):
    """An actor for each slot, dealt calls in turn: one's queue may be longer than another's."""

    name = "ray actors"
    lacks: ClassVar = {"scheduler": "as ray tasks"}
    scheduler = ""

    def start(self, slots: int) -> None:
        """Besides, the actors."""
        super().start(slots)
        import ray

        self._actors = cycle([ray.remote(Worker).options(num_cpus=1).remote() for _ in range(slots)])

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """To the next actor."""
        return next(self._actors).call.remote(function, *arguments)
