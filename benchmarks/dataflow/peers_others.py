"""Other systems for `peers`. None of their packages is imported before it is needed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.dataflow.peers import (
    ALLREDUCE,
    IDLE,
    NO_OPS,
    PARTITIONS,
    ROUND_TRIP,
    SIGNAL,
    STAGES,
    WORKERS,
    Below,
    Measure,
    Peer,
    Turn,
)
from benchmarks.report import ROOT

TIMEOUT_S = 120
RAY_STORE_BYTES = 100 << 20


def nothing(value: Any = None) -> Any:
    return value


class Pool(Peer):
    """`concurrent.futures` of the standard library."""

    name = "process pool"

    @contextmanager
    def started(self, below: Below) -> Iterator[Mapping[str, Measure]]:
        with ProcessPoolExecutor(WORKERS, get_context("spawn")) as pool:

            def iterate() -> None:
                for _ in range(STAGES):
                    list(pool.map(nothing, range(PARTITIONS)))

            yield {
                NO_OPS: lambda iterations: below.turn(iterations, iterate),
                ROUND_TRIP: lambda iterations: below.turn(iterations, lambda: pool.submit(nothing).result()),
                IDLE: below.idle,
            }


class Joblib(Peer):
    """A `Parallel` of its own processes (loky), which stay."""

    name, packages = "joblib", ("joblib",)

    @contextmanager
    def started(self, below: Below) -> Iterator[Mapping[str, Measure]]:
        from joblib import Parallel, delayed
        from joblib.externals.loky import get_reusable_executor

        try:
            with Parallel(n_jobs=WORKERS) as parallel:

                def iterate() -> None:
                    for _ in range(STAGES):
                        parallel(delayed(nothing)() for _ in range(PARTITIONS))

                yield {NO_OPS: lambda iterations: below.turn(iterations, iterate), IDLE: below.idle}
        finally:
            get_reusable_executor().shutdown(wait=True)


class Dask(Peer):
    """Chains of three delayed calls, one graph an iteration, on two processes."""

    name, packages = "dask", ("distributed", "dask")

    @contextmanager
    def started(self, below: Below) -> Iterator[Mapping[str, Measure]]:
        from dask import delayed
        from distributed import Client, LocalCluster

        step = delayed(nothing, pure=False)
        with (
            LocalCluster(n_workers=WORKERS, threads_per_worker=1, dashboard_address=None) as cluster,
            Client(cluster) as client,
        ):

            def iterate() -> None:
                chains = []
                for value in range(PARTITIONS):
                    chain = value
                    for _ in range(STAGES):
                        chain = step(chain)
                    chains.append(chain)
                client.gather(client.compute(chains))

            def round_trip() -> None:
                client.submit(nothing, pure=False).result()

            yield {
                NO_OPS: lambda iterations: below.turn(max(iterations // 10, 1), iterate),
                ROUND_TRIP: lambda iterations: below.turn(max(iterations // 10, 1), round_trip),
                IDLE: below.idle,
            }


class Ray(Peer):
    """A compiled graph of chains of three methods on two actors.

    Its actors poll while there is one, so it is there for no-ops and idleness alone, and torn down before others'
    turns.
    """

    name, packages = "ray", ("ray",)

    @contextmanager
    def started(self, below: Below) -> Iterator[Mapping[str, Measure]]:
        import ray
        from ray.dag import InputNode, MultiOutputNode

        class Actor:
            def step(self, value: Any) -> Any:
                return value

        ray.init(
            num_cpus=WORKERS, object_store_memory=RAY_STORE_BYTES, include_dashboard=False, log_to_driver=False,
            configure_logging=False,
        )  # fmt: skip
        try:
            actors = [ray.remote(Actor).remote() for _ in range(WORKERS)]
            ray.get([actor.step.remote(0) for actor in actors])
            graphs: list[Any] = []

            def compiled() -> Any:
                with InputNode() as given:
                    chains = []
                    for partition in range(PARTITIONS):
                        value: Any = given
                        for _ in range(STAGES):
                            value = actors[partition % WORKERS].step.bind(value)
                        chains.append(value)
                    return MultiOutputNode(chains).experimental_compile()

            def no_ops(iterations: int) -> Turn:
                graphs.append(compiled())
                ray.get(graphs[0].execute(0))
                return below.turn(iterations, lambda: ray.get(graphs[0].execute(0)))

            def idle(iterations: int) -> Turn:
                done = below.idle(iterations)
                graphs.pop().teardown()
                return done

            def round_trip() -> None:
                ray.get(actors[0].step.remote(0))

            yield {
                NO_OPS: no_ops,
                IDLE: idle,
                ROUND_TRIP: lambda iterations: below.turn(iterations, round_trip),
            }
        finally:
            ray.shutdown()


class Mpi(Peer):
    """Two ranks of mpi4py; each turn is a run of `peers_mpi`."""

    name, packages = "mpi4py", ("mpi4py", "mpich")

    @contextmanager
    def started(self, below: Below) -> Iterator[Mapping[str, Measure]]:
        mpiexec = shutil.which("mpiexec", path=str(Path(sys.executable).parent)) or shutil.which("mpiexec")
        if mpiexec is None:
            raise FileNotFoundError("mpiexec: the wheel mpich of the extra peers brings it")
        ranks = ["-launcher", "fork", "-n", str(WORKERS)]
        command = [mpiexec, *ranks, sys.executable, "-m", "benchmarks.dataflow.peers_mpi"]
        said: dict[str, Any] = {}

        def of(what: str) -> Measure:
            def measure(iterations: int) -> Turn:
                if what not in said:  # A run has a turn of each.
                    done = subprocess.run(
                        [*command, str(iterations)], cwd=ROOT, env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
                        capture_output=True, text=True, check=True, timeout=TIMEOUT_S,
                    )  # fmt: skip
                    said.update(json.loads(done.stdout))
                return Turn(iterations, **said.pop(what))

            return measure

        yield {what: of(what) for what in (NO_OPS, ALLREDUCE, SIGNAL)}
