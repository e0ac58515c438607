"""What the tasks of graphs do: next to nothing, so that what a task costs is what is measured."""

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
