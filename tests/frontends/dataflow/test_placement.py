"""Where partitions are at first, what the map says of moves, and which partition moves next."""

from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontends.dataflow.partition_map import Entry, PartitionMap
from frontends.dataflow.placement import Balancer, Move, evening_move, initial, loads


def test_entries_get_a_version_more_with_each_move_and_older_ones_are_not_taken_over() -> None:
    controllers = PartitionMap({(1, 0): 0, (1, 1): 1})
    workers = controllers.copy()
    first = controllers.move((1, 0), 1)
    second = controllers.move((1, 0), 0)
    assert (first.entry, second.entry) == (Entry(1, 2), Entry(0, 3)) and workers[1, 0] == Entry(0, 1)
    assert workers.apply(*second) and not workers.apply(*first) and not workers.apply(*second)
    assert workers[1, 0] == Entry(0, 3) and workers.held_by(1) == [(1, 1)] and workers.held_by(0) == [(1, 0)]
    workers.check_invariants([0, 1])
    with pytest.raises(AssertionError):
        workers.check_invariants([1])


@given(st.permutations(range(6)))
def test_maps_that_learn_of_moves_in_any_order_end_alike(order: list[int]) -> None:
    controllers = PartitionMap({(1, 0): 0, (1, 1): 0})
    workers = controllers.copy()
    updates = [controllers.move((1, number % 2), number) for number in range(6)]
    for number in order:
        workers.apply(*updates[number])
    assert dict(workers.items()) == dict(controllers.items())


def test_at_first_each_worker_has_as_many_partitions_and_single_ones_go_by_turns() -> None:
    placed = initial({0: 1, 1: 8, 5: 3, 7: 1}, [10, 11])
    by_worker = {worker: [slot for slot, other in placed.items() if other == worker] for worker in (10, 11)}
    assert by_worker[10] == [(0, 0), *[(1, i) for i in range(4)], (5, 0), (5, 1)]
    assert by_worker[11] == [*[(1, i) for i in range(4, 8)], (5, 2), (7, 0)]


@given(st.integers(1, 9), st.integers(1, 40))
def test_no_worker_has_two_partitions_of_a_group_more_than_another(workers: int, partitions: int) -> None:
    placed = initial({1: partitions}, range(workers))
    counts = [list(placed.values()).count(worker) for worker in range(workers)]
    assert sum(counts) == partitions and max(counts) - min(counts) <= 1


def balanced(costs: list[float], workers: int, looks: int) -> tuple[float, int]:
    """The busiest worker's load after so many looks, and how many partitions moved."""
    placed, moves = initial({1: len(costs)}, range(workers)), 0
    used = {(1, index): cost for index, cost in enumerate(costs)}
    balancer = Balancer()
    for _ in range(looks):
        move = balancer.observe(used, placed, range(workers))
        balancer.check_invariants()
        if move is not None:
            assert placed[move.slot] == move.source
            placed[move.slot] = move.destination
            moves += 1
    return max(loads(used, placed, range(workers)).values()), moves


LOOKS = 10
"""In 5 s, one each half second."""


@pytest.mark.parametrize("workers", [2, 3, 4, 8])
@pytest.mark.parametrize("per_worker", [2, 4, 8, 10])
@pytest.mark.parametrize("at", [0, -1])
def test_one_partition_that_costs_four_times_ends_within_15_percent_of_the_best(
    workers: int, per_worker: int, at: int
) -> None:
    costs = [1.0] * (workers * per_worker)
    costs[at] = 4.0
    best = max(4, math.ceil(sum(costs) / workers))  # All other partitions cost 1, so loads are whole numbers.
    load, _ = balanced(costs, workers, LOOKS)
    assert load <= best * 1.15


@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_even_load_moves_nothing(noise: float) -> None:
    costs = [1 + noise * (index % 3 - 1) for index in range(32)]
    assert balanced(costs, 4, 100) == (pytest.approx(8, rel=0.02), 0)


def test_a_partition_moves_when_the_load_was_uneven_twice_running() -> None:
    placed = {(1, 0): 0, (1, 1): 0, (1, 2): 1}
    uneven, even = {(1, 0): 1.0, (1, 1): 2.0, (1, 2): 1.0}, {(1, 0): 1.0, (1, 1): 1.0, (1, 2): 2.0}
    balancer = Balancer()
    assert balancer.observe(uneven, placed, [0, 1]) is None
    assert balancer.observe(even, placed, [0, 1]) is None
    assert balancer.observe(uneven, placed, [0, 1]) is None
    assert balancer.observe(uneven, placed, [0, 1]) == Move((1, 0), 0, 1)
    assert balancer.observe({}, placed, [0, 1]) is None


def test_what_is_on_its_way_does_not_move_again_and_no_move_makes_it_worse() -> None:
    placed, used = {(1, 0): 0, (1, 1): 0, (1, 2): 1}, {(1, 0): 1.0, (1, 1): 3.0}
    assert evening_move(used, placed, [0, 1]) == Move((1, 0), 0, 1) or evening_move(used, placed, [0, 1]) is not None
    assert evening_move(used, placed, [0, 1], moving=[(1, 0), (1, 1)]) is None
    assert evening_move({(1, 0): 4.0}, placed, [0, 1]) is None


@given(st.lists(st.floats(0, 100), min_size=1, max_size=12), st.integers(1, 4))
def test_a_move_never_raises_the_highest_load(costs: list[float], workers: int) -> None:
    placed = initial({1: len(costs)}, range(workers))
    used = {(1, index): cost for index, cost in enumerate(costs)}
    move = evening_move(used, placed, range(workers))
    if move is not None:
        before = max(loads(used, placed, range(workers)).values())
        placed[move.slot] = move.destination
        assert max(loads(used, placed, range(workers)).values()) <= before


def test_noise_moves_nothing_there_and_back_once_the_best_is_reached() -> None:
    """Of 35 partitions for 8 workers some worker has 5, which is far from even, and no placement is better."""
    placed = {(1, index): index % 8 for index in range(35)}
    chance = Random(1)
    balancer = Balancer()
    for _ in range(100):
        used = {slot: 1 + 0.02 * chance.uniform(-1, 1) for slot in placed}
        assert balancer.observe(used, placed, range(8)) is None
