"""Constants of formulas of counted work, from made-up times."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.flow.calibrate import Measured, costs_of, measured, medians
from benchmarks.flow.fit import Formula, fitted, how_well, non_negative_least_squares, off_by
from benchmarks.flow.outcome import Scale

TRUE = Formula((200e-6, 50e-9, 150e-9))


def made_up(count: int, noise: float, outliers: float, seed: int = 1) -> list[tuple[float, ...]]:
    """Rows of two counts over several orders of magnitude, off by a factor, some of them by ten."""
    chance = random.Random(seed)
    rows = []
    for _ in range(count):
        counts = (10 ** chance.uniform(2, 6), 10 ** chance.uniform(2, 6))
        seconds = float(TRUE.foretells([(0.0, *counts)])[0]) * chance.lognormvariate(0, noise)
        rows.append((seconds * (10 if chance.random() < outliers else 1), *counts))
    return rows


def test_exact_times_give_the_constants() -> None:
    assert fitted(made_up(50, 0, 0)).seconds == pytest.approx(TRUE.seconds, rel=1e-3)


@pytest.mark.parametrize("seed", range(5))
def test_noise_and_times_that_are_far_off_hardly_move_the_constants(seed: int) -> None:
    rows = made_up(300, 0.2, 0.05, seed)
    assert fitted(rows).seconds == pytest.approx(TRUE.seconds, rel=0.25)
    row = how_well("made up", rows, fitted(rows))
    assert row["held out"] == 150 and 1 <= row["off by factor, median"] < 1.4 and row["worst"] > 5


def test_a_count_that_costs_nothing_gets_nothing_and_none_gets_less() -> None:
    rows = [(row[0], *row[1:], 1e6 / row[1]) for row in made_up(80, 0.3, 0)]
    formula = fitted(rows)
    assert min(formula.seconds) >= 0
    unused = fitted([(*row, 0.0) for row in made_up(20, 0, 0)])
    assert unused.seconds[-1] == 0


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(4, 12))
def test_no_step_away_from_the_least_squares_is_better(seed: int, columns: int, rows: int) -> None:
    chance = np.random.default_rng(seed)
    counts, seconds = chance.uniform(0, 1, (rows, columns)), chance.uniform(-0.5, 1, rows)
    best = non_negative_least_squares(counts, seconds)
    assert (best >= 0).all()
    least = ((counts @ best - seconds) ** 2).sum()
    for at in range(columns):
        for step in (-0.01, 0.01):
            other = best.copy()
            other[at] = max(0.0, other[at] + step)
            assert ((counts @ other - seconds) ** 2).sum() >= least - 1e-9


def test_short_times_are_off_by_nothing() -> None:
    assert off_by([(1e-6, 0.0, 0.0), (9e-5, 0.0, 0.0)], Formula((0.0, 0.0, 0.0))).tolist() == [1.0, 1.0]


def test_what_a_round_took_is_its_own_median() -> None:
    plays = [[(3.0, 7), (1.0, 8)], [(1.0, 7), (2.0, 8)], [(2.0, 7), (9.0, 8)]]
    assert medians(plays) == [(2.0, 7), (2.0, 8)]
    assert medians(plays[:2]) == [(1.0, 7), (1.0, 8)]


@pytest.mark.rest
def test_rounds_that_are_played_again_count_the_same_and_give_constants() -> None:
    found = measured(Scale.TINY)
    assert found.rounds and found.relaxed and found.scaled
    costs, rows = costs_of(found)
    assert [row["what"] for row in rows] == ["rounds without solves", "relaxation", "cost scaling"]
    assert costs.round_us + costs.node_ns > 0 and costs.step_ns >= 0


def test_constants_of_made_up_times_are_told_in_their_units() -> None:
    rounds = [(1e-3 + 1e-4 * tasks, 0.0, tasks, 0.0, 0.0) for tasks in range(1, 20)]
    relaxed = [(1e-2 + 2e-8 * steps, 0.0, steps) for steps in range(0, 10**7, 10**6)]
    scaled = [(1e-3 + 5e-8 * arcs, arcs, 0.0, 0.0) for arcs in range(10**5, 10**7, 10**6)]
    costs, _ = costs_of(Measured(rounds, relaxed, scaled))
    assert (costs.round_us, costs.task_us) == pytest.approx((1_000, 100), rel=0.01)
    assert (costs.relaxation_us, costs.step_ns) == pytest.approx((10_000, 20), rel=0.01)
    assert (costs.scaling_us, costs.scaling_arc_ns) == pytest.approx((1_000, 50), rel=0.01)
