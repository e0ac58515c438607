"""`mpiexec -n 2 python -m benchmarks.dataflow.peers_mpi ITERATIONS`: a turn of `peers` by hand for MPI.

Rank 0 prints one line of JSON: by what was done, how long each iteration took, and CPU time of an iteration of all
ranks, in µs.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

import numpy as np
from mpi4py import MPI

from benchmarks.dataflow.peers import ALLREDUCE, BUSY_US, DOUBLES, NO_OPS, PARTITIONS, SIGNAL, STAGES


def nothing(value: object) -> None: ...


def iteration(what: str) -> tuple[Callable[[], None], float]:
    """What a rank does, and how much of that is work in µs."""
    ranks = MPI.COMM_WORLD
    told, mine, total = np.zeros(1, dtype=np.int8), np.ones(DOUBLES), np.zeros(DOUBLES)

    def no_ops() -> None:
        for _ in range(STAGES):
            for value in range(ranks.rank, PARTITIONS, ranks.size):
                nothing(value)
        ranks.Reduce(MPI.IN_PLACE if ranks.rank == 0 else told, told, op=MPI.MAX)  # All have come so far.
        ranks.Bcast(told)

    def allreduce() -> None:
        ranks.Allreduce(mine, total)

    def signal() -> None:
        until = time.perf_counter_ns() + 1_000 * BUSY_US
        while time.perf_counter_ns() < until:
            pass
        ranks.Bcast(told)

    return {NO_OPS: (no_ops, 0), ALLREDUCE: (allreduce, 0), SIGNAL: (signal, BUSY_US)}[what]


def measured(what: str, iterations: int) -> dict[str, object] | None:
    """At rank 0 what `Turn` says."""
    ranks = MPI.COMM_WORLD
    iterate, work_us = iteration(what)
    for _ in range(max(iterations // 10, 1)):
        iterate()
    ranks.Barrier()
    each, cpu = [], time.process_time()
    for _ in range(iterations):
        then = time.perf_counter()
        iterate()
        each.append((time.perf_counter() - then) * 1e6 - work_us)
    cpu_us = ranks.reduce((time.process_time() - cpu) * 1e6 / iterations)
    # The sender of a broadcast need not wait: the receiver counts.
    both = ranks.gather(each)
    return None if both is None else {"each_us": [max(ones) for ones in zip(*both, strict=True)], "cpu_us": cpu_us}


def main(iterations: int) -> None:
    """Do all of them."""
    said = {what: measured(what, iterations) for what in (NO_OPS, ALLREDUCE, SIGNAL)}
    if MPI.COMM_WORLD.rank == 0:
        print(json.dumps(said))


if __name__ == "__main__":
    main(int(sys.argv[1]))
