"""What the tasks of graphs do: next to nothing, so that what a task costs is what is measured.

Nothing is imported that takes memory in workers."""

from __future__ import annotations

import os
import time
from typing import Any

MODULUS = 1_000_003
"""Sums are taken modulo this, so that values stay small however deep the graph is."""


def add(*numbers: int) -> int:
    """Their sum, modulo `MODULUS`."""
    return sum(numbers) % MODULUS


def part_sum(array: Any, part: int, parts: int, hold_s: float) -> tuple[int, int]:
    """The sum of one of so many parts, and the worker's process, which is held for so long."""
    total = int(array[part::parts].sum())
    time.sleep(hold_s)
    return total, os.getpid()


def first_of(array: Any, hold_s: float) -> int:
    """Its first number, after so long."""
    time.sleep(hold_s)
    return int(array[0])


def fib(number: int) -> int:
    """The Fibonacci number, by tasks of ours."""
    if number < 2:
        return number
    from sparrow_py import Client

    client = Client.current()
    one, other = client.submit(fib, number - 1), client.submit(fib, number - 2)
    return int(one.result() + other.result())


def fib_of_dask(number: int) -> int:
    """The same by Dask's, which gives the slot back for as long as the client is open."""
    if number < 2:
        return number
    from distributed import worker_client

    with worker_client() as client:
        one, other = (client.submit(fib_of_dask, number - less, pure=False) for less in (1, 2))
        return int(one.result() + other.result())


def fib_of_ray(number: int) -> int:
    """The same by Ray's."""
    if number < 2:
        return number
    import ray

    remote = ray.remote(fib_of_ray)
    return int(sum(ray.get([remote.remote(number - 1), remote.remote(number - 2)])))
