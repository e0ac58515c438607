"""Means over seeds, and how sure they are."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

T_OF_FEW = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
"""97.5 % points of Student's t with 1, 2, … degrees of freedom."""

NORMAL = statistics.NormalDist().inv_cdf(0.975)


class Interval(NamedTuple):
    """A mean, and its 95 % confidence interval by Student's t; without one (`low` = `high` = mean) if of one value."""

    mean: float
    low: float
    high: float


def interval(values: Sequence[float]) -> Interval:
    """The mean of independent values, one for each seed."""
    mean = statistics.fmean(values)
    if len(values) == 1:
        return Interval(mean, mean, mean)
    half = t_point(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    return Interval(mean, mean - half, mean + half)


def t_point(degrees: int) -> float:
    """The 97.5 % point of Student's t; for many degrees of freedom by its expansion around the normal one."""
    if degrees <= len(T_OF_FEW):
        return T_OF_FEW[degrees - 1]
    z = NORMAL
    return z + (z**3 + z) / (4 * degrees) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)
