"""Times of arrival: Poisson processes whose rate may change."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sparrow_py.errors import InvalidOption

PIECES_MAX = 10_000


@dataclass(frozen=True)
class Rates:
    """A rate that changes: `factor` times the mean rate from `from_s` on, until the next piece begins.

    pieces: (from_s, factor), in order of time; before the first the factor is 1.
    """

    pieces: tuple[tuple[float, float], ...] = ()

    def __post_init__(self) -> None:
        if len(self.pieces) > PIECES_MAX:
            raise InvalidOption("rates", f"{len(self.pieces)} pieces", f"at most {PIECES_MAX}")
        before_s = -1.0
        for from_s, factor in self.pieces:
            if not before_s < from_s < math.inf or from_s < 0:
                raise InvalidOption("rates", from_s, "seconds from 0, each later than the one before")
            if not 0 <= factor <= 1e6:
                raise InvalidOption("rates", factor, "a factor from 0 to 1e6")
            before_s = from_s

    def spans(self) -> Iterator[tuple[float, float, float]]:
        """(begin_s, end_s, factor) of each piece, the last without end."""
        pieces: Sequence[tuple[float, float]] = self.pieces
        if not pieces or pieces[0][0] > 0:
            pieces = [(0.0, 1.0), *pieces]
        ends = [from_s for from_s, _ in pieces[1:]] + [math.inf]
        for (from_s, factor), end_s in zip(pieces, ends, strict=True):
            yield from_s, end_s, factor

    def work(self, until_s: float) -> float:
        """The integral of the factor from 0 to `until_s`: the seconds at the mean rate that bring as many arrivals."""
        return sum(
            (min(end_s, until_s) - from_s) * factor for from_s, end_s, factor in self.spans() if from_s < until_s
        )


def poisson(rng: random.Random, per_s: float, rates: Rates, until_s: float = math.inf) -> Iterator[float]:
    """Times of arrival in seconds, before `until_s`, at `per_s` times the rates' factor.

    An exponential of rate 1 is drawn per arrival, and used up at the rate of the time that it goes through.
    """
    if not per_s > 0:
        return
    spans = rates.spans()
    at_s, end_s, factor = next(spans)
    left = rng.expovariate(1.0)
    while at_s < until_s:
        here = (end_s - at_s) * per_s * factor if factor else 0.0
        if left < here:
            at_s = round(at_s + left / (per_s * factor), 9)
            if at_s < until_s:
                yield at_s
            left = rng.expovariate(1.0)
        elif end_s == math.inf:
            return  # The rate is 0 from here on.
        else:
            left -= here
            at_s, end_s, factor = next(spans)
