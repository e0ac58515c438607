"""The systems compared, each with as much as graphs need of it. Their packages are imported when they are started."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

from benchmarks.graphs.functions import fib, fib_of_dask, fib_of_ray
from benchmarks.habits.turns import OURS
from sparrow_py import Client, LocalCluster
from sparrow_py.distribution import install_command

DASK, RAY, POOL = "distributed", "ray", "process pool"
PEERS = (DASK, RAY)
"""What graphs are compared with; names of packages, too. A process pool takes no futures as arguments."""
OBJECT_STORE_BYTES = 400_000_000
"""Of Ray: three copies of the array, and some more."""


@dataclass(frozen=True)
class System:
    """One system's way to run calls.

    name: as in tables. submit: a function and its arguments, of which some may be futures, to a future. gather: futures
    to their values. put: a value to what stands for it in arguments, wherever all workers find it. fib: a Fibonacci
    number by tasks that submit tasks; None where tasks cannot.
    """

    name: str
    submit: Callable[..., Any]
    gather: Callable[[Sequence[Any]], list[Any]]
    put: Callable[[Any], Any]
    fib: Callable[[int], int] | None = None


def missing() -> list[str]:
    """A line on each peer that is not installed."""
    absent = [peer for peer in PEERS if importlib.util.find_spec(peer) is None]
    return [f"{peer} is left out, as it is not installed: {install_command('peers')}" for peer in absent]


@contextlib.contextmanager
def systems(workers: int, *, peers: bool = True) -> Iterator[dict[str, System]]:
    """Ours, and those peers that are installed, each with so many workers of one task at a time."""
    with contextlib.ExitStack() as stack:
        found = {OURS: stack.enter_context(_sparrow(workers))}
        for peer, start in {DASK: _dask, RAY: _ray}.items() if peers else ():
            if importlib.util.find_spec(peer) is not None:
                found[peer] = stack.enter_context(start(workers))
        yield found


@contextlib.contextmanager
def pool(workers: int) -> Iterator[System]:
    """A process pool. It forks its workers, so it is started before other systems have threads."""
    with ProcessPoolExecutor(workers) as executor:
        for future in [executor.submit(os.getpid) for _ in range(workers)]:
            future.result()
        yield System(
            POOL, executor.submit, lambda futures: [future.result() for future in futures], lambda value: value
        )


@contextlib.contextmanager
def _sparrow(workers: int) -> Iterator[System]:
    with LocalCluster(slots=workers) as cluster, Client(cluster) as client:
        yield System(
            OURS,
            client.submit,
            client.gather,
            lambda value: client.put(value, broadcast=True),
            lambda number: int(client.submit(fib, number).result()),
        )


@contextlib.contextmanager
def _dask(workers: int) -> Iterator[System]:
    import distributed

    shape: dict[str, Any] = {"n_workers": workers, "threads_per_worker": 1, "dashboard_address": None}
    with (
        distributed.LocalCluster(**shape, silence_logs=logging.ERROR) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield System(
            DASK,
            lambda function, *arguments: client.submit(function, *arguments, pure=False),
            client.gather,
            lambda value: client.scatter(value, broadcast=True, hash=False),
            lambda number: int(client.submit(fib_of_dask, number, pure=False).result()),
        )


@contextlib.contextmanager
def _ray(workers: int) -> Iterator[System]:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray

    remotes: dict[Callable[..., Any], Any] = {}

    def submit(function: Callable[..., Any], *arguments: Any) -> Any:
        remote = remotes.get(function)
        if remote is None:
            remote = remotes[function] = ray.remote(function)
        return remote.remote(*arguments)

    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as directory:
        ray.init(
            num_cpus=workers, include_dashboard=False, log_to_driver=False, logging_level="error",
            object_store_memory=OBJECT_STORE_BYTES, _temp_dir=directory,
        )  # fmt: skip
        try:
            yield System(RAY, submit, ray.get, ray.put, lambda number: int(ray.get(submit(fib_of_ray, number))))
        finally:
            ray.shutdown()
