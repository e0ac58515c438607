"""Poisson processes whose rate changes: the counts of each piece, at a stated confidence."""

import itertools
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.arrivals import Rates, poisson
from sparrow_py.errors import InvalidOption

Z = 3.9
"""Normal quantile of a two-sided confidence of 99.99 %."""
PIECES = ((0.0, 1.0), (100.0, 3.0), (150.0, 0.0), (200.0, 0.5))


def test_each_piece_has_its_stated_rate() -> None:
    times = list(poisson(random.Random(1), 20.0, Rates(PIECES), 400.0))
    ends = [from_s for from_s, _ in PIECES[1:]] + [400.0]
    for (from_s, factor), end_s in zip(PIECES, ends, strict=True):
        expected = 20.0 * factor * (end_s - from_s)
        count = sum(from_s <= at_s < end_s for at_s in times)
        assert abs(count - expected) <= Z * math.sqrt(expected), (from_s, count, expected)


def test_within_a_piece_gaps_are_exponential() -> None:
    times = list(poisson(random.Random(2), 50.0, Rates(((0.0, 2.0),)), 100.0))
    gaps = [after - before for before, after in itertools.pairwise(times)]
    error = 0.01 / math.sqrt(len(gaps))
    mean = sum(gaps) / len(gaps)
    assert abs(mean - 0.01) < Z * error
    shorter = sum(gap < 0.01 * math.log(2) for gap in gaps)  # Than the median of such a distribution.
    assert abs(shorter - len(gaps) / 2) < Z * math.sqrt(len(gaps)) / 2


def test_without_pieces_the_rate_does_not_change() -> None:
    assert list(Rates().spans()) == [(0.0, math.inf, 1.0)]
    assert list(Rates(((5.0, 2.0),)).spans()) == [(0.0, 5.0, 1.0), (5.0, math.inf, 2.0)]


def test_a_rate_of_0_to_the_end_ends() -> None:
    times = list(poisson(random.Random(3), 10.0, Rates(((0.0, 1.0), (5.0, 0.0)))))
    assert times
    assert times[-1] < 5.0


pieces = st.lists(
    st.tuples(st.floats(0, 50), st.sampled_from([0.0, 0.5, 1.0, 4.0])), max_size=5, unique_by=lambda p: p[0]
)


@given(pieces.map(sorted), st.integers(0, 1000))
def test_times_rise_and_end_in_time(drawn: list[tuple[float, float]], seed: int) -> None:
    times = list(poisson(random.Random(seed), 5.0, Rates(tuple(drawn)), 60.0))
    assert times == sorted(times)
    assert all(0 <= at_s < 60.0 for at_s in times)
    silent = [(from_s, end_s) for from_s, end_s, factor in Rates(tuple(drawn)).spans() if not factor]
    assert not any(from_s < at_s < end_s for at_s in times for from_s, end_s in silent)


@pytest.mark.parametrize(
    "bad", [((1.0, 1.0), (1.0, 2.0)), ((2.0, 1.0), (1.0, 1.0)), ((-1.0, 1.0),), ((0.0, -1.0),), ((0.0, math.nan),)]
)
def test_invalid_pieces_are_refused(bad: tuple[tuple[float, float], ...]) -> None:
    with pytest.raises(InvalidOption, match="rates"):
        Rates(bad)
