"""Dask's schedulers: `sparrow_py.dask.get` beside threads and, with the extra `peers`, distributed, a worker a core.

Measured: wall time of a `dask.compute`, and CPU time of all processes. Work: a reduction of an array of 16 million
numbers in 64 chunks; a group-by of a data frame of 200,000 rows; a bag of 20,000 numbers; a tree of 1,023 delayed calls
that do next to nothing, which tells what a task costs. Graphs are built before. All ways run in turns, and are warm.
`value`: our wall time to that of distributed, or where that is not installed of threads, geometric mean over the work.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.habits.turns import OURS, geometric_mean_of_ratios, in_turns
from benchmarks.report import Report, Row, command
from sparrow_py import Client, LocalCluster

THREADS, DISTRIBUTED = "threads", "distributed"
LEAVES = 512


def _array() -> Any:
    import dask.array as da

    numbers = da.random.default_rng(0).random((4_000, 4_000), chunks=(500, 500))
    return ((numbers - numbers.mean(axis=0)) ** 2).sum()


def _frame() -> Any:
    import dask.dataframe as dd
    import numpy as np
    import pandas as pd

    random = np.random.default_rng(0)
    rows = pd.DataFrame({"key": random.integers(0, 100, 200_000), "value": random.random(200_000)})
    return dd.from_pandas(rows, npartitions=16).groupby("key").value.mean().sum()


def _bag() -> Any:
    import dask.bag as db

    return db.range(20_000, npartitions=20).map(lambda number: number % 7).frequencies().topk(3, key=1)


def _tree() -> Any:
    import dask

    add = dask.delayed(lambda *numbers: sum(numbers))
    level = [add(number) for number in range(LEAVES)]
    while len(level) > 1:
        level = [add(*level[first : first + 2]) for first in range(0, len(level), 2)]
    return level[0]


WORK: dict[str, Callable[[], Any]] = {"array": _array, "data frame": _frame, "bag": _bag, "tree of 1,023": _tree}


@contextlib.contextmanager
def _distributed() -> Iterator[dict[str, Any]]:
    """Dask's scheduler and workers, if they are installed."""
    if importlib.util.find_spec("distributed") is None:
        yield {}
        return
    import distributed

    workers = {"n_workers": os.cpu_count(), "threads_per_worker": 1, "dashboard_address": None}
    with distributed.LocalCluster(**workers) as cluster, distributed.Client(cluster, set_as_default=False) as client:
        yield {DISTRIBUTED: client}


def _same(one: Any, other: Any) -> bool:
    """Whether two results are, but for the order in which floats were added."""
    import numpy as np

    return bool(np.allclose(np.asarray(one, float), np.asarray(other, float)))


def measure(repeat: int) -> Report:
    """All work in all ways."""
    import dask

    import sparrow_py.dask

    rows: list[Row] = []
    repetitions = []
    with LocalCluster() as cluster, Client(cluster) as client, _distributed() as peers:

        def ours(graph: Any, keys: Any, **options: Any) -> Any:
            return sparrow_py.dask.get(graph, keys, client=client, **options)

        schedulers: dict[str, Any] = {OURS: ours, THREADS: THREADS, **peers}
        for name, build in WORK.items():
            collection = build()
            ways = {
                way: lambda s=scheduler, c=collection: dask.compute(c, scheduler=s)[0]
                for way, scheduler in schedulers.items()
            }
            found, seconds = in_turns(name, ways, repeat, _same)
            rows += found
            repetitions.append({name: seconds})
    peer = DISTRIBUTED if peers else THREADS
    notes = [] if peers else ["distributed is not installed: it comes with the extra peers"]
    value = geometric_mean_of_ratios(rows, peer)
    return Report("dask", value, f"of the wall time of {peer}", {"Dask's schedulers": rows}, repetitions, notes)


main = command("dask", measure, repeat=7, help="Dask's schedulers: ours beside threads and distributed.")
