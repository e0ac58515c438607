"""Figure 12 of execution templates: a water simulation, ours beside one that was written by hand for MPI.

The paper's is PhysBAM's on 64 nodes with a billion cells; here it is `examples/dataflow/water.py`, and by hand
`water_mpi`, with the same functions for a block, one block a rank. All run with one thread of BLAS.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from examples.dataflow import water
from examples.dataflow.water import Array, Grid

ROOT = Path(__file__).parents[2]
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


def rows(repeat: int = 3, size: int = 1200, frames: int = 1) -> list[dict[str, object]]:
    """A row for each way to run it; medians of interleaved runs."""
    ways: dict[tuple[str, int, int], Callable[[], Run]] = {
        **{("mpi4py", ranks, ranks): partial(by_hand, size, frames, ranks) for ranks in (1, 2)},
        **{("inline", 1, blocks): partial(ours, size, frames, blocks, "inline") for blocks in (1, 2, 4)},
    }
    runs: dict[tuple[str, int, int], list[Run]] = {way: [] for way in ways}
    for _ in range(repeat):
        for way, run in ways.items():
            runs[way].append(run())
    first = runs["mpi4py", 1, 1][0]
    base_s = median(run.cpu_s for run in runs["mpi4py", 1, 1])
    made: list[dict[str, object]] = []
    for (who, processes, blocks), each in runs.items():
        difference = max(float(np.abs(run.surface - first.surface).max()) for run in each)
        assert difference < DIFFERENCE_MAX_M, (who, difference)
        wall_s, cpu_s = median(run.wall_s for run in each), median(run.cpu_s for run in each)
        made.append(
            {
                "who": who,
                "processes": processes,
                "blocks": blocks,
                "wall_s": round(wall_s, 3),
                "cpu_s": round(cpu_s, 3),
                "step_ms": round(1000 * wall_s / each[0].steps, 1),
                "iterations": each[0].iterations,
                "cpu_to_mpi": round(cpu_s / base_s, 3),
                "difference_m": difference,
            }
        )
    return made
