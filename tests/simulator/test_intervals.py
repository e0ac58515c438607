"""Means and confidence intervals over seeds."""

import random
import statistics

import pytest

from simulator.figures.intervals import interval, t_point


@pytest.mark.parametrize(("degrees", "point"), [(1, 12.706), (4, 2.776), (10, 2.228), (30, 2.042), (120, 1.980)])
def test_points_of_student_s_t(degrees: int, point: float) -> None:
    assert t_point(degrees) == pytest.approx(point, rel=2e-3)


def test_an_interval_is_symmetric_around_the_mean() -> None:
    found = interval([1.0, 2.0, 3.0])
    half = 4.303 * 1.0 / 3**0.5
    assert found == pytest.approx((2.0, 2.0 - half, 2.0 + half))


def test_one_value_has_no_width() -> None:
    assert interval([7.0]) == (7.0, 7.0, 7.0)


def test_95_of_100_intervals_contain_the_true_mean() -> None:
    rng = random.Random(5)
    hits = [
        found.low <= 10 <= found.high for found in (interval([rng.gauss(10, 3) for _ in range(5)]) for _ in range(2000))
    ]
    # Four standard errors of a share of 95 % of 2,000.
    assert statistics.fmean(hits) == pytest.approx(0.95, abs=4 * (0.95 * 0.05 / 2000) ** 0.5)
