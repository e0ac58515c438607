"""The task graph of paper 001, figures 5 and 6, and a program with the two nested loops of its figure 4."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from frontends.dataflow import Dataflow
from frontends.dataflow.commanding_core import ALL_ON, Switches
from tests.support.dataflow_commanded_world import CommandedWorld


def figure_5(switches: Switches = ALL_ON) -> tuple[CommandedWorld, Callable[[], Any], dict[str, int]]:
    """Tasks A and C at worker 1, B at worker 2; the numbers of the objects.

    A reads object 1 and writes 2, B reads 1 and changes 3, C reads 2 and 3 and changes 1. Objects 1 and 3 may be at
    both workers, so they are replicated; 2 is at worker 1, and `there` is what B is at worker 2 for.
    """
    df = Dataflow(plane="inline", partitions=1, progress=False)
    one, three = df.replicate(np.array([1]), name="one"), df.replicate(np.array([3]), name="three")
    two, there = df.single(np.array([2]), name="two"), df.single(np.array([0]), name="there")

    @df.stage(reads=[one], writes=[two])
    def a(one: Any, two: Any) -> None:
        two[:] = 3 * two + one

    @df.stage(reads=[one, there], writes=[three])
    def b(one: Any, there: Any, three: Any) -> None:
        three[:] = 5 * three + one

    @df.stage(reads=[two, three], writes=[one])
    def c(two: Any, three: Any, one: Any) -> None:
        one[:] = one + 7 * two + three

    def program() -> None:
        a()
        b()
        c()

    numbers = {"one": one._spec.id, "two": two._spec.id, "three": three._spec.id, "there": there._spec.id}
    world = CommandedWorld(
        df, 3, placed={(0, 0): 1, (numbers["two"], 0): 1, (numbers["there"], 0): 2}, switches=switches
    )
    world.log = []
    return world, program, numbers


def figure_4(df: Dataflow, inner: int = 3, outer: int = 2) -> Callable[[], Any]:
    """An inner loop that optimises, an outer one that estimates: two basic blocks, the second entered from the first.

    The outer block changes `param`, which the inner one reads.
    """
    tdata, edata = df.partition(np.arange(1.0, 9.0), name="tdata"), df.partition(np.arange(1.0, 5.0), name="edata")
    coeff, param = df.replicate(np.array([0.5]), name="coeff"), df.replicate(np.array([2.0]), name="param")
    gradients, errors = df.empty((1,), like=tdata, name="gradients"), df.empty((1,), like=edata, name="errors")
    gradient, error = df.single(np.zeros(1), name="gradient"), df.single(np.zeros(1), name="error")
    step, rounds = df.single(np.zeros(1), name="step"), df.single(np.zeros(1), name="rounds")

    @df.stage(reads=[tdata, coeff, param], writes=[gradients])
    def find_gradient(tdata: Any, coeff: Any, param: Any, gradients: Any, *, damping: float) -> None:
        gradients[0] = damping * (tdata.sum() * coeff[0] - param[0])

    add = df.reduce(gradients, into=gradient, op=np.add)

    @df.stage(reads=[gradient], writes=[coeff, step])
    def improve(gradient: Any, coeff: Any, step: Any) -> None:
        coeff -= 0.01 * gradient
        step += 1

    @df.signal(on=step)
    def optimising(step: Any) -> Any:
        return step[0] % inner != 0

    @df.stage(reads=[edata, coeff, param], writes=[errors])
    def estimate(edata: Any, coeff: Any, param: Any, errors: Any) -> None:
        errors[0] = abs(edata.sum() * coeff[0] - param[0])

    add_errors = df.reduce(errors, into=error, op=np.add)

    @df.stage(reads=[error], writes=[param, rounds])
    def update_model(error: Any, param: Any, rounds: Any) -> None:
        param += 0.1 * error
        rounds += 1

    @df.signal(on=rounds)
    def estimating(rounds: Any) -> Any:
        return rounds[0] % outer != 0

    def program() -> Any:
        damping = 1.0
        while True:
            while True:
                find_gradient(damping=damping)
                add()
                improve()
                if not optimising():
                    break
            estimate()
            add_errors()
            update_model()
            damping *= 0.5
            if not estimating():
                return coeff

    return program
