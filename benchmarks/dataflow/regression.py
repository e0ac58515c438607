"""Programs for the figures of the execution templates' paper: no-ops, and the shape of logistic regression."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from frontends.dataflow import Dataflow

Program = Callable[[], Any]


def no_ops(partitions: int, iterations: int, rounds: int = 1) -> tuple[Dataflow, Program]:
    """Four stages on each partition, `rounds` times, and a signal; all that `iterations` times."""
    df = Dataflow(plane="inline", partitions=partitions, progress=False)
    data, weights, gradient = df.empty(1), df.empty(1), df.empty(1)
    left = df.single(np.array(0))
    a = df.stage(reads=[data, weights], writes=[gradient], name="a")(lambda x, y, z: None)
    b = df.stage(writes=[gradient], name="b")(lambda x: None)
    c = df.stage(reads=[gradient, data], writes=[weights], name="c")(lambda x, y, z: None)
    d = df.stage(writes=[weights], name="d")(lambda x: None)

    @df.signal(on=left)
    def more(left: Any, *, number: int) -> Any:
        return number < iterations

    def program() -> None:
        number = 0
        is_going = True
        while is_going:
            for _ in range(rounds):
                for stage in (a, b, c, d):
                    stage()
            number += 1
            is_going = more(number=number)

    return df, program


class Timed:
    """What tasks of a program take in virtual time. The cluster that runs them is known later than the program."""

    def __init__(self, task_s: float) -> None:
        self.task_s = task_s
        self.spend: Callable[[float], None] = lambda duration_s: None

    def __deepcopy__(self, memo: object) -> Timed:
        return self


def regression(
    partitions: int, iterations: int, timed: Timed, shape: tuple[int, ...] = (1,)
) -> tuple[Dataflow, Program]:
    """Gradients, a sum, an update of the copies: as logistic regression and k-means, whose tasks take `timed.task_s`
    each and make an array of this shape."""
    df = Dataflow(plane="inline", partitions=partitions, progress=False)
    X, w = df.empty(1, name="X"), df.replicate(np.zeros(shape), name="w")
    g, total = df.empty(shape, like=X, name="g"), df.single(np.zeros(shape), name="total")

    @df.stage(reads=[X, w], writes=[g])
    def gradient(x: Any, w: Any, g: Any) -> None:
        timed.spend(timed.task_s)

    add = df.reduce(g, into=total, op=np.add)

    @df.stage(reads=[total], writes=[w])
    def update(total: Any, w: Any) -> None:
        w += 1

    @df.signal(on=total)
    def more(total: Any, *, number: int) -> Any:
        return number < iterations

    def program() -> None:
        number = 0
        is_going = True
        while is_going:
            gradient()
            add()
            update()
            number += 1
            is_going = more(number=number)

    return df, program
