"""Numbers of a standard normal distribution of which a few hundred already have its percentiles."""

from __future__ import annotations

import math
import random
from statistics import NormalDist

from loadgen.dags.paper_tables import Spread

NORMAL = NormalDist()
Z95 = NORMAL.inv_cdf(0.95)


def normals(rng: random.Random, count: int) -> list[float]:
    """So many numbers in random order: one from each of as many parts of the distribution that are equally likely."""
    places = [(number + rng.uniform(0.001, 0.999)) / count for number in range(count)]
    rng.shuffle(places)
    return [NORMAL.inv_cdf(place) for place in places]


def together(one: float, other: float, correlation: float) -> float:
    """A normal number that is correlated with `one`, by the help of `other`, which is not."""
    return correlation * one + math.sqrt(1 - correlation**2) * other


def lognormal(spread: Spread, normal: float) -> float:
    """The amount at this place of a lognormal distribution with this median and 95th percentile."""
    return spread.p50 * math.exp(normal * math.log(spread.p95 / spread.p50) / Z95)


def logit_normal(spread: Spread, normal: float) -> float:
    """The same for a part of a whole, from 0 to 1."""
    middle, high = (math.log(part / (1 - part)) for part in (spread.p50, spread.p95))
    return 1 / (1 + math.exp(-(middle + normal * (high - middle) / Z95)))
