"""Made-up tables for the workflows in examples/workflow: the same for the same seed.

    python -m frontends.workflow.example_data pagerank DIRECTORY [--size N] [--seed N]

writes a Parquet file for each table. Numbers with a fraction are multiples of 1/8, whose sums are exact in any order.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from frontends.workflow.extra import needs_extra

with needs_extra():
    import pyarrow as pa
    import pyarrow.parquet as pq

Array = np.ndarray[Any, Any]
Tables = dict[str, pa.Table]

RMAT = (0.57, 0.19, 0.19, 0.05)
"""How likely an edge is in each quarter of an R-MAT graph's matrix."""
COUNTRIES = ("USA", "UK", "France", "Japan")
SHARE_COMMON = 0.5
"""Of the edges of two communities, those that both have."""


def rmat(scale: int, edges: int, chance: np.random.Generator) -> Array:
    """Edges of an R-MAT graph of 2^scale vertices: different ones, none to itself. Shape: (at most `edges`, 2)."""
    pairs = np.zeros((edges, 2), dtype=np.int64)
    for bit in range(scale):
        quarter = chance.choice(4, size=edges, p=RMAT)
        pairs[:, 0] |= (quarter // 2) << bit
        pairs[:, 1] |= (quarter % 2) << bit
    return np.unique(pairs[pairs[:, 0] != pairs[:, 1]], axis=0)


def page_rank(size: int, seed: int = 1) -> Tables:
    """size: edges, about; an eighth as many vertices. For BEER `page_rank` and `iter`, for GAS and Lindi `vertices`."""
    edges = rmat(_scale(size), size, np.random.default_rng(seed))
    vertices = np.arange(2 ** _scale(size), dtype=np.int64)
    ranks = pa.table({"id": vertices, "value": np.ones(len(vertices))})
    return {"edges": _edges(edges), "vertices": ranks, "page_rank": ranks, "iter": _counter()}


def shortest_paths(size: int, seed: int = 1) -> Tables:
    """size: edges, about. Each vertex has an edge of length 0 to itself; the first one is vertex 0."""
    chance = np.random.default_rng(seed)
    pairs = rmat(_scale(size), size, chance)
    lengths = chance.integers(1, 80, len(pairs)) / 8
    own = np.repeat(np.unique(pairs)[:, np.newaxis], 2, axis=1)
    edges = _edges(np.concatenate([pairs, own])).append_column(
        "value", pa.array(np.append(lengths, np.zeros(len(own))))
    )
    start = pa.table({"id": [0], "value": [0.0]})
    return {"edges": edges, "vertices": start, "distances": start, "iter": _counter()}


def cross_community(size: int, seed: int = 1) -> Tables:
    """size: edges of each of two R-MAT graphs of the same vertices, about; some edges are of both."""
    chance = np.random.default_rng(seed)
    common, one, other = (rmat(_scale(size), int(size * share), chance) for share in (SHARE_COMMON, *_REST))
    return {
        "community_a": _edges(np.unique(np.concatenate([common, one]), axis=0)),
        "community_b": _edges(np.unique(np.concatenate([common, other]), axis=0)),
        "iter": _counter(),
    }


_REST = (1 - SHARE_COMMON, 1 - SHARE_COMMON)


def k_means(size: int, seed: int = 1, clusters: int = 4) -> Tables:
    """size: points, around `clusters` places of the plane; the first guesses are some of the points."""
    chance = np.random.default_rng(seed)
    middles = chance.integers(-400, 400, (clusters, 2)) / 8
    points = middles[chance.integers(0, clusters, size)] + np.round(chance.normal(0, 5, (size, 2)) * 8) / 8
    guesses = points[chance.permutation(size)[:clusters]]
    return {
        "points": pa.table({"id": np.arange(size), "x": points[:, 0], "y": points[:, 1]}),
        "centroids": pa.table({"centroid": np.arange(len(guesses)), "cx": guesses[:, 0], "cy": guesses[:, 1]}),
        "iter": _counter(),
    }


def purchases(size: int, seed: int = 1) -> Tables:
    """size: purchases, by a hundredth as many users, some of whom buy far more than others."""
    chance = np.random.default_rng(seed)
    users = (max(1, size // 100) * chance.random(size) ** 2).astype(np.int64)
    table = {
        "purchase_id": np.arange(size),
        "amount": chance.integers(1, 500, size),
        "user_id": users,
        "country": pa.array(np.array(COUNTRIES)[chance.integers(0, len(COUNTRIES), size)]),
    }
    return {"purchases": pa.table(table)}


def film_ratings(size: int, seed: int = 1) -> Tables:
    """size: ratings, about, each of one user for one movie; a quarter of the movies is from before 1970."""
    chance = np.random.default_rng(seed)
    movies, users = max(4, int(size**0.5)), max(2, size // 20)
    rated = np.unique(
        np.stack([(movies * chance.random(size) ** 2).astype(np.int64), chance.integers(0, users, size)], axis=1),
        axis=0,
    )
    ratings = {"movie_id": rated[:, 0], "user_id": rated[:, 1], "rating": chance.integers(1, 6, len(rated))}
    years = np.where(chance.random(movies) < 0.25, 1950, 1990) + chance.integers(0, 20, movies)
    return {"ratings": pa.table(ratings), "movies": pa.table({"movie_id": np.arange(movies), "year": years})}


def small_orders(size: int, seed: int = 1) -> Tables:
    """size: rows of TPC-H's `lineitem`, of a thirtieth as many parts; only the columns that query 17 reads."""
    chance = np.random.default_rng(seed)
    parts = max(1, size // 30)
    line_items = {
        "l_partkey": chance.integers(0, parts, size),
        "l_quantity": chance.integers(1, 51, size).astype(float),
        "l_extendedprice": chance.integers(8_000, 800_000, size) / 8,
    }
    kinds = {
        "p_partkey": np.arange(parts),
        "p_brand": pa.array(np.array(["Brand#23", "Brand#34"])[chance.integers(0, 2, parts)]),
        "p_container": pa.array(np.array(["MED BOX", "SM CASE"])[chance.integers(0, 2, parts)]),
    }
    return {"lineitem": pa.table(line_items), "part": pa.table(kinds)}


def _scale(edges: int) -> int:
    """So that there are about eight edges for each vertex."""
    return max(1, (edges // 8).bit_length())


def _edges(pairs: Array) -> pa.Table:
    return pa.table({"src": pairs[:, 0], "dst": pairs[:, 1]})


def _counter() -> pa.Table:
    return pa.table({"iter": pa.array([0], pa.int64())})


TABLES: dict[str, tuple[Callable[[int, int], Tables], int]] = {
    "cross_community_pagerank": (cross_community, 4_000),
    "kmeans": (k_means, 1_000),
    "netflix": (film_ratings, 2_000),
    "pagerank": (page_rank, 4_000),
    "sssp": (shortest_paths, 4_000),
    "top_shopper": (purchases, 100_000),
    "tpch17": (small_orders, 10_000),
}
"""For each workflow what makes its tables, and a size to begin with."""


def tables(workflow: str, size: int | None = None, seed: int = 1) -> Tables:
    """The tables of one of the example workflows."""
    make, usual = TABLES[workflow]
    return make(usual if size is None else size, seed)


def main() -> None:
    parser = argparse.ArgumentParser(description="Write made-up tables of an example workflow as Parquet files.")
    parser.add_argument("workflow", choices=sorted(TABLES))
    parser.add_argument("directory", type=Path)
    parser.add_argument("--size", type=int, help="rows, about, of the greatest table")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    options.directory.mkdir(parents=True, exist_ok=True)
    for name, table in tables(options.workflow, options.size, options.seed).items():
        pq.write_table(table, options.directory / f"{name}.parquet")
        print(f"{options.directory / name}.parquet: {table.num_rows:,} rows")


if __name__ == "__main__":
    main()
