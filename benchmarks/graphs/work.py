"""The graphs. Each is built by single calls, as a program builds it that does not know it beforehand."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.functions import noop
from benchmarks.graphs.functions import MODULUS, add, part_sum

if TYPE_CHECKING:
    from benchmarks.graphs.systems import System

INPUTS_MAX = 3
"""Futures that are arguments of a task of the random graph, at most."""
ARRAY_WORKERS = 8
HOLD_S = 0.1
"""How long each worker is held that has the array, so that each of them gets it."""


@dataclass(frozen=True)
class Size:
    """How large the graphs are: tasks of the random one, leaves of the tree, width of the fan, round trips, bytes, the
    Fibonacci number."""

    random_tasks: int
    leaves: int
    width: int
    round_trips: int
    array_bytes: int
    fib: int


FULL = Size(random_tasks=10_000, leaves=2**12, width=1_000, round_trips=500, array_bytes=100_000_000, fib=15)
QUICK = Size(random_tasks=1_000, leaves=2**8, width=100, round_trips=50, array_bytes=10_000_000, fib=8)


@dataclass(frozen=True)
class Work:
    """A graph: its name, how many tasks it has, and what runs it and returns what all systems have to agree on."""

    name: str
    tasks: int
    run: Callable[[System], Any]


def random_inputs(tasks: int, seed: int = 0) -> list[tuple[int, ...]]:
    """For each task the earlier ones whose values it takes: 0 to `INPUTS_MAX`, any of them, none twice."""
    draw = random.Random(seed)
    return [tuple(draw.sample(range(task), min(task, draw.randint(0, INPUTS_MAX)))) for task in range(tasks)]


def random_graph(inputs: Sequence[Sequence[int]]) -> Work:
    """The graph with these inputs. The values of all its tasks are fetched."""

    def run(system: System) -> int:
        futures: list[Any] = []
        for task, others in enumerate(inputs):
            futures.append(system.submit(add, task, *(futures[other] for other in others)))
        return int(sum(system.gather(futures)) % MODULUS)

    return Work(f"random graph of {len(inputs):,}", len(inputs), run)


def tree(leaves: int) -> Work:
    """A reduction by pairs; `leaves` is a power of two. One value is fetched."""

    def run(system: System) -> int:
        level = [system.submit(add, leaf) for leaf in range(leaves)]
        while len(level) > 1:
            level = [system.submit(add, *level[first : first + 2]) for first in range(0, len(level), 2)]
        return int(system.gather(level)[0])

    return Work(f"tree of {leaves:,} leaves", 2 * leaves - 1, run)


def fan(width: int) -> Work:
    """One task, so many that take its value, and one that takes all of theirs."""

    def run(system: System) -> int:
        source = system.submit(add, 1)
        middle = [system.submit(add, source, number) for number in range(width)]
        return int(system.gather([system.submit(add, *middle)])[0])

    return Work(f"fan-out and fan-in of {width:,}", width + 2, run)


def round_trips(count: int) -> Work:
    """One call after the other, each when the result of the one before is there."""

    def run(system: System) -> int:
        for _ in range(count):
            system.gather([system.submit(noop)])
        return count

    return Work(f"{count:,} round trips", count, run)


@dataclass
class ArrayToWorkers:
    """An array that is put once, and of which each of `ARRAY_WORKERS` calls sums a part."""

    array_bytes: int
    fewest_workers: dict[str, int] = field(default_factory=dict)
    """By system those that were at work in one run, at least: it is not told which to take."""
    array: Any = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.array = np.random.default_rng(0).integers(0, 1_000, self.array_bytes // 8)

    @property
    def work(self) -> Work:
        """As the others."""
        return Work(f"{self.array_bytes // 10**6} MB to {ARRAY_WORKERS} workers", ARRAY_WORKERS, self.run)

    def run(self, system: System) -> int:
        """The sum of the parts' sums: of whole numbers, as sums of floats depend on how memory is aligned."""
        array = system.put(self.array)
        parts = [system.submit(part_sum, array, part, ARRAY_WORKERS, HOLD_S) for part in range(ARRAY_WORKERS)]
        found = system.gather(parts)
        at_work = len({process for _, process in found})
        self.fewest_workers[system.name] = min(at_work, self.fewest_workers.get(system.name, at_work))
        return int(sum(total for total, _ in found))
