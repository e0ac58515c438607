"""Table 1 of Canary: an iteration of logistic regression on one worker, by how it is written.

The paper has Spark in three styles and its own C++ on 18 cores and 20 GB, 125 million rows of 20 numbers. Times are
told as core time a row: 18 cores by the iteration's time by rows. Spark is not run here (it needs a Java machine); in
its place stand the same three styles in Python: functions over single rows, a loop over rows, numpy over a partition.
"""

from __future__ import annotations

import functools
import importlib.util
import math
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
from scipy.special import expit

from benchmarks.flow.outcome import Row
from frontends.dataflow import Dataflow

Array = np.ndarray[Any, Any]
Iteration = Callable[[], Array]
"""Runs one; returns the gradient."""
COLUMNS = 20
PARTITIONS = 18
PAPER_ROWS = 20e9 / (8 * COLUMNS)
PAPER_S = {"functions over rows": 42.36, "a loop over rows": 6.52, "numpy by hand": 2.59, "stages": 0.47}
"""Of Spark's functional and imperative styles and its low-level API, and of Canary."""
SLOW = 100
"""How many times fewer rows the styles have that go over rows in Python."""


def by_functions(x: list[list[float]], y: list[float], w: list[float]) -> Array:
    """A map and a reduce, with a new list for each row."""

    def of_row(pair: tuple[list[float], float]) -> list[float]:
        row, label = pair
        margin = sum(map(lambda a, b: a * b, row, w))
        factor = 1 / (1 + math.exp(-margin)) - label
        return [factor * value for value in row]

    def sum_of(a: list[float], b: list[float]) -> list[float]:
        return [p + q for p, q in zip(a, b, strict=True)]

    return np.array(functools.reduce(sum_of, map(of_row, zip(x, y, strict=True))))


def by_loop(x: list[list[float]], y: list[float], w: list[float]) -> Array:
    gradient = [0.0] * COLUMNS
    for row, label in zip(x, y, strict=True):
        margin = 0.0
        for column in range(COLUMNS):
            margin += row[column] * w[column]
        factor = 1 / (1 + math.exp(-margin)) - label
        for column in range(COLUMNS):
            gradient[column] += factor * row[column]
    return np.array(gradient)


def by_numpy(parts: list[tuple[Array, Array]], w: Array) -> Array:
    return sum((x.T @ (expit(x @ w) - y) for x, y in parts), np.zeros(COLUMNS))


def _gradient(x: Array, y: Array, w: Array, g: Array) -> None:
    g[:] = x.T @ (expit(x @ w) - y)


def _gradient_by_loops(x: Array, y: Array, w: Array, g: Array) -> None:
    g[:] = 0
    for row in range(x.shape[0]):
        margin = 0.0
        for column in range(x.shape[1]):
            margin += x[row, column] * w[column]
        factor = 1 / (1 + math.exp(-margin)) - y[row]
        for column in range(x.shape[1]):
            g[column] += factor * x[row, column]


def by_stages(features: Array, labels: Array, *, is_compiled: bool) -> Iteration:
    """A program of a gradient, a sum, an update and a signal, as the paper's; an iteration is a run of it."""
    df = Dataflow(plane="inline", partitions=PARTITIONS, progress=False)
    X, Y = df.partition((features, labels))
    w, g = df.replicate(np.zeros(COLUMNS)), df.empty(COLUMNS, like=X)
    total = df.single(np.zeros(COLUMNS))
    gradient = df.stage(reads=[X, Y, w], writes=[g], compiled=is_compiled)(
        _gradient_by_loops if is_compiled else _gradient
    )
    add = df.reduce(g, into=total, op=np.add)

    @df.stage(reads=[total], writes=[w])
    def update(total: Array, w: Array) -> None:
        w -= 0 * total  # So that all iterations have the same gradient.

    @df.signal(on=total)
    def moving(total: Array) -> Any:
        return np.abs(total).max() > 1e-9

    def program() -> Any:
        gradient()
        add()
        update()
        moving()
        return total

    return lambda: np.asarray(df.run(program))


def measure(repeat: int = 10, rows: int = 1_000_000) -> list[Row]:
    """A row for each style; medians of interleaved iterations."""
    chance = np.random.default_rng(1)
    features, labels = chance.normal(size=(rows, COLUMNS)), (chance.random(rows) < 0.5).astype(float)
    few = max(rows // SLOW, PARTITIONS)
    x, y, w = features[:few].tolist(), labels[:few].tolist(), [0.0] * COLUMNS
    parts = list(zip(np.array_split(features, PARTITIONS), np.array_split(labels, PARTITIONS), strict=True))
    tasks = 2 * PARTITIONS + 3
    ways: dict[str, tuple[Iteration, int, int]] = {
        "functions over rows": (lambda: by_functions(x, y, w), few, PARTITIONS),
        "a loop over rows": (lambda: by_loop(x, y, w), few, PARTITIONS),
        "numpy by hand": (lambda: by_numpy(parts, np.zeros(COLUMNS)), rows, PARTITIONS),
        "stages": (by_stages(features, labels, is_compiled=False), rows, tasks),
    }
    if importlib.util.find_spec("numba") is not None:
        ways["compiled stages"] = by_stages(features, labels, is_compiled=True), rows, tasks
    spent: dict[str, list[float]] = {name: [] for name in ways}
    answers: dict[int, Array] = {}
    for turn in range(repeat + 1):
        for name, (iterate, count, _) in ways.items():
            then = time.thread_time_ns()
            answer = iterate()
            if turn:  # The first compiles, and derives graphs.
                spent[name].append((time.thread_time_ns() - then) / count)
            known = answers.setdefault(count, answer)
            assert np.allclose(answer, known, rtol=1e-9, atol=1e-9 * rows), name
    stages_ns = median(spent["stages"])
    made: list[Row] = []
    for name, (_, count, tasks_of_all) in ways.items():
        paper_s = PAPER_S.get(name)
        row_ns = median(spent[name])
        made.append(
            {
                "style": name,
                "rows": count,
                "core_ns_a_row": round(row_ns, 1),
                "to_stages": round(row_ns / stages_ns, 2),
                "tasks_a_cpu_s": round(1e9 * tasks_of_all / (row_ns * PAPER_ROWS), 2),
                "paper_core_ns_a_row": None if paper_s is None else round(paper_s * 18e9 / PAPER_ROWS, 1),
                "paper_to_canary": None if paper_s is None else round(paper_s / PAPER_S["stages"], 2),
            }
        )
    return made
