"""Figure 9 of Canary: PageRank by the number of partitions of a core.

The example `pagerank` on one worker, and messages and bytes of the same on four: smaller partitions fit into caches,
and exchange more. GraphX, with which the paper compares, needs a Java machine and is not run here.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from benchmarks.dataflow.examples_taken import program_of
from benchmarks.dataflow.local_pump import LocalPump
from benchmarks.flow.outcome import Row
from examples.dataflow import pagerank

SIDES = (1, 2, 3, 4, 6, 8, 16)
WORKERS = 4
ROUNDS = 4
PAPER_TO_ONE = {4: 1 - 0.33}
"""An iteration's time to that with one partition a core. The paper's best; at six it is slower again."""


def spent(parts: list[pagerank.Edges], vertices: int, side: int, workers: int) -> tuple[float, float, float]:
    """Of an iteration: CPU time of all workers in ms, messages, bytes."""

    def run(rounds: int) -> LocalPump:
        df, program = program_of(
            pagerank, lambda: pagerank.pagerank(parts, vertices, side, "inline", rounds, workers=workers)
        )
        pump = LocalPump(df, workers)
        pump.run(program, says=lambda block: False)
        return pump

    few, more = run(1), run(1 + ROUNDS)
    counted = [(pump.cpu_ns.sum() / 1e6, pump.frames.total(), pump.bytes.total()) for pump in (few, more)]
    ms, messages, size = ((float(b) - float(a)) / ROUNDS for a, b in zip(*counted, strict=True))
    return ms, messages, size


def measure(
    repeat: int = 3, vertices: int = 1_000_000, edges: int = 4_000_000, sides: Sequence[int] = SIDES
) -> list[Row]:
    """A row for each number of partitions, the square of a grid's side; medians of interleaved runs."""
    pairs = pagerank.made_up(vertices, edges)
    grids = {side: pagerank.cut(pairs, vertices, side) for side in sides}
    alone: dict[int, list[float]] = {side: [] for side in sides}
    for _ in range(repeat):
        for side, parts in grids.items():
            alone[side].append(spent(parts, vertices, side, 1)[0])
    base = median(alone[sides[0]])
    made: list[Row] = []
    for side, parts in grids.items():
        _, messages, size = spent(parts, vertices, side, WORKERS)
        made.append(
            {
                "partitions": side * side,
                "cpu_ms": round(median(alone[side]), 1),
                "to_one_partition": round(median(alone[side]) / base, 2),
                "mirrors_of_a_vertex": pagerank.mirrors_max(parts, side, vertices),
                "mirrors_at_most": 2 * side,
                f"messages_of_{WORKERS}_workers": round(messages),
                f"mb_of_{WORKERS}_workers": round(size / 1e6, 2),
                "paper_to_one": PAPER_TO_ONE.get(side * side),
            }
        )
    return made
