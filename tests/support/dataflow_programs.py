"""The two example programs of docs/dataflow.md's design, as users write them, and the same in plain numpy."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit

from frontends.dataflow import Dataflow

Array = np.ndarray[Any, Any]


def logistic_data(rows: int = 400, columns: int = 5) -> tuple[Array, Array]:
    chance = np.random.default_rng(7)
    features = chance.normal(size=(rows, columns))
    labels = (chance.random(rows) < expit(features @ np.arange(columns))).astype(float)
    return features, labels


def logistic(cluster: Any, features: Array, labels: Array, plane: str, tolerance: float = 1e-6) -> Array:
    """Logistic regression by gradient descent."""
    with Dataflow(cluster, workers=2, partitions_per_worker=8, plane=plane, progress=False) as df:
        X, Y = df.partition((features, labels))
        w = df.replicate(np.zeros(features.shape[1]))
        g = df.empty((features.shape[1],), like=X)
        total = df.single(np.zeros(features.shape[1]))

        @df.stage(reads=[X, Y, w], writes=[g])
        def gradient(x, y, w, g):  # type: ignore[no-untyped-def]
            g[:] = x.T @ (expit(x @ w) - y)

        add = df.reduce(g, into=total, op=np.add)

        @df.stage(reads=[total], writes=[w])
        def update(total, w, *, rate):  # type: ignore[no-untyped-def]
            w -= rate * total

        @df.signal(on=total)
        def moving(total):  # type: ignore[no-untyped-def]
            return np.abs(total).max() > tolerance

        def program() -> Any:
            while True:
                gradient()
                add()
                update(rate=0.1 / len(features))
                if not moving():
                    return w

        weights: Array = df.run(program)
        return weights


def logistic_in_numpy(features: Array, labels: Array, partitions: int = 16, tolerance: float = 1e-6) -> Array:
    """The same, with sums in the same order, so that answers are bitwise equal."""
    parts = list(zip(np.array_split(features, partitions), np.array_split(labels, partitions), strict=True))
    w = np.zeros(features.shape[1])
    while True:
        gradients = [x.T @ (expit(x @ w) - y) for x, y in parts]
        total = gradients[0]
        for gradient in gradients[1:]:
            total = total + gradient
        w -= 0.1 / len(features) * total
        if not np.abs(total).max() > tolerance:
            return w


class Edges(NamedTuple):
    source: Array
    dest: Array
    starts: Array


class Graph(NamedTuple):
    """A directed graph; its vertices cut into ranges."""

    edges: Array
    n: int
    sizes: list[int]

    @property
    def starts(self) -> Array:
        return np.concatenate([[0], np.cumsum(self.sizes)])


def random_graph(n: int = 300, edges: int = 1500, parts: int = 16) -> Graph:
    chance = np.random.default_rng(3)
    sizes = [len(part) for part in np.array_split(np.arange(n), parts)]
    pairs = np.unique(chance.integers(0, n, size=(edges, 2)), axis=0)
    return Graph(pairs[pairs[:, 0] % 7 != 0], n, sizes)  # Every seventh vertex has no way out.


def edges_of(index: int, graph: Graph) -> Edges:
    """Edges whose source is of the index's range, sorted by destination."""
    starts = graph.starts
    mine = graph.edges[(graph.edges[:, 0] >= starts[index]) & (graph.edges[:, 0] < starts[index + 1])]
    mine = mine[np.argsort(mine[:, 1], kind="stable")]
    owner = np.searchsorted(starts, mine[:, 1], side="right") - 1
    return Edges(mine[:, 0] - starts[index], mine[:, 1] - starts[owner], np.searchsorted(mine[:, 1], starts))


def read_edges(index: int) -> Edges:
    return edges_of(index, random_graph())


def read_degrees(index: int) -> Array:
    graph = random_graph()
    return np.bincount(edges_of(index, graph).source, minlength=graph.sizes[index]).astype(float)


def pagerank(cluster: Any, plane: str, rounds: int = 20) -> Array:
    """PageRank, edges partitioned by the range of their source."""
    graph = random_graph()
    n, sizes = graph.n, graph.sizes
    with Dataflow(cluster, workers=2, plane=plane, progress=False) as df:
        E = df.load(read_edges, partitions=16)
        rank = df.empty(sizes, like=E, fill=1 / n)
        degree = df.load(read_degrees, like=E)
        lost, lost_all = df.empty((1,), like=E), df.single(np.zeros(1))
        spread = df.replicate(np.zeros(1))

        @df.stage(reads=[rank, degree], writes=[lost])
        def dangling(rank, degree, lost):  # type: ignore[no-untyped-def]
            lost[0] = rank[degree == 0].sum()

        add = df.reduce(lost, into=lost_all, op=np.add)

        @df.stage(reads=[lost_all], writes=[spread])
        def share(lost_all, spread):  # type: ignore[no-untyped-def]
            spread[0] = lost_all[0] / n

        @df.scatter(reads=[E, rank, degree], to=rank)
        def send(edges, rank, degree):  # type: ignore[no-untyped-def]
            flow = (rank / np.maximum(degree, 1))[edges.source]
            for j in range(16):
                part = slice(edges.starts[j], edges.starts[j + 1])
                yield j, np.bincount(edges.dest[part], flow[part], minlength=sizes[j])

        @df.gather(send, reads=[spread], writes=[rank])
        def collect(chunks, spread, rank):  # type: ignore[no-untyped-def]
            rank[:] = 0.15 / n + 0.85 * (spread[0] + sum(chunks))

        def program() -> Any:
            for _ in range(rounds):
                dangling()
                add()
                share()
                send()
                collect()
            return rank

        ranks: Array = df.run(program)
        return ranks


def pagerank_in_numpy(graph: Graph, rounds: int = 20) -> Array:
    """The same over the whole graph; sums are in another order."""
    rank = np.full(graph.n, 1 / graph.n)
    source, dest = graph.edges.T
    degree = np.bincount(source, minlength=graph.n)
    for _ in range(rounds):
        flow = (rank / np.maximum(degree, 1))[source]
        sums = np.bincount(dest, flow, minlength=graph.n)
        rank = 0.15 / graph.n + 0.85 * (rank[degree == 0].sum() / graph.n + sums)
    return rank
