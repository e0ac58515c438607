"""Figure 12 of execution templates: a water simulation, ours beside one that was written by hand for MPI.

The paper's is PhysBAM's on 64 nodes with a billion cells; here it is `examples/dataflow/water.py`, and by hand
`water_mpi`, with the same functions for a block, one block a rank. All run with one thread of BLAS.

Planes with workers start a cluster first. So each runs twice, for one frame and for one more than is asked for, and the
difference is what counts, of all processes; all figures are by time step, as frames take more or fewer of them.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.report import ROOT
from examples.dataflow import water
from examples.dataflow.water import Array, Grid
from sparrow_py import LocalCluster

TIMEOUT_S = 600
BLOCKS: dict[int, tuple[int, int]] = {1: (1, 1), 2: (2, 1), 4: (2, 2)}
"""How the grid is cut into so many blocks."""
DIFFERENCE_MAX_M = 1e-9


@dataclass(frozen=True)
class Run:
    wall_s: float
    cpu_s: float
    """Of all processes."""
    steps: int
    iterations: int
    surface: Array


def by_hand(size: int, frames: int, ranks: int) -> Run:
    """A run by MPI."""
    mpiexec = shutil.which("mpiexec", path=str(Path(sys.executable).parent)) or shutil.which("mpiexec")
    if mpiexec is None:
        raise FileNotFoundError("mpiexec: the wheel mpich of the extra peers brings it")
    rows, columns = BLOCKS[ranks]
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / "surface.npy"
        command = [
            mpiexec, "-launcher", "fork", "-n", str(ranks), sys.executable, "-m", "benchmarks.dataflow.water_mpi",
            "--size", str(size), "--blocks", str(rows), str(columns), "--frames", str(frames), "--out", str(out),
        ]  # fmt: skip
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True, timeout=TIMEOUT_S
        )
        return Run(**json.loads(done.stdout), surface=np.load(out))


def ours(size: int, frames: int, blocks: int, plane: str, **options: Any) -> Run:
    """A run of the example."""
    then, cpu = time.perf_counter(), time.process_time()
    done = water.simulate(Grid(size, *BLOCKS[blocks]), frames, plane=plane, progress=False, **options)
    wall_s, cpu_s = time.perf_counter() - then, time.process_time() - cpu
    return Run(wall_s, cpu_s, int(sum(done.steps)), int(sum(done.iterations)), done.surface)


def on_workers(size: int, frames: int, workers: int, plane: str) -> Run:
    """A run of the example on a cluster with so many slots, one block a worker."""
    with LocalCluster(slots=workers) as cluster:
        return ours(size, frames, workers, plane, cluster=cluster, workers=workers, min_workers=workers)


def cpu_of_all_s(function: Callable[..., Run], *arguments: Any) -> tuple[Run, float]:
    """A run, and the CPU time of this process and of all that it has started."""
    run = function(*arguments)
    return run, sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def beyond_the_first_frame(size: int, frames: int, workers: int, plane: str) -> Run:
    """What so many frames take after one."""
    runs = []
    for number in (1, frames + 1):
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            runs.append(pool.submit(cpu_of_all_s, on_workers, size, number, workers, plane).result())
    (first, first_cpu_s), (last, last_cpu_s) = runs
    return Run(
        last.wall_s - first.wall_s, last_cpu_s - first_cpu_s, last.steps - first.steps,
        last.iterations - first.iterations, last.surface,
    )  # fmt: skip


def in_a_process(function: Callable[..., Run], *arguments: Any) -> Run:
    """What the function returns in a new process: ranks of MPI are new, too, and memory that was used before is not
    filled with zeros again."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def rows(repeat: int = 3, size: int = 1800, frames: int = 1) -> list[dict[str, object]]:
    """A row for each way to run it; medians of interleaved runs."""
    ways: dict[tuple[str, int, int], Callable[[], Run]] = {
        **{("mpi4py", ranks, ranks): partial(by_hand, size, frames, ranks) for ranks in (1, 2)},
        **{("inline", 1, blocks): partial(in_a_process, ours, size, frames, blocks, "inline") for blocks in (1, 2, 4)},
        **{(plane, 2, 2): partial(beyond_the_first_frame, size, frames, 2, plane) for plane in ("local", "templates")},
    }
    runs: dict[tuple[str, int, int], list[Run]] = {way: [] for way in ways}
    for _ in range(repeat):
        for way, run in ways.items():
            runs[way].append(run())
    by_ranks = {ranks: _step_ms(runs["mpi4py", ranks, ranks]) for ranks in (1, 2)}
    made: list[dict[str, object]] = []
    for (who, processes, blocks), each in runs.items():
        alike = runs["inline", 1, 4] if who in ("mpi4py", "inline") else []
        difference = max((float(np.abs(run.surface - alike[0].surface).max()) for run in each if alike), default=0.0)
        assert difference < DIFFERENCE_MAX_M, (who, difference)
        wall_ms, cpu_ms = _step_ms(each)
        made.append(
            {
                "who": who,
                "processes": processes,
                "blocks": blocks,
                "steps": each[0].steps,
                "wall ms a step": round(wall_ms, 1),
                "cpu ms a step": round(cpu_ms, 1),
                "wall to mpi": round(wall_ms / by_ranks[processes][0], 3),
                "cpu to mpi": round(cpu_ms / by_ranks[processes][1], 3),
                "difference_m": difference if alike else None,
            }
        )
    return made


def _step_ms(runs: list[Run]) -> tuple[float, float]:
    """Wall and CPU time of a time step, medians."""
    return median(1000 * run.wall_s / run.steps for run in runs), median(1000 * run.cpu_s / run.steps for run in runs)
