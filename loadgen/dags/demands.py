"""What tasks of made-up jobs demand, by the kind of their stage's operator.

The paper has no table of demands. What kinds have beside each other is what our own measurement of TPC-H's operators
has: a task is a thread at work; it reads or receives its input, writes and sends what it hands on. Amounts are chosen
so that every resource is what some stages demand most of.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping

from loadgen.dags.operators import AGGREGATE, JOIN, SCAN, SORT
from loadgen.dags.resources import CPU, DISK_IN, DISK_OUT, MEMORY, NET_IN, NET_OUT, bounded

SPREAD = 0.7
"""σ of the logarithm of each amount among stages of a kind: one in twenty has more than three times the median."""
LEAST_CPU = 0.1

MEDIANS: Mapping[str, Mapping[str, float]] = {
    SCAN: {CPU: 1.0, MEMORY: 3e9, DISK_IN: 24e6, DISK_OUT: 10e6, NET_OUT: 20e6},
    JOIN: {CPU: 1.0, MEMORY: 6e9, DISK_OUT: 16e6, NET_IN: 50e6, NET_OUT: 30e6},
    AGGREGATE: {CPU: 1.0, MEMORY: 5e9, DISK_OUT: 8e6, NET_IN: 50e6, NET_OUT: 10e6},
    SORT: {CPU: 1.0, MEMORY: 4e9, DISK_OUT: 20e6, NET_IN: 40e6},
}
"""Of a task, by its stage's kind."""


def draw_demand(rng: random.Random, kind: str) -> dict[str, float]:
    """What each task of a stage of this kind demands."""
    drawn = {
        resource: median * math.exp(rng.gauss(0.0, SPREAD)) for resource, median in MEDIANS[kind].items() if median
    }
    drawn[CPU] = max(LEAST_CPU, drawn[CPU])
    return bounded(drawn)


def kind_of(parents: int, is_last: bool) -> str:
    """The kind of a stage with so many parents: what reads input scans, what has several parents joins them."""
    if not parents:
        return SCAN
    if parents > 1:
        return JOIN
    return SORT if is_last else AGGREGATE
