"""Figures 6.6 and 6.7 of paper 004, as they are modelled, and long tasks beside short jobs: small ones, and what must
hold whatever the size."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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


Held = dict[str, int]
"""By machine: how many of a hundred bytes of a task's input."""


def cheapest(
    tasks: Sequence[Held], racks: Sequence[str], threshold: float, rack_cost: int, core_cost: int
) -> tuple[float, float]:
    """The least and the most of the input that is local in any placement of least cost under Quincy's arcs, by trying
    all placements: machines m0, m1, … of one slot, which are in these racks. Written without the product's code."""
    names = [f"m{number}" for number in range(len(racks))]
    costs = []
    for held in tasks:
        in_rack = {rack: min(100, sum(held.get(m, 0) for m, its in zip(names, racks, strict=True) if its == rack))
                   for rack in racks}  # fmt: skip
        least = {rack: min(held.get(m, 0) for m, its in zip(names, racks, strict=True) if its == rack)
                 for rack in racks}  # fmt: skip
        row = []
        for name, rack in zip(names, racks, strict=True):
            ways = [core_cost * 100]
            if in_rack[rack] >= 100 * threshold:
                ways.append(rack_cost * (in_rack[rack] - least[rack]) + core_cost * (100 - in_rack[rack]))
            if held.get(name, 0) >= 100 * threshold:
                ways.append(rack_cost * (in_rack[rack] - held[name]) + core_cost * (100 - in_rack[rack]))
            row.append(min(ways))
        costs.append(row)
    found = [
        (
            sum(row[place] for row, place in zip(costs, places, strict=True)),
            sum(held.get(names[place], 0) for held, place in zip(tasks, places, strict=True)) / (100 * len(tasks)),
        )
        for places in itertools.permutations(range(len(names)), len(tasks))
    ]
    best = min(cost for cost, _ in found)
    local = [share for cost, share in found if cost == best]
    return min(local), max(local)


CLUSTERS = st.integers(2, 4).flatmap(
    lambda machines: st.tuples(
        st.lists(
            st.dictionaries(
                st.sampled_from([f"m{number}" for number in range(machines)]), st.sampled_from([5, 10, 13, 15, 30, 60])
            ),
            min_size=1,
            max_size=min(3, machines),
        ),
        st.lists(st.sampled_from(["r0", "r1"]), min_size=machines, max_size=machines),
    )
)


@settings(max_examples=200, deadline=None)
@given(CLUSTERS)
def test_where_only_machines_count_no_input_makes_a_lower_threshold_bring_more_than_the_bound(
    cluster: tuple[list[Held], list[str]],
) -> None:
    tasks, racks = cluster
    least, _ = cheapest(tasks, racks, HIGH, 200, 200)
    _, most = cheapest(tasks, racks, LOW, 200, 200)
    assert most <= locality.most_local(least, HIGH) + 1e-9


def test_with_racks_inputs_can_be_made_up_that_exceed_the_bound() -> None:
    """By little, as far as a search of 50,000 small clusters has found any: whichever of equal placements is taken."""
    tasks = [{"m0": 60, "m1": 10, "m2": 60, "m3": 30}, {"m3": 10}, {"m2": 30, "m3": 5}]
    _, most_at_high = cheapest(tasks, ["r2", "r1", "r0", "r0"], HIGH, 100, 200)
    least_at_low, _ = cheapest(tasks, ["r2", "r1", "r0", "r0"], LOW, 100, 200)
    assert (most_at_high, least_at_low) == (pytest.approx(0.65 / 3), pytest.approx(1 / 3))
    assert locality.most_local(most_at_high, HIGH) < least_at_low < locality.most_local(most_at_high, HIGH) + 0.01


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
