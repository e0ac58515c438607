"""Figures 6.6 and 6.7 of paper 004, as they are modelled, and long tasks beside short jobs: small ones, and what must
hold whatever the size."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from benchmarks.flow import contention, locality, mixed
from benchmarks.flow.catalogue import FIGURES
from benchmarks.flow.contention import FLOW, PLACEMENTS, SAMPLING, SPREADING, Setting
from benchmarks.flow.locality import HIGH, LOW, PAPER
from sparrow_py.errors import ClusterError

SMALL = Setting(machines=16, servers=3, clients=6, quiet_services=3, sources=3, tasks=120)


# ---- figure 6.6 ------------------------------------------------------------------------------------------------------


def test_the_one_parameter_is_fitted_to_what_is_local_at_14_percent() -> None:
    median = locality.fitted_median()
    assert locality.local_share(median, HIGH) == pytest.approx(PAPER[HIGH], abs=1e-3)
    assert locality.local_share(2 * median, HIGH) < PAPER[HIGH] < locality.local_share(median / 2, HIGH)
    with pytest.raises(ValueError, match=r"local is 1\.5"):
        locality.fitted_median(1.5)


def test_a_lower_threshold_brings_more_and_no_more_than_it_can() -> None:
    shares = [locality.local_share(locality.fitted_median(), threshold) for threshold in (HIGH, 0.1, 0.05, LOW)]
    assert shares == sorted(shares)
    assert shares[-1] <= locality.most_local() < 0.63 < PAPER[LOW]


def test_the_network_places_tasks_where_the_model_says() -> None:
    machines, tasks = locality.cluster(100, 1), locality.arrivals(100, 20.0, 1)
    rounds = [locality.placed(machines, tasks, threshold) for threshold in (HIGH, LOW)]
    assert rounds[0].local < rounds[1].local <= rounds[0].local + HIGH
    assert rounds[0].arcs < rounds[1].arcs


# ---- figure 6.7 ------------------------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_response_times() -> None:
    setting = Setting(machines=10, servers=2, clients=4, quiet_services=2, sources=2, tasks=40)
    for name in PLACEMENTS:
        once, again, other = (contention.responses_s(setting, name, seed) for seed in (1, 1, 2))
        assert once == again != other
        assert len(once) == 36


def test_no_task_is_faster_than_its_machines_link() -> None:
    """What its machine holds it does not read over the network: at most what one machine holds of it."""
    for name in PLACEMENTS:
        readers = contention.readers(SMALL, 3)[SMALL.tasks // 10 :]
        for reader, took_s in zip(readers, contention.responses_s(SMALL, name, 3), strict=True):
            held = Counter(machine for holders in reader.replicas for machine in holders)
            remote = SMALL.sources - max(held.values())
            assert took_s > remote * reader.size / SMALL.sources / SMALL.link - 1e-6


def test_what_is_known_of_links_keeps_tasks_off_those_that_are_full() -> None:
    found = contention.compared(SMALL, [1])
    assert found.ratios[SAMPLING] > 3
    assert found.ratios[SPREADING] > 1.5
    p99 = {row["placed by"]: row["p99 s"] for row in found.rows}
    assert p99[FLOW] < 3 * p99[contention.ALONE]


def test_both_are_figures_of_the_command() -> None:
    assert FIGURES["6.6"] is locality.FIGURE and FIGURES["6.7"] is contention.FIGURE


# ---- long tasks beside sampled jobs ----------------------------------------------------------------------------------


def test_long_tasks_take_nothing_from_short_jobs_in_virtual_time() -> None:
    """Equal jobs on as many slots: response times differ by what nodes are drawn, and not by much."""
    beside, alone = (mixed.simulated(20, slots, slots - mixed.SHORT, 0.5, 200) for slots in (mixed.SLOTS, mixed.SHORT))
    assert len(beside) == len(alone) == 180
    assert min(beside) >= mixed.TASK_MS and min(alone) >= mixed.TASK_MS
    assert float(np.percentile(beside, 95)) <= 1.15 * float(np.percentile(alone, 95))


def test_equal_seeds_give_equal_times_beside_long_tasks() -> None:
    assert mixed.simulated(5, 10, 8, 0.3, 20) == mixed.simulated(5, 10, 8, 0.3, 20)


def test_long_tasks_that_do_not_fit_the_lane_are_said() -> None:
    with pytest.raises(ClusterError, match="8 of 9 long tasks run"):
        mixed.simulated(1, 10, 9, 0.5, 10)
