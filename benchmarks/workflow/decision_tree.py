"""A decision tree that maps workflows to engines, made by hand as the thesis's is (§4.6.1), to compare with.

Like that one it goes by the form of the workflow, by fixed thresholds of what it reads, and by what is known of engines
in general; it knows neither this machine nor sizes between operators. It was written before anything was measured.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

MIB = 2**20
SMALL_BYTES = 256 * 1024
"""What one process reads before another engine has started."""
LARGE_BYTES = 100 * MIB
"""What is worth several cores, and for graphs compiled code."""


@dataclass(frozen=True, slots=True)
class Features:
    """What the tree looks at. is_graph: whether the loop is a graph computation."""

    bytes: int
    has_loop: bool
    is_graph: bool


def decided(features: Features, engines: Collection[str]) -> tuple[str, ...]:
    """The engines of the batch part and of the loop, or one for both; none if the tree knows none of those there."""
    batch = _first(_batch(features), engines)
    if features.is_graph and batch:
        graph = _first(("numba", "scipy") if features.bytes >= LARGE_BYTES else ("scipy", "numba"), engines)
        if graph:
            return batch[0], graph[0]
    return batch


def _batch(features: Features) -> tuple[str, ...]:
    """By preference."""
    if features.has_loop:  # MapReduce has none.
        return ("duckdb", "polars", "datafusion", "pandas", "pyspark", "dask", "serial")
    if features.bytes < SMALL_BYTES:
        return ("serial", "pandas", "duckdb", "polars", "datafusion", "dask", "mapreduce", "pyspark")
    if features.bytes < LARGE_BYTES:
        return ("pandas", "duckdb", "polars", "datafusion", "dask", "mapreduce", "pyspark", "serial")
    return ("duckdb", "polars", "datafusion", "pyspark", "dask", "mapreduce", "pandas", "serial")


def _first(preferred: tuple[str, ...], engines: Collection[str]) -> tuple[str, ...]:
    return tuple(name for name in preferred if name in engines)[:1]
