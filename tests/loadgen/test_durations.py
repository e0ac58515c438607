"""Distributions of service times: means and tails, with a stated confidence, and invalid distributions."""

import math
import random
import statistics
from typing import Any

import pytest

from loadgen.durations import Durations
from sparrow_py.errors import InvalidOption

DRAWS = 20_000
Z = 3.9
"""Normal quantile of a two-sided confidence of 99.99 %."""


def drawn_ms(durations: Durations, count: int = DRAWS, seed: int = 1) -> list[float]:
    return [1000 * seconds for seconds in durations.draw(random.Random(seed), count)]


@pytest.mark.parametrize(
    "durations", [Durations(), Durations(mean_ms=3.0), Durations("pareto", alpha=3.0), Durations("pareto", alpha=6.0)]
)
def test_means_are_as_stated(durations: Durations) -> None:
    """Where the variance is finite, the mean of many is normal around the stated one."""
    values = drawn_ms(durations)
    error = statistics.stdev(values) / math.sqrt(len(values))
    assert abs(statistics.fmean(values) - durations.mean_ms) < Z * error


def share_is(values: list[float], limit: float, expected: float) -> bool:
    """Whether the share above the limit differs from the expected one by no more than chance."""
    share = sum(value > limit for value in values) / len(values)
    return abs(share - expected) < Z * math.sqrt(expected * (1 - expected) / len(values))


@pytest.mark.parametrize("times", [0.1, 1, 2, 4])
def test_the_tail_of_exponential_durations(times: float) -> None:
    assert share_is(drawn_ms(Durations(mean_ms=50.0)), 50.0 * times, math.exp(-times))


@pytest.mark.parametrize("alpha", [1.2, 1.5, 3.0])
@pytest.mark.parametrize("times", [1.5, 4, 20])
def test_the_tail_of_pareto_durations(alpha: float, times: float) -> None:
    """The share above x times the smallest value is x^−α, even where the variance is infinite."""
    least_ms = 100.0 * (alpha - 1) / alpha
    values = drawn_ms(Durations("pareto", alpha=alpha))
    assert min(values) >= least_ms - 1e-5
    assert share_is(values, least_ms * times, times**-alpha)


def test_constant_durations_are_the_mean() -> None:
    assert set(Durations("constant", mean_ms=20.0).draw(random.Random(1), 5)) == {0.02}


def test_one_duration_for_all_tasks_of_a_job() -> None:
    rng, durations = random.Random(1), Durations(per="job")
    jobs = [set(durations.draw(rng, 5)) for _ in range(10)]
    assert all(len(job) == 1 for job in jobs)
    assert len(set.union(*jobs)) == 10


@pytest.mark.parametrize("kind", ["exponential", "pareto"])
def test_durations_are_whole_nanoseconds(kind: str) -> None:
    """So that they are the same on machines whose logarithms differ in the last bit."""
    assert all(seconds == round(seconds, 9) for seconds in Durations(kind).draw(random.Random(1), 100))


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"kind": "normal"}, "service"),
        ({"per": "cluster"}, "per"),
        ({"mean_ms": 0}, "mean_ms"),
        ({"mean_ms": math.nan}, "mean_ms"),
        ({"mean_ms": math.inf}, "mean_ms"),
        ({"alpha": 1}, "alpha"),
        ({"alpha": math.nan}, "alpha"),
    ],
)
def test_invalid_distributions_are_refused_by_field(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidOption, match=named):
        Durations(**fields)
