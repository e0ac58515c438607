"""`mpiexec -n RANKS python -m benchmarks.dataflow.water_mpi`: the example `water`, written by hand for MPI.

Each rank has one block and the same functions for it as the example; exchanges are messages between neighbours, sums
are Allreduce. Rank 0 prints one line of JSON, and writes the surface at the end to a file if it is asked to.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
from mpi4py import MPI

from examples.dataflow import water
from examples.dataflow.water import Array, Grid, edges, neighbours, own


class RankBlock(water.Block):
    """A rank's block of the grid."""

    def __init__(self, grid: Grid, ranks: Any) -> None:
        super().__init__(grid, ranks.rank)
        self.ranks, self.grid = ranks, grid
        self.total = np.zeros(1)

    def fill(self, take: Callable[..., None], *fields: Array) -> None:
        """Exchange edges with the neighbours, and take them."""
        place = self.place[0]
        shapes = [(len(fields), *fields[0][own(down), own(right)].shape) for _, down, right in neighbours(place)]
        chunks = [np.empty(shape) for shape in shapes]
        requests = [
            self.ranks.Irecv(chunk, source=rank) for chunk, (rank, _, _) in zip(chunks, neighbours(place), strict=True)
        ]
        sent = [(rank, edge) for rank, edge in edges(place, *fields)]  # Which live until they have arrived.
        requests += [self.ranks.Isend(edge, dest=rank) for rank, edge in sent]
        MPI.Request.Waitall(requests)
        take(chunks, self.place, *fields)

    def dot(self, a: Array, b: Array) -> float:
        super().dot(a, b)
        self.ranks.Allreduce(self.one, self.total, op=MPI.SUM)
        return float(self.total[0])

    def find_limits(self) -> None:
        super().find_limits()
        self.ranks.Allreduce(MPI.IN_PLACE, self.most, op=MPI.MAX)

    def surface(self) -> Array | None:
        """The whole surface, at rank 0."""
        parts = self.ranks.gather((self.h + self.bed)[1:-1, 1:-1])
        if parts is None:
            return None
        whole = np.empty((self.grid.size, self.grid.size))
        for block, part in enumerate(parts):
            top, bottom, left, right = self.grid.cells(block)
            whole[top:bottom, left:right] = part
        return whole


@click.command()
@click.option("--size", default=1200)
@click.option("--blocks", nargs=2, default=(1, 1), help="As many as ranks.")
@click.option("--frames", default=1)
@click.option("--out", type=click.Path(path_type=Path), help="Where the surface goes, as a file of numpy.")
def main(size: int, blocks: tuple[int, int], frames: int, out: Path | None) -> None:
    """Run it, and print how long it took."""
    ranks = MPI.COMM_WORLD
    if blocks[0] * blocks[1] != ranks.size:
        raise click.UsageError(
            f"--blocks {blocks[0]} {blocks[1]}: there are {ranks.size} ranks; allowed: as many blocks"
        )
    ranks.Barrier()
    then, cpu = time.perf_counter(), time.process_time()
    block = RankBlock(Grid(size, *blocks), ranks)
    steps = block.run(frames)
    whole = block.surface()
    wall_s, cpu_s = time.perf_counter() - then, ranks.reduce(time.process_time() - cpu)
    if whole is not None:
        if out is not None:
            np.save(out, whole)
        print(json.dumps({"wall_s": wall_s, "cpu_s": cpu_s, "steps": steps, "iterations": block.iterations}))


if __name__ == "__main__":
    main()
