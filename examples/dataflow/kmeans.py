"""k-means (Lloyd's algorithm) over partitioned points.

    python examples/dataflow/kmeans.py [--check] [--points N] [--clusters K] [--partitions P] [--compiled]

`--check` compares the centres with those of the same algorithm in plain numpy, and with scikit-learn's if that is
installed. `--compiled` makes machine code of the stage that goes over the points, which needs numba.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from frontends.dataflow import Dataflow

Array = np.ndarray[Any, Any]
ROUNDS_MAX = 300
BAR = 40


def made_up(points: int, columns: int, clusters: int, seed: int = 1) -> tuple[Array, Array]:
    """Points around as many places as there are clusters, and points among them to start from."""
    chance = np.random.default_rng(seed)
    places = chance.uniform(-10, 10, size=(clusters, columns))
    sizes = chance.dirichlet(np.full(clusters, 5.0))
    near = chance.choice(clusters, size=points, p=sizes)
    made = places[near] + chance.normal(size=(points, columns))
    return made, made[chance.choice(points, size=clusters, replace=False)].copy()


def assign_in_numpy(points: Array, centres: Array, sums: Array) -> None:
    """Of each cluster the sum of its points and, in the last column, how many there are."""
    distances = ((points[:, None, :] - centres[None, :, :]) ** 2).sum(axis=2)
    nearest = distances.argmin(axis=1)
    columns = points.shape[1]
    sums[:, columns] = np.bincount(nearest, minlength=len(centres))
    for column in range(columns):
        sums[:, column] = np.bincount(nearest, points[:, column], minlength=len(centres))


def assign_by_loops(points: Array, centres: Array, sums: Array) -> None:
    """The same as machine code: no array of all distances is made."""
    clusters, columns = centres.shape
    sums[:] = 0
    for row in range(points.shape[0]):
        nearest, least = 0, np.inf
        for cluster in range(clusters):
            distance = 0.0
            for column in range(columns):
                distance += (points[row, column] - centres[cluster, column]) ** 2
            if distance < least:
                nearest, least = cluster, distance
        for column in range(columns):
            sums[nearest, column] += points[row, column]
        sums[nearest, columns] += 1


def kmeans(
    points: Array, start: Array, *, compiled: bool = False, tolerance: float = 1e-12, **options: Any
) -> tuple[Array, Array, int]:
    """Centres, how many points each has, and rounds; `options` are those of `Dataflow`."""
    clusters, columns = start.shape
    with Dataflow(**options) as df:
        X = df.partition(points)
        centres = df.replicate(start)
        sums = df.empty((clusters, columns + 1), like=X)
        totals = df.single(np.zeros((clusters, columns + 1)))
        moved = df.single(np.zeros(2))  # The longest way of a centre, and rounds.

        function: Callable[..., None] = assign_by_loops if compiled else assign_in_numpy
        assign = df.stage(reads=[X, centres], writes=[sums], compiled=compiled)(function)
        add = df.reduce(sums, into=totals, op=np.add)

        @df.stage(reads=[totals], writes=[centres, moved])
        def move(totals: Array, centres: Array, moved: Array) -> None:
            counts = totals[:, columns:]
            new = np.where(counts > 0, totals[:, :columns] / np.maximum(counts, 1), centres)
            moved[:] = np.abs(new - centres).max(), moved[1] + 1
            centres[:] = new

        @df.signal(on=moved)
        def moving(moved: Array) -> Any:
            return moved[0] > tolerance and moved[1] < ROUNDS_MAX

        def program() -> Any:
            while True:
                assign()
                add()
                move()
                if not moving():
                    return centres, totals, moved

        found, counted, how = df.run(program)
        return found, counted[:, columns], int(how[1])


def in_numpy(points: Array, start: Array, tolerance: float = 1e-12) -> Array:
    """The same over all points at once."""
    centres, columns = start.copy(), start.shape[1]
    sums = np.zeros((len(start), columns + 1))
    for _ in range(ROUNDS_MAX):
        assign_in_numpy(points, centres, sums)
        counts = sums[:, columns:]
        new = np.where(counts > 0, sums[:, :columns] / np.maximum(counts, 1), centres)
        moved = np.abs(new - centres).max()
        centres = new
        if not moved > tolerance:
            break
    return centres


def by_scikit_learn(points: Array, start: Array) -> Array | None:
    """Its centres, from the same start; None if it is not installed."""
    if importlib.util.find_spec("sklearn") is None:
        return None
    cluster = importlib.import_module("sklearn.cluster")
    fitted = cluster.KMeans(len(start), init=start, n_init=1, tol=0, max_iter=ROUNDS_MAX).fit(points)
    return np.asarray(fitted.cluster_centers_)


def show(centres: Array, counts: Array) -> None:
    """The clusters, the largest first."""
    for cluster in np.argsort(-counts):
        bar = "█" * max(round(BAR * counts[cluster] / counts.max()), 1)
        place = " ".join(f"{value:6.2f}" for value in centres[cluster][:4])
        print(f"  {bar:<{BAR}} {int(counts[cluster]):8,} points around ({place})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--check", action="store_true", help="compare with plain numpy, and scikit-learn if it is there"
    )
    parser.add_argument("--compiled", action="store_true", help="go over the points in machine code (needs numba)")
    parser.add_argument("--points", type=int, default=200_000)
    parser.add_argument("--columns", type=int, default=2)
    parser.add_argument("--clusters", type=int, default=8)
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--workers", type=int, help="how many are wanted")
    parser.add_argument("--plane", help="who decides which task runs where")
    options = parser.parse_args()
    points, start = made_up(options.points, options.columns, options.clusters)
    then = time.perf_counter()
    centres, counts, rounds = kmeans(
        points, start, compiled=options.compiled, partitions=options.partitions, workers=options.workers,
        plane=options.plane,
    )  # fmt: skip
    print(f"{rounds} rounds in {time.perf_counter() - then:.2f} s")
    show(centres, counts)
    if not options.check:
        return
    differences = {"numpy": (np.abs(centres - in_numpy(points, start)).max(), 1e-9)}
    theirs = by_scikit_learn(points, start)
    if theirs is None:
        print("scikit-learn is not installed: not compared with it")
    else:
        differences["scikit-learn"] = np.abs(centres - theirs).max(), 1e-6
    for name, (difference, most) in differences.items():
        print(f"largest difference from {name}: {difference:.1e}")
        if not difference < most:
            raise SystemExit(f"check failed: the largest difference from {name} has to be below {most}")


if __name__ == "__main__":
    main()
