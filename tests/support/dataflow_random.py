"""Random programs over partitioned arrays whose answers depend on the order of all that touches the same data."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np

from frontends.dataflow import Dataflow

PRIME = 1_000_003


def _mix(*arrays: Any) -> Any:
    """A number of some arrays, other in another order."""
    mixed = 7
    for array in arrays:
        mixed = (mixed * 31 + int(np.sum(array))) % PRIME
    return mixed


def _computing(reads: int, salt: int) -> Callable[..., None]:
    """A function of `reads` arrays that are read and one that is written."""

    def one(x: Any) -> None:
        x[:] = (x * 3 + salt) % PRIME

    def two(a: Any, x: Any) -> None:
        x[:] = (x * 3 + _mix(a) + salt) % PRIME

    def three(a: Any, b: Any, x: Any) -> None:
        x[:] = (x * 3 + _mix(a, b) + salt) % PRIME

    return (one, two, three)[reads]


def random_program(
    seed: int, blocks: int = 3, repeats: int = 0, df: Dataflow | None = None
) -> tuple[Dataflow, Callable[[], Any]]:
    """Datasets of two partitionings, single and replicated ones; stages of all kinds; loops over signals.

    With `repeats` the program runs so many blocks instead, again and again the same ones in some order.
    """
    chance = Random(seed)
    df = Dataflow(plane="inline", partitions=4, progress=False) if df is None else df
    few, many = chance.randint(2, 3), chance.randint(4, 7)
    partitioned = [
        [df.partition(np.arange(count * 2) * number + salt, partitions=count, name=f"{count}p{number}")
         for number in range(1, 4)]
        for salt, count in enumerate((few, many))
    ]  # fmt: skip
    singles = [df.single(np.array([number + 1]), name=f"s{number}") for number in range(3)]
    copies = [df.replicate(np.array([number + 5]), name=f"w{number}") for number in range(2)]
    count = df.single(np.array([0]), name="count")

    @df.stage(writes=[count])
    def tick(count: Any) -> None:
        count += 1

    @df.signal(on=count)
    def again(count: Any, *, below: int) -> Any:
        return count[0] % 3 < below

    @df.signal(on=singles[0])
    def odd(s: Any) -> Any:
        return s[0] % 2

    def compute() -> list[Any]:
        """A stage that works on partitions alike, or on single ones."""
        pool = chance.choice([*partitioned, singles])
        written, *others = chance.sample(pool, 3)
        reads = [*others[: chance.randint(0, 1)], *chance.sample(copies, chance.randint(0, 1))]
        handle = df.stage(reads=reads, writes=[written], name=f"c{len(df._definition.stages)}")
        return [handle(_computing(len(reads), chance.randint(0, 99)))]

    def write_copy() -> list[Any]:
        """A stage that writes a copy, where some single dataset is, or at home."""
        reads = chance.sample(singles, chance.randint(0, 1))
        handle = df.stage(reads=reads, writes=[chance.choice(copies)], name=f"w{len(df._definition.stages)}")
        return [handle(_computing(len(reads), chance.randint(0, 99)))]

    def exchange() -> list[Any]:
        """A scatter and a gather, between any two partitionings, of which some chunks are empty."""
        source = chance.choice(chance.choice([*partitioned, singles]))
        pool = chance.choice([*partitioned, singles])
        to, into = chance.sample(pool, 2)
        modulus, salt, name = chance.randint(1, 3), chance.randint(0, 99), len(df._definition.stages)

        def send(x: Any) -> Any:
            mixed = _mix(x)
            for j in range(to_partitions):
                if (mixed + j) % modulus == 0:
                    yield j, np.array([mixed * 10 + j])
                    if j % 2:
                        yield j, np.array([salt])

        to_partitions = to.partitions
        scatter = df.scatter(reads=[source], to=to, name=f"x{name}")(send)
        reads = chance.sample(copies, chance.randint(0, 1))

        def take(chunks: Any, *arrays: Any) -> None:
            raise AssertionError

        def take_one(chunks: Any, x: Any) -> None:
            x[:] = (x * 3 + _mix(*chunks)) % PRIME

        def take_two(chunks: Any, w: Any, x: Any) -> None:
            x[:] = (x * 3 + _mix(*chunks, w)) % PRIME

        gather = df.gather(scatter, reads=reads, writes=[into], name=f"g{name}")(take_two if reads else take_one)
        between = compute() if chance.random() < 0.5 else []
        return [scatter, *between, gather]

    def reduction() -> list[Any]:
        into = chance.choice([*singles, *copies])
        source = df.empty((1,), like=partitioned[0][0], fill=3)
        fill = df.stage(reads=[partitioned[0][0]], writes=[source], name=f"f{len(df._definition.stages)}")
        filled = fill(_computing(1, chance.randint(0, 99)))
        return [filled, df.reduce(source, into=into, op=lambda a, b: (a * 31 + b) % PRIME)]

    def calls() -> list[Any]:
        makers = [compute, compute, write_copy, exchange, exchange, reduction]
        made: list[Any] = []
        for _ in range(chance.randint(1, 4)):
            made += chance.choice(makers)()
        return made

    bodies = [(calls(), calls(), chance.randint(1, 2), chance.random() < 0.3) for _ in range(blocks)]

    def program() -> Any:
        for body, other, below, has_barrier in bodies:
            while True:
                for stage in body:
                    stage()
                tick()
                if not again(below=below):
                    break
                if odd():
                    for stage in other:
                        stage()
            if has_barrier:
                df.barrier()
        for stage in bodies[0][1]:
            stage()

    order = [number for _ in range(repeats) for number in [chance.randrange(blocks)] * chance.choice([1, 1, 1, 3])]

    def repeated() -> Any:
        for number in order[:repeats]:
            for stage in bodies[number][0]:
                stage()
            df.barrier()

    return df, repeated if repeats else program
