"""PageRank of a random graph, its edges cut in two dimensions.

    python examples/dataflow/pagerank.py [--check] [--side N]

The edges are a grid of N × N partitions: that of (row, column) has the edges from the row's range of vertices to the
column's. So a vertex has mirrors in the partitions of its row and its column alone, at most 2 √P of P. `--check`
compares the ranks with those of the same algorithm in plain numpy, and converged ones with networkx's if that is
installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from typing import Any, NamedTuple

import numpy as np

from frontends.dataflow import Dataflow

Array = np.ndarray[Any, Any]
DAMPING = 0.85
CONVERGED_ROUNDS = 150
"""Each leaves at most 0.85 of the error before, so all of them 3e-11 of it."""


class Edges(NamedTuple):
    """Edges of a partition; vertices are numbered within their range."""

    source: Array
    dest: Array


def made_up(vertices: int, edges: int, seed: int = 1) -> Array:
    """Pairs of source and destination. Some vertices have no edge out."""
    chance = np.random.default_rng(seed)
    pairs = np.unique((vertices * chance.random((edges, 2)) ** 2).astype(np.int64), axis=0)
    return pairs[pairs[:, 0] % 11 != 0]


def ranges(vertices: int, side: int) -> Array:
    """The first vertex of each range, and the end of the last."""
    return np.linspace(0, vertices, side + 1).astype(np.int64)


def cut(pairs: Array, vertices: int, side: int) -> list[Edges]:
    """The grid of edges, row after row."""
    starts = ranges(vertices, side)
    row = np.searchsorted(starts, pairs[:, 0], side="right") - 1
    column = np.searchsorted(starts, pairs[:, 1], side="right") - 1
    parts = []
    for index in range(side * side):
        mine = pairs[(row == index // side) & (column == index % side)]
        parts.append(Edges(mine[:, 0] - starts[index // side], mine[:, 1] - starts[index % side]))
    return parts


def mirrors_max(parts: list[Edges], side: int, vertices: int) -> int:
    """In how many partitions the vertex is that is in most."""
    starts = ranges(vertices, side)
    counts = np.zeros(vertices, dtype=np.int64)
    for index, edges in enumerate(parts):
        here = np.union1d(edges.source + starts[index // side], edges.dest + starts[index % side])
        counts[here] += 1
    return int(counts.max())


def pagerank(parts: list[Edges], vertices: int, side: int, plane: str, rounds: int, workers: int = 1) -> Array:
    """The ranks. Ranks have a partition a range, edges one a cell of the grid."""
    sizes = np.diff(ranges(vertices, side)).tolist()
    with Dataflow(partitions=side, workers=workers, plane=plane) as df:
        rank, sums = df.empty(sizes, fill=1 / vertices), df.empty(sizes)
        degree, lost = df.empty(sizes), df.empty(1)
        lost_all, spread = df.single(np.zeros(1)), df.replicate(np.zeros(1))
        E = df.objects(parts)
        mirror = df.empty([sizes[cell // side] for cell in range(side * side)], like=E)

        rows = df.partition(np.arange(side))
        cells = df.partition(np.arange(side * side), like=E)

        @df.scatter(reads=[E, cells], to=degree)
        def count(edges: Edges, cells: Array) -> Any:
            row = int(cells[0]) // side
            yield row, np.bincount(edges.source, minlength=sizes[row]).astype(float)

        @df.gather(count, writes=[degree])
        def counted(chunks: list[Array], degree: Array) -> None:
            degree[:] = sum(chunks)

        @df.stage(reads=[rank, degree], writes=[lost])
        def dangling(rank: Array, degree: Array, lost: Array) -> None:
            lost[0] = rank[degree == 0].sum()

        add = df.reduce(lost, into=lost_all, op=np.add)

        @df.stage(reads=[lost_all], writes=[spread])
        def share(lost_all: Array, spread: Array) -> None:
            spread[0] = lost_all[0] / vertices

        @df.scatter(reads=[rank, degree, rows], to=E)
        def to_mirrors(rank: Array, degree: Array, rows: Array) -> Any:
            for column in range(side):
                yield int(rows[0]) * side + column, rank / np.maximum(degree, 1)

        @df.gather(to_mirrors, writes=[mirror])
        def mirrored(chunks: list[Array], mirror: Array) -> None:
            mirror[:] = chunks[0]

        @df.scatter(reads=[E, mirror, cells], to=sums)
        def flow(edges: Edges, mirror: Array, cells: Array) -> Any:
            column = int(cells[0]) % side
            yield column, np.bincount(edges.dest, mirror[edges.source], minlength=sizes[column])

        @df.gather(flow, reads=[spread], writes=[sums, rank])
        def collect(chunks: list[Array], spread: Array, sums: Array, rank: Array) -> None:
            sums[:] = sum(chunks)
            rank[:] = (1 - DAMPING) / vertices + DAMPING * (spread[0] + sums)

        def program() -> Any:
            count()
            counted()
            for _ in range(rounds):
                dangling()
                add()
                share()
                to_mirrors()
                mirrored()
                flow()
                collect()
            return rank

        ranks: Array = df.run(program)
        return ranks


def in_numpy(pairs: Array, vertices: int, rounds: int) -> Array:
    """The same over the whole graph."""
    rank = np.full(vertices, 1 / vertices)
    source, dest = pairs.T
    degree = np.bincount(source, minlength=vertices)
    for _ in range(rounds):
        sums = np.bincount(dest, (rank / np.maximum(degree, 1))[source], minlength=vertices)
        rank = (1 - DAMPING) / vertices + DAMPING * (rank[degree == 0].sum() / vertices + sums)
    return rank


def by_networkx(pairs: Array, vertices: int) -> Array | None:
    """Its ranks, converged; None if it is not installed."""
    if importlib.util.find_spec("networkx") is None:
        return None
    networkx = importlib.import_module("networkx")
    graph = networkx.DiGraph()
    graph.add_nodes_from(range(vertices))
    graph.add_edges_from(pairs.tolist())
    ranks = networkx.pagerank(graph, alpha=DAMPING, tol=1e-12, max_iter=1000)
    return np.array([ranks[vertex] for vertex in range(vertices)])


def check_converged(pairs: Array, parts: list[Edges], vertices: int, side: int, plane: str, workers: int) -> None:
    theirs = by_networkx(pairs, vertices)
    if theirs is None:
        print("networkx is not installed: not compared with it")
        return
    ranks = pagerank(parts, vertices, side, plane, CONVERGED_ROUNDS, workers)
    difference = np.abs(ranks - theirs).max() / theirs.max()
    print(f"largest difference from networkx, of the highest rank: {difference:.1e}")
    if not difference < 1e-6:
        raise SystemExit("check failed: a difference below 1e-6 was expected")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="compare with plain numpy, and networkx if it is there")
    parser.add_argument("--side", type=int, default=4, help="ranges of vertices; the edges have the square of it")
    parser.add_argument("--workers", type=int, help="how many are wanted")
    parser.add_argument("--plane", help="who decides which task runs where")
    parser.add_argument("--vertices", type=int, default=20_000)
    parser.add_argument("--edges", type=int, default=200_000)
    options = parser.parse_args()
    pairs = made_up(options.vertices, options.edges)
    parts = cut(pairs, options.vertices, options.side)
    then = time.perf_counter()
    ranks = pagerank(parts, options.vertices, options.side, options.plane, rounds=20, workers=options.workers)
    print(f"highest rank {ranks.max():.2e}, of vertex {ranks.argmax()}, in {time.perf_counter() - then:.2f} s")
    if options.check:
        difference = np.abs(ranks - in_numpy(pairs, options.vertices, rounds=20)).max()
        mirrors = mirrors_max(parts, options.side, options.vertices)
        print(f"largest difference from numpy: {difference:.1e}; mirrors of a vertex: {mirrors} of {len(parts)}")
        if not difference < 1e-9 or not mirrors <= 2 * options.side:
            raise SystemExit("check failed: a difference below 1e-9, and at most 2 √P mirrors, were expected")
        check_converged(pairs, parts, options.vertices, options.side, options.plane, options.workers)


if __name__ == "__main__":
    main()
