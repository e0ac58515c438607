"""Logistic regression by gradient descent over partitioned arrays.

    python examples/dataflow/logistic_regression.py [--check] [--partitions N]

`--check` compares the weights with those of the same algorithm in plain numpy.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
from scipy.special import expit

from frontends.dataflow import Dataflow

Array = np.ndarray[Any, Any]


def made_up(rows: int, columns: int, seed: int = 1) -> tuple[Array, Array]:
    """Features, and labels that depend on them."""
    chance = np.random.default_rng(seed)
    features = chance.normal(size=(rows, columns))
    labels = (chance.random(rows) < expit(features @ chance.normal(size=columns))).astype(float)
    return features, labels


def regression(
    features: Array, labels: Array, partitions: int, plane: str, tolerance: float, workers: int = 1
) -> Array:
    """The weights. The gradient's largest part is below `tolerance` a row then."""
    rows, columns = features.shape
    with Dataflow(partitions=partitions, workers=workers, plane=plane) as df:
        X, Y = df.partition((features, labels))
        w = df.replicate(np.zeros(columns))
        g = df.empty(columns, like=X)
        total = df.single(np.zeros(columns))

        @df.stage(reads=[X, Y, w], writes=[g])
        def gradient(x: Array, y: Array, w: Array, g: Array) -> None:
            g[:] = x.T @ (expit(x @ w) - y)

        add = df.reduce(g, into=total, op=np.add)

        @df.stage(reads=[total], writes=[w])
        def update(total: Array, w: Array, *, rate: float) -> None:
            w -= rate * total

        @df.signal(on=total)
        def moving(total: Array) -> Any:
            return np.abs(total).max() > tolerance * rows

        def program() -> Any:
            while True:
                gradient()
                add()
                update(rate=4 / rows)
                if not moving():
                    return w

        weights: Array = df.run(program)
        return weights


def in_numpy(features: Array, labels: Array, tolerance: float) -> Array:
    """The same over whole arrays."""
    w = np.zeros(features.shape[1])
    while True:
        total = features.T @ (expit(features @ w) - labels)
        w -= 4 / len(features) * total
        if not np.abs(total).max() > tolerance * len(features):
            return w


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="compare with plain numpy")
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--workers", type=int, help="how many are wanted")
    parser.add_argument("--plane", help="who decides which task runs where")
    parser.add_argument("--rows", type=int, default=20_000)
    options = parser.parse_args()
    features, labels = made_up(options.rows, 10)
    then = time.perf_counter()
    weights = regression(features, labels, options.partitions, options.plane, 1e-6, options.workers)
    print(f"weights {np.round(weights, 3)} in {time.perf_counter() - then:.2f} s")
    if options.check:
        difference = np.abs(weights - in_numpy(features, labels, tolerance=1e-6)).max()
        print(f"largest difference from numpy: {difference:.1e}")
        if not difference < 1e-9:
            raise SystemExit("check failed: the largest difference has to be below 1e-9")


if __name__ == "__main__":
    main()
