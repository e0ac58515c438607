"""Constants of a formula of counted work, from measured times: robust, and never below 0.

A row is the seconds that something took, and its counts. An error counts by the factor that it is of the seconds, so
short rows say as much as long ones; one that is far off, since something else ran meanwhile, counts for less.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.flow.outcome import Row

LEAST_S = 1e-4
"""Times below this are rounded up to it where errors are weighed: no figure depends on them."""
USUAL_FACTOR = 1.5
"""An error beyond this factor counts for less."""
REWEIGHTED = 15
SWEEPS, ENOUGH = 5_000, 1e-9

Reals = NDArray[np.float64]
Rows = Sequence[Sequence[float]]


@dataclass(frozen=True, slots=True)
class Formula:
    """Seconds by the constant, if there is one, and for each unit of each count."""

    seconds: tuple[float, ...]

    def foretells(self, rows: Rows) -> Reals:
        """Seconds of each row."""
        told: Reals = _counts(np.array(rows, np.float64)) @ np.array(self.seconds)
        return told


def fitted(rows: Rows) -> Formula:
    """The constants that foretell the rows best, the first of them of each row whatever its counts."""
    table = np.array(rows, np.float64)
    seconds, counts = table[:, 0], _counts(table)
    weight = 1 / np.maximum(seconds, LEAST_S)
    for _ in range(REWEIGHTED):
        found = non_negative_least_squares(counts * weight[:, None], seconds * weight)
        told = np.maximum(counts @ found, LEAST_S)
        off = np.abs(np.log(told / np.maximum(seconds, LEAST_S)))
        weight = np.sqrt(np.minimum(1, np.log(USUAL_FACTOR) / np.maximum(off, 1e-9)))
        weight /= np.sqrt(told * np.maximum(seconds, LEAST_S))
    return Formula(tuple(float(value) for value in found))


def non_negative_least_squares(counts: Reals, seconds: Reals) -> Reals:
    """One constant after the other, as the others are, until none changes."""
    scale = np.sqrt((counts**2).sum(axis=0))
    used = np.flatnonzero(scale > 0)
    among = (counts[:, used] / scale[used]).T @ (counts[:, used] / scale[used])
    wanted = (counts[:, used] / scale[used]).T @ seconds
    value = np.zeros(len(used))
    for _ in range(SWEEPS):
        before = value.copy()
        for at in range(len(used)):
            value[at] = max(0.0, value[at] + wanted[at] - among[at] @ value)
        if np.abs(value - before).max(initial=0.0) <= ENOUGH * np.abs(value).max(initial=0.0):
            break
    found = np.zeros(len(scale))
    found[used] = value / scale[used]
    return found


def _counts(table: Reals) -> Reals:
    return np.column_stack([np.ones(len(table)), table[:, 1:]])


def how_well(what: str, rows: Rows, formula: Formula) -> Row:
    """How well a half of the rows, chosen at random, is foretold by constants that are fitted to the other half; and
    the sums of all, by the formula."""
    order = list(range(len(rows)))
    random.Random(what).shuffle(order)
    half = len(rows) // 2
    known, held_out = ([rows[at] for at in part] for part in (order[:half], order[half:]))
    factors = off_by(held_out, fitted(known))
    p50, p90, worst = (float(np.percentile(factors, share)) for share in (50, 90, 100))
    return {
        "what": what,
        "measured": len(rows),
        "seconds": float(sum(row[0] for row in rows)),
        "seconds foretold": float(formula.foretells(rows).sum()),
        "held out": len(held_out),
        "off by factor, median": p50,
        "p90": p90,
        "worst": worst,
    }


def off_by(rows: Rows, formula: Formula) -> Reals:
    """By which factor each is off, from 1."""
    seconds = np.maximum(np.array(rows, np.float64)[:, 0], LEAST_S)
    told = np.maximum(formula.foretells(rows), LEAST_S)
    return np.asarray(np.maximum(told / seconds, seconds / told))
