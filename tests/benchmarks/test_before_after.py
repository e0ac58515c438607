"""What two checkouts' figures are compared by."""

from __future__ import annotations

import pytest

from benchmarks.before_after import cost, figures_of, median_interval, row_of

REPORT = {
    "details": {
        "tables": {
            "Calls, in sequence": [{"": "sparrow-py", "slots": 2, "p50 ms": 0.9, "target ms": 0.5}],
            "Resident sets": [{"process": "idle scheduler", "RSS MB": 49.0}],
            "Rates": [{"": "pool", "tasks/s": 8000.0, "CPU ms/task": 0.15}],
        }
    }
}


def test_times_and_rates_are_compared_and_targets_are_not() -> None:
    assert figures_of("latency", REPORT) == {
        ("latency", "Calls: sparrow-py, slots 2", "p50 ms"): 0.9,
        ("latency", "Resident sets: process idle scheduler", "RSS MB"): 49.0,
        ("latency", "Rates: pool", "tasks/s"): 8000.0,
        ("latency", "Rates: pool", "CPU ms/task"): 0.15,
    }


def test_what_counts_is_the_ratio_within_a_pair() -> None:
    """The machine became twice as slow after the second pair: each pair's ratio is 1.1 all the same."""
    row = row_of(("latency", "calls", "p50 ms"), [1.0, 1.0, 2.0, 2.0], [1.1, 1.1, 2.2, 2.2])
    assert row["after / before"] == pytest.approx(1.1)
    assert cost(row) == pytest.approx(1.1)


def test_a_higher_rate_costs_less() -> None:
    row = row_of(("throughput", "calls", "tasks/s"), [100.0, 100.0], [125.0, 125.0])
    assert cost(row) == pytest.approx(0.8)


@pytest.mark.parametrize(("n", "rank"), [(2, 0), (5, 0), (6, 0), (9, 1), (15, 3), (20, 5)])
def test_the_interval_of_the_median_is_that_of_the_binomial_distribution(n: int, rank: int) -> None:
    """The ranks are those of the tables of the sign test at 95 %."""
    assert median_interval(list(range(n))) == (rank, n - 1 - rank)
